"""The pages of a task say what its log says, and nobody's text forges them."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

import pytest

from holdfast import PlanItem, TaskWaiting, ask, current, task, tool
from holdfast.log.reading import read_events, stream_of
from holdfast.views.task import TaskView
from holdfast.views.words import block, code, one_line, prose
from holdfast.workspace.pages import PageChanges, footer_of, is_untouched, rendered, with_footer
from holdfast.workspace.projecting import HEADER, progress_line, tool_line
from tests.workspace import workers

pytestmark = pytest.mark.holdfast("memory://")


def pages(hf, task_id):
    view, changes = hf.task(task_id), PageChanges()
    for event in view.events():
        changes.note(event)
    return rendered(TaskView(hf.store, view.state), changes)


def lines(hf, task_id):
    """The lines of the files that grow, each made of an event and of the state after it."""
    from holdfast.log.reading import Tail

    tail = Tail(hf.store, task_id)
    made = [(progress_line(e, tail.state), tool_line(e, tail.state)) for _, e in tail.read()]
    return [one for one, _ in made if one], [json.loads(two) for _, two in made if two]


def outside_code(line):
    """A line of Markdown without what stands in it as code or is escaped."""
    return re.sub(r"(`+).*?\1(?!`)", "", line.replace("\\`", "").replace("\\<", ""))


def test_no_text_of_a_step_forges_a_page(hf):
    hf.run(workers.wanders, 5, 60, id="wanders-1")
    made = pages(hf, "wanders-1")
    for name in ("status.md", "decisions.md", "plan.md"):
        text = made[name].decode()
        ours = text.splitlines()
        assert sum(line.startswith("# ") for line in ours) == 1, name
        assert not [line for line in ours if line.startswith("- status") and name != "status.md"]
        assert all("<!--" not in line for line in map(outside_code, ours[:-1])), name
        assert text.count("\n<!-- holdfast") == 1, name
        assert "\x1b" not in text, name
    assert made["status.md"].decode().count("\n- status: ") == 1


def test_a_line_of_progress_has_four_parts_whatever_is_in_them(hf):
    hf.run(workers.wanders, 6, 60, id="wanders-2")
    told, _ = lines(hf, "wanders-2")
    for line in told:
        assert line.endswith("\n")
        assert line[:-1].isprintable()
        assert 3 <= len(line.split(" | ")) <= 4, line
        datetime.fromisoformat(line.split(" | ")[0])
    assert HEADER.split(": ", 1)[1] == "time | step | status | details\n"


def test_the_status_says_what_runs_what_waits_and_what_failed(hf):
    @tool
    def sends_to(name: str) -> str:
        return f"sent to {name}"

    @task
    def careful_traveller(city: str) -> str:
        current().plan([PlanItem("look", id="look"), PlanItem("book", id="b", after=("look",))])
        current().mark("look", "done")
        sends_to(city)
        return "sent" if ask("Book it?\n# Forged", bool) else "left"

    with pytest.raises(TaskWaiting):
        hf.run(careful_traveller, "Oslo", id="a careful 'one'")
    text = pages(hf, "a careful 'one'")["status.md"].decode()
    assert "- status: awaiting_user\n" in text
    assert "- position: step 2 of 2\n" in text
    assert "- for a person: Book it?\\n# Forged (`bool`)" in text
    assert "## Next\n\n- item `b`: book\n" in text
    state = json.loads(pages(hf, "a careful 'one'")["state.json"])
    assert state["workflow_id"] == "a careful 'one'"
    assert (state["steps"], state["completed_steps"], state["current_step"]) == (
        "plan",
        ["look"],
        "book",
    )
    assert state["calls"] == {"completed": 1, "running": ["ask"]}
    assert state["data"] == {"sends_to": "sent to Oslo"}
    assert [item["status"] for item in state["plan"]] == ["done", "pending"]
    assert state["seq"] == hf.task("a careful 'one'").seq
    hf.answer("a careful 'one'", True)
    hf.resume("a careful 'one'")
    text = pages(hf, "a careful 'one'")["status.md"].decode()
    assert '- result: `"sent"`' in text
    assert "## Waits" not in text


def test_state_json_has_what_the_record_of_the_task_has(hf):
    hf.run(workers.wanders, 7, 40, id="wanders-3")
    record = hf.task("wanders-3").record()
    state = json.loads(pages(hf, "wanders-3")["state.json"])
    short = {k: v for k, v in record.observations.items() if len(json.dumps(v)) < 4000}
    assert {k: v for k, v in state["data"].items() if k in short} == short
    assert state["data"].keys() == record.observations.keys()
    assert (state["status"], state["result"]) == (record.status, record.result)


def test_every_attempt_of_a_tool_has_a_line_with_its_key_and_time(hf):
    hf.run(workers.wanders, 8, 60, id="wanders-4")
    _, calls = lines(hf, "wanders-4")
    made = [c for c in hf.task("wanders-4").calls if c.kind == "tool"]
    begun, ended = calls[::2], calls[1::2]
    assert {call["status"] for call in begun} == {"started"}
    assert {call["status"] for call in ended} == {"completed"}
    for lines_ in (begun, ended):
        assert [call["path"] for call in lines_] == [c.path for c in made]
        assert [call["key"] for call in lines_] == [c.key for c in made]
        assert all(call["attempts"] == 1 for call in lines_)
    assert all(call["duration_ms"] >= 0 for call in ended)
    assert {"$cut"} in [set(c["output"]) for c in ended if isinstance(c["output"], dict)]


def test_a_page_that_nothing_changed_stays_as_it_is(hf):
    @task
    def one_after_another() -> None:
        current().plan(["one", "two"])
        workers.told_outside("a")
        workers.told_outside("b")

    hf.run(one_after_another, id="in-turn")
    planned = next(
        e.seq for e in read_events(hf.store, stream_of("in-turn")) if hasattr(e, "items")
    )
    found = footer_of(pages(hf, "in-turn")["plan.md"])
    assert found is not None
    assert found[0].seq == planned < hf.task("in-turn").seq


def test_a_page_knows_whether_somebody_edited_it():
    page = with_footer("# Plan\n\n- [ ] 1. look\n", 3, datetime(2026, 1, 1, tzinfo=UTC))
    assert is_untouched("plan.md", page)
    assert not is_untouched("plan.md", page.replace(b"look", b"book"))
    assert not is_untouched("plan.md", page + b"one more line\n")
    assert not is_untouched("plan.md", b"# Plan\n")
    assert not is_untouched("plan.md", b"")


@pytest.mark.parametrize("text", ["```\n# x\n```", "`", "``` ```", "", " ", "\u202eabc", "\r\n"])
def test_texts_stay_inside_what_is_around_them(text):
    assert "\n" not in code(text) + prose(text) + one_line(text)
    assert "\u202e" not in code(text) + prose(text) + one_line(text)
    made = block(text).split("\n")
    assert made[0] == made[-1]
    assert made[0] not in made[1:-1]
