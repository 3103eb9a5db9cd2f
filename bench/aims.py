"""What we aim at, and what others reach, in one run: `make bench ARGS="--aims"`.

Each line has the median of the rounds, and the least and the greatest. Each measurement is a
process of its own, and one that fails loses only its line. With `--write` the tables and the
pictures in docs/benchmarks.md are made anew.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from bench import figures, postgres
from bench.conversation import bytes_of
from bench.figures import Case, Figure, at_least, at_most, by_turns, of
from bench.running import ROOT, Failed, child, say

PAGE = ROOT / "docs" / "benchmarks.md"
PICTURES = ROOT / "docs" / "pictures"
_BEGINS, _ENDS = "<!-- aims: made by `make bench` -->", "<!-- aims end -->"

Place = Callable[[str], str]
"""Makes a new place on a medium."""

_NAMES = {"files": "files", "sqlite": "SQLite", "postgres": "PostgreSQL"}
_PEERS = {
    "absurd_postgres": ("Absurd, PostgreSQL", "postgres"),
    "burr_sqlite": ("Burr, SQLite", "sqlite"),
    "langgraph_sqlite": ("LangGraph, SQLite", "sqlite"),
    "dbos_sqlite": ("DBOS, SQLite", "sqlite"),
}
PARTS = (
    "one",
    "many",
    "workers",
    "queues",
    "resume",
    "long",
    "lists",
    "talk",
    "small",
    "engines",
    "history",
)
_STEPS = "one task of {:,} durable steps, raw loop of files = 1"


class Found(NamedTuple):
    """All that a run found, and on which machine."""

    aims: list[Figure]
    others: list[Figure]
    minutes: float
    load: float
    other_work: float


def measure(options: Any, folder: Path) -> Found:
    """Every line that is to be shown."""
    others, load, start = figures.OtherWork(), os.getloadavg()[0], time.monotonic()
    with databases(folder) as place:
        groups = {
            "one": lambda: one_task(options, place),
            "many": lambda: many_tasks(options, place),
            "workers": lambda: workers(options, place),
            "queues": lambda: queues(options, place),
            "resume": lambda: resumed(options, place),
            "long": lambda: long_task(options, folder),
            "lists": lambda: lists(options, folder),
            "talk": lambda: talk(options, place),
            "small": lambda: small_things(options, folder),
            "engines": lambda: on_engines(options, folder),
            "history": lambda: history(options, folder),
        }
        chosen = [groups[name]() for name in options.parts]
        try:
            for group in chosen:
                figures.in_turn(group)
        except KeyboardInterrupt:
            say("interrupted: this is what was found until then")
        found = [each for group in chosen for case in group for each in case.figures]
    return Found(
        [each for each in found if each.aim is not None],
        [each for each in found if each.aim is None],
        (time.monotonic() - start) / 60,
        load,
        others.share(),
    )


@contextmanager
def databases(folder: Path) -> Iterator[Place]:
    """Gives a new place on a medium each time that it is asked. All are kept until the end: a disk
    on which files were just deleted is slow in making new ones."""
    with ExitStack() as stack:
        url, count = "", 0
        if postgres.is_installed():
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="pg-"))
            url = stack.enter_context(postgres.server(Path(data)))

        def place(medium: str) -> str:
            nonlocal count
            count += 1
            if medium == "postgres":
                if not url:
                    raise Failed("PostgreSQL is not installed")
                return postgres.new_database(url, f"aim{count}")
            made = folder / f"{medium}-{count}"
            made.mkdir()
            return str(made)

        yield place


def url_of(medium: str, place: str) -> str:
    return {"files": f"{place}/workspace", "sqlite": f"sqlite:///{place}/h.db"}.get(medium, place)


def peer(name: str, n: int, place: str, *what: str) -> float:
    answer = child("bench.child", name, str(n), place, *what)
    if "missing" in answer:
        raise Failed(f"not installed: {answer['missing']}")
    return float(answer["seconds"])


def one_task(options: Any, place: Place) -> list[Case]:
    steps = options.steps

    def by_store(who: str, medium: str) -> float:
        answer = child("bench.stores", who, medium, "1", str(steps), place(medium))
        return float(answer["seconds"])

    def raw() -> float:
        return by_store("raw", "files")

    def ours(medium: str) -> Case:
        aim = {"files": 1.3, "sqlite": 1.2, "postgres": 1.3}[medium]
        name = f"one task of {steps:,} durable steps, {_NAMES[medium]}, raw loop = 1"

        def ratios(which: int) -> Sequence[float]:
            own = [lambda: by_store("raw", medium)] if medium != "files" else []
            mine, *floors = by_turns(which, lambda: by_store("holdfast", medium), *own, raw)
            return [mine / floors[0], mine / floors[-1]]

        beside = of(f"Holdfast, {_NAMES[medium]}: {_STEPS.format(steps)}", "×")
        return Case([at_most(name, "×", aim), beside], ratios, options.rounds)

    def theirs(name: str, what: str, medium: str) -> Case:
        def ratio(which: int) -> Sequence[float]:
            spent, floor = by_turns(which, lambda: peer(name, steps, place(medium)), raw)
            return [spent / floor]

        return Case([of(f"{what}: {_STEPS.format(steps)}", "×")], ratio, options.rounds)

    def without_syncs(_: int) -> Sequence[float]:
        return [steps / peer("holdfast_nosync", steps, place("files"))]

    nosync = at_least("the same in files without syncs", "steps/s", 25_000)
    return [
        *(ours(medium) for medium in _NAMES),
        Case([nosync], without_syncs, options.rounds),
        *(theirs(name, *what) for name, what in _PEERS.items()),
    ]


def many_tasks(options: Any, place: Place) -> list[Case]:
    tasks = options.tasks

    def rate(who: str, medium: str, steps: int) -> Callable[[int], Sequence[float]]:
        def measured(_: int) -> Sequence[float]:
            if who in ("holdfast", "dbos"):
                given = (who, medium, str(tasks), str(steps), place(medium))
                spent = float(child("bench.stores", *given)["seconds"])
            else:
                spent = peer(who, steps, place(medium), "many", str(tasks))
            return [tasks * steps / spent]

        return measured

    aims = [
        ("files", 40, 14_000),
        ("files", 10, 9_000),
        ("sqlite", 10, 12_000),
        ("postgres", 10, 12_000),
    ]
    cases = [
        Case(
            [at_least(f"{tasks} tasks × {n} on one loop, {_NAMES[medium]}", "steps/s", aim)],
            rate("holdfast", medium, n),
            options.rounds,
        )
        for medium, n, aim in aims
    ]
    for who, what, medium in (
        ("burr_sqlite", "Burr, SQLite", "sqlite"),
        ("absurd_postgres", "Absurd, PostgreSQL", "postgres"),
        ("dbos", "DBOS, SQLite", "sqlite"),
    ):
        name = f"{what}: {tasks} tasks × 10 on one loop"
        rounds = min(options.rounds, 2) if who == "dbos" else options.rounds  # 13 s each
        cases.append(Case([of(name, "steps/s")], rate(who, medium, 10), rounds))
    return cases


def workers(options: Any, place: Place) -> list[Case]:
    # Enough that starting and ending four workers is a small part of it.
    tasks, steps = (16, 10) if options.quick else (320, 25)

    def seconds(medium: str, count: int) -> float:
        url = url_of(medium, place(medium))
        child("bench.long", "fill", str(tasks), str(steps), url)
        _work(count, url)
        return float(child("bench.long", "lasted", url)["seconds"])

    def of_medium(medium: str) -> Case:
        def ratio(which: int) -> Sequence[float]:
            one, four = by_turns(which, lambda: seconds(medium, 1), lambda: seconds(medium, 4))
            return [one / four]

        name = f"4 workers on {_NAMES[medium]}, the rate of one = 1"
        return Case([at_least(name, "×", 1.0)], ratio, options.rounds)

    return [of_medium("sqlite"), of_medium("postgres")]


def queues(options: Any, place: Place) -> list[Case]:
    """One worker on SQLite: what limits of a queue cost it, and what a long line does."""
    tasks, long_line = (40, 1_000) if options.quick else (200, 100_000)

    def seconds(kind: str) -> float:
        found = child("bench.queues", "drive", kind, str(tasks), place("sqlite"))
        return tasks / float(found["tasks_per_s"])

    def shares(which: int) -> Sequence[float]:
        kinds = ("no queue", "a queue", "all limits")
        none, plain, limited = by_turns(which, *(partial(seconds, kind) for kind in kinds))
        return [none / limited, plain / limited]

    def of_line(length: int) -> Sequence[float]:
        # A line of 100,000 tasks takes minutes to make.
        url = url_of("sqlite", place("sqlite"))
        found = child("bench.queues", "line", str(length), url, at_most_s=1200)
        return float(found["start_ms"]), float(found["take_ms"])

    def growth(_: int) -> Sequence[float]:
        short, long = of_line(100), of_line(long_line)
        return [mine / floor for mine, floor in zip(long, short, strict=True)]

    limits = "a queue with all limits, the rate of a worker"
    line = f"with {long_line:,} tasks in line, with 100 = 1"
    return [
        Case(
            [
                at_least(f"{limits} without a queue = 1", "×", 0.8),
                of(f"{limits} of a queue without limits = 1", "×"),
            ],
            shares,
            options.rounds,
        ),
        Case(
            [
                at_most(f"starting a task in a queue {line}", "×", 1.5),
                at_most(f"taking ten places {line}", "×", 1.5),
            ],
            growth,
            1,
        ),
    ]


def _work(count: int, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        command = [sys.executable, "-m", "bench.long", "work", url, str(go)]
        running = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(count)
        ]
        try:
            time.sleep(1.5)  # until all have begun
            go.touch()
            if any(process.wait(120) for process in running):
                raise Failed(f"{' '.join(command)} failed")
        finally:
            for process in running:
                process.kill()
                process.wait()


def resumed(options: Any, place: Place) -> list[Case]:
    n = str(options.resume_steps)

    def of_medium(medium: str, aim: float) -> Case:
        @cache
        def recorded() -> str:
            url = url_of(medium, place(medium))
            child("bench.long", "record", n, url)
            return url

        def seconds(_: int) -> Sequence[float]:
            return [child("bench.long", "resume", n, recorded())["seconds"]]

        name = f"resume of {options.resume_steps:,} steps, {_NAMES[medium]}"
        return Case([at_most(name, "s", aim)], seconds, options.rounds)

    @cache
    def theirs() -> str:
        url = place("postgres")
        peer("absurd_postgres", options.resume_steps, url, "record")
        return url

    def absurd(_: int) -> Sequence[float]:
        return [peer("absurd_postgres", options.resume_steps, theirs(), "resume")]

    name = f"Absurd, PostgreSQL: resume of {options.resume_steps:,} steps"
    return [
        *(of_medium(*each) for each in (("files", 0.12), ("sqlite", 0.12), ("postgres", 0.25))),
        Case([of(name, "s")], absurd, options.rounds),
    ]


def long_task(options: Any, folder: Path) -> list[Case]:
    n = 2_000 if options.quick else 200_000
    name = f"a task of {n:,} steps: "

    @cache
    def recorded() -> str:
        url = str(folder / "long")
        child("bench.long", "record", str(n), url)
        return url

    def resume(_: int) -> Sequence[float]:
        found = child("bench.long", "resume", str(n), recorded())
        return [found["seconds"], found["megabytes"]]

    def quick(command: str) -> Case:
        aims = [at_most(f"{name}`{command}`", "s", 1)]
        aims.append(at_most(f"{name}`{command}`, memory", "MB", 150))
        return Case(aims, lambda _: _command(recorded(), command), options.rounds)

    def streamed(command: str) -> Case:
        aim = at_most(f"{name}`{command}`, memory", "MB", 150)
        took = of(f"{name}all of `{command}`", "s")
        return Case([aim, took], lambda _: _command(recorded(), command)[::-1], 1)

    aims = [at_most(f"{name}resume", "s", 3), at_most(f"{name}its memory", "MB", 150)]
    return [
        Case(aims, resume, options.rounds),
        *(quick(command) for command in ("ls", "show", "why", "snapshot")),
        *(streamed(command) for command in ("log", "audit")),
    ]


def _command(url: str, command: str) -> list[float]:
    """Seconds and megabytes of a command on a terminal."""
    task = [] if command == "ls" else ["long"]
    given = [sys.executable, "-m", "holdfast", "--url", url, command, *task]
    start = time.perf_counter()
    ours, theirs = os.openpty()
    process = subprocess.Popen(given, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=theirs)
    os.close(theirs)
    with suppress(OSError), open(ours, "rb", buffering=0) as screen:  # it ends with an error
        while screen.read(1 << 16):
            pass
    used = _ended(process)
    # The system counts our own peak with that of what we start: so this may be too much.
    return [time.perf_counter() - start, used.ru_maxrss / 1024]


def _ended(process: "subprocess.Popen[bytes]") -> Any:
    """What a process used, once it has ended well."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise Failed(f"{process.args!r} ended with {process.returncode}")
    return used


