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
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.errors import Conflict, LeaseLost, LogDamaged, TaskBusy
from holdfast.store import Facts, Lease, Store
from holdfast.testing.finding import FindContract

STREAM = "tasks/t-1"
LONG_S = 60.0
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


class StoreContract(FindContract):
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

    # Long logs

    @pytest.mark.parametrize("width", [0, 400, 20_000])
    def test_a_long_log_is_read_from_either_end_and_from_anywhere(
        self, store: Store, width: int
    ) -> None:
        lines = _lines(STREAM, 300, width)
        lease = store.acquire(STREAM, "me", LONG_S)
        for start in range(0, 300, 60):
            store.append(lease, start, lines[start : start + 60])
        store.sync(lease)
        assert list(store.read(STREAM)) == lines
        assert list(store.tail(STREAM)) == lines[::-1]
        for after_seq in (0, 1, 2, 150, 298, 299, 300, 301):
            assert list(store.read(STREAM, after_seq)) == lines[after_seq:]

    def test_the_tail_is_read_only_as_far_as_it_is_asked_for(self, store: Store) -> None:
        lines = _lines(STREAM, 50)
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        tail = store.tail(STREAM)
        assert [next(tail), next(tail)] == [lines[49], lines[48]]
        del tail  # and nobody minds
        assert list(store.tail("tasks/nobody")) == []
        assert list(store.read("tasks/nobody", 7)) == []

    def test_readers_see_a_prefix_while_a_writer_writes(self, store: Store) -> None:
        lines = _lines(STREAM, 400, 300)
        lease = store.acquire(STREAM, "me", LONG_S)
        done = threading.Event()
        wrong: list[str] = []

        def look() -> None:
            known = 0
            while not done.is_set():
                whole = list(store.read(STREAM))
                newer = list(store.read(STREAM, known))
                last = next(store.tail(STREAM), None)
                if whole != lines[: len(whole)] or newer != lines[known : known + len(newer)]:
                    wrong.append(f"{len(whole)} lines, {len(newer)} after {known}")
                if last is not None and last not in lines:
                    wrong.append(f"the last line was {last[:60]!r}")
                known = len(whole)

        readers = [threading.Thread(target=look) for _ in range(2)]
        for reader in readers:
            reader.start()
        for seq, line in enumerate(lines):
            store.append(lease, seq, [line])
        done.set()
        for reader in readers:
            reader.join()
        assert wrong == []

    # Facts

    def test_facts_are_those_of_the_last_append_that_gave_any_or_unknown(
        self, store: Store
    ) -> None:
        lease = _begun(store, STREAM)
        told = Facts("job", "awaiting_user", "ada", "s-1", {"a": "b"}, "p", AT, AT)
        store.append(lease, 1, _lines(STREAM, 2)[1:], told)
        assert dict(store.facts("tasks/")) in ({STREAM: told}, {STREAM: None})
        store.append(lease, 2, _lines(STREAM, 3)[2:])
        assert dict(store.facts("tasks/")) in ({STREAM: told}, {STREAM: None})
        assert dict(store.facts("other/")) == {}

    def test_facts_are_remembered_if_the_log_still_ends_there(self, store: Store) -> None:
        lease = _begun(store, STREAM)
        store.append(lease, 1, _lines(STREAM, 3)[1:])
        early, right = Facts("job", "in_progress"), Facts("job", "completed", updated_at=AT)
        store.remember(STREAM, right, 3)
        assert dict(store.facts("tasks/")) == {STREAM: right}
        store.remember(STREAM, early, 2)
        assert dict(store.facts("tasks/")) == {STREAM: right}
        store.remember("tasks/nobody", early, 1)
        assert dict(store.facts("tasks/")) == {STREAM: right}

    def test_what_is_due_is_found_and_what_is_not_is_not(self, store: Store) -> None:
        day = timedelta(days=1)
        wakes = {"due": AT, "past": AT - day, "later": AT + day, "done": None}
        for name, wake_at in wakes.items():
            stream = f"tasks/{name}"
            lease = _begun(store, stream)
            facts = Facts("job", "in_progress", created_at=AT - 9 * day, wake_at=wake_at)
            store.append(lease, 1, _lines(stream, 2)[1:], facts)
            store.sync(lease)
            store.remember(stream, facts, 2)
            store.release(lease)
        for _ in range(2):  # the first look may be another than those that follow
            assert {stream for stream, _ in store.due("tasks/", AT)} == {"tasks/due", "tasks/past"}
        later = {stream for stream, _ in store.due("tasks/", AT + 2 * day)}
        assert later == {"tasks/due", "tasks/past", "tasks/later"}

    def test_a_new_stream_that_is_due_is_found_at_once(self, store: Store) -> None:
        assert list(store.due("tasks/", AT)) == []
        for n in range(3):
            stream = f"tasks/new-{n}"
            lease = store.acquire(stream, "me", LONG_S)
            pending = Facts("job", "pending", created_at=AT, updated_at=AT, wake_at=AT)
            store.append(lease, 0, _lines(stream, 1), pending)
            store.release(lease)
            assert stream in {found for found, _ in store.due("tasks/", AT)}

    def test_a_deleted_stream_has_no_facts_and_is_not_due(self, store: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        pending = Facts("job", "pending", created_at=AT, wake_at=AT)
        store.append(lease, 0, _lines(STREAM, 1), pending)
        assert list(store.due("tasks/", AT))
        store.post(STREAM, "m", b"{}")
        store.delete(lease)
        assert list(store.facts("tasks/")) == []
        assert list(store.due("tasks/", AT)) == []
        assert list(store.inbox([STREAM])) == []

    # Inboxes

    def test_a_message_is_there_once_until_it_is_taken(self, store: Store) -> None:
        _begun(store, STREAM)
        assert list(store.inbox([STREAM])) == []
        assert store.post(STREAM, "answer-1", b'{"first":1}')
        assert not store.post(STREAM, "answer-1", b'{"second":2}')
        assert [(p.stream, p.name, p.data) for p in store.inbox([STREAM])] == [
            (STREAM, "answer-1", b'{"first":1}')
        ]
        store.unpost(STREAM, "answer-1")
        store.unpost(STREAM, "answer-1")
        store.unpost("tasks/nobody", "answer-1")
        assert list(store.inbox([STREAM])) == []
        assert store.post(STREAM, "answer-1", b"3")

    def test_messages_come_in_the_order_they_were_left(self, store: Store) -> None:
        _begun(store, STREAM)
        names = ["pause-b", "continue-c", "cancel-a"]
        for name in names:
            assert store.post(STREAM, name, b"{}")
            time.sleep(0.02)
        assert [post.name for post in store.inbox([STREAM])] == names

    @pytest.mark.parametrize(
        "name", ["a", "../a", "a/b", ".", "..", "\u00e9 ~1!", "answer-fetch~2.1!0"]
    )
    def test_a_message_may_have_any_name(self, store: Store, name: str) -> None:
        _begun(store, STREAM)
        assert store.post(STREAM, name, b"\x00\n\xff")
        assert not store.post(STREAM, name, b"")
        (post,) = store.inbox([STREAM])
        assert (post.name, post.data) == (name, b"\x00\n\xff")
        store.unpost(STREAM, name)
        assert list(store.inbox([STREAM])) == []

    def test_inboxes_are_apart_and_only_those_asked_for_are_read(self, store: Store) -> None:
        streams = [f"tasks/box-{n}" for n in range(3)]
        for stream in streams:
            _begun(store, stream)
            store.post(stream, "same", stream.encode())
        found = {post.stream: post.data for post in store.inbox(streams[:2])}
        assert found == {stream: stream.encode() for stream in streams[:2]}
        assert list(store.inbox([])) == []

    def test_of_many_who_leave_the_same_message_one_succeeds(self, store: Store) -> None:
        _begun(store, STREAM)
        left: list[bool] = []
        threads = [
            threading.Thread(target=lambda n=n: left.append(store.post(STREAM, "m", b"%d" % n)))
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(left) == [False] * 7 + [True]
        assert len(store.inbox([STREAM])) == 1


def _begun(store: Store, stream: str) -> Lease:
    """A stream of one line, held."""
    lease = store.acquire(stream, "me", LONG_S)
    store.append(lease, 0, _lines(stream, 1))
    return lease


def _lines(stream: str, count: int, width: int = 0) -> list[bytes]:
    """Lines like those of a log."""
    event = {"type": "noted", "id": stream.removeprefix("tasks/")}
    return [
        msgspec.json.encode({**event, "seq": seq, "text": "x" * width})
        for seq in range(1, count + 1)
    ]


def _json(text: str) -> bytes:
    return msgspec.json.encode(text)
