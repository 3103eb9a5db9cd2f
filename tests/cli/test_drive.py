"""`holdfast run`, `resume` and `retry`"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.log.log import open_log

from .conftest import begin, environment, line_of, run


@pytest.mark.parametrize(
    ("args", "result"),
    [
        (["agents:greet", "Ada"], "hello Ada"),
        (["agents:greet", '"3"'], "hello 3"),
        (["agents:greet", "--arg", "name=Ada", "--arg", "times=2"], "hello Adahello Ada"),
        (["agents:greet", "--arg", "name=a=b"], "hello a=b"),
        (["agents:everything", "3"], 3),
        (["agents:everything", "null"], None),
        (["agents:everything", "[1, {}]"], [1, {}]),
        (["agents:everything", "{oops"], "{oops"),
        (["agents:everything", ""], ""),
        (["agents:everything", "--", "-5"], -5),
        (["agents:everything", "å\u202e\x1b"], "å\u202e\x1b"),
        (
            ["agents:typed", "2024-05-01", '{"name": "attic", "price": 7}', "1", "2"],
            ["2024-05-01", "date", "attic", "3"],
        ),
    ],
)
def test_arguments_are_json_where_they_can_be(folder, args, result):
    code, out, _ = run("run", *args, cwd=folder)
    assert code == 0
    assert json.loads(out) == result


def test_standard_output_is_for_the_result_alone(folder):
    code, out, err = run("run", "agents:greet", "Ada", "--id", "g-1", cwd=folder)
    assert (code, out) == (0, '"hello Ada"\n')
    assert err.splitlines() == ["task g-1", "greet prints this"]


def test_a_task_without_an_id_gets_one_and_says_so(folder):
    task = run("run", "agents:greet", "Ada", cwd=folder).err.splitlines()[0].removeprefix("task ")
    assert task.startswith("greet-")
    assert run("show", task, cwd=folder).code == 0


def test_running_again_gives_the_recorded_result(folder):
    run("run", "agents:greet", "Ada", "--id", "g-1", cwd=folder)
    Path("greeted").unlink()
    assert run("run", "agents:greet", "Ada", "--id", "g-1", cwd=folder).out == '"hello Ada"\n'
    assert not Path("greeted").exists()


def test_whose_task_it_is_is_recorded(recorded, cli):
    data = json.loads(cli("show", "trip-42", "--json").out)
    assert (data["user"], data["session"], data["labels"]) == ("ada", "s-1", {"team": "travel"})


def test_json_gives_the_outcome_of_every_kind(folder):
    code, out, _ = run("run", "agents:greet", "Ada", "--id", "g-1", "--json", cwd=folder)
    assert code == 0
    assert json.loads(out) == {
        "id": "g-1", "status": "completed", "result": "hello Ada", "failure": None,
        "doubts": [], "questions": [],
    }  # fmt: skip
    code, out, err = run("run", "agents:mendable", "--id", "m-1", "--json", cwd=folder)
    assert code == 1
    assert json.loads(out)["status"] == "failed"
    assert "it is broken" in json.loads(out)["failure"]["message"]
    assert "error: task 'm-1' failed" in err


def test_a_result_too_large_for_a_line_is_printed_whole(folder):
    assert len(json.loads(run("run", "agents:large", "100000", cwd=folder).out)) == 100_000


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["nowhere:f"], "there is no module 'nowhere'"),
        (["agents.deeper:f"], "there is no module 'agents.deeper'"),
        (["agents:nothing"], "module 'agents' has no 'nothing'; its tasks are asks"),
        (["agents"], "write MODULE:FUNCTION"),
        (["agents:"], "names no code"),
        ([":greet"], "names no code"),
        (["agents.py:greet"], "name the module, as in agents:greet"),
        (["./agents.py:greet"], "name the module, as in agents:greet"),
        (["agents:search"], "search is a step, not a task"),
        (["agents:QUICK"], "is not a task"),
        (["agents:greet"], "It is greet(name: str, *, times: int = 1) -> str"),
        (["agents:greet"], "missing a required argument: 'name'"),
        (["agents:greet", "a", "b", "c"], "too many positional arguments"),
        (
            ["agents:greet", "a", "--arg", "colour=red"],
            "greet has no argument 'colour'. It is greet(",
        ),
        (["agents:greet", "--arg", "foo=1"], "greet has no argument 'foo'"),
        (["agents:greet", "a", "--arg", "name=b"], "multiple values for argument 'name'"),
        (["agents:greet", "a", "--arg", "colour"], "not of the form name=value"),
        (["agents:greet", "a", "--arg", "id=3"], "use the option --id"),
        (["agents:greet", "3"], "argument name: expected str, got 3. For the text 3 write '\"3\"'"),
        (["agents:greet", "a", "--arg", "times=many"], 'times: expected int, got "many"\n'),
        (["agents:greet", "a", "--arg", "times=[1]"], "times: expected int, got [1]\n"),
        (["agents:greet", os.fsdecode(b"\xff")], "argument name: '\\udcff' is not UTF-8"),
        (["agents:typed", "today", "{}"], 'argument day: expected date, got "today" (Invalid'),
        (["agents:typed", "2024-05-01", '{"name": "a", "price": "b"}'], "at `$.price`"),
        (["agents:typed", "2024-05-01", '{"name": "a", "price": 1}', "1", "x"], "argument more"),
        (["agents:greet", "a", "--id", ""], "an id can't be empty"),
        (["agents:greet", "a", "--id", "a\nb"], "an id can't hold control"),
        (["agents:greet", "a", "--nonsense"], "No such option"),
        (["agents:everything", "-5"], "No such option"),
        ([], "Missing argument"),
    ],
)
def test_wrong_input_is_refused_and_makes_no_store(folder, args, complaint):
    code, out, err = run("run", *args, cwd=folder)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert complaint in err
    assert "Traceback" not in err
    assert not Path("workspace").exists()


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("1/0", "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(0)", "SystemExit"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_module_that_can_not_be_imported_says_why(folder, source, complaint):
    Path("bad.py").write_text(source)
    code, _, err = run("run", "bad:f", cwd=folder)
    assert code == 2
    assert "importing 'bad' failed" in err
    assert complaint in err
    assert "Traceback" not in err
    assert "Traceback" in run("run", "bad:f", "--debug", cwd=folder).err


def test_other_arguments_for_the_same_id_are_refused(folder):
    run("run", "agents:greet", "Ada", "--id", "g-1", cwd=folder)
    code, _, err = run("run", "agents:greet", "Bob", "--id", "g-1", cwd=folder)
    assert code == 2
    assert 'was started as greet({"name":"Ada"})' in err


def test_a_task_that_ends_the_program_counts_as_interrupted(folder):
    code, out, err = run("run", "agents:leaves", "--id", "l-1", cwd=folder)
    assert (code, out) == (1, "")
    assert "sys.exit(3)" in err
    assert "in_progress" in run("ls", cwd=folder).out


def test_an_interrupted_run_says_how_to_go_on(folder, patience):
    working = begin("run", "agents:waits", "flag", "--id", "w-1", cwd=folder)
    patience(working)
    following = begin("log", "-f", "--wait", "w-1", cwd=folder)
    patience(following)
    line_of(following, "started")
    working.send_signal(signal.SIGINT)
    assert working.wait(60) == 130
    assert working.stderr is not None
    err = working.stderr.read()
    assert "interrupted. To go on: holdfast resume w-1 --app agents\n" in err
    assert "Traceback" not in err
    Path("flag").touch()
    assert run("resume", "w-1", "--app", "agents", cwd=folder).out == '"flag came"\n'


# Going on


def test_resume_needs_the_code_and_says_so(recorded):
    code, out, err = run("resume", "trip-42", cwd=recorded)
    assert (code, out) == (7, "")
    assert "'plan_trip'" in err
    assert "--app" in err


def test_nothing_that_the_log_names_is_imported(recorded):
    Path("agents.py").write_text("raise RuntimeError('imported')")
    assert "imported" in run("run", "agents:plan_trip", cwd=recorded).err
    for command in ("resume", "retry", "show", "log", "doubt", "doctor"):
        assert "imported" not in run(command, "trip-42", cwd=recorded).err


def test_resume_of_a_task_in_doubt_waits_for_a_person(recorded):
    code, out, err = run("resume", "trip-42", "--app", "agents", cwd=recorded)
    assert (code, out) == (3, "")
    assert "waits for a person" in err
    assert "holdfast resolve trip-42 5 --did-not-happen" in err


def test_commands_in_errors_carry_the_store_and_the_code(recorded):
    Path("workspace").rename("my state")
    given = ("--url", "my state", "--app", "agents")
    err = run("resume", "trip-42", *given, cwd=recorded).err
    settle = "holdfast resolve trip-42 5 --happened --result JSON --app agents --url 'my state'\n"
    assert settle in err
    assert "holdfast resolve trip-42 5 --did-not-happen --url 'my state'\n" in err
    err = run("retry", "mend-1", *given, cwd=recorded).err
    assert "holdfast retry mend-1 --app agents --url 'my state'\n" in err
    env = {"HOLDFAST_APP": "agents", "HOLDFAST_URL": "my state"}
    assert "holdfast retry mend-1\n" in run("retry", "mend-1", cwd=recorded, **env).err
    err = run("run", "agents:mendable", "--id", "-m", cwd=recorded).err
    assert "holdfast retry --app agents -- -m\n" in err


def test_json_of_a_task_that_waits_says_for_what(folder, recorded):
    code, out, err = run("resume", "trip-42", "--app", "agents", "--json", cwd=recorded)
    assert code == 3
    data = json.loads(out)
    assert data["status"] == "awaiting_user"
    assert [doubt["path"] for doubt in data["doubts"]] == ["5"]
    assert "waits for a person" in err
    code, out, err = run("run", "agents:asks", "--id", "a-1", "--json", cwd=recorded)
    assert code == 3
    [question] = json.loads(out)["questions"]
    assert (question["id"], question["question"]) == ("book", "Book it?")
    assert "holdfast answer a-1 book ANSWER\n" in err


def test_what_has_ended_is_told_without_the_code(recorded):
    assert run("resume", "both", cwd=recorded) == (0, '["Oslo!!","Bergen!!"]\n', "")
    code, out, err = run("resume", "mend-1", cwd=recorded)
    assert (code, out) == (1, "")
    assert "error: task 'mend-1' failed: StepFailed: step 1, risky, failed: RuntimeError" in err
    data = json.loads(run("resume", "mend-1", "--json", cwd=recorded).out)
    assert data["status"] == "failed"
    assert run("retry", "mend-1", cwd=recorded).code == 7


def test_resume_of_a_finished_task_gives_its_result(recorded):
    code, out, _ = run("resume", "both", "--app", "agents", cwd=recorded)
    assert (code, json.loads(out)) == (0, ["Oslo!!", "Bergen!!"])


def test_retry_makes_the_failed_step_again(recorded):
    assert run("retry", "mend-1", "--app", "agents", cwd=recorded).code == 1
    Path("fixed").touch()
    assert run("resume", "mend-1", "--app", "agents", cwd=recorded).code == 1
    assert run("retry", "mend-1", "--app", "agents", cwd=recorded)[:2] == (0, '"mended"\n')


def test_retry_of_a_completed_task_gives_its_result(recorded):
    code, out, err = run("retry", "both", cwd=recorded)
    assert (code, json.loads(out)) == (0, ["Oslo!!", "Bergen!!"])
    assert "nothing to retry" in err


def test_changed_code_is_noticed(recorded):
    source = Path("agents.py").read_text()
    Path("agents.py").write_text(
        source.replace("    rooms = search(city)", "    rooms = [Room('x', 1)]")
    )
    code, _, err = run("resume", "trip-42", "--app", "agents", cwd=recorded)
    assert code == 7
    assert "the log holds search(" in err


@pytest.mark.parametrize("command", ["resume", "retry"])
@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (["trip-24", "--app", "agents"], 5, "Did you mean trip-42?"),
        (["trip-42", "--app", "nowhere"], 2, "there is no module 'nowhere'"),
        (["trip-42", "--app", "agents:nothing"], 2, "has no 'nothing'"),
        (["trip-42", "--app", "agents.py"], 2, "name the module, as in agents"),
        (["trip-42", "--url", "elsewhere"], 5, "there is no store at elsewhere"),
        ([], 2, "say which tasks"),
    ],
)
def test_wrong_input_of_those_that_go_on(recorded, command, args, code, complaint):
    ended = run(command, *args, cwd=recorded)
    assert (ended.code, ended.out) == (code, "")
    assert complaint in ended.err
    assert not Path("elsewhere").exists()


def test_a_task_that_somebody_else_drives_is_busy(recorded):
    with Holdfast("workspace") as hf:
        held = open_log(hf.store, "trip-42", "somebody else", 30, hf._holding.clock)
        ended = run("resume", "trip-42", "--app", "agents", cwd=recorded)
        held.close()
    assert ended.code == 6
    assert "is being driven by somebody else" in ended.err


def test_the_installed_command_does_the_same(folder):
    command = Path(sys.executable).with_name("holdfast")
    done = subprocess.run(
        [command, "run", "agents:greet", "Ada"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, '"hello Ada"\n')
