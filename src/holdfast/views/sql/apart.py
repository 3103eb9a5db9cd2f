"""The process in which a query is compiled and run, apart from the one that asks.

SQLite looks at no clock inside of one instruction, and one `replace` can take minutes and
gigabytes. A limit on its heap would hold for all of a process, also for a store in SQLite. So a
query has a process of its own, with a limit on its memory, and the asking process kills it when its
time is up.

This file is that process, run by its path. It imports only what comes with Python, so it begins in
no time and finds nothing in the current folder. It does what it reads on its standard input:

    compile    say what a query reads, or what is wrong with it
    load       take the filled tables
    ask        run the query: give its columns, then its rows

A message is JSON or bytes, after its length. While a query runs, it may ask for a large value.
"""

from __future__ import annotations

import base64
import json
import mmap
import sqlite3
import sys
from contextlib import suppress
from math import ceil
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows: nothing can be limited there but the time
    resource = None

LENGTH_BYTES = 8
_MOST_ROWS, _ENOUGH_BYTES = 100, 1 << 18
"""How many rows are handed over at once, at most."""

_READS = frozenset((sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE))
_FORBIDDEN_FUNCTIONS = frozenset(("load_extension", "fts3_tokenizer"))
_BESIDES = frozenset(("json_each", "json_tree", "sqlite_master", "sqlite_temp_master"))
"""The tables that a query may read although they are none of ours: they hold nothing."""

_ACTIONS = {
    getattr(sqlite3, f"SQLITE_{name.upper().replace(' ', '_')}"): name
    for name in (
        "insert", "update", "delete", "attach", "detach", "pragma", "transaction", "savepoint",
        "analyze", "reindex", "alter table", "create table", "create view", "create index",
        "create trigger", "create temp table", "create temp view", "create temp index",
        "create temp trigger", "drop table", "drop view", "drop index", "drop trigger",
    )
}  # fmt: skip


def inner(table: str) -> str:
    """The table that holds the rows; under the name itself stands a view of it."""
    return f"_{table}"


class Guard:
    """The rights of a query: read, and nothing else. SQLite asks for every statement it compiles.

    The same questions tell which tables and columns a query reads, so that only those are filled.
    """

    def __init__(self, tables: frozenset[str]) -> None:
        self._tables = tables
        self._allowed = tables | {inner(table) for table in tables} | _BESIDES
        self.wanted: dict[str, set[str]] = {}
        """The columns that are read, by table."""
        self.selects: bool = False
        self.refused: str = ""

    def __call__(self, action: int, one: str | None, two: str | None, *where: str | None) -> int:
        """The answer to SQLite: may this be done?"""
        if action in _READS:
            self.selects = True
            return sqlite3.SQLITE_OK
        # Of what is only counted no column is read: that may be a table of the query's own making.
        if action == sqlite3.SQLITE_READ and (one in self._allowed or not two):
            self._note(one or "", two or "")
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_FUNCTION and two not in _FORBIDDEN_FUNCTIONS:
            return sqlite3.SQLITE_OK
        self.refused = self.refused or _named(action, one, two)
        return sqlite3.SQLITE_DENY

    def _note(self, table: str, column: str) -> None:
        # Of a view all columns of the table under it are read, whichever the query names.
        if table in self._tables:
            self.wanted.setdefault(table, set()).add(column)
        elif table[1:] in self._tables:
            self.wanted.setdefault(table[1:], set())


def _named(action: int, one: str | None, two: str | None) -> str:
    if action == sqlite3.SQLITE_FUNCTION:
        return f"the function {two}()"
    if action == sqlite3.SQLITE_READ:
        return f"reading {one}"
    if one in _BESIDES:  # to declare it is how SQLite begins to read one
        return "a table of SQLite's own"
    return f"{_ACTIONS.get(action, 'what is no select')} {one or ''}".strip()


