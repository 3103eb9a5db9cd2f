"""`holdfast start` and `worker`"""

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Holdfast

from .conftest import begin, effects, line_of, run, until


def start(function: str, *args: str, id: str) -> None:
    assert run("start", f"crew:{function}", *args, "--id", id, cwd=Path.cwd()).code == 0


def status_of(task: str) -> str:
    with Holdfast("workspace") as hf:
        return hf.task(task).status


def result_of(task: str) -> object:
    with Holdfast("workspace") as hf:
        return hf.task(task).result


def called(task: str) -> list[tuple[str, str]]:
    with Holdfast("workspace") as hf:
        return [(call.name, call.status) for call in hf.task(task).calls]


@pytest.fixture
def worker(crew, patience) -> Callable[..., subprocess.Popen[str]]:
    """Starts a worker in a process of its own."""

    def started(*options: str) -> subprocess.Popen[str]:
        process = begin("worker", "--app", "crew", *options, cwd=crew)
        patience(process)
        return process

    return started


def said_by(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    return process.stderr.read()


# Starting


def test_start_prints_the_id_and_runs_nothing(crew):
    code, out, err = run("start", "crew:chore", "tea", "--id", "c-1", cwd=crew)
    assert (code, out) == (0, "c-1\n")
    assert err == "left to a worker: holdfast worker --app crew\n"
    assert status_of("c-1") == "pending"
    assert effects() == []


def test_start_makes_an_id_that_a_script_can_use(crew):
    out = run("start", "crew:chore", "tea", cwd=crew).out
    assert re.fullmatch(r"chore-\S+\n", out)
    assert status_of(out.strip()) == "pending"


def test_start_takes_what_run_takes(crew):
    options = ("--arg", "name=tea", "--user", "ada", "--session", "s-1", "--label", "team=home")
    out = run("start", "crew:chore", *options, "--id", "c-1", "--json", cwd=crew).out
    assert json.loads(out) == {"id": "c-1", "status": "pending"}
    data = json.loads(run("show", "c-1", "--json", cwd=crew).out)
    assert (data["user"], data["session"], data["labels"]) == ("ada", "s-1", {"team": "home"})
    assert data["input"] == {"name": "tea"}


def test_start_of_a_task_that_exists_is_that_one(crew):
    run("run", "crew:chore", "tea", "--id", "c-1", cwd=crew)
    code, out, err = run("start", "crew:chore", "tea", "--id", "c-1", cwd=crew)
    assert (code, out, err) == (0, "c-1\n", "the task exists, and is completed\n")
    assert effects() == ["finish tea"]
    code, _, err = run("start", "crew:chore", "coffee", "--id", "c-1", cwd=crew)
    assert code == 2
    assert 'was started as chore({"name":"tea"})' in err


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["crew:nothing"], "module 'crew' has no 'nothing'"),
        (["crew:finish", "x"], "finish is a step, not a task"),
        (["crew"], "write MODULE:FUNCTION"),
        (["crew:chore"], "missing a required argument: 'name'"),
        (["crew:chore", "3"], "argument name: expected str, got 3"),
        (["crew:chore", "x", "--id", ""], "an id can't be empty"),
    ],
)
def test_what_can_not_be_started_makes_no_store(crew, args, complaint):
    code, out, err = run("start", *args, cwd=crew)
    assert (code, out) == (2, "")
    assert complaint in err
    assert not Path("workspace").exists()


# Driving


