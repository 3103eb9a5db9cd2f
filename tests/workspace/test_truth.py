"""What the readable files say is what the log holds, wherever the process was killed.

Every event of a log is a point at which a process may have died. For each, a store is made that
holds the logs up to there; its files are written from it, and compared with the log by the plain
JSON of its lines, not by the code that writes the files. The stories are a task, a mission, a
script and an agent.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from holdfast import Holdfast, StepFailed, ask, current, step, task, tool
from holdfast.agent import Orchestrator, Reply, ToolCall, assistant
from holdfast.errors import TaskWaiting
from holdfast.stores.files.folder import safe_name
from holdfast.workspace.handoff import summary_text
from holdfast.workspace.harness import Means, init, next_item
from holdfast.workspace.once import once
from holdfast.workspace.projecting import project, task_folder
from holdfast.workspace.script import Step
from tests.flavors import Crash
from tests.thorough import some

FINISHED = ("completed", "failed", "cancelled")


# The stories


@step
def truth_look(city: str) -> str:
    return f"{city} Inn"


@tool(in_doubt="retry")
def truth_book(room: str) -> str:
    if room in KILLS:
        KILLS.remove(room)
        raise Crash
    return f"{room}: booked"


@tool
def truth_pay() -> None:
    raise ValueError("no money")


@task
def truth_trip(city: str) -> str:
    current().plan(["look", "book"])
    current().mark("1", "doing")
    room = truth_look(city)
    current().mark("1", "done")
    booked = truth_book(room)
    try:
        truth_pay()
    except StepFailed:
        current().mark("2", "failed", because="no money")
    return booked if ask("Keep it?", bool) else ""


@task
def truth_unmarked() -> None:
    current().plan(["one", "two"])
    for city in ("Oslo", "Bergen", "Narvik"):
        truth_look(city)


KILLS: set[str] = set()


def tell_task(hf: Holdfast) -> list[str]:
    KILLS.add("Oslo Inn")
    with pytest.raises(Crash):
        hf.run(truth_trip, "Oslo", id="trip")
    with pytest.raises(TaskWaiting):
        hf.resume("trip")
    hf.answer("trip", True)
    hf.resume("trip")
    hf.run(truth_unmarked, id="unmarked")
    return ["trip", "unmarked"]


def tell_mission(hf: Holdfast) -> list[str]:
    def agent(prompt: str) -> str:
        if "Write the plan for this mission" in prompt:
            return "- [ ] 1. look\n- [ ] 2. sweep (after: 1)"
        assert prompt.count("# Plan") == 1
        if "attic" in KILLS:
            KILLS.remove("attic")
            raise Crash
        return "did it"

    means = Means(agent, Path(hf.store.url).parent)
    init(hf, "Tidy the attic", id="attic")
    next_item(hf, "attic", means)
    KILLS.add("attic")
    with pytest.raises(Crash):
        next_item(hf, "attic", means)
    while next_item(hf, "attic", means).what != "done":
        pass
    return ["attic", *(view.id for view in hf.tasks(parent="attic"))]


def tell_script(hf: Holdfast) -> list[str]:
    for name, command in (("fetch", "true"), ("sort", "exit 3"), ("sort", "true")):
        once(hf, Step(script="nightly", name=name, command=("sh", "-c", command)))
    return ["nightly", *(view.id for view in hf.tasks(parent="nightly"))]


def tell_agent(hf: Holdfast) -> list[str]:
    def model(request):
        if [each.name for each in request.tools] == ["make_plan"]:
            plan = ToolCall("p1", "make_plan", json.dumps({"items": ["look", "answer"]}))
            return Reply(assistant("", [plan]), stop="tool_calls")
        said = sum(message.role == "assistant" for message in request.messages)
        if not said:
            done = ToolCall("c2", "update_plan", '{"item": "1", "status": "done"}')
            book = ToolCall("c1", "truth_book", '{"room": "attic"}')
            return Reply(assistant("I look.", [book, done]), stop="tool_calls")
        return Reply(assistant("It is booked."))

    agent = Orchestrator("truth_agent", model, [truth_book])
    assert agent.run(hf.session("chat"), "Book the attic", id="book").answer == "It is booked."
    return ["book"]


STORIES = {"task": tell_task, "mission": tell_mission, "script": tell_script, "agent": tell_agent}


# The log in its own words: the lines of events.jsonl, and nothing that Holdfast makes of them


class Told:
    """What the lines of a log say."""

    def __init__(self, lines: list[bytes]) -> None:
        self.events = [json.loads(line) for line in lines]
        self.plan: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.open: dict[str, str] = {}
        self.attempts: list[tuple[str, int, str]] = []
        self.status = "pending"
        for event in self.events:
            getattr(self, event["type"], lambda event: None)(event)

    def planned(self, event) -> None:
        for number, item in enumerate(event["items"], 1):
            item = {"text": item} if isinstance(item, str) else item
            id = item.get("id", str(number))
            self.texts[id] = item["text"]
            self.plan[id] = item.get("status", "pending")

    def plan_progressed(self, event) -> None:
        self.plan[event["id"]] = event["status"]

    def started(self, event) -> None:
        path = event["path"]
        self.kinds[path] = event.get("kind", self.kinds.get(path, "step"))
        if self.kinds[path] == "tool":
            if path in self.open:
                self.attempts.append((path, event["attempt"] - 1, "interrupted"))
            self.attempts.append((path, event.get("attempt", 1), "started"))
        self.open[path] = event.get("name", "")

    def _ended(self, event, outcome: str) -> None:
        path = event["path"]
        self.open.pop(path, None)
        if self.kinds.get(path) == "tool":
            number = max(each[1] for each in self.attempts if each[0] == path)
            self.attempts.append((path, number, outcome))

    def completed(self, event) -> None:
        self._ended(event, "completed")

    def attempt_failed(self, event) -> None:
        self._ended(event, "attempt_failed")

    def failed(self, event) -> None:
        self._ended(event, "failed")

    def task_completed(self, event) -> None:
        self.status = "completed"

    def task_failed(self, event) -> None:
        self.status = "failed"

    def task_retried(self, event) -> None:
        self.status = "in_progress"

    def question_asked(self, event) -> None:
        self.status = "awaiting_user"

    def question_answered(self, event) -> None:
        self.status = "in_progress"


def must_agree(folder: Path, told: Told) -> None:
    """Compare the files in a folder with what a log says."""
    state = json.loads((folder / "state.json").read_bytes())
    status = (folder / "status.md").read_text()
    seq = told.events[-1]["seq"]
    assert state["seq"] == seq
    assert f"As of event {seq}, " in status
    if told.status in (*FINISHED, "awaiting_user"):
        assert state["status"] == told.status
    else:
        assert state["status"] not in FINISHED
    assert f"- status: {state['status']}\n" in status
    is_worked_off = state["type"] in ("mission", "script") and bool(told.plan)
    is_marked = is_worked_off or any(mark != "pending" for mark in told.plan.values())
    assert state["steps"] == ("plan" if is_marked else "calls")
    if is_marked:
        done = [told.texts[id] for id, mark in told.plan.items() if mark == "done"]
        settled = [id for id, mark in told.plan.items() if mark in ("done", "skipped")]
        doing = [told.texts[id] for id, mark in told.plan.items() if mark == "doing"]
        assert state["completed_steps"] == done
        if doing and state["status"] not in FINISHED:
            assert state["current_step"] == doing[0]
            assert f"{doing[0]} since " in status.partition("## Runs")[2]
            if is_worked_off:
                assert doing[0] not in status.partition("## Next")[2]
        assert f"- plan: {len(settled)} of {len(told.plan)} items done or skipped" in status
    elif told.plan:
        assert "items done" not in status
    for path in told.open:
        assert f"`{path}`" in status.partition("## Runs")[2]
    logged = folder / "tool_log.jsonl"
    lines = logged.read_text().splitlines() if logged.exists() else []
    found = [json.loads(line) for line in lines]
    assert [(each["path"], each["attempts"], each["status"]) for each in found] == told.attempts


@pytest.mark.parametrize("story", STORIES)
def test_the_files_say_what_the_log_holds_at_every_point_of_a_kill(story, tmp_path):
    KILLS.clear()
    with Holdfast(tmp_path / "ws", projections=False) as hf:
        ids = STORIES[story](hf)
    for id in ids:
        lines = (task_folder(tmp_path / "ws", id) / "events.jsonl").read_bytes().splitlines(True)
        for count in some(range(1, len(lines) + 1), 2):
            at = tmp_path / "killed" / safe_name(id) / str(count)
            there = task_folder(at, id)
            there.mkdir(parents=True)
            (there / "events.jsonl").write_bytes(b"".join(lines[:count]))
            if (tmp_path / "ws" / "blobs").exists():
                shutil.copytree(tmp_path / "ws" / "blobs", at / "blobs")
            with Holdfast(at, projections=False) as hf:
                project(hf.store, id, there)
            must_agree(there, Told(lines[:count]))
            shutil.rmtree(at)


def test_the_comparison_finds_a_file_that_says_something_else(tmp_path):
    KILLS.clear()
    with Holdfast(tmp_path, projections=False) as hf:
        tell_task(hf)
        folder = task_folder(tmp_path, "trip")
        project(hf.store, "trip", folder)
    lines = (folder / "events.jsonl").read_bytes().splitlines(True)
    must_agree(folder, Told(lines))
    with pytest.raises(AssertionError):
        must_agree(folder, Told(lines[:-1]))
    log = folder / "tool_log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(True)[1:]))
    with pytest.raises(AssertionError):
        must_agree(folder, Told(lines))


def test_a_task_that_is_killed_at_its_first_event_has_its_files(tmp_path):
    import os
    import threading

    reached = threading.Event()

    @task
    def truth_waits() -> None:
        reached.set()
        while not (task_folder(tmp_path, "early") / "status.md").exists():
            os.sched_yield() if hasattr(os, "sched_yield") else None
        raise Crash

    with Holdfast(tmp_path) as hf:
        assert hf.projections is not None
        hf.projections.every_s = 3600  # only what is written without waiting
        with pytest.raises(Crash):
            hf.run(truth_waits, id="early")
        assert reached.is_set()


def test_the_files_that_a_killed_attempt_changed_are_told(tmp_path):
    project_folder = tmp_path / "project"
    project_folder.mkdir()
    (project_folder / "old.txt").write_text("old")
    agent = tmp_path / "agent.sh"
    agent.write_text(
        'if grep -q "Write the plan"; then echo "- [ ] 1. look"; exit; fi\n'
        f"if [ ! -e {tmp_path}/again ]; then\n"
        f"  touch {tmp_path}/again; echo new > made.txt; rm old.txt\n"
        f"  kill -9 $(cat {tmp_path}/pid)\n"
        "  sleep 60\n"
        "fi\n"
        "echo 2 > second.txt; echo did it\n"
    )
    runner = (
        "import os, sys; from pathlib import Path; from holdfast import Holdfast;"
        "from holdfast.workspace.harness import Means, init, next_item;"
        f"Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()));"
        f"hf = Holdfast({str(tmp_path / 'ws')!r}, lease_s=2);"
        f"means = Means('sh {agent}', Path({str(project_folder)!r}));"
        "'m' in [v.id for v in hf.tasks(type='mission')] or init(hf, 'Tidy up', id='m');"
        "next_item(hf, 'm', means); hf.close()"
    )
    import subprocess
    import sys

    codes = [
        subprocess.run([sys.executable, "-c", runner], check=False).returncode for _ in range(3)
    ]
    assert codes == [0, -9, 0]
    with Holdfast(tmp_path / "ws", projections=False) as hf:
        (done,) = hf.tasks(type="mission_item")
        changed = {each["name"]: each["how"] for each in done.result["changed"]}
    assert changed == {"made.txt": "made", "old.txt": "removed", "second.txt": "made"}


def test_the_summary_of_an_agent_is_no_dump_of_its_replies(tmp_path):
    with Holdfast(tmp_path, projections=False) as hf:
        tell_agent(hf)
        text = summary_text(hf.task("book"))
    assert '"role"' not in text
    assert "truth_agent_model` said: I look" in text
    assert "```\nBook the attic\n```" in text
    assert "`holdfast session chat`" in text


def test_who_is_at_work_on_a_mission_is_told(tmp_path):
    from holdfast.views.task import at_work

    seen: list[str | None] = []

    def agent(prompt: str) -> str:
        with Holdfast(tmp_path, projections=False) as other:
            seen.append(at_work(other.store, other.task("attic")))
        return "- [ ] 1. look" if "Write the plan" in prompt else "did it"

    with Holdfast(tmp_path, projections=False) as hf:
        init(hf, "Tidy the attic", id="attic")
        for _ in range(2):
            next_item(hf, "attic", Means(agent, tmp_path))
        assert at_work(hf.store, hf.task("attic")) is None
    assert [who is not None and "(attic." in who for who in seen] == [True, True]
