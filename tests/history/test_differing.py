"""A diff leads from one value to the other and back, exactly, and is small where little changed."""

from __future__ import annotations

import copy
import time
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.errors import BadInput
from holdfast.history.differences import (
    LONG,
    Change,
    Diff,
    apply,
    describe,
    diff,
    hunks,
    inverse,
    place,
    same,
)
from holdfast.history.matching import canonical, common

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0.0, -0.0, 1.0, -1.0]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text("ab\n é", max_size=4),
    st.sampled_from(["a quiet room " * 9, "one\ntwo\nthree\n" * 5, "x" * 90]),
)
keys = st.sampled_from(["id", "path", "name", "a", "b", "", "6.1"])
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=7) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=12,
)

# Drawn by a seed, because hypothesis is slow to draw a value and then another one like it.
SCALARS = (None, True, False, 0, 1, 2**70, 0.0, -0.0, 1.0, "", "a", "é", "one\ntwo", "quiet " * 20)
KEYS = ("id", "path", "name", "a", "b", "", "6.1")


def some(random: Random, depth: int = 0) -> Any:
    what = random.random()
    if depth > 4 or what < 0.3 + 0.1 * depth:
        return random.choice(SCALARS)
    if what < 0.6:
        return [some(random, depth + 1) for _ in range(random.randrange(8))]
    if what < 0.7:
        ids = random.sample(range(9), random.randrange(9))
        return [{"id": id, "a": some(random, depth + 2)} for id in ids]
    return {random.choice(KEYS): some(random, depth + 1) for _ in range(random.randrange(6))}


def mutated(random: Random, value: Any) -> Any:
    """A value that something was done to: mostly little, anywhere in it."""
    if random.random() < 0.1 or not value:
        return some(random, 2)
    if isinstance(value, dict):
        return _mutated_dict(random, value)
    if isinstance(value, list):
        return _mutated_list(random, value)
    if isinstance(value, str):
        at = random.randrange(len(value) + 1)
        return value[:at] + random.choice(("", "b", "\n")) + value[at + random.randrange(3) :]
    return some(random, 2)


def _mutated_dict(random: Random, value: dict[str, Any]) -> dict[str, Any]:
    made = dict(value)
    key = random.choice(list(value))
    match random.choice(("inside", "drop", "add", "turn")):
        case "inside":
            made[key] = mutated(random, value[key])
        case "drop":
            del made[key]
        case "add":
            made[random.choice(KEYS)] = some(random, 3)
        case _:
            made = dict(reversed(value.items()))
    return made


def _mutated_list(random: Random, value: list[Any]) -> list[Any]:
    made = list(value)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(max(len(made), 1))
        what = random.choice(("inside", "drop", "add", "move"))
        if what == "add" or not made:
            made.insert(at, some(random, 3))
        elif what == "inside":
            made[at] = mutated(random, made[at])
        else:
            item = made.pop(at)
            if what == "move":
                made.insert(random.randrange(len(made) + 1), item)
    return made


def like(seed: int) -> tuple[Any, Any]:
    random = Random(seed)
    before = some(random)
    return before, mutated(random, before)


pairs = st.integers(0, 2**40).map(like)


def must_lead(before: Any, after: Any) -> Diff:
    """The diff, as it comes back from JSON, after a look at where it leads."""
    olds, news = canonical(before), canonical(after)
    made = msgspec.json.decode(msgspec.json.encode(diff(before, after)), type=Diff)
    assert canonical(apply(made, before)) == news
    assert canonical(apply(inverse(made), after)) == olds
    assert (canonical(before), canonical(after)) == (olds, news), "nothing given is changed"
    assert bool(made) == (olds != news)
    return made


@settings(max_examples=1000, deadline=None)
@given(pairs)
def test_a_diff_leads_from_one_value_to_the_other_and_back(pair):
    must_lead(*pair)


@settings(max_examples=50, deadline=None)
@given(plain, plain)
def test_so_does_one_between_values_that_have_nothing_in_common(before, after):
    must_lead(before, after)


@settings(max_examples=100, deadline=None)
@given(plain)
def test_what_is_the_same_has_no_diff(value):
    assert diff(value, copy.deepcopy(value)) == Diff()
    assert describe(diff(value, copy.deepcopy(value))) == []


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_every_change_says_what_stands_at_its_places(pair):
    before, after = pair
    for change in diff(before, after).changes:
        was = change.where if change.was is msgspec.UNSET else change.was
        if change.what != "added":
            assert same(at(before, was), change.before)
        if change.what != "removed":
            assert same(at(after, change.where), change.after)


