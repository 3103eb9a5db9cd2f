"""`holdfast pause`, `cancel`, and `resume` of what was paused or cancelled"""

import json
import re
import signal
from pathlib import Path

import pytest

from holdfast import Holdfast

from .conftest import begin, effects, run, until


def start(function: str, *args: str, id: str) -> None:
    assert run("start", f"crew:{function}", *args, "--id", id, cwd=Path.cwd()).code == 0


def status_of(task: str) -> str:
    with Holdfast("workspace") as hf:
        return hf.task(task).status


def calls_of(task: str) -> list[str]:
    with Holdfast("workspace") as hf:
        return [call.name for view in hf.tasks() if view.id == task for call in view.calls]


@pytest.fixture
def at_work(crew, patience):
    """A task that a process is driving, in the middle of a step."""

    def driven(function: str, *args: str, id: str):
        process = begin("run", f"crew:{function}", *args, "--id", id, cwd=crew)
        patience(process)
        # A step's start is written many times a second, not at once.
        until(lambda: "work" in calls_of(id))
        until(Path("j.begun").exists)
        return process

    return driven


# Pausing


def test_a_task_that_nobody_drives_is_paused_at_once(crew, cli):
    start("chore", "tea", id="c-1")
    code, out, err = cli("pause", "c-1", "--because", "lunch", "--by", "ada")
    assert (code, err) == (0, "")
    assert out == (
        "paused\n"
        "To let it go on here:  holdfast resume c-1 --app MODULE\n"
        "To let a worker do so: holdfast resume c-1 --worker\n"
    )
    assert run("worker", "--app", "crew", "--until-idle", "-q", cwd=crew).code == 0
    assert effects() == []
    assert re.search(r"^c-1 +chore +paused +step", cli("ls", "--status", "paused").out, re.M)
    assert "task_paused" in cli("log", "c-1").out
    assert "by ada, because lunch" in cli("log", "c-1").out


def test_a_task_at_work_is_paused_after_the_step_in_hand(at_work, cli):
    working = at_work("job", "j", id="j-1")
    code, out, _ = cli("pause", "j-1", "--because", "lunch")
    assert code == 0
    assert re.match(r"paused: \S+ process \d+ finishes the step in hand, and releases it\n", out)
    Path("j.go").touch()
    assert working.wait(60) == 3
    assert working.stderr is not None
    err = working.stderr.read()
    assert "error: task 'j-1' is paused (lunch)\n" in err
    assert "  let it go on here:    holdfast resume j-1 --app crew\n" in err
    assert "  leave it to a worker: holdfast resume j-1 --worker\n" in err
    data = json.loads(cli("show", "j-1", "--json").out)
    assert (data["status"], data["because"]) == ("paused", "lunch")
    assert [call["status"] for call in data["calls"]] == ["completed"]
    resumed = run("resume", "j-1", "--app", "crew", cwd=Path.cwd())
    assert resumed[:2] == (0, '"j worked, finished"\n')
    assert effects() == ["work j", "finish j worked"]


def test_show_says_why_it_is_paused_and_how_it_goes_on(crew, cli):
    start("chore", "tea", id="c-1")
    cli("pause", "c-1", "--because", "the budget is spent")
    out = cli("show", "c-1").out
    assert "  it is paused, because the budget is spent\n" in out
    assert "  to go on: holdfast resume c-1 --app MODULE\n" in out
    assert "  or, left to a worker: holdfast resume c-1 --worker\n" in out


def test_a_paused_task_is_let_go_on_by_a_worker(crew, cli):
    start("chore", "tea", id="c-1")
    cli("pause", "c-1")
    code, out, _ = cli("resume", "c-1", "--worker")
    assert (code, out) == (0, "goes on, left to a worker: holdfast worker --app MODULE\n")
    assert effects() == []
    assert run("worker", "--app", "crew", "--until-idle", "-q", cwd=crew).code == 0
    assert status_of("c-1") == "completed"


def test_running_a_paused_task_waits_and_says_so_in_json_too(crew, cli):
    start("chore", "tea", id="c-1")
    assert json.loads(cli("pause", "c-1", "--json").out) == {
        "id": "c-1", "status": "paused", "at_work": None,
    }  # fmt: skip
    ended = run("run", "crew:chore", "tea", "--id", "c-1", "--json", cwd=crew)
    assert ended.code == 3
    assert json.loads(ended.out)["status"] == "paused"
    assert json.loads(cli("resume", "c-1", "--worker", "--json").out)["id"] == "c-1"


# Cancelling


def test_a_task_that_nobody_drives_ends_at_once(crew, cli):
    start("chore", "tea", id="c-1")
    code, out, err = cli("cancel", "c-1", "--because", "it rains")
    assert (code, out, err) == (0, "cancelled: it has ended\n", "")
    out = cli("show", "c-1").out
    assert out.startswith("c-1  cancelled\n")
    assert "  cancelled      because it rains\n" in out
    assert re.search(r"^c-1 +chore +cancelled +step", cli("ls").out, re.M)
    assert [t["id"] for t in json.loads(cli("ls", "--status", "cancelled", "--json").out)] == [
        "c-1"
    ]


def test_a_cancelled_task_has_an_exit_code_of_its_own_and_needs_no_code(crew, cli):
    start("chore", "tea", id="c-1")
    cli("cancel", "c-1", "--because", "it rains")
    code, out, err = run("resume", "c-1", cwd=crew)
    assert (code, out) == (8, "")
    assert err == "error: task 'c-1' was cancelled, because it rains\n"
    ended = run("run", "crew:chore", "tea", "--id", "c-1", "--json", cwd=crew)
    assert (ended.code, json.loads(ended.out)["status"]) == (8, "cancelled")
    code, _, err = run("retry", "c-1", "--app", "crew", cwd=crew)
    assert code == 2
    assert "there is nothing to retry" in err
    assert effects() == []


