"""`holdfast doubt`, and `resolve`, which ends it"""

import getpass
import json
import os
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.log.log import open_log

from .conftest import begin, line_of, run

HAPPENED = ["--happened", "--result", "null"]


def test_a_call_in_doubt_is_told_with_all_it_takes_to_settle_it(recorded, cli):
    code, out, err = cli("doubt")
    assert (code, err) == (3, "")
    assert out.startswith("1 call waits for a person\n")
    assert "task trip-42, call 5, send_letter  in doubt: waits for a person" in out
    for fact in (
        "begun  20",
        "why    the process died between its intent and its result",
        'input  {"to":"Ada"}',
        "key    trip-42:5:send_letter:",
        "holdfast resolve trip-42 5 --happened --result JSON --app MODULE\n",
        "null if the call returns nothing",
        "holdfast resolve trip-42 5 --did-not-happen",
    ):
        assert fact in out
    assert cli("doubt", "trip-42").out == out


def test_json(recorded, cli):
    code, out, _ = cli("doubt", "--json")
    assert code == 3
    [doubt] = json.loads(out)
    assert doubt["task"] == "trip-42"
    assert doubt["path"] == "5"
    assert doubt["tool"] == "send_letter"
    assert doubt["key"].startswith("trip-42:5:send_letter:")
    assert doubt["status"] == "in_doubt"
    assert doubt["waits_for_a_person"] is True
    assert doubt["input"] == {"to": "Ada"}
    assert doubt["since"] and doubt["why"]


def test_no_doubt_is_exit_code_0(recorded, cli):
    assert cli("doubt", "both") == (0, "no call waits for a person\n", "")
    assert cli("doubt", "mend-1", "--json") == (0, "[]\n", "")


def test_a_call_that_nobody_is_at_work_on_was_interrupted_and_counts(folder, cli):
    Path("die").touch()
    assert run("run", "agents:plan_trip", "Oslo", "--id", "t-1", cwd=folder).code == -9
    code, out, _ = cli("doubt")
    assert code == 3
    assert out.startswith("no call waits for a person\n1 call was interrupted\n")
    assert (
        "task t-1, call 5, send_letter  "
        "interrupted: is settled by its policy when the task is resumed\n"
    ) in out
    assert "To go on: holdfast resume t-1 --app MODULE\n" in out
    [doubt] = json.loads(cli("doubt", "--json").out)
    assert (doubt["waits_for_a_person"], doubt["interrupted"]) == (False, True)
    assert doubt["at_work"] is None


def test_a_call_that_is_running_now_does_not_count(folder, cli, patience):
    working = begin("run", "agents:posts", "flag", "--id", "p-1", cwd=folder)
    patience(working)
    following = begin("log", "-f", "--wait", "p-1", cwd=folder)
    patience(following)
    line_of(following, "wait_for")
    code, out, _ = cli("doubt")
    assert code == 0
    who = f"{os.uname().nodename} process {working.pid}"
    assert f"task p-1, call 1, post  running now, by {who}\n" in out
    assert "holdfast re" not in out
    [doubt] = json.loads(cli("doubt", "--json").out)
    assert (doubt["interrupted"], doubt["at_work"]) == (False, who)
    working.kill()
    working.wait()
    assert cli("doubt").code == 3


def test_a_damaged_log_does_not_hide_a_doubt(recorded, cli):
    log = recorded / "workspace/tasks/both/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"Bergen", b"Berlin"))
    code, out, err = cli("doubt")
    assert code == 3
    assert "send_letter" in out
    assert err.startswith("warning: tasks/both")
    run("resolve", "trip-42", "5", "--did-not-happen", cwd=recorded)
    assert cli("doubt").code == 4


@pytest.mark.parametrize(
    ("args", "code"),
    [(["trip-24"], 5), (["--url", "elsewhere"], 5), (["trip-42", "more"], 2)],
)
def test_wrong_input(recorded, cli, args, code):
    ended = cli("doubt", *args)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err.startswith("error: ")


# Settling


