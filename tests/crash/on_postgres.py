"""Kill an agent everywhere on PostgreSQL: `python -m tests.crash.on_postgres SCENARIO URL EVERY`.

Each try has a database of its own beside the one of the URL, also where several are killed on one
server, and it is dropped in the end. The process that goes on starts when
the killed one counts as dead. Until then its tasks are still held, and to go on with them is
refused (`TaskBusy`), as it should be. The server may notice a death late, and in its first three
seconds it takes nobody for dead.
"""

from __future__ import annotations

import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec
import psycopg
from psycopg import sql

from holdfast.stores import open_store
from holdfast.stores.port import Store
from holdfast.testing.crash import CrashStore, crash_everywhere

_PAUSE_S, _PATIENCE_S = 0.01, 60.0


def database_of(folder: Path) -> str:
    """What the database of a try is called: after its folder, and the folder of all the tries."""
    return "_".join(("crash", *folder.parts[-2:])).replace("-", "_")


def opened(
    url: str, folder: Path, pause: Callable[[], None] = lambda: time.sleep(_PAUSE_S)
) -> Store:
    """The database of a try, made if there is none, when nobody holds anything in it any more.

    `pause` is called before each new look.
    """
    name = database_of(folder)
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("select 1 from pg_database where datname = %s", [name])
        if found.fetchone() is None:
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    store = open_store(beside(url, name))
    give_up_at = time.monotonic() + _PATIENCE_S
    while held := [each for each in _taken(beside(url, name)) if store.holder(each)]:
        assert time.monotonic() < give_up_at, f"somebody still holds {held}"
        pause()
    return store


def drop_all(url: str, folder: Path) -> None:
    """Drop the databases of the tries that have their folders in this one."""
    with psycopg.connect(url, autocommit=True) as connection:
        for (name,) in connection.execute("select datname from pg_database").fetchall():
            if name.startswith(database_of(Path(folder.name, ""))):
                connection.execute(
                    sql.SQL("drop database {} with (force)").format(sql.Identifier(name))
                )


def _taken(url: str) -> list[str]:
    """The streams that somebody took and never released, also those in which nothing stands yet."""
    with psycopg.connect(url) as connection:
        if connection.execute("select to_regclass('holdfast.streams')").fetchone() == (None,):
            return []
        found = connection.execute("select name from holdfast.streams where owner is not null")
        return [name for (name,) in found]


def beside(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def main(scenario: str, url: str, every: str) -> int:
    def in_peril(folder: Path) -> Store:
        return CrashStore(opened(url, folder))

    module, _, function = scenario.partition(":")
    make = getattr(importlib.import_module(module), function)
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        report = crash_everywhere(make(), Path(folder), store=in_peril, every=int(every))
        drop_all(url, Path(folder))
    print(msgspec.json.encode(report).decode())
    return 0 if report else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
