"""Blobs are kept by content, whole, and checked when they are read."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from hashlib import sha256

import pytest

from holdfast.errors import Conflict, LeaseLost, LogDamaged, TaskBusy
from holdfast.log.store_calls import (
    acquire_one,
    due_in,
    facts_of_all,
    holder_of,
    inbox_of,
    post_to,
    streams_in,
    sync_one,
)
from holdfast.stores.port import Facts, Store
from holdfast.testing.contract import AT, LONG_S, STREAM, at_once, begun, lines_of


class Blobs:
    """Values that are too large for a line."""

    def spoil_blob(self, store: Store, digest: str) -> None:
        """Change the bytes of a blob where they are kept, behind the store's back."""
        pytest.skip("the test class gives no `spoil_blob`")

    @pytest.mark.parametrize(
        "data", [b"", b"\n", bytes(range(256)), b"x" * 100_000, b"y" * 3_000_000]
    )
    def test_blobs_are_kept_by_content(self, store: Store, other: Store, data: bytes) -> None:
        digest = store.put_blob(data)
        assert digest == sha256(data).hexdigest()
        assert store.put_blob(data) == other.put_blob(data) == digest
        assert store.get_blob(digest) == other.get_blob(digest) == data

    def test_blobs_are_apart(self, store: Store) -> None:
        many = [b"%d" % n for n in range(50)]
        digests = [store.put_blob(data) for data in many]
        assert [store.get_blob(digest) for digest in digests] == many

    def test_a_blob_is_there_when_the_store_is_opened_again(
        self, open_store: Callable[[], Store]
    ) -> None:
        with closing(open_store()) as store:
            digest = store.put_blob(b"kept")
        with closing(open_store()) as again:
            assert again.get_blob(digest) == b"kept"

    def test_threads_put_the_same_blob_at_once(self, store: Store, other: Store) -> None:
        data = b"z" * 200_000
        at_once([partial(asked.put_blob, data) for asked in (store, other) * 4])
        assert store.get_blob(sha256(data).hexdigest()) == data

    @pytest.mark.parametrize(
        "digest", ["0" * 64, "", "no digest", "'", "../../x", "0" * 63, "0" * 128, "\u00e9" * 64]
    )
    def test_a_blob_that_is_not_there_is_damage(self, store: Store, digest: str) -> None:
        store.put_blob(b"another")
        with pytest.raises(LogDamaged):
            store.get_blob(digest)

    def test_a_blob_that_was_changed_is_damage(self, store: Store, other: Store) -> None:
        digest = store.put_blob(b"right")
        whole = store.put_blob(b"left alone")
        self.spoil_blob(store, digest)
        for reader in (store, other):
            with pytest.raises(LogDamaged):
                reader.get_blob(digest)
            assert reader.get_blob(whole) == b"left alone"

    @pytest.mark.parametrize("data", [b"", b"right", b"x" * 3_000_000])
    def test_a_put_believes_no_blob_because_of_its_name(
        self, store: Store, other: Store, data: bytes
    ) -> None:
        digest = store.put_blob(data)
        whole = store.put_blob(b"left alone")
        self.spoil_blob(store, digest)
        for putter in (other, store):
            assert putter.put_blob(data) == digest
            for reader in (store, other):
                assert reader.get_blob(digest) == data
                assert reader.get_blob(whole) == b"left alone"

    def test_a_blob_may_have_another_name_if_who_gave_it_checks(self, store: Store) -> None:
        name = "ab" * 32
        assert store.put_blob(b"y" * 1000, name) == name
        assert store.get_blob(name, checked=False) == b"y" * 1000
        with pytest.raises(LogDamaged):
            store.get_blob(name)


# A deleted stream is gone with all that belongs to it, and nothing else is.


PENDING = Facts("job", "pending", created_at=AT, wake_at=AT)


