"""A query, asked: compiled on empty tables to see what it reads, then run on those, filled.

The query itself is compiled and run in a process of its own (`holdfast.sql.apart`). The tables are
in memory and go with the answer. Nothing of the logs is written anywhere, also not to temporary
files: a store may be encrypted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.errors import BadInput, StoreError
from holdfast.sql.apart import database, inner
from holdfast.sql.columns import STORED_AS, Table, stamp
from holdfast.sql.faults import COMMENT, READ_ONLY, misfit, refuse_writes
from holdfast.sql.filling import Filling, Tell
from holdfast.sql.logs import Values
from holdfast.sql.process import LONGEST_TEXT_BYTES, Process
from holdfast.sql.tables import TABLES
from holdfast.store import Store
from holdfast.words import must_be_texts

TIMEOUT_S = 60.0
ANSWER_BYTES = 256 * 1024 * 1024
"""How large an answer may be that is had as a whole; a reader of single rows has no such limit."""

_ROW_BYTES, _CELL_BYTES = 100, 50
"""What Python takes for a row and for a cell, besides the text in it."""
_EXPLAINS = re.compile(rf"{COMMENT}explain\b", re.IGNORECASE | re.DOTALL)
_INTEGERS = range(-(2**63), 2**63)
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
    """The rows of a query, had from its process as they are asked for."""

    def __init__(self, process: Process, unreadable: list[StoreError]) -> None:
        self._process = process
        self.columns = tuple(process.heard()["columns"])
        self.unreadable = unreadable
        """What could not be read. It is complete once the rows are."""

    def __iter__(self) -> Iterator[Row]:
        is_over = False
        while not is_over:
            batch = self._process.heard()
            yield from map(tuple, batch["rows"])
            is_over = batch.get("end", False)


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
        left_bytes = ANSWER_BYTES
        for row in answer:
            if len(found) == limit:
                return Rows(answer.columns, tuple(found), True, tuple(answer.unreadable))
            found.append(row)
            left_bytes -= _size(row)
            if left_bytes < 0:
                raise BadInput(
                    f"sql: the answer takes more than {ANSWER_BYTES >> 20} MiB ({len(found):,} rows"
                    f" by now). Narrow it down, or give a limit=…; `holdfast sql --json` has none"
                )
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
    refuse_writes(query)
    unreadable: list[StoreError] = []
    values = Values(store, unreadable)
    declared = [statement for table in TABLES.values() for statement in _declared(table)]
    with Process(declared, timeout_s, values.fetch) as process:
        wanted = _compile(process, query, bound)
        with closing(database(LONGEST_TEXT_BYTES, values.fetch)) as db:
            for statement in declared:
                db.execute(statement)
            Filling(db, store, values, unreadable, tell).fill(wanted, filters)
            tables = db.serialize()
        process.tell({"do": "load", "size_bytes": len(tables)}, tables)
        del tables
        process.tell({"do": "ask", "query": query, "bound": bound})
        yield Answer(process, unreadable)


def _size(row: Row) -> int:
    texts = sum(len(cell) for cell in row if isinstance(cell, str | bytes))
    return _ROW_BYTES + _CELL_BYTES * len(row) + texts


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
    if isinstance(value, int) and value not in _INTEGERS:
        raise BadInput("sql: a parameter is an int of more than 64 bits, which SQLite can't take")
    return value


def _compile(process: Process, query: str, bound: Parameters) -> Mapping[str, Any]:
    """Which columns of which tables a query reads; or what is wrong with it."""

    def compiled(text: str) -> dict[str, Any]:
        process.tell({"do": "compile", "query": _explained(text), "bound": bound})
        return process.heard(("error",))

    found = compiled(query)
    if "error" in found:
        raise misfit(query, found, lambda text: compiled(text).get("error", ""))
    if not found["selects"]:  # a comment, or what SQLite does not ask about, such as VACUUM
        raise BadInput(f"sql: {query.strip()!a:.60} is no select: {READ_ONLY}")
    wanted: dict[str, Any] = found["wanted"]
    return wanted


def _explained(query: str) -> str:
    return query if _EXPLAINS.match(query) else f"explain {query}"
