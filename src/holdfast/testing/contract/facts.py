"""Facts are a copy of the log: right or unknown. Derived data go with their stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast.log.store_calls import acquire_one, due_in, facts_of_all, streams_in, sync_one
from holdfast.stores.port import Facts, PagePlace, Query, Store
from holdfast.testing.contract import (
    AT,
    HOSTILE_NAMES,
    LONG_S,
    STREAM,
    at_once,
    begun,
    lines_of,
)

DAY = timedelta(days=1)
EDGES = (datetime(1, 1, 2, tzinfo=UTC), AT, datetime.max.replace(tzinfo=UTC))


def told(store: Store, stream: str, facts: Facts) -> None:
    """A stream of two lines whose facts the store was told."""
    lease = begun(store, stream)
    store.append(lease, 1, lines_of(stream, 2)[1:], facts)
    sync_one(store, lease)
    store.remember(stream, facts, 2)
    store.release([lease])


def due(store: Store, now: datetime, prefix: str = "tasks/") -> set[str]:
    """The names of the streams that are due."""
    return {stream for stream, _ in due_in(store, prefix, now)}


class FactsOfStreams:
    """Rule 6: facts are a copy."""

    def test_facts_are_those_of_the_last_append_that_gave_any_or_unknown(
        self, store: Store, other: Store
    ) -> None:
        lease = begun(store)
        first = Facts("job", "awaiting_user", "ada", "s-1", {"a": "b"}, "p", AT, AT, origin="o")
        store.append(lease, 1, lines_of(STREAM, 2)[1:], first)
        assert dict(facts_of_all(store, "tasks/")) in ({STREAM: first}, {STREAM: None})
        store.append(lease, 2, lines_of(STREAM, 3)[2:])
        assert dict(facts_of_all(store, "tasks/")) in ({STREAM: first}, {STREAM: None})
        last = Facts("job", "completed", "ada")
        store.append(lease, 3, lines_of(STREAM, 4)[3:], last)
        sync_one(store, lease)
        for reader in (store, other):
            assert dict(facts_of_all(reader, "tasks/")) in ({STREAM: last}, {STREAM: None})
            assert dict(facts_of_all(reader, "other/")) == {}

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
            assert dict(facts_of_all(reader, "tasks/")) == {STREAM: right, "tasks/t-10": None}
        begun(store, "tasks/nobody")
        assert dict(facts_of_all(store, "tasks/nobody")) == {"tasks/nobody": None}

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
            assert dict(facts_of_all(again, "tasks/")) == given

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
            lease = acquire_one(store, stream, "me", LONG_S)
            pending = Facts("job", "pending", created_at=AT, updated_at=AT, wake_at=AT)
            store.append(lease, 0, lines_of(stream, 1), pending)
            store.release([lease])
            for reader in (store, other):
                assert stream in due(reader, AT)

    def test_a_stream_that_becomes_due_is_found_and_one_that_is_done_is_not(
        self, store: Store, other: Store
    ) -> None:
        lease = begun(store)
        for seq, wake_at in enumerate((None, AT, None, AT - DAY, AT + DAY), 1):
            facts = Facts("job", "in_progress", created_at=AT - DAY, wake_at=wake_at)
            store.append(lease, seq, lines_of(STREAM, seq + 1)[seq:], facts)
            sync_one(store, lease)
            store.remember(STREAM, facts, seq + 1)
            expected = {STREAM} if wake_at is not None and wake_at <= AT else set()
            assert due(store, AT) == due(other, AT) == expected

    def test_what_an_append_says_is_due_is_found_without_another_word(
        self, store: Store, other: Store
    ) -> None:
        done = Facts("job", "completed", created_at=AT - 2 * DAY)
        told(store, STREAM, done)
        assert due(store, AT) == due(other, AT) == set()
        lease = acquire_one(store, STREAM, "me", LONG_S)
        later = Facts("job", "in_progress", created_at=AT - 2 * DAY, wake_at=AT)
        store.append(lease, 2, lines_of(STREAM, 3)[2:], later)
        sync_one(store, lease)
        assert due(store, AT) == due(other, AT) == {STREAM}

    def test_a_stream_of_unknown_facts_is_due(self, store: Store) -> None:
        begun(store)
        assert list(due_in(store, "tasks/", AT)) == [(STREAM, None)]

    def test_what_is_due_comes_with_its_facts(self, store: Store) -> None:
        facts = Facts("job", "in_progress", "ada", labels={"a": "b"}, wake_at=AT)
        told(store, STREAM, facts)
        assert list(due_in(store, "tasks/", AT)) in ([(STREAM, facts)], [(STREAM, None)])

    def test_many_streams_are_all_listed(self, store: Store) -> None:
        streams = [f"tasks/{n:04}" for n in range(130)]
        for n, stream in enumerate(streams):
            lease = acquire_one(store, stream, "me", LONG_S)
            wake_at = AT + timedelta(microseconds=n // 7) if n % 3 else None
            facts = Facts("job", "in_progress", labels={"n": str(n)}, wake_at=wake_at)
            store.append(lease, 0, lines_of(stream, 1), facts)
        assert sorted(streams_in(store, "tasks/")) == streams
        found = dict(facts_of_all(store, "tasks/"))
        assert sorted(found) == streams
        known = {stream: facts for stream, facts in found.items() if facts is not None}
        assert all(facts.labels["n"] == str(int(stream[6:])) for stream, facts in known.items())
        expected = {stream for n, stream in enumerate(streams) if n % 3}
        assert due(store, AT + DAY) - {s for s in streams if found[s] is None} <= expected
        assert expected <= due(store, AT + DAY)


# The part of a store's contract that is about lists: rule 8 of `holdfast.stores.port`, as tests.
#
# `StoreContract` has them among its own.


SECOND = timedelta(seconds=1)
TEXTS = ("", "ada", "Ada", "a'b", "%", "_", "日本")

Found = list[tuple[str, Facts]]


class FindContract:
    """The streams that `find` has to give."""

    def test_a_page_holds_what_a_plain_filter_would(self, store: Store) -> None:
        random = Random(7)
        known = {f"tasks/t-{n:02}": random_facts(random) for n in random.sample(range(40), 40)}
        known["other/t-1"] = random_facts(random)
        for stream, facts in known.items():
            put(store, stream, facts)
        for _ in range(300):
            query = random_query(random)
            expected = plain_filter(query, known)
            page = store.find(query)
            assert complete(store, query, known) == expected[: query.limit], query
            assert page.more == (query.limit is not None and len(expected) > query.limit), query

    def test_pages_follow_each_other_whatever_is_added_or_removed(self, store: Store) -> None:
        known = {f"tasks/t-{n}": Facts("job", "failed", created_at=AT) for n in range(9)}
        for stream, facts in known.items():
            put(store, stream, facts)
        query, seen = Query(status=("failed",), limit=2), list[str]()
        for number in range(9):
            page = complete(store, query, known)
            if not page:
                break
            seen += [stream for stream, _ in page]
            query = replace(query, beyond=PagePlace(AT, page[-1][0]))
            for newer in (f"tasks/u-{number}", f"tasks/t-8{number}"):
                known[newer] = Facts("job", "failed", created_at=AT + number * SECOND)
                put(store, newer, known[newer])
            if number == 1:
                lease = acquire_one(store, page[-1][0], "me", LONG_S)
                store.delete(lease)
        assert seen == [f"tasks/t-{n}" for n in range(8, -1, -1)]

    def test_a_stream_of_which_nothing_is_known_is_named_beside_every_page(
        self, store: Store
    ) -> None:
        for n in range(3):
            put(store, f"tasks/t-{n}", Facts("job", "failed", created_at=AT))
        put(store, "tasks/dark", None)
        for query in (Query(limit=1), Query(status=("failed",)), Query(user="ada")):
            assert "tasks/dark" in store.find(query).unknown
            assert "tasks/dark" not in dict(store.find(query).found)
        assert "tasks/dark" not in store.find(Query(prefix="other/")).unknown
        store.remember("tasks/dark", Facts("job", "failed", "ada", created_at=AT), 1)
        assert [stream for stream, _ in store.find(Query(user="ada")).found] == ["tasks/dark"]
        assert "tasks/dark" not in store.find(Query()).unknown

    def test_a_change_of_facts_is_found_by_what_they_are_now(self, store: Store) -> None:
        stream = "tasks/t-1"
        first = Facts("job", "failed", "ada", "s", {"a": "1", "b": "2"}, "p", AT, AT)
        put(store, stream, first)
        lease = acquire_one(store, stream, "me", LONG_S)
        now = replace(first, status="completed", updated_at=AT + SECOND)
        store.append(lease, 1, [line_of(stream, 2)], now)
        sync_one(store, lease)
        store.release([lease])
        store.remember(stream, now, 2)
        for query in (Query(status=("completed",)), Query(updated_after=AT + SECOND), Query()):
            assert list(store.find(query).found) == [(stream, now)]
        assert not store.find(Query(status=("failed",))).found
        assert list(store.find(Query(labels={"b": "2"})).found) == [(stream, now)]
        mended = replace(now, labels={"a": "1", "c": "3"}, created_at=AT + SECOND)
        store.remember(stream, mended, 2)
        assert list(store.find(Query(labels={"c": "3"})).found) == [(stream, mended)]
        assert list(store.find(Query(labels={"a": "1", "c": "3"})).found) == [(stream, mended)]
        assert not store.find(Query(labels={"b": "2"})).found
        store.delete(acquire_one(store, stream, "me", LONG_S))
        assert not store.find(Query(labels={"c": "3"})).found
        assert not store.find(Query()).found


def put(store: Store, stream: str, facts: Facts | None) -> None:
    """Make a stream of one line, with facts that the store knows."""
    lease = acquire_one(store, stream, "me", LONG_S)
    store.append(lease, 0, [line_of(stream, 1)], facts)
    sync_one(store, lease)
    store.release([lease])
    if facts is not None:
        store.remember(stream, facts, 1)


def line_of(stream: str, seq: int) -> bytes:
    """A line like those of a log."""
    return msgspec.json.encode({"type": "noted", "id": stream.split("/", 1)[1], "seq": seq})


def complete(store: Store, query: Query, known: dict[str, Facts]) -> Found:
    """A page, with those on it that the store could not tell of."""
    page = store.find(query)
    unknown = {stream: known[stream] for stream in page.unknown if stream in known}
    if not unknown:
        return list(page.found)
    found = dict([*page.found, *plain_filter(query, unknown)])
    return _in_order(query, found.items())[: query.limit]


def plain_filter(query: Query, known: dict[str, Facts]) -> Found:
    """The matching streams, in order, by the plainest code there is."""

    def matches(stream: str, facts: Facts) -> bool:
        has: dict[str, Any] = msgspec.structs.asdict(facts)
        return (
            stream.startswith(query.prefix)
            and all(
                getattr(query, name) in (None, has[name])
                for name in ("task", "user", "session", "parent", "origin")
            )
            and (query.status == () or facts.status in query.status)
            and all(facts.labels.get(name) == value for name, value in query.labels.items())
            and (query.created_after is None or facts.created_at >= query.created_after)
            and (query.created_before is None or facts.created_at < query.created_before)
            and (query.updated_after is None or facts.updated_at >= query.updated_after)
            and (query.updated_before is None or facts.updated_at < query.updated_before)
            and (query.due_by is None or _wakes_by(query.due_by, facts))
            and (query.beyond is None or _is_beyond(query, stream, facts))
        )

    return _in_order(query, [each for each in known.items() if matches(*each)])


def _in_order(query: Query, found: Iterable[tuple[str, Facts]]) -> Found:
    if query.due_by is not None:
        return sorted(found, key=lambda each: (each[1].wake_at, each[0]))
    return sorted(found, key=lambda each: (each[1].created_at, each[0]), reverse=True)


def _wakes_by(time: datetime, facts: Facts) -> bool:
    return facts.wake_at is not None and facts.wake_at <= time


def _is_beyond(query: Query, stream: str, facts: Facts) -> bool:
    assert query.beyond is not None
    if query.due_by is not None:
        return facts.wake_at is not None and (facts.wake_at, stream) > query.beyond
    return (facts.created_at, stream) < query.beyond


def random_facts(random: Random) -> Facts:
    """Facts of which some are like others, and some are not."""
    task, user, session, parent, origin = (random.choice(TEXTS) for _ in range(5))
    status = random.choice(("failed", "completed", "pending"))
    labels = {random.choice(TEXTS): random.choice(TEXTS) for _ in range(random.randrange(3))}
    created_at, updated_at = (AT + random.randrange(5) * SECOND for _ in range(2))
    wake_at = random.choice((None, AT + random.randrange(5) * SECOND))
    times = created_at, updated_at, wake_at
    return Facts(task, status, user, session, labels, parent, *times, origin)


def random_query(random: Random) -> Query:
    """A query of one filter or of several."""
    given: dict[str, Any] = {"limit": random.choice((1, 3, 50, None))}
    if random.random() < 0.2:
        given["due_by"] = AT + random.randrange(6) * SECOND
    names = ("task", "user", "session", "parent", "origin")
    for name in random.sample(names, random.randrange(3)):
        given[name] = random.choice(TEXTS)
    if random.random() < 0.4:
        given["status"] = _some(random, ("failed", "completed", "pending", "'"))
    if random.random() < 0.4:
        given["labels"] = {name: random.choice(TEXTS) for name in _some(random, TEXTS)[:2]}
    for name in ("created_after", "created_before", "updated_after", "updated_before"):
        if random.random() < 0.15:
            given[name] = AT + random.randrange(6) * SECOND
    if random.random() < 0.3:
        place = AT + random.randrange(6) * SECOND, f"tasks/t-{random.randrange(40):02}"
        given["beyond"] = PagePlace(*place)
    return Query(**given)


def _some(random: Random, of: Iterable[str]) -> tuple[str, ...]:
    several = list(of)
    return tuple(random.sample(several, random.randrange(1, len(several))))


# Data derived from a stream is kept beside it, replaced as a whole, and goes with it.

LARGE = bytes(range(256)) * 1000


def _names(store: Store, stream: str = STREAM) -> list[str]:
    return sorted(row.name for row in store.get_side([stream], "derived", only_names=True))


def _got(store: Store, *names: str, stream: str = STREAM) -> dict[str, bytes]:
    return {row.name: row.data for row in store.get_side([stream], "derived", names)}


class DerivedBesideStreams:
    """Rule 12."""

    @pytest.fixture
    def kept(self, store: Store) -> Store:
        """A store with a stream to keep something beside."""
        store.release([begun(store)])
        return store

    def test_what_is_derived_comes_back_as_it_was_for_everybody(
        self, kept: Store, other: Store
    ) -> None:
        given = {"1024.head": b"", "1024.calls": LARGE, "2048.head": b"two\n\0"}
        for name, data in given.items():
            assert kept.put_side(STREAM, "derived", name, data)
        for each in (kept, other):
            assert _names(each) == sorted(given)
            assert _got(each, "1024.head", "2048.head", "4096.head") == {
                "1024.head": b"",
                "2048.head": b"two\n\0",
            }
            assert _got(each, "1024.calls") == {"1024.calls": LARGE}
            assert _got(each) == {}
            found = each.get_side([STREAM, "tasks/nobody"], "derived")
            assert {(row.stream, row.name): row.data for row in found} == {
                (STREAM, name): data for name, data in given.items()
            }

    def test_one_that_is_put_again_replaces_the_one_before(self, kept: Store) -> None:
        for data in (LARGE, b"one", LARGE + b"two"):
            kept.put_side(STREAM, "derived", "7.head", data)
            assert _got(kept, "7.head") == {"7.head": data}
        assert _names(kept) == ["7.head"]

    def test_of_many_who_put_the_same_one_is_there_whole(self, kept: Store, other: Store) -> None:
        several = [bytes([n]) * 50_000 for n in range(6)]
        jobs = [
            partial(each.put_side, STREAM, "derived", "7.head", data)
            for data in several
            for each in (kept, other)
        ]
        at_once(jobs)
        assert _got(kept, "7.head")["7.head"] in several

    def test_one_is_dropped_or_all_and_the_log_and_the_inbox_stay(self, kept: Store) -> None:
        kept.put_side(STREAM, "inbox", "7.head", b"message")
        for name in ("7.head", "8.head", "9.head"):
            kept.put_side(STREAM, "derived", name, b"x")
        before = list(kept.read(STREAM))
        for _ in range(2):
            kept.drop_side(STREAM, "derived", "7.head")
            assert _names(kept) == ["8.head", "9.head"]
        for _ in range(2):
            kept.drop_side(STREAM, "derived")
            assert (_names(kept), _got(kept, "8.head")) == ([], {})
        assert list(kept.read(STREAM)) == before
        assert [post.name for post in kept.get_side([STREAM], "inbox")] == ["7.head"]

    def test_a_name_that_is_no_number_and_word_is_not_kept(self, kept: Store) -> None:
        for name in ("head", "7", "../8.head", "7.head/x", "x.head", "7.", ""):
            assert not kept.put_side(STREAM, "derived", name, b"x")
            assert _got(kept, name) == {}
            kept.drop_side(STREAM, "derived", name)
        assert _names(kept) == []

    def test_it_goes_with_its_stream(self, kept: Store) -> None:
        kept.put_side(STREAM, "derived", "7.head", b"x")
        kept.rename(acquire_one(kept, STREAM, "me", LONG_S), "tasks/another")
        assert _names(kept) == []
        # In a store that is encrypted or signed it may be bound to the name.
        assert _got(kept, "7.head", stream="tasks/another") in ({"7.head": b"x"}, {})
        kept.delete(acquire_one(kept, "tasks/another", "me", LONG_S))
        kept.release([begun(kept, "tasks/another")])
        assert _names(kept, "tasks/another") == []

    def test_beside_a_stream_that_is_not_there_nothing_is_kept(self, kept: Store) -> None:
        kept.put_side("tasks/nobody", "derived", "7.head", b"x")
        assert _names(kept, "tasks/nobody") == []
        assert _got(kept, "7.head", stream="tasks/nobody") == {}
        kept.drop_side("tasks/nobody", "derived")

    def test_streams_of_any_name_are_apart(self, kept: Store) -> None:
        for number, name in enumerate(HOSTILE_NAMES):
            kept.release([begun(kept, f"tasks/{name}")])
            kept.put_side(f"tasks/{name}", "derived", "7.head", b"%d" % number)
        for number, name in enumerate(HOSTILE_NAMES):
            found = _got(kept, "7.head", stream=f"tasks/{name}")
            assert found == {"7.head": b"%d" % number}