def lists(options: Any, folder: Path) -> list[Case]:
    @cache
    def filled() -> str:
        url = str(folder / "listing")
        child("bench.listing", "fill", url, str(options.listed))
        return url

    def first(_: int) -> Sequence[float]:
        return [child("bench.listing", "time", filled())["first_ms"]]

    name = f"the first page of {options.listed:,} tasks in files, in a new process"
    return [Case([at_most(name, "ms", 50)], first, options.rounds)]


def talk(options: Any, place: Place) -> list[Case]:
    turns = options.conversation

    def raw() -> float:
        return float(child("bench.long", "raw", str(turns), place("files"))["seconds"])

    def ours(which: int) -> Sequence[float]:
        where = Path(place("files")) / "workspace"

        def told() -> float:
            found = child("bench.conversation", str(turns), str(where))
            return float(found["first_half_s"] + found["second_half_s"])

        mine, floor = by_turns(which, told, raw)
        return [mine / floor, (bytes_of(str(where)) or 0) / 1e6]

    def absurd(which: int) -> Sequence[float]:
        where = place("postgres")
        theirs, floor = by_turns(which, lambda: peer("absurd_postgres", turns, where, "talk"), raw)
        return [theirs / floor]

    what = f"a conversation of {turns:,} turns of 1 KB"
    aims = [at_most(f"{what}, raw loop = 1", "×", 3)]
    aims.append(at_most(f"{what}, all that is written", "MB", 3.2 * turns / 2000))
    name = f"Absurd, PostgreSQL: {what}, raw loop = 1"
    return [Case(aims, ours, options.rounds), Case([of(name, "×")], absurd, options.rounds)]


