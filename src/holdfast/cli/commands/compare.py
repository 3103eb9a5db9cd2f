"""`holdfast snapshot`, `diff` and `compare`: what tasks knew and did, side by side.

A terminal gets the rows around the first divergence; `--full`, a pipe or a file all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import click
import msgspec
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.layers import LayerPage
from holdfast.cli.opening import are_sessions, find_task, must_be_there, opened, session_view
from holdfast.cli.options import (
    At,
    complete_task,
    full_option,
    place_of_word,
    place_options,
    store_command,
    task_argument,
)
from holdfast.cli.output import console, print_json, print_lines, print_table, status_text
from holdfast.cli.settings import Given
from holdfast.cli.text import count, cut, plain, precise_clock, short, shown, took
from holdfast.errors import BadInput
from holdfast.history import differences
from holdfast.history.alignment import Alignment, Divergence, Made, Row, align_all
from holdfast.history.comparison import Comparison, Figures
from holdfast.history.differences import Diff, DiffLine, describe
from holdfast.history.snapshots import Snapshot
from holdfast.stores.port import Store
from holdfast.views.sessions import SessionView
from holdfast.views.task import MANY, TaskView, recent


@click.command(short_help="What a task knew before or after a step.")
@task_argument
@place_options("--step", "The place")
@full_option
@store_command()
def snapshot(
    given: Given,
    task: str,
    place: At,
    full: bool,
    as_json: bool,
) -> Exit:
    """Show everything a task knew before or after a step: input, plan, calls, decisions, notes,
    conversation, state and files.

    Without a step or an event it lists the snapshots that there are: one before and one after each
    call. Of many, a terminal gets the newest; --full, a pipe or a file get all. Nothing is run and
    nothing is written.

    \b
    Examples:
      holdfast snapshot trip-42
      holdfast snapshot trip-42 --step 6 --before
      holdfast snapshot trip-42 --step 6 --after --json | jq .conversation
      holdfast snapshot trip-42 --event 61
    """
    with opened(given) as hf:
        must_be_there(hf.store, task)
        if place.step is None and place.seq is None:
            page = LayerPage(console(), full=full or as_json)
            return _list_snapshots(page, hf.store, find_task(hf, task), as_json)
        found = place.of(hf, task)
        if as_json:
            print_json({**_tag_of(found), **found.content})
            return Exit.OK
        _print_snapshot(LayerPage(console(), full=full), found)
    return Exit.OK


def _list_snapshots(page: LayerPage, store: Store, view: TaskView, as_json: bool) -> Exit:
    made = len(view.state.calls)
    if not page.every:
        view = recent(view, store, MANY)
    if earlier := made - len(view.state.calls):
        page.line((f"… those of {earlier:,} earlier calls: --full shows them", "dim"))
    tags = page.newest(list(view.snapshots()))
    if as_json:
        print_json([msgspec.to_builtins(tag) for tag in tags])
        return Exit.OK
    rows = [
        (
            tag.when,
            plain(tag.path),
            plain(tag.name),
            status_text(tag.outcome),
            f"{tag.seq}",
            precise_clock(tag.at),
        )
        for tag in tags
    ]
    if rows:
        print_table(
            page.out, ("", "STEP", "NAME", "OUTCOME", "EVENT", "TIME"), rows, cut_last=False
        )
    else:
        page.out.print("it has made no call yet, so it has no snapshots but what it is now")
    return Exit.OK


def _tag_of(found: Snapshot) -> dict[str, object]:
    place = found.place
    return {
        "id": found.id,
        "seq": found.seq,
        "at": found.at,
        "status": found.status,
        "path": place.path,
        "when": place.when,
    }


def _print_snapshot(page: LayerPage, found: Snapshot) -> None:
    page.line(
        (plain(found.id), "bold"),
        f"  {found.place}, event {found.seq}, {precise_clock(found.at)}  ",
        status_text(found.status),
        indent=0,
    )
    for name, value in found.content.items():
        if value in (None, [], {}, ""):
            continue
        if name == "calls":
            page.heading("calls", count(len(value), "call"))
            for path, call in page.newest(list(value.items())):
                page.line((plain(path), "bold"), f"  {plain(call['name'])}  ", call["status"])
                for part in ("question", "input", "output", "failure", "child"):
                    if part in call:
                        page.line((part, "dim"), indent=5)
                        page.block(shown(call[part]), indent=7)
        else:
            page.heading(name)
            page.block(shown(value), indent=2)


@click.command(short_help="How what a task knew differs between two places, or between two tasks.")
@task_argument
@click.argument("other", required=False, shell_complete=complete_task)
@click.option("--from", "start", metavar="PLACE", help="Where in TASK.  [default: its end]")
@click.option("--to", metavar="PLACE", help="Where in OTHER, or in TASK.  [default: its end]")
@full_option
@store_command()
def diff(
    given: Given,
    task: str,
    other: str | None,
    start: str | None,
    to: str | None,
    full: bool,
    as_json: bool,
) -> Exit:
    """Show the differences between two snapshots, of one task or of two: what is known at one
    place and not at the other. `holdfast compare` shows how whole tasks went.

    A PLACE is a step (6, which is before it), before:6, after:6, event:61 or end. Of a session it
    is the number of a message, and of a thread of LangGraph the number or the id of a checkpoint:
    what it held then. Long texts, and files that are texts, are compared inside. Exits with 0 if
    there is no difference, else with 1.

    \b
    Examples:
      holdfast diff trip-42 --from before:6 --to after:6
      holdfast diff trip-42 trip-42-fork
      holdfast diff trip-42 trip-42-fork --from after:6 --to after:6 --json
      holdfast diff thread-7 --from 3 --to 5
    """
    if other is None and start is None:
        raise click.UsageError("say a second task, or --from which place")
    with opened(given) as hf:
        if are_sessions(hf.store, task, other or task):
            made = differences.diff(_held(hf, task, start), _held(hf, other or task, to))
        else:
            must_be_there(hf.store, task, other or task)
            one = place_of_word(start or "end").of(hf, task)
            made = one.diff(place_of_word(to or "end").of(hf, other or task))
        if as_json:
            print_json(made)
        else:
            print_diff(LayerPage(console(), full=full), made, indent=0)
    return Exit.DIFFERS if made else Exit.OK


def _held(hf: Holdfast, session: str, place: str | None) -> dict[str, Any]:
    """The messages and values of a session at a place."""
    view = session_view(hf, session)
    if place is None or place == "end":
        return view.content()
    number = view.number(place)
    if number is None:
        what = "checkpoint" if view.is_thread else "message"
        raise BadInput(
            f"session {session!r} has no {what} {place!r}: it has {len(view.moments):,}, counted "
            f"from 1 (`holdfast show {session}`)"
        )
    return view.content(number)


@click.command(short_help="Tasks side by side, up to where they first differ.")
@click.argument(
    "tasks", nargs=-1, required=True, metavar="TASK TASK…", shell_complete=complete_task
)
@full_option
@store_command()
def compare(given: Given, tasks: tuple[str, ...], full: bool, as_json: bool) -> Exit:
    """Two tasks or more side by side: call by call to the first divergence, then what each came to,
    took and cost, and how what they know and the files they made differ. `holdfast diff` shows
    two places of a task.

    Each is held against the first one. Sessions are held together message by message, and threads
    of LangGraph checkpoint by checkpoint. Exits with 0 if none diverges, else with 1.

    \b
    Examples:
      holdfast compare trip-42 trip-42-fork
      holdfast compare trip-42 trip-43 trip-44 --json
    """
    with opened(given) as hf:
        if are_sessions(hf.store, *tasks):
            return _compare_sessions([session_view(hf, each) for each in tasks], full, as_json)
        for task in tasks:
            find_task(hf, task)
        found = hf.compare(*tasks)
    if as_json:
        print_json(found)
    else:
        _print_comparison(LayerPage(console(), full=full), found)
    return Exit.OK if found.is_same else Exit.DIFFERS


def _compare_sessions(views: Sequence[SessionView], full: bool, as_json: bool) -> Exit:
    alignments = align_all([view.as_ran() for view in views])
    knows = [differences.diff(views[0].content(), view.content()) for view in views[1:]]
    is_same = not any(knows) and not any(found.first for found in alignments)
    if as_json:
        ids = [view.id for view in views]
        print_json({"ids": ids, "alignments": alignments, "knows": knows})
    else:
        page = LayerPage(console(), full=full)
        for found in alignments:
            print_alignment(page, found, "Moments")
        for view, known in zip(views[1:], knows, strict=True):
            page.heading("Knows", f"{plain(view.id)}, held against {plain(views[0].id)}")
            print_diff(page, known)
    return Exit.OK if is_same else Exit.DIFFERS


def _print_comparison(page: LayerPage, found: Comparison) -> None:
    if len(set(found.types)) > 1:
        kinds = ", ".join(
            f"{plain(i)} is a {plain(t)}" for i, t in zip(found.ids, found.types, strict=True)
        )
        page.line((f"These are tasks of different functions: {kinds}.", "yellow"), indent=0)
    for alignment in found.alignments:
        print_alignment(page, alignment)
    for id, known in zip(found.ids[1:], found.knows, strict=True):
        page.heading("Knows", f"{plain(id)}, held against {plain(found.ids[0])}")
        print_diff(page, known)
    print_figures(page, found.figures)


# Tasks side by side, for people.


STYLES = {"+": "green", "-": "red", "~": "yellow", "@": "cyan"}
"""The colour of a line of a diff, by its marker."""

_AHEAD, _BEHIND = 3, 20
_WIDE = 48


def print_diff(page: LayerPage, made: Diff, *, indent: int = 2) -> None:
    """Print what is different, a line for each change."""
    lines = describe(made, most=None if page.full else 100)
    for line in lines:
        print_lines(page.out, Text.assemble(" " * indent, _styled(line)))
    if not lines:
        page.line("nothing is different", indent=indent)


def _styled(line: DiffLine) -> Text:
    return Text(str(line), STYLES.get(line.marker, "dim" if line.inside else ""))


def print_alignment(page: LayerPage, found: Alignment, title: str = "Calls") -> None:
    """Print two tasks call by call, then where they part."""
    page.heading(title, f"{plain(found.a)} and {plain(found.b)}")
    rows, left_ahead, left_behind = _around(page, found)
    if left_ahead:
        page.line((f"… {count(left_ahead, 'earlier row')}: --full shows them", "dim"))
    if rows:
        at = found.first.row if found.first else None
        columns = ("", "PATH", plain(found.a), "PATH", plain(found.b), "DIFFERENCE")
        cells = [_cells(row, is_first=n + left_ahead == at) for n, row in enumerate(rows)]
        print_table(page.out, columns, cells, cut_last=True)
    else:
        page.line("neither made any")
    if left_behind:
        page.line((f"… {count(left_behind, 'later row')}: --full shows them", "dim"))
    _print_first(page, found)


def told(found: Alignment) -> str:
    """Where two tasks part, in a sentence.

    >>> from holdfast.history.alignment import RanTask, align
    >>> look, book, pay = Made("1", "look"), Made("2", "book"), Made("2", "pay")
    >>> told(align(RanTask("trip-1", (look, book)), RanTask("trip-2", (look, pay))))
    'call 2 is another one: trip-1 called book, trip-2 called pay'
    >>> told(align(RanTask("trip-1", (look,)), RanTask("trip-2", (look,))))
    'trip-1 and trip-2 did the same'
    """
    a, b = plain(found.a), plain(found.b)
    if found.first is None:
        return f"{a} and {b} did the same"
    return _told(found.first, a, b)


def _told(first: Divergence, a: str, b: str) -> str:
    call = plain(first.path)
    one, other = _name(first.a), _name(first.b)
    match first.what:
        case "another call":
            return f"call {call} is another one: {a} called {one}, {b} called {other}"
        case "other arguments":
            return f"call {call}, {one}, has other arguments"
        case "another failure" | "another outcome":
            return f"call {call}, {one}, {_went(first.a)} in {a} and {_went(first.b)} in {b}"
        case "only in A":
            return f"call {call}, {one}, was made by {a} only"
        case "only in B":
            return f"call {call}, {other}, was made by {b} only"
        case "not yet" if first.path:
            ahead, behind = (b, a) if _is_behind(first) else (a, b)
            return f"the same so far: {behind} has not done call {call}, as {ahead} has"
        case "not yet":
            return "the same so far: only one of them has ended"
        case "ends":
            return "every call is the same, but they end otherwise"
        case _:
            return f"call {call}, {one}, has another result"


def _is_behind(first: Divergence) -> bool:
    """Whether it is task A that has not come so far."""
    return first.a is None or (not first.a.has_ended and first.b is not None)


def _name(made: Made | None) -> str:
    return plain(made.name) if made else ""


def _went(made: Made | None) -> str:
    if made is None:
        return "was not made"
    return f"failed ({cut(plain(made.failure), 80)})" if made.failure else plain(made.outcome)


def _print_first(page: LayerPage, found: Alignment) -> None:
    page.heading("First divergence" if found.first else "No divergence")
    page.line(told(found))
    if found.first and found.first.diff:
        print_diff(page, found.first.diff, indent=4)
    if found.readings:
        paths = cut(plain(", ".join(found.readings)), 80)
        page.line((f"the clock or chance said something else before it: {paths}", "dim"))
    if found.input:
        page.line("they were started with different input:")
        print_diff(page, found.input, indent=4)


def _around(page: LayerPage, found: Alignment) -> tuple[Sequence[Row], int, int]:
    """The rows to print, and how many are left out ahead of them and behind."""
    rows = found.rows
    if page.whole:
        return rows, 0, 0
    at = found.first.row if found.first else None
    begin = max((len(rows) if at is None else at) - _AHEAD, 0)
    end = min(begin + _AHEAD + _BEHIND, len(rows))
    return rows[begin:end], begin, len(rows) - end


def _cells(row: Row, *, is_first: bool) -> tuple[str | Text, ...]:
    mark = Text("▶" if is_first else "", "bold red")
    style = "" if row.what in ("", "not yet") else "yellow"
    return (mark, *_side(row.a), *_side(row.b), Text(row.what, "bold red" if is_first else style))


def _side(made: Made | None) -> tuple[str, str]:
    if made is None:
        return "", ""
    called = f"{plain(made.name)}({'' if made.input is None else short(made.input, 24)})"
    if made.failure:
        return plain(made.path), cut(f"{called} ✗ {plain(made.failure)}", _WIDE)
    came = f" → {short(made.output, 24)}" if made.outcome == "completed" else f" {made.outcome}"
    return plain(made.path), cut(f"{called}{plain(came)}", _WIDE)


def print_figures(page: LayerPage, tasks: Sequence[Figures]) -> None:
    """Print tasks side by side: a column each. Equal values are dim."""
    page.heading("Side by side")
    rows = [_row(name, tasks, tell) for name, tell in _FIGURES]
    names = dict.fromkeys(name for each in tasks for name in each.calls)
    rows += [_row(f"  {plain(name)}", tasks, _calls_of(name)) for name in names]
    kept = dict.fromkeys(name for each in tasks for name in each.files)
    rows += [_row(f"file {plain(name)}", tasks, _file_of(name)) for name in kept]
    shown = [row for row in rows if any(str(cell) for cell in row[1:])]
    print_table(page.out, ("", *(plain(each.id) for each in tasks)), shown, cut_last=False)


def _row(
    name: str, tasks: Sequence[Figures], tell: Callable[[Figures], str]
) -> tuple[str | Text, ...]:
    cells = [plain(tell(each)) for each in tasks]
    style = "dim" if len(tasks) > 1 and len(set(cells)) == 1 else ""
    if name == "status" and not style:
        return (name, *map(status_text, cells))
    return (Text(name, style), *(Text(cell, style) for cell in cells))


def _calls_of(name: str) -> Callable[[Figures], str]:
    return lambda each: str(each.calls.get(name, "–"))


def _file_of(name: str) -> Callable[[Figures], str]:
    return lambda each: each.files[name][:12] if name in each.files else "–"


def _length(seconds: float) -> str:
    return took(timedelta(seconds=seconds)) if seconds else ""


def _number(number: int) -> str:
    return f"{number:,}" if number else ""


def _plan(each: Figures) -> str:
    if all(item.status == "pending" for item in each.plan):  # a plan that is followed unmarked
        return count(len(each.plan), "item") if each.plan else ""
    done = sum(item.status == "done" for item in each.plan)
    return f"{done} of {len(each.plan)} done"


def _result(each: Figures) -> str:
    value: Any = each.result
    return "" if value is None else short(value, _WIDE)


_FIGURES: tuple[tuple[str, Callable[[Figures], str]], ...] = (
    ("type", lambda each: each.type),
    ("status", lambda each: each.status),
    ("result", _result),
    ("failure", lambda each: cut(each.failure, _WIDE)),
    ("duration", lambda each: _length(each.duration_s)),
    ("  working", lambda each: _length(each.working_s)),
    ("  waiting", lambda each: _length(each.waiting_s)),
    ("tokens in", lambda each: _number(each.spent.input_tokens)),
    ("tokens out", lambda each: _number(each.spent.output_tokens)),
    ("cost", lambda each: f"{each.spent.cost:g}" if each.spent.cost else ""),
    ("failed attempts", lambda each: _number(each.failures)),
    ("retries", lambda each: _number(each.retries)),
    ("plan", _plan),
    ("calls", lambda each: f"{sum(each.calls.values()):,}"),
)
