"""A worker process of an engine, to be killed: `python -m tests.engines.serve ENGINE STORE …`."""

from __future__ import annotations

import importlib
import signal
import sys
from typing import Any

from holdfast import Holdfast

LEASE_S = 3.0
LOST_AFTER_S = 2.0
"""Longer than a busy machine keeps a process waiting: one that is held up between the intent of a
tool and its effect is taken for dead, and no check knows of an effect that is still to come."""


def engine_of(name: str, *where: str) -> Any:
    """The engine at an address: `temporal ADDRESS QUEUE [BUILD]`, or `restate URL ADMIN LISTEN`."""
    if name == "temporal":
        from holdfast.engines.temporal import Temporal

        address, queue, *build = where
        deployment = ("agents", build[0]) if build else None
        return Temporal(address, queue=queue, lost_after_s=LOST_AFTER_S, deployment=deployment)
    from holdfast.engines.restate import Restate

    url, admin, listen = where
    return Restate(url, admin=admin, listen=listen)


def main() -> None:
    store, modules, *engine = sys.argv[1:]
    for module in modules.split(","):
        importlib.import_module(module)
    with Holdfast(store, lease_s=LEASE_S, engine=engine_of(*engine)) as hf:
        worker = hf.engine.worker(hf, say=lambda text: print(text, flush=True))
        signal.signal(signal.SIGTERM, lambda *_: worker.stop())
        worker.run()


if __name__ == "__main__":
    main()