def packed(value: Any) -> bytes:
    """A message. SQLite's values are numbers, texts, NULL, and bytes, which JSON does not have."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_base64)
    return text.encode("utf-8", "surrogatepass")


def unpacked(data: bytes) -> Any:
    """The value that was packed."""
    return json.loads(data.decode("utf-8", "surrogatepass"), object_hook=_whole)


def _base64(value: bytes) -> dict[str, str]:
    return {"$bytes": base64.b64encode(value).decode()}


def _whole(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["$bytes"]) if value.keys() == {"$bytes"} else value


class _Apart:
    """The database of one query, in this process."""

    def __init__(self, given: BinaryIO, out: BinaryIO) -> None:
        self._given = given
        self._out = out
        setup = unpacked(self._receive())
        self._tables = frozenset(setup["tables"])
        self._memory_bytes: int = setup["memory_bytes"]
        self._timeout_s: float = setup["timeout_s"]
        self._longest_bytes: int = setup["longest_bytes"]
        self._db = database(self._longest_bytes, self._value)
        for statement in setup["declared"]:
            self._db.execute(statement)
        self._meet()
        self._guard = Guard(self._tables)
        self._last: tuple[int, Any] = (-1, None)
        self._limit()
        self._send({"ready": True})

    def serve(self) -> None:
        """Do what is asked, until nothing more is."""
        while True:
            order = unpacked(self._receive())
            try:
                if order["do"] == "compile":
                    self._send(self._compiled(order["query"], order["bound"]))
                elif order["do"] == "load":
                    self._load(order["size_bytes"])
                else:
                    self._ask(order["query"], order["bound"])
            except MemoryError:
                self._send({"memory": True})
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
                self._send({"error": str(error), "kind": _kind(error)})

    def _compiled(self, query: str, bound: Any) -> dict[str, Any]:
        guard = self._guard = Guard(self._tables)
        self._db.set_authorizer(guard)
        try:
            self._db.execute(query, bound).close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            return {"error": str(error), "kind": _kind(error), "refused": guard.refused}
        wanted = {table: sorted(columns) for table, columns in guard.wanted.items()}
        return {"wanted": wanted, "selects": guard.selects}

    def _load(self, size_bytes: int) -> None:
        more = self._limit(size_bytes)
        self._db.close()  # SQLite crashes if it met json_each before it takes other tables
        self._db = database(self._longest_bytes, self._value)
        self._db.execute(f"pragma hard_heap_limit = {more}")  # it can't be raised again
        self._db.deserialize(self._receive())
        self._meet()
        self._db.execute("pragma query_only = on")
        self._db.set_authorizer(self._guard)

    def _meet(self) -> None:
        # Met for the first time, tables and these two are declared, which a query may not do.
        self._db.execute("select 1 from json_each('[]'), json_tree('[]'), sqlite_master").close()

    def _ask(self, query: str, bound: Any) -> None:
        cursor = self._db.execute(query, bound)
        self._send({"columns": [each[0] for each in cursor.description]})
        rows: list[Any] = []
        size = 0
        for row in cursor:
            rows.append(row)
            size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
            if len(rows) == _MOST_ROWS or size > _ENOUGH_BYTES:
                self._send({"rows": rows})
                rows, size = [], 0
        self._send({"rows": rows, "end": True})

    def _value(self, number: Any) -> Any:
        """A large value, which the process that asks has to fetch from the store."""
        if type(number) is not int:
            return None
        if self._last[0] != number:  # a query often names a column twice
            self._send({"value": number})
            self._last = (number, unpacked(self._receive()))
        return self._last[1]

    def _limit(self, tables_bytes: int = 0) -> int:
        """Limit the memory to what is taken now, the tables twice, and what a query may take.

        Returns how much that is besides what is taken now.
        """
        more = self._memory_bytes + 2 * tables_bytes
        # The asking process stops the clock. This ends a process that nobody waits for any more.
        if resource is None:  # a system where nothing can be limited
            return more
        used_s = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        seconds = min(ceil(used_s + self._timeout_s) + 10, 1 << 30)
        for limit, value in ((resource.RLIMIT_AS, _taken() + more), (resource.RLIMIT_CPU, seconds)):
            with suppress(OSError, ValueError):  # not every system has it, or lets it be changed
                resource.setrlimit(limit, (value, resource.getrlimit(limit)[1]))
        return more

    def _receive(self) -> bytes:
        length = self._given.read(LENGTH_BYTES)
        if len(length) < LENGTH_BYTES:
            raise EOFError
        return self._given.read(int.from_bytes(length))

    def _send(self, message: dict[str, Any]) -> None:
        data = packed(message)
        self._out.write(len(data).to_bytes(LENGTH_BYTES) + data)
        self._out.flush()


def database(longest_bytes: int, value: Any) -> sqlite3.Connection:
    """A database in memory. Nothing of it is written anywhere, also not to temporary files."""
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    db.execute("pragma temp_store = memory")
    db.execute("pragma trusted_schema = on")  # the views call a function of ours
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest_bytes)
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.create_function("_value", 1, value, deterministic=True)
    return db


def _kind(error: Exception) -> str:
    if isinstance(error, sqlite3.Warning):
        return "warning"
    return "value" if isinstance(error, ValueError) else ""


def _taken() -> int:
    """How much of its address space the process uses."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    return 1 << 30


def _main() -> None:
    with suppress(EOFError, BrokenPipeError):
        _Apart(sys.stdin.buffer, sys.stdout.buffer).serve()


if __name__ == "__main__":
    _main()
