"""The floors: what each medium can do when nothing else is to be done.

`one` appends a line and makes it durable, n times. `many` does so for many writers at once, each
with a file or rows of its own: a line for each, and then one sync for all of them.
"""

import ctypes
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

LINE = b"x" * 299 + b"\n"


def one(medium: str, steps: int, place: str) -> float:
    return _FLOORS[medium](1, steps, place)


def many(medium: str, tasks: int, steps: int, place: str) -> float:
    return _FLOORS[medium](tasks, steps, place)


def files(tasks: int, steps: int, place: str) -> float:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    fds = [os.open(Path(place) / f"raw-{number}", flags, 0o600) for number in range(tasks)]
    folder = os.open(place, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    start = time.perf_counter()
    for _ in range(steps):
        for fd in fds:
            os.write(fd, LINE)
        if tasks == 1:
            os.fdatasync(fds[0])
        elif libc.syncfs(folder):
            raise OSError(ctypes.get_errno(), "syncfs")
    seconds = time.perf_counter() - start
    for fd in (*fds, folder):
        os.close(fd)
    return seconds


def sqlite(tasks: int, steps: int, place: str) -> float:
    connection = sqlite3.connect(Path(place) / "raw.db", isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute("create table lines (id integer primary key, line blob not null)")
    insert = "insert into lines (id, line) values (?, ?)"
    start = time.perf_counter()
    for step in range(steps):
        connection.execute("begin immediate")
        connection.executemany(insert, _rows(tasks, step))
        connection.execute("commit")
    seconds = time.perf_counter() - start
    connection.close()
    return seconds


def postgres(tasks: int, steps: int, place: str) -> float:
    import psycopg

    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("create table raw (id bigint primary key, line bytea not null)")
        insert: Any = "insert into raw select * from unnest(%b::bigint[], %b::bytea[])"
        if tasks == 1:
            insert = "insert into raw values (%b, %b)"
        start = time.perf_counter()
        for step in range(steps):
            rows = _rows(tasks, step)
            given = rows[0] if tasks == 1 else [list(column) for column in zip(*rows, strict=True)]
            connection.execute(insert, given, prepare=True)
        return time.perf_counter() - start


def _rows(tasks: int, step: int) -> list[tuple[int, bytes]]:
    return [((task << 32) + step, LINE) for task in range(tasks)]


_FLOORS = {"files": files, "sqlite": sqlite, "postgres": postgres}