class Deleting:
    """The data that `delete` takes along, and the data that it leaves."""

    def test_a_deleted_stream_is_gone_and_can_be_made_anew(
        self, store: Store, other: Store
    ) -> None:
        store.delete(begun(store, count=3))
        for reader in (store, other):
            assert list(reader.read(STREAM)) == []
            assert list(reader.read(STREAM, backwards=True)) == []
            assert list(streams_in(reader, "tasks/")) == []
            assert reader.holder(STREAM) is None
        again = acquire_one(other, STREAM, "me", LONG_S)
        other.append(again, 0, lines_of(STREAM, 1))
        sync_one(other, again)
        assert list(store.read(STREAM)) == lines_of(STREAM, 1)

    def test_a_deleted_stream_has_no_facts_no_messages_and_is_not_due(
        self, store: Store, other: Store
    ) -> None:
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, lines_of(STREAM, 1), PENDING)
        sync_one(store, lease)
        store.remember(STREAM, PENDING, 1)
        for reader in (store, other):
            assert list(due_in(reader, "tasks/", AT))
        post_to(store, STREAM, "m", b"{}")
        store.delete(lease)
        for anew in (False, True):
            if anew:
                begun(store)
            for reader in (store, other):
                assert dict(facts_of_all(reader, "tasks/")) == ({STREAM: None} if anew else {})
                assert PENDING not in dict(due_in(reader, "tasks/", AT)).values()
                assert list(inbox_of(reader, [STREAM])) == []
        assert post_to(store, STREAM, "m", b"{}")

    def test_what_is_not_deleted_stays(self, store: Store, other: Store) -> None:
        others = ["tasks/t", "tasks/t-10", "tasks/t-1/x", "tasks/T-1", "sessions/t-1"]
        leases = {stream: begun(store, stream) for stream in others[:2]}
        gone = begun(store)
        leases |= {stream: begun(store, stream) for stream in others[2:]}
        for stream in others:
            store.append(leases[stream], 1, lines_of(stream, 2)[1:], PENDING)
            sync_one(store, leases[stream])
            post_to(store, stream, "m", b"{}")
        digest = store.put_blob(b"kept")
        store.delete(gone)
        for reader in (store, other):
            for stream in others:
                assert list(reader.read(stream)) == lines_of(stream, 2)
                assert [post.name for post in inbox_of(reader, [stream])] == ["m"]
                assert holder_of(reader, stream) == "me"
                assert stream in dict(due_in(reader, stream, AT))
            assert reader.get_blob(digest) == b"kept"
        for lease in leases.values():
            store.renew(lease)

    def test_a_lease_goes_with_its_stream(self, store: Store) -> None:
        lease = begun(store)
        store.delete(lease)
        for _ in range(2):
            with pytest.raises(LeaseLost):
                store.append(lease, 1, [b"late"])
                sync_one(store, lease)
            with pytest.raises(LeaseLost):
                store.renew(lease)
            with pytest.raises(LeaseLost):
                store.delete(lease)
            store.release([lease])
            store.release([acquire_one(store, STREAM, "next", LONG_S)])
        assert list(store.read(STREAM)) == []

    def test_a_stream_without_a_line_can_be_deleted(self, store: Store) -> None:
        store.delete(acquire_one(store, STREAM, "me", LONG_S))
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
            assert list(streams_in(again, "tasks/")) == ["tasks/kept"]
            assert list(again.read(STREAM)) == []
            assert STREAM not in dict(due_in(again, "tasks/", AT))

    def test_a_writer_whose_stream_was_taken_over_and_deleted_is_told_so(
        self, store: Store, other: Store
    ) -> None:
        stale = acquire_one(store, STREAM, "frozen", 0.01)
        store.append(stale, 0, lines_of(STREAM, 1))
        time.sleep(0.05)
        taken = acquire_one(other, STREAM, "taker", LONG_S)
        seen = list(other.read(STREAM))
        other.delete(taken)
        try:
            sync_one(store, stale)
        except LeaseLost:
            pass
        else:  # then it was durable before, and who took over has seen it
            assert seen == lines_of(STREAM, 1)
        assert list(other.read(STREAM)) == []
        assert list(streams_in(other, "tasks/")) == []


# The part of a store's contract that is about names, and about what nobody needs any more.


DRAFT, FINAL = "copies/t-1", "tasks/t-1"
LINES = [b'{"id":"t-1","seq":1}', b'{"id":"t-1","seq":2}']


