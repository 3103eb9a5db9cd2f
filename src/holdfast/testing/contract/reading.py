"""Reading takes no lease, disturbs nobody, and shows a prefix of what was appended."""

from __future__ import annotations

import threading

import msgspec
import pytest

from holdfast.store import Store
from holdfast.testing.contract.samples import HOSTILE_NAMES, LONG_S, STREAM, begun, lines_of


class Reading:
    """Rule 4: reading needs no lease and changes nothing."""

    def test_a_new_stream_is_empty(self, store: Store) -> None:
        assert list(store.read(STREAM)) == []
        assert list(store.read(STREAM, 7)) == []
        assert list(store.tail(STREAM)) == []
        assert list(store.streams("tasks/")) == []
        assert list(store.facts("tasks/")) == []

    def test_a_stream_is_made_by_its_first_append(self, store: Store, other: Store) -> None:
        lease = store.acquire(STREAM, "me", LONG_S)
        for reader in (store, other):
            assert list(reader.read(STREAM)) == []
            assert list(reader.streams("tasks/")) == []
            assert list(reader.facts("tasks/")) == []
        store.append(lease, 0, lines_of(STREAM, 1))
        store.sync(lease)
        for reader in (store, other):
            assert list(reader.streams("tasks/")) == [STREAM]

    @pytest.mark.parametrize("width", [0, 400, 20_000])
    def test_a_long_log_is_read_from_either_end_and_from_anywhere(
        self, store: Store, width: int
    ) -> None:
        lines = lines_of(STREAM, 300, width)
        lease = store.acquire(STREAM, "me", LONG_S)
        for start in range(0, 300, 60):
            store.append(lease, start, lines[start : start + 60])
        store.sync(lease)
        assert list(store.read(STREAM)) == lines
        assert list(store.tail(STREAM)) == lines[::-1]
        for after_seq in (0, 1, 2, 150, 298, 299, 300, 301):
            assert list(store.read(STREAM, after_seq)) == lines[after_seq:]

    def test_lines_that_do_not_say_which_they_are_are_read_from_anywhere_too(
        self, store: Store
    ) -> None:
        lines = [b"%d" % (n % 7) for n in range(30)]
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        store.sync(lease)
        for after_seq in (0, 1, 15, 29, 30, 31):
            assert list(store.read(STREAM, after_seq)) == lines[after_seq:]

    def test_the_tail_is_read_only_as_far_as_it_is_asked_for(self, store: Store) -> None:
        lines = lines_of(STREAM, 50)
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        tail = store.tail(STREAM)
        assert [next(tail), next(tail)] == [lines[49], lines[48]]
        del tail  # and nobody minds
        assert list(store.tail("tasks/nobody")) == []
        assert list(store.read("tasks/nobody", 7)) == []

    def test_who_stops_reading_half_way_is_in_nobodys_way(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 2000, 500)
        lease = store.acquire(STREAM, "me", LONG_S)
        store.append(lease, 0, lines)
        store.sync(lease)
        reading, back = other.read(STREAM, 3), other.tail(STREAM)
        assert (next(reading), next(back)) == (lines[3], lines[-1])
        store.append(lease, 2000, [b"and one more"])
        store.sync(lease)
        rest = list(reading)
        assert rest in (lines[4:], [*lines[4:], b"and one more"])
        assert list(back) == lines[-2::-1]
        reading = other.read(STREAM)
        assert next(reading) == lines[0]
        store.delete(lease)
        assert list(other.read(STREAM)) == []

    def test_readers_see_a_prefix_while_a_writer_writes(self, store: Store, other: Store) -> None:
        lines = lines_of(STREAM, 200, 300)
        lease = store.acquire(STREAM, "me", LONG_S)
        done = threading.Event()
        wrong: list[str] = []

        def look(reader: Store) -> None:
            known = 0
            while not done.is_set():
                whole = list(reader.read(STREAM))
                newer = list(reader.read(STREAM, known))
                last = next(reader.tail(STREAM), None)
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
            lease = store.acquire(f"tasks/{name}", "me", LONG_S)
            store.append(lease, 0, [b'{"id":%s}' % msgspec.json.encode(name)])
            store.sync(lease)
        expected = sorted(f"tasks/{name}" for name in HOSTILE_NAMES)
        for reader in (store, other):
            assert sorted(reader.streams("tasks/")) == expected
            assert sorted(stream for stream, _ in reader.facts("tasks/")) == expected
            for name in HOSTILE_NAMES:
                line = b'{"id":%s}' % msgspec.json.encode(name)
                assert list(reader.read(f"tasks/{name}")) == [line]
                assert reader.holder(f"tasks/{name}") == "me"

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
            assert sorted(store.streams(prefix)) == expected
            assert sorted(stream for stream, _ in store.facts(prefix)) == expected
        assert list(store.streams("sessions/")) == ["sessions/a"]
