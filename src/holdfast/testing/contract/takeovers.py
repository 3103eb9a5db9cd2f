"""A holder that was silent for too long, and what it may still do: nothing that counts.

Whether it went silent in this process or in another must make no difference, so each test is run
with a taker that is the same store object and with one that is another.
"""

from __future__ import annotations

import pytest

from holdfast.errors import Conflict, LeaseLost, TaskBusy
from holdfast.store import Facts, Store
from holdfast.testing.contract.samples import (
    AT,
    LONG_S,
    SHORT_S,
    STREAM,
    begun,
    hung,
    lines_of,
    run_out,
)

REFUSED = (Conflict, LeaseLost)
"""What a stale writer that was refused already may be told when it tries again: its own count of
the lines may have gone on."""


class Takeovers:
    """Rule 3: a stale writer is never acknowledged."""

    @pytest.fixture(params=["by the same store object", "by another store object"])
    def taker(self, request: pytest.FixtureRequest, store: Store, other: Store) -> Store:
        """Who takes over from `store`."""
        return store if "same" in request.param else other

    @pytest.mark.parametrize("written", [0, 1, 2])
    def test_a_stale_writer_is_refused_and_changes_nothing(
        self, store: Store, taker: Store, written: int
    ) -> None:
        stale = hung(store)
        fresh = taker.acquire(STREAM, "taker", LONG_S)
        assert fresh.epoch > stale.epoch
        lines = lines_of(STREAM, 1 + written)
        if written:  # else only its lease tells the stale one from the other
            taker.append(fresh, 1, lines[1:])
            taker.sync(fresh)
        with pytest.raises(LeaseLost):
            store.append(stale, 1, [b"zombie"] * max(written, 1))
            store.sync(stale)
        with pytest.raises(REFUSED):
            store.append(stale, 1, [b"zombie"])
            store.sync(stale)
        assert list(taker.read(STREAM)) == lines
        with pytest.raises(LeaseLost):
            store.renew(stale)
        taker.append(fresh, 1 + written, [b"next"])
        taker.sync(fresh)
        assert list(taker.read(STREAM)) == list(store.read(STREAM)) == [*lines, b"next"]

    def test_a_sync_after_the_takeover_acknowledges_only_what_the_taker_reads(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store)
        lines = lines_of(STREAM, 4)
        store.append(stale, 1, lines[1:3])
        fresh = taker.acquire(STREAM, "taker", LONG_S)
        found = list(taker.read(STREAM))
        assert found in (lines[:1], lines[:2], lines[:3])
        try:
            store.sync(stale)
        except LeaseLost:
            pass
        else:
            assert found == lines[:3]
        assert list(taker.read(STREAM)) == found
        taker.append(fresh, len(found), [b"next"])
        taker.sync(fresh)
        assert list(taker.read(STREAM)) == [*found, b"next"]

    def test_what_was_synced_before_the_takeover_is_read_by_the_taker(
        self, store: Store, taker: Store
    ) -> None:
        hung(store, count=5)
        fresh = taker.acquire(STREAM, "taker", LONG_S)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 5)
        taker.append(fresh, 5, lines_of(STREAM, 6)[5:])
        taker.sync(fresh)
        assert list(store.read(STREAM)) == lines_of(STREAM, 6)

    def test_a_writer_frozen_before_its_first_append_changes_nothing(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store, count=0)
        fresh = taker.acquire(STREAM, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.append(stale, 0, lines_of(STREAM, 3))
            store.sync(stale)
        assert list(taker.read(STREAM)) == []
        taker.append(fresh, 0, lines_of(STREAM, 1))
        taker.sync(fresh)
        with pytest.raises(REFUSED):
            store.append(stale, 0, [b"zombie"])
            store.sync(stale)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)

    def test_who_took_over_is_known_and_not_taken_over_in_turn(
        self, store: Store, taker: Store
    ) -> None:
        first = hung(store)
        second = taker.acquire(STREAM, "taker", LONG_S)
        for asked in (store, taker):
            with pytest.raises(TaskBusy, match="taker"):
                asked.acquire(STREAM, "third", LONG_S)
            assert asked.holder(STREAM) == "taker"
        taker.release(second)
        assert taker.holder(STREAM) is None
        assert store.acquire(STREAM, "third", LONG_S).epoch > second.epoch > first.epoch

    def test_a_stale_holder_that_lets_go_takes_nothing_from_the_taker(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store)
        fresh = taker.acquire(STREAM, "taker", LONG_S)
        store.release(stale)
        assert taker.holder(STREAM) == "taker"
        with pytest.raises(TaskBusy, match="taker"):
            store.acquire(STREAM, "third", LONG_S)
        taker.renew(fresh)
        taker.append(fresh, 1, lines_of(STREAM, 2)[1:])
        taker.sync(fresh)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 2)

    def test_a_stale_holder_can_not_renew_its_lease(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        second = taker.acquire(STREAM, "second", SHORT_S)
        run_out()
        with pytest.raises(LeaseLost):
            store.renew(stale)
        assert taker.acquire(STREAM, "third", LONG_S).epoch > second.epoch

    def test_a_stale_holder_can_delete_nothing(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        store.post(STREAM, "m", b"{}")
        fresh = taker.acquire(STREAM, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.delete(stale)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)
        assert [post.name for post in taker.inbox([STREAM])] == ["m"]
        taker.append(fresh, 1, lines_of(STREAM, 2)[1:])
        taker.sync(fresh)

    def test_a_stale_writer_stays_refused_when_the_taker_has_let_go(
        self, store: Store, taker: Store
    ) -> None:
        stale = hung(store)
        taker.release(taker.acquire(STREAM, "taker", LONG_S))
        with pytest.raises(LeaseLost):
            store.append(stale, 1, [b"zombie"])
            store.sync(stale)
        with pytest.raises(LeaseLost):
            store.renew(stale)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)
        assert taker.holder(STREAM) is None

    def test_a_lease_of_a_deleted_stream_fits_no_new_one(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        taker.delete(taker.acquire(STREAM, "who deletes", LONG_S))
        with pytest.raises(LeaseLost):
            store.append(stale, 1, [b"zombie"])
            store.sync(stale)
        assert list(taker.read(STREAM)) == []
        begun(taker)
        with pytest.raises(REFUSED):
            store.append(stale, 1, [b"zombie"])
            store.sync(stale)
        with pytest.raises(LeaseLost):
            store.renew(stale)
        with pytest.raises(LeaseLost):
            store.delete(stale)
        store.release(stale)
        assert list(taker.read(STREAM)) == lines_of(STREAM, 1)
        assert taker.holder(STREAM) == "me"

    def test_a_stale_writer_changes_no_facts(self, store: Store, taker: Store) -> None:
        stale = hung(store)
        fresh = taker.acquire(STREAM, "taker", LONG_S)
        right, wrong = Facts("job", "in_progress", wake_at=AT), Facts("job", "completed")
        with pytest.raises(LeaseLost):
            store.append(stale, 1, lines_of(STREAM, 2)[1:], wrong)
            store.sync(stale)
        taker.append(fresh, 1, lines_of(STREAM, 2)[1:], right)
        taker.sync(fresh)
        assert dict(taker.facts("tasks/")) in ({STREAM: right}, {STREAM: None})
        taker.append(fresh, 2, lines_of(STREAM, 3)[2:])
        with pytest.raises(LeaseLost):  # a line like the taker's, so that the logs are as long
            store.append(stale, 2, lines_of(STREAM, 3)[2:], wrong)
            store.sync(stale)
        taker.sync(fresh)
        assert dict(taker.facts("tasks/")) in ({STREAM: right}, {STREAM: None})
        assert STREAM in dict(taker.due("tasks/", AT))
