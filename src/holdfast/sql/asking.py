"""A query, asked: compiled on empty tables to see what it reads, then run on those, filled.

The database is in memory and goes with the answer. Nothing of the logs is written anywhere, also
not to temporary files: a store may be encrypted.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.errors import BadInput, StoreError
from holdfast.sql.columns import STORED_AS, Table, stamp
from holdfast.sql.faults import COMMENT, READ_ONLY, misfit, refuse_writes
from holdfast.sql.filling import Filling, Tell
from holdfast.sql.guard import Guard, inner
from holdfast.sql.logs import Values
from holdfast.sql.tables import TABLES
from holdfast.store import Store
from holdfast.words import must_be_texts

TIMEOUT_S = 60.0
LONGEST_TEXT_BYTES = 256 * 1024 * 1024
"""Of what a query makes or gives out: one that multiplies texts must not take all memory."""

_BATCH = 100
_STEPS = 10_000
"""How many of SQLite's instructions pass between two looks at the clock."""
_EXPLAINS = re.compile(rf"{COMMENT}explain\b", re.IGNORECASE | re.DOTALL)
_BINDABLE = (int, float, str, bytes, type(None))

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any]


class Rows(Struct, frozen=True):
    """What a query found. Made by `hf.sql`.

    >>> found = Rows(("id", "status"), (("trip-1", "completed"),))
    >>> [row for row in found], found.dicts()
    ([('trip-1', 'completed')], [{'id': 'trip-1', 'status': 'completed'}])
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    more: bool = False
    """Whether there are others, beyond the limit."""
    unreadable: tuple[StoreError, ...] = ()
    """Of those logs that are missing from the answer, because they can't be read."""

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def dicts(self) -> list[dict[str, Any]]:
        """The rows as dicts. Of columns that have the same name, the second is called `name_2`."""
        names = distinct(self.columns)
        return [dict(zip(names, row, strict=True)) for row in self.rows]


class Answer:
    """The rows of a query, had from SQLite as they are asked for."""

    def __init__(self, cursor: sqlite3.Cursor, clock: _Clock, unreadable: list[StoreError]) -> None:
        self._cursor = cursor
        self._clock = clock
        self.columns: tuple[str, ...] = tuple(each[0] for each in cursor.description)
        self.unreadable = unreadable
        """What could not be read. It is complete once the rows are."""

    def __iter__(self) -> Iterator[Row]:
        while batch := self._clock.within(lambda: self._cursor.fetchmany(_BATCH)):
            yield from batch


