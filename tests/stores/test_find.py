"""Lists of tasks, on every store: the same answers, by index, of whatever was asked."""

from __future__ import annotations

import itertools
import json
import sqlite3
from base64 import urlsafe_b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import BadInput, Holdfast, LogDamaged
from holdfast.stores import open_store
from holdfast.stores.finding import cursor_of, place_in
from holdfast.stores.port import Facts, PagePlace, Query
from holdfast.testing.contract.facts import complete, plain_filter, put
from tests.stores import agents
from tests.stores.databases import HOSTILE
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

STORES = ("memory", "files", "sqlite", "postgres")
AT = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture(params=STORES)
def store(request, tmp_path):
    urls = {"memory": "memory://", "files": f"{tmp_path}/w", "sqlite": f"sqlite:///{tmp_path}/db"}
    url = urls.get(request.param) or request.getfixturevalue("postgres_url")
    store = open_store(url, sync=False)
    yield store
    store.close()


@pytest.fixture
def hf(store):
    return Holdfast(store)


# Any facts, any query

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(HOSTILE)
few = st.sampled_from(["", "ada", "ADA", "a\0b", "'%"])
near = st.integers(0, 3).map(lambda n: AT + n * SECOND)
time = near | st.datetimes(timezones=st.just(UTC))
facts = st.builds(
    Facts, few, st.sampled_from(["failed", "completed", "pending"]), few | text, few,
    st.dictionaries(few, few | text, max_size=3), few, near | time, near | time,
    st.none(), few,
)  # fmt: skip


def queries(prefix: str):
    """A few filters each: a query of many matches nothing, which shows nothing."""
    times = ("created_after", "created_before", "updated_after", "updated_before")
    filters = {
        **dict.fromkeys(("task", "user", "session", "parent", "origin"), few | text),
        **dict.fromkeys(times, near | time),
        "status": st.lists(st.sampled_from(["failed", "completed", "x'"]), min_size=1).map(tuple),
        "labels": st.dictionaries(few, few, min_size=1, max_size=2),
        "beyond": st.builds(
            PagePlace, near, st.sampled_from("abcdef").map(lambda name: prefix + name)
        ),
    }
    some = st.lists(st.sampled_from(sorted(filters)), max_size=2, unique=True)
    chosen = some.flatmap(lambda names: st.fixed_dictionaries({n: filters[n] for n in names}))
    return st.builds(
        lambda limit, given: Query(prefix=prefix, limit=limit, **given), st.integers(1, 8), chosen
    )


prefixes = (f"n{number}/" for number in itertools.count())


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), many=st.lists(facts, min_size=1, max_size=6))
def test_every_store_finds_what_a_plain_filter_would(store, data, many):
    prefix = next(prefixes)
    known = {f"{prefix}{name}": facts for name, facts in zip("abcdef", many, strict=False)}
    for stream, its_facts in known.items():
        put(store, stream, its_facts)
    for query in data.draw(st.lists(queries(prefix), min_size=10, max_size=20)):
        assert complete(store, query, known) == plain_filter(query, known)[: query.limit]


# What users ask


@pytest.fixture
def ten(hf):
    """Ten finished tasks."""
    for n in range(10):
        labels = {"n": str(n), "odd": str(n % 2)}
        hf.run(agents.adding, 1, id=f"t-{n}", user="ada" if n % 3 else "bob", labels=labels)
    return hf


def ids(page):
    return [task.id for task in page.tasks]


def test_a_page_tells_of_tasks_without_reading_a_log(ten, monkeypatch):
    monkeypatch.setattr(type(ten.store), "read", None)
    page = ten.page(user="bob", labels={"odd": "1"}, status=["completed", "failed"])
    assert (ids(page), page.next, page.unreadable) == (["t-9", "t-3"], None, ())
    task = page.tasks[0]
    assert (task.type, task.status, task.user) == ("stored_adding", "completed", "bob")
    assert task.labels == {"n": "9", "odd": "1"}
    assert AT < task.created_at <= task.updated_at
    assert ids(ten.page(created_after=task.created_at)) == ["t-9"]
    assert ids(ten.page(created_before=task.created_at, limit=1)) == ["t-8"]
    assert ids(ten.page(updated_before=AT)) == []
    assert ids(ten.page(parent="t-1")) == ids(ten.page(origin="t-1")) == []


