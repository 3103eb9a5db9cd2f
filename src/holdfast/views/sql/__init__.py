"""Read-only SQL over logs, in any store: `hf.sql("select …")`, `holdfast sql "select …"`.

The logs of a store are not tables, and the store may be files. So a query runs on a database in
memory, whose tables are filled from the logs: only those that the query names, and of them only the
columns that it reads. `holdfast.views.sql.tables` has them all.

A query is compiled on empty tables to see what it reads, then run on those, filled, in a process of
its own (`views.sql.apart`). The tables are in memory and go with the answer. Nothing of the logs is
written anywhere, also not to temporary files: a store may be encrypted.
"""

from __future__ import annotations

import difflib
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import IO, Any, Self

from msgspec import Struct

from holdfast.core.words import must_be_texts
from holdfast.errors import BadInput, StoreError
from holdfast.stores.port import Store
from holdfast.views.sql import apart
from holdfast.views.sql.apart import LENGTH_BYTES, database, inner, packed, unpacked
from holdfast.views.sql.columns import STORED_AS, SqlValues, Table, stamp
from holdfast.views.sql.tables import TABLES, Filling, Tell

__all__ = ["Selected"]

TIMEOUT_S = 60.0
ANSWER_BYTES = 256 * 1024 * 1024
"""How large an answer may be that is had as a whole; a reader of single rows has no such limit."""

_ROW_BYTES, _CELL_BYTES = 100, 50
"""Python's bytes for a row and for a cell, besides the text in it."""
COMMENT = r"(?>\s+|--[^\n]*\n?|/\*.*?\*/)*+"
_EXPLAINS = re.compile(rf"{COMMENT}explain\b", re.IGNORECASE | re.DOTALL)
_INTEGERS = range(-(2**63), 2**63)
_BINDABLE = (int, float, str, bytes, type(None))

Row = tuple[Any, ...]
Parameters = Sequence[Any] | Mapping[str, Any]


class Selected(Struct, frozen=True):
    """The rows that a query found. Made by `hf.sql`.

    >>> found = Selected(("id", "status"), (("trip-1", "completed"),))
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
        self.columns: tuple[Any, ...] = tuple(process.heard()["columns"])
        self.unreadable = unreadable
        """The logs that could not be read. It is complete once the rows are."""

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
) -> Selected:
    """Everything that a query finds, or the first `limit` of it."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadInput(f"limit={limit!a:.60} must be 1 or more")
    with asked(store, query, parameters, timeout_s=timeout_s, filters=filters or {}) as answer:
        found: list[Row] = []
        left_bytes = ANSWER_BYTES
        for row in answer:
            if len(found) == limit:
                return Selected(answer.columns, tuple(found), True, tuple(answer.unreadable))
            found.append(row)
            left_bytes -= _size(row)
            if left_bytes < 0:
                raise BadInput(
                    f"sql: the answer takes more than {ANSWER_BYTES >> 20} MiB ({len(found):,} rows"
                    f" by now). Narrow it down, or give a limit=…; `holdfast sql --json` has none"
                )
        return Selected(answer.columns, tuple(found), False, tuple(answer.unreadable))


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
    values = SqlValues(store, unreadable)
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


# The fault of a query, in words: SQLite's own, its place, and the names that exist.


_NEAR = re.compile(r'(?:near|unrecognized token:) "(.*)"(?:: syntax error)?', re.DOTALL)
_UNKNOWN = re.compile(r"(?:no such (\w+)|ambiguous column name): (.*)", re.DOTALL)
_WRITES = re.compile(
    rf"{COMMENT}(?:explain\s+)?(insert|update|delete|replace|create|drop|alter|attach|detach|pragma|"
    rf"begin|commit|end|rollback|savepoint|release|vacuum|reindex|analyze)\b",
    re.IGNORECASE | re.DOTALL,
)
_SHOWN = 36
_LOOKED_AT = 50

READ_ONLY = (
    "it is read only: a query is one select, and nothing can be written, attached or set by it"
)


def refuse_writes(query: str) -> None:
    """Raise `BadInput` for what plainly does not read. `Guard` knows of the rest."""
    if found := _WRITES.match(query):
        raise BadInput(f"sql: {found[1].lower()} is refused: {READ_ONLY}")


def misfit(query: str, found: Mapping[str, Any], compiled: Callable[[str], str]) -> BadInput:
    """The fault of a query. `compiled` says what SQLite thinks of another text."""
    if refused := found.get("refused"):
        return BadInput(f"sql: {refused} is refused: {READ_ONLY}")
    message = found["error"].rstrip(".")
    if message.startswith("cannot modify"):
        return BadInput(f"sql: {message}: {READ_ONLY}")
    if found["kind"] == "warning" or "one statement" in message:
        return BadInput("sql: one query at a time: there is more than one statement in it")
    if found["kind"] == "value":
        return BadInput(f"sql: SQLite can't take it: {message}")
    return BadInput(f"sql: {message}{_where(query, message, compiled)}{_instead(query, message)}")


def _where(query: str, message: str, compiled: Callable[[str], str]) -> str:
    place = None
    if near := _NEAR.search(message):
        word = (
            rf"(?<!\w){re.escape(near[1])}(?!\w)" if near[1].isidentifier() else re.escape(near[1])
        )
        place = _first(query, word, lambda upto: compiled(upto) == message)
    elif unknown := _UNKNOWN.search(message):
        name = unknown[2].split(".")[-1]
        place = _first(query, rf"\b{re.escape(name)}\b", lambda upto: True)
    return "" if place is None else _shown(query, place)


