"""DBOS, its system database in SQLite as it sets it up: a workflow of n steps."""

import logging
import sqlite3
import time
from importlib.metadata import version
from pathlib import Path

from dbos import DBOS, DBOSConfig

notes = [f"dbos {version('dbos')}"]


@DBOS.step()
def add(x: int) -> int:
    return x + 1


@DBOS.workflow()
def count(n: int) -> int:
    x = 0
    for _ in range(n):
        x = add(x)
    return x


def run(n: int, folder: Path) -> float:
    logging.disable(logging.CRITICAL)
    path = folder / "dbos.sqlite"
    config: DBOSConfig = {"name": "bench", "system_database_url": f"sqlite:///{path}"}
    DBOS(config=config)
    DBOS.launch()
    try:
        start = time.perf_counter()
        result = count(n)
        seconds = time.perf_counter() - start
    finally:
        DBOS.destroy()
    assert result == n
    with sqlite3.connect(path) as connection:
        (journal,) = connection.execute("pragma journal_mode").fetchone()
        (recorded,) = connection.execute("select count(*) from operation_outputs").fetchone()
    connection.close()
    assert recorded == n, f"DBOS recorded {recorded} steps of {n}"
    notes.append(f"journal_mode={journal}, synchronous is SQLite's default (DBOS sets none)")
    return seconds
