"""SQLite walks the index that leaves the least, and counts no further than it has to."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, task
from holdfast.stores.port import Query
from holdfast.stores.queries import queries, schema
from holdfast.stores.sqlite.rows import _ENOUGH, PARTS, find_statement

AT = datetime(2026, 1, 1, tzinfo=UTC)
WALKS = {
    "parent": ({"parent": "p"}, PARTS["by_parent"]),
    "origin": ({"origin": "o"}, PARTS["by_origin"]),
    "session": ({"session": "s"}, PARTS["by_session"]),
    "label": ({"labels": {"a": "1"}}, PARTS["by_label"].format(0)),
    "user": ({"user": "ada"}, PARTS["by_user"]),
    "status": ({"status": ("failed",)}, PARTS["by_status"].format(":status_0")),
    "task": ({"task": "job"}, PARTS["by_task"]),
}
BY_CHANGE = PARTS["by_change"]
BY_NAME = PARTS["by_name"]


@task
def nothing() -> None: ...


def never(statement: str, given: dict[str, Any]) -> int:
    raise AssertionError(f"counted for nothing: {statement}")


class Counting:
    """Says how many rows each walk has, and which were counted."""

    def __init__(self, rows: dict[str, int]) -> None:
        self.rows = rows
        self.counted: list[str] = []

    def __call__(self, statement: str, given: dict[str, Any]) -> int:
        assert given["enough"] == _ENOUGH
        for walk, count in self.rows.items():
            if walk in statement:
                self.counted.append(walk)
                return count
        raise AssertionError(statement)


def walked(query: Query, count: Any = never) -> str:
    statement, _ = find_statement(query, count)
    every = [walk for _, walk in WALKS.values()] + [PARTS["by_age"], BY_CHANGE, BY_NAME]
    every.append(PARTS["by_status"].format(":status_0, :status_1"))
    (found,) = [walk for walk in every if walk in statement]
    return found


@pytest.mark.parametrize("name", WALKS)
def test_a_filter_alone_is_walked_along_its_index_and_nothing_is_counted(name):
    given, walk = WALKS[name]
    assert walked(Query(**given)) == walk


def test_without_a_filter_the_list_is_walked_by_age():
    assert walked(Query()) == PARTS["by_age"]


@pytest.mark.parametrize("name", WALKS)
@pytest.mark.parametrize("other", WALKS)
def test_of_two_the_narrower_is_walked(name, other):
    if name == other:
        return
    (given, walk), (more, wider) = WALKS[name], WALKS[other]
    count = Counting({walk: 3, wider: 4})
    assert walked(Query(**given, **more), count) == walk
    assert sorted(count.counted) == sorted([walk, wider])


def test_where_all_are_wide_one_in_the_order_of_the_list_is_walked():
    both = Query(user="ada", updated_after=AT)
    wide = {PARTS["by_user"]: _ENOUGH, BY_CHANGE: _ENOUGH}
    assert walked(both, Counting(wide)) == PARTS["by_user"]
    assert walked(both, Counting(wide | {BY_CHANGE: _ENOUGH - 1})) == BY_CHANGE
    two = PARTS["by_status"].format(":status_0, :status_1")
    statuses = Query(status=("failed", "paused"))
    assert walked(statuses, Counting({two: _ENOUGH})) == PARTS["by_age"]
    assert walked(statuses, Counting({two: 5})) == two


@pytest.mark.parametrize("span", [{"updated_after": AT}, {"updated_before": AT}])
def test_a_span_of_changes_is_walked_only_if_it_is_narrow(span):
    assert walked(Query(**span), Counting({BY_CHANGE: 9})) == BY_CHANGE
    assert walked(Query(**span), Counting({BY_CHANGE: _ENOUGH})) == PARTS["by_age"]


def test_a_room_other_than_that_of_the_tasks_is_walked_by_name_if_it_is_small():
    queues = Query(prefix="queues/reports/", limit=None)
    assert walked(queues, Counting({BY_NAME: 9})) == BY_NAME
    assert walked(queues, Counting({BY_NAME: _ENOUGH})) == PARTS["by_age"]
    assert walked(Query(prefix="")) == PARTS["by_age"]


def test_what_is_found_by_name_is_in_the_order_of_the_list(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path}/s.db") as hf:
        for name in ("b", "a", "c"):
            hf.session(name).say("hello")
        hf.run(nothing, id="t-1")
        found = hf.store.find(Query(prefix="sessions/", limit=2))
        assert [name for name, _ in found.found] == ["sessions/c", "sessions/a"] and found.more
        assert next(name for name, _ in hf.store.find(Query(prefix="")).found) == "tasks/t-1"


def test_a_page_of_what_is_due_is_read_off_its_index_however_many_have_the_same_time():
    given = {"now": 1, "after_at": 0, "after_name": "", "prefix": "a", "beyond": "b", "page": 9}
    with closing(sqlite3.connect(":memory:")) as conn:
        conn.executescript(schema("sqlite"))
        plan = conn.execute(f"explain query plan {queries('sqlite')['due']}", given).fetchall()
        (step,) = [row[3] for row in plan]  # and no other, to sort
        assert step.startswith("SEARCH streams USING INDEX streams_to_wake ((wake_at,name)>(?,?)")
