"""What a query may do: read, and nothing else. Asked by SQLite, for every statement it compiles.

The same questions tell which tables and columns a query reads, so that only those are filled.
"""

from __future__ import annotations

import sqlite3

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
    """Says yes or no, and remembers what was asked."""

    def __init__(self, tables: frozenset[str]) -> None:
        self._tables = tables
        self._allowed = tables | {inner(table) for table in tables} | _BESIDES
        self.wanted: dict[str, set[str]] = {}
        """The columns that are read, by table."""
        self.selects = False
        self.refused = ""

    def __call__(self, action: int, one: str | None, two: str | None, *where: str | None) -> int:
        """What SQLite asks: may this be done?"""
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
