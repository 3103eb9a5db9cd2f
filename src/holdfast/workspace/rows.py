"""Rows of a large file, a batch at a time, from any place in it: CSV and JSON lines.

    source = rows("people.csv", batch=100)
    place = source.begin()
    while not place.at_end:
        batch = source.after(place)
        …                                   # batch.rows, batch.bad
        place = batch.place

A `Place` is a small value: how many bytes were read, the header, and which file it is one of. A
task keeps it in its checkpoint (`process` in `batches` does), and goes on from there without
reading what is done. A file that is another one by then is noticed, and nothing is read from it.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.errors import BadInput

Format = Literal["csv", "jsonl"]
OnError = Literal["stop", "skip"]

_BOM = b"\xef\xbb\xbf"
_PIECE = 1024 * 1024


class SourceChanged(BadInput):
    """The file is not the one that was begun with, or is gone: nothing was read from it."""


class Place(Struct, frozen=True, omit_defaults=True):
    """How far a file was read, and which file that is."""

    size_bytes: int
    modified_ns: int
    sha256: str
    offset: int = 0
    line: int = 1
    """The number of the line that comes next, from 1."""
    columns: tuple[str, ...] = ()

    @property
    def at_end(self) -> bool:
        """Whether there is nothing more to read."""
        return self.offset >= self.size_bytes


class BadRow(Struct, frozen=True):
    """A row that makes no sense: where it begins, and why."""

    line: int
    why: str


class Batch(Struct, frozen=True):
    """Some rows, the lines that they begin at, the ones left out, and the place after them."""

    rows: list[Any]
    lines: list[int]
    bad: list[BadRow]
    place: Place


def rows(
    path: str | Path,
    format: Format = "csv",
    batch: int = 100,
    *,
    on_error: OnError = "stop",
    columns: tuple[str, ...] = (),
    delimiter: str = ",",
) -> Rows:
    """The rows of a file: dicts of text by column (CSV), or what each line holds (JSON lines).

    The columns of a CSV file are in its first row, unless they are given. A row that makes no
    sense is `BadInput` with its line, or with `on_error="skip"` left out and told. Empty lines are
    no rows.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write('name,says\\nAda,"one,\\ntwo"\\nBob,three\\n')
    ...     file.flush()
    ...     source = rows(file.name, batch=1)
    ...     first = source.after(source.begin())
    ...     first.rows, source.after(first.place).lines
    ([{'name': 'Ada', 'says': 'one,\\ntwo'}], [4])
    """
    if format not in get_args(Format) or on_error not in get_args(OnError):
        raise BadInput(
            f"rows(format={format!r:.20}, on_error={on_error!r:.20}): a format is 'csv' or "
            f"'jsonl', and on_error is 'stop' or 'skip'"
        )
    if type(batch) is not int or batch < 1:
        raise BadInput(f"rows(batch={batch!r:.60}): give a number of rows, 1 or more")
    if len(delimiter) != 1:
        raise BadInput(f"rows(delimiter={delimiter!r:.60}): give one character")
    return Rows(str(path), format, batch, on_error, tuple(columns), delimiter)


class Rows(Struct, frozen=True):
    """Where rows come from, and how they are read. Made by `rows`."""

    path: str
    format: Format = "csv"
    batch: int = 100
    on_error: OnError = "stop"
    columns: tuple[str, ...] = ()
    delimiter: str = ","

    def begin(self) -> Place:
        """The place of the first row. Reads the file once, to know it again."""
        with self._opened() as file:
            status = os.fstat(file.fileno())
            total, size = _hashed(file)
            place = Place(size, status.st_mtime_ns, total)
            file.seek(0)
            place = replace(place, offset=len(_BOM) if file.read(3) == _BOM else 0)
            if self.format == "jsonl":
                return place
            if self.columns:
                return replace(place, columns=self._distinct(self.columns))
            return self._header(file, place)

    def after(self, place: Place) -> Batch:
        """The next rows, at most `batch` of them."""
        with self._opened(SourceChanged) as file:
            self._must_be_the_same(file, place)
            good: list[Any] = []
            lines: list[int] = []
            bad: list[BadRow] = []
            file.seek(place.offset)
            for line, found, after in self._records(file, place):
                if isinstance(found, BadRow):
                    self._tolerate(found)
                    bad.append(found)
                elif found is not None:
                    good.append(found)
                    lines.append(line)
                place = after
                if len(good) + len(bad) >= self.batch:
                    break
            return Batch(good, lines, bad, place)

    def _opened(self, error: type[BadInput] = BadInput) -> BinaryIO:
        try:
            return open(self.path, "rb")
        except OSError as cause:
            raise error(f"the rows of {self.path} can't be read: {cause}") from None

    def _must_be_the_same(self, file: BinaryIO, place: Place) -> None:
        status = os.fstat(file.fileno())
        if (status.st_size, status.st_mtime_ns) == (place.size_bytes, place.modified_ns):
            return
        if status.st_size != place.size_bytes:
            what = f"it had {place.size_bytes:,} bytes, and has {status.st_size:,} now"
        elif _hashed(file)[0] != place.sha256:  # a copy, or touched, is fine
            what = "it holds something else now"
        else:
            return
        raise SourceChanged(
            f"{self.path} has changed since its rows were begun: {what}. Put the file back as it "
            f"was, or begin anew with a task of another id; it was read up to line {place.line - 1}"
        )

    def _tolerate(self, bad: BadRow) -> None:
        if self.on_error == "stop":
            raise BadInput(
                f"{self.path}, line {bad.line}: {bad.why}. Mend the file and begin anew, or leave "
                f"such rows out: rows(on_error='skip')"
            )

    def _header(self, file: BinaryIO, place: Place) -> Place:
        file.seek(place.offset)
        reading = _Reading(file, place)
        try:
            found = next(csv.reader(reading, delimiter=self.delimiter, strict=True), None)
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadInput(f"{self.path}, line 1: its columns can't be read: {error}") from None
        columns = self._distinct(tuple(found or ()))
        return replace(place, columns=columns, offset=reading.offset, line=reading.line)

    def _distinct(self, columns: tuple[str, ...]) -> tuple[str, ...]:
        if not columns or "" in columns or len(set(columns)) != len(columns):
            raise BadInput(
                f"{self.path}: its columns are {columns!r:.200}: each needs a name of its own. "
                f"Give them: rows(columns=(…))"
            )
        return columns

    def _records(self, file: BinaryIO, place: Place) -> Iterator[tuple[int, Any, Place]]:
        """What stands at each place: a row, a `BadRow`, or None for an empty line."""
        take = self._csv_row if self.format == "csv" else _json_row
        while not place.at_end:
            reading = _Reading(file, place)
            found: Any
            try:
                found = take(reading, place)
            except (csv.Error, UnicodeDecodeError, ValueError, RecursionError) as error:
                # An open quote may have taken in all that follows: go on after the first line.
                reading.rewind()
                found = BadRow(place.line, f"{error}")
            after = replace(place, offset=reading.offset, line=reading.line)
            yield place.line, found, after
            place = after

    def _csv_row(self, reading: _Reading, place: Place) -> Any:
        found = next(csv.reader(reading, delimiter=self.delimiter, strict=True), [])
        if not found:
            return None
        if len(found) != len(place.columns):
            count = len(place.columns)
            raise ValueError(f"it has {len(found)} fields, and there are {count} columns")
        return dict(zip(place.columns, found, strict=True))


def _json_row(reading: _Reading, place: Place) -> Any:
    line = next(reading, "")
    return json.loads(line, parse_constant=_refuse) if line.strip() else None


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


class _Reading(Iterator[str]):
    """The lines of a file as text, and how far it was read. The CSV reader takes no line before it
    needs it, so after a row this is the place of the next one."""

    def __init__(self, file: BinaryIO, place: Place) -> None:
        self._file = file
        self.offset, self.line = place.offset, place.line
        self._first: tuple[int, int] | None = None

    def __next__(self) -> str:
        data = self._file.readline()
        if not data:
            raise StopIteration
        self.offset += len(data)
        self.line += 1
        if self._first is None:
            self._first = self.offset, self.line
        return data.decode()

    def rewind(self) -> None:
        """Go back to the end of the first line."""
        if self._first is not None:
            self.offset, self.line = self._first
            self._file.seek(self.offset)


def _hashed(file: BinaryIO) -> tuple[str, int]:
    file.seek(0)
    total, size = sha256(), 0
    read: Callable[[], bytes] = lambda: file.read(_PIECE)  # noqa: E731
    for piece in iter(read, b""):
        total.update(piece)
        size += len(piece)
    return total.hexdigest(), size
