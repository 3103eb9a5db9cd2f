"""The file of the SQLite store: how it is made, opened and brought up to date, and what is said
when it fails."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holdfast.errors import BadInput, NewerFormat, StorageFailed
from holdfast.stores import system
from holdfast.stores.queries import migration, must_be_current, schema

VERSION = 5
"""Of the schema: how many migrations there are."""

_APPLICATION = 0x484F4C44
"""Marks a file as ours: it spells "HOLD"."""

_PATIENCE_S = 60.0

_PAGE_BYTES = 8192

_WAL_BYTES = 256 * _PAGE_BYTES
"""How large the write-ahead log may grow before it is written into the database and begun anew, and
what is left of it if a large value made it larger. SQLite's own 1,000 pages would be several times
a small database; with 256 of them a task makes 2% more syncs, with 64 of them 9%."""

T = TypeVar("T")


def prepare(path: Path, durable: bool, *, migrates: bool = False) -> None:
    """Make the database if it is not there. An older one is brought up to date only on request:
    a migration is an act of its own, see `holdfast.stores.migrate`."""
    try:
        _make_file(path)
        conn = connect(path, durable)
        try:
            if not migrates:
                must_be_current(_version_of(conn, path, VERSION), VERSION, str(path))
            patiently(lambda: bring_up_to_date(conn, path))
        finally:
            conn.close()
    except (OSError, sqlite3.Error) as error:
        raise failed(f"can't open {path}", error) from error


def version_in(path: Path) -> int:
    """The version of the database in a file; 0 if there is none."""
    if not path.exists():
        return 0
    try:
        conn = connect(path, True)
        try:
            return _version_of(conn, path, VERSION)
        finally:
            conn.close()
    except (OSError, sqlite3.Error) as error:
        raise failed(f"can't open {path}", error) from error


def _make_file(path: Path) -> None:
    """Make the file, private, if it is not there.

    A database that is there must not even be opened: closing it would drop the locks that other
    connections of this process have on it.
    """
    with suppress(FileExistsError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | system.CLOSE_ON_EXEC, 0o600)
        system.make_private(fd)
        os.close(fd)
        system.sync_folder(path.parent)


def connect(path: Path, durable: bool) -> sqlite3.Connection:
    """Open a connection to a file that is there."""
    # The timeout is short because we try again ourselves: more often, and at times of chance.
    conn = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        timeout=0.005,
        isolation_level=None,
        check_same_thread=False,
        uri=True,
    )
    try:
        # Of a new file. Lines of a kilobyte leave a fifth of every smaller page empty.
        conn.execute(f"pragma page_size = {_PAGE_BYTES}")
        (mode,) = patiently(lambda: conn.execute("pragma journal_mode = wal").fetchone())
        if mode != "wal":
            raise StorageFailed(
                f"{path} can't be shared by processes (its journal mode is {mode!r}): keep it on "
                f"a disk of this machine"
            )
        conn.execute(f"pragma synchronous = {'full' if durable else 'off'}")
        conn.execute(f"pragma wal_autocheckpoint = {_WAL_BYTES // _PAGE_BYTES}")
        conn.execute(f"pragma journal_size_limit = {_WAL_BYTES}")
        conn.execute("pragma fullfsync = on")  # on macOS a plain sync ends in the disk's cache
    except BaseException:
        conn.close()
        raise
    return conn


def size_of(path: Path) -> int:
    """How much of the disk the database takes, with what is still in its write-ahead log."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def patiently(act: Callable[[], T]) -> T:
    """Do something that a lock of another process may stand in the way of."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not _is_locked(error) or time.monotonic() > give_up_at:
                raise
        time.sleep(random.uniform(0.0002, 0.002))


def bring_up_to_date(
    conn: sqlite3.Connection,
    path: Path,
    version: int = VERSION,
    migrate: Callable[[str, int], str] = migration,
) -> None:
    """Make the database what this version of the schema says, from whatever older one it is."""
    if _version_of(conn, path, version) == version:
        return
    conn.execute("begin immediate")
    try:
        found = _version_of(conn, path, version)
        scripts = [migrate("sqlite", number) for number in range(found + 1, version + 1)]
        for script in scripts if found else [schema("sqlite")]:
            for statement in statements(script):
                conn.execute(statement)
        conn.execute(f"pragma application_id = {_APPLICATION}")
        conn.execute(f"pragma user_version = {version}")
        conn.execute("commit")
    except BaseException:
        conn.rollback()  # unless SQLite has done so itself, after an error of the disk
        raise


def _version_of(conn: sqlite3.Connection, path: Path, known: int) -> int:
    """The version of a database; 0 if it is empty."""
    # In one statement: another process may make the database between two of them.
    application, version, tables = conn.execute(
        "select application_id, user_version, (select count(*) from sqlite_master)"
        " from pragma_application_id, pragma_user_version"
    ).fetchone()
    if application != _APPLICATION:
        if tables or version:
            raise BadInput(f"{path} is a database of something else: give Holdfast its own file")
        return 0
    if version > known:
        raise NewerFormat(
            f"{path} was made by a newer Holdfast: its schema is of version {version}, this one "
            f"knows {known}. Nothing was changed: open it with that Holdfast, or upgrade this one"
        )
    return int(version)


def statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: run as a whole it would be in no transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""


def _is_locked(error: sqlite3.Error) -> bool:
    # The extended code names the occasion; its lowest byte is the kind.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED


_ADVICE = {
    5: f"Another process has kept it locked for {_PATIENCE_S:.0f} s, and seems to hang in the "
    "middle of a write: see which processes have it open, and end that one",
    8: "Check who owns the file and its folder, and whether they can be written",
    10: "The disk failed. What was acknowledged before is safe",
    11: "The file is damaged: restore it from a backup. `pragma integrity_check` tells more",
    13: "The disk is full: free some space, then run the task again; it goes on from here",
    14: "Check that its folder is there, who owns it, and whether it can be written",
    26: "The file is not an SQLite database: give another name",
}


def failed(what: str, error: Exception) -> StorageFailed:
    """The message when the database, or the disk under it, fails."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if isinstance(error, OSError):
        code = 14
    advice = _ADVICE.get(code, "What was acknowledged before is safe")
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return StorageFailed(f"{what}: {text}. {advice}")
