"""What the API says of tasks: lists, one task, its calls, its events, its past."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Worker, sleep, step, task
from holdfast.workspace import next_item
from tests.web.agents import (
    approval,
    asked_trip,
    doubtful,
    failed_task,
    finished_trip,
    hindered,
    mission,
)
from tests.web.serving import Page, serving

STORES = ("{tmp_path}/workspace", "sqlite:///{tmp_path}/tasks.db")


@pytest.fixture
def page(hf: Holdfast):
    with serving(hf) as page:
        yield page


@pytest.mark.holdfast(*STORES)
def test_the_inbox_has_all_that_needs_a_person(hf: Holdfast, page: Page) -> None:
    asked_trip(hf)
    approval(hf)
    doubtful(hf)
    failed_task(hf)
    finished_trip(hf)
    found = page.get("inbox")
    needs = {need["kind"]: need for need in found["needs"]}
    assert set(needs) == {"question", "approval", "doubt", "failed"}
    assert needs["question"]["title"] == "Book Oslo Inn?"
    assert needs["question"]["expects"] == "bool"
    assert json.loads(needs["approval"]["call"]["input"]["json"]) == {"amount": 70}
    assert needs["doubt"]["title"] == "send_page_invite may have happened."
    assert "resolve invite-1" in needs["doubt"]["actions"][0]["command"]
    assert needs["failed"]["failure"]["type"] == "ValueError"
    assert found["count"] == 4 == page.get("me")["inbox"]
    since = [need["since"] for need in found["needs"]]
    assert since == sorted(since)


@pytest.mark.holdfast(*STORES)
def test_lists_are_filtered_and_paged(hf: Holdfast, page: Page) -> None:
    for number in range(5):
        asked_trip(hf, f"trip-{number}")
    failed_task(hf)
    first = page.get("tasks", status="awaiting_user", limit=3)
    assert [row["id"] for row in first["tasks"]] == ["trip-4", "trip-3", "trip-2"]
    rest = page.get("tasks", status="awaiting_user", limit=3, cursor=first["next"])
    assert [row["id"] for row in rest["tasks"]] == ["trip-1", "trip-0"]
    assert rest["next"] is None
    assert [row["id"] for row in page.get("tasks", text="RIP-3")["tasks"]] == ["trip-3"]
    labelled = page.get("tasks", label="team=travel", text="p-3")
    assert [row["id"] for row in labelled["tasks"]] == ["trip-3"]
    assert page.get("tasks", since="1h", type="page_breaks")["tasks"][0]["status"] == "failed"
    assert page.get("tasks", until="1h")["tasks"] == []
    counts = page.get("tasks", "count")
    assert counts["counts"]["awaiting_user"] == 5
    assert counts["total"] == 6
    some = page.get("tasks", "count", status="awaiting_user", label="team=travel", text="p-3")
    assert some["total"] == 1, "what is counted is what is listed"
    assert "ls --status awaiting_user --label team=travel --url" in some["command"]
    detailed = page.get("tasks", status="awaiting_user", details="1", limit=1)["tasks"][0]
    assert detailed["asks"] == "Book Oslo Inn?"
    assert detailed["position"] == "step 2 of 3"
    for bad in ({"status": "odd"}, {"since": "yesterday"}, {"label": "x"}, {"cursor": "%%"}):
        assert _refused(page, bad), bad


def test_a_task_whose_code_changed_says_so_in_the_inbox(hf: Holdfast, page: Page) -> None:
    id = hindered(hf)
    [need] = page.get("inbox")["needs"]
    assert (need["kind"], need["task"]) == ("stuck", id)
    assert need["title"].startswith("It could not go on: CodeChanged: task 'shifts-1', step 1")
    [row] = page.get("tasks", details="1")["tasks"]
    assert row["note"] == "CodeChanged"


def test_the_oldest_questions_are_in_the_inbox_however_many_there_are(
    hf: Holdfast, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.web.needs._MOST_LOOKED_AT", 2)
    for number in range(4):
        asked_trip(hf, f"trip-{number}")
    found = page.get("inbox")
    assert [need["task"] for need in found["needs"]] == ["trip-0", "trip-1"]
    assert found["count"] == 4 == page.get("me")["inbox"]


@task
def page_sleeps() -> None:
    sleep(3600)


def test_tasks_that_sleep_need_nobody_and_are_not_read(
    hf: Holdfast, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    hf.start(page_sleeps, id="sleeps")
    Worker(hf, poll_s=0.01).run_until_idle()
    assert page.get("tasks", "sleeps")["note"] == "waiting"
    read: list[str] = []
    monkeypatch.setattr("holdfast.web.needs.view_at", lambda store, id: read.append(id))
    assert page.get("inbox")["needs"] == [] and read == []


def _refused(page: Page, query: dict[str, str]) -> bool:
    answer = page.http.get("/api/tasks", params=query)
    return answer.status_code == 400 and answer.json()["error"]["code"] == "bad_input"


def test_a_task_says_what_it_is_and_what_to_do(hf: Holdfast, page: Page) -> None:
    id = asked_trip(hf)
    found = page.get("tasks", id)
    assert found["position"]["text"] == "step 2 of 3"
    assert found["todo"] == "Book Oslo Inn?"
    assert found["status"] == "awaiting_user"
    assert (found["seq"], found["head"]) == (hf.task(id).seq,) * 2
    assert json.loads(found["input"]["json"]) == {"city": "Oslo"}
    assert found["labels"] == {"team": "travel"}
    assert found["commands"]["show"].startswith("holdfast show trip-1")
    assert {action["do"] for action in found["actions"]} >= {"cancel", "pause", "fork", "rewind"}
    assert page.get("tasks", "nobody", expect=404)["error"]["code"] == "not_found"


@pytest.mark.holdfast(*STORES)
def test_calls_come_by_range_with_their_attempts(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    whole = page.get("tasks", id, "calls")
    assert whole["total"] == len(whole["calls"]) == len(hf.task(id).calls)
    rooms = whole["calls"][0]
    assert [each["outcome"] for each in rooms["attempts"]] == ["failed", "ok"]
    part = page.get("tasks", id, "calls", offset=1, limit=2)
    assert part["calls"] == whole["calls"][1:3]
    detail = page.get("tasks", id, "calls", "1")
    assert detail["attempts"][0]["failure"]["type"] == "ConnectionError"
    assert "agents.py" in detail["attempts"][0]["failure"]["where"]
    assert json.loads(detail["output"]["json"]) == ["Oslo Inn", "Oslo Lodge"]
    assert any(change["place"].startswith("calls") for change in detail["changes"])
    decision = page.get("tasks", id, "calls", "room?1")
    [decided] = [e.seq for e in hf.task(id).events() if type(e).__name__ == "Decided"]
    assert (decision["before_seq"], decision["after_seq"]) == (decided - 1, decided)
    assert [row["seq"] for row in whole["calls"] if row["kind"] == "decision"] == [decided]
    [alone] = [n for n, row in enumerate(whole["calls"]) if row["kind"] == "decision"]
    assert page.get("tasks", id, "calls", offset=alone, limit=1)["calls"][0]["seq"] == decided
    assert page.get("tasks", id, "calls", "77", expect=404)["error"]["code"] == "not_found"


@pytest.mark.holdfast(*STORES)
def test_events_come_in_words_and_by_range(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    head = hf.task(id).seq
    whole = page.get("tasks", id, "events")
    assert [row["seq"] for row in whole["events"]] == list(range(1, head + 1))
    said = {row["what"]: row["sentence"] for row in whole["events"]}
    assert said["decided"] == 'decided: "Oslo Inn", because the cheapest'
    assert said["answered"] == "answered: true, says bob"
    assert page.get("tasks", id, "events", after=3, limit=2)["events"] == whole["events"][3:5]
    last = page.get("tasks", id, "events", before=head + 1, limit=2)["events"]
    assert last == whole["events"][-2:]
    assert page.get("tasks", id, "events", before=2, limit=50)["events"] == whole["events"][:1]
    one = page.get("tasks", id, "events", "2")
    assert json.loads(one["json"]["json"])["type"] == one["event"]["type"] == "claimed"
    hits = page.get("tasks", id, "search", q="OSLO LODGE")
    assert hits["hits"][0]["name"] == "find_page_rooms"
    assert hits["next"] is None


def test_every_part_can_be_had_as_of_any_event(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    for seq in range(1, hf.task(id).seq + 1):
        found = page.get("tasks", id, at=seq)
        assert found["seq"] == seq
        assert page.get("tasks", id, "state", at=seq)["seq"] == seq
        for part in ("calls", "timeline", "why", "plan", "files", "conversation", "models"):
            page.get("tasks", id, part, at=seq)
    assert page.get("tasks", id, at=10_000, expect=400)["error"]["code"] == "bad_input"


def test_a_plan_of_steps_says_what_became_of_each(hf: Holdfast, page: Page) -> None:
    asked, over = asked_trip(hf), finished_trip(hf)
    plan = page.get("tasks", asked, "plan")
    assert [item["status"] for item in plan["items"]] == ["done", "doing", "pending"]
    assert plan["place"] == 2
    assert {item["status"] for item in page.get("tasks", over, "plan")["items"]} == {"done"}
    early = page.get("tasks", over, "plan", at=3)
    assert [item["status"] for item in early["items"]] == ["pending"] * 3


def test_the_state_before_a_step_and_what_changed(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    call = page.get("tasks", id, "calls", "1")
    before = page.get("tasks", id, "state", at=call["before_seq"])
    after = page.get("tasks", id, "state", at=call["after_seq"], since=call["before_seq"])
    assert json.loads(before["state"]["json"])["outputs"] == {}
    outputs = json.loads(after["state"]["json"])["outputs"]
    assert outputs == {"find_page_rooms": ["Oslo Inn", "Oslo Lodge"]}
    assert [change["place"] for change in after["changes"]] == ["calls.1"]


def test_the_timeline_has_a_line_for_each_death_and_takeover(hf: Holdfast, page: Page) -> None:
    lines = page.get("tasks", doubtful(hf), "timeline")["lines"]
    kinds = [line["kind"] for line in lines]
    assert kinds[0] == "begun"
    assert "resumed" in kinds or "took_over" in kinds


@pytest.mark.holdfast(*STORES)
def test_files_have_versions_texts_and_diffs(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    (file,) = page.get("tasks", id, "files")["files"]
    old, new = [version["seq"] for version in file["versions"]]
    assert page.get("tasks", id, "files", "plan.md", text="1")["text"].endswith("Booked.\n")
    assert (
        page.get("tasks", id, "files", "plan.md", text="1", seq=old)["text"] == "# Trip to Oslo\n"
    )
    made = page.get("tasks", id, "files", "plan.md", "diff", **{"from": old, "to": new})
    assert {"marker": "+", "text": "Booked."} in made["lines"]
    assert made["lines"][0] == {"marker": "", "text": "@@ -1 +1,3 @@"}
    answer = page.http.get(f"/api/tasks/{id}/files/plan.md")
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.content == b"# Trip to Oslo\n\nBooked.\n"
    assert page.get("tasks", id, "files", "other", expect=404)["error"]["code"] == "not_found"
    not_image = page.http.get(f"/api/tasks/{id}/files/plan.md?image=1")
    assert not_image.status_code == 415


@pytest.mark.holdfast(*STORES)
def test_two_tasks_are_compared_to_their_first_divergence(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    made = page.post("tasks", id, "fork", at="1", when="after", effects="reuse",
                     results={"1": ["Hut"]})  # fmt: skip
    assert made["fork"]["of"] == id
    compared = page.get("compare", id=[id, made["fork"]["id"]])
    first = compared["pairs"][0]["first"]
    assert first["path"] == "1"
    assert first["what"] == "another result"
    assert json.loads(first["b"]["output"]["json"]) == ["Hut"]
    assert [each["id"] for each in page.get("tasks", id, "forks")["forks"]] == [made["fork"]["id"]]
    shared = page.get("tasks", made["fork"]["id"], "events")["events"]
    assert shared[0]["shared"] and not shared[-1]["shared"]
    assert page.get("compare", id=[id], expect=400)["error"]["code"] == "bad_input"


def test_a_search_finds_tasks_and_what_is_in_their_logs(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    assert page.get("search", q=id)["exact"] == id
    assert [row["id"] for row in page.get("search", q="TRIP")["tasks"]] == [id]
    hits = page.get("search", q="Lodge", deep="1")["hits"]
    assert {hit["task"] for hit in hits} == {id}


def test_figures_and_the_fleet_count_what_there_is(hf: Holdfast, page: Page) -> None:
    finished_trip(hf)
    failed_task(hf)
    fleet = page.get("fleet")
    assert fleet["statuses"]["completed"] == fleet["statuses"]["failed"] == 1
    assert sum(bucket["completed"] for bucket in fleet["throughput"]) == 1
    figures = page.get("figures")
    assert figures["complete"]
    assert {each["type"] for each in figures["types"]} == {"page_trip", "page_breaks"}


def test_a_mission_is_a_board_with_what_its_items_made(
    hf: Holdfast, page: Page, tmp_path: Path
) -> None:
    id, means = mission(hf, tmp_path)
    next_item(hf, id, means)
    next_item(hf, id, means)
    [listed] = page.get("missions")["missions"]
    assert (listed["id"], listed["done"], listed["items"]) == (id, 1, 3)
    board = page.get("missions", id)
    assert [item["status"] for item in board["items"]] == ["done", "pending", "pending"]
    assert [item["ready"] for item in board["items"]] == [False, True, False]
    [made] = board["artifacts"]
    assert (made["item"], made["task"]) == ("1", board["items"][0]["task"])
    found = [file["name"] for file in made["files"]]
    assert page.http.get(f"/api/tasks/{made['task']}/files/{found[0]}").status_code == 200


@step
def asks_a_model() -> dict[str, Any]:
    usage = {"input_tokens": 100, "output_tokens": 20, "cost": 0.25, "first_token_s": 0.4}
    return {"model": "m", "usage": usage}


@task
def page_spends() -> None:
    asks_a_model()
    asks_a_model()


def test_cost_stands_at_the_time_of_its_call(hf: Holdfast, page: Page) -> None:
    hf.run(page_spends, id="spends")
    figures = page.get("figures")
    assert sum(each["cost_usd"] for each in figures["cost"]) == pytest.approx(0.5)
    assert [each["tokens"] for each in figures["cost"][-2:]] in ([0, 240], [120, 120], [240, 0])
    assert figures["models"][0]["cost_usd"] == pytest.approx(0.5)
    assert page.get("tasks", "spends", "calls", "1")["usage"]["first_token_s"] == 0.4


def test_an_exported_task_is_one_file_without_scripts(hf: Holdfast, page: Page) -> None:
    answer = page.http.get(f"/api/tasks/{failed_task(hf)}/export")
    assert answer.headers["content-disposition"].startswith("attachment")
    text = answer.text
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "http-equiv" in text and "src=" not in text.replace("-src", "")
    assert "ValueError" in text