def small_things(options: Any, folder: Path) -> list[Case]:
    @cache
    def walked() -> str:
        return str(folder / "walk")

    def walk(_: int) -> Sequence[float]:
        found = child("bench.long", "walk", walked())
        return [found["calls"], found["modules"]]

    def imported(_: int) -> Sequence[float]:
        return [1e3 * (_cpu_s("-c", "import holdfast") - _cpu_s("-c", "pass"))]

    def started(_: int) -> Sequence[float]:
        return [_cpu_s("-m", "holdfast", "ls", "--url", walked())]

    def peak(which: int) -> Sequence[float]:
        place = folder / f"memory-{which}"
        place.mkdir()
        return [child("bench.child", "holdfast_files", "2000", str(place))["megabytes"]]

    ways = [at_most("calls of Python in one step", "", 45)]
    ways.append(at_most("modules on the way of one step", "", 12))
    import_ms = at_most("`import holdfast`, processor time", "ms", 60)
    start_s = at_most("`holdfast ls` of one task, processor time", "s", 0.15)
    return [
        Case(ways, walk, 1),
        Case([import_ms], imported, 2 * options.rounds),
        Case([start_s], started, 2 * options.rounds),
        Case([at_most("peak memory of 2,000 steps", "MB", 36)], peak, options.rounds),
    ]


