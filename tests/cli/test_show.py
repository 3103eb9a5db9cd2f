"""`holdfast show`"""

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import Raw

from holdfast import Holdfast, Unanswered, ask, receive, task
from holdfast.cli.text import clock
from holdfast.core.events import FORMAT, Claimed, TaskCreated, TimerSet
from holdfast.log.log import open_log

from .conftest import begin, line_of, on_terminal, run


def test_it_opens_with_what_the_task_is_and_needs(recorded, cli):
    code, out, err = cli("show", "trip-42")
    assert (code, err) == (0, "")
    head = out[: out.index("Position")]
    assert head.startswith("trip-42  awaiting_user\n")
    for fact in ('plan_trip({"city":"Oslo"})', "ada", "s-1", "team=travel", "waits for a person"):
        assert fact in head


def test_the_position(recorded, cli):
    out = cli("show", "trip-42", "--layer", "position").out
    assert "Position  step 5 of 7" in out
    assert "done     1 search, 2 read_page, 3 book" in out
    assert "failed   4 visit_museum" in out
    assert "now      5 send_letter (in_doubt)" in out
    assert "to come  summarize, tell Ada" in out


def test_outputs_are_verbatim(recorded, cli):
    out = cli("show", "trip-42", "--layer", "outputs").out
    assert 'search({"city":"Oslo"})' in out
    assert '[{"name":"Oslo Inn","price":70},{"name":"Oslo Lodge","price":95}]' in out
    assert "     line 59 of https://Oslo.example\n" in out


