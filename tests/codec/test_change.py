"""What changed between two plain values leads from the one to the other, exactly."""

from __future__ import annotations

import copy
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.codec.change import change_between, patched, patched_state

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-300]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text("ab=[{\u00e9", max_size=3),
)
keys = st.text("abc0=", max_size=2)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=25,
)


def written(value: Any) -> bytes:
    """A value with its types and its order of keys: 1, 1.0 and true, 0.0 and -0.0 differ."""
    return msgspec.json.encode(value)


def stored(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def must_lead(old: Any, new: Any) -> Any:
    """The change between two values, as it is stored, after a look at where it leads."""
    before, after = written(old), written(new)
    change = stored(change_between(old, new))
    assert (written(old), written(new)) == (before, after), "finding a change changes nothing"
    assert written(patched(copy.deepcopy(old), change)) == after
    assert (change is None) == (before == after)
    return change


@given(plain, plain)
def test_a_change_leads_from_the_one_to_the_other_exactly(old, new):
    must_lead(old, new)


@given(plain)
def test_what_is_the_same_has_no_change(value):
    assert change_between(value, copy.deepcopy(value)) is None


@given(st.lists(plain, min_size=1, max_size=8))
def test_many_changes_in_a_row_lead_to_the_last_value(values):
    changes = [stored(change_between(old, new)) for old, new in pairwise(values)]
    found = patched_state(copy.deepcopy(values[0]), changes)
    assert written(found) == written(values[-1])


@given(
    st.lists(st.lists(scalars, max_size=2) | scalars, max_size=30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.lists(scalars, max_size=4),
    st.integers(0, 30),
    scalars,
)
def test_a_window_that_moves_grows_shrinks_or_changes_inside(items, cut, end, added, at, other):
    new = [*copy.deepcopy(items[cut:end]), *added]
    if at < len(new):
        new[at] = other
    must_lead(items, new)


@given(st.dictionaries(keys, plain, max_size=5), st.permutations(range(5)))
def test_the_order_of_keys_is_part_of_the_value(value, order):
    names = list(value)
    shuffled = {names[n]: value[names[n]] for n in order if n < len(names)}
    must_lead(value, shuffled)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (0.0, -0.0),
        (0, 0.0),
        (0, False),
        (1, True),
        ([0], [False]),
        ([0, 1], [0.0, True]),
        ({"a": 0.0}, {"a": -0.0}),
        ([[0.0]], [[-0.0]]),
        ([1, 2, 3], [True, 2, 3]),
        ([1, 1.0, 1], [1.0, 1]),
        ([], {}),
        ({}, []),
        (None, {}),
        ([None], []),
        ([], [None]),
        ({"a": None}, {}),
        ({}, {"a": None}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"a": 1, "b": 2}, {"b": 3, "a": 1, "c": 4}),
        ({"": {"": {}}}, {"": {"": []}}),
        ([["=", 1]], [["=", 2]]),
        ({"=": ["{", {}, []]}, {"=": ["[", 0, {}, 0, []]}),
        ([1, 2, 3, 4], [3, 4, 5, 6]),
        ([1, 2, 3, 4], [4]),
        ([1, 2, 3, 4], [9, 4]),
        (["a"] * 5, ["a"] * 3),
        (["a", "b", "a"], ["b", "a", "b", "a"]),
        (2**64 - 1, -(2**63)),
    ],
)
def test_values_that_look_alike_are_told_apart(old, new):
    assert must_lead(old, new) is not None
    must_lead([old], [new])
    must_lead({"k": old}, {"k": new})
    must_lead([old, new], [new, old])


def test_a_growing_list_costs_its_new_items():
    messages = [{"role": "user", "content": f"{n:400}"} for n in range(1000)]
    one = len(written(messages[0]))
    for n in (1, 10, 999):
        change = must_lead({"messages": messages[:n]}, {"messages": messages[: n + 1]})
        assert len(written(change)) < one + 60
    change = must_lead({"messages": messages[:500]}, {"messages": messages})
    assert len(written(change)) < 500 * (one + 1) + 60


@pytest.mark.parametrize("gone", [1, 2, 40, 63])
def test_a_window_that_moves_costs_its_new_items(gone):
    messages = [f"message {n:400}" for n in range(200)]
    change = must_lead(messages[:100], messages[gone : 100 + gone])
    assert len(written(change)) < gone * (len(written(messages[0])) + 1) + 60


def test_one_changed_item_of_a_long_list_costs_that_item():
    old = [{"id": n, "state": {"tries": 0, "text": "x" * 400}} for n in range(1000)]
    new = copy.deepcopy(old)
    new[700]["state"]["tries"] = 1
    assert len(written(must_lead(old, new))) < 80


def test_a_list_that_lost_its_end_costs_next_to_nothing():
    old = [f"message {n:400}" for n in range(100)]
    assert len(written(must_lead(old, old[:40]))) < 40


def test_a_deep_value_is_no_trouble():
    old: Any = 1
    new: Any = 2
    for _ in range(200):
        old, new = {"a": [old]}, {"a": [new]}
    must_lead(old, new)
