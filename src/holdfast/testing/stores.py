"""The contract of a store, as tests: every store runs them, and so can yours.

Subclass `StoreContract` in a test module, give it a fixture `store`, and pytest does the rest:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            store = MyStore(...)
            yield store
            store.close()
"""

from __future__ import annotations

import threading
import time

import pytest

from holdfast.errors import Conflict, LeaseLost, LogDamaged, TaskBusy
from holdfast.store import Store

STREAM = "tasks/t-1"
LONG_S = 60.0


class StoreContract:
    """What the rules at the top of `holdfast.store` come to."""

    def test_a_new_stream_is_empty(self, store: Store) -> None:
        assert list(store.read(STREAM)) == []
        assert list(store.streams("tasks/")) == []

    def test_what_was_appended_is_read_back_in_order(self, store: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, [b'{"id":"t-1"}', b"two"])
        store.append(lease, 2, [b"three"])
        store.sync(lease)
        assert list(store.read(STREAM)) == [b'{"id":"t-1"}', b"two", b"three"]
        assert list(store.read(STREAM, 2)) == [b"three"]
        assert list(store.streams("tasks/")) == [STREAM]

    def test_an_append_at_the_wrong_place_is_refused_and_changes_nothing(
        self, store: Store
    ) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, [b"one"])
        for wrong in (0, 2, 99):
            with pytest.raises(Conflict):
                store.append(lease, wrong, [b"bad"])
        store.append(lease, 1, [b"two"])
        assert list(store.read(STREAM)) == [b"one", b"two"]

    def test_a_second_writer_is_told_who_has_it(self, store: Store) -> None:
        store.acquire(STREAM, "the first writer", LONG_S)
        with pytest.raises(TaskBusy, match="the first writer"):
            store.acquire(STREAM, "me", LONG_S)

    def test_a_released_stream_can_be_taken_and_epochs_only_grow(self, store: Store) -> None:
        epochs = []
        for n in range(3):
            lease = store.acquire(STREAM, f"writer {n}", LONG_S)
            store.append(lease, n, [b"%d" % n])
            epochs.append(lease.epoch)
            store.release(lease)
            store.release(lease)
        assert epochs == sorted(set(epochs))
        assert list(store.read(STREAM)) == [b"0", b"1", b"2"]

    def test_a_stale_writer_is_refused_and_changes_nothing(self, store: Store) -> None:
        stale = store.acquire(STREAM, "frozen", 0.01)
        store.append(stale, 0, [b"one"])
        store.sync(stale)
        time.sleep(0.05)
        fresh = store.acquire(STREAM, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.append(stale, 1, [b"zombie"])
            store.sync(stale)
        with pytest.raises(LeaseLost):
            store.renew(stale)
        assert list(store.read(STREAM)) == [b"one"]
        store.append(fresh, 1, [b"two"])
        store.sync(fresh)
        assert list(store.read(STREAM)) == [b"one", b"two"]

    def test_a_sync_after_the_takeover_is_not_acknowledged(self, store: Store) -> None:
        stale = store.acquire(STREAM, "frozen", 0.01)
        store.append(stale, 0, [b"one"])
        time.sleep(0.05)
        fresh = store.acquire(STREAM, "taker", LONG_S)
        with pytest.raises(LeaseLost):
            store.sync(stale)
        # Unacknowledged, so it may be there or not; but the new holder decides from what it reads.
        head = len(list(store.read(STREAM)))
        store.append(fresh, head, [b"next"])
        assert list(store.read(STREAM))[-1] == b"next"

    def test_a_writer_frozen_before_its_first_append_changes_nothing(self, store: Store) -> None:
        stale = store.acquire(STREAM, "frozen", 0.01)
        time.sleep(0.05)
        fresh = store.acquire(STREAM, "taker", LONG_S)
        store.append(fresh, 0, [b"one"])
        store.sync(fresh)
        with pytest.raises(LeaseLost):
            store.append(stale, 0, [b"zombie"])
            store.sync(stale)
        store.append(fresh, 1, [b"two"])
        store.sync(fresh)
        assert list(store.read(STREAM)) == [b"one", b"two"]

    def test_who_took_over_is_known_and_not_taken_over_in_turn(self, store: Store) -> None:
        first = store.acquire(STREAM, "frozen", 0.01)
        time.sleep(0.05)
        second = store.acquire(STREAM, "taker", LONG_S)
        with pytest.raises(TaskBusy, match="taker"):
            store.acquire(STREAM, "third", LONG_S)
        assert store.holder(STREAM) == "taker"
        store.release(second)
        assert store.holder(STREAM) is None
        assert store.acquire(STREAM, "third", LONG_S).epoch > second.epoch > first.epoch

    def test_a_renewed_lease_is_not_taken_over(self, store: Store) -> None:
        lease = store.acquire(STREAM, "alive", 0.3)
        for _ in range(5):
            time.sleep(0.1)
            store.renew(lease)
        with pytest.raises(TaskBusy):
            store.acquire(STREAM, "taker", LONG_S)

    def test_threads_append_in_some_order_and_lose_nothing(self, store: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        lock, seq = threading.Lock(), [0]

        def work() -> None:
            for _ in range(25):
                with lock:
                    store.append(lease, seq[0], [b"%d" % seq[0]])
                    seq[0] += 1
                store.sync(lease)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert list(store.read(STREAM)) == [b"%d" % n for n in range(100)]

    def test_streams_are_apart_whatever_they_are_called(self, store: Store) -> None:
        names = [
            "a",
            "A",
            "a/b",
            "../a",
            "a b",
            "\u00e9",
            "e\u0301",
            "con",
            "x" * 255,
            ".",
            "..",
            "~",
            "%41",
        ]
        for name in names:
            lease = store.acquire(f"tasks/{name}", "me", LONG_S)
            line = b'{"id":%s}' % _json(name)
            store.append(lease, 0, [line])
            store.release(lease)
        assert sorted(store.streams("tasks/")) == sorted(f"tasks/{name}" for name in names)
        for name in names:
            assert list(store.read(f"tasks/{name}")) == [b'{"id":%s}' % _json(name)]

    def test_a_deleted_stream_is_gone_and_can_be_made_anew(self, store: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, [b"one"])
        store.delete(lease)
        assert list(store.read(STREAM)) == []
        assert list(store.streams("tasks/")) == []
        again = store.acquire(STREAM, "me", LONG_S)
        store.append(again, 0, [b"new"])
        assert list(store.read(STREAM)) == [b"new"]

    def test_blobs_are_kept_by_content(self, store: Store) -> None:
        digest = store.put_blob(b"x" * 100_000)
        assert store.put_blob(b"x" * 100_000) == digest
        assert store.get_blob(digest) == b"x" * 100_000
        with pytest.raises(LogDamaged):
            store.get_blob("0" * 64)


def _json(text: str) -> bytes:
    import msgspec

    return msgspec.json.encode(text)
