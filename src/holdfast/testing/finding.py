"""The part of a store's contract that is about lists: rule 8 of `holdfast.store`, as tests.

`StoreContract` has them among its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.store import Facts, Place, Query, Store
from holdfast.testing.contract.samples import AT, LONG_S

SECOND = timedelta(seconds=1)
TEXTS = ("", "ada", "Ada", "a'b", "%", "_", "日本")

Found = list[tuple[str, Facts]]


class FindContract:
    """What `find` has to give."""

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
            assert page.more == (len(expected) > query.limit), query

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
            query = replace(query, beyond=Place(AT, page[-1][0]))
            for newer in (f"tasks/u-{number}", f"tasks/t-8{number}"):
                known[newer] = Facts("job", "failed", created_at=AT + number * SECOND)
                put(store, newer, known[newer])
            if number == 1:
                lease = store.acquire(page[-1][0], "me", LONG_S)
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
        lease = store.acquire(stream, "me", LONG_S)
        now = replace(first, status="completed", updated_at=AT + SECOND)
        store.append(lease, 1, [line_of(stream, 2)], now)
        store.sync(lease)
        store.release(lease)
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
        store.delete(store.acquire(stream, "me", LONG_S))
        assert not store.find(Query(labels={"c": "3"})).found
        assert not store.find(Query()).found


def put(store: Store, stream: str, facts: Facts | None) -> None:
    """Make a stream of one line, with facts that the store knows."""
    lease = store.acquire(stream, "me", LONG_S)
    store.append(lease, 0, [line_of(stream, 1)], facts)
    store.sync(lease)
    store.release(lease)
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
    return sorted(found.items(), key=_place, reverse=True)[: query.limit]


def plain_filter(query: Query, known: dict[str, Facts]) -> Found:
    """What matches, in order, by the plainest code there is."""

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
            and (query.beyond is None or (facts.created_at, stream) < query.beyond)
        )

    found = [each for each in known.items() if matches(*each)]
    return sorted(found, key=_place, reverse=True)


def _place(each: tuple[str, Facts]) -> tuple[datetime, str]:
    return each[1].created_at, each[0]


def random_facts(random: Random) -> Facts:
    """Facts of which some are like others, and some are not."""
    task, user, session, parent, origin = (random.choice(TEXTS) for _ in range(5))
    status = random.choice(("failed", "completed", "pending"))
    labels = {random.choice(TEXTS): random.choice(TEXTS) for _ in range(random.randrange(3))}
    created_at, updated_at = (AT + random.randrange(5) * SECOND for _ in range(2))
    times = created_at, updated_at, None
    return Facts(task, status, user, session, labels, parent, *times, origin)


def random_query(random: Random) -> Query:
    """A query of one filter or of several."""
    given: dict[str, Any] = {"limit": random.choice((1, 3, 50))}
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
        given["beyond"] = Place(*place)
    return Query(**given)


def _some(random: Random, of: Iterable[str]) -> tuple[str, ...]:
    several = list(of)
    return tuple(random.sample(several, random.randrange(1, len(several))))
