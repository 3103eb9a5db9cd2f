"""What an item of `each` costs: `python -m bench.each N FOLDER` maps a step over so many items.

The step does nothing, so what is measured is ours. Beside it, in the same process, the same
threads write as many lines to a file of their own, with a sync for each: a map that records each
item, and nothing else.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast import Holdfast, each, step, task

WORKERS = 8


@step
def nothing(x: int) -> int:
    return x


@task
def many(n: int) -> int:
    return len(each(nothing, range(n), workers=WORKERS))


def raw(n: int, folder: Path) -> float:
    local = threading.local()

    def record(x: int) -> int:
        if not hasattr(local, "fd"):
            name = folder / f"raw-{threading.get_ident()}"
            local.fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(local.fd, b"x" * 400 + b"\n")
        os.fdatasync(local.fd)
        return x

    start = time.perf_counter()
    with ThreadPoolExecutor(WORKERS) as pool:
        assert sum(1 for _ in pool.map(record, range(n))) == n
    return time.perf_counter() - start


def main() -> None:
    n, folder = int(sys.argv[1]), Path(sys.argv[2])
    with Holdfast(folder / f"w-{n}") as hf:
        start = time.perf_counter()
        assert hf.run(many, n, id="many") == n
        seconds = time.perf_counter() - start
    print(json.dumps({"items": n, "seconds": seconds, "raw_seconds": raw(n, folder)}))


if __name__ == "__main__":
    main()
