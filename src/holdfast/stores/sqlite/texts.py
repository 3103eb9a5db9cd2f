"""The index of texts in SQLite: a table of FTS5, whose rows have the ids of the lines they are of.

It is made when it is first needed. Words come folded (see `stores.texts`), so the table splits at
spaces and does nothing else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.stores.sqlite.writer import SQL

T = TypeVar("T")


class _All(Protocol):
    def __call__(self, name: str, /, **given: Any) -> list[Any]: ...


class _Write(Protocol):
    def __call__(self, write: Callable[[sqlite3.Connection], T]) -> T: ...


def can_search() -> bool:
    """Whether SQLite was built with FTS5."""
    conn = sqlite3.connect(":memory:")
    try:
        return bool(conn.execute(SQL["can_search"]).fetchall())
    finally:
        conn.close()


class SqliteTexts:
    """A `TextIndex` in the database of a store."""

    def __init__(self, ask: _All, write: _Write) -> None:
        self._ask = ask
        self._write = write

    def upto(self, stream: str) -> int:
        return next((upto or 0 for _, upto in self._ask("indexed", stream=stream)), 0)

    def add(
        self,
        stream: str,
        after_seq: int,
        upto_seq: int,
        texts: Sequence[tuple[int, Sequence[str]]],
        gone: Sequence[int],
    ) -> None:
        def add(conn: sqlite3.Connection) -> None:
            row = conn.execute(SQL["indexed"], {"stream": stream}).fetchone()
            if row is None or (row[1] or 0) != after_seq:
                return
            id = row[0]
            if not after_seq:
                conn.execute(SQL["make_texts"])
                conn.execute(SQL["delete_texts"], _rows_of(id))
            conn.executemany(SQL["delete_text"], [((id << 32) + seq,) for seq in gone])
            rows = [((id << 32) + seq, " ".join(words)) for seq, words in texts]
            conn.executemany(SQL["add_text"], rows)
            conn.execute(SQL["move_index"], {"id": id, "upto": upto_seq})

        self._write(add)

    def find(self, stream: str, words: Sequence[str], limit: int) -> list[tuple[int, float]]:
        query = " OR ".join(f'"{word}"' for word in words)
        for id, upto in self._ask("indexed", stream=stream):
            if upto:
                given = {"query": query, "limit": limit, **_rows_of(id)}
                rows = self._ask("find_texts", **given)
                return [(row - (id << 32), score) for row, score in rows]
        return []

    def drop(self, stream: str) -> None:
        def drop(conn: sqlite3.Connection) -> None:
            for id, _ in conn.execute(SQL["stream"], {"stream": stream}).fetchall():
                drop_index(conn, id)

        self._write(drop)


def drop_index(conn: sqlite3.Connection, id: int) -> None:
    """Delete what is indexed of a stream, by its id."""
    was_indexed = conn.execute(SQL["delete_index"], {"id": id}).rowcount
    if was_indexed and conn.execute(SQL["has_texts"]).fetchone():
        conn.execute(SQL["delete_texts"], _rows_of(id))


def _rows_of(id: int) -> dict[str, int]:
    return {"after": id << 32, "upto": (id + 1) << 32}
