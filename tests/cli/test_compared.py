"""Tasks side by side, as they are printed."""

from __future__ import annotations

import io

from rich.console import Console

from holdfast.cli.commands.compare import print_alignment, print_diff, print_figures, told
from holdfast.cli.layers import LayerPage
from holdfast.core.events import PlanItem
from holdfast.core.usage import Spent
from holdfast.history.alignment import Made, RanTask, align
from holdfast.history.comparison import Figures
from holdfast.history.differences import diff

HOSTILE = "red \x1b[31m\r\u202e"


def page(*, on_terminal: bool = False, full: bool = False) -> LayerPage:
    out = Console(
        file=io.StringIO(),
        force_terminal=on_terminal,
        color_system=None,
        width=160,
        markup=False,
        highlight=False,
        emoji=False,
    )
    return LayerPage(out, full=full)


def printed(on: LayerPage) -> list[str]:
    assert isinstance(on.out.file, io.StringIO)
    return [line.rstrip() for line in on.out.file.getvalue().splitlines()]


LOOK = Made("1", "look", input=["Oslo"], output=[7])
BOOK = Made("2", "book", input=[7], output={"price": 120})


def test_the_calls_are_shown_up_to_where_they_part_and_what_differs_there():
    other = Made("2", "book", input=[7], output={"price": 95})
    for on in (page(), page(on_terminal=True)):
        print_alignment(
            on, align(RanTask("trip-1", (LOOK, BOOK)), RanTask("trip-2", (LOOK, other)))
        )
        lines = printed(on)
        assert lines[1] == "Calls  trip-1 and trip-2"
        assert lines[2].split() == ["PATH", "trip-1", "PATH", "trip-2", "DIFFERENCE"]
        assert 'look(["Oslo"]) → [7]' in lines[3]
        assert lines[4].startswith("▶  2")
        assert 'book([7]) → {"price":120}  ' in lines[4]
        assert lines[4].endswith('book([7]) → {"price":95}  another result')
        assert lines[6:] == [
            "First divergence",
            "  call 2, book, has another result",
            "    ~ price  120 -> 95",
        ]


def test_a_terminal_gets_the_rows_around_it_and_full_gets_all():
    calls = tuple(Made(str(n), "look", input=[n]) for n in range(1, 101))
    a, b = RanTask("a", calls), RanTask("b", (*calls[:49], Made("50", "pay"), *calls[50:]))
    on = page(on_terminal=True)
    print_alignment(on, align(a, b))
    lines = printed(on)
    assert "  … 46 earlier rows: --full shows them" in lines
    assert "  … 32 later rows: --full shows them" in lines
    assert sum(line.startswith("▶") for line in lines) == 1
    on = page(on_terminal=True, full=True)
    print_alignment(on, align(a, b))
    assert sum("look([" in line for line in printed(on)) == 100


def test_each_kind_of_divergence_is_told_in_a_sentence():
    def between(*made: Made, status: str = "completed") -> str:
        return told(align(RanTask("a", (LOOK, BOOK)), RanTask("b", made, status=status)))

    failed = Made("2", "book", input=[7], outcome="failed", failure="Full: no room")
    assert between(LOOK, BOOK) == "a and b did the same"
    assert between(LOOK) == "call 2, book, was made by a only"
    assert between(LOOK, BOOK, Made("3", "pay")) == "call 3, pay, was made by b only"
    assert between(LOOK, Made("2", "book", input=[8])) == "call 2, book, has other arguments"
    assert between(LOOK, failed) == "call 2, book, completed in a and failed (Full: no room) in b"
    assert between(LOOK, status="paused") == ("the same so far: b has not done call 2, as a has")
    assert between(LOOK, BOOK, status="paused") == ("the same so far: only one of them has ended")
    assert between(LOOK, BOOK, status="failed") == "every call is the same, but they end otherwise"
    going = RanTask("b", (LOOK,), status="in_progress")
    assert told(align(going, RanTask("a", (LOOK, BOOK)))) == (
        "the same so far: b has not done call 2, as a has"
    )


def test_figures_are_shown_side_by_side():
    one = Figures(
        "trip-1", "trip", "completed", {"price": 120}, calls={"look": 1, "book": 2}, retries=1,
        failures=1, duration_s=75, working_s=5, spent=Spent(2, 1_200, 34, cost=0.5),
        plan=(PlanItem("look", status="done"), PlanItem("book")),
        files={"a.md": "0123456789abcdef"},
    )  # fmt: skip
    two = Figures("trip-2", "trip", "failed", failure="Full: no room", calls={"look": 1})
    on = page()
    print_figures(on, [one, two])
    rows = {line[:17].strip(): line[17:].split("  ") for line in printed(on)[3:]}
    cells = {name: [cell for cell in row if cell] for name, row in rows.items()}
    assert cells["status"] == ["completed", "failed"]
    assert cells["result"] == ['{"price":120}']
    assert cells["duration"] == ["1 min 15 s"]
    assert cells["tokens in"] == ["1,200"]
    assert cells["plan"] == ["1 of 2 done"]
    assert [cell.strip() for cell in cells["calls"]] == ["3", "1"]
    assert [cell.strip() for cell in cells["book"]] == ["2", "–"]
    assert [cell.strip() for cell in cells["file a.md"]] == ["0123456789ab", "–"]
    assert "waiting" not in cells


def test_nothing_that_is_shown_acts_on_the_terminal():
    made = Made(HOSTILE, HOSTILE, HOSTILE, input=HOSTILE, outcome="failed", failure=HOSTILE)
    for on in (page(full=True), page(on_terminal=True)):
        print_alignment(on, align(RanTask(HOSTILE, (made,), input=HOSTILE), RanTask("b", (LOOK,))))
        print_figures(
            on,
            [
                Figures(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, {HOSTILE: 1},
                        files={HOSTILE: HOSTILE}),
                Figures("b", "trip", "completed"),
            ],
        )  # fmt: skip
        print_diff(on, diff({HOSTILE: 1}, {"a": HOSTILE * 20}))
        assert isinstance(on.out.file, io.StringIO)
        text = on.out.file.getvalue()
        assert not {"\r", "\u202e"} & set(text)
        assert "\x1b[31mred" not in text and "red \x1b" not in text


def test_a_diff_of_nothing_says_so():
    on = page()
    print_diff(on, diff(1, 1))
    assert printed(on) == ["  nothing is different"]