def _cpu_s(*arguments: str) -> float:
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    used = _ended(process)
    return float(used.ru_utime + used.ru_stime)


def on_engines(options: Any, folder: Path) -> list[Case]:
    """Holdfast beside the bare SDK: one process measures all rounds of an engine."""
    steps = 50 if options.quick else 200

    def of_engine(engine: str, name: str) -> Case:
        def ratios(_: int) -> Sequence[list[float]]:
            given = (engine, str(steps), str(options.rounds), str(folder))
            found = child("bench.overhead", *given)
            return [found["steps"], found["items"]]

        aims = [
            at_most(f"{name}, {steps} steps, its SDK alone = 1", "×", 1.2),
            at_most(f"{name}, `each` over {steps}, its SDK alone = 1", "×", 1.5),
        ]
        return Case(aims, ratios, 1)

    return [of_engine("temporal", "Temporal"), of_engine("restate", "Restate")]


def history(options: Any, folder: Path) -> list[Case]:
    """An agent of 100 calls whose chat has 200,000 tokens, on Temporal."""
    calls = 5 if options.quick else 100
    agent = f"an agent of {calls} calls with a chat of 209,000 tokens on Temporal"

    def of_whom(who: str, name: str) -> Case:
        lines = [
            of(f"{name}: {agent}, calls made before its end", "calls"),
            of(f"{name}: the same, the engine's history", "MB"),
            of(f"{name}: the same, all that the store holds besides", "MB"),
        ]

        def measured(_: int) -> Sequence[float]:
            place = folder / f"history-{who}"
            place.mkdir()
            found = child("bench.history", who, str(calls), str(place))
            return [found["calls"], found["history_bytes"] / 1e6, found["store_bytes"] / 1e6]

        return Case(lines, measured, 1)

    return [of_whom("holdfast", "Holdfast"), of_whom("bare", "Temporal's SDK alone")]