def rows_of(
    store: Store,
    query: str,
    parameters: Parameters = (),
    *,
    limit: int | None = None,
    timeout_s: float = TIMEOUT_S,
    filters: Mapping[str, Any] | None = None,
) -> Rows:
    """Everything that a query finds, or the first `limit` of it."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadInput(f"limit={limit!a:.60} must be 1 or more")
    with asked(store, query, parameters, timeout_s=timeout_s, filters=filters or {}) as answer:
        found: list[Row] = []
        for row in answer:
            if len(found) == limit:
                return Rows(answer.columns, tuple(found), True, tuple(answer.unreadable))
            found.append(row)
        return Rows(answer.columns, tuple(found), False, tuple(answer.unreadable))


@contextmanager
def asked(
    store: Store,
    query: str,
    parameters: Parameters = (),
    *,
    timeout_s: float = TIMEOUT_S,
    filters: Mapping[str, Any],
    tell: Tell = lambda id, done, of: None,
) -> Iterator[Answer]:
    """The answer to a query, while it lasts. `BadInput` if it is none, or takes too long."""
    must_be_texts("sql", query=query)
    if re.fullmatch(COMMENT, query, re.DOTALL):
        raise BadInput("sql: there is no query: give a select")
    if type(timeout_s) not in (int, float) or not timeout_s > 0:
        raise BadInput(f"timeout_s={timeout_s!a:.60} must be a number, and more than 0")
    bound = _bound(parameters)
    unreadable: list[StoreError] = []
    values = Values(store, unreadable)
    with closing(_database(values)) as db:
        guard = Guard(frozenset(TABLES))
        db.set_authorizer(guard)
        _compile(db, guard, query, bound)
        db.set_authorizer(None)
        Filling(db, store, values, unreadable, tell).fill(guard.wanted, filters)
        db.execute("pragma query_only = on")
        db.set_authorizer(guard)
        clock = _Clock(db, timeout_s)
        cursor = clock.within(lambda: db.execute(query, bound))
        yield Answer(cursor, clock, unreadable)


def distinct(columns: Iterable[str]) -> list[str]:
    """Names of columns, each once.

    >>> distinct(["id", "name", "id"])
    ['id', 'name', 'id_2']
    """
    found: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in found:
            number += 1
            name = f"{column}_{number}"
        found.append(name)
    return found


def _database(values: Values) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    db.execute("pragma temp_store = memory")
    db.execute("pragma trusted_schema = on")  # the views call a function of ours
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_TEXT_BYTES)
    db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    db.create_function("_value", 1, values.fetch, deterministic=True)
    for table in TABLES.values():
        for statement in _declared(table):
            db.execute(statement)
    # Met for the first time these are declared, which a query may not do.
    db.execute("select 1 from json_each('[]'), json_tree('[]')").close()
    return db


def _declared(table: Table) -> tuple[str, str]:
    """A table for the rows, and the view of it that queries see."""
    columns = ", ".join(f'"{each.name}" {STORED_AS[each.kind]}' for each in table.columns)
    shown = ", ".join(
        f"case when typeof({name}) = 'integer' then _value({name}) else {name} end as {name}"
        if each.kind == "value"
        else name
        for each in table.columns
        for name in (f'"{each.name}"',)
    )
    under = inner(table.name)
    return (
        f"create table {under} ({columns})",
        f"create view {table.name} as select {shown} from {under}",
    )


def _bound(parameters: Parameters) -> Parameters:
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence | Mapping):
        raise BadInput(
            f"sql: parameters={parameters!a:.60}: give a list of values, one for each ? of the "
            f"query, or a dict for its :names"
        )
    if isinstance(parameters, Mapping):
        return {name: _bindable(value) for name, value in parameters.items()}
    return [_bindable(value) for value in parameters]


def _bindable(value: Any) -> Any:
    if isinstance(value, datetime):
        return stamp(value)
    if not isinstance(value, _BINDABLE):
        raise BadInput(
            f"sql: the parameter {value!a:.60} is a {type(value).__name__}: SQLite takes texts, "
            f"numbers, bytes, datetimes and None"
        )
    return value


def _compile(db: sqlite3.Connection, guard: Guard, query: str, bound: Parameters) -> None:
    """Have SQLite say what is wrong with a query and ask what it may do, without running it."""

    def compiled(text: str) -> str:
        try:
            db.execute(_explained(text), bound).close()
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
            return str(error)
        return ""

    refuse_writes(query)
    try:
        db.execute(_explained(query), bound).close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:
        raise misfit(query, error, guard, compiled) from None
    if not guard.selects:  # a comment, or what SQLite does not ask about, such as VACUUM
        raise BadInput(f"sql: {query.strip()!a:.60} is no select: {READ_ONLY}")


def _explained(query: str) -> str:
    return query if _EXPLAINS.match(query) else f"explain {query}"


class _Clock:
    """Stops a query whose time is up. What its reader does between two rows does not count."""

    def __init__(self, db: sqlite3.Connection, timeout_s: float) -> None:
        self._timeout_s = self._left_s = timeout_s
        self._ends = 0.0
        db.set_progress_handler(self._is_over, _STEPS)

    def _is_over(self) -> bool:
        return time.monotonic() > self._ends

    def within(self, work: Callable[[], Any]) -> Any:
        """What `work` returns, if there is time enough."""
        began = time.monotonic()
        self._ends = began + self._left_s
        try:
            return work()
        except sqlite3.Error as error:
            if "interrupted" not in str(error):
                raise BadInput(f"sql: {error}") from None
            if not self._is_over():
                # Ctrl-C came while SQLite asked for the time, and it swallowed that.
                raise KeyboardInterrupt from None
            raise BadInput(
                f"sql: the query took longer than {self._timeout_s:g} s, and was stopped. Narrow "
                f"it down, or give it more time with timeout_s=… (--timeout)"
            ) from None
        finally:
            self._left_s -= time.monotonic() - began
