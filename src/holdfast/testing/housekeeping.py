"""The part of a store's contract that is about names, and about what nobody needs any more."""

from __future__ import annotations

import time

import pytest

from holdfast.errors import Conflict, LeaseLost, LogDamaged, TaskBusy
from holdfast.store import Facts, Store
from holdfast.testing.contract.samples import LONG_S

DRAFT, FINAL = "copies/t-1", "tasks/t-1"
LINES = [b'{"id":"t-1","seq":1}', b'{"id":"t-1","seq":2}']


class HousekeepingContract:
    """Rules 8 and 9 of `holdfast.store`."""

    # Names

    def test_a_renamed_stream_is_there_under_its_new_name_alone(self, store: Store) -> None:
        lease = store.acquire(DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES, Facts("job", "completed"))
        assert list(store.streams("tasks/")) == []
        store.rename(lease, FINAL)
        assert list(store.read(FINAL)) == LINES
        assert list(store.tail(FINAL)) == LINES[::-1]
        assert (list(store.streams("tasks/")), list(store.streams("copies/"))) == ([FINAL], [])
        assert list(store.read(DRAFT)) == []
        assert list(store.facts("copies/")) == []
        store.remember(FINAL, Facts("job", "failed"), 2)
        assert dict(store.facts("tasks/")) == {FINAL: Facts("job", "failed")}

    def test_a_renamed_stream_is_held_by_nobody_and_can_be_gone_on_with(self, store: Store) -> None:
        lease = store.acquire(DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES)
        store.rename(lease, FINAL)
        assert store.holder(FINAL) is None
        with pytest.raises(LeaseLost):
            store.append(lease, 2, [b"late"])
            store.sync(lease)
        store.release(lease)
        fresh = store.acquire(FINAL, "me", LONG_S)
        store.append(fresh, 2, [b"three"])
        store.sync(fresh)
        assert list(store.read(FINAL)) == [*LINES, b"three"]
        again = store.acquire(DRAFT, "me", LONG_S)
        store.append(again, 0, [b"a new one"])

    def test_a_name_that_is_taken_is_refused_and_nothing_changes(self, store: Store) -> None:
        there = store.acquire(FINAL, "them", LONG_S)
        store.append(there, 0, LINES[:1])
        store.release(there)
        lease = store.acquire(DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES)
        with pytest.raises(Conflict, match="there already"):
            store.rename(lease, FINAL)
        assert list(store.read(FINAL)) == LINES[:1]
        assert list(store.read(DRAFT)) == LINES
        store.delete(store.acquire(FINAL, "me", LONG_S))
        store.rename(lease, FINAL)
        assert list(store.read(FINAL)) == LINES

    def test_a_name_that_somebody_holds_is_refused(self, store: Store) -> None:
        theirs = store.acquire(FINAL, "who is about to start", LONG_S)
        lease = store.acquire(DRAFT, "me", LONG_S)
        store.append(lease, 0, LINES)
        with pytest.raises(TaskBusy, match="about to start"):
            store.rename(lease, FINAL)
        store.release(theirs)
        store.rename(lease, FINAL)  # they never wrote anything
        assert list(store.read(FINAL)) == LINES

    def test_a_stale_lease_renames_nothing(self, store: Store) -> None:
        stale = store.acquire(DRAFT, "frozen", 0.01)
        store.append(stale, 0, LINES)
        store.sync(stale)
        time.sleep(0.05)
        store.acquire(DRAFT, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.rename(stale, FINAL)
        assert list(store.streams("tasks/")) == []
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
        lease = store.acquire(FINAL, "me", LONG_S)
        store.append(lease, 0, LINES)
        store.post(FINAL, "m", b"{}")
        store.put_blob(b"z" * 1000)
        for dry_run in (True, False):
            left = store.sweep(0, 0, dry_run=dry_run)
            assert (left.count, left.size_bytes) == (0, 0)
        assert list(store.read(FINAL)) == LINES