def test_pages_go_on_where_the_last_one_ended_while_tasks_are_added(ten):
    seen, cursor = [], None
    for n in range(20):
        page = ten.page(limit=3, cursor=cursor)
        seen += ids(page)
        ten.run(agents.adding, 1, id=f"more-{n}")
        cursor = page.next
        if cursor is None:
            break
    assert seen == [f"t-{n}" for n in range(9, -1, -1)]


def test_tasks_are_the_views_of_what_matches_and_of_the_newest_if_limited(ten):
    assert [view.id for view in ten.tasks(user="bob")] == ["t-0", "t-3", "t-6", "t-9"]
    found = ten.tasks(limit=2, status=["completed"], created_after=AT)
    assert [(view.id, view.result) for view in found] == [("t-8", 1), ("t-9", 1)]
    assert found.unreadable == []


# What a crash took


def forget(store, stream):
    """Make the store lose the facts of a stream, as a crash may."""
    match type(store).__name__:
        case "MemoryStore":
            del store._facts[stream]
        case "FileStore":
            index = store.root / "index.jsonl"
            lines = index.read_bytes().splitlines(keepends=True)
            index.write_bytes(b"".join(line for line in lines if stream.encode() not in line))
            store._index.close()
        case "SqliteStore":
            with closing(sqlite3.connect(store.path)) as conn, conn:
                conn.execute("update streams set status = null where name = ?", [stream])
        case _:
            with psycopg.connect(store._address.session_url, autocommit=True) as conn:
                query = "update holdfast.streams set status = null where name = %s"
                conn.execute(query, [stream])


def test_facts_that_a_crash_took_are_read_from_the_log_and_remembered(ten):
    forget(ten.store, "tasks/t-4")
    assert "tasks/t-4" in ten.store.find(Query()).unknown
    assert ids(ten.page(labels={"n": "4"})) == ["t-4"]
    assert ten.store.find(Query()).unknown == []
    assert ids(ten.page(labels={"n": "4"})) == ["t-4"]
    forget(ten.store, "tasks/t-5")
    assert ids(ten.page(limit=3)) == ["t-9", "t-8", "t-7"]
    forget(ten.store, "tasks/t-9")
    page = ten.page(limit=3, user="bob")
    assert ids(page) == ["t-9", "t-6", "t-3"]
    forget(ten.store, "tasks/t-0")
    assert ids(ten.page(limit=3, user="bob", cursor=page.next)) == ["t-0"]


def test_of_what_can_neither_be_found_nor_read_the_page_says_so(ten, monkeypatch):
    forget(ten.store, "tasks/t-4")
    reading = ten.store.read

    def read(stream, after_seq=0):
        if stream == "tasks/t-4":
            raise LogDamaged(stream, 1, "it is damaged for this test")
        return reading(stream, after_seq)

    monkeypatch.setattr(ten.store, "read", read)
    for page in (ten.page(limit=2), ten.page(user="nobody")):
        assert [type(error) for error in page.unreadable] == [LogDamaged]
    found = ten.tasks(limit=3)
    assert [view.id for view in found] == ["t-7", "t-8", "t-9"]
    assert len(found.unreadable) == 1


# Whatever else is asked

KEYS = (
    *HOSTILE,
    "",
    "id",
    "status; drop table streams",
    "status) or 1=1 --",
    "user\0",
    "_query",
    "__class__",
    "limit_",
    "task",
    "wake_at",
    "k" * 100_000,
)