def test_it_happened(recorded):
    code, out, err = run(
        "resolve", "trip-42", "5", "--happened", "--result", '"letter 7"', "--because", "I saw it",
        "--unchecked", cwd=recorded,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "settled: call 5 happened\n" in out
    assert "To go on: holdfast resume trip-42 --app MODULE" in out
    assert run("doubt", cwd=recorded).code == 0
    assert run("resume", "trip-42", "--app", "agents", cwd=recorded).code == 0
    data = json.loads(run("show", "trip-42", "--json", cwd=recorded).out)
    assert [o["output"] for o in data["outputs"] if o["name"] == "send_letter"] == ["letter 7"]
    assert (
        f"says {getpass.getuser()}" in run("log", "trip-42", "--type", "settled", cwd=recorded).out
    )
    assert "because I saw it" in run("log", "trip-42", cwd=recorded).out
    assert f"(by {getpass.getuser()}" in run("show", "trip-42", cwd=recorded).out


def test_it_did_not_happen(recorded):
    ended = run("resolve", "trip-42", "5", "--did-not-happen", "--json", cwd=recorded)
    assert ended.code == 0
    assert json.loads(ended.out) == {
        "task": "trip-42", "path": "5", "verdict": "did_not_happen", "result": None,
    }  # fmt: skip
    assert run("resume", "trip-42", "--app", "agents", cwd=recorded).code == 0
    data = json.loads(run("show", "trip-42", "--json", cwd=recorded).out)
    assert [c["attempts"] for c in data["calls"] if c["name"] == "send_letter"] == [2]


def test_with_the_code_the_result_is_checked(recorded):
    args = ("resolve", "trip-42", "5", "--happened", "--result", "7")
    code, _, err = run(*args, "--app", "agents", cwd=recorded)
    assert code == 2
    assert "str" in err
    assert run("doubt", cwd=recorded).code == 3
    code, out, _ = run(*args[:-1], '"letter"', "--app", "agents", cwd=recorded)
    assert code == 0
    assert "To go on: holdfast resume trip-42 --app agents\n" in out


def test_a_result_that_can_not_be_checked_needs_a_word_for_it(recorded):
    args = ("resolve", "trip-42", "5", "--happened", "--result", "7")
    code, out, err = run(*args, cwd=recorded)
    assert (code, out) == (7, "")
    assert "'send_letter'" in err and "--app MODULE" in err and "--unchecked" in err
    Path("other.py").touch()
    assert run(*args, "--app", "other", cwd=recorded).code == 7
    assert run("doubt", cwd=recorded).code == 3
    assert run(*args, "--unchecked", cwd=recorded).code == 0


def test_who_says_so_is_recorded(recorded, cli):
    assert cli("resolve", "trip-42", "5", "--did-not-happen", "--by", "ada").code == 0
    assert "did not happen, says ada" in cli("log", "trip-42").out


def test_what_was_settled_by_mistake_can_be_settled_again(recorded):
    happened = ("resolve", "trip-42", "5", "--happened", "--app", "agents", "--result")
    assert run(*happened, '"wrong"', cwd=recorded).code == 0
    assert run(*happened, '"right"', cwd=recorded).code == 0
    assert run("resume", "trip-42", "--app", "agents", cwd=recorded).code == 0
    assert '"right"' in run("show", "trip-42", "--layer", "outputs", cwd=recorded).out


def test_a_result_that_does_not_fit_stops_the_task_until_it_is_settled_again(recorded):
    happened = ("resolve", "trip-42", "5", "--happened", "--result")
    assert run(*happened, "7", "--unchecked", cwd=recorded).code == 0
    assert run("resume", "trip-42", "--app", "agents", cwd=recorded).code != 0
    assert run(*happened, '"letter"', "--app", "agents", cwd=recorded).code == 0
    assert run("resume", "trip-42", "--app", "agents", cwd=recorded).code == 0


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (["trip-42", "5"], 2, "either --happened or --did-not-happen"),
        (["trip-42", "5", "--happened", "--did-not-happen"], 2, "either --happened or"),
        (["trip-42", "5", "--did-not-happen", "--result", "1"], 2, "has no --result"),
        (["trip-42", "5", "--happened", "--result", "{oops"], 2, "is not JSON"),
        (["trip-42", "5", "--happened", "--result", ""], 2, "is not JSON"),
        (["trip-42", "5", "--happened"], 2, "--result null if it returns nothing"),
        (["trip-42", "--happened"], 2, "--happened needs the --result"),
        (["trip-42", "77", *HAPPENED], 2, "has made no call 77"),
        (["trip-42", "1", *HAPPENED], 2, "is not in doubt: it is completed"),
        (["trip-24", "5", *HAPPENED], 5, "Did you mean trip-42?"),
        (["trip-42", "5", *HAPPENED, "--url", "elsewhere"], 5, "there is no store"),
        (["trip-42", "5", *HAPPENED, "--app", "nowhere"], 2, "no module 'nowhere'"),
    ],
)
def test_wrong_input_settles_nothing(recorded, cli, args, code, complaint):
    ended = cli("resolve", *args)
    assert (ended.code, ended.out) == (code, "")
    assert complaint in ended.err
    assert cli("doubt").code == 3


def test_a_task_that_is_being_driven_is_told_by_way_of_its_inbox(recorded, cli):
    with Holdfast("workspace") as hf:
        held = open_log(hf.store, "trip-42", "somebody else", 30, hf._holding.clock)
        ended = cli("resolve", "trip-42", "5", "--did-not-happen")
        assert [call.path for call in hf.task("trip-42").doubts] == ["5"]
        held.close()
        with hf._holding.hold("trip-42"):
            pass  # who takes hold of it next takes it in
        assert hf.task("trip-42").doubts == ()
    assert (ended.code, ended.err) == (0, "")