# What comes of it.


def told(found: Found) -> str:
    """The tables, of which one may be empty."""
    tables = [(figures.table, found.aims), (figures.table_of_others, found.others)]
    return "\n\n".join(table(lines) for table, lines in tables if lines)


def machine(found: Found, options: Any) -> str:
    missed = [each for each in found.aims if each.found and not each.is_met]
    lost = [each for each in (*found.aims, *found.others) if not each.found]
    met = len(found.aims) - len(missed) - sum(each.aim is not None for each in lost)
    said = (
        f'One run of `make bench ARGS="--aims --write"`, {found.minutes:.0f} minutes: medians of '
        f"{options.rounds} rounds with the least and the greatest; {os.cpu_count()} cores, Python "
        f"{platform.python_version()}. The load was {found.load:.1f} when it began, and other work "
        f"took {found.other_work:.0%} of the processors. {met} of {len(found.aims)} aims are met"
    )
    return said + (f"; {len(lost)} figures could not be measured." if lost else ".")


def write(found: Found, options: Any, page: Path = PAGE, pictures: Path = PICTURES) -> None:
    """Put the tables and the pictures into the docs."""
    before, begins, rest = page.read_text().partition(_BEGINS)
    _, ends, after = rest.partition(_ENDS)
    if not (begins and ends):
        raise Failed(f"{page} has no place for the aims: {_BEGINS} … {_ENDS}\n{told(found)}")
    aims, others = figures.table(found.aims), figures.table_of_others(found.others)
    of_all = _STEPS.format(options.steps)
    bars = [
        Figure(each.what.removesuffix(f": {of_all}"), each.unit, found=each.found)
        for each in found.others
        if each.what.endswith(of_all)
    ]
    made = (
        f"{_BEGINS}\n\n{machine(found, options)}\n\n"
        f"![How far each figure is from its aim](pictures/aims.svg)\n\n{aims}\n\n"
        f"The same work by others, in the same rounds, and figures without an aim:\n\n"
        f"![Others beside Holdfast](pictures/peers.svg)\n\n{others}\n\n{_ENDS}"
    )
    page.write_text(before + made + after)
    (pictures / "aims.svg").write_text(figures.picture(found.aims))
    (pictures / "peers.svg").write_text(
        figures.picture_of_others(f"{of_all}: shorter is better", bars)
    )


def as_json(found: Found) -> str:
    figured = {
        "aims": [asdict(each) for each in found.aims],
        "others": [asdict(each) for each in found.others],
    }
    return json.dumps(found._asdict() | figured, indent=2)
