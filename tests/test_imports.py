"""`import holdfast` stays light: what it loads is pinned here, and the rest loads when asked for.

A name added below is paid for by every program that uses Holdfast, each time it starts.
"""

from __future__ import annotations

import subprocess
import sys

HOLDFAST_MODULES = {
    "holdfast",
    "holdfast.app",
    "holdfast.artifacts",
    "holdfast.beginning",
    "holdfast.branches",
    "holdfast.chain",
    "holdfast.change",
    "holdfast.checkpoints",
    "holdfast.children",
    "holdfast.codec",
    "holdfast.codec.classes",
    "holdfast.codec.closed",
    "holdfast.codec.declared",
    "holdfast.codec.growing",
    "holdfast.codec.misfit",
    "holdfast.codec.scalars",
    "holdfast.codec.secrets",
    "holdfast.codec.shape",
    "holdfast.codec.signature",
    "holdfast.codec.tags",
    "holdfast.control",
    "holdfast.conversation",
    "holdfast.decisions",
    "holdfast.decoding",
    "holdfast.driving",
    "holdfast.engines",
    "holdfast.engines.clocks",
    "holdfast.engines.elsewhere",
    "holdfast.engines.execution",
    "holdfast.engines.failures",
    "holdfast.engines.handing",
    "holdfast.engines.heartbeat",
    "holdfast.engines.holding",
    "holdfast.engines.local",
    "holdfast.engines.lookup",
    "holdfast.engines.mail",
    "holdfast.engines.many",
    "holdfast.engines.port",
    "holdfast.engines.run",
    "holdfast.engines.standstill",
    "holdfast.engines.tenure",
    "holdfast.errors",
    "holdfast.events",
    "holdfast.events.base",
    "holdfast.events.calls",
    "holdfast.events.forking",
    "holdfast.events.history",
    "holdfast.events.memory",
    "holdfast.events.session",
    "holdfast.events.task",
    "holdfast.events.workspace",
    "holdfast.facts",
    "holdfast.family",
    "holdfast.filing",
    "holdfast.finding",
    "holdfast.fold",
    "holdfast.fold.calls",
    "holdfast.fold.history",
    "holdfast.fold.reads",
    "holdfast.fold.task",
    "holdfast.fold.waits",
    "holdfast.fold.workspace",
    "holdfast.folding",
    "holdfast.going",
    "holdfast.handle",
    "holdfast.inspection",
    "holdfast.journal",
    "holdfast.journal.calls",
    "holdfast.journal.reads",
    "holdfast.journal.requests",
    "holdfast.journal.task",
    "holdfast.journal.waits",
    "holdfast.journal.words",
    "holdfast.keys",
    "holdfast.kinds",
    "holdfast.later",
    "holdfast.waypoints.leaving",
    "holdfast.listing",
    "holdfast.lists",
    "holdfast.locally",
    "holdfast.log",
    "holdfast.merging",
    "holdfast.meter",
    "holdfast.moving",
    "holdfast.news",
    "holdfast.patterns",
    "holdfast.people",
    "holdfast.plan",
    "holdfast.reading",
    "holdfast.redact",
    "holdfast.remembering",
    "holdfast.saying",
    "holdfast.scope",
    "holdfast.secret",
    "holdfast.seen",
    "holdfast.spec",
    "holdfast.state",
    "holdfast.step",
    "holdfast.store",
    "holdfast.stores",
    "holdfast.tail",
    "holdfast.talking",
    "holdfast.task",
    "holdfast.waypoints.trail",
    "holdfast.travelling",
    "holdfast.upkeep",
    "holdfast.upkeep.housekeeping",
    "holdfast.upkeep.needs",
    "holdfast.upkeep.retention",
    "holdfast.waypoints.upto",
    "holdfast.values",
    "holdfast.views",
    "holdfast.waiting",
    "holdfast.watching",
    "holdfast.waypoints",
    "holdfast.waypoints.encoding",
    "holdfast.words",
    "holdfast.worker",
}

# msgspec loads typing_extensions where it happens to be installed.
THIRD_PARTY = {"msgspec", "typing_extensions"}

# Parts of the standard library too slow to load for someone who may not need them.
LATER = {
    "asyncio",
    "concurrent.futures",
    "email",
    "http.client",
    "http.server",
    "logging",
    "multiprocessing",
    "sqlite3",
    "ssl",
    "unittest",
    "urllib.request",
}


def loaded_by(statement: str) -> set[str]:
    """The modules a fresh interpreter loads for a statement, beyond those it starts with."""
    script = (
        f"import sys; before = set(sys.modules); {statement}; "
        "print(*sorted(set(sys.modules) - before))"
    )
    command = [sys.executable, "-I", "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def third_party(modules: set[str]) -> set[str]:
    return (
        {name.split(".")[0] for name in modules}
        - sys.stdlib_module_names
        - {"holdfast", "__mp_main__"}
    )


def test_import_holdfast_loads_exactly_these_modules_of_its_own() -> None:
    own = {name for name in loaded_by("import holdfast") if name.split(".")[0] == "holdfast"}
    unlisted, missing = sorted(own - HOLDFAST_MODULES), sorted(HOLDFAST_MODULES - own)
    assert not unlisted, f"loaded, but not in HOLDFAST_MODULES: {unlisted}"
    assert not missing, f"in HOLDFAST_MODULES, but not loaded: {missing}"


def test_import_holdfast_loads_no_third_party_package_but_msgspec() -> None:
    loaded = third_party(loaded_by("import holdfast"))
    assert loaded <= THIRD_PARTY, f"loaded, but not in THIRD_PARTY: {sorted(loaded - THIRD_PARTY)}"


def test_import_holdfast_loads_no_slow_part_of_the_standard_library() -> None:
    assert sorted(loaded_by("import holdfast") & LATER) == []


def test_what_is_loaded_is_seen() -> None:
    loaded = loaded_by("import sqlite3, click")
    assert "sqlite3" in loaded & LATER
    assert "click" in third_party(loaded)


def test_holdfast_testing_needs_neither_pytest_nor_hypothesis_until_they_are_used() -> None:
    loaded = third_party(loaded_by("import holdfast.testing, holdfast.testing.processes"))
    assert loaded <= THIRD_PARTY
    hidden = "import sys; sys.modules['pytest'] = None; import holdfast.testing as t"
    script = f"{hidden}\ntry: t.StoreContract\nexcept ModuleNotFoundError as e: print(e)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "needs pytest: pip install 'holdfast[testing]'" in run.stdout


def test_an_engine_is_loaded_when_it_is_asked_for_and_says_what_it_needs() -> None:
    hidden = "import sys; sys.modules['temporalio'] = None; import holdfast"
    script = f"{hidden}\ntry: holdfast.Temporal\nexcept ModuleNotFoundError as e: print(e)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'holdfast[temporal]'" in run.stdout
    script = "from holdfast import Tempural"
    command = [sys.executable, "-c", script]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "cannot import name 'Tempural'" in run.stderr


def test_holdfast_once_loads_nothing_for_terminals_and_no_event_loop() -> None:
    loaded = loaded_by("import holdfast.cli.once")
    assert third_party(loaded) <= THIRD_PARTY | {"click"}
    assert sorted(loaded & LATER - {"logging"}) == []