def test_a_task_at_work_ends_at_its_next_step(at_work, cli):
    working = at_work("job", "j", id="j-1")
    code, out, _ = cli("cancel", "j-1", "--because", "it rains")
    assert code == 0
    who = rf"\S+ process {working.pid}"
    assert re.fullmatch(rf"asked to end: it will at its next step \({who}\)\n", out)
    assert "  it is being cancelled, because it rains\n" in cli("show", "j-1").out
    Path("j.go").touch()
    assert working.wait(60) == 8
    assert status_of("j-1") == "cancelled"
    assert effects() == ["work j"]
    with Holdfast("workspace") as hf:
        assert [call.status for call in hf.task("j-1").calls] == ["completed"]


def test_a_task_with_something_to_undo_has_to_be_driven_to_its_end(at_work, cli):
    working = at_work("trip", "j", id="t-1")
    working.kill()
    working.wait()
    code, out, _ = cli("cancel", "t-1")
    assert code == 0
    assert out == (
        "asked to end: it has something to undo first\n"
        "A worker does that, or:  holdfast resume t-1 --app MODULE\n"
    )
    assert re.search(r"^t-1 +trip +in_progress, to be ended +step", cli("ls").out, re.M)
    assert "  to end it: holdfast resume t-1 --app MODULE\n" in cli("show", "t-1").out
    code, out, err = run("resume", "t-1", "--app", "crew", cwd=Path.cwd())
    assert (code, out) == (8, "")
    assert err == "error: task 't-1' was cancelled\n  of what it did: 2 calls undone\n"
    assert effects() == [
        "reserve hotel", "reserve train", "work j", "release train", "release hotel",
    ]  # fmt: skip


def test_a_worker_undoes_what_a_cancelled_task_did(at_work, cli):
    working = at_work("trip", "j", id="t-1")
    working.kill()
    working.wait()
    assert json.loads(cli("cancel", "t-1", "--json").out) == {
        "id": "t-1", "status": "in_progress", "outcome": "to_be_driven", "at_work": None,
    }  # fmt: skip
    assert run("worker", "--app", "crew", "--until-idle", cwd=Path.cwd()).code == 0
    assert status_of("t-1") == "cancelled"
    assert effects()[-2:] == ["release train", "release hotel"]


def test_cancelling_a_parent_cancels_its_children(crew, cli, patience):
    start("family", '["j"]', id="f-1")
    working = begin("worker", "--app", "crew", cwd=crew)
    patience(working)
    until(Path("j.begun").exists)
    working.send_signal(signal.SIGTERM)
    Path("j.go").touch()
    assert working.wait(60) == 0
    assert "has children to cancel first\n" in cli("cancel", "f-1").out
    assert run("resume", "f-1", "--app", "crew", cwd=crew).code == 8
    assert (status_of("f-1"), status_of("f-1.1")) == ("cancelled", "cancelled")
    assert effects() == ["work j"]


# Wrong uses


@pytest.mark.parametrize("command", ["pause", "cancel"])
def test_a_task_that_is_not_there_can_not_be_stopped(crew, cli, command):
    start("chore", "tea", id="c-1")
    code, out, err = cli(command, "c-2")
    assert (code, out) == (5, "")
    assert err == "error: no task 'c-2' in workspace. Did you mean c-1?\n"
    assert cli(command).code == 2
    assert cli(command, "c-1", "--url", "elsewhere").code == 5
    assert not Path("elsewhere").exists()


@pytest.mark.parametrize("command", ["pause", "cancel", "resume --worker"])
@pytest.mark.parametrize(("function", "status"), [("chore", "completed"), ("trip", "failed")])
def test_what_has_ended_can_not_be_stopped(crew, cli, command, function, status):
    Path("storm").touch()
    args = ["tea"] if function == "chore" else []
    run("run", f"crew:{function}", *args, "--id", "t-1", cwd=crew)
    before = cli("log", "t-1").out
    code, out, err = cli(*command.split(), "t-1")
    assert (code, out) == (2, "")
    assert err == f"error: task 't-1' is {status}: it has ended\n"
    assert cli("log", "t-1").out == before


def test_what_is_paused_or_cancelled_can_not_be_so_twice(crew, cli):
    start("chore", "tea", id="c-1")
    assert cli("resume", "c-1", "--worker").err == (
        "error: task 'c-1' is not paused: it is pending\n"
    )
    cli("pause", "c-1")
    code, out, err = cli("pause", "c-1")
    assert (code, out, err) == (2, "", "error: task 'c-1' is paused already\n")
    assert cli("cancel", "c-1").code == 0
    code, out, err = cli("cancel", "c-1")
    assert (code, out, err) == (2, "", "error: task 'c-1' is cancelled: it has ended\n")


def test_what_is_being_cancelled_can_not_be_paused(at_work, cli):
    at_work("job", "j", id="j-1")
    assert cli("cancel", "j-1").code == 0
    code, _, err = cli("pause", "j-1")
    assert code == 2
    assert "is being cancelled, and can't be paused any more" in err
    assert cli("cancel", "j-1").code == 0  # once more does no harm


def test_errors_are_json_too(crew, cli):
    start("chore", "tea", id="c-1")
    cli("cancel", "c-1")
    ended = cli("cancel", "c-1", "--json")
    assert ended.code == 2
    assert json.loads(ended.out)["error"]["type"] == "BadInput"
