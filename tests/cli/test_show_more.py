"""What `show`, `ls`, `log` and `answer` tell of children, progress, checkpoints and approvals"""

import json
import re
from pathlib import Path

import pytest

from holdfast import Holdfast, PlanItem, current, task
from holdfast.stores.files.folder import safe_name

from .conftest import begin, effects, line_of, run, until


def work(crew: Path) -> None:
    assert run("worker", "--app", "crew", "--until-idle", "-q", cwd=crew).code == 0


@pytest.fixture
def spending(crew):
    """A task whose tool needs a person's approval."""
    ended = run("run", "crew:spends", "7", "--id", "s-1", cwd=crew)
    assert ended.code == 3
    return ended


# Parents and children


@pytest.fixture
def families(crew, patience):
    """A parent with two children, of which one has ended."""
    Path("a.go").touch()
    assert run("start", "crew:family", '["a", "b"]', "--id", "f-1", cwd=crew).code == 0
    working = begin("worker", "--app", "crew", cwd=crew)
    patience(working)
    until(lambda: statuses() == {"f-1.1": "completed", "f-1.2": "in_progress"})
    working.kill()
    working.wait()
    return crew


def statuses() -> dict[str, str]:
    with Holdfast("workspace") as hf:
        return {view.id: view.status for view in hf.tasks(type="job")}


def test_a_parent_shows_its_children_as_they_stand(families, cli):
    out = cli("show", "f-1").out
    children = out[out.index("\nChildren") :]
    assert re.search(r"^1 +f-1\.1 +job +completed$", children, re.M)
    assert re.search(r"^2 +f-1\.2 +job +in_progress$", children, re.M)
    data = json.loads(cli("show", "f-1", "--json").out)
    assert [(child["id"], child["status"]) for child in data["children"]] == [
        ("f-1.1", "completed"),
        ("f-1.2", "in_progress"),
    ]
    assert [call["child"] for call in data["calls"]] == ["f-1.1", "f-1.2"]


def test_a_child_names_its_parent(families, cli):
    assert re.search(r"^  parent +f-1, call 2$", cli("show", "f-1.2").out, re.M)
    data = json.loads(cli("show", "f-1.2", "--json").out)
    assert (data["parent"], data["parent_path"]) == ("f-1", "2")
    listed = {task["id"]: task["parent"] for task in json.loads(cli("ls", "--json").out)}
    assert listed == {"f-1": "", "f-1.1": "f-1", "f-1.2": "f-1"}


def test_a_child_that_is_gone_or_damaged_is_told_as_such(families, cli):
    tasks = Path("workspace/tasks")
    log = tasks / safe_name("f-1.1") / "events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"finish", b"fidget"))
    (tasks / safe_name("f-1.2")).rename("f-1.2")
    children = cli("show", "f-1").out
    assert re.search(r"^1 +f-1\.1 +job +unreadable$", children, re.M)
    assert re.search(r"^2 +f-1\.2 +job +gone$", children, re.M)


def test_a_deadline_is_shown(families, cli):
    assert re.search(r"^  deadline +20\S+ \S+ \(in \d", cli("show", "f-1").out, re.M)
    assert json.loads(cli("show", "f-1", "--json").out)["deadline"]
    assert "deadline" not in cli("show", "f-1.2").out
    assert json.loads(cli("show", "f-1.2", "--json").out)["deadline"] is None


# Progress


def test_progress_is_followed_while_the_task_runs_and_shown_after(crew, cli, patience):
    working = begin("run", "crew:indexes", "4", "--id", "i-1", cwd=crew)
    patience(working)
    following = begin("log", "-f", "--wait", "i-1", "--type", "progressed", cwd=crew)
    patience(following)
    assert re.search(r" progressed +looking$", line_of(following, "looking"))
    assert re.search(r" progressed +1#1 +index +1#1: 4 of 4 indexed$", line_of(following, "4 of 4"))
    assert working.poll() is None
    out = cli("show", "i-1").out
    progress = out[out.index("\nProgress") :]
    assert re.search(r"^  looking  \(", progress, re.M)
    assert re.search(r"^  1  indexed 4 of 4 \(100%\)  \(", progress, re.M)
    assert "3 of 4" not in out
    Path("indexed.go").touch()
    assert working.wait(60) == 0
    assert following.wait(60) == 0
    data = json.loads(cli("show", "i-1", "--json").out)["progress"]
    assert [(each["path"], each["attempt"], each["done"]) for each in data] == [
        ("", None, None),
        ("1", 1, 4),
    ]


