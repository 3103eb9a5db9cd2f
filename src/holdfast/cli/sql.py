"""`holdfast sql`: a select over the logs of a store."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import click
from rich.text import Text

from holdfast.cli.exits import Exit
from holdfast.cli.filtering import find_options, found_by
from holdfast.cli.opening import opened
from holdfast.cli.options import pass_given, store_options
from holdfast.cli.output import console, print_error, print_json_line, print_lines, print_table
from holdfast.cli.progress import telling
from holdfast.cli.settings import Given
from holdfast.cli.text import count, cut, plain, to_json
from holdfast.sql.asking import TIMEOUT_S, Answer, Row, asked, distinct
from holdfast.sql.reference import schema
from holdfast.upkeep.copied import Progress

_TABLE_ROWS = 100
_LONGEST_CELL = 100


@click.command()
@click.argument("query", metavar="QUERY", required=False)
@click.option(
    "-p",
    "--parameter",
    "parameters",
    metavar="VALUE",
    multiple=True,
    help="A text for a ? of the query; may be repeated, for the next ones. A number of it is made "
    "by comparing it with a column of numbers, or by cast(? as integer).",
)
@click.option("--schema", "wants_schema", is_flag=True, help="Print what there is to select from.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, an object a line, and nothing else."
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with the names in the first line.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    help=f"How many rows at most.  [default: {_TABLE_ROWS} in a table, else all]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="How long the query itself may take.",
)
@find_options
@store_options
@pass_given
def sql(
    given: Given,
    /,
    query: str | None,
    parameters: tuple[str, ...],
    wants_schema: bool,
    as_json: bool,
    as_csv: bool,
    limit: int | None,
    timeout_s: float,
    **found: Any,
) -> Exit:
    """Ask the logs of a store with SQL: one select, in the SQL of SQLite.

    There are tables of tasks, steps, tool_calls, model_calls, attempts, failures, decisions,
    messages and more: --schema explains each of their columns. Nothing can be written. A QUERY of -
    is read from standard input.

    The options --status to --until are those of `holdfast ls`. With them only the logs of tasks
    that match are read, and of the sessions that these belong to: that is quicker in a large store.

    In a table long values are cut; --json and --csv give them whole. A log that can't be read is
    left out and named on standard error, and the exit code is then 4.

    \b
    Examples:
      holdfast sql "select type, status, count(*) from tasks group by 1, 2"
      holdfast sql "select name, avg(duration_s) from tool_calls group by name" --since 7d
      holdfast sql "select path, input ->> '$.city' from steps where task_id = ?" -p trip-42
      holdfast sql "select * from failures order by at desc" --limit 5 --json
      holdfast sql - --csv < costs.sql > costs.csv
    """
    if wants_schema:
        print_lines(console(), schema().rstrip("\n"))
        return Exit.OK
    if query is None:
        raise click.UsageError('give a query, such as "select * from tasks", or --schema')
    if as_json and as_csv:
        raise click.UsageError("--json or --csv, not both")
    if query == "-":
        query = sys.stdin.read()
    with opened(given) as hf, ExitStack() as stack:
        with telling() as tell:  # only while logs are read: the answer is not for under a bar
            answer = stack.enter_context(
                asked(
                    hf.store,
                    query,
                    parameters,
                    timeout_s=timeout_s,
                    filters=found_by(**found),
                    tell=lambda id, done, of: tell(Progress("reading", id, done, of)),
                )
            )
        _print(answer, limit, as_json, as_csv)
        for error in answer.unreadable:
            print_error(f"warning: {error}")
    return Exit.DAMAGED if answer.unreadable else Exit.OK


def _print(answer: Answer, limit: int | None, as_json: bool, as_csv: bool) -> None:
    rows = iter(answer)
    if as_json:
        names = distinct(answer.columns)
        for row in islice(rows, limit):
            print_json_line(to_json(dict(zip(names, row, strict=True))))
    elif as_csv:
        _print_csv(answer.columns, islice(rows, limit))
    else:
        _print_rows(answer.columns, rows, limit or _TABLE_ROWS)
        return
    if limit is not None and next(rows, None) is not None:
        print_error(f"there are more than {count(limit, 'row')}: the same with --limit")


def _print_csv(columns: Iterable[str], rows: Iterable[Row]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    shown: Callable[[str], str] = plain if sys.stdout.isatty() else str
    writer.writerow(map(shown, columns))
    for row in rows:
        writer.writerow(None if cell is None else shown(_text(cell)) for cell in row)


def _print_rows(columns: tuple[str, ...], rows: Iterator[Row], limit: int) -> None:
    shown = [tuple(map(_cell, row)) for row in islice(rows, limit)]
    out = console()
    print_table(out, [plain(column) for column in columns], shown, cut_last=False)
    if next(rows, None) is not None:
        out.print(
            Text(f"… there are more than {count(limit, 'row')}: the same with --limit", "dim")
        )
    elif not shown:
        out.print(Text("nothing was found", "dim"))


def _cell(value: Any) -> str | Text:
    if value is None:
        return Text("NULL", "dim")
    # What is cut anyway need not be looked at, letter by letter.
    return cut(plain(_text(value)[: _LONGEST_CELL + 1]), _LONGEST_CELL)


def _text(value: Any) -> str:
    return f"x'{value.hex()}'" if isinstance(value, bytes) else str(value)
