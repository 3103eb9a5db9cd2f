"""The floor plan: which rooms there are, what each may import, and one name for one thing.

A room imports only from rooms below it, and no two modules import each other, directly or round a
corner. Every import counts, also one inside a function, except those under `if TYPE_CHECKING`,
which never run. A core module that needs something from the outside world as a plain value gets a
line in `CORE_EXCEPTIONS`; a class name that two rooms need gets one in `TWICE`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

ROOMS = (  # from the street to the cellar
    "__main__",  # `python -m holdfast`
    "cli",  # commands: nothing but asking and printing
    "web",  # the debugger in the browser: a server and a page
    "testing",  # public: contracts, crash testing, clock, scripted model
    "integrations",  # public: a module for each framework, and for OpenTelemetry
    "workspace",  # readable files, artifacts, the plan on paper, harness, once
    "agent",  # sessions, context, compaction, memory, models, the orchestrator
    "__init__",  # what users import; it says which room is behind each door of `Holdfast`
    "api",  # what users touch: Holdfast, Handle, task, step, tool, ask, sleep, …
    "views",  # what a task looks like: one task, lists, audit, stats, SQL
    "upkeep",  # copy, archive, restore, gc
    "history",  # looking back: snapshot, diff, fork, rewind, replay, compare
    "engines",  # drive tasks: the port, the drivers, leases and mail, local and remote engines
    "stores",  # keep logs: the port, files, SQLite, PostgreSQL, memory, sealed
    "log",  # one task's log: append, seal, read, verify, waypoints, load a state
    "codec",  # values <-> bytes: by annotation, tags, classes, secrets, redaction
    "core",  # decides, and does nothing else: events, state, fold, journal, plan, specs
    "errors",  # the error tree
)

CORE = {"core", "errors"}

# What no core module imports: disk, network, event loop, clock, randomness, and code named by data.
OUTSIDE_WORLD = {
    *("os", "io", "pathlib", "shutil", "tempfile", "glob", "fcntl", "mmap", "sqlite3", "dbm"),
    *("socket", "ssl", "select", "selectors", "http", "urllib.request", "logging"),
    *("asyncio", "threading", "concurrent", "multiprocessing", "subprocess", "signal", "sched"),
    *("time", "random", "secrets", "uuid"),
    *("importlib", "runpy", "pickle", "marshal", "shelve"),
}

CORE_EXCEPTIONS: dict[tuple[str, str], str] = {}

# Class names that stand for two things, and why each is worth it.
TWICE: dict[str, str] = {}

PACKAGE = Path(__file__).parents[1] / "src" / "holdfast"

FLOOR = {room: number for number, room in enumerate(ROOMS, 1)}


def sources() -> dict[str, str]:
    """Every module, by its name below `holdfast`, such as `stores.port`; a package by its own."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        found[name] = path.read_text(encoding="utf-8")
    return found


MODULES = sources()


def problems(name: str, source: str) -> list[str]:
    """What is wrong with the imports of one module."""
    room = name.split(".")[0]
    if room not in FLOOR:
        return [f"{name}: `{room}` is no room of the floor plan"]
    found = []
    for line_number, target in imports(name, source):
        if problem := judge(room, target):
            found.append(f"{name}, line {line_number}: {problem}")
    return found


def judge(room: str, target: str) -> str | None:
    """Why a module of `room` must not import the absolute name `target`, or None if it may."""
    root, _, rest = target.partition(".")
    if root != "holdfast":
        return judge_outside(room, target)
    imported = rest.split(".")[0]
    if imported not in FLOOR:
        return f"imports {target}, which is in no room of the floor plan"
    if FLOOR[imported] < FLOOR[room]:
        return (
            f"`{room}` imports `{imported}`, which is above it. Data moves one way: the code that "
            "needs this import belongs higher up."
        )
    return None


def judge_outside(room: str, target: str) -> str | None:
    if room not in CORE:
        return None
    parts = target.split(".")
    prefixes = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    for banned in sorted(prefixes & OUTSIDE_WORLD):
        if (room, banned) not in CORE_EXCEPTIONS:
            return (
                f"`{room}` imports `{banned}`. The core decides and does not act: yield a request "
                "for a driver, take the value as an argument, or, if it is only a type, add it to "
                "CORE_EXCEPTIONS."
            )
    return None


def imports(name: str, source: str) -> Iterator[tuple[int, str]]:
    """Each import of a module, as line number and absolute dotted name."""
    for node in running_nodes(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                targets = [alias.name for alias in names]
            case ast.ImportFrom(level=level) if level:
                targets = ["holdfast.relative.import"]  # written out, so that moves can be scripted
            case ast.ImportFrom(module=str(module), names=names):
                targets = [f"{module}.{alias.name}" for alias in names]
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(target)), *_],
            ):
                targets = [target]
            case _:
                continue
        for target in targets:
            yield node.lineno, public_name(target)


def public_name(target: str) -> str:
    """`from holdfast import Retry` asks the package, `from holdfast import core` a room."""
    match target.split("."):
        case ["holdfast"]:
            return "holdfast.__init__"
        case ["holdfast", member] if member not in FLOOR and not is_module(member):
            return "holdfast.__init__"
        case _:
            return target


def is_module(member: str) -> bool:
    return (PACKAGE / f"{member}.py").exists() or (PACKAGE / member).is_dir()