def test_a_worker_drives_what_is_pending_until_nothing_is_left_to_do(crew):
    start("chore", "tea", id="c-1")
    start("asks", id="a-1")
    start("naps", "3600", id="n-1")
    Path("j.go").touch()
    start("job", "j", id="j-1")
    start("ajob", "j", id="j-2")
    code, out, err = run("worker", "--app", "crew", "--until-idle", cwd=crew)
    assert (code, out) == (0, "")
    assert [result_of(task) for task in ("c-1", "j-1", "j-2")] == [
        "tea, finished", "j worked, finished", "j worked, finished",
    ]  # fmt: skip
    assert (status_of("a-1"), status_of("n-1")) == ("awaiting_user", "in_progress")
    assert "job prints this" in err
    # Not at the start of a line: what a task prints may stand there, its newline still to come.
    assert re.search(r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d  c-1: completed$", err, re.M)
    assert re.search(r"  a-1: released: task 'a-1' asks \(bool\): Book it\?$", err, re.M)
    assert "Traceback" not in err


def test_a_worker_says_nothing_when_told_so(crew):
    start("chore", "tea", id="c-1")
    assert run("worker", "--app", "crew", "--until-idle", "-q", cwd=crew) == (0, "", "")
    assert status_of("c-1") == "completed"


def test_what_a_worker_says_can_be_json(crew):
    Path("j.go").touch()
    start("job", "j", id="j-1")
    code, out, err = run("worker", "--app", "crew", "--until-idle", "--json", cwd=crew)
    assert (code, err) == (0, "job prints this\n")
    said = [json.loads(line) for line in out.splitlines()]
    assert "j-1: completed" in [each["text"] for each in said]
    assert all(each.keys() == {"at", "text"} for each in said)


def test_a_worker_goes_on_with_what_is_due_and_answered(worker, cli):
    start("naps", "1.5", id="n-1")
    start("asks", id="a-1")
    working = worker()
    until(lambda: status_of("a-1") == "awaiting_user")
    until(lambda: "released until " in cli("show", "n-1").out)
    assert re.search(r"^n-1 +naps +in_progress, waiting ", cli("ls").out, re.M)
    assert cli("answer", "a-1", "book", "true").code == 0
    until(lambda: status_of("a-1") == status_of("n-1") == "completed")
    assert sorted(effects()) == ["finish booked", "finish nap"]
    working.send_signal(signal.SIGTERM)
    assert working.wait(60) == 0


def test_a_worker_leaves_alone_what_it_has_no_code_for(crew):
    run("start", "agents:greet", "Ada", "--id", "g-1", cwd=crew)
    code, _, err = run("worker", "--app", "crew", "--until-idle", cwd=crew)
    assert code == 0
    assert "leaves tasks of type greet to others" in err
    assert status_of("g-1") == "pending"


def test_a_worker_that_waits_for_the_first_task_makes_the_store(worker):
    working = worker()
    until(lambda: Path("workspace").is_dir())
    start("chore", "tea", id="c-1")
    until(lambda: status_of("c-1") == "completed")
    working.send_signal(signal.SIGTERM)
    assert working.wait(60) == 0


@pytest.mark.parametrize(
    ("options", "most"),
    [(["--limit", "meeting=2"], 2), (["--concurrency", "1"], 1), ([], 3)],
)
def test_limits_hold(crew, options, most):
    for number in range(3):
        start("meeting", f"m{number}", "3", id=f"m-{number}")
    assert run("worker", "--app", "crew", "--until-idle", *options, cwd=crew).code == 0
    assert max(result_of(f"m-{number}") for number in range(3)) == most


def test_two_workers_share_a_store_and_do_everything_once(worker):
    for number in range(12):
        start("chore", f"tea {number}", id=f"c-{number}")
    both = [worker("--until-idle"), worker("--until-idle")]
    assert [process.wait(60) for process in both] == [0, 0]
    assert {status_of(f"c-{number}") for number in range(12)} == {"completed"}
    assert sorted(effects()) == sorted(f"finish tea {number}" for number in range(12))


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        ([], 2, "a worker needs the code of the tasks: name it with --app MODULE"),
        (["--app", "nowhere"], 2, "there is no module 'nowhere'"),
        (["--app", "crew", "--limit", "jab=2"], 2, "the code has no task 'jab'"),
        (["--app", "crew", "--limit", "finish=2"], 2, "the code has no task 'finish'"),
        (["--app", "crew", "--limit", "job"], 2, "'job' is not of the form name=value"),
        (["--app", "crew", "--limit", "job=0"], 2, "'0' is not 1 or more"),
        (["--app", "crew", "--limit", "job=many"], 2, "'many' is not 1 or more"),
        (["--app", "crew", "--concurrency", "0"], 2, "--concurrency"),
        (["--app", "crew", "--lease", "0"], 2, "--lease"),
        (["--app", "crew", "extra"], 2, "extra"),
    ],
)
def test_wrong_use_of_a_worker_is_refused_and_makes_no_store(crew, options, code, complaint):
    ended = run("worker", *options, cwd=crew)
    assert (ended.code, ended.out) == (code, "")
    assert complaint in ended.err
    assert "Traceback" not in ended.err
    assert not Path("workspace").exists()


