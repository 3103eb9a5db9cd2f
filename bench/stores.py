"""One task, and many at once, on each store: beside the raw medium, and beside DBOS on the same.

`python -m bench.stores WHO MEDIUM TASKS STEPS PLACE` is one measurement, in a process of its own:
WHO is raw, holdfast or dbos, MEDIUM files, sqlite or postgres, PLACE a folder or a database. It
prints one JSON object. `measure` runs them all in turn, in rounds.

One task is a sync function; many are async ones, gathered on one event loop. Each step adds 1.
"""

import asyncio
import importlib.util
import json
import logging
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench import media, postgres

MEDIA = ("files", "sqlite", "postgres")
Json = dict[str, Any]


def main() -> None:
    who, medium, tasks, steps, place = sys.argv[1:]
    measured = {"raw": raw, "holdfast": holdfast, "dbos": dbos}[who]
    seconds = measured(medium, int(tasks), int(steps), place)
    print(json.dumps({"seconds": seconds}))


def raw(medium: str, tasks: int, steps: int, place: str) -> float:
    if tasks == 1:
        return media.one(medium, steps, place)
    return media.many(medium, tasks, steps, place)


def holdfast(medium: str, tasks: int, steps: int, place: str) -> float:
    from holdfast import Holdfast, step, task

    @step
    def add(x: int) -> int:
        return x + 1

    @task
    def count(n: int) -> int:
        x = 0
        for _ in range(n):
            x = add(x)
        return x

    @step
    async def add_async(x: int) -> int:
        return x + 1

    @task
    async def count_async(n: int) -> int:
        x = 0
        for _ in range(n):
            x = await add_async(x)
        return x

    urls = {"files": f"{place}/workspace", "sqlite": f"sqlite:///{place}/h.db", "postgres": place}
    with Holdfast(urls[medium]) as hf:
        if tasks == 1:
            return timed(lambda: hf.run(count, steps, id="one"), steps)
        return timed_many(lambda i: hf.arun(count_async, steps, id=f"t-{i}"), tasks, steps)


def dbos(medium: str, tasks: int, steps: int, place: str) -> float:
    from dbos import DBOS, DBOSConfig

    @DBOS.step()
    def add(x: int) -> int:
        return x + 1

    @DBOS.workflow()
    def count(n: int) -> int:
        x = 0
        for _ in range(n):
            x = add(x)
        return x

    @DBOS.step()
    async def add_async(x: int) -> int:
        return x + 1

    @DBOS.workflow()
    async def count_async(n: int) -> int:
        x = 0
        for _ in range(n):
            x = await add_async(x)
        return x

    logging.disable(logging.CRITICAL)
    url = f"sqlite:///{place}/dbos.sqlite" if medium == "sqlite" else place
    config: DBOSConfig = {"name": "bench", "system_database_url": url}
    DBOS(config=config)
    DBOS.launch()
    try:
        if tasks == 1:
            return timed(lambda: count(steps), steps)
        return timed_many(lambda i: count_async(steps), tasks, steps)
    finally:
        DBOS.destroy()


def timed(work: Callable[[], Any], expected: int) -> float:
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    assert result == expected
    return seconds


def timed_many(make: Callable[[int], Awaitable[int]], tasks: int, expected: int) -> float:
    async def all_of_them() -> float:
        start = time.perf_counter()
        results = await asyncio.gather(*(make(number) for number in range(tasks)))
        seconds = time.perf_counter() - start
        assert results == [expected] * tasks
        return seconds

    return asyncio.run(all_of_them())


def contenders(medium: str, steps: int, tasks: int, steps_each: int) -> list[tuple[str, int, int]]:
    """Who is measured on a medium: who, how many tasks, how many steps each."""
    found = [("raw", 1, steps), ("holdfast", 1, steps)]
    found += [("raw", tasks, steps_each), ("holdfast", tasks, steps_each)]
    if medium != "files" and importlib.util.find_spec("dbos") is not None:
        found += [("dbos", 1, max(steps // 10, 1)), ("dbos", tasks, steps_each)]
    return found


def measure(
    child: Callable[..., Json],
    say: Callable[[str], None],
    options: Any,
    folder: Path,
) -> list[Json]:
    """Every medium, every contender, in rounds; the figures of each."""
    runs: dict[tuple[str, str, int], list[float]] = {}
    with ExitStack() as stack:
        chosen = [m for m in options.media if m != "postgres" or postgres.is_installed()]
        url = ""
        if "postgres" in chosen:
            # The name of a socket is short, and so is that of the folder it is in.
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-"))
            url = stack.enter_context(postgres.server(Path(place)))
        for number in range(options.rounds):
            for medium in chosen:
                for who, tasks, steps in contenders(
                    medium, options.steps, options.tasks, options.steps_each
                ):
                    say(f"round {number + 1} of {options.rounds}: {medium}, {who}, {tasks} tasks")
                    name = f"{medium}-{who}-{tasks}-{number}"
                    if medium == "postgres":
                        where = postgres.new_database(url, name)
                    else:
                        where = str(folder / name)
                        Path(where).mkdir()
                    found = child("bench.stores", who, medium, str(tasks), str(steps), where)
                    speed = tasks * steps / found["seconds"]
                    runs.setdefault((medium, who, tasks), []).append(speed)
    return [summary(key, speeds, runs) for key, speeds in runs.items()]


def summary(
    key: tuple[str, str, int], speeds: list[float], runs: dict[tuple[str, str, int], list[float]]
) -> Json:
    medium, who, tasks = key
    floor = runs[medium, "raw", tasks]
    ratios = [raw / speed for raw, speed in zip(floor, speeds, strict=True)]
    return {
        "medium": medium,
        "who": who,
        "tasks": tasks,
        "steps_per_s": median(speeds),
        "best": max(speeds),
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
    }


def table(rows: list[Json], rounds: int) -> list[str]:
    lines = [
        f"one task, and many at once, on each store; median of {rounds} rounds, raw = 1",
        "",
        f"{'medium':<9} {'who':<9} {'tasks':>5} {'steps/s':>9} {'best':>9} {'ratio to raw':>20}",
    ]
    for row in rows:
        ratio = f"{row['ratio']:.2f} ({row['ratio_min']:.2f}–{row['ratio_max']:.2f})"
        lines.append(
            f"{row['medium']:<9} {row['who']:<9} {row['tasks']:>5} {row['steps_per_s']:>9,.0f} "
            f"{row['best']:>9,.0f} {ratio:>20}"
        )
    return lines


if __name__ == "__main__":
    main()
