"""Two tasks are compared call by call, up to the first thing that one did otherwise."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import BadInput
from holdfast.history.alignment import (
    Alignment,
    Made,
    RanTask,
    _order,
    align,
    align_all,
    in_tree,
)
from holdfast.history.differences import diff

seeds = st.integers(0, 2**40)


def strand(random: Random, order: Random, scope: str = "", depth: int = 0) -> list[Made]:
    """The calls of one strand of code, some of which have others in them, or are branches."""
    found: list[Made] = []
    for number in range(1, random.randrange(2, 6)):
        path = f"{scope}.{number}" if scope else str(number)
        if depth < 2 and random.random() < 0.25:
            branches = [strand(random, order, f"{path}.{n}", depth + 1) for n in (1, 2, 3)]
            found += side_by_side(order, branches)
            continue
        name = random.choice(("look", "book", "pay"))
        found.append(Made(path, name, input=[random.randrange(3)], output=random.randrange(9)))
        if random.random() < 0.2:
            found += strand(random, order, path, depth + 2)
    return found


def side_by_side(order: Random, branches: list[list[Made]]) -> list[Made]:
    """The calls of the branches, as they might have run: each branch in its own order."""
    found = []
    while branches := [branch for branch in branches if branch]:
        found.append(order.choice(branches).pop(0))
    return found


def some_task(seed: int, id: str = "one", order: int = 0) -> RanTask:
    return RanTask(id, tuple(strand(Random(seed), Random(order))), result=seed)


def changed(task: RanTask, number: int, **fields: Any) -> RanTask:
    calls = list(task.calls)
    calls[number] = replace(calls[number], **fields)
    return replace(task, id="two", calls=tuple(calls))


def must_hold_all(found: Alignment, a: RanTask, b: RanTask) -> None:
    """Every call is in one row, and calls that share one are calls of the same function."""
    assert [row.a for row in found.rows if row.a] == in_tree(a.calls)
    assert sorted(row.b.path for row in found.rows if row.b) == sorted(m.path for m in b.calls)
    for row in found.rows:
        assert row.a or row.b
        if row.a and row.b and row.what != "another call":
            assert row.a.name == row.b.name
    again = msgspec.json.decode(msgspec.json.encode(found), type=Alignment)
    assert again == found


@settings(deadline=None)
@given(seeds)
def test_a_task_does_not_differ_from_itself(seed):
    task = some_task(seed)
    found = align(task, replace(task, id="two"))
    assert found.first is None
    assert {row.what for row in found.rows} <= {""}
    must_hold_all(found, task, task)


@settings(deadline=None)
@given(seeds, seeds)
def test_it_does_not_count_which_branch_ran_first(seed, order):
    task, other = some_task(seed), some_task(seed, order=order)
    found = align(task, other)
    assert found.first is None
    assert found.rows == align(task, task).rows


@settings(max_examples=60, deadline=None)
@given(seeds, st.data())
def test_the_first_divergence_is_the_call_that_was_changed(seed, data):
    task = some_task(seed)
    number = data.draw(st.integers(0, len(task.calls) - 1))
    made = task.calls[number]
    for fields, what in (
        ({"output": "other"}, "another result"),
        ({"input": ["other"]}, "other arguments"),
        ({"name": "dance"}, "another call"),
        ({"outcome": "failed", "failure": "ValueError: no"}, "another outcome"),
    ):
        other = changed(task, number, **fields)
        found = align(task, other)
        assert found.first is not None and found.first.row is not None
        assert (found.first.what, found.first.path) == (what, made.path)
        assert found.first.a is made and found.first.b is other.calls[number]
        row = found.rows[found.first.row]
        assert made.path in (row.a and row.a.path, row.b and row.b.path)
        assert found.first.diff
        must_hold_all(found, task, other)


@settings(max_examples=60, deadline=None)
@given(seeds, st.data())
def test_of_many_changes_the_first_counts(seed, data):
    task = some_task(seed)
    numbers = data.draw(st.sets(st.integers(0, len(task.calls) - 1), min_size=1, max_size=4))
    other = task
    for number in numbers:
        other = changed(other, number, input=["other"])
    found = align(task, other)
    assert found.first is not None
    assert found.first.path == task.calls[min(numbers)].path
    must_hold_all(found, task, other)


@settings(max_examples=60, deadline=None)
@given(seeds, st.data())
def test_a_task_that_did_less_or_more_parts_there(seed, data):
    task = some_task(seed)
    number = data.draw(st.integers(0, len(task.calls) - 1))
    cut = replace(task, id="two", calls=task.calls[:number])
    less, more = align(task, cut).first, align(cut, task).first
    assert less is not None and more is not None
    assert (less.what, less.path) == ("only in A", task.calls[number].path)
    missing = {made.path for made in task.calls[number:]}
    scope, _, place = more.path.rpartition(".")
    assert (more.what, more.path in missing) == ("only in B", True)
    assert not {scope, f"{scope}.{int(place) - 1}"} & missing
    running = replace(cut, status="in_progress", result=None)
    not_yet = align(task, running).first
    assert not_yet is not None and (not_yet.what, not_yet.path) == ("not yet", less.path)


@given(seeds, seeds)
def test_any_two_tasks_can_be_compared_both_ways(seed, other_seed):
    a, b = some_task(seed), some_task(other_seed, "two")
    found, turned = align(a, b), align(b, a)
    must_hold_all(found, a, b)
    must_hold_all(turned, b, a)
    assert (found.first is None) == (turned.first is None)


def body(*names: str, **more: Any) -> RanTask:
    calls = [Made(str(n), name, args_hash=name) for n, name in enumerate(names, 1)]
    return RanTask("-".join(names), tuple(calls), **more)


def seen(found: Alignment) -> list[tuple[str, str, str]]:
    return [(r.a.name if r.a else "", r.b.name if r.b else "", r.what) for r in found.rows]


def test_after_a_call_more_the_rest_is_found_again():
    found = align(body("look", "poll", "poll", "book"), body("look", "ask", "poll", "poll", "book"))
    assert found.first is not None
    assert (found.first.what, found.first.path, found.first.row) == ("another call", "2", 1)
    assert seen(found) == [
        ("look", "look", ""),
        ("", "ask", "only in B"),
        ("poll", "poll", ""),
        ("poll", "poll", ""),
        ("book", "book", ""),
    ]


def test_calls_that_changed_places_are_found_again():
    found = align(body("look", "ask", "book", "pay"), body("look", "pay", "ask", "book"))
    assert [what for _, _, what in seen(found)] == ["", "", "", ""]
    assert found.first is not None and found.first.what == "another call"


def test_a_call_with_other_arguments_is_shown_beside_the_one_it_would_have_been():
    a = RanTask("a", (Made("1", "ask"), Made("2", "mail"), Made("3", "book", input="attic")))
    b = RanTask("b", (Made("1", "look"), Made("2", "book", input="cellar")))
    assert seen(align(a, b)) == [
        ("", "look", "only in B"),
        ("ask", "", "only in A"),
        ("mail", "", "only in A"),
        ("book", "book", "other arguments"),
    ]


def test_the_call_inside_is_the_first_and_not_the_step_that_failed_by_it():
    a = RanTask("a", (Made("1", "plan", output=1), Made("1.1", "look", output=1), Made("2", "go")))
    b = RanTask("b", (Made("1", "plan", output=2), Made("1.1", "look", output=2), Made("2", "go")))
    found = align(a, b)
    assert found.first is not None
    assert (found.first.path, found.first.row) == ("1.1", 1)
    assert [row.what for row in found.rows] == ["another result", "another result", ""]


def test_a_call_that_only_the_other_made_in_a_branch_comes_before_what_follows_the_branches():
    mine = ("1.1.1", "1.2.1", "2")
    a = RanTask("a", tuple(Made(path, "look", input=path) for path in mine))
    more = (("1.2.1", "1.2.1"), ("1.1.1", "1.1.1"), ("1.1.2", "more"), ("2", "other"))
    b = RanTask("b", tuple(Made(path, "look", input=given) for path, given in more))
    found = align(a, b)
    assert found.first is not None
    assert (found.first.what, found.first.path) == ("only in B", "1.1.2")
    assert [row.b.path if row.b else "" for row in found.rows] == ["1.1.1", "1.1.2", "1.2.1", "2"]


def test_the_clock_and_chance_do_not_count_but_are_told_of():
    now = Made("now?1", "now", "reading", output="10:00")
    later = replace(now, output="10:05")
    a, b = (
        RanTask("a", (now, Made("1", "go", output=1))),
        RanTask("b", (later, Made("1", "go", output=1))),
    )
    assert align(a, b).first is None
    assert align(a, b).readings == ("now?1",)
    found = align(a, changed(b, 1, output=2))
    assert found.first is not None
    assert (found.first.path, found.readings) == ("1", ("now?1",))


def test_tasks_may_only_end_otherwise():
    a, b = body("look", result=1), body("look", result=2)
    found = align(a, b).first
    assert found is not None and (found.what, found.row) == ("ends", None)
    assert found.diff == diff(
        {"status": "completed", "result": 1, "failure": ""},
        {"status": "completed", "result": 2, "failure": ""},
    )
    going = align(a, replace(b, status="paused", result=None)).first
    assert going is not None and going.what == "not yet"


def test_a_call_under_way_is_not_yet_another_unless_its_task_has_ended():
    a, b = body("look"), changed(body("look"), 0, outcome="waiting")
    found = align(a, replace(b, status="in_progress")).first
    assert found is not None and found.what == "not yet"
    found = align(a, replace(b, status="cancelled")).first
    assert found is not None and found.what == "another result"


def test_a_call_that_a_running_task_went_past_is_left_out_for_good():
    went = RanTask("a", (Made("1", "look"), Made("2", "book")), status="in_progress")
    chose = RanTask("b", (Made("1", "look"), Made("room?1", "room", "decision"), Made("2", "book")))
    for a, b, what in ((went, chose, "only in B"), (chose, went, "only in A")):
        found = align(a, b).first
        assert found is not None and (found.what, found.path) == (what, "room?1")


def test_what_they_were_started_with_is_compared_too():
    found = align(RanTask("a", input={"city": "Oslo"}), RanTask("b", input={"city": "Bergen"}))
    assert [change.where for change in found.input.changes] == [("city",)]


def test_many_are_compared_with_the_first_and_one_alone_with_nothing():
    one, two, three = body("look"), body("look"), body("book")
    firsts = [found.first for found in align_all([one, two, three])]
    assert firsts[0] is None and firsts[1] is not None
    with pytest.raises(BadInput, match="two tasks or more, not 1"):
        align_all([one])
    with pytest.raises(BadInput, match="two calls of the same path"):
        align(RanTask("a", (Made("1", "x"), Made("1", "y"))), one)


@pytest.mark.timeout(60)  # comparing each call with each would take minutes
def test_long_tasks_are_quick():
    calls = tuple(Made(str(n), f"step{n % 7}", input=[n]) for n in range(1, 10_001))
    shifted = tuple(replace(made, path=str(n + 2)) for n, made in enumerate(calls[5_000:], 5_000))
    b = RanTask("b", (*calls[:5_000], Made("5001", "more"), *shifted))
    found = align(RanTask("a", calls), b)
    assert found.first is not None and found.first.path == "5001"
    assert sum(row.what != "" for row in found.rows) == 1


@pytest.mark.parametrize(
    ("mine", "others", "place"),
    [
        ("1 2 3", "1 2 2.1.1 3", {"2.1.1": (1, 1)}),
        ("1 2 3", "1 2.1.1 2.1.2 3", {"2.1.1": (1, 1), "2.1.2": (1, 2)}),
        ("1 2 3", "0.1 1", {"0.1": (-1, 1)}),
        ("1 2 3", "1 2 3 4 5", {"4": (2, 1), "5": (2, 2)}),
        ("1 1.1 2", "1 1.1 1.2 2", {"1.2": (1, 1)}),
        ("1 2", "2 1 3", {"3": (1, 1)}),
        ("1 2.1 3", "1 2.2.1 3", {"2.2.1": (0, 1)}),
    ],
)
def test_a_call_that_only_the_other_made_stands_after_what_came_before_it(mine, others, place):
    made = [{path: Made(path, "look") for path in paths.split()} for paths in (mine, others)]
    keys = _order(*made)
    assert {path: keys[path] for path in place} == place
    assert [keys[path] for path in mine.split()] == [(n, 0) for n in range(len(made[0]))]


def test_a_call_that_came_to_another_end_is_shown_with_both_ends():
    one = RanTask("one", (Made("1", "look", output=7),))
    two = RanTask("two", (Made("1", "look", outcome="failed", failure="E: no"),))
    first = align(one, two).first
    assert first is not None and first.diff is not None
    found = {(each.where, each.what) for each in first.diff.changes}
    assert found == {
        (("outcome",), "changed"),
        (("output",), "removed"),
        (("failure",), "added"),
    }
