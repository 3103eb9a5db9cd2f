"""How values are kept and what they name: the sizes that decide, and each kind of reference."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from holdfast.core.decoding import Illegible
from holdfast.core.events import Completed, ListGrew, Started
from holdfast.errors import LogDamaged, TooLarge, Unserializable
from holdfast.log import values
from holdfast.log.values import (
    INLINE_BYTES,
    Naming,
    Reader,
    Reference,
    blob_of,
    blobs_in,
    fetch,
    items_of,
    lists_in,
    may_name,
    raws_in,
    references,
    stow,
)

D = "ab" * 32
E = "cd" * 32


class Kept:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.read: list[str] = []

    def put_blob(self, data: bytes) -> str:
        digest = sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def get_blob(self, digest: str) -> bytes:
        self.read.append(digest)
        if digest not in self.blobs:
            raise LogDamaged(f"blobs/{digest}", 0, "it is not there")
        return self.blobs[digest]


def text(size: int) -> bytes:
    return b'"%b"' % (b"x" * (size - 2))


def test_what_is_too_large_for_a_line_goes_to_a_blob():
    kept = Kept()
    assert bytes(stow(kept, text(INLINE_BYTES))) == text(INLINE_BYTES) and not kept.blobs
    large = stow(kept, text(INLINE_BYTES + 1))
    assert msgspec.json.decode(large) == {"$blob": next(iter(kept.blobs)), "size_bytes": 65537}
    assert fetch(kept, large, {}, dict) == text(INLINE_BYTES + 1)
    for looks_like_one in (b'{"$blob":1}', b'{"$lists":[]}'):
        assert fetch(kept, stow(kept, looks_like_one), {}, dict) == looks_like_one
        assert len(bytes(stow(kept, looks_like_one))) > 64
    assert fetch(kept, stow(kept, text(70_000), 70_000), {}, dict) == text(70_000)
    with pytest.raises(TooLarge, match="a value of 70,001 bytes is above the limit of 70,000"):
        stow(kept, text(70_001), 70_000)
    assert bytes(stow(kept, text(100), 10)) == text(100), "what fits a line always does"
    with pytest.raises(Unserializable, match="nested more than"):
        stow(kept, b"[" * 2000 + b"]" * 2000)


def grew(digest: str, length: int, base: str, items: bytes) -> ListGrew:
    return ListGrew(digest=digest, length=length, base=base, items=Raw(items))


LISTS = {"a": grew("a", 2, "", b"[1,2]"), "b": grew("b", 3, "a", b'["x"]')}
NAMED = Raw(b'{"$lists":[[["m"],3,"b"]],"value":{"m":null,"n":1}}')


def test_a_value_gets_its_lists_again_from_the_state_or_from_the_whole_log():
    kept, asked = Kept(), []

    def all_lists() -> Any:
        asked.append(1)
        return LISTS

    assert fetch(kept, NAMED, LISTS, all_lists) == b'{"m":[1,2,"x"],"n":1}' and not asked
    assert fetch(kept, NAMED, {"b": LISTS["b"]}, all_lists) == b'{"m":[1,2,"x"],"n":1}' and asked
    with pytest.raises(Illegible, match=r"a list that is not in its log \(b\)"):
        fetch(kept, NAMED, {}, dict)
    stowed = stow(kept, b"[7,8]")
    large = Raw(b'{"$blob":"%b","size_bytes":5}' % kept.put_blob(b"[7,8]").encode())
    assert items_of(kept, grew("c", 2, "", bytes(large))) == b"7,8" and bytes(stowed) == b"[7,8]"
    assert items_of(kept, ListGrew(digest="c", length=0)) == b""


def test_a_reader_shares_the_items_of_lists_and_reads_the_log_once():
    asked: list[int] = []

    def all_lists() -> Any:
        asked.append(1)
        return LISTS

    reader = Reader(Kept(), "tasks/t", {}, all_lists)
    assert reader.plain(NAMED) == {"m": [1, 2, "x"], "n": 1}
    assert reader.plain(Raw(b'{"$lists":[[[],2,"a"]],"value":null}')) == [1, 2]
    deep = Raw(b'{"$lists":[[["k",0],2,"a"]],"value":{"k":[null,3]}}')
    assert reader.plain(deep) == {"k": [[1, 2], 3]}
    assert asked == [1] and reader.plain(Raw(b'{"n":1}')) == {"n": 1}
    with pytest.raises(LogDamaged, match="not in its log"):
        reader.plain(Raw(b'{"$lists":[[[],2,"lost"]],"value":null}'))
    for lengths in ((3, 3), (3, 4)):
        round_ = {
            "a": grew("a", lengths[0], "b", b"[1]"),
            "b": grew("b", lengths[1], "a", b"[1]"),
        }
        with pytest.raises(LogDamaged, match="items comes before a shorter one"):
            Reader(Kept(), "tasks/t", round_, dict).plain(
                Raw(b'{"$lists":[[[],2,"a"]],"value":null}')
            )


def test_the_values_in_an_event_are_found_in_what_it_holds_too():
    started = Started(path="1", name="n", args=Raw(b"1"))
    assert [bytes(raw) for raw in raws_in(started)] == [b"1"]
    assert [bytes(raw) for raw in raws_in(Completed(path="1", result=Raw(b"2")))] == [b"2"]
    assert lists_in(NAMED) == ["b"] and lists_in(Raw(b'{"a":1}')) == []
    assert lists_in(Raw(b'{"$lists":1}')) == []
    blob = b'{"$blob":"%b","size_bytes":1}' % D.encode()
    assert list(blobs_in(Raw(blob))) == [D] and list(blobs_in(Raw(b"[1]"))) == []
    assert list(blobs_in(Raw(b'{"$lists":[],"value":%b}' % blob))) == [D]
    assert list(blobs_in(Raw(b'{"$blob":1}'))) == ['{"$blob":1}']


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ('{"$blob":"%s","size_bytes":1}', [Reference(D, "blob", True)]),
        ('{"a":{"$parts":"%s"}}', [Reference(D, "parts", True)]),
        ('[{"$part" : "%s"}]', [Reference(D, "part", True)]),
        (r'"{\"$blob\":\"%s\"}"', [Reference(D, "blob", False)]),
        (r'{\"$blob":"%s"}', [Reference(D, "blob", False)]),
        (r'{"$blob\":"%s"}', [Reference(D, "blob", False)]),
        ('{"$type":"Artifact","of":{"digest":"%s"}}', [Reference(D, "parts", False)]),
        (
            '{"$blob":"%s"}{"$part":"%s"}'.replace("%s", D),
            [Reference(D, "blob", True), Reference(D, "part", True)],
        ),
        ('{"$blob":"%s"}'.replace("%s", D[:-1]), []),
        ('{"blob":"%s"}', []),
        ('{"$bloc":"%s"}', []),
    ],
)
def test_what_names_a_blob_is_found_and_whether_it_surely_does(data, found):
    data = data.replace("%s", D)
    assert list(references(data.encode())) == found
    assert may_name(data.encode()) or not found


def test_what_a_blob_names_is_followed_to_the_end_and_read_once():
    kept = Kept()
    part = kept.put_blob(b'{"$blob":"%b"}' % D.encode())  # content, whatever it looks like
    parts = kept.put_blob(b'{"parts":[{"$part":"%b"}]}' % part.encode())
    value = kept.put_blob(b'{"$parts":"%b"}' % parts.encode())
    naming = Naming(kept.get_blob)
    data = b'{"$blob":"%b"}' % value.encode()
    assert naming.named_by([data, data]) == {value, parts, part}
    assert naming.named_by([data]) == {value, parts, part}
    assert sorted(kept.read) == sorted([value, parts])
    text_of_a_user = rb"{\"$blob\":\"%b\"}" % D.encode()
    assert naming.named_by([text_of_a_user]) == {D}
    assert blob_of(Reference(D, "blob", False), kept.get_blob) is None
    with pytest.raises(LogDamaged):
        blob_of(Reference(D, "blob", True), kept.get_blob)
    with pytest.raises(LogDamaged):
        naming.named_by([b'{"$blob":"%b"}' % E.encode()])
    assert [Reference(D, kind, True).names_more for kind in ("blob", "parts", "part")] == [
        *(True, True, False)
    ]
    assert values.may_name(b'{"x":"Artifact"}') and not may_name(b'{"x":1}')