def test_an_unknown_filter_is_refused_with_the_names_of_those_there_are(ten):
    for key in KEYS:
        for ask in (ten.page, ten.tasks):
            with pytest.raises(BadInput, match=r"only by status, type, .*updated_before") as info:
                ask(**{key: "x"})
            assert len(str(info.value)) < 400
    assert len(ten.page().tasks) == 10


VALUES = (*HOSTILE, "x' or '1'='1", "a\0b", "x" * 3_000_000, "$1", ":user", "{}", "{0}", "null")


def test_a_hostile_value_matches_what_is_equal_to_it_and_is_never_sql(ten):
    for number, value in enumerate(VALUES):
        for name in ("type", "user", "session", "parent", "origin"):
            assert ids(ten.page(**{name: value})) == []
        assert ten.tasks(session=value) == []
        assert ids(ten.page(labels={value: "x"})) == ids(ten.page(labels={"n": value})) == []
        with pytest.raises(BadInput, match="is none of"):
            ten.page(status=value)
        short, id = value[:1000], f"hostile-{number}"
        ten.run(agents.adding, 1, id=id, user=short, labels={short: short})
        assert ids(ten.page(user=short)) == ids(ten.page(labels={short: short})) == [id]
    assert len(ten.page(limit=1000).tasks) == 10 + len(VALUES)


WRONG: tuple[Any, ...] = (
    *({"user": wrong} for wrong in (7, "\ud800", b"ada", ["ada"], object(), float("nan"))),
    *({"labels": wrong} for wrong in ("a=b", {"a": 1}, {1: "a"}, {"\udfff": "x"}, ["a"])),
    {"labels": {str(n): "x" for n in range(101)}},
    *({"status": wrong} for wrong in ("sleeping", "failed,completed", "", "FAILED")),
    *({"status": wrong} for wrong in ([], [["failed"]], ["failed", 3])),
    {"created_after": "2026-01-01"},
    {"updated_before": 0},
    {"created_after": datetime(2026, 1, 1)},  # noqa: DTZ001
    *({"limit": wrong} for wrong in (0, -1, True, "5", 1e3, 2**70, None, 1001)),
)


def test_a_filter_of_the_wrong_kind_is_refused(ten):
    for wrong in WRONG:
        with pytest.raises(BadInput):
            ten.page(**wrong)
    assert len(ten.page().tasks) == 10


def test_none_is_no_filter_and_an_empty_text_is_none_given(ten):
    assert len(ten.page(user=None, status=None, labels=None, created_after=None).tasks) == 10
    assert len(ten.page(session="", parent="", origin="").tasks) == 10
    assert len(ten.page(user="").tasks) == len(ten.page(type="").tasks) == 0


def encoded(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


CURSORS = (
    "", "garbage", "🚀", "\ud800", "x" * 100_000, "=", "====", encoded([]), encoded(["x", "y"]),
    encoded(["2026-01-01T00:00:00", "tasks/t"]), encoded(["2026-01-01T00:00:00Z", "a\0b"]),
    encoded(["2026-01-01T00:00:00+01:00", "tasks/t"]), encoded({"created_at": 1}),
    cursor_of(PagePlace(AT, "tasks/t")) + " ", cursor_of(PagePlace(AT, "tasks/t"))[:-1],
    encoded(["0001-01-01T00:00:00+23:59", "t"]), 7, b"x", ["x"],
)  # fmt: skip


def test_a_cursor_that_was_not_given_out_is_refused(ten):
    for cursor in CURSORS:
        with pytest.raises(BadInput, match="none that was given out"):
            ten.page(cursor=cursor)


@given(st.datetimes(timezones=st.just(UTC)), text)
def test_a_cursor_comes_back_as_it_was(at, stream):
    place = PagePlace(at, f"tasks/{stream}")
    if stream.isprintable():
        assert place_in(cursor_of(place)) == place


def test_a_cursor_of_another_list_is_only_a_place(ten):
    other = ten.page(user="ada", limit=2)
    assert ids(ten.page(user="bob", cursor=other.next)) == ["t-6", "t-3", "t-0"]
