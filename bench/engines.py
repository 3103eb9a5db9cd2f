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
Do = Callable[[str, int, str], Json]
"""Does a task (`count` or `spread`) of so many steps under an id; what its worker says of it."""


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
                with both(engine, medium, place, durable=options.engine_durable) as (ours, theirs):
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
    for name, task, steps, rounds in (
        ("steps", "count", options.engine_steps, options.rounds),
        ("items", "spread", options.engine_items, options.rounds),
        ("long", "count", options.engine_long, 1),
    ):
        pairs: list[tuple[Json, Json]] = []
        for number in range(rounds):
            say(f"{where}: {steps} {name}, round {number + 1} of {rounds}")
            # Who is first changes from round to round.
            turn = (ours, theirs) if number % 2 else (theirs, ours)
            done = {do: timed(do, task, steps, f"{name}-{number}") for do in turn}
            pairs.append((done[ours], done[theirs]))
            say(f"  {done[ours]['seconds']:.2f} s; the SDK alone {done[theirs]['seconds']:.2f} s")
        found.append({"where": where, "what": name, "steps": steps, **summary(steps, pairs)})
    return found


def timed(do: Do, task: str, steps: int, name: str) -> Json:
    start = time.perf_counter()
    said = do(task, steps, name)
    return {**said, "seconds": time.perf_counter() - start}


def summary(steps: int, pairs: list[tuple[Json, Json]]) -> Json:
    ratios = [ours["seconds"] / theirs["seconds"] for ours, theirs in pairs]

    def of(who: int) -> Json:
        runs = [pair[who] for pair in pairs]
        return {
            "steps_per_s": steps / median(run["seconds"] for run in runs),
            "processor_us_per_step": 1e6 * median(run["processor_s"] for run in runs) / steps,
            "seconds_of_thousands": runs[-1]["thousands"],
        }

    return {
        "ratio": median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "holdfast": of(0),
        "bare": of(1),
    }


@contextmanager
def both(engine: str, medium: str, folder: Path, *, durable: bool) -> Iterator[tuple[Do, Do]]:
    """Holdfast and the bare SDK, with a server and a worker of each."""
    from holdfast.testing.servers import RestateServer, TemporalServer, free_ports

    how = "holdfast" if durable else "holdfast-nosync"
    with ExitStack() as stack:
        store = stack.enter_context(new_store(medium, folder))
        if engine == "temporal":
            cluster = stack.enter_context(TemporalServer(folder / "server", durable=durable))
            at = [cluster.address]
            stack.enter_context(worker(folder, how, engine, store, *at))
            stack.enter_context(worker(folder, "bare", engine, *at))
            theirs: Do = TemporalAlone(cluster.address)
        else:
            node = stack.enter_context(RestateServer(folder / "server", durable=durable))
            ports = free_ports()
            at = [node.url, node.admin_url, f"127.0.0.1:{next(ports)}"]
            stack.enter_context(worker(folder, how, engine, store, *at))
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
        names = ("count", "spread", "converse")
        tasks = {name: getattr(engine_tasks, name) for name in names}
        yield lambda task, steps, name: hf.run(tasks[task], steps, id=name)


class TemporalAlone:
    """The client of Temporal's SDK."""

    def __init__(self, address: str) -> None:
        self._address = address

    def __call__(self, task: str, steps: int, name: str) -> Json:
        import asyncio

        return asyncio.run(self._do(task, steps, name))

    async def _do(self, task: str, steps: int, name: str) -> Json:
        from temporalio.client import Client

        from bench import bare_temporal

        client = await Client.connect(self._address)
        said: Json = await client.execute_workflow(
            task.capitalize(), steps, id=f"bare-{name}", task_queue=bare_temporal.QUEUE
        )
        return said


class RestateAlone:
    """A client of Restate: its ingress answers when a workflow has ended."""

    def __init__(self, url: str, admin: str, worker: str) -> None:
        self._url = url
        _ask(f"{admin}/deployments", {"uri": worker})

    def __call__(self, task: str, steps: int, name: str) -> Json:
        asked = {"n": steps, "spread": int(task == "spread")}
        said: Json = _ask(f"{self._url}/Bare/{name}/run", asked)
        return said


# Not by way of a proxy, as the environment may ask for.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def _ask(url: str, body: Json) -> Any:
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with _opener.open(request) as answer:
        return json.loads(answer.read())


def table(rows: list[Json], rounds: int) -> list[str]:
    """In pairs: Holdfast, and the SDK alone."""
    lines = [
        f"on an engine, Holdfast : its SDK alone; median of {rounds} rounds, the long task once",
        "",
        f"{'engine, store':<19} {'what':>13} {'ratio':>18} {'steps/s':>15} "
        f"{'processor µs':>15} {'last : first 1,000':>19}",
    ]
    return lines + [_line(row) for row in rows]


def _line(row: Json) -> str:
    if "missing" in row:
        return f"{row['where']:<19} not measured: {row['missing']}"
    ratio = f"{row['ratio']:.2f}"
    if row["ratio_min"] != row["ratio_max"]:
        ratio += f" ({row['ratio_min']:.2f}–{row['ratio_max']:.2f})"
    what = f"{row['steps']:,} {row['what']}" if row["what"] != "long" else f"{row['steps']:,} steps"

    def pair(name: str) -> str:
        return f"{row['holdfast'][name]:,.0f} : {row['bare'][name]:,.0f}"

    thousands = [row[who]["seconds_of_thousands"] for who in ("holdfast", "bare")]
    slower = " : ".join(f"{each[-1] / each[0]:.2f}" for each in thousands if len(each) > 1)
    return (
        f"{row['where']:<19} {what:>13} {ratio:>18} {pair('steps_per_s'):>15} "
        f"{pair('processor_us_per_step'):>15} {slower:>19}"
    )
