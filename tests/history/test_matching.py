"""Which items of two lists belong together: the parts that bound the work, and those that judge."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.history.matching import (
    _alike,
    _by_the_rare,
    _in_place,
    _increasing,
    _names,
    common,
    ends,
    gaps,
    in_order,
    matched,
)

Pairs = list[tuple[int, int]]
letters = st.lists(st.sampled_from("abcdef"), max_size=9)


def must_be_in_order(pairs: Pairs, before: Any, after: Any) -> None:
    assert all(before[i] == after[j] for i, j in pairs)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(pairs))


def longest_increasing(pairs: Pairs) -> int:
    for length in range(len(pairs), 0, -1):
        for chosen in combinations(pairs, length):
            if all(a[1] < b[1] for a, b in pairwise(chosen)):
                return length
    return 0


@given(letters, letters)
def test_lists_that_differ_a_lot_are_matched_by_what_each_has_once(before, after):
    found = _by_the_rare(before, after)
    must_be_in_order(found, before, after)
    once = [x for x in before if before.count(x) == after.count(x) == 1]
    places = [(before.index(x), after.index(x)) for x in once]
    assert sum(pair in found for pair in places) >= longest_increasing(places)
    head, tail = ends(before, after)
    if not once:
        assert len(found) == head + tail


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ("", "", []),
        ("aa", "aa", [(0, 0), (1, 1)]),
        ("xaay", "xaaay", [(0, 0), (1, 1), (2, 2), (3, 4)]),
        ("aaxbb", "aaaxbbb", [(0, 0), (1, 1), (2, 3), (3, 4), (4, 5)]),
        ("cxc", "ccxcc", [(0, 0), (1, 2), (2, 3)]),
        ("ab", "ba", [(1, 0)]),
        ("aab", "ab", [(2, 1), (0, 0)]),
    ],
)
def test_what_stands_next_to_the_rare_is_matched_too(before, after, pairs):
    assert sorted(_by_the_rare(list(before), list(after))) == sorted(pairs)


@given(st.permutations(range(6)), st.integers(0, 6))
def test_as_many_pairs_as_can_be_had_with_both_places_going_up(places, length):
    pairs = list(enumerate(places[:length]))
    found = _increasing(pairs)
    assert set(found) <= set(pairs)
    assert all(one[1] < two[1] for one, two in pairwise(found))
    assert len(found) == longest_increasing(pairs)


@given(letters, letters)
def test_the_gaps_and_the_pairs_are_all_there_is(before, after):
    pairs = common(before, after)
    must_be_in_order(pairs, before, after)
    olds, news = [i for i, _ in pairs], [j for _, j in pairs]
    for i, i_end, j, j_end in gaps(pairs, len(before), len(after)):
        assert i < i_end or j < j_end
        olds += range(i, i_end)
        news += range(j, j_end)
    assert sorted(olds) == list(range(len(before))) and sorted(news) == list(range(len(after)))
    head, tail = ends(before, after)
    assert before[:head] == after[:head] and head + tail <= min(len(before), len(after))
    assert tail == 0 or before[-tail:] == after[-tail:]
    assert in_order("".join(dict.fromkeys(before)), "xyz") == []


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        (1, 1, 0.0),
        (1, True, 0.0),
        ({}, [], 0.0),
        ({}, {}, 0.0),
        ({"a": 1}, {"a": 1}, 1.0),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, 0.5),
        ({"a": 1}, {"a": 1, "b": 3}, 0.5),
        ({"a": 1, "b": 2}, {"b": 1, "a": 2}, 0.0),
        ("abcd", "abxd", 0.75),
        ("", "", 0.0),
        ([1, 2], [1, 2, 3, 4], 0.5),
        ([1, 2, 3, 4], [4], 0.25),
    ],
)
def test_how_much_two_items_have_in_common(one, other, share):
    assert _alike(one, other) == _alike(other, one) == share


@pytest.mark.parametrize(
    ("olds", "news", "pairs"),
    [
        (["abc", "xyz"], ["123", "456"], [(0, 0), (1, 1)]),
        (["abcdef"], ["123456", "abcdeX"], [(0, 1)]),
        (["abcdef"], ["abcdeX", "123456"], [(0, 0)]),
        (["abcdef", "ghijkl"], ["ghijkX"], [(1, 0)]),
        (["abcdef", "ghijkl"], ["zzzzzz"], []),
        (["abcdef", "ghijkl"], ["abcdeX", "zz", "ghijkX"], [(0, 0), (1, 2)]),
        (["abcdefghij"], ["abcXXXXXXX", "z"], [(0, 0)]),
        (["abcdefghij"], ["abXXXXXXXX", "z"], []),
        (["abcdef", "abcdef"], ["abcdef"], [(0, 0)]),
        (["a"] * 21, ["b"] * 20, [(n, n) for n in range(20)]),
        (["a"] * 20, ["b"] * 19, []),
    ],
)
def test_which_items_stand_in_the_place_of_which(olds, news, pairs):
    assert _in_place(olds, news) == pairs


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ([{"id": "a"}, {"id": 2}], ["a", 2]),
        ([{"id": "a"}, {"id": "a"}], []),
        ([{"id": True}], []),
        ([{"id": None}], []),
        ([{"id": 1.5}], []),
        ([{"id": "a"}, {"x": "a"}], []),
        ([{"id": "a"}, "a"], []),
        ([], []),
    ],
)
def test_items_are_known_by_names_of_their_own_or_not_at_all(items, names):
    assert list(_names(items, "id")) == names


def test_items_with_names_are_matched_by_the_first_field_that_names_some_on_both_sides():
    before = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    after = [{"id": 3, "name": "b"}, {"id": 4, "name": "c"}]
    assert matched(before, after) == [(1, 0)]
    assert matched(before, [{"id": 2, "name": "a"}]) == [(1, 0)]
    assert matched([], after) == matched(before, []) == []
    assert matched(["a", "b"], ["b"]) == [(1, 0)]


words = st.lists(st.sampled_from(["abcd", "abce", "abxx", "zzzz", "zzzy", "q"]), max_size=4)


@given(words, words)
def test_items_are_matched_so_that_most_is_in_common(olds, news):
    if len(olds) == len(news):
        return
    ways: list[Pairs] = [[]]
    for i in range(len(olds)):
        ways += [
            [*way, (i, j)]
            for way in ways
            for j in range(way[-1][1] + 1 if way else 0, len(news))
            if _alike(olds[i], news[j]) >= 0.3
        ]

    def share(way: Pairs) -> float:
        return sum(_alike(olds[i], news[j]) for i, j in way)

    found = _in_place(olds, news)
    assert found in ways and share(found) == max(map(share, ways))