def at(value: Any, where: tuple[str | int, ...]) -> Any:
    for key in where:
        value = value[key]
    return value


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_inverting_twice_changes_nothing_but_the_lines_of_hunks(pair):
    made = diff(*pair)
    assert inverse(inverse(made)) == made


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_a_diff_fits_no_value_that_lacks_what_it_is_about(pair):
    before, after = pair
    made = diff({"it": before}, {"it": after})
    for other in (None, [], {}, {"that": before}):
        if made:
            with pytest.raises(BadInput, match="the diff does not fit"):
                apply(made, other)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        (Change(("a",), "changed", 1, 2), {"a": 1.0}),
        (Change(("a",), "removed", 1), {"a": 2}),
        (Change(("a",), "added", after=1), {"a": 1}),
        (Change((1,), "removed", 1), [1]),
        (Change((3,), "added", after=1), [1]),
        (Change(("a",), "added", after=1), [1]),
        (Change((0, "a"), "added", after=1), [1]),
        (Change((), "added", after=1), None),
    ],
)
def test_a_diff_that_does_not_fit_is_refused(change, value):
    with pytest.raises(BadInput, match="the diff does not fit: at "):
        apply(Diff((change,)), value)


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 1.0), (1, True), (0, False), (0.0, -0.0), (None, {}), ({}, []), ("", None), ("1", 1)],
)
def test_values_that_look_alike_differ(before, after):
    for wrap in (lambda x: x, lambda x: [x], lambda x: {"a": x}, lambda x: [x, {"id": x}]):
        assert must_lead(wrap(before), wrap(after))


def test_the_order_of_keys_is_no_difference():
    assert not diff([{"a": 1, "b": [{"c": 1, "d": 2}]}], [{"b": [{"d": 2, "c": 1}], "a": 1}])


@given(st.lists(scalars, max_size=9), scalars, st.data())
def test_an_item_put_into_a_list_is_one_item_added(items, item, data):
    place = data.draw(st.integers(0, len(items)))
    [change] = must_lead(items, [*items[:place], item, *items[place:]]).changes
    assert (change.what, change.after) == ("added", item)
    [change] = must_lead([*items[:place], item, *items[place:]], items).changes
    assert (change.what, change.before) == ("removed", item)


def test_items_with_names_are_matched_by_them():
    before = [{"id": "a", "n": 1}, {"id": "b", "n": 1}, {"id": "c", "n": 1}]
    after = [{"id": "z", "n": 1}, {"id": "b", "n": 2}, {"id": "c", "n": 1}]
    removed, added, changed = must_lead(before, after).changes
    assert (removed.what, removed.where) == ("removed", (0,))
    assert (added.what, added.where) == ("added", (0,))
    assert changed == Change((1, "n"), "changed", 1, 2)


def test_a_change_knows_where_it_was():
    before = [{"path": "1"}, {"path": "2", "n": [0, {"m": 1}]}]
    [removed, changed] = must_lead(before, [{"path": "2", "n": [0, {"m": 2}]}]).changes
    assert removed.where == (0,)
    assert (changed.where, changed.was) == ((0, "n", 1, "m"), (1, "n", 1, "m"))


def test_items_without_names_that_changed_a_little_are_found_among_new_ones():
    before = [{"text": "search", "done": False}, {"text": "book", "done": False}]
    after = [{"text": "ask"}, {"text": "search", "done": True}, {"text": "book", "done": False}]
    added, changed = must_lead(before, after).changes
    assert (added.what, added.where) == ("added", (0,))
    assert changed == Change((1, "done"), "changed", False, True, was=(0, "done"))


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_the_longest_common_part_of_lists_is_found(before, after):
    found = common(before, after)
    assert [before[i] for i, _ in found] == [after[j] for _, j in found]
    assert found == sorted(set(found))
    assert len({j for _, j in found}) == len(found) == longest(before, after)


def longest(before: list[int], after: list[int]) -> int:
    row = [0] * (len(after) + 1)
    for x in before:
        last = row
        row = [0]
        for j, y in enumerate(after):
            row.append(last[j] + 1 if x == y else max(row[j], last[j + 1]))
    return row[-1]


def many(kind: str) -> list[Any]:
    match kind:
        case "numbers":
            return list(range(10_000))
        case "few":
            return [n * n % 7 for n in range(10_000)]
        case "named":
            return [{"id": f"m-{n}", "text": "hello", "at": [n]} for n in range(10_000)]
        case _:
            return [{"role": "user", "text": f"hello {n % 50}"} for n in range(10_000)]