def _first(query: str, token: str, fits: Callable[[str], bool]) -> int | None:
    """Where the token is that SQLite stumbled over: the first with which it does."""
    for number, match in enumerate(re.finditer(token, query, re.IGNORECASE)):
        if number >= _LOOKED_AT:
            break
        if fits(query[: match.end()]):
            return match.start()
    return None


def _shown(query: str, place: int) -> str:
    start = query.rfind("\n", 0, place) + 1
    line = query[start:].split("\n", 1)[0].replace("\t", " ").rstrip()
    column = place - start
    cut = max(0, column - _SHOWN)
    window = line[cut : column + _SHOWN]
    number = query.count("\n", 0, place) + 1
    at = f"line {number}, " if "\n" in query.strip() else ""
    return f" ({at}column {column + 1})\n  {window}\n  {' ' * (column - cut)}^"


def _instead(query: str, message: str) -> str:
    unknown = _UNKNOWN.search(message)
    if unknown is None or unknown[1] not in ("table", "column"):
        return ""
    named = [table for table in TABLES if re.search(rf"\b{table}\b", query, re.IGNORECASE)]
    if unknown[1] == "table":
        known: Iterable[str] = TABLES
    else:
        known = dict.fromkeys(c.name for name in named for c in TABLES[name].columns)
    near = difflib.get_close_matches(unknown[2].split(".")[-1], list(known), n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    where = "" if unknown[1] == "table" else f" in {', '.join(named)}"
    return f"\n{meant}There are{where}: {', '.join(known)}" if known else ""


# Asking the process that runs a query (`holdfast.views.sql.apart`), and ending it in time.


MEMORY_BYTES = 1024 * 1024 * 1024
"""How much a query may take, besides the tables."""
LONGEST_TEXT_BYTES = 128 * 1024 * 1024
"""Of what a query makes or gives out."""

_AT_ONCE = 1 << 20


class Process:
    """The process of one query. Its reader's work between two rows takes none of its time."""

    def __init__(
        self, declared: Sequence[str], timeout_s: float, value: Callable[[object], str | None]
    ) -> None:
        self._timeout_s = self._left_s = timeout_s
        self._value = value
        self._read = bytearray()
        # In a group of its own it hears no Ctrl-C; the process that does ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", apart.__file__],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            process_group=0,
        )  # fmt: skip
        try:
            self.tell(
                {
                    "declared": list(declared),
                    "tables": list(TABLES),
                    "timeout_s": min(timeout_s, 1e9),
                    "memory_bytes": MEMORY_BYTES,
                    "longest_bytes": LONGEST_TEXT_BYTES,
                }
            )
            self._receive(float("inf"))  # it takes a moment to begin, which is not the query's
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End it, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                _there(pipe).close()

    def tell(self, order: Any, data: bytes | None = None) -> None:
        """Tell it something, and hand it some bytes."""
        pipe = _there(self._process.stdin)
        try:
            for part in (packed(order), *(() if data is None else (data,))):
                pipe.write(len(part).to_bytes(LENGTH_BYTES))
                pipe.write(part)
            pipe.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def heard(self, expected: Collection[str] = ()) -> dict[str, Any]:
        """Its next word; an error that is not `expected` is raised. It may ask for values."""
        while True:
            began = time.monotonic()
            try:
                said: dict[str, Any] = unpacked(self._receive(began + self._left_s))
            finally:
                self._left_s -= time.monotonic() - began
            if "value" in said:
                self.tell(self._value(said["value"]))
            elif "memory" in said:
                raise _too_much()
            elif "error" in said and "error" not in expected:
                raise BadInput(f"sql: {said['error']}")
            else:
                return said

    def _receive(self, ends: float) -> bytes:
        length = int.from_bytes(self._part(LENGTH_BYTES, ends))
        return self._part(length, ends)

    def _part(self, size: int, ends: float) -> bytes:
        pipe = _there(self._process.stdout).fileno()
        waiting = select.poll()  # not `select`, which knows no more than 1,024 files
        waiting.register(pipe, select.POLLIN)
        while len(self._read) < size:
            left_s = ends - time.monotonic()
            if left_s <= 0:
                raise self._too_long()
            if waiting.poll(1000 * min(left_s, 3600)):
                data = os.read(pipe, _AT_ONCE)
                if not data:
                    raise self._ended()
                self._read += data
        found = bytes(self._read[:size])
        del self._read[:size]
        return found

    def _too_long(self) -> BadInput:
        return BadInput(
            f"sql: the query took longer than {self._timeout_s:g} s, and was stopped. Narrow "
            f"it down, or give it more time with timeout_s=… (--timeout)"
        )

    def _ended(self) -> BadInput:
        code = self._process.wait()
        if code < 0:  # by the system, for what it took
            return _too_much()
        return BadInput(
            f"sql: a query runs in a process of its own, and {sys.executable} ended with {code}"
        )


def _too_much() -> BadInput:
    return BadInput(
        f"sql: the query took more than {MEMORY_BYTES >> 20} MiB of memory, and was stopped. "
        f"Narrow it down, or sort and join less"
    )


def _there(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 (it was asked for)
    return pipe
