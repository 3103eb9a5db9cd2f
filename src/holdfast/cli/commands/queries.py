"""`holdfast stats` and `sql`: figures and questions over all logs of a store."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import (
    find_options,
    found_by,
    pairs,
    store_command,
)
from holdfast.cli.output import (
    console,
    print_error,
    print_json,
    print_json_line,
    print_lines,
    print_table,
    telling,
    warned,
)
from holdfast.cli.settings import Given
from holdfast.cli.text import count, cut, plain, to_json, took
from holdfast.upkeep.families import CopyProgress
from holdfast.views.sql import TIMEOUT_S, Answer, Row, asked, distinct
from holdfast.views.sql.tables import schema

if TYPE_CHECKING:
    from holdfast.core.usage import Spent
    from holdfast.views.stats import CallStats, Stats, TypeStats

MOST_ROWS = 25


def _prices(
    ctx: click.Context, param: click.Parameter, given: tuple[str, ...]
) -> dict[str, tuple[float, float]]:
    found = {}
    for model, price in pairs(ctx, param, given).items():
        try:
            paid, made = map(float, price.split(","))
        except ValueError:
            paid = made = math.nan
        if not (0 <= paid < math.inf and 0 <= made < math.inf):
            raise click.BadParameter(
                f"{model}={price}: expected two prices, of a million tokens of input and of "
                f"output: {model}=3,15",
                ctx,
                param,
            )
        found[model] = (paid, made)
    return found


@click.command(short_help="Show where time, tokens, money and retries go.")
@find_options
@click.option(
    "--price",
    "prices",
    metavar="MODEL=IN,OUT",
    multiple=True,
    callback=_prices,
    help="What a million tokens of a model cost; may be repeated. * stands for all others.",
)
@click.option("--all", "whole", is_flag=True, help=f"Every row, not only the first {MOST_ROWS}.")
@store_command()
def stats(
    given: Given,
    /,
    prices: dict[str, tuple[float, float]],
    whole: bool,
    as_json: bool,
    **found_with: Any,
) -> Exit:
    """Show where time, tokens, money and retries go: by type of task, by call, and by model.

    \b
    The time of a task, from its making to its end, is divided into
      working    a step or a tool was at work
      people     it waited for an answer, a yes or a settled doubt, or was paused
      backoff    it waited to try again
      asleep, children    it waited for a time, or for another task
      between    its own code ran, between its calls
      idle       nobody drove it

    "Saved by resuming" counts the recorded calls, with their time, tokens and money, that a resumed
    task did not have to make again: once for each resume.

    Money is the cost recorded with the replies of models, or else computed by --price; without
    either it is unknown. A task whose log can't be read is left out and named on standard error,
    and the exit code is then 4.

    \b
    Examples:
      holdfast stats
      holdfast stats --type plan_trip --since 7d --status failed
      holdfast stats --price gpt-4.1-mini=0.4,1.6 --json | jq .saved
    """
    with opened(given) as hf, _progress() as progress:
        found = hf.stats(prices=prices, progress=progress, **found_by(**found_with))
    if as_json:
        print_json(asdict(found))
    elif not found.tasks:
        console().print("no tasks match")
    else:
        _print_stats(console(), found, prices, len(found.calls) if whole else MOST_ROWS)
    return warned(found.unreadable)


@contextmanager
def _progress() -> Iterator[Any]:
    with telling() as tell:
        yield lambda done, of, id: tell(CopyProgress("reading", id, done, of))


def _print_stats(
    out: Console, found: Stats, prices: dict[str, tuple[float, float]], most: int
) -> None:
    read = f"{count(found.tasks, 'task')}, {count(found.events, 'event')}"
    print_lines(out, Text(read, "bold"))
    _heading(out, "Tasks")
    print_table(out, _TYPES, [_type_row(each) for each in found.types[:most]], cut_last=False)
    _heading(out, "Where their time went")
    print_table(out, _SPANS, [_span_row(each) for each in found.types[:most]], cut_last=False)
    if found.calls:
        _heading(out, "Calls")
        print_table(out, _CALLS, [_call_row(each) for each in found.calls[:most]], cut_last=False)
        if left := len(found.calls) - most if len(found.calls) > most else 0:
            print_lines(out, Text(f"… {count(left, 'more row')}: --all shows them", "dim"))
    _print_models(out, found, prices)
    _print_saved(out, found)


_TYPES = ("TYPE", "TASKS", "STATUS", "CALLS", "FAILURES", "RETRIES", "TOTAL", "MEDIAN", "95%")


def _type_row(each: TypeStats) -> tuple[str, ...]:
    statuses = ", ".join(f"{number} {status}" for status, number in sorted(each.statuses.items()))
    took_s = each.durations
    return (
        plain(each.type),
        f"{each.tasks:,}",
        statuses,
        f"{each.calls:,}",
        f"{each.failures:,}",
        f"{each.retries:,}",
        *map(_took, (took_s.total_s, took_s.median_s, took_s.p95_s)),
    )


_SPANS = ("TYPE", "WORKING", "PEOPLE", "BACKOFF", "ASLEEP", "CHILDREN", "BETWEEN", "IDLE")


def _span_row(each: TypeStats) -> tuple[str, ...]:
    spans = (getattr(each, f"{column.lower()}_s") for column in _SPANS[1:])
    return plain(each.type), *map(_took, spans)


_CALLS = (
    *("NAME", "KIND", "CALLS", "FAILED", "FAILURES", "RETRIES", "TOTAL", "MEDIAN", "95%"),
    *("BACKOFF", "WAITING", "TOKENS", "COST"),
)


def _call_row(each: CallStats) -> tuple[str, ...]:
    spans = each.durations
    return (
        plain(each.name),
        each.kind,
        f"{each.calls:,}",
        f"{each.failed:,}",
        f"{each.failures:,}",
        f"{each.retries:,}",
        *map(_took, (spans.total_s, spans.median_s, spans.p95_s, each.backoff_s, each.waiting_s)),
        f"{_tokens(each.spent):,}" if each.spent.model_calls else "",
        _cost(each.spent) if each.spent.model_calls else "",
    )


def _print_models(out: Console, found: Stats, prices: dict[str, tuple[float, float]]) -> None:
    if not found.models:
        print_lines(out, "\nNo call of a model is recorded.")
        return
    _heading(out, "Models")
    columns = ("MODEL", "CALLS", "INPUT", "CACHED", "OUTPUT", "COST")
    rows = [
        (
            plain(each.model) or "(not recorded)",
            f"{each.spent.model_calls:,}",
            f"{each.spent.input_tokens:,}",
            f"{each.spent.cached_tokens:,}",
            f"{each.spent.output_tokens:,}",
            _cost(each.spent),
        )
        for each in found.models
    ]
    print_table(out, columns, rows, cut_last=False)
    if found.spent.unpriced:
        calls = f"{found.spent.unpriced:,} of {count(found.spent.model_calls, 'call')}"
        what = f"The cost of {calls} is unknown: none was recorded, and no price was given"
        print_lines(out, Text(f"{what} (--price MODEL=IN,OUT).", "yellow"))
    for model in sorted(set(prices) - {"*"} - {each.model for each in found.models}):
        print_lines(out, Text(f"No call of a model {plain(model)} is recorded.", "yellow"))


def _print_saved(out: Console, found: Stats) -> None:
    saved = found.saved
    _heading(out, "Saved by resuming")
    if not saved.resumes:
        print_lines(out, "No task was taken up again.")
        return
    tokens = f", {count(_tokens(saved.spent), 'token')}" if saved.spent.model_calls else ""
    cost = f", cost {_cost(saved.spent)}" if saved.spent.model_calls else ""
    print_lines(
        out,
        f"Tasks were taken up again {count(saved.resumes, 'time')}; "
        f"{count(saved.calls, 'recorded call')} did not have to run again: "
        f"{_took(saved.time_s) or '0 ms'} of work{tokens}{cost}.",
    )


def _heading(out: Console, text: str) -> None:
    print_lines(out, Text(f"\n{text}", "bold underline"))


def _tokens(spent: Spent) -> int:
    return spent.input_tokens + spent.output_tokens


def _took(seconds: float) -> str:
    return took(timedelta(seconds=seconds)) if seconds else ""


def _cost(spent: Spent) -> str:
    """How much of the cost is known: all of it, a part, or nothing."""
    if spent.unpriced == spent.model_calls:
        return "unknown"
    return f"{spent.cost:,.4f}{' and more' if spent.unpriced else ''}"


# `holdfast sql`: a select over the logs of a store.


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
@store_command(json=False)
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
    """Ask the logs of a store with SQL. A query is one select, in the SQL of SQLite.

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
                    tell=lambda id, done, of: tell(CopyProgress("reading", id, done, of)),
                )
            )
        _print_answer(answer, limit, as_json, as_csv)
        for error in answer.unreadable:
            print_error(f"warning: {error}")
    return Exit.DAMAGED if answer.unreadable else Exit.OK


def _print_answer(answer: Answer, limit: int | None, as_json: bool, as_csv: bool) -> None:
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
        writer.writerow(None if cell is None else shown(_cell_text(cell)) for cell in row)


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
    # The part that is cut need not be looked at, letter by letter.
    return cut(plain(_cell_text(value)[: _LONGEST_CELL + 1]), _LONGEST_CELL)


def _cell_text(value: Any) -> str:
    return f"x'{value.hex()}'" if isinstance(value, bytes) else str(value)
