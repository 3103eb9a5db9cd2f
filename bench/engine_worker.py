"""A worker to be measured, in a process of its own: `python -m bench.engine_worker WHO ENGINE …`.

WHO is `holdfast` or `holdfast-nosync`, followed by its store and where the engine is, or `bare`:
the SDK of the engine alone. It prints `ready`, and ends with its standard input.
"""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.engine_steps import THREADS
from bench.engine_tasks import engine_of
from holdfast import Holdfast


def serve_holdfast(store: str, engine: Any, *, sync: bool) -> None:
    with Holdfast(store, engine=engine, sync=sync) as hf:
        worker = engine.worker(hf, concurrency=THREADS, say=_say)

        def stop_at_the_end() -> None:
            sys.stdin.read()
            worker.stop()

        threading.Thread(target=stop_at_the_end, daemon=True).start()
        worker.run()


def _say(text: str) -> None:
    print("ready" if "drives tasks" in text else text, flush=True)


async def serve_temporal(address: str) -> None:
    from temporalio.client import Client
    from temporalio.worker import Worker

    from bench import bare_temporal

    async with Worker(
        await Client.connect(address),
        task_queue=bare_temporal.QUEUE,
        workflows=[bare_temporal.Count, bare_temporal.Spread, bare_temporal.Converse],
        activities=[
            bare_temporal.add,
            bare_temporal.pace,
            bare_temporal.model,
            bare_temporal.look_up,
        ],
        activity_executor=ThreadPoolExecutor(THREADS),
        max_concurrent_activities=THREADS,
    ):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def serve_restate(listen: str) -> None:
    import restate
    from hypercorn.asyncio import serve
    from hypercorn.config import Config

    from bench import bare_restate

    config = Config()
    config.bind = [listen]
    config.accesslog = config.errorlog = None
    config.graceful_timeout = 1.0
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
    ended = asyncio.Event()

    def end_at_the_end(loop: asyncio.AbstractEventLoop) -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=end_at_the_end, args=[asyncio.get_running_loop()], daemon=True).start()
    print("ready", flush=True)
    app: Any = restate.app([bare_restate.bare])
    await serve(app, config, shutdown_trigger=ended.wait)


def main() -> None:
    who, name, *where = sys.argv[1:]
    if who.startswith("holdfast"):
        store, *address = where
        serve_holdfast(store, engine_of(name, *address), sync=who != "holdfast-nosync")
    elif name == "temporal":
        asyncio.run(serve_temporal(*where))
    else:
        asyncio.run(serve_restate(*where))


if __name__ == "__main__":
    main()
