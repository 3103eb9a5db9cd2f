"""What is new reaches those who follow, and nothing twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.web.live import MOST_READERS
from tests.web.agents import asked_trip, failed_task
from tests.web.serving import Page, serving


@pytest.fixture
def page(hf: Holdfast):
    with serving(hf) as page:
        yield page


def told(answer: Any) -> Iterator[tuple[str, Any, str]]:
    """Server-sent events: name, data, id."""
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            yield fields["event"], json.loads(fields["data"]), fields.get("id", "")
            fields = {}


def first(events: Iterator[tuple[str, Any, str]], name: str) -> tuple[Any, str]:
    return next((data, id) for kind, data, id in events if kind == name)


def test_the_events_of_a_task_come_as_they_are_written(hf: Holdfast, page: Page) -> None:
    id = asked_trip(hf)
    seen = hf.task(id).seq
    with page.http.stream("GET", f"/api/live/tasks/{id}", params={"after": seen - 1}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = told(answer)
        data, number = first(events, "events")
        assert [row["seq"] for row in data["events"]] == [seen]
        assert number == str(seen)
        hf.answer(id, True, question="book", by="bob")
        hf.resume(id)
        rows, status = [], ""
        while status != "completed":
            data, _ = first(events, "events")
            rows += data["events"]
            status = data["status"]
        assert [row["seq"] for row in rows] == list(range(seen + 1, hf.task(id).seq + 1))
        assert rows[-1]["what"] == "task completed"


def test_a_reader_that_comes_back_misses_nothing(hf: Holdfast, page: Page) -> None:
    id = asked_trip(hf)
    back = {"last-event-id": "3"}
    with page.http.stream("GET", f"/api/live/tasks/{id}?after=1", headers=back) as answer:
        data, _ = first(told(answer), "events")
    assert data["events"][0]["seq"] == 4


def test_a_list_tells_of_new_tasks_and_of_the_inbox(hf: Holdfast, page: Page) -> None:
    with page.http.stream("GET", "/api/live", params={"status": "failed"}) as answer:
        events = told(answer)
        assert first(events, "inbox")[0] == {"count": 0}
        failed_task(hf)
        asked_trip(hf)  # it is in another status
        data, _ = first(events, "tasks")
        assert [row["id"] for row in data["tasks"]] == ["breaks-1"]
        assert first(events, "inbox")[0] == {"count": 2}


def test_nobody_follows_what_is_not_there(page: Page) -> None:
    assert page.get("live", "tasks", "nobody", expect=404)["error"]["code"] == "not_found"
    assert page.get("live", status="odd", expect=400)["error"]["code"] == "bad_input"


def test_a_crowd_of_readers_is_limited(
    hf: Holdfast, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MOST_READERS >= 8
    monkeypatch.setattr("holdfast.web.live.MOST_READERS", 1)
    id = asked_trip(hf)
    with page.http.stream("GET", f"/api/live/tasks/{id}") as answer:
        events = told(answer)
        first(events, "hello")
        refused = page.http.get(f"/api/live/tasks/{id}")
        assert refused.status_code == 429