def test_what_came_from_outside_is_shown_with_what_was_asked_for(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    @task
    def asks_and_receives() -> None:
        ask("Book it?", bool, id="book")
        receive("where", str)

    with Holdfast("workspace") as hf:
        hf.start(asks_and_receives, id="t")
        hf.send("t", "where", "the door")
        with pytest.raises(Unanswered):
            hf.resume("t")
        hf.answer("t", True)
        hf.resume("t")
    out = cli("show", "t", "--layer", "outputs").out
    assert '1  ask("Book it?")\n     true\n' in out
    assert '2  receive("where")\n     "the door"\n' in out


def test_decisions_come_with_options_and_reasons(recorded, cli):
    out = cli("show", "trip-42", "--layer", "decisions").out
    assert 'room = {"name":"Oslo Inn","price":70}' in out
    assert "because  the cheapest" in out
    assert re.search(r"options  .*Oslo Inn.*, .*Oslo Lodge", out)


def test_retries_tell_every_attempt(recorded, cli):
    out = cli("show", "trip-42", "--layer", "retries").out
    assert "1  search  3 attempts, 2 failed: completed" in out
    assert "ConnectionError: hotels.example did not answer, try 2" in out
    assert "went through" in out


def test_failures_come_with_input_and_with_full_the_traceback(recorded, cli):
    brief = cli("show", "trip-42", "--layer", "failures").out
    assert "4  visit_museum, attempt 1, at 20" in brief
    assert "ValueError: closed on Mondays" in brief
    assert 'input  {"city":"Oslo"}' in brief
    assert "Traceback" not in brief
    assert "--full" in brief
    full = cli("show", "trip-42", "--layer", "failures", "--full").out
    assert "     Traceback (most recent call last):\n" in full
    assert 'raise ValueError("closed on Mondays")' in full


def test_notes_and_doubts_are_shown(recorded, cli):
    out = cli("show", "trip-42").out
    assert "booked a room" in out
    assert "no museum: closed on Mondays" in out
    assert "holdfast resolve trip-42 5 --did-not-happen" in out


def test_calls_form_a_tree(recorded, cli):
    out = cli("show", "trip-42").out
    calls = out[out.index("PATH") : out.index("Outputs")]
    assert re.search(r"^3 +book +step +completed +2 +\d+ ms", calls, re.M)
    key = r"trip-42:3\.1:pay:[0-9a-f]{16}"
    assert re.search(rf"^└─ 3\.1 +pay +tool +completed +1 +\d+ ms +{key}", calls, re.M)
    assert re.search(r"^room\?1 +room +decision +completed", calls, re.M)
    assert re.search(r"^5 +send_letter +tool +in_doubt +1 +trip-42:5:send_letter", calls, re.M)


def test_branches_stand_in_the_tree_without_a_call(recorded, cli):
    out = cli("show", "both").out
    assert re.search(r"^visit~2 +branch", out, re.M)
    assert re.search(r"^├─ visit~2\.1 +polish", out, re.M)
    assert re.search(r"^└─ visit~2\.2 +polish", out, re.M)


def test_one_layer_is_only_that_layer_under_the_name_of_the_task(recorded, cli):
    out = cli("show", "trip-42", "--layer", "decisions").out
    assert out.startswith("trip-42  awaiting_user\n\nDecisions\n")
    assert "Position" not in out


@pytest.mark.parametrize("layer", ["decisions", "retries", "failures"])
def test_an_empty_layer_says_so(recorded, cli, layer):
    task = "mend-1" if layer == "decisions" else "both"
    assert cli("show", task, "--layer", layer).out.rstrip().endswith("none")


def test_a_failed_task_says_why_and_how_to_retry(recorded, cli):
    out = cli("show", "mend-1").out
    assert "failed         StepFailed: step 1, risky, failed: RuntimeError: it is broken" in out
    assert "to try it again: holdfast retry mend-1 --app MODULE\n" in out
    assert "the task itself, mendable" in out


def test_a_finished_task_shows_its_result(recorded, cli):
    assert 'result         ["Oslo!!","Bergen!!"]' in cli("show", "both").out


def test_hints_repeat_the_url_that_was_given(recorded, cli):
    out = cli("show", "mend-1", "--url", "./workspace").out
    assert "holdfast retry mend-1 --app MODULE --url ./workspace\n" in out


def test_a_finished_task_is_only_said_to_have_been_driven(recorded, cli):
    out = cli("show", "both").out
    assert re.search(r"^  last driven by +\S+ process \d+$", out, re.M)
    assert "at work" not in out
    assert json.loads(cli("show", "both", "--json").out)["at_work"] is None


def test_an_unfinished_task_says_whether_anybody_is_at_work_on_it(folder, cli, patience):
    working = begin("run", "agents:waits", "flag", "--id", "w-1", cwd=folder)
    patience(working)
    following = begin("log", "-f", "--wait", "w-1", cwd=folder)
    patience(following)
    line_of(following, "started")
    who = f"{os.uname().nodename} process {working.pid}"
    out = cli("show", "w-1").out
    assert f"at work: {who}\n" in out
    assert "driven by" not in out and "holdfast resume" not in out
    assert json.loads(cli("show", "w-1", "--json").out)["at_work"] == who
    assert re.search(r"^w-1 +waits +in_progress +step", cli("ls").out, re.M)
    assert json.loads(cli("ls", "--json").out)[0]["at_work"] == who
    working.kill()
    working.wait()
    out = cli("show", "w-1").out
    assert "nobody is at work on it\n" in out
    assert f"last driven by {who}\n" in out
    assert "to go on: holdfast resume w-1 --app MODULE\n" in out
    assert re.search(r"^w-1 +waits +in_progress, stopped +step", cli("ls").out, re.M)
    assert json.loads(cli("ls", "--json", "--status", "in_progress").out)[0]["at_work"] is None


def test_sleeps_are_shown_with_when_they_end(folder, cli):
    until = datetime.now(UTC) + timedelta(hours=3)
    with Holdfast("workspace") as hf:
        log = open_log(hf.store, "nap", "somebody", 30, hf._holding.clock)
        log.append(TaskCreated(format=FORMAT, id="nap", task="f", args=Raw(b"{}"), args_hash=""))
        log.append(Claimed(format=FORMAT, epoch=1, owner="somebody"))
        sleep = TimerSet(path="1", name="sleep", args=Raw(b"{}"), args_hash="", until=until)
        log.append(sleep)
        log.close()
    out = cli("show", "nap").out
    assert f"sleeps until {clock(until)} (in " in out
    assert f"now      1 sleep (waiting until {clock(until)})\n" in out
    assert re.search(rf"^1 +sleep +sleep +waiting until {clock(until)}$", out, re.M)
    assert json.loads(cli("show", "nap", "--json").out)["calls"][0]["until"]
    assert f"until {clock(until)}" in cli("log", "nap").out


def test_an_id_is_never_said_to_be_meant_by_itself(recorded, cli):
    Path("workspace/tasks/nobody").mkdir(mode=0o700)
    code, _, err = cli("show", "nobody")
    assert code == 5
    assert "Did you mean" not in err
    Path("workspace/tasks/trip-24").mkdir(mode=0o700)
    assert cli("show", "trip-24").err.endswith("Did you mean trip-42?\n")


def test_json_has_everything(recorded, cli):
    code, out, err = cli("show", "trip-42", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["status"] == "awaiting_user"
    assert data["input"] == {"city": "Oslo"}
    assert data["position"]["pending"] == ["summarize", "tell Ada"]
    assert data["outputs"][0]["output"][0] == {"name": "Oslo Inn", "price": 70}
    assert data["outputs"][1]["output"].count("\n") == 59
    assert data["decisions"][0]["because"] == "the cheapest"
    assert data["decisions"][0]["options"][1]["name"] == "Oslo Lodge"
    assert len(data["retries"][0]["attempts"]) == 3
    assert "Traceback" in data["failures"][0]["failure"]["traceback"]
    assert data["notes"][0]["text"] == "booked a room"
    assert data["doubts"][0]["path"] == "5"
    assert data["doubts"][0]["waits_for_a_person"] is True
    assert [call["path"] for call in data["calls"]][:3] == ["1", "room?1", "2"]
    assert data["calls"][0]["attempts"] == 3
    assert data["calls"][0]["duration_s"] > 0


def test_json_of_one_layer(recorded, cli):
    data = json.loads(cli("show", "trip-42", "--json", "--layer", "retries").out)
    assert data.keys() == {"id", "status", "retries"}


def test_long_outputs_are_cut_on_a_terminal_only(recorded):
    seen = on_terminal("show", "trip-42", cwd=recorded)
    assert "line 5 of" in seen
    assert "line 59 of" not in seen
    assert "--full shows them" in seen
    assert "line 59 of" in on_terminal("show", "trip-42", "--full", cwd=recorded)
    assert "line 59 of" in run("show", "trip-42", cwd=recorded).out


def test_many_calls_are_cut_on_a_terminal_only(folder):
    run("run", "agents:counts", "60", "--id", "many", cwd=folder)
    seen = on_terminal("show", "many", cwd=folder)
    assert "… 52 earlier ones: --all shows them" in seen
    assert "earlier" not in run("show", "many", cwd=folder).out


def test_colours_are_for_terminals_and_can_be_declined(recorded):
    assert "\x1b[" in on_terminal("show", "trip-42", cwd=recorded)
    assert "\x1b[32m" in on_terminal("show", "trip-42", cwd=recorded)
    assert not re.search(r"\x1b\[3\d", on_terminal("show", "trip-42", cwd=recorded, NO_COLOR="1"))
    assert "\x1b" not in run("show", "trip-42", cwd=recorded).out


def test_an_unknown_task_is_not_found_and_near_ones_are_named(recorded, cli):
    code, out, err = cli("show", "trip-24")
    assert (code, out) == (5, "")
    assert err == "error: no task 'trip-24' in workspace. Did you mean trip-42?\n"
    assert "holdfast ls" in cli("show", "xyz").err


@pytest.mark.parametrize("task_id", ["", "x" * 300, "a\x1bb"])
def test_an_id_that_no_task_can_have_is_bad_input(recorded, cli, task_id):
    code, _, err = cli("show", task_id)
    assert code == 2
    assert err.startswith("error: an id")


def test_a_damaged_log_is_not_shown(recorded, cli):
    log = recorded / "workspace/tasks/trip-42/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"Oslo Lodge", b"Oslo Lofts"))
    code, out, err = cli("show", "trip-42")
    assert (code, out) == (4, "")
    assert "is damaged" in err


def test_debug_adds_the_traceback(recorded, cli):
    assert "Traceback" not in cli("show", "xyz").err
    for args in (("--debug", "show", "xyz"), ("show", "xyz", "--debug")):
        err = cli(*args).err
        assert "Traceback" in err
        assert err.splitlines()[-1].startswith("error: no task 'xyz'")
