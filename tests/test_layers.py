"""Data moves one way: a module imports from its own line of the table or from a line below it.

A new module gets a place in `LAYERS`; a core module that needs something from the outside
world as a plain value gets a line in `CORE_EXCEPTIONS`. Every import counts, also one inside
a function, except those under `if TYPE_CHECKING`, which never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

# Top to bottom. A package (`stores`) stands for everything in it.
LAYERS = (
    ("__main__", "cli", "testing"),
    {
        "__init__",
        "agent",
        "app",
        "beginning",
        "branches",
        "checkpoints",
        "children",
        "comparing",
        "control",
        "decisions",
        "driving",
        "family",
        "going",
        "workspace",
    }
    | {
        "handle",
        "inspection",
        "locally",
        "meter",
        "moving",
        "reporting",
        "replays",
        "saying",
        "sql",
        "stats",
        "step",
        "talking",
        "task",
        "travel",
        "travelling",
        "upkeep",
        "waiting",
        "watching",
        "worker",
    },
    (
        "artifacts",
        "audit",
        "branching",
        "engines",
        "ledger",
        "listing",
        "patrol",
        "seen",
        "snapshots",
        "stores",
        "verify",
        "views",
    ),
    ("keys",),
    ("tail",),
    ("news",),
    {"chain", "change", "codec", "differences", "facts", "history", "journal", "log", "people"}
    | {
        "filing",
        "finding",
        "folding",
        "harmless",
        "kinds",
        "naming",
        "reading",
        "redact",
        "scope",
        "secret",
        "spec",
        "store",
        "texts",
        "usage",
        "values",
        "waypoints",
        "words",
    },
    ("fold",),
    ("conversation", "remembering", "state"),
    ("later",),
    ("merging",),
    ("lists", "plan"),
    ("events",),
    ("decoding",),
    ("patterns",),
    ("errors",),
)

# Modules of one line may import each other, but none of these another of these.
APART = ({"engines", "stores", "views"},)

# The core decides; it never acts. It is everything from the line of the journal down.
CORE_STARTS_AT = "journal"

# What no core module imports: disk, network, event loop, clock, randomness, and code named by data.
OUTSIDE_WORLD = {
    *("os", "io", "pathlib", "shutil", "tempfile", "glob", "fcntl", "mmap", "sqlite3", "dbm"),
    *("socket", "ssl", "select", "selectors", "http", "urllib.request", "logging"),
    *("asyncio", "threading", "concurrent", "multiprocessing", "subprocess", "signal", "sched"),
    *("time", "random", "secrets", "uuid"),
    *("importlib", "runpy", "pickle", "marshal", "shelve"),
}

CORE_EXCEPTIONS = {
    ("codec", "pathlib"): "Path is a value it writes and reads",
    ("codec", "threading"): "branches in threads share the lists of a task",
    ("codec", "uuid"): "UUID is a value it writes and reads",
    ("secret", "os"): "a named secret is looked up in the environment, where it is kept",
    ("waypoints", "threading"): "threads share the heads that were read last",
    ("log", "threading"): "branches in threads share one log",
}

PACKAGE = Path(__file__).parents[1] / "src" / "holdfast"

LINE_OF = {module: number for number, line in enumerate(LAYERS, 1) for module in line}


def problems(name: str, source: str) -> list[str]:
    """What is wrong with the imports of one module, such as `stores.files` or `stores.__init__`."""
    module = name.split(".")[0]
    if module not in LINE_OF:
        return [f"{name}: `{module}` stands in no layer; add it to the table LAYERS."]
    found = []
    for line_number, target in imports(name, source):
        if problem := judge(module, target):
            found.append(f"{name}, line {line_number}: {problem}")
    return found


def judge(module: str, target: str) -> str | None:
    """Why `module` must not import the absolute name `target`, or None if it may."""
    root, _, rest = target.partition(".")
    if root != "holdfast":
        return judge_outside(module, target)
    imported = rest.split(".")[0]
    if imported == module:
        return None
    if imported not in LINE_OF:
        return f"imports {target}, which stands in no layer; add `{imported}` to the table LAYERS."
    here, there = LINE_OF[module], LINE_OF[imported]
    if there < here:
        return (
            f"`{module}` (layer {here}) imports `{imported}` (layer {there}), which stands above "
            "it. Data moves one way: the code that needs this import belongs higher up."
        )
    if any({module, imported} <= group for group in APART):
        return (
            f"`{module}` imports `{imported}`, and the two are kept apart so that either can be "
            f"replaced. Move what they share down to layer {here + 1}, or join them further up."
        )
    return None


def judge_outside(module: str, target: str) -> str | None:
    if LINE_OF[module] < LINE_OF[CORE_STARTS_AT]:
        return None
    parts = target.split(".")
    prefixes = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    for banned in sorted(prefixes & OUTSIDE_WORLD):
        if (module, banned) not in CORE_EXCEPTIONS:
            return (
                f"`{module}` is core and imports `{banned}`. The core decides and does not act: "
                "yield a request for a driver, take the value as an argument, or, if it is only "
                "a type, add it to CORE_EXCEPTIONS."
            )
    return None


def imports(name: str, source: str) -> Iterator[tuple[int, str]]:
    """Each import of a module, as line number and absolute dotted name."""
    package = ["holdfast", *name.split(".")[:-1]]
    for node in running_nodes(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                targets = [alias.name for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else []
                start = ".".join([*base, *([module] if module else [])])
                targets = [f"{start}.{alias.name}" for alias in names]
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
    """`from holdfast import Retry` asks the package, `from holdfast import fold` a module."""
    match target.split("."):
        case ["holdfast"]:
            return "holdfast.__init__"
        case ["holdfast", member] if member not in LINE_OF and not is_module(member):
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


def module_names() -> list[str]:
    paths = sorted(PACKAGE.rglob("*.py"))
    return [".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in paths]


@pytest.mark.parametrize("name", module_names())
def test_a_module_imports_only_what_stands_below_it(name: str) -> None:
    source = PACKAGE.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
    found = problems(name, source)
    assert not found, "\n" + "\n".join(found)


def test_a_module_stands_in_one_layer_only() -> None:
    named = [module for line in LAYERS for module in line]
    assert sorted(named) == sorted(set(named))


@pytest.mark.parametrize(
    ("name", "source", "complaint"),
    [
        ("fold", "from holdfast.journal import Append", "stands above"),
        ("fold", "from .journal import Append", "stands above"),
        ("fold", "from . import journal", "stands above"),
        ("fold", "from holdfast import Retry", "`__init__` (layer 2)"),
        ("fold", "import holdfast", "`__init__` (layer 2)"),
        ("errors", "def later():\n    import holdfast.events", "line 2"),
        ("stores.files", "from ..app import Holdfast", "stands above"),
        ("stores.__init__", "from ..views import status", "kept apart"),
        ("engines.local", "from holdfast.stores.files import FileStore", "kept apart"),
        ("engines.local", "import_module('holdfast.stores.files')", "kept apart"),
        ("task", "from holdfast.cli import main", "stands above"),
        ("journal", "import time", "imports `time`"),
        ("journal", "from os.path import join", "imports `os`"),
        ("history", "from urllib import request", "imports `urllib.request`"),
        ("journal", "import threading", "imports `threading`"),
        ("events", "from pathlib import Path", "imports `pathlib`"),
        ("fold", "if not TYPE_CHECKING:\n    import holdfast.journal", "stands above"),
        ("fold", "if TYPE_CHECKING:\n    pass\nelse:\n    import io", "imports `io`"),
        ("gizmo", "", "add it to the table"),
        ("app", "import holdfast.gizmo.parts", "add `gizmo` to the table"),
    ],
)
def test_a_wrong_import_is_reported(name: str, source: str, complaint: str) -> None:
    found = problems(name, source)
    assert len(found) == 1, found
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("testing.contract", "import holdfast.cli, holdfast.app, holdfast.stores.files, os"),
        ("__init__", "from holdfast.app import Holdfast\nfrom .step import step"),
        ("stores.files", "import os\nfrom .disk import sync\nfrom holdfast.stores import disk"),
        ("workspace.files", "from holdfast.views import status"),
        ("journal", "from . import codec, errors\nfrom .fold import apply\nimport datetime"),
        ("codec", "from pathlib import PurePath\nfrom uuid import UUID\nimport urllib.parse"),
        ("log", "import threading"),
        ("events", "if TYPE_CHECKING:\n    import os\n    from .journal import Append"),
        ("events", "if typing.TYPE_CHECKING:\n    from .journal import Append"),
    ],
)
def test_a_right_import_is_not_reported(name: str, source: str) -> None:
    assert problems(name, source) == []
