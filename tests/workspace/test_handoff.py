"""Handing over: what the log says is enough for whoever goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import (
    BadInput,
    HoldfastError,
    PlanItem,
    StepFailed,
    ask,
    current,
    decide,
    note,
    step,
    task,
    tool,
)
from holdfast.agent import Orchestrator, Reply, assistant
from holdfast.agent.contexts import Context
from holdfast.core.events import FileKept, FileRemoved, MissionSet, Planned
from holdfast.errors import TaskWaiting
from holdfast.workspace import handoff as handing
from holdfast.workspace.checklist import print_plan
from holdfast.workspace.edits import take_in
from holdfast.workspace.handoff import changelog_text, handoff, nears, summary_text
from holdfast.workspace.pages import is_untouched, with_footer

pytestmark = pytest.mark.holdfast("{tmp_path}/w")


@tool(in_doubt="retry")
def reserve_berth(where: str) -> str:
    return f"berth 7 in {where}"


@step
def find_weather(where: str) -> str:
    raise OSError(f"no forecast for {where}")


@task
def handed_over(where: str) -> None:
    current().plan(
        [
            PlanItem("reserve a berth", "berth"),
            PlanItem("look at the weather", "weather"),
            PlanItem("sail", "sail", after=("berth", "weather")),
            PlanItem("paint the hull", "paint"),
        ]
    )
    reserve_berth(where)
    current().mark("berth", "done", because="number 7 is free")
    try:
        find_weather(where)
    except StepFailed:
        current().mark("weather", "failed", because="no forecast")
    decide("course", "north", options=["north", "south"], because="# Status: fine\nthe wind")
    note("the anchor is rusty")
    ask("sail anyway?", bool)


@pytest.fixture
def view(hf):
    with pytest.raises(TaskWaiting):
        hf.run(handed_over, "Bergen", id="sail-1")
    with hf._holding.hold("sail-1") as log:
        log.append(MissionSet(text=log.stow(b'"Sail to Bergen.\\n"'), by="ada"))
        for size in (10, 12):
            file = log.stow(b'{"$parts":"x","size_bytes":%d,"sha256":"y"}' % size)
            log.append(FileKept(name="route.txt", file=file, path="1"))
        log.append(FileKept(name="draft.txt", file=file, by="bob"))
        log.append(FileRemoved(name="draft.txt", by="bob"))
        items = tuple(item for item in log.state.plan if item.id != "paint")
        log.append(Planned(items=items, by="ada"))
    return hf.task("sail-1")


def section(text, title):
    return text.partition(f"## {title}\n\n")[2].partition("\n\n## ")[0].splitlines()


def test_the_summary_says_where_things_stand_what_was_decided_what_failed_and_what_is_next(view):
    text = summary_text(view)
    assert "Sail to Bergen." in section(text, "Mission")
    assert "the plan: 1 of 3 items done or skipped" in "".join(section(text, "Where things stand"))
    assert section(text, "Done") == ["- berth\\. reserve a berth: number 7 is free"]
    assert section(text, "Found out") == [
        '- `1` `reserve_berth`: `"berth 7 in Bergen"`',
        "- noted the anchor is rusty",
    ]
    assert section(text, "Decided") == [
        '- `course`: `"north"`, because # Status: fine\\nthe wind',
    ]
    failed = section(text, "Failed")
    assert failed[0] == "- weather\\. look at the weather: no forecast"
    assert "`2` `find_weather`, attempt 1" in failed[1]
    assert "no forecast for Bergen" in failed[1]
    (asked,) = section(text, "Waits for somebody")
    assert "sail anyway?" in asked
    assert "holdfast answer sail-1 3 ANSWER" in asked
    assert section(text, "Later") == ["- sail\\. sail, after berth, weather"]
    assert section(text, "Removed from the plan") == ["- paint\\. paint the hull: it was pending"]
    assert section(text, "Files")[0].startswith("- `route.txt`, 12 bytes, 20")


def test_the_changelog_says_what_each_step_changed(view):
    lines = [
        line.partition("Z ")[2]
        for line in changelog_text(view.events()).splitlines()
        if line.startswith("- ")
    ]
    assert [line for line in lines if line.startswith("plan")] == [
        "plan: added berth: 'reserve a berth'",
        "plan: added weather: 'look at the weather'",
        "plan: added sail: 'sail'",
        "plan: added paint: 'paint the hull'",
        "plan: berth: pending, now done: number 7 is free",
        "plan: weather: pending, now failed: no forecast",
        "plan, by ada: removed paint, which was pending: 'paint the hull'",
    ]
    (called,) = [line for line in lines if line.startswith("`1` `reserve_berth` returned: ")]
    assert called.endswith(' ms → `"berth 7 in Bergen"`')
    assert any(line.startswith("`2` `find_weather` failed: ") for line in lines)
    assert [line for line in lines if "bytes" in line] == [
        "`1` `reserve_berth` made `route.txt`, 10 bytes",
        "`1` `reserve_berth` changed `route.txt`, 12 bytes (was 10)",
        "bob made `draft.txt`, 12 bytes",
        "bob removed `draft.txt`, 12 bytes; its versions are kept",
    ]
    assert 'mission set: `"Sail to Bergen.\\n"`, by ada' in lines


def test_both_are_the_same_whenever_they_are_written_and_a_persons_version_is_kept(
    hf, view, tmp_path
):
    written = handoff(hf, view.id, tmp_path / "out")
    first = [path.read_bytes() for path in written]
    assert all(is_untouched(path.name, path.read_bytes()) for path in written)
    summary, changelog = written
    summary.unlink()
    changelog.write_text("my own words\n")
    assert [path.read_bytes() for path in handoff(hf, view.id, tmp_path / "out")] == first
    assert (tmp_path / "out" / "CHANGELOG.md.edited-1").read_text() == "my own words\n"
    changelog.write_text("more of them\n")
    handoff(hf, view.id, tmp_path / "out")
    assert (tmp_path / "out" / "CHANGELOG.md.edited-2").read_text() == "more of them\n"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "CHANGELOG.md",
        "CHANGELOG.md.edited-1",
        "CHANGELOG.md.edited-2",
        "SUMMARY.md",
    ]


def test_a_model_may_write_the_summary_and_what_the_log_says_stands_below(hf, view, tmp_path):
    asked = []

    def model(request):
        asked.append(request.messages[-1].text)
        return Reply(assistant("Sail north, the berth is number 7."))

    async def slow_model(request):
        return model(request)

    for each in (model, slow_model):
        text = handoff(hf, view.id, tmp_path / "out", model=each)[0].read_text()
        assert text.startswith("Sail north, the berth is number 7.\n\n---\n\n# Summary of `sail-1`")
        assert "number 7 is free" in text
    assert "number 7 is free" in asked[0]
    assert "# Changelog of `sail-1`" in asked[0]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda request: Reply(assistant("  \n")), "the model said nothing"),
        (lambda request: 1 / 0, "the model failed: ZeroDivisionError"),
        (lambda request: "words", "no Reply"),
    ],
)
def test_a_model_that_fails_or_says_nothing_costs_only_its_words(hf, view, tmp_path, model, told):
    text = handoff(hf, view.id, tmp_path / "out", model=model)[0].read_text()
    assert told in text
    assert "number 7 is free" in text


def test_a_context_nears_its_limit_by_its_share_or_when_something_is_left_out():
    def made(tokens):
        return Context("chat", 1, (), tokens=tokens, budget=100, digest="")

    assert [nears(made(tokens)) for tokens in (0, 79, 80, 100)] == [False, False, True, True]
    assert nears(made(50), share=0.5)
    with pytest.raises(BadInput, match="share of the budget"):
        nears(made(1), share=0)
    with pytest.raises(HoldfastError, match="outside a task"):
        handing.here("nowhere")


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_hands_over_when_its_context_nears_the_limit(hf, tmp_path, is_async):
    def answer(request):
        return Reply(assistant("word " * 300))

    async def slow_answer(request):
        return answer(request)

    model = slow_answer if is_async else answer
    agent = Orchestrator(
        f"talker_{is_async}", model, plan=False, budget_tokens=2000, compact_at=0.3,
        handoff=tmp_path / "out",
    )  # fmt: skip
    session = hf.session("chat-1")
    for n in range(8):
        if is_async:
            asyncio.run(agent.arun(session, f"question {n}", id=f"talk-{n}"))
        else:
            agent.run(session, f"question {n}", id=f"talk-{n}")
        if n == 0:
            assert not (tmp_path / "out").exists()
    assert "# Summary of `talk-" in (tmp_path / "out" / "SUMMARY.md").read_text()


# A new agent, which has nothing else

AGENT = r"""
# An agent without any memory: it has SUMMARY.md and plan.md, does the next item, and ticks it.
import re, sys
from pathlib import Path

