"""Long lists taken out of values and put in again: the sizes that decide, and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from holdfast.core.decoding import Illegible
from holdfast.core.events import ListGrew
from holdfast.core.lists import (
    FEWEST_BYTES,
    FEWEST_COPIED,
    FEWEST_ITEMS,
    LISTED,
    ListPlace,
    Sum,
    count_of,
    digest_of,
    for_hashing,
    form_of,
    in_short,
    is_long,
    listed,
    newest,
    pieces,
    value_of,
    version_of,
    whole,
    with_results,
    without_lists,
    without_results,
)

encode = msgspec.json.encode


def array(count: int, size: int = 140, start: int = 0) -> bytes:
    """A JSON array of so many texts, each of so many bytes with its quotes."""
    return b"[%b]" % b",".join(b'"%0*d"' % (size - 2, n) for n in range(start, start + count))


@pytest.mark.parametrize(
    ("count", "size", "long"),
    [
        (FEWEST_ITEMS, FEWEST_BYTES // FEWEST_ITEMS, True),
        (FEWEST_ITEMS, FEWEST_BYTES // FEWEST_ITEMS - 1, False),
        (FEWEST_ITEMS - 1, FEWEST_BYTES, False),
        (FEWEST_BYTES // 8, 8, True),
        (FEWEST_BYTES // 8 - 1, 8, False),
    ],
)
def test_a_list_is_long_by_its_items_and_their_bytes(count, size, long):
    data = array(count, size)
    assert is_long(count, data) is long
    assert without_lists(data) == ((b"null", [((), data)]) if long else (data, []))
    assert (value_of(for_hashing(data)) == b"null") if long else for_hashing(data) == data


LONG = array(FEWEST_ITEMS)


def deep(levels: int, inside: bytes) -> bytes:
    for _ in range(levels):
        inside = b'{"a":%b}' % inside
    return inside


@pytest.mark.parametrize(
    ("data", "left", "paths"),
    [
        (b'{"a":%b}' % LONG, b'{"a":null}', [("a",)]),
        (b'[1,%b,"x"]' % LONG, b'[1,null,"x"]', [(1,)]),
        (b'{"a":%b,"b":{"c":[%b]}}' % (LONG, LONG), None, [("a",), ("b", "c", 0)]),
        (deep(6, LONG), deep(6, b"null"), [("a",) * 6]),
        (deep(7, LONG), deep(7, LONG), []),
        (b'"%b"' % (b"[" * 2000), b'"%b"' % (b"[" * 2000), []),
        (b'{"a":"%b"}' % (b"[" * 2000), b'{"a":"%b"}' % (b"[" * 2000), []),
    ],
)
def test_long_lists_are_taken_out_wherever_they_stand_and_put_in_again(data, left, paths):
    found, lists = without_lists(data)
    assert found == (left or b'{"a":null,"b":{"c":[null]}}')
    assert lists == [(path, LONG) for path in paths]
    places = [ListPlace(path, FEWEST_ITEMS, digest_of(LONG)) for path in paths]
    named = listed(found, places)
    assert form_of(named).places == tuple(sorted(places)) and value_of(named) == found
    assert whole(named, lambda place: LONG, bytes) == data
    if paths:
        assert named.startswith(LISTED)
        assert in_short(named) == (left or found).replace(b"null", '"… 8 items"'.encode())
    assert in_short(data) == data


def test_the_hash_of_arguments_knows_their_lists_one_level_deep():
    direct, below = b'{"a":%b}' % LONG, b'{"a":{"b":%b}}' % LONG
    named = listed(b'{"a":null}', [ListPlace(("a",), 8, digest_of(LONG))])
    assert for_hashing(direct) == named == for_hashing(named)
    assert for_hashing(below) == below
    both = listed(b'{"a":null,"b":%b}' % LONG, [ListPlace(("a",), 8, digest_of(LONG))])
    assert [place.path for place in form_of(for_hashing(both)).places] == [("a",), ("b",)]


@pytest.mark.parametrize(
    "data",
    [
        b'{"$lists":1,"value":1}',
        b'{"$lists":[[["b"],1,"x"]],"value":{"a":null}}',
        b'{"$lists":[[[3],1,"x"]],"value":[null]}',
        b'{"$lists":[[["a"],1,"x"]],"value":[null]}',
        b'{"$lists":[[[0],1,"x"]],"value":{"a":1}}',
        b'{"$lists":[[["a"],1,"x"]]}',
    ],
)
def test_a_value_that_names_its_lists_in_a_way_that_makes_no_sense_is_refused(data):
    with pytest.raises(Illegible, match="names its lists in a way that makes no sense"):
        whole(data, lambda place: b"[]", bytes)


items = st.lists(st.integers(0, 3) | st.dictionaries(st.sampled_from("ab"), st.integers()))


@given(items, items)
def test_the_sum_of_a_list_is_that_of_its_parts(one, two):
    total = Sum().add(encode(one))
    before = total.digest()
    copy = total.copy().add(encode(two))
    assert copy.digest() == digest_of(encode(one + two)) and total.digest() == before
    assert len(before) == 32 and (copy.digest() == before) is (not two)


def grew(data: bytes, length: int, base: str = "") -> ListGrew:
    return ListGrew(digest=digest_of(data), length=length, base=base, items=Raw(data))


def test_a_list_goes_on_from_the_longest_one_that_it_begins_with():
    ten, twelve, other = array(10), array(12), array(11, start=5)
    stored = {each.digest: each for each in (grew(ten, 10), grew(twelve, 12), grew(other, 11))}
    parts = msgspec.json.decode(array(15), type=list[Raw])
    version, total = version_of(array(15), 15, stored)
    assert version.base is not None and (version.base.digest, version.base.length) == (
        digest_of(twelve),
        12,
    )
    assert version.items == b",".join(map(bytes, parts[12:])) and version.length == 15
    assert version.digest == total.digest() == digest_of(array(15))
    same, _ = version_of(twelve, 12, stored)
    assert same.base is not None and same.base.length == 12 and same.items == b""
    shorter, _ = version_of(array(11), 11, stored)
    assert shorter.base is not None and shorter.base.length == 10
    new, total = version_of(array(9), 9, stored)
    assert new.base is None and b"[%b]" % new.items == array(9) and new.digest == total.digest()
    alone, _ = version_of(array(15, start=3), 15, stored)
    assert alone.base is None and b"[%b]" % alone.items == array(15, start=3)
    version.is_stored()
    assert (version.base, version.items) == (None, b"")


RESULT = b'"%b"' % (b"r" * (FEWEST_COPIED - 2))
RECENT = {RESULT: ("7", 52), RESULT[1:]: ("8", 60)}


@pytest.mark.parametrize(
    ("data", "left", "copied"),
    [
        (b"[%b]" % RESULT, b"[null]", (((0,), "7", 52),)),
        (b'[1,{"t":%b}]' % RESULT, b'[1,{"t":null}]', (((1, "t"), "7", 52),)),
        (b'[{"t":[2,%b]}]' % RESULT, b'[{"t":[2,null]}]', (((0, "t", 1), "7", 52),)),
        (
            b"[%b,3,%b]" % (RESULT, RESULT),
            b"[null,3,null]",
            (((0,), "7", 52), ((2,), "7", 52)),
        ),
        (b"[%b]" % deep(6, RESULT), b"[%b]" % deep(6, b"null"), (((0, *"aaaaaa"), "7", 52),)),
        (b"[%b]" % deep(7, RESULT), b"[%b]" % deep(7, RESULT), ()),
        (b'[1,"other"]', b'[1,"other"]', ()),
    ],
)
def test_what_is_the_result_of_a_call_is_left_out_and_put_in_again(data, left, copied):
    assert without_results(data, RECENT) == (left, copied)
    assert without_results(data, {}) == (data, ())
    asked: list[Any] = []

    def result_of(path: str, seq: int) -> bytes:
        asked.append((path, seq))
        return RESULT

    assert with_results(left, copied, result_of) == data
    assert asked == [(path, seq) for _, path, seq in copied]


def test_a_short_result_is_not_worth_a_reference():
    short = b'"%b"' % (b"r" * (FEWEST_COPIED - 3))
    assert without_results(b"[%b]" % short, {short: ("1", 1)}) == (b"[%b]" % short, ())


def test_the_newest_lists_are_carried_and_a_piece_that_is_not_known_is_no_list():
    lists = {f"d{n}": ListGrew(digest=f"d{n}", length=n, base="") for n in range(20)}
    assert newest(lists) == tuple((f"d{n}", n) for n in range(4, 20))
    assert newest({}) == ()
    assert pieces(lists, "d3") is None, "it has no items"
    assert list(pieces(lists, "") or ()) == []
    known = {"a": grew(b"[1]", 1), "b": ListGrew(digest="b", length=2, base="a", items=UNSET)}
    assert pieces(known, "b") is None and count_of(b"[1,2,[3]]") == 3
