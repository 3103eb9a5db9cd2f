"""What a table is: its columns, what each says, and how it is had from a log.

The tables are declared once, here and in the modules named `of_…`. The database that a query runs
on, the help of the command line and the reference page are all made of these declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

Kind = Literal["text", "integer", "real", "time", "json", "value"]
"""What is in a column. `value` is JSON as well: that of a log, which may be large, and is only had
when a query comes to it."""
Source = Literal["task", "session", "memory"]

STORED_AS = {
    "text": "text",
    "integer": "integer",
    "real": "real",
    "time": "text",
    "json": "text",
    "value": "",
}
"""The type that a column is declared with in SQLite."""

_LEAST, _MOST = -(2**63), 2**63


class Column(Struct, frozen=True):
    """One column. `of` makes its value of a log and of what a row is about."""

    name: str
    kind: Kind
    about: str
    of: Callable[[Any, Any], Any]


class Table(Struct, frozen=True):
    """One table. `each` gives what its rows are about, of one log."""

    name: str
    about: str
    source: Source
    each: Callable[[Any], Iterable[Any]]
    columns: tuple[Column, ...]

    def chosen(self, names: Iterable[str]) -> tuple[Column, ...]:
        """The columns of these names, in the order they are declared in."""
        wanted = set(names)
        return tuple(column for column in self.columns if column.name in wanted)


def text(name: str, about: str, of: Callable[[Any, Any], str | None]) -> Column:
    """A column of text."""
    return Column(name, "text", about, of)


def integer(name: str, about: str, of: Callable[[Any, Any], int | None]) -> Column:
    """A column of whole numbers; 0 and 1 for what is or is not so."""
    return Column(name, "integer", about, of)


def real(name: str, about: str, of: Callable[[Any, Any], float | None]) -> Column:
    """A column of numbers."""
    return Column(name, "real", about, of)


def time(name: str, about: str, of: Callable[[Any, Any], datetime | None]) -> Column:
    """A column of times."""
    return Column(name, "time", about, of)


def json(name: str, about: str, of: Callable[[Any, Any], Any]) -> Column:
    """A column of JSON that is made here, of plain data."""
    return Column(name, "json", about, of)


def value(name: str, about: str, of: Callable[[Any, Any], Any]) -> Column:
    """A column of values as the log has them."""
    return Column(name, "value", about, of)


def seconds(began: datetime, ended: datetime | None) -> float | None:
    """How long something took, if it has ended."""
    return None if ended is None else (ended - began).total_seconds()


def stamp(at: datetime) -> str:
    """A time as SQLite's own functions write it, so that it compares with what they give: in UTC.

    >>> stamp(datetime(2026, 1, 31, 18, 0, tzinfo=UTC))
    '2026-01-31 18:00:00.000000'
    """
    return at.astimezone(UTC).isoformat(" ", "microseconds")[:26]


def _whole(number: int) -> int:
    if not _LEAST <= number < _MOST:
        raise OverflowError(f"{number:.3e} is too large a number")
    return int(number)


def _encoded(data: Any) -> str:
    return msgspec.json.encode(data).decode()


def _same(given: Any) -> Any:
    return given


AS_STORED: dict[str, Callable[[Any], Any]] = {
    "text": _same,
    "integer": _whole,
    "real": float,
    "time": stamp,
    "json": _encoded,
    "value": _same,
}
"""How what a column gives becomes what SQLite takes. None stays what it is."""
