"""Data derived from a stream is kept beside it, replaced as a whole, and goes with it."""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.log.store_calls import acquire_one
from holdfast.stores.port import Store
from holdfast.testing.contract.samples import HOSTILE_NAMES, LONG_S, STREAM, at_once, begun

LARGE = bytes(range(256)) * 1000


def _names(store: Store, stream: str = STREAM) -> list[str]:
    return sorted(row.name for row in store.get_side([stream], "derived", only_names=True))


def _got(store: Store, *names: str, stream: str = STREAM) -> dict[str, bytes]:
    return {row.name: row.data for row in store.get_side([stream], "derived", names)}


class DerivedBesideStreams:
    """Rule 12."""

    @pytest.fixture
    def kept(self, store: Store) -> Store:
        """A store with a stream to keep something beside."""
        store.release([begun(store)])
        return store

    def test_what_is_derived_comes_back_as_it_was_for_everybody(
        self, kept: Store, other: Store
    ) -> None:
        given = {"1024.head": b"", "1024.calls": LARGE, "2048.head": b"two\n\0"}
        for name, data in given.items():
            assert kept.put_side(STREAM, "derived", name, data)
        for each in (kept, other):
            assert _names(each) == sorted(given)
            assert _got(each, "1024.head", "2048.head", "4096.head") == {
                "1024.head": b"",
                "2048.head": b"two\n\0",
            }
            assert _got(each, "1024.calls") == {"1024.calls": LARGE}
            assert _got(each) == {}
            found = each.get_side([STREAM, "tasks/nobody"], "derived")
            assert {(row.stream, row.name): row.data for row in found} == {
                (STREAM, name): data for name, data in given.items()
            }

    def test_one_that_is_put_again_replaces_the_one_before(self, kept: Store) -> None:
        for data in (LARGE, b"one", LARGE + b"two"):
            kept.put_side(STREAM, "derived", "7.head", data)
            assert _got(kept, "7.head") == {"7.head": data}
        assert _names(kept) == ["7.head"]

    def test_of_many_who_put_the_same_one_is_there_whole(self, kept: Store, other: Store) -> None:
        several = [bytes([n]) * 50_000 for n in range(6)]
        jobs = [
            partial(each.put_side, STREAM, "derived", "7.head", data)
            for data in several
            for each in (kept, other)
        ]
        at_once(jobs)
        assert _got(kept, "7.head")["7.head"] in several

    def test_one_is_dropped_or_all_and_the_log_and_the_inbox_stay(self, kept: Store) -> None:
        kept.put_side(STREAM, "inbox", "7.head", b"message")
        for name in ("7.head", "8.head", "9.head"):
            kept.put_side(STREAM, "derived", name, b"x")
        before = list(kept.read(STREAM))
        for _ in range(2):
            kept.drop_side(STREAM, "derived", "7.head")
            assert _names(kept) == ["8.head", "9.head"]
        for _ in range(2):
            kept.drop_side(STREAM, "derived")
            assert (_names(kept), _got(kept, "8.head")) == ([], {})
        assert list(kept.read(STREAM)) == before
        assert [post.name for post in kept.get_side([STREAM], "inbox")] == ["7.head"]

    def test_a_name_that_is_no_number_and_word_is_not_kept(self, kept: Store) -> None:
        for name in ("head", "7", "../8.head", "7.head/x", "x.head", "7.", ""):
            assert not kept.put_side(STREAM, "derived", name, b"x")
            assert _got(kept, name) == {}
            kept.drop_side(STREAM, "derived", name)
        assert _names(kept) == []

    def test_it_goes_with_its_stream(self, kept: Store) -> None:
        kept.put_side(STREAM, "derived", "7.head", b"x")
        kept.rename(acquire_one(kept, STREAM, "me", LONG_S), "tasks/another")
        assert _names(kept) == []
        # In a store that is encrypted or signed it may be bound to the name.
        assert _got(kept, "7.head", stream="tasks/another") in ({"7.head": b"x"}, {})
        kept.delete(acquire_one(kept, "tasks/another", "me", LONG_S))
        kept.release([begun(kept, "tasks/another")])
        assert _names(kept, "tasks/another") == []

    def test_beside_a_stream_that_is_not_there_nothing_is_kept(self, kept: Store) -> None:
        kept.put_side("tasks/nobody", "derived", "7.head", b"x")
        assert _names(kept, "tasks/nobody") == []
        assert _got(kept, "7.head", stream="tasks/nobody") == {}
        kept.drop_side("tasks/nobody", "derived")

    def test_streams_of_any_name_are_apart(self, kept: Store) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            kept.release([begun(kept, f"tasks/{name}")])
            kept.put_side(f"tasks/{name}", "derived", "7.head", b"%d" % number)
        for number, name in enumerate(HOSTILE_NAMES):
            found = _got(kept, "7.head", stream=f"tasks/{name}")
            assert found == {"7.head": b"%d" % number}
