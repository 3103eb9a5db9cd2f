"""What we aim at, measured beside it: `make bench ARGS="--aims"` takes some ten minutes.

Each line of the table has an aim, the median of the rounds, and the least and the greatest. The
order of what is compared changes from round to round, and each measurement is a process of its
own. With `--write` the table and the picture in docs/benchmarks.md are made anew.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import postgres

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "pictures" / "aims.svg"
_BEGINS, _ENDS = "<!-- aims: made by `make bench` -->", "<!-- aims end -->"

Json = dict[str, Any]
Child = Callable[..., Json]
Say = Callable[[str], None]


class Aim(NamedTuple):
    """One line: what, how much it should be, and what it was in each round."""

    what: str
    unit: str
    aim: float
    at_least: bool
    found: list[float]

    @property
    def value(self) -> float:
        return median(self.found)

    @property
    def is_met(self) -> bool:
        return self.value >= self.aim if self.at_least else self.value <= self.aim

    @property
    def share(self) -> float:
        """How far it is from the aim: 1 is met, 2 is twice as much as it should be."""
        return self.aim / self.value if self.at_least else self.value / self.aim


def at_most(what: str, unit: str, aim: float, found: list[float]) -> Aim:
    return Aim(what, unit, aim, False, found)


def at_least(what: str, unit: str, aim: float, found: list[float]) -> Aim:
    return Aim(what, unit, aim, True, found)


def measure(child: Child, say: Say, options: Any, folder: Path) -> list[Aim]:
    """Every line that is to be shown."""
    with databases(folder) as place:
        return [
            *one_task(child, say, options, place),
            *many_tasks(child, say, options, place),
            *workers(child, say, options, place),
            *resumed(child, say, options, place),
            *long_task(child, say, options, folder),
            *lists(child, say, options, folder),
            *talk(child, say, options, folder),
            *small_things(child, say, options, folder),
        ]


Place = Callable[[str], str]


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
                return postgres.new_database(url, f"aim{count}")
            made = folder / f"{medium}-{count}"
            made.mkdir()
            return str(made)

        yield place


def media() -> list[str]:
    return ["files", "sqlite", *(["postgres"] if postgres.is_installed() else [])]


_NAMES = {"files": "files", "sqlite": "SQLite", "postgres": "PostgreSQL"}


def url_of(medium: str, place: str) -> str:
    return {"files": f"{place}/workspace", "sqlite": f"sqlite:///{place}/h.db"}.get(medium, place)


def one_task(child: Child, say: Say, options: Any, place: Place) -> list[Aim]:
    ratios: dict[str, list[float]] = {medium: [] for medium in media()}
    nosync: list[float] = []
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: one task")
        for medium in media():
            spent = {}
            for who in ("raw", "holdfast") if number % 2 else ("holdfast", "raw"):
                where = place(medium)
                answer = child("bench.stores", who, medium, "1", str(options.steps), where)
                spent[who] = answer["seconds"]
            ratios[medium].append(spent["holdfast"] / spent["raw"])
        given = ("holdfast_nosync", str(options.steps), place("files"))
        nosync.append(options.steps / child("bench.child", *given)["seconds"])
    aims = {"files": 1.3, "sqlite": 1.2, "postgres": 1.3}
    what = f"one task of {options.steps:,} durable steps, {{}}, raw loop = 1"
    return [
        *(
            at_most(what.format(_NAMES[medium]), "×", aims[medium], found)
            for medium, found in ratios.items()
        ),
        at_least("the same in files without syncs", "steps/s", 25_000, nosync),
    ]


def many_tasks(child: Child, say: Say, options: Any, place: Place) -> list[Aim]:
    cases = [("files", 40, 14_000), ("files", 10, 9_000), ("sqlite", 10, 12_000)]
    cases += [("postgres", 10, 12_000)] if postgres.is_installed() else []
    found: dict[tuple[str, int, int], list[float]] = {case: [] for case in cases}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: many tasks")
        for medium, steps, aim in cases[number % len(cases) :] + cases[: number % len(cases)]:
            given = ("holdfast", medium, str(options.tasks), str(steps), place(medium))
            spent = child("bench.stores", *given)["seconds"]
            found[medium, steps, aim].append(options.tasks * steps / spent)
    return [
        at_least(
            f"{options.tasks} tasks × {steps} on one loop, {_NAMES[medium]}", "steps/s", aim, rates
        )
        for (medium, steps, aim), rates in found.items()
    ]


def workers(child: Child, say: Say, options: Any, place: Place) -> list[Aim]:
    tasks, steps = (16, 10) if options.quick else (80, 25)
    found: dict[str, list[float]] = {medium: [] for medium in media() if medium != "files"}
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: workers")
        for medium, ratios in found.items():
            spent = {}
            for count in (1, 4) if number % 2 else (4, 1):
                url = url_of(medium, place(medium))
                child("bench.long", "fill", str(tasks), str(steps), url)
                _work(count, url)
                spent[count] = child("bench.long", "lasted", url)["seconds"]
            ratios.append(spent[1] / spent[4])
    return [
        at_least(f"4 workers on {_NAMES[medium]}, the rate of one = 1", "×", 1.0, ratios)
        for medium, ratios in found.items()
    ]


def _work(count: int, url: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        go = Path(folder) / "go"
        command = [sys.executable, "-m", "bench.long", "work", url, str(go)]
        running = [
            subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(count)
        ]
        time.sleep(1.5)  # until all have begun
        go.touch()
        for process in running:
            if process.wait(300):
                sys.exit(f"{' '.join(command)} failed")


def resumed(child: Child, say: Say, options: Any, place: Place) -> list[Aim]:
    aims = {"files": 0.12, "sqlite": 0.12, "postgres": 0.25}
    urls = {medium: url_of(medium, place(medium)) for medium in media()}
    found: dict[str, list[float]] = {medium: [] for medium in urls}
    n = str(options.resume_steps)
    for url in urls.values():
        child("bench.long", "record", n, url)
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: resume")
        for medium, url in urls.items():
            found[medium].append(child("bench.long", "resume", n, url)["seconds"])
    what = f"resume of {options.resume_steps:,} steps, {{}}"
    return [
        at_most(what.format(_NAMES[medium]), "s", aims[medium], seconds)
        for medium, seconds in found.items()
    ]


def long_task(child: Child, say: Say, options: Any, folder: Path) -> list[Aim]:
    n, url = 2_000 if options.quick else 200_000, str(folder / "long")
    say(f"a task of {n:,} steps")
    child("bench.long", "record", str(n), url)
    name = f"a task of {n:,} steps: "
    resumes = [child("bench.long", "resume", str(n), url) for _ in range(2)]
    found = [
        at_most(f"{name}resume", "s", 3, [each["seconds"] for each in resumes]),
        at_most(f"{name}its memory", "MB", 150, [each["megabytes"] for each in resumes]),
    ]
    for command, aim in (("ls", 1.0), ("show", 1.0), ("why", 1.0), ("snapshot", 1.0)):
        say(f"{name}{command}")
        runs = [_command(url, command) for _ in range(2)]
        found.append(at_most(f"{name}`{command}`", "s", aim, [each[0] for each in runs]))
        found.append(at_most(f"{name}`{command}`, memory", "MB", 150, [each[1] for each in runs]))
    for command in ("log", "audit"):
        say(f"{name}{command}")
        _, megabytes = _command(url, command)
        found.append(at_most(f"{name}`{command}`, memory", "MB", 150, [megabytes]))
    return found


def _command(url: str, command: str) -> tuple[float, float]:
    """Seconds and megabytes of a command on a terminal; a snapshot goes to a file."""
    task = [] if command == "ls" else ["long"]
    given = [sys.executable, "-m", "holdfast", "--url", url, command, *task]
    start = time.perf_counter()
    if command == "snapshot":
        process = subprocess.Popen(given, cwd=ROOT, stdout=subprocess.DEVNULL)
    else:
        ours, theirs = os.openpty()
        process = subprocess.Popen(given, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=theirs)
        os.close(theirs)
        with suppress(OSError), open(ours, "rb", buffering=0) as screen:  # it ends with an error
            while screen.read(1 << 16):
                pass
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - start, used.ru_maxrss / 1024


def lists(child: Child, say: Say, options: Any, folder: Path) -> list[Aim]:
    url = str(folder / "listing")
    say(f"a page of {options.listed:,} tasks")
    child("bench.listing", "fill", url, str(options.listed))
    firsts = [child("bench.listing", "time", url)["first_ms"] for _ in range(options.rounds)]
    what = f"the first page of {options.listed:,} tasks in files, in a new process"
    return [at_most(what, "ms", 50, firsts)]


def talk(child: Child, say: Say, options: Any, folder: Path) -> list[Aim]:
    turns = options.conversation
    ratios, megabytes = [], []
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}: a conversation of {turns:,} turns")
        place = folder / f"talk-{number}"
        place.mkdir()
        raw = child("bench.long", "raw", str(turns), str(place))["seconds"]
        told = child("bench.conversation", str(turns), str(place / "workspace"))
        ratios.append((told["first_half_s"] + told["second_half_s"]) / raw)
        megabytes.append(told["disk_bytes"] / 1e6)
    what = f"a conversation of {turns:,} turns of 1 KB"
    return [
        at_most(f"{what}, raw loop = 1", "×", 3, ratios),
        at_most(f"{what}, all that is written", "MB", 3.2 * turns / 2000, megabytes),
    ]


def small_things(child: Child, say: Say, options: Any, folder: Path) -> list[Aim]:
    say("import, start-up and memory")
    walked = child("bench.long", "walk", str(folder / "walk"))
    bare, imported, listing = ["-c", "pass"], ["-c", "import holdfast"], ["-m", "holdfast", "ls"]
    imports = [_cpu_s(*imported) - _cpu_s(*bare) for _ in range(options.rounds)]
    starts = [_cpu_s(*listing, "--url", str(folder / "walk")) for _ in range(options.rounds)]
    peaks = [
        child("bench.long", "memory", "2000", str(folder / f"memory-{number}"))["megabytes"]
        for number in range(options.rounds)
    ]
    return [
        at_most("calls of Python in one step", "", 45, [walked["calls"]]),
        at_most("modules on the way of one step", "", 12, [walked["modules"]]),
        at_most("`import holdfast`, processor time", "ms", 60, [1e3 * each for each in imports]),
        at_most("`holdfast ls` of one task, processor time", "s", 0.15, starts),
        at_most("peak memory of 2,000 steps", "MB", 36, peaks),
    ]


def _cpu_s(*arguments: str) -> float:
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


# The table, and the picture.


def table(aims: list[Aim]) -> str:
    rows = ["| what | aim | measured | met |", "|---|---|---|---|"]
    for each in aims:
        sign = "≥" if each.at_least else "≤"
        spread = f" ({_number(min(each.found))}–{_number(max(each.found))})"
        measured = f"{_number(each.value)}{spread if len(each.found) > 1 else ''}"
        unit = f" {each.unit}" if each.unit else ""
        met = "yes" if each.is_met else f"no: {_number(each.share)}×"
        rows.append(f"| {each.what} | {sign} {_number(each.aim)}{unit} | {measured} | {met} |")
    return "\n".join(rows)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


_ROW, _LEFT, _WIDTH = 22, 400, 260


def picture(aims: list[Aim]) -> str:
    """Bars: how far each figure is from its aim, which is the line."""
    rows = []
    for number, each in enumerate(aims):
        y = 30 + number * _ROW
        width = min(each.share, 2.4) * _WIDTH / 2.4
        color = "#0a6a64" if each.is_met else "#b8860b"
        what = each.what.replace("&", "&amp;").replace("<", "&lt;").replace("`", "")
        rows.append(
            f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{what}</text>'
            f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="15" fill="{color}"/>'
            f'<text x="{_LEFT + width + 6:.0f}" y="{y + 12}">'
            f"{_number(each.value)} {each.unit}</text>"
        )
    height, line = 40 + len(aims) * _ROW, _LEFT + _WIDTH / 2.4
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" '
        f'font-family="sans-serif" font-size="11" fill="#333">'
        f'<rect width="760" height="{height}" fill="#fff"/>'
        f'<text x="{line:.0f}" y="18" text-anchor="middle">aim (shorter is better)</text>'
        + "".join(rows)
        + f'<line x1="{line:.0f}" y1="22" x2="{line:.0f}" y2="{height - 8}" stroke="#333"/></svg>\n'
    )


def write(aims: list[Aim], options: Any) -> None:
    """Put the table and the picture into the docs."""
    said = (
        f'One run of `make bench ARGS="--aims --write"`, medians of {options.rounds} rounds with '
        f"the least and the greatest; {os.cpu_count()} cores, Python {platform.python_version()}, "
        f"load {os.getloadavg()[1]:.1f} at its end."
    )
    made = f"{_BEGINS}\n\n{said}\n\n![How far each figure is from its aim](pictures/aims.svg)\n\n"
    made += f"{table(aims)}\n\n{_ENDS}"
    text = PAGE.read_text()
    before, _, rest = text.partition(_BEGINS)
    PAGE.write_text(before + made + rest.partition(_ENDS)[2])
    PICTURE.write_text(picture(aims))


def as_json(aims: list[Aim]) -> str:
    return json.dumps([each._asdict() | {"median": each.value} for each in aims], indent=2)
