"""What streaming costs: `python -m bench.streams [--rounds N] [--parts N] [--dir FOLDER]`.

A step makes 2,000 parts, one every millisecond, as a fast model talks. It is run as a step that
returns its list, as one that streams, and as one that streams to four followers in other threads;
in turns, and the time is compared with that of the list in the same round. The writes of pages are
part of it: they are made by a thread of the same process.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from holdfast import Holdfast, step, task

FOLLOWERS = 4


def parts_of(n: int) -> Iterator[str]:
    for k in range(n):
        time.sleep(0.001)
        yield f"part {k} "


@step
def collected(n: int) -> list[str]:
    return list(parts_of(n))


@step
def streamed(n: int) -> Iterator[str]:
    yield from parts_of(n)


@task
def collecting(n: int) -> int:
    return len(collected(n))


@task
def streaming(n: int) -> int:
    return sum(1 for _ in streamed(n))


def measure(hf: Holdfast, what: str, n: int, id: str) -> float:
    """How long a task takes, in seconds."""
    fn = collecting if what == "list" else streaming
    hf.start(fn, n, id=id)
    count = FOLLOWERS if what == "followed" else 0
    readers = [threading.Thread(target=follow, args=(hf.store.url, id, n)) for _ in range(count)]
    for reader in readers:
        reader.start()
    start = time.perf_counter()
    assert hf.resume(id) == n
    took = time.perf_counter() - start
    for reader in readers:
        reader.join()
    return took


def follow(url: str, id: str, n: int) -> None:
    with Holdfast(url) as hf:
        assert [part.number for part in hf.stream(id, "streamed")] == list(range(1, n + 1))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", type=int, default=2000)
    parser.add_argument("--dir", type=Path, default=Path("."))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir.resolve()) as folder:
        for kind, url in (("files", f"{folder}/w"), ("sqlite", f"sqlite:///{folder}/s.db")):
            ratios: dict[str, list[float]] = {"streamed": [], "followed": []}
            seconds: dict[str, list[float]] = {"list": [], "streamed": [], "followed": []}
            with Holdfast(url) as hf:
                for round in range(options.rounds):
                    order = list(seconds) if round % 2 else list(reversed(seconds))
                    took = {
                        what: measure(hf, what, options.parts, f"{what}-{round}") for what in order
                    }
                    for what, value in took.items():
                        seconds[what].append(value)
                    for what, found in ratios.items():
                        found.append(took[what] / took["list"])
            row = {
                "store": kind,
                "parts": options.parts,
                "seconds": {what: round_(found) for what, found in seconds.items()},
                "ratio": {what: round_(found) for what, found in ratios.items()},
            }
            print(json.dumps(row))


def round_(found: list[float]) -> float:
    return round(median(found), 3)


if __name__ == "__main__":
    main()