class HousekeepingContract:
    """Rules 8 and 9 of `holdfast.stores.port`."""

    # Names

    def test_a_renamed_stream_is_there_under_its_new_name_alone(self, store: Store) -> None:
        lease = acquire_one(store, DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES, Facts("job", "completed"))
        assert list(streams_in(store, "tasks/")) == []
        store.rename(lease, FINAL)
        assert list(store.read(FINAL)) == LINES
        assert list(store.read(FINAL, backwards=True)) == LINES[::-1]
        assert (list(streams_in(store, "tasks/")), list(streams_in(store, "copies/"))) == (
            [FINAL],
            [],
        )
        assert list(store.read(DRAFT)) == []
        assert list(facts_of_all(store, "copies/")) == []
        store.remember(FINAL, Facts("job", "failed"), 2)
        assert dict(facts_of_all(store, "tasks/")) == {FINAL: Facts("job", "failed")}

    def test_a_renamed_stream_is_held_by_nobody_and_can_be_gone_on_with(self, store: Store) -> None:
        lease = acquire_one(store, DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES)
        store.rename(lease, FINAL)
        assert store.holder(FINAL) is None
        with pytest.raises(LeaseLost):
            store.append(lease, 2, [b"late"])
            sync_one(store, lease)
        store.release([lease])
        fresh = acquire_one(store, FINAL, "me", LONG_S)
        store.append(fresh, 2, [b"three"])
        sync_one(store, fresh)
        assert list(store.read(FINAL)) == [*LINES, b"three"]
        again = acquire_one(store, DRAFT, "me", LONG_S)
        store.append(again, 0, [b"a new one"])

    def test_a_name_that_is_taken_is_refused_and_nothing_changes(self, store: Store) -> None:
        there = acquire_one(store, FINAL, "them", LONG_S)
        store.append(there, 0, LINES[:1])
        store.release([there])
        lease = acquire_one(store, DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES)
        with pytest.raises(Conflict, match="there already"):
            store.rename(lease, FINAL)
        assert list(store.read(FINAL)) == LINES[:1]
        assert list(store.read(DRAFT)) == LINES
        store.delete(acquire_one(store, FINAL, "me", LONG_S))
        store.rename(lease, FINAL)
        assert list(store.read(FINAL)) == LINES

    def test_a_name_that_somebody_holds_is_refused(self, store: Store) -> None:
        theirs = acquire_one(store, FINAL, "who is about to start", LONG_S)
        lease = acquire_one(store, DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES)
        with pytest.raises(TaskBusy, match="about to start"):
            store.rename(lease, FINAL)
        store.release([theirs])
        store.rename(lease, FINAL)  # they never wrote anything
        assert list(store.read(FINAL)) == LINES

    def test_a_stale_lease_renames_nothing(self, store: Store) -> None:
        stale = acquire_one(store, DRAFT, "frozen", 0.01)
        store.append(stale, 0, LINES)
        sync_one(store, stale)
        time.sleep(0.05)
        acquire_one(store, DRAFT, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.rename(stale, FINAL)
        assert list(streams_in(store, "tasks/")) == []
        assert list(store.read(DRAFT)) == LINES

    # Blobs

    def test_blobs_are_listed_with_their_size_and_age(self, store: Store) -> None:
        assert list(store.blobs()) == []
        sizes = {store.put_blob(b"x" * size): size for size in (0, 1, 100_000)}
        found = list(store.blobs())
        assert {blob.digest: blob.size_bytes for blob in found} == sizes
        assert all(0 <= blob.age_s < 60 for blob in found)

    def test_many_blobs_are_listed_once_each(self, store: Store) -> None:
        digests = sorted(store.put_blob(b"%d" % n) for n in range(620))
        assert sorted(blob.digest for blob in store.blobs()) == digests

    def test_a_young_blob_is_not_deleted_and_an_old_one_is(self, store: Store) -> None:
        digest = store.put_blob(b"x" * 100_000)
        assert not store.delete_blob(digest, 3600)
        assert store.get_blob(digest) == b"x" * 100_000
        time.sleep(0.05)
        assert store.delete_blob(digest, 0.02)
        assert not store.delete_blob(digest, 0.02)
        with pytest.raises(LogDamaged):
            store.get_blob(digest)
        assert list(store.blobs()) == []
        assert store.put_blob(b"x" * 100_000) == digest
        assert store.get_blob(digest) == b"x" * 100_000

    @pytest.mark.parametrize("digest", ["0" * 64, "", "../../etc/passwd", "0" * 63, "é" * 64])
    def test_what_is_no_blob_is_not_deleted(self, store: Store, digest: str) -> None:
        assert not store.delete_blob(digest, 0)

    def test_there_is_nothing_to_sweep_in_a_store_that_is_used(self, store: Store) -> None:
        lease = acquire_one(store, FINAL, "me", LONG_S)
        store.append(lease, 0, LINES)
        post_to(store, FINAL, "m", b"{}")
        store.put_blob(b"z" * 1000)
        for dry_run in (True, False):
            left = store.sweep(0, 0, dry_run=dry_run)
            assert (left.count, left.size_bytes) == (0, 0)
        assert list(store.read(FINAL)) == LINES
