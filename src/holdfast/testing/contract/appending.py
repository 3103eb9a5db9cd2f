"""Appends are guarded, whole, in order, and there for everybody once they are synced."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial

import msgspec
import pytest

from holdfast.errors import Conflict, LeaseLost
from holdfast.log.store_calls import acquire_one, facts_of_all, holder_of, streams_in, sync_one
from holdfast.stores.port import Store
from holdfast.testing.contract import (
    HOSTILE_NAMES,
    LONG_S,
    STREAM,
    at_once,
    begun,
    lines_of,
)

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
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, [b'{"id":"t-1"}', b"two"])
        store.append(lease, 2, [b"three"])
        sync_one(store, lease)
        assert list(store.read(STREAM)) == [b'{"id":"t-1"}', b"two", b"three"]
        assert list(store.read(STREAM, 2)) == [b"three"]
        assert list(streams_in(store, "tasks/")) == [STREAM]

    def test_what_was_synced_is_read_by_everybody(self, store: Store, other: Store) -> None:
        begun(store, count=3)
        assert list(other.read(STREAM)) == lines_of(STREAM, 3)
        assert list(other.read(STREAM, backwards=True)) == lines_of(STREAM, 3)[::-1]
        assert list(streams_in(other, "tasks/")) == [STREAM]

    def test_what_was_synced_is_there_when_the_store_is_opened_again(
        self, open_store: Callable[[], Store]
    ) -> None:
        with closing(open_store()) as store:
            begun(store, count=3)
        with closing(open_store()) as again:
            assert list(again.read(STREAM)) == lines_of(STREAM, 3)
            lease = acquire_one(again, STREAM, "me", LONG_S)
            again.append(lease, 3, lines_of(STREAM, 4)[3:])
            sync_one(again, lease)
            assert list(again.read(STREAM)) == lines_of(STREAM, 4)

    def test_an_append_at_the_wrong_place_is_refused_and_changes_nothing(
        self, store: Store
    ) -> None:
        lease = acquire_one(store, STREAM, "me", LONG_S)
        with pytest.raises(Conflict):
            store.append(lease, 1, [b"bad"])
        store.append(lease, 0, [b"one"])
        for wrong in (0, 2, 99):
            with pytest.raises(Conflict):
                store.append(lease, wrong, [b"bad", b"worse"])
        store.append(lease, 1, [b"two"])
        sync_one(store, lease)
        assert list(store.read(STREAM)) == [b"one", b"two"]

    def test_who_takes_a_stream_goes_on_at_its_end_and_nowhere_else(
        self, store: Store, other: Store
    ) -> None:
        store.release([begun(store)])
        lease = acquire_one(other, STREAM, "in between", LONG_S)
        other.append(lease, 1, lines_of(STREAM, 3)[1:])
        sync_one(other, lease)
        other.release([lease])
        again = acquire_one(store, STREAM, "me again", LONG_S)
        for wrong in (0, 1, 2, 4):
            with pytest.raises(Conflict):
                store.append(again, wrong, [b"bad"])
        store.append(again, 3, lines_of(STREAM, 4)[3:])
        sync_one(store, again)
        assert list(other.read(STREAM)) == lines_of(STREAM, 4)

    def test_the_end_of_a_long_log_is_found_by_who_takes_it(
        self, store: Store, other: Store
    ) -> None:
        lines = [b"%d %s" % (n % 10, b"x" * 98) for n in range(3000)]  # they say no number
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        store.release([lease])
        lease = acquire_one(other, STREAM, "next", LONG_S)
        with pytest.raises(Conflict):
            other.append(lease, 2999, [b"bad"])
        other.append(lease, 3000, [b"next"])
        sync_one(other, lease)
        assert list(store.read(STREAM)) == [*lines, b"next"]

    def test_lines_may_be_any_bytes_without_a_newline(
        self, open_store: Callable[[], Store], store: Store
    ) -> None:
        first = b'{"id":"t-1"}'
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, [first])
        for seq, line in enumerate(ODD_LINES, 1):
            store.append(lease, seq, [line])
        store.append(lease, 1 + len(ODD_LINES), ODD_LINES)
        sync_one(store, lease)
        store.release([lease])
        expected = [first, *ODD_LINES, *ODD_LINES]
        with closing(open_store()) as again:
            assert list(again.read(STREAM)) == expected
            assert list(again.read(STREAM, 5)) == expected[5:]
            assert list(again.read(STREAM, backwards=True)) == expected[::-1]
            lease = acquire_one(again, STREAM, "me", LONG_S)
            again.append(lease, len(expected), [b"and on"])
            assert list(again.read(STREAM)) == [*expected, b"and on"]

    def test_a_line_may_be_long(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 3, 600_000)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        for seq, line in enumerate(lines):
            store.append(lease, seq, [line])
        sync_one(store, lease)
        assert list(other.read(STREAM)) == lines
        assert list(other.read(STREAM, backwards=True)) == lines[::-1]

    def test_thousands_of_lines_may_come_at_once(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 12_000)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, lines[:11_000])
        store.append(lease, 11_000, lines[11_000:])
        sync_one(store, lease)
        assert list(other.read(STREAM)) == lines
        assert list(other.read(STREAM, backwards=True)) == lines[::-1]
        assert list(other.read(STREAM, 11_998)) == lines[11_998:]

    def test_to_append_nothing_changes_nothing(self, store: Store) -> None:
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, [])
        sync_one(store, lease)
        assert list(streams_in(store, "tasks/")) == []
        store.append(lease, 0, [b"one"])
        store.append(lease, 1, [])
        sync_one(store, lease)
        assert list(store.read(STREAM)) == [b"one"]

    def test_what_the_caller_does_with_its_list_afterwards_changes_nothing(
        self, store: Store
    ) -> None:
        lines = [b"one"]
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        lines[0] = b"changed"
        lines.append(b"two")
        sync_one(store, lease)
        assert list(store.read(STREAM)) == [b"one"]

    def test_threads_append_in_some_order_and_lose_nothing(self, store: Store) -> None:
        lease = acquire_one(store, STREAM, "me", LONG_S)
        lock, seq = threading.Lock(), [0]

        def work() -> None:
            for _ in range(25):
                with lock:
                    store.append(lease, seq[0], [b"%d" % seq[0]])
                    seq[0] += 1
                sync_one(store, lease)

        at_once([work] * 4)
        assert list(store.read(STREAM)) == [b"%d" % n for n in range(100)]

    def test_many_streams_are_written_at_once_and_each_gets_its_own(
        self, store: Store, other: Store
    ) -> None:
        def work(stream: str) -> None:
            lease = acquire_one(store, stream, "me", LONG_S)
            for seq, line in enumerate(lines_of(stream, 10)):
                store.append(lease, seq, [line])
                sync_one(store, lease)
            store.release([lease])

        streams = [f"tasks/many-{n}" for n in range(16)]
        at_once([partial(work, stream) for stream in streams])
        for stream in streams:
            assert list(other.read(stream)) == lines_of(stream, 10)

    def test_a_refused_append_leaves_those_of_other_streams_alone(self, store: Store) -> None:
        one, two = begun(store, "tasks/one"), begun(store, "tasks/two")
        store.append(one, 1, [b"right"])
        with pytest.raises(Conflict):
            store.append(two, 7, [b"wrong"])
        sync_one(store, one)
        assert list(store.read("tasks/one"))[1:] == [b"right"]
        assert list(store.read("tasks/two"))[1:] == []

    def test_closing_gives_everything_back_and_keeps_what_was_appended(
        self, open_store: Callable[[], Store], other: Store
    ) -> None:
        streams = [f"tasks/{n}" for n in range(20)]
        held = begun(other, "tasks/of-another")
        store = open_store()
        leases = [acquire_one(store, stream, "me", LONG_S) for stream in streams]
        for lease in leases:
            store.append(lease, 0, lines_of(lease.stream, 1))
        store.close()
        store.close()
        store.release([leases[0]])
        with pytest.raises(LeaseLost):
            store.append(leases[0], 1, [b"two"])
        for stream in streams:
            assert other.holder(stream) is None
            assert list(other.read(stream)) == lines_of(stream, 1)
        other.renew(held)


# Reading takes no lease, disturbs nobody, and shows a prefix of what was appended.


class Reading:
    """Rule 4: reading needs no lease and changes nothing."""

    def test_a_new_stream_is_empty(self, store: Store) -> None:
        assert list(store.read(STREAM)) == []
        assert list(store.read(STREAM, 7)) == []
        assert list(store.read(STREAM, backwards=True)) == []
        assert list(streams_in(store, "tasks/")) == []
        assert list(facts_of_all(store, "tasks/")) == []

    def test_a_stream_is_made_by_its_first_append(self, store: Store, other: Store) -> None:
        lease = acquire_one(store, STREAM, "me", LONG_S)
        for reader in (store, other):
            assert list(reader.read(STREAM)) == []
            assert list(streams_in(reader, "tasks/")) == []
            assert list(facts_of_all(reader, "tasks/")) == []
        store.append(lease, 0, lines_of(STREAM, 1))
        sync_one(store, lease)
        for reader in (store, other):
            assert list(streams_in(reader, "tasks/")) == [STREAM]

    @pytest.mark.parametrize("width", [0, 400, 20_000])
    def test_a_long_log_is_read_from_either_end_and_from_anywhere(
        self, store: Store, width: int
    ) -> None:
        lines = lines_of(STREAM, 300, width)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        for start in range(0, 300, 60):
            store.append(lease, start, lines[start : start + 60])
        sync_one(store, lease)
        assert list(store.read(STREAM)) == lines
        assert list(store.read(STREAM, backwards=True)) == lines[::-1]
        for after_seq in (0, 1, 2, 150, 298, 299, 300, 301):
            assert list(store.read(STREAM, after_seq)) == lines[after_seq:]

    def test_lines_that_do_not_say_which_they_are_are_read_from_anywhere_too(
        self, store: Store
    ) -> None:
        lines = [b"%d" % (n % 7) for n in range(30)]
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        sync_one(store, lease)
        for after_seq in (0, 1, 15, 29, 30, 31):
            assert list(store.read(STREAM, after_seq)) == lines[after_seq:]

    def test_the_tail_is_read_only_as_far_as_it_is_asked_for(self, store: Store) -> None:
        lines = lines_of(STREAM, 50)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        tail = store.read(STREAM, backwards=True)
        assert [next(tail), next(tail)] == [lines[49], lines[48]]
        del tail  # and nobody minds
        assert list(store.read("tasks/nobody", backwards=True)) == []
        assert list(store.read("tasks/nobody", 7)) == []

    def test_who_stops_reading_half_way_is_in_nobodys_way(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 2000, 500)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        sync_one(store, lease)
        reading, back = other.read(STREAM, 3), other.read(STREAM, backwards=True)
        assert (next(reading), next(back)) == (lines[3], lines[-1])
        store.append(lease, 2000, [b"and one more"])
        sync_one(store, lease)
        rest = list(reading)
        assert rest in (lines[4:], [*lines[4:], b"and one more"])
        assert list(back) == lines[-2::-1]
        reading = other.read(STREAM)
        assert next(reading) == lines[0]
        store.delete(lease)
        assert list(other.read(STREAM)) == []

    def test_readers_see_a_prefix_while_a_writer_writes(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 200, 300)
        lease = acquire_one(store, STREAM, "me", LONG_S)
        done = threading.Event()
        wrong: list[str] = []

        def look(reader: Store) -> None:
            known = 0
            while not done.is_set():
                whole = list(reader.read(STREAM))
                newer = list(reader.read(STREAM, known))
                last = next(reader.read(STREAM, backwards=True), None)
                if whole != lines[: len(whole)] or newer != lines[known : known + len(newer)]:
                    wrong.append(f"{len(whole)} lines, {len(newer)} after {known}")
                if len(whole) < known:
                    wrong.append(f"{len(whole)} lines after there were {known}")
                if last is not None and last not in lines:
                    wrong.append(f"the last line was {last[:60]!r}")
                known = len(whole)

        readers = [threading.Thread(target=look, args=[reader]) for reader in (store, other)]
        for reader in readers:
            reader.start()
        for seq, line in enumerate(lines):
            store.append(lease, seq, [line])
        done.set()
        for reader in readers:
            reader.join()
        assert wrong == []

    def test_streams_are_apart_whatever_they_are_called(self, store: Store, other: Store) -> None:
        for name in HOSTILE_NAMES:
            lease = acquire_one(store, f"tasks/{name}", "me", LONG_S)
            store.append(lease, 0, [b'{"id":%s}' % msgspec.json.encode(name)])
            sync_one(store, lease)
        expected = sorted(f"tasks/{name}" for name in HOSTILE_NAMES)
        for reader in (store, other):
            assert sorted(streams_in(reader, "tasks/")) == expected
            assert sorted(stream for stream, _ in facts_of_all(reader, "tasks/")) == expected
            for name in HOSTILE_NAMES:
                line = b'{"id":%s}' % msgspec.json.encode(name)
                assert list(reader.read(f"tasks/{name}")) == [line]
                assert holder_of(reader, f"tasks/{name}") == "me"

    def test_a_prefix_is_taken_literally(self, store: Store) -> None:
        streams = ["tasks/a", "tasks/ab", "tasks/a_b", "tasks/a%b", "tasks/A", "tasks/b"]
        for stream in streams:
            begun(store, stream)
        begun(store, "sessions/a")
        for prefix in (
            "tasks/",
            "tasks/a",
            "tasks/a_",
            "tasks/a%",
            "tasks/A",
            "tasks/c",
            "tasks/ab",
        ):
            expected = sorted(stream for stream in streams if stream.startswith(prefix))
            assert sorted(streams_in(store, prefix)) == expected
            assert sorted(stream for stream, _ in facts_of_all(store, prefix)) == expected
        assert list(streams_in(store, "sessions/")) == ["sessions/a"]