# Checkpoints


def test_the_number_and_the_state_of_the_last_checkpoint_are_shown(crew, cli):
    Path("loops.go").touch()
    assert run("run", "crew:loops", "3", "--id", "l-1", cwd=crew).code == 0
    assert re.search(r"^  checkpoint +number 3$", cli("show", "l-1").out, re.M)
    data = json.loads(cli("show", "l-1", "--json").out)
    assert data["checkpoints"] == 3
    assert data["checkpoint"] == [f"turn {number}, finished" for number in (1, 2, 3)]
    assert "number 1: the whole state" in cli("log", "l-1").out


# Approvals


def test_an_approval_is_asked_for_with_how_to_give_or_refuse_it(spending, cli):
    assert spending.err.splitlines()[1:] == [
        "error: task 's-1' asks (bool): May it call spend({\"amount\":7})?",
        "  to approve it:  holdfast answer s-1 approve-1 true",
        "  to refuse it:   holdfast answer s-1 approve-1 false",
    ]
    assert cli("answer")[:2] == (
        3,
        "task s-1, question approve-1  (bool)\n"
        '  May it call spend({"amount":7})?\n'
        "  to approve it:  holdfast answer s-1 approve-1 true\n"
        "  to refuse it:   holdfast answer s-1 approve-1 false\n",
    )
    out = cli("show", "s-1").out
    assert "it waits for a person: see below, under Questions\n" in out
    assert "holdfast answer s-1 approve-1 true\n" in out[out.index("\nQuestions") :]
    [question] = json.loads(cli("show", "s-1", "--json").out)["questions"]
    assert (question["id"], question["approves"]) == ("approve-1", "1")
    assert effects() == []


def test_an_approved_call_is_made(spending, cli, crew):
    assert cli("answer", "s-1", "approve-1", "true", "--by", "ada").code == 0
    assert run("resume", "s-1", "--app", "crew", cwd=crew)[:2] == (0, "7\n")
    assert effects() == ["spend 7"]
    code, _, err = cli("answer", "s-1", "approve-1", "false")
    assert code == 2
    assert "answered with true by ada" in err


def test_a_refused_call_is_not_made(spending, cli, crew):
    assert cli("answer", "s-1", "approve-1", "false", "--by", "ada").code == 0
    work(crew)
    assert effects() == []
    assert "ada did not approve it" in cli("show", "s-1").out


def test_an_approval_is_a_yes_or_a_no(spending, cli):
    code, _, err = cli("answer", "s-1", "approve-1", "perhaps")
    assert code == 2
    assert 'question approve-1 expects bool, got "perhaps"' in err
    assert cli("answer").code == 3


# What has ended waits for nobody


def test_the_questions_of_a_cancelled_task_wait_for_nobody(spending, cli):
    assert cli("cancel", "s-1").out == "cancelled: it has ended\n"
    assert cli("answer") == cli("answer", "s-1") == (0, "no question is open\n", "")
    assert "Questions" not in cli("show", "s-1").out
    assert cli("answer", "s-1", "approve-1", "true").code == 2


def test_the_doubts_of_a_cancelled_task_wait_for_nobody(recorded, cli):
    assert cli("cancel", "trip-42").out == "cancelled: it has ended\n"
    assert cli("doubt", "trip-42").code == 0
    out = cli("show", "trip-42").out
    assert "may have happened: the task ended without it" in out
    assert "holdfast resolve" not in out


def test_a_plan_that_is_followed_is_a_list_to_tick_off(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)

    @task(name="ticks_off")
    def body() -> None:
        current().plan(["search", PlanItem("book", id="book", after=("1",)), "pack", "rest", "go"])
        current().mark("1", "done")
        current().mark("book", "doing")
        current().mark("3", "failed")
        current().mark("4", "skipped")

    with Holdfast("workspace") as hf:
        hf.run(body, id="t")
    out = cli("show", "t", "--layer", "position").out
    assert "Position  step 2 of 5" in out
    assert [line.strip() for line in out[out.index("Plan\n") :].splitlines()[1:]] == [
        "[x] 1  search",
        "[>] book  book  after 1",
        "[!] 3  pack",
        "[-] 4  rest",
        "[ ] 5  go",
    ]
    assert "doing: book. book" in cli("log", "t").out
    data = json.loads(cli("show", "t", "--json").out)
    assert data["plan"][1] == {"text": "book", "id": "book", "status": "doing", "after": ["1"]}