def running_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Every node that can run: all but the bodies of `if TYPE_CHECKING`."""
    yield node
    children: Iterator[ast.AST] | list[ast.stmt] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        children = node.orelse if not ast.unparse(node.test).startswith("not ") else node.body
    for child in children:
        yield from running_nodes(child)


def neighbours(modules: dict[str, str]) -> dict[str, set[str]]:
    """Which modules of ours each module imports."""
    graph: dict[str, set[str]] = {}
    for name, source in modules.items():
        graph[name] = set()
        for _, target in imports(name, source):
            short = target.removeprefix("holdfast").lstrip(".")
            while short and short not in modules:
                short = short.rpartition(".")[0]
            if short and short != name:
                graph[name].add(short)
    return graph


def rings(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other, directly or round a corner."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:  # who imports nobody that is left is in no ring, nor who nobody imports
        imported = {target for targets in left.values() for target in targets}
        free = [name for name, targets in left.items() if not targets or name not in imported]
        if not free:
            return [sorted(left)] if left else []
        for name in free:
            del left[name]
        for targets in left.values():
            targets.difference_update(free)


def doubled(modules: dict[str, str]) -> dict[str, list[str]]:
    """Class names that more than one module uses, apart from private ones and `testing`."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, source in modules.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(name)
    return {
        name: sorted(where)
        for name, where in found.items()
        if len([each for each in where if not each.startswith("testing")]) > 1
    }


def complaints(modules: Iterable[tuple[str, str]]) -> list[str]:
    return [problem for name, source in modules for problem in problems(name, source)]


def test_a_room_imports_only_from_rooms_below_it() -> None:
    found = complaints(MODULES.items())
    assert not found, "\n" + "\n".join(found)


def test_every_name_in_the_package_is_a_room() -> None:
    names = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert names == set(ROOMS)


@pytest.mark.parametrize("room", sorted(set(ROOMS) - {"__main__", "__init__", "errors"}))
def test_a_room_says_what_it_is_for(room: str) -> None:
    said = ast.get_docstring(ast.parse(MODULES[room])) or ""
    assert len(said.split("\n\n")) >= 2, f"{room}/__init__.py: say what the room is for, and more"
    assert "first" in said, f"{room}/__init__.py: say which module to read first"


def test_no_two_modules_import_each_other() -> None:
    assert rings(neighbours(MODULES)) == []


def test_one_class_name_stands_for_one_thing() -> None:
    found = doubled(MODULES)
    assert {name: where for name, where in found.items() if name not in TWICE} == {}
    assert set(TWICE) <= set(found), "an exception that nobody needs any more"


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("core.fold", "from holdfast.log.log import Log", "above it"),
        ("core.fold", "from holdfast import Retry", "`__init__`"),
        ("core.fold", "import holdfast", "`__init__`"),
        ("core.fold", "from .journal import Append", "no room"),
        ("errors", "def later():\n    import holdfast.core.events", "line 2"),
        ("stores.files.store", "from holdfast.api.app import Holdfast", "above it"),
        ("engines.run", "import_module('holdfast.history.forks')", "above it"),
        ("api.tasks", "from holdfast.cli import main", "above it"),
        ("core.journal", "import time", "imports `time`"),
        ("core.journal", "from os.path import join", "imports `os`"),
        ("core.state", "from urllib import request", "imports `urllib.request`"),
        ("core.events", "from pathlib import Path", "imports `pathlib`"),
        ("core.fold", "if not TYPE_CHECKING:\n    import holdfast.log.log", "above it"),
        ("core.fold", "if TYPE_CHECKING:\n    pass\nelse:\n    import io", "imports `io`"),
        ("gizmo", "", "no room"),
        ("api.app", "import holdfast.gizmo.parts", "no room"),
    ],
)
def test_a_wrong_import_is_reported(name: str, source: str, complaint: str) -> None:
    found = problems(name, source)
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("testing.contract", "import holdfast.api.app, holdfast.stores.files, os"),
        ("stores.files.store", "import os\nfrom holdfast.stores.files.disk import sync"),
        ("workspace.files", "from holdfast.views.task import view_task"),
        ("core.journal", "from holdfast import errors\nimport datetime"),
        ("codec", "from pathlib import PurePath\nfrom uuid import UUID"),
        ("core.events", "if TYPE_CHECKING:\n    import os\n    import holdfast.log.log"),
        ("core.events", "if typing.TYPE_CHECKING:\n    import holdfast.log.log"),
    ],
)
def test_a_right_import_is_not_reported(name: str, source: str) -> None:
    assert problems(name, source) == []


def test_a_ring_is_found_also_round_a_corner() -> None:
    modules = {
        "core.a": "from holdfast.core.b import x",
        "core.b": "def later():\n    from holdfast.core.c import x",
        "core.c": "from holdfast.core import a",
        "core.d": "import holdfast.core.a",
        "core": "",
    }
    assert rings(neighbours(modules)) == [["core.a", "core.b", "core.c"]]


def test_a_name_for_two_things_is_found() -> None:
    one = "class Place: ...\nclass _Own: ..."
    assert doubled({"core.a": one, "log.b": one}) == {"Place": ["core.a", "log.b"]}
    assert doubled({"core.a": one, "testing.b": one}) == {}
