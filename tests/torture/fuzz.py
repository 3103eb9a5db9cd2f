"""A store with damage at random, read by every command and a worker.

    no fault          no command ends with an error that nobody thought of (exit 70), and none hangs
    no hiding         what is good is listed, read, driven, copied and restored as before; and what
                      is damaged is not as if it never was
    the culprit       whoever finds a damaged log says which; and then `doctor` does too
    derived data      damage to an index, a lock or a waypoint changes no exit code

A case is one store with one piece of damage, and one command. Commands run in this process, with
their exit codes as `holdfast` ends with them; now and then one runs in a process of its own too,
and has to end in the same way.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from msgspec import Struct

from holdfast import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.root import root
from holdfast.core import decoding
from holdfast.engines.local import worker
from holdfast.log import reading, values
from holdfast.log.store_calls import facts_of_all, streams_in
from holdfast.stores import listing
from tests.torture import world
from tests.torture.damage import (
    IN_A_DATABASE,
    IN_A_FOLDER,
    IN_AN_ARCHIVE,
    WAYPOINTS,
    Damaging,
    Database,
    Done,
    Folder,
    Packed,
)
from tests.torture.model import fast_folder

GOALS = (("files", 12_000, 50), ("sqlite", 4500, 30), ("waypoints", 2500, 20), ("archive", 1500, 8))
"""How many cases of each kind a long run makes, and `make thorough`."""

TREE = Path(__file__).parents[2]
LONGEST_S = 30
_IN_A_PROCESS = 400
"""One case of so many runs in a process too."""
_DERIVED = ("index", "lock", "waypoint", "row")
_APP = ("--app", "tests.torture.world")

Commands = dict[str, tuple[str, ...]]

ALL: Commands = {
    "ls": ("ls", "--all", "--json"),
    "ls in words": ("ls",),
    "ls by status": ("ls", "--status", "completed", "--json"),
    "stats": ("stats", "--json"),
    "sql of the index": ("sql", "select id from tasks", "--json"),
    "sql of tasks": ("sql", "select * from tasks", "--json"),
    "sql of events": ("sql", "select * from events", "--json"),
    "sql of sessions": ("sql", "select * from sessions", "--json"),
    "sessions": ("sessions", "--json"),
    "answer": ("answer", "--json"),
    "doubt": ("doubt", "--json"),
    "memory ls": ("memory", "ls", "--json"),
    "memory search": ("memory", "search", "oslo tea", "--json"),
    "doctor": ("doctor", "--json"),
    "doctor in words": ("doctor",),
    "verify": ("verify", "--json"),
    "head": ("head", "--json"),
    "copy, dry": ("copy", "--to", "OTHER", "--dry-run", "--json"),
    "check": ("check", *_APP, "--json"),
    "rebuild": ("rebuild", "--json"),
    "mirror": ("mirror", "VIEW", "--once", "--json"),
}
OF_A_TASK: Commands = {
    name: (*first, "TASK", *rest)
    for name, first, rest in (
        ("show", ("show",), ()),
        ("show, full", ("show",), ("--full", "--json")),
        ("why", ("why",), ("--json",)),
        ("context", ("context",), ("--json",)),
        ("log", ("log",), ()),
        ("log as JSON", ("log",), ("--json",)),
        ("snapshot", ("snapshot",), ("--json",)),
        ("snapshot of an event", ("snapshot",), ("--event", "EVENT", "--json")),
        ("diff", ("diff",), ("--from", "event:2", "--json")),
        ("compare", ("compare",), (world.LARGE, "--json")),
        ("audit", ("audit",), ("--json",)),
        ("audit as a page", ("audit",), ("--format", "html")),
        ("handoff", ("handoff",), ("--print",)),
        ("doctor of a task", ("doctor",), ("--json",)),
        ("verify of a task", ("verify",), ("--json",)),
        ("replay", ("replay",), (*_APP, "--json")),
        ("pause", ("pause",), ("--json",)),
        ("cancel", ("cancel",), ("--json",)),
        ("fork", ("fork",), ("--at", "1", "--json")),
        ("resume", ("resume",), (*_APP, "--json")),
    )
}
OF_A_SESSION: Commands = {
    "session": ("session", "SESSION", "--json"),
    "session as a page": ("session", "SESSION", "--markdown"),
}
MOVING: Commands = {
    "gc, dry": ("gc", "--older-than", "1s", "--dry-run", "--json"),
    "gc": ("gc", "--older-than", "1s", "--json"),
    "copy": ("copy", "--to", "OTHER", "--json"),
    "archive": ("archive", "PACK", "--json"),
}
RESTORING: Commands = {
    "restore": ("restore", "PACK", "--url", "OTHER", "--json"),
    "restore, dry": ("restore", "PACK", "--url", "OTHER", "--dry-run", "--json"),
}
WORKER = "a worker"
_WRITE = {"rebuild", "mirror", "pause", "cancel", "fork", "resume"}
_ONLY_READ = (ALL.keys() | OF_A_TASK.keys() | OF_A_SESSION.keys()) - _WRITE
_OF_WHAT_IS_LEFT = ("fork", "snapshot", "snapshot of an event", "diff")
"""What can be asked of a damaged log too: of what comes before the damage."""
_OF_THE_PAST = ("snapshot", "snapshot of an event", "diff", "fork", "resume", "show", WORKER)
"""What reads waypoints, and what might."""


class Case(Struct):
    """What came of one."""

    broken: list[str]


class Ended(Struct):
    """How a command ended."""

    code: int
    out: str
    told: str


class TooLong(BaseException):
    """A command did not end in time."""


def cases(kind: str, seed: str, bug: str = "") -> Iterator[Case]:
    """Cases without end, on a store of one kind: files, waypoints, sqlite or archive."""
    folder = fast_folder()
    before = Path.cwd()
    try:
        os.chdir(folder)
        fuzzing = _Fuzzing(kind, folder, BUGS.get(bug))
        with seeded(BUGS.get(bug)):
            for number in itertools.count():
                yield fuzzing.case(Random(f"{seed} {number}"), number)
    finally:
        os.chdir(before)
        shutil.rmtree(folder)


class _Fuzzing:
    def __init__(self, kind: str, folder: Path, bug: Bug | None) -> None:
        self.kind = kind
        self._bug = bug
        self._folder = folder
        self._made, self._case = folder / "made", folder / "case"
        self._made.mkdir()
        (world.make_long if kind == "waypoints" else world.make)(self._made / "files")
        if kind == "sqlite":
            world.into_a_database(self._made / "files", self._url(self._made))
            shutil.rmtree(self._made / "files")
        if kind == "archive":
            with Holdfast(str(self._made / "files")) as hf:
                hf.archive_to(self._made / "pack.hfa")
        url = self._url(self._made)
        with Holdfast(url) as hf:
            self._streams = {
                s for kind in ("tasks/", "sessions/") for s in streams_in(hf.store, kind)
            }
            self._kin = _kin(hf)
        if kind == "archive":
            shutil.rmtree(self._made / "files")
        self._known: dict[tuple[str, str], Ended] = {}
        self._touched: set[Path] | None = None
        """Which files are not as they were; None if nobody knows."""

    def _url(self, folder: Path) -> str:
        return f"sqlite:///{folder}/store.db" if self.kind == "sqlite" else str(folder / "files")

    def case(self, chance: Random, number: int) -> Case:
        """One piece of damage, one command, and what is wrong with what it did."""
        name = self._named(chance)
        kind = "sessions/" if name in OF_A_SESSION else "tasks/"
        may_be = sorted(each for each in self._streams if each.startswith(kind))
        how = f"{chance.random()}"
        what, done = self._damage(how)
        hit = [each for each in may_be if each in done.victims]
        target = chance.choice(hit if hit and chance.random() < 0.7 else may_be)
        args = self._args(name, target)
        broken: list[str] = []
        try:
            in_a_process = None
            if number % _IN_A_PROCESS == 7 and name != WORKER:
                in_a_process = _in_a_process(args)
                self._touched = None
                self._damage(how)
            broken += self._judge(name, target, what, done, args, in_a_process)
        except TooLong:
            broken.append(f"it took longer than {LONGEST_S} s")
        except Exception as error:
            broken.append(f"{error!r}\n{traceback.format_exc()[-1500:]}")
        if name not in _ONLY_READ or broken:
            self._touched = None
        told = f"case {number}, {' '.join(args)} after {what}: {done.what}"
        return Case([f"{told}\n        {each}" for each in broken])

    def _named(self, chance: Random) -> str:
        if self._bug is not None:
            return chance.choice(self._bug.commands)
        if self.kind == "archive":
            return chance.choice(list(RESTORING))
        if self.kind == "waypoints":
            return chance.choice(_OF_THE_PAST)
        groups: list[Commands] = [ALL, OF_A_TASK, OF_A_SESSION, MOVING, {WORKER: ()}]
        (group,) = chance.choices(groups, (5, 6, 1, 1, 1))
        return chance.choice(list(group))

    def _fresh(self) -> None:
        """The store without damage: what was touched is restored, after a command that only reads;
        or all of it is made anew."""
        if self._touched is None:
            shutil.rmtree(self._case, ignore_errors=True)
            shutil.copytree(self._made, self._case)
            return
        for path in self._touched | {self._case / "files" / "index.jsonl"}:
            good = self._made / path.relative_to(self._case)
            if good.exists():
                shutil.copyfile(good, path)
            else:
                path.unlink(missing_ok=True)

    def _damage(self, how: str) -> tuple[str, Done]:
        self._fresh()
        chance = Random(how)
        kinds, store = self._damages()
        what = chance.choice(list(kinds) if self._bug is None else self._bug.damage)
        done = kinds[what](store, chance)
        self._touched = store.touched if isinstance(store, Folder) else None
        return what, done

    def _damages(self) -> tuple[dict[str, Damaging], Any]:
        if self.kind == "sqlite":
            return IN_A_DATABASE, Database(self._case / "store.db")
        if self.kind == "archive":
            return IN_AN_ARCHIVE, Packed(self._case / "pack.hfa")
        if self.kind == "waypoints":
            return WAYPOINTS, Folder(self._case / "files")
        return IN_A_FOLDER, Folder(self._case / "files")

    def _args(self, name: str, target: str) -> list[str]:
        every: Commands = {**ALL, **OF_A_TASK, **OF_A_SESSION, **MOVING, **RESTORING, WORKER: ()}
        places = {
            "TASK": _id(target),
            "SESSION": _id(target),
            "EVENT": "1027" if self.kind == "waypoints" else "4",
            "OTHER": f"sqlite:///{self._case}/other.db",
            "VIEW": str(self._case / "view"),
            "PACK": str(self._case / "pack.hfa"),
        }
        args = [places.get(word, word) for word in every[name]]
        return args if "--url" in args else [*args, "--url", self._url(self._case)]

    # What is right

    def _judge(
        self, name: str, target: str, what: str, done: Done, args: list[str], other: int | None
    ) -> Iterator[str]:
        if name == WORKER:
            yield from self._driven(done)
            return
        ended = run(args)
        if other is not None and other != ended.code:
            yield f"exit {ended.code} here, and {other} in a process of its own"
        if ended.code == Exit.FAULT:
            yield f"exit 70: {ended.told[-1500:]}"
            return
        usual = self._usual(name, target)
        if self.kind == "archive":
            yield from self._restored(name, what, done, ended)
            return
        about = self._kin[target] | ({f"tasks/{world.LARGE}"} if name == "compare" else set())
        is_about_another = name in {**OF_A_TASK, **OF_A_SESSION} and not about & done.victims
        is_a_lie = what == "waypoint" and done.believed
        must_be_same = (what in _DERIVED or is_about_another) and not is_a_lie
        if must_be_same and ended.code != usual.code:
            yield f"exit {ended.code}, and {usual.code} without the damage: {ended.told[-500:]}"
        lost = self._shown(usual) - self._shown(ended) - self._spoilt(name, done)
        # Only the index is asked which ones are meant.
        is_asked = name in ("ls by status", "gc", "gc, dry")
        if name in {**ALL, **MOVING} and lost and not (is_asked and done.believed):
            yield f"exit {ended.code} without {sorted(lost)[:5]}: {ended.told[-500:]}"
        if ended.code == Exit.DAMAGED != usual.code and not is_a_lie:
            yield from self._named_culprit(done, ended, args, name in MOVING)
        if ended.code == Exit.BAD_INPUT != usual.code and name not in _OF_WHAT_IS_LEFT:
            yield f"exit 2, as if it were the user's fault: {ended.told[-500:]}"
        if ended.code == Exit.NOT_FOUND != usual.code:
            yield f"exit 5, as if it never was: {ended.told[-500:]}"

    def _usual(self, name: str, target: str) -> Ended:
        """How a command ends without damage."""
        key = (name, target if name in {**OF_A_TASK, **OF_A_SESSION} else "")
        if key not in self._known:
            saved = self._folder / "saved"
            self._case.rename(saved)
            shutil.copytree(self._made, self._case)
            self._known[key] = run(self._args(name, target))
            shutil.rmtree(self._case)
            saved.rename(self._case)
        return self._known[key]

    def _shown(self, ended: Ended) -> set[str]:
        """The logs that a command lists. One of a session may have the id of a task."""
        names = {each: json.dumps(_id(each)) for each in self._streams}
        return {
            each
            for each, name in names.items()
            if any(f'"{key}":{name}' in ended.out for key in ("id", "task", "stream"))
        }

    def _spoilt(self, name: str, done: Done) -> set[str]:
        if name in MOVING or name == "copy, dry":  # families go together
            return set().union(*(self._kin.get(each, {each}) for each in done.victims))
        return {each for each in self._streams if _id(each) in map(_id, done.victims)}

    def _named_culprit(
        self, done: Done, ended: Ended, args: list[str], is_moving: bool
    ) -> Iterator[str]:
        names, said = done.said_as(), ended.out + ended.told
        if not any(_is_in(each, said) for each in names):
            yield f"exit 4, and nobody is named of {sorted(names)[:5]}: {said[-700:]}"
        if is_moving:  # what was damaged may be gone by now
            return
        found = run(["doctor", *args[args.index("--url") :][:2]])
        if found.code != Exit.DAMAGED and "a newer Holdfast" not in found.out:
            yield f"exit 4, and doctor finds nothing: {said[-700:]}"
        elif not any(_is_in(each, found.out) for each in names):
            yield f"doctor names nobody of {sorted(names)[:5]}: {found.out[-700:]}"

    def _driven(self, done: Done) -> Iterator[str]:
        said: list[str] = []
        with Holdfast(self._url(self._case), lease_s=5) as hf, in_time():
            world.drive(hf, said)
            for id in world.PENDING:
                # The index may say that there is nothing to do.
                is_good = f"tasks/{id}" not in done.victims and not done.believed
                if is_good and hf.task(id).status != "completed":
                    yield f"{id} is {hf.task(id).status}: {said}"
        if len(set(said)) < len(said):
            yield f"the worker says something twice: {said}"

    def _restored(self, name: str, what: str, done: Done, ended: Ended) -> Iterator[str]:
        if what in ("manifest", "bytes"):  # it is refused as a whole, or was not touched
            if ended.code not in (Exit.OK, Exit.BAD_INPUT, Exit.DAMAGED):
                yield f"exit {ended.code}: {ended.told[-500:]}"
            return
        spoilt = set().union(*(self._kin.get(each, {each}) for each in done.victims))
        there = self._shown(ended)
        if name == "restore":
            with Holdfast(f"sqlite:///{self._case}/other.db") as hf:
                there = {s for kind in ("tasks/", "sessions/") for s in streams_in(hf.store, kind)}
        if lost := self._streams - spoilt - there:
            yield f"exit {ended.code} without {sorted(lost)[:5]}: {ended.told[-500:]}"
        names, said = done.said_as(), ended.out + ended.told
        if ended.code == Exit.DAMAGED and not any(_is_in(each, said) for each in names):
            yield f"nobody is named of {sorted(names)}: {ended.told[-500:]}"


def _id(stream: str) -> str:
    return stream.partition("/")[2]


def _is_in(name: str, text: str) -> bool:
    return name in text or json.dumps(name)[1:-1] in text


def _kin(hf: Holdfast) -> dict[str, set[str]]:
    """What goes together when it is moved, by stream."""
    found: dict[str, set[str]] = {}
    for kind in ("tasks/", "sessions/"):
        for stream in streams_in(hf.store, kind):
            found[stream] = {stream}
    for stream, facts in [*facts_of_all(hf.store, "tasks/"), *facts_of_all(hf.store, "sessions/")]:
        if facts is None:
            continue
        others = [f"{stream.partition('/')[0]}/{facts.origin}", f"tasks/{facts.parent}"]
        others += [f"sessions/{facts.session}", f"sessions/{_id(stream)}"]
        for other in others:
            if other in found and found[other] is not found[stream]:
                both = found[other] | found[stream]
                for each in both:
                    found[each] = both
    return found


# Running


@contextmanager
def in_time() -> Iterator[None]:
    """`TooLong` if something takes too long."""

    def stop(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def run(args: list[str]) -> Ended:
    """A command in this process, as `holdfast` runs it."""
    out, told = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    code: Any = 0
    with redirect_stdout(out), redirect_stderr(told), in_time():
        try:
            root.main(["--debug", *args], prog_name="holdfast")
        except SystemExit as ended:
            code = ended.code
    if isinstance(code, str):  # somebody ends all of it
        raise SystemExit(code)
    return Ended(int(code or 0), _text(out), _text(told))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return bytes(stream.buffer.getvalue()).decode()  # type: ignore[attr-defined]


def _in_a_process(args: list[str]) -> int:
    command = [sys.executable, "-m", "holdfast.cli", *args]
    env = {**os.environ, "PYTHONPATH": str(TREE)}
    done = subprocess.run(command, env=env, capture_output=True, timeout=4 * LONGEST_S, check=False)
    return done.returncode


# Bugs that it has to find


class _Never(Exception):
    """Nobody raises it."""


def _type_in(line: bytes) -> Any:
    return json.loads(line).get("type")


def _without(*left: type[Exception]) -> tuple[type[Exception], ...]:
    return tuple(each for each in decoding.NONSENSE if each not in left)


class Bug(Struct):
    """What is put in place of something, and where that has to be seen."""

    module: Any
    name: str
    instead: Any
    damage: tuple[str, ...]
    commands: tuple[str, ...]


_READ = ("show", "log", "ls", "doctor", "verify", "sql of tasks", "stats")

BUGS = {
    "too deep is not caught": Bug(
        decoding, "NONSENSE", _without(RecursionError), ("line", "index", "lock", "message"), _READ
    ),
    "only errors of msgspec are caught": Bug(
        decoding, "NONSENSE", (msgspec.MsgspecError,), ("line", "index", "lock", "message"), _READ
    ),
    "a type may be an object": Bug(reading, "_type_of", _type_in, ("line",), _READ),
    "nobody says whose value it is": Bug(
        values, "damage_in", nullcontext, ("blob", "line"), ("show, full", "handoff", "audit")
    ),
    "a fold may raise": Bug(reading, "NONSENSE", (), ("lines",), _READ),
    "a list stops at a damaged log": Bug(listing, "StoreError", _Never, ("line",), ("ls", "stats")),
    "a worker stops at a damaged log": Bug(worker, "HoldfastError", _Never, ("line",), (WORKER,)),
}


@contextmanager
def seeded(bug: Bug | None) -> Iterator[None]:
    """The product with a bug in it."""
    if bug is None:
        yield
        return
    before = getattr(bug.module, bug.name)
    setattr(bug.module, bug.name, bug.instead)
    try:
        yield
    finally:
        setattr(bug.module, bug.name, before)
