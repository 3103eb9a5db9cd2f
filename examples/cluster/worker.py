"""A worker of the example: `python -m examples.cluster.worker STORE ENGINE WHERE…`."""

import signal
import sys

import examples.cluster.agent  # noqa: F401  (the code of the tasks that it drives)
from examples.cluster.engines import engine_of
from holdfast import Holdfast


def main() -> None:
    store, *engine = sys.argv[1:]
    with Holdfast(store, engine=engine_of(*engine)) as hf:
        worker = hf.engine.worker(hf, say=lambda text: print(f"worker: {text}", flush=True))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: worker.stop())
        worker.run()


if __name__ == "__main__":
    main()
