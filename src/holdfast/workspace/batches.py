"""Work on the rows of a large file: a checkpoint each batch, and each row in the output once.

`process` is the whole body of a task. It reads a batch, maps a step over its rows with `each`,
appends what came of them to a file of the task, and says how far it is with a `checkpoint`. Killed
anywhere, it goes on: rows that are done answer from the log, a batch that was appended is not
appended again, and what lies before the last checkpoint is not even read.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.flow import Flow, drive
from holdfast.api.branches import Results, each
from holdfast.api.checkpoints import checkpoint, restore
from holdfast.core.filing import checked_file_name
from holdfast.core.scope import Scope, inside
from holdfast.engines.run import Run
from holdfast.errors import BadInput
from holdfast.workspace import files
from holdfast.workspace.files import carried_out

__all__ = [
    "BadRow",
    "Batch",
    "Place",
    "Processed",
    "Rows",
    "SourceChanged",
    "process",
    "rows",
]

# Rows of a large file, a batch at a time, from any place in it: CSV and JSON lines.
#
#     source = rows("people.csv", batch=100)
#     place = source.begin()
#     while not place.at_end:
#         batch = source.after(place)
#         …                                   # batch.rows, batch.bad
#         place = batch.place
#
# A `Place` is a small value: how many bytes were read, the header, and which file it is one of. A
# task keeps it in its checkpoint (`process` in `batches` does), and goes on from there without
# reading what is done. A file that is another one by then is noticed, and nothing is read from it.


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
        """The item at each place: a row, a `BadRow`, or None for an empty line."""
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


class Processed(Struct, frozen=True):
    """How far the work on a file is: rows in the output, and those left out."""

    rows: int = 0
    left_out: int = 0
    """Rows for which the step returned None."""
    failed: int = 0
    skipped: int = 0
    """Rows that made no sense."""
    columns: tuple[str, ...] = ()
    """Of the output, if it is CSV."""
    place: Place | None = None


def process(
    source: Rows,
    work: Callable[[Any], Any],
    *,
    into: str,
    workers: int = 8,
    tolerate: float = 0,
) -> Processed:
    """Do something with each row of a file; what is returned for it goes `into` a file of the task.

    It is the whole body of a task, or the last thing in it; in an async task it is awaited. `into`
    ends in `.csv` (then `work` returns dicts of one set of keys) or in `.jsonl`. A row for which
    it returns None is left out. Of each batch so many rows may fail as `tolerate` says, as in
    `each`. Those, and rows that were skipped, are told in `<into>.skipped.jsonl`.

    >>> import tempfile
    >>> from holdfast import Holdfast, step, task
    >>> from holdfast.workspace.batches import rows
    >>> @step
    ... def shout(row: dict[str, str]) -> dict[str, str]:
    ...     return {"name": row["name"].upper()}
    >>> @task
    ... def shout_all(path: str) -> Processed:
    ...     return process(rows(path, batch=2), shout, into="loud.csv")
    >>> with Holdfast("memory://") as hf, tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("name\\nada\\nbob\\neve\\n")
    ...     file.flush()
    ...     done = hf.run(shout_all, file.name, id="shout-1")
    ...     done.rows, hf.files("shout-1").read_text("loud.csv")
    (3, 'name\\nADA\\nBOB\\nEVE\\n')
    """
    inside("process()")
    if not checked_file_name(into).endswith((".csv", ".jsonl")):
        raise BadInput(f"process(into={into!r:.100}): give a name that ends in .csv or .jsonl")
    return drive(_flow(source, work, into, workers, tolerate))


def _flow(
    source: Rows, work: Callable[[Any], Any], into: str, workers: int, tolerate: float
) -> Flow[Processed]:
    scope = inside("process()")
    reading = partial(carried_out, scope)
    mapped = partial(each, work, workers=workers, tolerate=tolerate)
    done = restore(Processed())
    if done.place is None:
        begun: Place = yield partial(reading, source.begin)
        # From here on it is known which file it is.
        done = checkpoint(replace(done, place=begun))
    while done.place is not None and not done.place.at_end:
        batch: Batch = yield partial(reading, partial(_after, scope, source, done.place))
        results: Results[Any] = Results()
        if batch.rows:
            results = yield partial(mapped, batch.rows)
        output = _output(source, into, done, batch, results)
        if output.text:
            yield partial(files.append, into, output.text)
        if output.told:
            yield partial(files.append, f"{into}.skipped.jsonl", output.told)
        done = checkpoint(output.done)
    return done


def _after(scope: Scope, source: Rows, place: Place) -> Batch:
    try:
        return source.after(place)
    except SourceChanged as error:  # the task did not fail: with the old file it goes on
        run: Run = scope.run
        run.halt(error)


class _Output(Struct, frozen=True):
    """The lines that a batch adds to the output, and to the report of rows that are not in it."""

    text: bytes
    told: bytes
    done: Processed


def _output(
    source: Rows, into: str, done: Processed, batch: Batch, results: Results[Any]
) -> _Output:
    """The result of a batch, and how far it is then."""
    failed = {failure.index for failure in results.failures}
    made = [
        (line, result)
        for number, (line, result) in enumerate(zip(batch.lines, results, strict=True))
        if number not in failed and result is not None
    ]
    columns = done.columns
    if into.endswith(".jsonl"):
        text = b"".join(msgspec.json.encode(result) + b"\n" for _, result in made)
    else:
        text, columns = _csv(source, made, columns)
    left_out = len(batch.rows) - len(made) - len(failed)
    return _Output(
        text,
        _told(batch, results),
        Processed(
            done.rows + len(made),
            done.left_out + left_out,
            done.failed + len(failed),
            done.skipped + len(batch.bad),
            columns,
            batch.place,
        ),
    )


def _csv(
    source: Rows, made: list[tuple[int, Any]], columns: tuple[str, ...]
) -> tuple[bytes, tuple[str, ...]]:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for line, result in made:
        if not isinstance(result, dict):
            raise BadInput(
                f"{source.path}, line {line}: what comes of a row goes into CSV, so it has to be a "
                f"dict, not {type(result).__name__}"
            )
        if not columns:
            columns = tuple(map(str, result))
            writer.writerow(columns)
        if tuple(map(str, result)) != columns:
            raise BadInput(
                f"{source.path}, line {line}: what comes of it has the keys {list(result)!r:.200}, "
                f"and the output has the columns {list(columns)!r:.200}"
            )
        writer.writerow(result.values())
    return out.getvalue().encode(), columns


def _told(batch: Batch, results: Results[Any]) -> bytes:
    """The rows that are not in the output, and why, in their order."""
    bad = [
        *batch.bad,
        *(
            BadRow(batch.lines[failure.index], failure.failure.summary())
            for failure in results.failures
        ),
    ]
    return b"".join(
        msgspec.json.encode(row) + b"\n" for row in sorted(bad, key=lambda row: row.line)
    )