# Ending


@pytest.mark.parametrize("function", ["job", "ajob"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_told_to_end_finishes_the_step_in_hand_and_leaves_the_rest(
    worker, function, number
):
    start(function, "j", id="j-1")
    working = worker()
    until(Path("j.begun").exists)
    working.send_signal(number)
    start("chore", "tea", id="c-1")  # what comes now is left to others
    Path("j.go").touch()
    assert working.wait(60) == 0
    err = said_by(working)
    assert f"ends, by {number.name}: takes up no more tasks" in err
    assert "Traceback" not in err
    name = "work" if function == "job" else "awork"
    assert called("j-1") == [(name, "completed")]
    assert status_of("c-1") == "pending"
    resumed = run("resume", "j-1", "--app", "crew", cwd=Path.cwd())
    assert resumed[:2] == (0, '"j worked, finished"\n')
    assert effects() == ["work j", "finish j worked"]


def test_a_second_signal_ends_a_worker_at_once_and_nothing_recorded_is_lost(worker):
    start("trip", "j", id="t-1")
    working = worker()
    until(Path("j.begun").exists)
    working.send_signal(signal.SIGTERM)
    assert working.stderr is not None
    for line in working.stderr:
        if "takes up no more tasks" in line:
            break
    working.send_signal(signal.SIGTERM)
    assert working.wait(60) == 130
    assert "ended at once, by a second signal\n" in said_by(working)
    assert called("t-1")[:2] == [("reserve", "completed"), ("reserve", "completed")]
    assert ("work", "completed") not in called("t-1")
    Path("j.go").touch()
    assert run("worker", "--app", "crew", "--until-idle", cwd=Path.cwd()).code == 0
    assert result_of("t-1") == "departed"
    assert effects() == ["reserve hotel", "reserve train", "work j", "work j"]


def test_the_tasks_of_a_worker_that_was_killed_are_taken_over(worker):
    start("trip", "j", id="t-1")
    working = worker()
    until(Path("j.begun").exists)
    other = worker()
    working.kill()
    Path("j.go").touch()
    until(lambda: status_of("t-1") == "completed")
    assert effects().count("reserve hotel") == effects().count("reserve train") == 1
    other.send_signal(signal.SIGINT)
    assert other.wait(60) == 0


def test_a_worker_with_nothing_in_hand_ends_at_once(worker):
    working = worker()
    assert working.stderr is not None
    assert "looks for tasks in workspace" in working.stderr.readline()
    working.send_signal(signal.SIGTERM)
    assert working.wait(60) == 0


def test_the_tasks_of_a_worker_that_hangs_are_taken_over_when_its_lease_has_run_out(worker):
    start("trip", "j", id="t-1")
    frozen = worker("--lease", "1")
    until(Path("j.begun").exists)
    frozen.send_signal(signal.SIGSTOP)
    Path("j.go").touch()
    other = worker()
    until(lambda: status_of("t-1") == "completed", within_s=60)
    frozen.send_signal(signal.SIGCONT)
    until(lambda: len(effects()) == 4)  # it goes on with the step it was in, for nothing
    for process in (frozen, other):
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert called("t-1") == [
        ("reserve", "completed"),
        ("reserve", "completed"),
        ("work", "completed"),
        ("depart", "completed"),
    ]
    assert effects() == ["reserve hotel", "reserve train", "work j", "work j"]


# Health and metrics


def test_a_worker_serves_its_health_and_its_metrics_while_it_runs(crew, worker):
    from urllib.request import urlopen

    Path("j.go").touch()
    start("job", "j", id="j-1")
    process = worker("--serve", ":0", "--json")
    url = json.loads(line_of(process, "serves http://127.0.0.1:"))["text"].split()[1]
    until(lambda: status_of("j-1") == "completed")
    assert urlopen(f"{url}/readyz").status == 200

    def scrape() -> str:
        return urlopen(f"{url}/metrics").read().decode()

    until(lambda: 'holdfast_tasks_ended_total{type="job",status="completed"} 1' in scrape())
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_worker_is_told_what_is_no_address(crew):
    code, _, err = run("worker", "--app", "crew", "--serve", "here", cwd=crew)
    assert code == 2
    assert "'here' is no address to serve at" in err
