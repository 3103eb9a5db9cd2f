"""Facts are a copy: right or unknown, and what is due is found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.store import Facts, Store
from holdfast.testing.contract.samples import (
    AT,
    HOSTILE_NAMES,
    LONG_S,
    STREAM,
    begun,
    lines_of,
)

DAY = timedelta(days=1)
EDGES = (datetime(1, 1, 2, tzinfo=UTC), AT, datetime.max.replace(tzinfo=UTC))


def told(store: Store, stream: str, facts: Facts) -> None:
    """A stream of two lines whose facts the store was told."""
    lease = begun(store, stream)
    store.append(lease, 1, lines_of(stream, 2)[1:], facts)
    store.sync(lease)
    store.remember(stream, facts, 2)
    store.release(lease)


def due(store: Store, now: datetime, prefix: str = "tasks/") -> set[str]:
    """The names of the streams that are due."""
    return {stream for stream, _ in store.due(prefix, now)}


class FactsOfStreams:
    """Rule 6: facts are a copy."""

    def test_facts_are_those_of_the_last_append_that_gave_any_or_unknown(
        self, store: Store, other: Store
    ) -> None:
        lease = begun(store)
        first = Facts("job", "awaiting_user", "ada", "s-1", {"a": "b"}, "p", AT, AT, origin="o")
        store.append(lease, 1, lines_of(STREAM, 2)[1:], first)
        assert dict(store.facts("tasks/")) in ({STREAM: first}, {STREAM: None})
        store.append(lease, 2, lines_of(STREAM, 3)[2:])
        assert dict(store.facts("tasks/")) in ({STREAM: first}, {STREAM: None})
        last = Facts("job", "completed", "ada")
        store.append(lease, 3, lines_of(STREAM, 4)[3:], last)
        store.sync(lease)
        for reader in (store, other):
            assert dict(reader.facts("tasks/")) in ({STREAM: last}, {STREAM: None})
            assert dict(reader.facts("other/")) == {}

    def test_facts_are_remembered_if_the_log_still_ends_there(
        self, store: Store, other: Store
    ) -> None:
        begun(store, count=3)
        begun(store, "tasks/t-10", count=2)
        early, right = Facts("job", "in_progress"), Facts("job", "completed", updated_at=AT)
        store.remember(STREAM, right, 3)
        for wrong in (0, 1, 2, 4):
            store.remember(STREAM, early, wrong)
        store.remember("tasks/nobody", early, 1)
        store.remember("tasks/nobody", early, 0)
        for reader in (store, other):
            assert dict(reader.facts("tasks/")) == {STREAM: right, "tasks/t-10": None}
        begun(store, "tasks/nobody")
        assert dict(store.facts("tasks/nobody")) == {"tasks/nobody": None}

    @pytest.mark.parametrize("at", EDGES)
    def test_facts_come_back_as_they_were(
        self, open_store: Callable[[], Store], at: datetime
    ) -> None:
        given = {
            f"tasks/{n}": Facts(name, name, name, name, {name: name}, name, at, at, at, name)
            for n, name in enumerate(HOSTILE_NAMES)
        }
        given["tasks/plain"] = Facts(created_at=at)
        with closing(open_store()) as store:
            for stream, facts in given.items():
                told(store, stream, facts)
        with closing(open_store()) as again:
            assert dict(again.facts("tasks/")) == given

    def test_what_is_due_is_found_and_what_is_not_is_not(self, store: Store, other: Store) -> None:
        soon = timedelta(microseconds=1)
        wakes = {"due": AT, "past": AT - DAY, "soon": AT + soon, "later": AT + DAY, "done": None}
        for name, wake_at in wakes.items():
            facts = Facts("job", "in_progress", created_at=AT - 9 * DAY, wake_at=wake_at)
            told(store, f"tasks/{name}", facts)
        told(store, "sessions/due", Facts("job", "in_progress", wake_at=AT))
        for reader in (store, other):
            for _ in range(2):  # the first look may be another than those that follow
                assert due(reader, AT) == {"tasks/due", "tasks/past"}
            assert due(reader, AT, "tasks/p") == {"tasks/past"}
            later = {"tasks/due", "tasks/past", "tasks/soon", "tasks/later"}
            assert due(reader, AT + 2 * DAY) == later

    def test_a_new_stream_that_is_due_is_found_at_once(self, store: Store, other: Store) -> None:
        assert due(store, AT) == due(other, AT) == set()
        for n in range(3):
            stream = f"tasks/new-{n}"
            lease = store.acquire(stream, "me", LONG_S)
            pending = Facts("job", "pending", created_at=AT, updated_at=AT, wake_at=AT)
            store.append(lease, 0, lines_of(stream, 1), pending)
            store.release(lease)
            for reader in (store, other):
                assert stream in due(reader, AT)

    def test_a_stream_that_becomes_due_is_found_and_one_that_is_done_is_not(
        self, store: Store, other: Store
    ) -> None:
        lease = begun(store)
        for seq, wake_at in enumerate((None, AT, None, AT - DAY, AT + DAY), 1):
            facts = Facts("job", "in_progress", created_at=AT - DAY, wake_at=wake_at)
            store.append(lease, seq, lines_of(STREAM, seq + 1)[seq:], facts)
            store.sync(lease)
            store.remember(STREAM, facts, seq + 1)
            expected = {STREAM} if wake_at is not None and wake_at <= AT else set()
            assert due(store, AT) == due(other, AT) == expected

    def test_what_an_append_says_is_due_is_found_without_another_word(
        self, store: Store, other: Store
    ) -> None:
        done = Facts("job", "completed", created_at=AT - 2 * DAY)
        told(store, STREAM, done)
        assert due(store, AT) == due(other, AT) == set()
        lease = store.acquire(STREAM, "me", LONG_S)
        later = Facts("job", "in_progress", created_at=AT - 2 * DAY, wake_at=AT)
        store.append(lease, 2, lines_of(STREAM, 3)[2:], later)
        store.sync(lease)
        assert due(store, AT) == due(other, AT) == {STREAM}

    def test_a_stream_of_unknown_facts_is_due(self, store: Store) -> None:
        begun(store)
        assert list(store.due("tasks/", AT)) == [(STREAM, None)]

    def test_what_is_due_comes_with_its_facts(self, store: Store) -> None:
        facts = Facts("job", "in_progress", "ada", labels={"a": "b"}, wake_at=AT)
        told(store, STREAM, facts)
        assert list(store.due("tasks/", AT)) in ([(STREAM, facts)], [(STREAM, None)])

    def test_many_streams_are_all_listed(self, store: Store) -> None:
        streams = [f"tasks/{n:04}" for n in range(130)]
        for n, stream in enumerate(streams):
            lease = store.acquire(stream, "me", LONG_S)
            wake_at = AT + timedelta(microseconds=n // 7) if n % 3 else None
            facts = Facts("job", "in_progress", labels={"n": str(n)}, wake_at=wake_at)
            store.append(lease, 0, lines_of(stream, 1), facts)
        assert sorted(store.streams("tasks/")) == streams
        found = dict(store.facts("tasks/"))
        assert sorted(found) == streams
        known = {stream: facts for stream, facts in found.items() if facts is not None}
        assert all(facts.labels["n"] == str(int(stream[6:])) for stream, facts in known.items())
        expected = {stream for n, stream in enumerate(streams) if n % 3}
        assert due(store, AT + DAY) - {s for s in streams if found[s] is None} <= expected
        assert expected <= due(store, AT + DAY)
