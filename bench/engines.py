"""The same steps on Temporal and on Restate: Holdfast, beside the SDK of the engine alone.

`measure` starts a server of each engine that is here and, for each kind of store, a worker of
Holdfast and one of the bare SDK, each a process of its own. Then both do the same in turn, against
the same server: a task of some steps one after the other in each round, a map of items with eight
under way, and at the end one long task. What is timed is the time from asking for a task to having
its result.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from bench import postgres

ENGINES = ("temporal", "restate")
STORES = ("sqlite", "postgres")
ROOT = Path(__file__).resolve().parents[1]
Json = dict[str, Any]
Do = Callable[[str, int, str], list[float]]
"""Does a task (`count` or `spread`) of so many steps under an id; the seconds of each thousand."""


def measure(say: Callable[[str], None], options: Any, folder: Path) -> list[Json]:
    """The figures of each engine with each store."""
    from holdfast.testing.servers import NoServer

    found: list[Json] = []
    for engine in options.engines:
        for medium in options.engine_stores:
            if medium == "postgres" and not postgres.is_installed():
                continue
            place = folder / f"{engine}-{medium}"
            place.mkdir()
            try:
                with both(engine, medium, place) as (ours, theirs):
                    say(f"{engine}, {medium}: getting warm")
                    for do in (ours, theirs):
                        do("count", 20, "warm")
                        do("spread", 20, "warm-too")
                    found += compared(say, options, f"{engine}, {medium}", ours, theirs)
            except NoServer as error:
                found.append({"where": f"{engine}, {medium}", "missing": str(error)})
    return found


def compared(
    say: Callable[[str], None], options: Any, where: str, ours: Do, theirs: Do
) -> list[Json]:
    """Both in turn: a few rounds of each kind, and the long task once."""
    found = []
    for task, steps, rounds in (
        ("count", options.engine_steps, options.rounds),
        ("spread", options.engine_items, options.rounds),
        ("count", options.engine_long, 1),
    ):
        pairs: list[tuple[Timed, Timed]] = []
        for number in range(rounds):
            say(f"{where}: {task} {steps}, round {number + 1} of {rounds}")
            name = f"{task}-{steps}-{number}"
            # Who is first changes from round to round.
            if number % 2:
                second = timed(theirs, task, steps, name)
                pairs.append((timed(ours, task, steps, name), second))
            else:
                pairs.append((timed(ours, task, steps, name), timed(theirs, task, steps, name)))
        found.append({"where": where, "task": task, "steps": steps, **summary(steps, pairs)})
    return found


Timed = tuple[float, list[float]]


def timed(do: Do, task: str, steps: int, name: str) -> Timed:
    start = time.perf_counter()
    pace = do(task, steps, name)
    return time.perf_counter() - start, pace


def summary(steps: int, pairs: list[tuple[Timed, Timed]]) -> Json:
    ratios = [ours[0] / theirs[0] for ours, theirs in pairs]
    ours, theirs = pairs[-1]
    return {
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "steps_per_s": steps / median(ours[0] for ours, _ in pairs),
        "steps_per_s_bare": steps / median(theirs[0] for _, theirs in pairs),
        "seconds_of_thousands": ours[1],
        "seconds_of_thousands_bare": theirs[1],
    }


@contextmanager
def both(engine: str, medium: str, folder: Path) -> Iterator[tuple[Do, Do]]:
    """Holdfast and the bare SDK, with a server and a worker of each."""
    from holdfast.testing.servers import RestateServer, TemporalServer
    from holdfast.testing.servers.running import free_ports

    with ExitStack() as stack:
        store = stack.enter_context(new_store(medium, folder))
        if engine == "temporal":
            cluster = stack.enter_context(TemporalServer(folder / "server"))
            at = [cluster.address]
            stack.enter_context(worker(folder, "holdfast", engine, store, *at))
            stack.enter_context(worker(folder, "bare", engine, *at))
            theirs: Do = TemporalAlone(cluster.address)
        else:
            node = stack.enter_context(RestateServer(folder / "server"))
            ports = free_ports()
            at = [node.url, node.admin_url, f"127.0.0.1:{next(ports)}"]
            stack.enter_context(worker(folder, "holdfast", engine, store, *at))
            listen = f"127.0.0.1:{next(ports)}"
            stack.enter_context(worker(folder, "bare", engine, listen))
            theirs = RestateAlone(node.url, node.admin_url, f"http://{listen}")
        yield stack.enter_context(holdfast(store, engine, *at)), theirs


@contextmanager
def new_store(medium: str, folder: Path) -> Iterator[str]:
    if medium == "sqlite":
        yield f"sqlite:///{folder}/store.db"
        return
    # The name of a socket is short, and so is that of the folder it is in.
    with (
        tempfile.TemporaryDirectory(prefix="pg-") as place,
        postgres.server(Path(place)) as url,
    ):
        yield postgres.new_database(url, "engines")


@contextmanager
def worker(folder: Path, who: str, *arguments: str) -> Iterator[None]:
    """A worker, until the block ends."""
    command = [sys.executable, "-m", "bench.engine_worker", who, *arguments]
    printed = folder / f"{who}.log"
    with open(printed, "wb") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
        )
    assert process.stdout is not None and process.stdin is not None
    try:
        if process.stdout.readline().strip() != b"ready":
            sys.exit(f"{' '.join(command)} did not begin:\n{printed.read_text()}")
        yield
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


@contextmanager
def holdfast(store: str, engine: str, *where: str) -> Iterator[Do]:
    """Holdfast, from the process that asks."""
    from bench import engine_tasks
    from holdfast import Holdfast

    with Holdfast(store, engine=engine_tasks.engine_of(engine, *where)) as hf:
        tasks = {"count": engine_tasks.count, "spread": engine_tasks.spread}
        yield lambda task, steps, name: hf.run(tasks[task], steps, id=name)


class TemporalAlone:
    """The client of Temporal's SDK."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, task: str, steps: int, name: str) -> list[float]:
        import asyncio

        return asyncio.run(self._do(task, steps, name))

    async def _do(self, task: str, steps: int, name: str) -> list[float]:
        from temporalio.client import Client

        from bench import bare_temporal

        client = await Client.connect(self._address)
        pace: list[float] = await client.execute_workflow(
            task.capitalize(), steps, id=f"bare-{name}", task_queue=bare_temporal.QUEUE
        )
        return pace


