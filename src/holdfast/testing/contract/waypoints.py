"""Waypoints are kept beside a stream, replaced as a whole, and go with it.

For stores that keep them (`WaypointStore`); of others these tests are skipped.
"""

from __future__ import annotations

from functools import partial

import pytest

from holdfast.store import Store, Waypoints, WaypointStore
from holdfast.testing.contract.samples import HOSTILE_NAMES, LONG_S, STREAM, at_once, begun

LARGE = bytes(range(256)) * 1000


class WaypointsOfStreams:
    """Rule 13."""

    @pytest.fixture
    def kept(self, store: Store) -> Waypoints:
        """The waypoints of a store, with a stream to have some."""
        found = _waypoints_of(store)
        store.release(begun(store))
        return found

    def test_a_part_comes_back_as_it_was_for_everybody(self, kept: Waypoints, other: Store) -> None:
        kept.put(STREAM, 1024, "head", b"")
        kept.put(STREAM, 1024, "calls", LARGE)
        kept.put(STREAM, 2048, "head", b"two\n\0")
        for each in (kept, _waypoints_of(other)):
            assert sorted(each.seqs(STREAM)) == [1024, 2048]
            found = each.get(STREAM, [1024, 2048, 4096], "head")
            assert dict(found) == {1024: b"", 2048: b"two\n\0"}
            assert dict(each.get(STREAM, [1024], "calls")) == {1024: LARGE}
            assert dict(each.get(STREAM, [], "head")) == {}

    def test_one_that_is_put_again_replaces_the_one_before(self, kept: Waypoints) -> None:
        for data in (LARGE, b"one", LARGE + b"two"):
            kept.put(STREAM, 7, "head", data)
            assert dict(kept.get(STREAM, [7], "head")) == {7: data}
        assert list(kept.seqs(STREAM)) == [7]

    def test_of_many_who_put_the_same_one_is_there_whole(
        self, kept: Waypoints, other: Store
    ) -> None:
        theirs = _waypoints_of(other)
        several = [bytes([n]) * 50_000 for n in range(6)]
        jobs = [
            partial(each.put, STREAM, 7, "head", data)
            for data in several
            for each in (kept, theirs)
        ]
        at_once(jobs)
        assert kept.get(STREAM, [7], "head")[7] in several

    def test_they_are_deleted_and_the_log_stays(self, kept: Waypoints, store: Store) -> None:
        kept.put(STREAM, 7, "head", b"x")
        before = list(store.read(STREAM))
        for _ in range(2):
            kept.drop(STREAM)
            assert (list(kept.seqs(STREAM)), dict(kept.get(STREAM, [7], "head"))) == ([], {})
        assert list(store.read(STREAM)) == before

    def test_they_go_with_their_stream(self, kept: Waypoints, store: Store) -> None:
        kept.put(STREAM, 7, "head", b"x")
        store.rename(store.acquire(STREAM, "me", LONG_S), "tasks/another")
        assert list(kept.seqs(STREAM)) == []
        # In a store that is encrypted or signed they may be bound to the name.
        assert dict(kept.get("tasks/another", [7], "head")) in ({7: b"x"}, {})
        store.delete(store.acquire("tasks/another", "me", LONG_S))
        store.release(begun(store, "tasks/another"))
        assert list(kept.seqs("tasks/another")) == []

    def test_of_a_stream_that_is_not_there_nothing_is_kept(self, kept: Waypoints) -> None:
        kept.put("tasks/nobody", 7, "head", b"x")
        assert list(kept.seqs("tasks/nobody")) == []
        assert dict(kept.get("tasks/nobody", [7], "head")) == {}
        kept.drop("tasks/nobody")

    def test_streams_of_any_name_are_apart(self, kept: Waypoints, store: Store) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            store.release(begun(store, f"tasks/{name}"))
            kept.put(f"tasks/{name}", 7, "head", b"%d" % number)
        for number, name in enumerate(HOSTILE_NAMES):
            assert dict(kept.get(f"tasks/{name}", [7], "head")) == {7: b"%d" % number}


def _waypoints_of(store: Store) -> Waypoints:
    found = store.waypoints() if isinstance(store, WaypointStore) else None
    if found is None:
        pytest.skip("the store keeps no waypoints")
    return found