@pytest.mark.parametrize("kind", ["numbers", "few", "named", "messages"])
def test_long_lists_with_few_changes_are_quick(kind):
    before, after = many(kind), many(kind)
    after[5_000:5_002] = []
    after.insert(0, after[70])
    after[9_000] = {"id": "new"} if kind in ("named", "messages") else "new"
    if kind == "named":
        after[0] = {**after[0], "id": "m-new"}
    began = time.perf_counter()
    made = diff(before, after)
    assert time.perf_counter() - began < 1
    assert canonical(apply(made, before)) == canonical(after)
    assert len(made.changes) <= 6


@pytest.mark.parametrize("kind", ["numbers", "few", "messages"])
def test_long_lists_that_differ_everywhere_are_bounded(kind):
    before = many(kind)
    after = before[::-3] + before[::2]
    began = time.perf_counter()
    made = diff(before, after)
    assert time.perf_counter() - began < 5
    assert canonical(apply(made, before)) == canonical(after)


# --- texts ---

texts = st.lists(st.sampled_from(["one", "two\n", "\n", " ", "three ", "x" * 90]), max_size=14).map(
    "".join
)


@given(texts, texts)
def test_hunks_lead_from_one_text_to_the_other(before, after):
    made, end = "", 0
    for hunk in hunks(before, after):
        assert before[hunk.at :].startswith(hunk.removed + hunk.behind)
        assert before[: hunk.at].endswith(hunk.ahead)
        assert after[hunk.to :].startswith(hunk.added)
        assert hunk.line == before[: hunk.at].count("\n") + 1
        made += before[end : hunk.at] + hunk.added
        end = hunk.at + len(hunk.removed)
    assert made + before[end:] == after


def test_a_long_text_is_compared_by_its_lines():
    before = "\n".join(f"line {n}" for n in range(100))
    after = before.replace("line 50", "another").replace("line 7\n", "")
    [change] = must_lead({"text": before}, {"text": after}).changes
    assert [(h.line, h.removed, h.added) for h in change.hunks] == [
        (8, "line 7\n", ""),
        (51, "line 50\n", "another\n"),
    ]
    assert change.hunks[1].ahead == "line 48\nline 49\n"


def test_a_paragraph_is_compared_by_its_words():
    before = "Dear Ada,\n" + "the room is quiet " * 20 + "and costs 120 a night.\nYours\n"
    [change] = must_lead([before], [before.replace("120", "95")]).changes
    assert [(h.line, h.removed, h.added) for h in change.hunks] == [(2, "120", "95")]


# --- for people ---


def test_a_diff_reads_as_lines():
    before = {
        "plan": [{"text": "search"}, {"text": "pay"}],
        "calls": {"6": {"output": {"price": 120}}, "6.1": 1},
        "notes": ["too \x1b[31mexpensive"],
    }
    after = {
        "plan": [{"text": "search"}, {"text": "pay"}, {"text": "book the room"}],
        "calls": {"6": {"output": {"price": 95}}, "6.1": 1.0},
        "notes": [],
    }
    assert [*map(str, describe(diff(before, after)))] == [
        '+ plan[2]  {"text":"book the room"}',
        "~ calls.6.output.price  120 -> 95",
        '~ calls["6.1"]  1 -> 1.0',
        '- notes[0]  "too \\u001b[31mexpensive"',
    ]


def test_long_texts_read_as_hunks():
    before = "".join(f"line {n}\n" for n in range(9))
    after = before.replace("line 4", "line \x1b[2Jfour").removesuffix("\n")
    assert [*map(str, describe(diff(before, after)))] == [
        "~ (the whole)",
        "    @ line 5",
        "      line 2",
        "      line 3",
        "    - line 4",
        "    + line \\x1b[2Jfour",
        "      line 5",
        "      line 6",
        "    @ line 9",
        "      line 7",
        "    - line 8\\n",
        "    + line 8",
    ]


def test_long_lines_read_as_the_words_that_changed_and_some_around_them():
    before = (
        "The room has a desk and a window to the sea, costs 120 a night, and is booked until May."
    )
    assert [*map(str, describe(diff([before], [before.replace("120", "95")])))] == [
        "~ [0]",
        "    @ line 1",
        "    - …to the sea, costs 120 a night, and is…",
        "    + …to the sea, costs 95 a night, and is…",
    ]


def test_what_is_long_is_cut_unless_all_is_wanted():
    made = diff({}, {"a": "x" * 500})
    assert str(describe(made)[0]).endswith("x…")
    assert len(str(describe(made, most=None)[0])) == 507
    lines = diff("", "line\n" * 50)
    assert str(describe(lines)[-1]) == "    + … 30 more lines"
    assert len(describe(lines, most=None)) == 52


