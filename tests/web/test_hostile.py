"""What strangers wrote is shown as what it is, bounded in size, and does nothing."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, note, step, task
from holdfast.web.shapes import IN_DETAIL, IN_LISTS
from holdfast.workspace import files
from tests.thorough import THOROUGH
from tests.web.agents import finished_trip
from tests.web.serving import Page, serving

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "\x1b]0;title\x07\x1b[31mred",
    "\u202egnp.exe\u2066 hidden \u2069",
    "{{constructor.constructor('alert(1)')()}}",
    "\u0000\ufeff\u2028\u2029",
    "</style></title></textarea>--><svg onload=alert(1)>",
]
IDS = ["a/b?c=d#e%2F", "..", "x@5", "<b>", "日本語 task", "calls", "-rf", "a&b=c;d", "%2e%2e%2f"]


@step
def fetch_page(number: int) -> Any:
    return HOSTILE[number]


@task
def reads_hostile() -> list[str]:
    for text in HOSTILE:
        note(text, {text: [text]})
    files.write("page.html", "<script>alert(1)</script>")
    files.write("drawing.svg", "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>")
    return [fetch_page(number) for number in range(len(HOSTILE))]


@step
def huge(size: int) -> str:
    return "x" * size


@task
def returns_huge(size: int) -> int:
    return len(huge(size))


@step
def deep(levels: int) -> Any:
    made: Any = "end"
    for _ in range(levels):
        made = [made]
    return made


@task
def returns_deep(levels: int) -> None:
    deep(levels)


@step
def long_number() -> int:
    return 2**60 + 1


@task
def counts_far() -> int:
    return long_number()


@pytest.fixture
def page(hf: Holdfast):
    with serving(hf) as page:
        yield page


def test_hostile_texts_come_through_as_texts(hf: Holdfast, page: Page) -> None:
    hf.run(reads_hostile, id="hostile")
    result = page.get("tasks", "hostile")["result"]
    assert json.loads(result["json"]) == HOSTILE
    page.get("tasks", "hostile", "why")
    for part in ("calls", "events", "state", "timeline", "files"):
        answer = page.http.get(f"/api/tasks/hostile/{part}")
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
    exported = page.http.get("/api/tasks/hostile/export")
    for mark in ("<script", "<img", "<svg", "\x1b", "\u202e", "\u2066"):
        assert mark not in exported.text


@pytest.mark.parametrize("name", ["page.html", "drawing.svg"])
def test_files_are_saved_and_never_opened(hf: Holdfast, page: Page, name: str) -> None:
    hf.run(reads_hostile, id="hostile")
    answer = page.http.get(f"/api/tasks/hostile/files/{name}")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert page.http.get(f"/api/tasks/hostile/files/{name}?image=1").status_code == 415


@pytest.mark.parametrize("id", IDS)
def test_an_id_is_never_a_path(hf: Holdfast, page: Page, id: str) -> None:
    hf.run(counts_far, id=id)
    named = f"~{id}" if id in (".", "..") else id  # no browser would send two dots
    assert page.get("tasks", named)["id"] == id
    assert page.get("tasks", named, "events")["head"] == hf.task(id).seq
    assert page.get("tasks", named, "calls", "1")["path"] == "1"
    assert id in [row["id"] for row in page.get("tasks", text=id)["tasks"]]


def test_a_number_of_any_length_stays_exact(hf: Holdfast, page: Page) -> None:
    hf.run(counts_far, id="far")
    assert page.get("tasks", "far")["result"] == {"json": "1152921504606846977", "size": 19}


def test_a_huge_value_comes_as_its_size_and_a_download(hf: Holdfast, page: Page) -> None:
    size = (50 if THOROUGH else 5) * 1024 * 1024
    hf.run(returns_huge, size, id="huge")
    call = page.get("tasks", "huge", "calls", "1")
    assert call["output"]["size"] == size + 2
    assert len(call["output"]["cut"]) <= 4096
    for part in ("", "/calls", "/events", "/state", "/calls/1", "/timeline", "/export"):
        answer = page.http.get(f"/api/tasks/huge{part}")
        assert len(answer.content) < 4 * IN_DETAIL, part
    whole = page.http.get(call["output"]["href"])
    assert whole.headers["content-disposition"].startswith("attachment")
    assert len(whole.content) == size + 2


def test_values_in_lists_are_shorter_than_in_detail() -> None:
    assert IN_LISTS < IN_DETAIL


def test_deep_nesting_is_shown_without_being_parsed(hf: Holdfast, page: Page) -> None:
    hf.run(returns_deep, 90, id="deep")
    shown = page.get("tasks", "deep", "calls", "1")["output"]["json"]
    assert shown == "[" * 90 + '"end"' + "]" * 90
    for part in ("events", "state", "export"):
        assert page.http.get(f"/api/tasks/deep/{part}").status_code == 200


def test_odd_queries_are_refused_or_answered_and_never_fail(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    places = [("", "at"), ("/calls", "offset"), ("/events", "before"), ("/events", "limit")]
    places += [("/state", "since"), ("/state", "at"), ("/rewind", "seq"), ("/conversation", "at")]
    for part, name in places:
        for value in ("-1", "0", "9" * 40, "x", "1;drop", "\u0661", "1.5", "%00"):
            answer = page.http.get(f"/api/tasks/{id}{part}", params={name: value})
            assert answer.status_code in (200, 400), (name, value, part, answer.text)
    for path in ("", "/calls/%00", "/events/x", "/calls/1/saw", "/value?of=nothing", "/files/../x"):
        assert page.http.get(f"/api/tasks/{id}{path}").status_code in (200, 400, 404)
    assert page.http.get("/api/tasks/%FF%FE").status_code in (400, 404)
    assert page.http.get("/api/tasks/" + "x" * 300).status_code == 400


def test_a_damaged_log_is_shown_up_to_the_damage(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    log = next(Path(hf.store.url).glob(f"tasks/*{id}*/events.jsonl"))
    lines = log.read_bytes().splitlines(keepends=True)
    lines[7] = lines[7].replace(b'"seq"', b'"sex"')
    log.write_bytes(b"".join(lines))
    found = page.get("tasks", id)
    assert found["seq"] == 7
    assert "damaged after event 7" in found["damage"]
    assert page.get("tasks", id, "calls")["seq"] == 7
    answer = page.http.get(f"/api/tasks/{id}/events")
    assert answer.status_code in (200, 409)
    assert page.http.get("/api/inbox").status_code == 200


def test_a_store_that_can_not_be_written_can_be_looked_at(tmp_path: Path) -> None:
    where = tmp_path / "store"
    with Holdfast(where) as hf:
        id = finished_trip(hf)
    paths = [where, *where.rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    try:
        for path in reversed(paths):
            path.chmod(modes[path] & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
        before = {path: path.stat().st_mtime_ns for path in paths if path.is_file()}
        with Holdfast(where) as hf, serving(hf, read_only=True) as page:
            for part in ("", "/calls", "/events", "/state", "/files", "/timeline", "/why"):
                assert page.http.get(f"/api/tasks/{id}{part}").status_code == 200
            assert page.get("tasks")["tasks"][0]["id"] == id
        if os.geteuid():
            assert {p: p.stat().st_mtime_ns for p in before} == before
    finally:
        for path in paths:
            path.chmod(modes[path])