class RestateAlone:
    """A client of Restate: its ingress answers when a workflow has ended."""

    def __init__(self, url: str, admin: str, worker: str) -> None:
        self._url = url
        _ask(f"{admin}/deployments", {"uri": worker})

    def __call__(self, task: str, steps: int, name: str) -> list[float]:
        asked = {"n": steps, "spread": int(task == "spread")}
        pace: list[float] = _ask(f"{self._url}/Bare/{name}/run", asked)
        return pace


# Not by way of a proxy, as the environment may ask for.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _ask(url: str, body: Json) -> Any:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with _opener.open(request) as answer:
        return json.loads(answer.read())


def table(rows: list[Json], rounds: int) -> list[str]:
    lines = [
        f"steps on an engine, beside its SDK alone; median of {rounds} rounds, the long task once",
        "",
        f"{'engine, store':<19} {'steps':>16} {'steps/s':>8} {'SDK alone':>9} "
        f"{'ratio':>18} {'last 1,000 : first':>19}",
    ]
    return lines + [_line(row) for row in rows]


def _line(row: Json) -> str:
    if "missing" in row:
        return f"{row['where']:<19} not measured: {row['missing']}"
    steps = f"{row['steps']:,}" + (" at once by 8" if row["task"] == "spread" else "")
    ratio = f"{row['ratio']:.2f}"
    if row["ratio_min"] != row["ratio_max"]:
        ratio += f" ({row['ratio_min']:.2f}–{row['ratio_max']:.2f})"
    slower = ""
    if len(row["seconds_of_thousands"]) > 2:
        pair = (row["seconds_of_thousands"], row["seconds_of_thousands_bare"])
        slower = " and ".join(f"{each[-2] / each[0]:.2f}" for each in pair)
    return (
        f"{row['where']:<19} {steps:>16} {row['steps_per_s']:>8,.0f} "
        f"{row['steps_per_s_bare']:>9,.0f} {ratio:>18} {slower:>19}"
    )
