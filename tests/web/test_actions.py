"""What people do from the page: recorded with their names, refused as the command line refuses."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from holdfast import Holdfast
from tests.stores.every import postgres_server, postgres_url
from tests.web import agents
from tests.web.agents import approval, asked_trip, doubtful, failed_task, finished_trip
from tests.web.serving import Page, serving, until

__all__ = ["postgres_server", "postgres_url"]
APP = ("tests.web.agents",)


@pytest.fixture
def page(hf: Holdfast):
    with serving(hf) as page:
        yield page


@pytest.fixture
def driving(hf: Holdfast):
    """A page whose server has the code."""
    with serving(hf, app=APP) as page:
        yield page


def last(hf: Holdfast, id: str) -> Any:
    return list(hf.task(id).events())[-1]


def test_a_question_is_answered_once_and_by_name(hf: Holdfast, page: Page) -> None:
    id = asked_trip(hf)
    misfit = page.post("tasks", id, "answer", question="book", text="maybe", expect=400)
    assert misfit["error"]["message"] == "question book expects bool"
    done = page.post("tasks", id, "answer", question="book", text="true")
    assert done["words"] == "answered: question book"
    assert done["next"].startswith("To go on: holdfast resume trip-1")
    assert hf.resume(id) == "Oslo Inn for 2"
    said = [row for row in page.get("tasks", id, "events")["events"] if row["what"] == "answered"]
    assert said[0]["sentence"] == "answered: true, says ada"
    again = page.post("tasks", id, "answer", question="book", answer=False, expect=409)
    assert again["error"]["code"] in ("refused", "bad_input")


def test_a_server_with_the_code_goes_on_by_itself(hf: Holdfast, driving: Page) -> None:
    id = asked_trip(hf)
    driving.post("tasks", id, "answer", question="book", answer=True)
    until(lambda: hf.task(id).status == "completed")
    assert json.loads(driving.get("tasks", id)["result"]["json"]) == "Oslo Inn for 2"


def test_an_approval_lets_the_call_be_made(hf: Holdfast, driving: Page) -> None:
    yes, no = approval(hf, "spend-yes"), approval(hf, "spend-no")
    driving.post("tasks", yes, "approve", question="approve-1", approved=True)
    driving.post("tasks", no, "approve", question="approve-1", approved=False)
    until(lambda: hf.task(yes).status == "completed" and hf.task(no).status == "failed")
    assert hf.task(yes).result == {"paid": 70}


def test_a_doubt_is_resolved_with_its_result(hf: Holdfast, page: Page) -> None:
    id = doubtful(hf)
    assert page.post("tasks", id, "resolve", path="1", happened=True, expect=400)
    bad = page.post("tasks", id, "resolve", path="1", happened=True, result_text="{", expect=400)
    assert "no JSON" in bad["error"]["message"]
    page.post("tasks", id, "resolve", path="1", happened=True, result="by hand", because="I looked")
    assert hf.resume(id) == "by hand"
    settled = [row for row in page.get("tasks", id, "events")["events"] if row["type"] == "settled"]
    assert "says ada, because I looked" in settled[0]["sentence"]


def test_a_result_that_nobody_can_check_needs_the_code(
    hf: Holdfast, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = doubtful(hf)
    from holdfast.core.spec import registry
    from holdfast.errors import CodeMissing

    def missing(name: str) -> Any:
        raise CodeMissing(f"no tool {name}")

    monkeypatch.setattr(registry, "call", missing)
    refused = page.post("tasks", id, "resolve", path="1", happened=True, result=1, expect=409)
    assert refused["error"]["code"] == "needs_code"
    assert refused["error"]["command"].startswith("holdfast resolve invite-1 1 --happened")


def test_that_it_did_not_happen_has_it_made_again(hf: Holdfast, driving: Page) -> None:
    id = doubtful(hf)
    driving.post("tasks", id, "resolve", path="1", happened=False)
    until(lambda: hf.task(id).status == "completed")
    assert hf.task(id).result == "invited invite-1"


def test_a_failed_task_is_tried_again_where_the_code_is(
    hf: Holdfast, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = failed_task(hf)
    refused = page.post("tasks", id, "retry", expect=409)
    assert refused["error"]["code"] == "needs_code"
    assert refused["error"]["command"].startswith("holdfast retry breaks-1")
    with serving(hf, app=APP) as driving:
        seq = hf.task(id).seq
        driving.post("tasks", id, "retry")
        until(lambda: hf.task(id).seq > seq and hf.task(id).status == "failed")
        trip = asked_trip(hf)
        wrong = driving.post("tasks", trip, "retry", expect=400)
        assert "only a failed task" in wrong["error"]["message"]


def test_tasks_are_paused_resumed_and_cancelled_by_name(hf: Holdfast, page: Page) -> None:
    id = asked_trip(hf)
    assert page.post("tasks", id, "pause", because="lunch")["words"] == "paused"
    assert (last(hf, id).by, last(hf, id).because) == ("ada", "lunch")
    assert page.post("tasks", id, "resume")["words"] == "goes on, left to a worker"
    done = page.post("tasks", id, "cancel", because="Ada flew home")
    assert (done["outcome"], done["words"]) == ("ended", "cancelled: it has ended")
    assert hf.task(id).status == "cancelled"
    assert page.post("tasks", "nobody", "cancel", expect=404)["error"]["code"] == "not_found"


def test_many_tasks_at_once_are_each_told(hf: Holdfast, page: Page) -> None:
    ids = [asked_trip(hf, f"trip-{number}") for number in range(3)]
    done = page.post("bulk", do="cancel", ids=[*ids, "nobody", ids[0]], because="over")["done"]
    assert [each["ok"] for each in done] == [True, True, True, False]
    assert {hf.task(id).status for id in ids} == {"cancelled"}
    assert page.post("bulk", do="explode", ids=ids, expect=400)
    assert page.post("bulk", do="cancel", ids=[], expect=400)


def test_a_fork_needs_its_effects_said(hf: Holdfast, page: Page) -> None:
    id = finished_trip(hf)
    assert page.post("tasks", id, "fork", at="1", expect=400)["error"]["code"] == "bad_input"
    assert page.post("tasks", id, "fork", at="99", effects="live", expect=400)
    assert [each["name"] for each in page.get("effects")["effects"]] == ["live", "reuse", "stub"]
    made = page.post("tasks", id, "fork", at="1", when="after", effects="reuse", new_id="other",
                     results={"1": ["Hut"]}, because="what if")  # fmt: skip
    assert made["fork"]["id"] == "other"
    header = page.get("tasks", "other")
    assert (header["fork"]["by"], header["fork"]["because"]) == ("ada", "what if")
    assert page.get("tasks", id)["forks"] == ["other"]


@pytest.mark.parametrize("is_loaded", [True, False])
def test_a_value_that_was_copied_from_the_page_comes_back_as_it_was(
    hf: Holdfast, page: Page, monkeypatch: pytest.MonkeyPatch, is_loaded: bool
) -> None:
    said = hf.run(agents.page_reports, "Oslo", date(2026, 11, 1), id="reports")
    shown = {path: page.get("tasks", "reports", "calls", path)["output"] for path in ("1", "2")}
    results = {path: json.loads(each["json"]) for path, each in shown.items()}
    given = json.loads(page.get("tasks", "reports")["input"]["json"])
    assert "$datetime" in shown["1"]["json"]
    with monkeypatch.context() as patch:
        if not is_loaded:
            unload(patch)
        page.post("tasks", "reports", "fork", at="2", effects="reuse",
                  new_id="same", results=results, input=given)  # fmt: skip
    assert hf.resume("same") == said


def test_an_edited_value_is_read_as_the_log_writes_it(hf: Holdfast, page: Page) -> None:
    hf.run(agents.page_reports, "Oslo", None, id="reports")
    edited = {
        "1": {"at": {"$date": "2026-11-19"}, "$ref": "#"},
        "2": [{"hotel": "Hut", "night": "2026-11-19"}],
    }
    page.post("tasks", "reports", "fork", at="2", effects="reuse", new_id="other", results=edited)
    weather, stays, _ = hf.resume("other")
    assert weather == {"at": date(2026, 11, 19), "$ref": "#"}
    assert stays == [agents.Stay("Hut", date(2026, 11, 19))]
    edited["1"] = {"at": {"$date": "some day"}}
    wrong = page.post("tasks", "reports", "fork", at="2", effects="reuse", results=edited,
                      expect=400)  # fmt: skip
    assert "the result of page_weather can't be that" in wrong["error"]["message"]


def unload(patch: pytest.MonkeyPatch) -> None:
    """As in a process that has not imported the code."""
    from holdfast.core.spec import registry
    from holdfast.errors import CodeMissing

    def missing(name: str) -> Any:
        raise CodeMissing(f"no {name}")

    patch.setattr(registry, "call", missing)
    patch.setattr(registry, "task", missing)


def test_a_rewind_lists_what_was_done_since(hf: Holdfast, page: Page) -> None:
    id = doubtful(hf)
    refused = page.post("tasks", id, "rewind", to="1", expect=400)
    assert "settle it first" in refused["error"]["message"]
    hf.resolve(id, "1", happened=False)
    hf.resume(id)
    preview = page.get("tasks", id, "rewind", to="1")
    assert [(each["name"], each["undo_words"]) for each in preview["effects"]] == [
        ("send_page_invite", "has none")
    ]
    done = page.post("tasks", id, "rewind", to="1", because="wrong guest")
    assert done["effects"] == preview["effects"]
    assert hf.task(id).status == "paused"
    assert last(hf, id).by == "ada"
    assert page.get("tasks", id)["rewound"]["words"]


def test_a_replay_says_whether_the_code_does_the_same(hf: Holdfast, driving: Page) -> None:
    id = finished_trip(hf)
    seq = hf.task(id).seq
    assert driving.post("tasks", id, "replay")["same"]
    other = driving.post("tasks", id, "replay", stubs={"count_page_guests": 9})
    assert not other["same"]
    assert hf.task(id).seq == seq


def test_what_does_not_fit_is_refused_and_changes_nothing(hf: Holdfast, page: Page) -> None:
    id = asked_trip(hf)
    seq = hf.task(id).seq
    for action, body in (
        ("answer", {}),
        ("answer", {"question": "book"}),
        ("answer", {"question": "book", "answer": 1, "text": "1"}),
        ("answer", {"question": 7, "answer": True}),
        ("answer", {"question": "book", "answer": True, "by": "root"}),
        ("approve", {"question": "book", "approved": "yes"}),
        ("fork", {"at": "1", "effects": "none"}),
        ("rewind", {}),
        ("rewind", {"to": "1", "seq": 3}),
        ("pause", {"because": 7}),
    ):
        page.post("tasks", id, action, expect=400, **body)
    for sent in (b"", b"[]", b"nonsense", b"[" * 5000, b'"\xff"'):
        answer = page.http.post(
            f"/api/tasks/{id}/answer", content=sent,
            headers={"origin": page.url, "content-type": "application/json"},
        )  # fmt: skip
        assert answer.status_code == 400, sent
    assert hf.task(id).seq == seq


def test_the_page_works_on_postgresql(postgres_url: str) -> None:
    with Holdfast(postgres_url) as hf, serving(hf, app=APP) as page:
        id = asked_trip(hf)
        assert "password" not in page.get("me")["store"]
        assert page.get("inbox")["needs"][0]["title"] == "Book Oslo Inn?"
        page.post("tasks", id, "answer", question="book", answer=True)
        until(lambda: hf.task(id).status == "completed")
        for part in ("calls", "events", "timeline", "state", "why", "plan", "files", "models"):
            page.get("tasks", id, part)
        assert page.get("tasks", text="trip")["tasks"][0]["id"] == id


def test_nothing_in_the_agents_is_left_lost() -> None:
    assert agents.lost == set()
