"""Appends are guarded, whole, in order, and there for everybody once they are synced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial

import pytest

from holdfast.errors import Conflict, LeaseLost
from holdfast.store import Store
from holdfast.testing.contract.samples import LONG_S, STREAM, at_once, begun, lines_of

ODD_LINES = (
    b"",
    b" ",
    b"\x00",
    b"\xff\xfe",
    b"\r",
    b"a\rb",
    b"\x0b\x0c\x1c\x85",
    "\u2028 \u00e9 \U0001f680".encode(),
    b"null",
    b"[1]",
    b'{"no":"number"}',
    b"\\x00 \\n %s %% ' \" --",
    b"",
)


class Appending:
    """Rules 1 and 2: guarded, and durable when synced."""

    def test_what_was_appended_is_read_back_in_order(self, store: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, [b'{"id":"t-1"}', b"two"])
        store.append(lease, 2, [b"three"])
        store.sync(lease)
        assert list(store.read(STREAM)) == [b'{"id":"t-1"}', b"two", b"three"]
        assert list(store.read(STREAM, 2)) == [b"three"]
        assert list(store.streams("tasks/")) == [STREAM]

    def test_what_was_synced_is_read_by_everybody(self, store: Store, other: Store) -> None:
        begun(store, count=3)
        assert list(other.read(STREAM)) == lines_of(STREAM, 3)
        assert list(other.tail(STREAM)) == lines_of(STREAM, 3)[::-1]
        assert list(other.streams("tasks/")) == [STREAM]

    def test_what_was_synced_is_there_when_the_store_is_opened_again(
        self, open_store: Callable[[], Store]
    ) -> None:
        with closing(open_store()) as store:
            begun(store, count=3)
        with closing(open_store()) as again:
            assert list(again.read(STREAM)) == lines_of(STREAM, 3)
            lease = again.acquire(STREAM, "me", LONG_S)
            again.append(lease, 3, lines_of(STREAM, 4)[3:])
            again.sync(lease)
            assert list(again.read(STREAM)) == lines_of(STREAM, 4)

    def test_an_append_at_the_wrong_place_is_refused_and_changes_nothing(
        self, store: Store
    ) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        with pytest.raises(Conflict):
            store.append(lease, 1, [b"bad"])
        store.append(lease, 0, [b"one"])
        for wrong in (0, 2, 99):
            with pytest.raises(Conflict):
                store.append(lease, wrong, [b"bad", b"worse"])
        store.append(lease, 1, [b"two"])
        store.sync(lease)
        assert list(store.read(STREAM)) == [b"one", b"two"]

    def test_who_takes_a_stream_goes_on_at_its_end_and_nowhere_else(
        self, store: Store, other: Store
    ) -> None:
        store.release(begun(store))
        lease = other.acquire(STREAM, "in between", LONG_S)
        other.append(lease, 1, lines_of(STREAM, 3)[1:])
        other.sync(lease)
        other.release(lease)
        again = store.acquire(STREAM, "me again", LONG_S)
        for wrong in (0, 1, 2, 4):
            with pytest.raises(Conflict):
                store.append(again, wrong, [b"bad"])
        store.append(again, 3, lines_of(STREAM, 4)[3:])
        store.sync(again)
        assert list(other.read(STREAM)) == lines_of(STREAM, 4)

    def test_the_end_of_a_long_log_is_found_by_who_takes_it(
        self, store: Store, other: Store
    ) -> None:
        lines = [b"%d %s" % (n % 10, b"x" * 98) for n in range(3000)]  # they say no number
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        store.release(lease)
        lease = other.acquire(STREAM, "next", LONG_S)
        with pytest.raises(Conflict):
            other.append(lease, 2999, [b"bad"])
        other.append(lease, 3000, [b"next"])
        other.sync(lease)
        assert list(store.read(STREAM)) == [*lines, b"next"]

    def test_lines_may_be_any_bytes_without_a_newline(
        self, open_store: Callable[[], Store], store: Store
    ) -> None:
        first = b'{"id":"t-1"}'
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, [first])
        for seq, line in enumerate(ODD_LINES, 1):
            store.append(lease, seq, [line])
        store.append(lease, 1 + len(ODD_LINES), ODD_LINES)
        store.sync(lease)
        store.release(lease)
        expected = [first, *ODD_LINES, *ODD_LINES]
        with closing(open_store()) as again:
            assert list(again.read(STREAM)) == expected
            assert list(again.read(STREAM, 5)) == expected[5:]
            assert list(again.tail(STREAM)) == expected[::-1]
            lease = again.acquire(STREAM, "me", LONG_S)
            again.append(lease, len(expected), [b"and on"])
            assert list(again.read(STREAM)) == [*expected, b"and on"]

    def test_a_line_may_be_long(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 3, 600_000)
        lease = store.acquire(STREAM, "me", LONG_S)
        for seq, line in enumerate(lines):
            store.append(lease, seq, [line])
        store.sync(lease)
        assert list(other.read(STREAM)) == lines
        assert list(other.tail(STREAM)) == lines[::-1]

    def test_thousands_of_lines_may_come_at_once(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 12_000)
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines[:11_000])
        store.append(lease, 11_000, lines[11_000:])
        store.sync(lease)
        assert list(other.read(STREAM)) == lines
        assert list(other.tail(STREAM)) == lines[::-1]
        assert list(other.read(STREAM, 11_998)) == lines[11_998:]

    def test_to_append_nothing_changes_nothing(self, store: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, [])
        store.sync(lease)
        assert list(store.streams("tasks/")) == []
        store.append(lease, 0, [b"one"])
        store.append(lease, 1, [])
        store.sync(lease)
        assert list(store.read(STREAM)) == [b"one"]

    def test_what_the_caller_does_with_its_list_afterwards_changes_nothing(
        self, store: Store
    ) -> None:
        lines = [b"one"]
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        lines[0] = b"changed"
        lines.append(b"two")
        store.sync(lease)
        assert list(store.read(STREAM)) == [b"one"]

    def test_threads_append_in_some_order_and_lose_nothing(self, store: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        lock, seq = threading.Lock(), [0]

        def work() -> None:
            for _ in range(25):
                with lock:
                    store.append(lease, seq[0], [b"%d" % seq[0]])
                    seq[0] += 1
                store.sync(lease)

        at_once([work] * 4)
        assert list(store.read(STREAM)) == [b"%d" % n for n in range(100)]

    def test_many_streams_are_written_at_once_and_each_gets_its_own(
        self, store: Store, other: Store
    ) -> None:
        def work(stream: str) -> None:
            lease = store.acquire(stream, "me", LONG_S)
            for seq, line in enumerate(lines_of(stream, 10)):
                store.append(lease, seq, [line])
                store.sync(lease)
            store.release(lease)

        streams = [f"tasks/many-{n}" for n in range(16)]
        at_once([partial(work, stream) for stream in streams])
        for stream in streams:
            assert list(other.read(stream)) == lines_of(stream, 10)

    def test_a_refused_append_leaves_those_of_other_streams_alone(self, store: Store) -> None:
        one, two = begun(store, "tasks/one"), begun(store, "tasks/two")
        store.append(one, 1, [b"right"])
        with pytest.raises(Conflict):
            store.append(two, 7, [b"wrong"])
        store.sync(one)
        assert list(store.read("tasks/one"))[1:] == [b"right"]
        assert list(store.read("tasks/two"))[1:] == []

    def test_closing_gives_everything_back_and_keeps_what_was_appended(
        self, open_store: Callable[[], Store], other: Store
    ) -> None:
        streams = [f"tasks/{n}" for n in range(20)]
        held = begun(other, "tasks/of-another")
        store = open_store()
        leases = [store.acquire(stream, "me", LONG_S) for stream in streams]
        for lease in leases:
            store.append(lease, 0, lines_of(lease.stream, 1))
        store.close()
        store.close()
        store.release(leases[0])
        with pytest.raises(LeaseLost):
            store.append(leases[0], 1, [b"two"])
        for stream in streams:
            assert other.holder(stream) is None
            assert list(other.read(stream)) == lines_of(stream, 1)
        other.renew(held)
