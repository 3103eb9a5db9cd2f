"""Commands for many tasks at once, by ids or by filters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast import Holdfast

from .conftest import effects, run


def statuses() -> dict[str, str]:
    with Holdfast("workspace") as hf:
        return {task.id: task.status for task in hf.tasks()}


def start(function: str, *args: str, id: str, label: str = "team=a") -> None:
    done = run("start", f"crew:{function}", *args, "--id", id, "--label", label, cwd=Path.cwd())
    assert done.code == 0, done.err


def work() -> None:
    assert run("worker", "--app", "crew", "--until-idle", "-q", cwd=Path.cwd()).code == 0


def test_a_dry_run_names_what_is_meant_and_does_nothing(crew, cli):
    for n in range(3):
        start("chore", "tea", id=f"c-{n}")
    start("chore", "tea", id="other", label="team=b")
    code, out, _ = cli("cancel", "--label", "team=a", "--dry-run")
    assert (code, out.splitlines()[-1]) == (0, "3 tasks would be told to end")
    assert set(statuses().values()) == {"pending"}
    code, out, _ = cli("cancel", "--label", "team=a", "--json")
    assert (code, json.loads(out)["done"]) == (0, ["c-0", "c-1", "c-2"])
    assert statuses() == {f"c-{n}": "cancelled" for n in range(3)} | {"other": "pending"}


def test_nothing_is_meant_unless_it_is_said(crew, cli):
    start("chore", "tea", id="c-1")
    for command in ("cancel", "pause", "retry", "resume"):
        code, _, err = cli(command)
        assert code == 2
        assert "say which tasks" in err
    code, _, err = cli("cancel", "c-1", "--type", "chore")
    assert code == 2 and "not both" in err
    assert statuses() == {"c-1": "pending"}


def test_paused_by_filter_and_left_to_workers_again(crew, cli):
    for n in range(3):
        start("chore", f"tea {n}", id=f"c-{n}")
    assert cli("pause", "--type", "chore").out == "3 tasks paused\n"
    assert set(statuses().values()) == {"paused"}
    code, _, err = cli("resume", "--all")
    assert code == 2 and "say --worker" in err
    assert cli("resume", "--all", "--worker").out == "3 tasks left to workers\n"
    work()
    assert set(statuses().values()) == {"completed"}


def test_failed_tasks_are_retried_by_the_fleet(crew, cli):
    Path("storm").touch()
    for n in range(2):
        start("trip", id=f"t-{n}")
    work()
    assert set(statuses().values()) == {"failed"}
    Path("storm").unlink()
    start("chore", "tea", id="c-1")
    done = cli("retry", "--all", "--worker", "--json")
    assert json.loads(done.out)["done"] == ["t-0", "t-1"]
    work()
    assert set(statuses().values()) == {"completed"}
    assert effects().count("reserve hotel") == 2  # what was recorded was kept
    code, out, err = cli("retry", "t-0", "--worker")
    assert code == 2 and "only what failed is retried" in err and "0 tasks" in out


def test_one_that_can_not_be_told_does_not_keep_the_others_from_it(crew, cli):
    start("chore", "tea", id="c-1")
    start("chore", "tea", id="c-2")
    cli("cancel", "c-1")
    code, out, err = cli("pause", "c-1", "c-2")
    assert code == 2
    assert out == "1 task paused, 1 task could not be\n"
    assert "c-1" in err
    assert statuses() == {"c-1": "cancelled", "c-2": "paused"}
    code, _, err = cli("pause", "c-2", "nobody")
    assert code == 5 and "no task 'nobody'" in err


def test_one_answer_for_many_tasks(crew, cli):
    for n in range(2):
        start("asks", id=f"a-{n}")
    start("spends", "7", id="s-1")
    work()
    code, out, _ = cli("answer", "book", "true", "--type", "asks")
    assert (code, out) == (0, "2 tasks answered\n")
    work()
    assert statuses() == {"a-0": "completed", "a-1": "completed", "s-1": "awaiting_user"}
    code, _, err = cli("answer", "a-0", "book", "true", "--type", "asks")
    assert code == 2 and "give QUESTION ANSWER" in err


def test_calls_in_doubt_are_settled_by_the_name_of_their_tool(recorded, cli):
    with Holdfast("workspace") as hf:
        (doubt,) = (call for call in hf.task("trip-42").doubts)
    done = cli("resolve", doubt.name, "--did-not-happen", "--all", "--dry-run", "--json")
    assert json.loads(done.out)["meant"] == ["trip-42"]
    code, out, _ = cli("resolve", doubt.name, "--did-not-happen", "--user", "ada")
    assert (code, out) == (0, "1 task settled\n")
    code, out, _ = cli("resolve", "nothing", "--did-not-happen", "--user", "ada")
    assert (code, out) == (0, "0 tasks settled\n")


def test_children_inherit_labels(crew, cli):
    Path("x.go").touch()
    start("family", '["x"]', id="f-1", label="team=deep")
    work()
    with Holdfast("workspace") as hf:
        assert [task.id for task in hf.tasks(labels={"team": "deep"})] == ["f-1", "f-1.1"]


@pytest.mark.parametrize("many", [["--status", "nonsense"], ["--since", "whenever"]])
def test_a_filter_that_makes_no_sense_is_refused(crew, cli, many):
    start("chore", "tea", id="c-1")
    assert cli("cancel", *many).code == 2
    assert statuses() == {"c-1": "pending"}
