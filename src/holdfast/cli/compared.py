"""Tasks side by side, for people: their calls up to where they part and beyond, and their figures.

A terminal gets the rows around the first divergence; `--full`, a pipe or a file all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from rich.text import Text

from holdfast.cli.layers import LayerPage
from holdfast.cli.output import print_lines, print_table, status_text
from holdfast.cli.text import count, cut, plain, short, took
from holdfast.history.compare.aligning import Alignment, Divergence, Made, Row
from holdfast.history.compare.comparison import Figures
from holdfast.history.differences.described import DiffLine, describe
from holdfast.history.differences.differing import Diff

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


def print_alignment(page: LayerPage, found: Alignment) -> None:
    """Print two tasks call by call, then where they part."""
    page.heading("Calls", f"{plain(found.a)} and {plain(found.b)}")
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

    >>> from holdfast.history.compare.aligning import RanTask, align
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
        case "another failure":
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
    """Print tasks side by side: a column each. What is the same for all is dim."""
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
    done = sum(item.status == "done" for item in each.plan)
    return f"{done} of {len(each.plan)} done" if each.plan else ""


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
