"""Run the web app, its worker, or both.

    python -m examples.webapp                      # both: http://127.0.0.1:8000
    python -m examples.webapp serve --port 8001    # the server alone
    python -m examples.webapp worker               # a worker alone; run as many as you like

Kill any of them at any time, and start it again: nothing is lost, and nothing is done twice.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from typing import Any

from holdfast import Holdfast, Worker

URL = "sqlite:///webapp.db"


def serve(url: str, port: int) -> None:
    """Serve the app on loopback until the process is told to end."""
    import uvicorn

    from examples.webapp.app import make_app

    uvicorn.run(
        make_app(url), host="127.0.0.1", port=port, log_level="warning", timeout_graceful_shutdown=1
    )


def work(url: str) -> None:
    """Drive orders until the process is told to end."""
    from examples.webapp import orders  # noqa: F401  # the worker has to know the task

    with Holdfast(url) as hf:
        worker = Worker(hf, say=print)

        def stop(*_: Any) -> None:
            worker.stop()

        signal.signal(signal.SIGTERM, stop)
        worker.run()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.webapp", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("both", "serve", "worker"), default="both")
    parser.add_argument("--url", default=URL, help=f"the store (default: {URL})")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    if given.what == "worker":
        return work(given.url)
    if given.what == "serve":
        return serve(given.url, given.port)
    # Uvicorn raises the signal again when it has shut down: by default that ends us at once.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    command = [sys.executable, "-m", "examples.webapp", "worker", "--url", given.url]
    with subprocess.Popen(command) as worker:
        print(f"open http://127.0.0.1:{given.port} (Ctrl-C to stop)", flush=True)
        try:
            serve(given.url, given.port)
        finally:
            worker.terminate()
    return None


if __name__ == "__main__":
    main()
