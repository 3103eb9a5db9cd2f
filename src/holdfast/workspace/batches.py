"""Work on the rows of a large file: a checkpoint each batch, and each row in the output once.

`process` is the whole body of a task. It reads a batch, maps a step over its rows with `each`,
appends what came of them to a file of the task, and says how far it is with a `checkpoint`. Killed
anywhere, it goes on: rows that are done answer from the log, a batch that was appended is not
appended again, and what lies before the last checkpoint is not even read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.flow import Flow, drive
from holdfast.branches import Results, each
from holdfast.checkpoints import checkpoint, restore
from holdfast.engines.run import Run
from holdfast.errors import BadInput
from holdfast.filing import checked_file_name
from holdfast.scope import Scope, inside
from holdfast.workspace import files
from holdfast.workspace.rows import BadRow, Batch, Place, Rows, SourceChanged
from holdfast.workspace.writing import carried_out


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
    >>> from holdfast.workspace.rows import rows
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
    """What a batch adds to the output, and to what is told of rows that are not in it."""

    text: bytes
    told: bytes
    done: Processed


def _output(
    source: Rows, into: str, done: Processed, batch: Batch, results: Results[Any]
) -> _Output:
    """What a batch comes to, and how far it is then."""
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
