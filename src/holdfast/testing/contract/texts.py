"""An index of texts says what is in the log, moves as a whole, and goes with its stream.

For stores that can search (`TextSearch`); of others these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pytest

from holdfast.store import Store, TextIndex, TextSearch
from holdfast.testing.contract.samples import LONG_S, at_once
from holdfast.texts import words_of, words_to_find

MEMORY = "memories/m"
HOSTILE_TEXTS = (
    "Zürich ZURICH zurich", "日本語の本", "Ωμέγα", "привет мир", "snake_case", "v2.10", "not",
    "1e5 0x1F 3.14", "near and or", "a" * 5000, "x " * 5000, "ßtraße ﬁsh", "𐐷 𝕙𝕚", "o'neill",
    'say "hi"', "user@example.com http://a.b/c?d=e#f", "한국어", "हिन्दी", "nul\0nul",
    " ".join(f"w{n}" for n in range(3000)),
)  # fmt: skip


class Texts:
    """Rule 12."""

    @pytest.fixture
    def index(self, store: Store) -> TextIndex:
        """The index of a store, with a stream to be indexed."""
        found = _index_of(store)
        _make(store, MEMORY)
        return found

    def test_a_line_is_found_by_each_of_its_words_and_no_other(self, index: TextIndex) -> None:
        assert index.upto(MEMORY) == 0
        _add(index, 0, 3, {2: "Ada wants a quiet room", 3: "Bob wants tea"})
        assert index.upto(MEMORY) == 3
        assert _found(index, "quiet") == _found(index, "ROOM!") == [2]
        assert _found(index, "tea") == [3]
        assert sorted(_found(index, "wants")) == sorted(_found(index, "tea quiet")) == [2, 3]
        assert _found(index, "coffee") == _found(index, "qui") == []
        assert _found(index, "coffee or tea") == [3]

    def test_the_best_match_comes_first_and_of_equal_ones_the_newest(
        self, index: TextIndex
    ) -> None:
        texts = {2: "a desk", 3: "a quiet room with a desk", 4: "a room", 5: "a room"}
        _add(index, 0, 5, texts)
        assert _found(index, "quiet desk room")[0] == 3
        assert [seq for seq in _found(index, "room") if seq > 3] == [5, 4]
        scores = [score for _, score in index.find(MEMORY, ["quiet", "desk"], 9)]
        assert scores == sorted(scores, reverse=True) and all(score > 0 for score in scores)
        assert _found(index, "room", limit=1) == [5]

    def test_it_goes_on_from_where_it_is_and_from_nowhere_else(self, index: TextIndex) -> None:
        _add(index, 0, 2, {2: "one"})
        _add(index, 2, 4, {3: "two", 4: "three"}, gone=[2])
        assert (_found(index, "one"), _found(index, "two three"), index.upto(MEMORY)) == (
            [], [4, 3], 4,
        )  # fmt: skip
        for after in (0, 2, 3, 5):
            _add(index, after, 9, {9: "nine"}, gone=[3])
            assert index.upto(MEMORY) == 4
        assert _found(index, "nine") == []
        assert _found(index, "two") == [3]

    def test_one_that_was_deleted_is_made_anew_from_the_beginning_only(
        self, index: TextIndex
    ) -> None:
        _add(index, 0, 2, {2: "one"})
        index.drop(MEMORY)
        index.drop(MEMORY)
        assert (index.upto(MEMORY), _found(index, "one")) == (0, [])
        _add(index, 2, 3, {3: "two"})
        assert (index.upto(MEMORY), _found(index, "two")) == (0, [])
        _add(index, 0, 3, {2: "one", 3: "two"})
        assert (index.upto(MEMORY), _found(index, "one")) == (3, [2])

    def test_of_many_who_bring_it_up_to_date_one_does(self, index: TextIndex, other: Store) -> None:
        theirs = _index_of(other)
        jobs = [
            partial(_add, each, 0, upto, {seq: f"word {seq}" for seq in range(2, upto + 1)})
            for upto in range(2, 8)
            for each in (index, theirs)
        ]
        at_once(jobs)
        upto = index.upto(MEMORY)
        assert upto in range(2, 8)
        for each in (index, theirs):
            assert each.upto(MEMORY) == upto
            assert sorted(_found(each, "word")) == list(range(2, upto + 1))

    def test_streams_are_apart(self, index: TextIndex, store: Store) -> None:
        _make(store, "memories/n")
        _add(index, 0, 2, {2: "one"})
        index.add("memories/n", 0, 3, [(3, ["one"])], [])
        assert [seq for seq, _ in index.find("memories/n", ["one"], 9)] == [3]
        assert _found(index, "one") == [2]
        index.drop("memories/n")
        assert _found(index, "one") == [2]
        assert index.find("memories/n", ["one"], 9) == []

    def test_it_goes_with_its_stream(self, index: TextIndex, store: Store) -> None:
        _add(index, 0, 2, {2: "one"})
        store.delete(store.acquire(MEMORY, "me", LONG_S))
        assert (index.upto(MEMORY), _found(index, "one")) == (0, [])
        _make(store, MEMORY)
        assert (index.upto(MEMORY), _found(index, "one")) == (0, [])
        _add(index, 0, 2, {2: "two"})
        assert (_found(index, "one"), _found(index, "two")) == ([], [2])

    def test_of_a_stream_that_is_not_there_nothing_is_known_or_kept(self, index: TextIndex) -> None:
        index.add("memories/nobody", 0, 2, [(2, ["one"])], [])
        assert index.upto("memories/nobody") == 0
        assert index.find("memories/nobody", ["one"], 9) == []
        index.drop("memories/nobody")

    def test_any_text_is_found_by_its_words(self, index: TextIndex) -> None:
        for text in HOSTILE_TEXTS:
            index.drop(MEMORY)
            _add(index, 0, 3, {2: text, 3: "another"})
            words = words_of(text)
            for word in dict.fromkeys([words[0], words[-1]]):
                assert _found(index, word) == [2], (text, word)
            assert _found(index, text) == [2], text


def _index_of(store: Store) -> TextIndex:
    found = store.text_index() if isinstance(store, TextSearch) else None
    if found is None:
        pytest.skip("the store has no index of texts")
    return found


def _make(store: Store, stream: str) -> None:
    lease = store.acquire(stream, "me", LONG_S)
    store.append(lease, 0, [b'{"id":"m","seq":1}'])
    store.sync(lease)
    store.release(lease)


def _add(
    index: TextIndex, after: int, upto: int, texts: dict[int, str], gone: Sequence[int] = ()
) -> None:
    index.add(MEMORY, after, upto, [(seq, words_of(text)) for seq, text in texts.items()], gone)


def _found(index: TextIndex, query: str, limit: int = 100) -> list[int]:
    return [seq for seq, _ in index.find(MEMORY, words_to_find(query), limit)]
