"""What is deleted is gone with all that belongs to it, and nothing else is."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import pytest

from holdfast.errors import LeaseLost
from holdfast.store import Facts, Store
from holdfast.testing.contract.samples import AT, LONG_S, STREAM, begun, lines_of

PENDING = Facts("job", "pending", created_at=AT, wake_at=AT)


class Deleting:
    """What `delete` takes along, and what it leaves."""

    def test_a_deleted_stream_is_gone_and_can_be_made_anew(
        self, store: Store, other: Store
    ) -> None:
        store.delete(begun(store, count=3))
        for reader in (store, other):
            assert list(reader.read(STREAM)) == []
            assert list(reader.tail(STREAM)) == []
            assert list(reader.streams("tasks/")) == []
            assert reader.holder(STREAM) is None
        again = other.acquire(STREAM, "me", LONG_S)
        other.append(again, 0, lines_of(STREAM, 1))
        other.sync(again)
        assert list(store.read(STREAM)) == lines_of(STREAM, 1)

    def test_a_deleted_stream_has_no_facts_no_messages_and_is_not_due(
        self, store: Store, other: Store
    ) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines_of(STREAM, 1), PENDING)
        store.sync(lease)
        store.remember(STREAM, PENDING, 1)
        for reader in (store, other):
            assert list(reader.due("tasks/", AT))
        store.post(STREAM, "m", b"{}")
        store.delete(lease)
        for anew in (False, True):
            if anew:
                begun(store)
            for reader in (store, other):
                assert dict(reader.facts("tasks/")) == ({STREAM: None} if anew else {})
                assert PENDING not in dict(reader.due("tasks/", AT)).values()
                assert list(reader.inbox([STREAM])) == []
        assert store.post(STREAM, "m", b"{}")

    def test_what_is_not_deleted_stays(self, store: Store, other: Store) -> None:
        others = ["tasks/t", "tasks/t-10", "tasks/t-1/x", "tasks/T-1", "sessions/t-1"]
        leases = {stream: begun(store, stream) for stream in others[:2]}
        gone = begun(store)
        leases |= {stream: begun(store, stream) for stream in others[2:]}
        for stream in others:
            store.append(leases[stream], 1, lines_of(stream, 2)[1:], PENDING)
            store.sync(leases[stream])
            store.post(stream, "m", b"{}")
        digest = store.put_blob(b"kept")
        store.delete(gone)
        for reader in (store, other):
            for stream in others:
                assert list(reader.read(stream)) == lines_of(stream, 2)
                assert [post.name for post in reader.inbox([stream])] == ["m"]
                assert reader.holder(stream) == "me"
                assert stream in dict(reader.due(stream, AT))
            assert reader.get_blob(digest) == b"kept"
        for lease in leases.values():
            store.renew(lease)

    def test_a_lease_goes_with_its_stream(self, store: Store) -> None:
        lease = begun(store)
        store.delete(lease)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                store.append(lease, 1, [b"late"])
                store.sync(lease)
            with pytest.raises(LeaseLost):
                store.renew(lease)
            with pytest.raises(LeaseLost):
                store.delete(lease)
            store.release(lease)
            store.release(store.acquire(STREAM, "next", LONG_S))
        assert list(store.read(STREAM)) == []

    def test_a_stream_without_a_line_can_be_deleted(self, store: Store) -> None:
        store.delete(store.acquire(STREAM, "me", LONG_S))
        assert store.holder(STREAM) is None
        begun(store)

    def test_what_was_deleted_stays_so_when_the_store_is_opened_again(
        self, open_store: Callable[[], Store]
    ) -> None:
        with closing(open_store()) as store:
            begun(store, "tasks/kept")
            lease = begun(store)
            store.append(lease, 1, [b"not synced"], PENDING)
            store.delete(lease)
        with closing(open_store()) as again:
            assert list(again.streams("tasks/")) == ["tasks/kept"]
            assert list(again.read(STREAM)) == []
            assert STREAM not in dict(again.due("tasks/", AT))

    def test_a_writer_whose_stream_was_taken_over_and_deleted_is_told_so(
        self, store: Store, other: Store
    ) -> None:
        stale = store.acquire(STREAM, "frozen", 0.01)
        store.append(stale, 0, lines_of(STREAM, 1))
        time.sleep(0.05)
        taken = other.acquire(STREAM, "taker", LONG_S)
        seen = list(other.read(STREAM))
        other.delete(taken)
        try:
            store.sync(stale)
        except LeaseLost:
            pass
        else:  # then it was durable before, and who took over has seen it
            assert seen == lines_of(STREAM, 1)
        assert list(other.read(STREAM)) == []
        assert list(other.streams("tasks/")) == []
