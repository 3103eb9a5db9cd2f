"""Burr, SQLitePersister: one action that loops n times, its state saved after each."""

import asyncio
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from burr.core import ApplicationBuilder, State, action, default, expr
from burr.core.persistence import SQLitePersister

notes = [f"apache-burr {version('apache-burr')}"]
_JOURNAL = "journal_mode=delete, synchronous=full, as sqlite3 has them"


@action(reads=["x"], writes=["x"])
def add(state: State) -> State:
    return state.update(x=state["x"] + 1)


@action(reads=["x"], writes=["x"])
async def add_async(state: State) -> State:
    return state.update(x=state["x"] + 1)


@action(reads=["x"], writes=[])
def end(state: State) -> State:
    return state


def _builder(adds: Any, n: int, name: str) -> Any:
    return (
        ApplicationBuilder()
        .with_actions(add=adds, end=end)
        .with_transitions(("add", "add", expr(f"x < {n}")), ("add", "end", default))
        .with_identifiers(app_id=name)
        .with_entrypoint("add")
        .with_state(x=0)
    )


def run(n: int, folder: Path) -> float:
    path = folder / "burr.sqlite"
    persister = SQLitePersister(str(path))
    persister.initialize()
    app = _builder(add, n, "bench").with_state_persister(persister).build()
    start = time.perf_counter()
    _, _, state = app.run(halt_after=["end"])
    seconds = time.perf_counter() - start
    assert state["x"] == n
    _check(path, n)
    notes.append(_JOURNAL)
    return seconds


def _check(path: Path, at_least: int) -> None:
    connection = sqlite3.connect(path)
    (recorded,) = connection.execute("select count(*) from burr_state").fetchone()
    connection.close()
    assert recorded >= at_least, f"Burr recorded {recorded} states for {at_least} steps"


def many(tasks: int, steps: int, folder: Path) -> float:
    return asyncio.run(_many(tasks, steps, folder / "burr.sqlite"))


async def _many(tasks: int, steps: int, path: Path) -> float:
    from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister

    async with AsyncSQLitePersister.from_values(str(path)) as persister:
        await persister.initialize()
        start = time.perf_counter()
        apps = [
            await _builder(add_async, steps, f"t-{number}").with_state_persister(persister).abuild()
            for number in range(tasks)
        ]
        ends = await asyncio.gather(*(app.arun(halt_after=["end"]) for app in apps))
        seconds = time.perf_counter() - start
    assert all(state["x"] == steps for _, _, state in ends)
    _check(path, tasks * steps)
    return seconds
