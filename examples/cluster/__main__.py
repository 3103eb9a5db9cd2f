"""An engine on this machine, a worker of it, and an agent that runs there: `make engine`.

The server is a real one, on loopback, with its data in a folder. The worker is a process of its
own.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from examples.cluster.agent import REPORT, write_report
from examples.cluster.engines import SERVERS, engine_of
from holdfast import Holdfast
from holdfast.api.handle import Handle
from holdfast.testing.servers import NoServer

ROOT = Path(__file__).resolve().parents[2]
_PATIENCE_S = 60.0


@contextmanager
def worker(store: str, where: list[str], folder: Path) -> Iterator[None]:
    """A worker, in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "examples.cluster.worker", store, *where],
        cwd=ROOT,
        env={**os.environ, "CLUSTER_FOLDER": str(folder)},
        stdout=subprocess.PIPE,
        text=True,
    )
    if process.stdout is None or not (ready := process.stdout.readline()):
        raise SystemExit("the worker ended before it had begun")
    print(ready, end="", flush=True)
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()


def wait_for_question(handle: Handle[str]) -> None:
    """Wait until the agent asks."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while handle.status != "awaiting_user":
        if time.monotonic() > give_up_at or handle.status in ("failed", "cancelled"):
            raise SystemExit(f"{REPORT} is {handle.status}, and did not ask: {handle.view.failure}")
        time.sleep(0.05)


def show(handle: Handle[str]) -> None:
    """What the log says of its calls."""
    for call in handle.view.calls:
        tries = f", {len(call.attempts)} tries" if len(call.attempts) > 1 else ""
        print(f"    {call.path:4} {call.name:8} {call.kind:9} {call.status}{tries}")


def answer(is_there_a_person: bool) -> bool:
    """What a person says to the question, or yes."""
    if not is_there_a_person:
        print("  Publish it? yes")
        return True
    return input("  Publish it? [Y/n] ").strip().lower() not in ("n", "no")


def play(hf: Holdfast, page: str, store: str, once: bool) -> None:
    """Run the agent, with a person who answers it."""
    print(f"\n{REPORT} is started on {hf.engine.name}")
    handle = hf.start(write_report, "the tides of Oslo", id=REPORT)
    wait_for_question(handle)
    show(handle)
    hf.answer(REPORT, answer(not once and sys.stdin.isatty()), by="the reader")
    print(f"\n{REPORT}: {handle.result(_PATIENCE_S)}")
    show(handle)
    print(f"\nLook for yourself:\n  the log: .venv/bin/holdfast --url {store} show {REPORT}")
    if not once:
        print(f"  the engine's own page: {page}\n\nCtrl-C ends it all.", flush=True)
        while True:
            time.sleep(3600)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make engine", description=__doc__)
    parser.add_argument("engine", choices=sorted(SERVERS))
    parser.add_argument("--once", action="store_true", help="ask nobody, and end by itself")
    parser.add_argument("--folder", type=Path, default=ROOT / "engine-workspace")
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    server, where, page = SERVERS[given.engine](given.folder / given.engine)
    store = f"sqlite:///{given.folder.absolute()}/store.db"
    try:
        with server:
            print(f"{server.name} runs, with its data in {server.folder}\n  {page}", flush=True)
            with (
                worker(store, where, given.folder),
                Holdfast(store, engine=engine_of(*where)) as hf,
            ):
                play(hf, page, store, given.once)
    except NoServer as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        print("\nends")


if __name__ == "__main__":
    main()
