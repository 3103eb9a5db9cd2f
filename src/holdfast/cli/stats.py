"""`holdfast stats`: where time, tokens, money and retries go, and what resuming saved."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import asdict
from rich.console import Console
from rich.text import Text

from holdfast.cli.exits import Exit
from holdfast.cli.filtering import find_options, found_by
from holdfast.cli.opening import opened
from holdfast.cli.options import json_option, pairs, pass_given, store_options
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.progress import telling
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain, took
from holdfast.upkeep.copied import Progress

if TYPE_CHECKING:
    from holdfast.stats import CallStats, Spent, Stats, TypeStats

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
@json_option
@store_options
@pass_given
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
      people     it waited for an answer, an approval, a doubt to be settled, or was paused
      backoff    it waited to try again
      asleep, children    it waited for a time, or for another task
      between    its own code ran, between its calls
      idle       nobody drove it

    What resuming saved are the calls, and their time, tokens and money, that were recorded when a
    task was taken up again, and did not have to be made once more: counted each time that it was.

    Money is that which was recorded with the replies of models, else by --price; where there is
    neither, it is said to be unknown. A task whose log can't be read is left out and named on
    standard error, and the exit code is then 4.

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
        _print(console(), found, prices, len(found.calls) if whole else MOST_ROWS)
    for error in found.unreadable:
        print_error(f"warning: {error}")
    return Exit.DAMAGED if found.unreadable else Exit.OK


@contextmanager
def _progress() -> Iterator[Any]:
    with telling() as tell:
        yield lambda done, of, id: tell(Progress("reading", id, done, of))


def _print(out: Console, found: Stats, prices: dict[str, tuple[float, float]], most: int) -> None:
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
    """What is known of the cost: all of it, a part, or nothing."""
    if spent.unpriced == spent.model_calls:
        return "unknown"
    return f"{spent.cost:,.4f}{' and more' if spent.unpriced else ''}"