summary, plan = Path("SUMMARY.md").read_text(), Path("plan.md").read_text()
word = re.search(r'^- `word`: `"(.*)"`', summary, re.M)[1]
folder = Path(re.search(r"write into (\S+)$", summary, re.M)[1])
items = re.findall(r"^- \[(.)\] (\d+)\. (\S+)(?: \(after: (\d+)\))?$", plan, re.M)
done = {number for mark, number, _, _ in items if mark == "x"}
todo = [i for i in items if i[0] == " " and (not i[3] or i[3] in done)]
if not todo:
    sys.exit(7)
_, number, name, _ = todo[0]
with open(folder / name, "x") as file:  # fails if it was done before
    file.write(word)
Path("plan.md").write_text(plan.replace(f"- [ ] {number}.", f"- [x] {number}."))
"""


@task
def writes_files(folder: str) -> None:
    plan = current().plan(["a.txt", PlanItem("c.txt", after=("3",)), "b.txt"])
    word = decide("word", "anchor", options=["anchor", "sail"], because="it holds")
    if plan[0].status == "pending":
        write_word(folder, plan[0].text, word)
        current().mark("1", "done")
    ask("is somebody there?", bool)


@step
def write_word(folder: str, name: str, word: str) -> None:
    with Path(folder, name).open("x") as file:
        file.write(word)


def test_an_agent_that_reads_only_the_summary_and_the_plan_goes_on_where_the_first_stopped(
    hf, tmp_path
):
    output, desk = tmp_path / "output", tmp_path / "desk"
    output.mkdir()
    with pytest.raises(TaskWaiting):
        hf.run(writes_files, str(output), id="files-1")
    with hf._holding.hold("files-1") as log:
        log.append(MissionSet(text=log.stow(f'"write into {output}"'.encode())))
    desk.mkdir()
    (desk / "agent.py").write_text(AGENT)
    codes = []
    for _ in range(3):
        view = hf.task("files-1")
        handoff(hf, "files-1", desk)
        (desk / "CHANGELOG.md").unlink()
        newest = view.plans[-1]
        page = with_footer(print_plan(view.plan), newest.seq, newest.at)
        (desk / "plan.md").write_bytes(page)
        done = subprocess.run(
            [sys.executable, "agent.py"], cwd=desk, capture_output=True, text=True, check=False
        )
        codes.append(done.returncode)
        assert done.stderr == ""
        assert not [change.problem for change in take_in(hf, "files-1", desk) if change.problem]
    assert codes == [0, 0, 7]
    assert {path.name: path.read_text() for path in output.iterdir()} == {
        "a.txt": "anchor",
        "b.txt": "anchor",
        "c.txt": "anchor",
    }
    assert [item.status for item in hf.task("files-1").plan] == ["done"] * 3