@settings(max_examples=100, deadline=None)
@given(pairs)
def test_no_line_holds_what_acts_on_a_terminal(pair):
    before, after = pair
    hostile = {"\x1b]0;x\x07": [before, "\u202ea\r"], "a\x9b": after}
    for line in describe(diff({"a": 1}, hostile)) + describe(diff(before, after), most=None):
        assert is_only_shown(str(line))


@example(("\u200c",))
@given(st.lists(keys | st.integers(0, 3) | st.text(max_size=3), max_size=4).map(tuple))
def test_places_are_told_apart(where):
    other = (*where, 0)
    assert place(where) != place(other)
    assert is_only_shown(place(where))


def is_only_shown(text: str) -> bool:
    """Whether a terminal shows a text, and does nothing else. Joiners only shape what is shown."""
    return text.replace("\u200c", "").replace("\u200d", "").isprintable()


def test_what_is_no_json_is_refused():
    with pytest.raises(BadInput, match="plain JSON"):
        diff([object()], [object(), 2])
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(BadInput, match="too deep"):
        diff(deep, [deep])
    assert must_lead({"a": nested(100)}, {"a": nested(101)})


def nested(depth: int) -> Any:
    return {"a": [nested(depth - 2)]} if depth > 1 else depth


@pytest.mark.parametrize("between", range(7))
def test_what_stands_between_two_places_is_shown_once_and_two_lines_at_each(between):
    kept = [f"kept {n}\n" for n in range(between)]
    text = "".join(["old\n", *kept, "old too\n"])
    found = hunks(text, text.replace("old too", "new too").replace("old\n", "new\n"))
    if between == 0:
        assert [(h.removed, h.ahead, h.behind) for h in found] == [("old\nold too\n", "", "")]
        return
    one, two = found
    assert (one.ahead, two.behind) == ("", "")
    assert one.behind == "".join(kept[:2]), "at most two lines behind the first"
    assert two.ahead == "".join(kept[2:][-2:]), "and at most two, of those not shown yet, ahead"


@pytest.mark.parametrize(
    ("length", "is_inside"), [(LONG - 1, False), (LONG, False), (LONG + 1, True)]
)
def test_a_text_is_looked_into_from_its_81st_character_on(length, is_inside):
    text = "x " * (length // 2) + "y" * (length % 2)
    assert len(text) == length
    for before, after in ((text, "z"), ("z", text)):
        [change] = diff(before, after).changes
        assert bool(change.hunks) is is_inside
    line = f"{text}\n"
    found = hunks(f"one\n{line}two\n", f"one\n{line.replace('x', 'X', 1)}two\n")
    assert [h.by for h in found] == ["words" if len(line) > LONG else "lines"]
    assert all(h.line == 2 for h in found)


def test_a_line_that_became_two_is_not_compared_by_its_words():
    long, other = "word " * 30 + "\n", "other " * 30 + "\n"
    for before, after in ((long, long[:-1] + " x\n" + other), (other + long, long[:-1] + "x\n")):
        assert [h.by for h in hunks(f"a\n{before}b\n", f"a\n{after}b\n")] == ["lines"]


@pytest.mark.parametrize(("count", "more"), [(19, ""), (20, ""), (21, "… 1 more lines")])
def test_twenty_lines_of_a_place_are_shown_and_how_many_more_there_are(count, more):
    added = [str(line) for line in describe(diff("", "line\n" * count))][2:]
    assert len(added) == min(count, 20) + bool(more)
    assert added[-1] == f"    + {more or 'line'}"


def test_words_at_an_end_of_their_text_have_nothing_left_out_there():
    middle = "the room has a desk and a window to the sea and costs one hundred and twenty a night"
    first, last = f"alpha {middle}", f"{middle} omega"
    assert [*map(str, describe(diff([first], [first.replace("alpha", "beta")])))][2:] == [
        "    - alpha the room has a …",
        "    + beta the room has a …",
    ]
    assert [*map(str, describe(diff([last], [last.replace("omega", "end")])))][2:] == [
        "    - … and twenty a night omega",
        "    + … and twenty a night end",
    ]


def test_a_value_is_cut_after_so_many_characters_and_not_before():
    for length, shown in ((97, "x" * 97 + '"'), (98, "x" * 98 + '"'), (99, "x" * 98 + "…")):
        assert str(describe(diff({}, {"a": "x" * length}))[0]) == f'+ a  "{shown}'
