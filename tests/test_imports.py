"""`import holdfast` stays light: what it loads is pinned here, and the rest loads when asked for.

A name added below is paid for by every program that uses Holdfast, each time it starts.
"""

from __future__ import annotations

import subprocess
import sys

HOLDFAST_MODULES = {
    "holdfast",
    "holdfast.api",
    "holdfast.api.app",
    "holdfast.api.branches",
    "holdfast.api.checkpoints",
    "holdfast.api.tasks",
    "holdfast.api.steps",
    "holdfast.api.async_forms",
    "holdfast.api.handle",
    "holdfast.api.waiting",
    "holdfast.codec",
    "holdfast.codec.change",
    "holdfast.codec.classes",
    "holdfast.codec.closed",
    "holdfast.codec.growing",
    "holdfast.codec.shape",
    "holdfast.codec.pydantic_types",
    "holdfast.codec.tags",
    "holdfast.codec.redact",
    "holdfast.codec.scalars",
    "holdfast.codec.secret",
    "holdfast.codec.secrets",
    "holdfast.codec.signature",
    "holdfast.core",
    "holdfast.core.conversation",
    "holdfast.core.crashes",
    "holdfast.core.decoding",
    "holdfast.core.events",
    "holdfast.core.events.base",
    "holdfast.core.events.calls",
    "holdfast.core.events.history",
    "holdfast.core.events.queue",
    "holdfast.core.events.session",
    "holdfast.core.events.task",
    "holdfast.core.facts",
    "holdfast.core.filing",
    "holdfast.core.fold",
    "holdfast.core.fold.calls",
    "holdfast.core.fold.history",
    "holdfast.core.fold.task",
    "holdfast.core.fold.waits",
    "holdfast.core.journal",
    "holdfast.core.journal.calls",
    "holdfast.core.journal.requests",
    "holdfast.core.journal.task",
    "holdfast.core.journal.waits",
    "holdfast.core.kinds",
    "holdfast.core.limits",
    "holdfast.core.lists",
    "holdfast.core.memories",
    "holdfast.core.plan",
    "holdfast.core.queues",
    "holdfast.core.scope",
    "holdfast.core.spec",
    "holdfast.core.state",
    "holdfast.core.words",
    "holdfast.engines",
    "holdfast.engines.clocks",
    "holdfast.engines.control",
    "holdfast.engines.deaths",
    "holdfast.engines.origins",
    "holdfast.engines.driver",
    "holdfast.engines.execution",
    "holdfast.engines.follow",
    "holdfast.engines.functions",
    "holdfast.engines.here",
    "holdfast.engines.holder",
    "holdfast.engines.local",
    "holdfast.engines.local.tasks",
    "holdfast.engines.local.worker",
    "holdfast.engines.mail",
    "holdfast.engines.parts",
    "holdfast.engines.port",
    "holdfast.engines.routing",
    "holdfast.engines.run",
    "holdfast.engines.sync_driver",
    "holdfast.engines.undo",
    "holdfast.engines.weather",
    "holdfast.errors",
    "holdfast.history",
    "holdfast.history.differences",
    "holdfast.history.matching",
    "holdfast.history.known",
    "holdfast.history.snapshots",
    "holdfast.log",
    "holdfast.log.artifacts",
    "holdfast.log.chain",
    "holdfast.log.states",
    "holdfast.log.ledger",
    "holdfast.log.log",
    "holdfast.log.parts",
    "holdfast.log.places",
    "holdfast.log.reading",
    "holdfast.log.store_calls",
    "holdfast.log.trail",
    "holdfast.log.values",
    "holdfast.log.waypoints",
    "holdfast.stores",
    "holdfast.stores.finding",
    "holdfast.stores.listing",
    "holdfast.stores.port",
    "holdfast.stores.sealed",
    "holdfast.stores.sealed.keys",
    "holdfast.stores.system",
    "holdfast.upkeep",
    "holdfast.upkeep.families",
    "holdfast.upkeep.retention",
    "holdfast.views",
    "holdfast.views.task",
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
    loaded = loaded_by("import holdfast.cli.commands.once")
    assert third_party(loaded) <= THIRD_PARTY | {"click"}
    assert sorted(loaded & LATER - {"logging"}) == []


def test_a_command_loads_no_other_command_and_none_of_their_rooms() -> None:
    loaded = loaded_by("from holdfast.cli.root import root; root.commands['ls']")
    commands = {name for name in loaded if name.startswith("holdfast.cli.commands.")}
    assert commands == {"holdfast.cli.commands.overview"}
    assert not loaded & {"asyncio", "ssl", "holdfast.agent", "holdfast.web"}
