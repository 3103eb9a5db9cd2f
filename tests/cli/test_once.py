"""`holdfast once`: commands of shell scripts as durable steps, in real scripts that are killed"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast import Holdfast, Worker
from tests.thorough import THOROUGH

from .conftest import COMMAND, Ended, environment, run, take_interrupts, until

TASK = "nightly"


@pytest.fixture(scope="session")
def shell(tmp_path_factory):
    """What every process of a script is given: the command `holdfast`, and its bytecode."""
    place = tmp_path_factory.mktemp("bin")
    command = place / "holdfast"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast.cli "$@"\n')
    command.chmod(0o755)
    plain = environment(HOLDFAST_TASK=TASK, PYTHONPYCACHEPREFIX=str(place / "bytecode"))
    plain.pop("PYTHONDONTWRITEBYTECODE", None)
    return plain | {"PATH": f"{place}:{plain['PATH']}"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def once(place, shell):
    """Run a step in a process of its own."""

    def call(*words: str, given: bytes = b"", **env: str) -> Ended:
        done = subprocess.run(
            [*COMMAND, "once", *words],
            env=shell | env,
            input=given,
            capture_output=True,
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    return call


def bash(shell, script: str, **env: str) -> Ended:
    """A script in a session of its own: what it kills is itself and what it started."""
    done = subprocess.run(
        ["bash", "-c", script],
        env=shell | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def ran() -> list[str]:
    return Path("ran").read_text().split() if Path("ran").exists() else []


def statuses() -> dict[str, str]:
    """How each step of the script stands, by its name."""
    with Holdfast("workspace") as hf:
        return {call.name: call.status for call in hf.task(TASK).calls}


# What a script is promised

STEPS = 10 if THOROUGH else 5
STEP = "holdfast once step-{0} -- sh -c 'echo step-{0} | tee -a ran'\nboundary {0}\n"
SCRIPT = 'set -e\nboundary() { [ "$KILL_AT" != "$1" ] || kill -9 0; }\nboundary 0\n'
SCRIPT += "".join(STEP.format(n) for n in range(1, STEPS + 1))


@pytest.mark.timeout(400)  # it starts dozens of processes, one after the other
def test_a_script_killed_between_any_two_commands_runs_each_of_them_once(place, shell):
    for boundary in range(STEPS + 1):
        killed = bash(shell, SCRIPT, KILL_AT=str(boundary))
        assert killed.code == -9, killed.err
        done = [f"step-{n}" for n in range(1, boundary + 1)]
        assert (ran(), killed.out.split()) == (done, done)
    whole = bash(shell, SCRIPT)
    assert (whole.code, whole.err) == (0, "")
    assert whole.out.split() == ran() == [f"step-{n}" for n in range(1, STEPS + 1)]
    assert list(statuses().values()) == ["completed"] * STEPS


def test_a_command_killed_in_the_middle_is_run_again_and_those_before_it_are_not(place, shell):
    step = """holdfast once step-{0} -- sh -c '
        echo begun-{0} >> ran; [ "$KILL_IN" != {0} ] || kill -9 0; echo ended-{0} >> ran'\n"""
    script = "set -e\n" + "".join(step.format(n) for n in range(1, 4))
    for n in range(1, 4):
        assert bash(shell, script, KILL_IN=str(n)).code == -9
    assert bash(shell, script).code == 0
    counted = Counter(ran())
    assert [counted[f"ended-{n}"] for n in range(1, 4)] == [1, 1, 1]
    assert [counted[f"begun-{n}"] for n in range(1, 4)] == [2, 2, 2]
    with Holdfast("workspace") as hf:
        assert [len(hf.task(f"{TASK}:step-{n}").calls[0].attempts) for n in (1, 2, 3)] == [2, 2, 2]


@pytest.mark.parametrize("seed", range(2))
def test_a_script_killed_at_any_moment_never_repeats_what_is_recorded(place, shell, seed):
    chance = random.Random(seed)
    counts: dict[str, int] = {}
    for _ in range(6):
        process = subprocess.Popen(
            ["bash", "-c", SCRIPT],
            env=shell,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(chance.uniform(0.3, 2.5))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for name in completed_steps():
            assert counts.setdefault(name, ran().count(name)) == ran().count(name)
    assert bash(shell, SCRIPT).code == 0
    for name in (f"step-{n}" for n in range(1, STEPS + 1)):
        with Holdfast("workspace") as hf:
            attempts = len(hf.task(f"{TASK}:{name}").calls[0].attempts)
        assert 1 <= ran().count(name) <= attempts
        assert counts.get(name, ran().count(name)) == ran().count(name)


def completed_steps() -> list[str]:
    with Holdfast("workspace") as hf:
        views = hf.tasks(parent=TASK, status="completed")
        return [view.id.partition(":")[2] for view in views]


def test_a_step_prints_what_it_printed_and_is_not_run_again(place, shell):
    script = "echo x >> ran; echo out; echo err >&2; printf '\\377\\0'; exit 0"
    command = [*COMMAND, "once", "greet", "--", "sh", "-c", script]
    for _ in range(2):
        done = subprocess.run(command, env=shell, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"out\n\xff\x00", b"err\n")
    assert ran() == ["x"]


def test_its_output_is_passed_on_while_it_runs(place, shell):
    process = subprocess.Popen(
        [*COMMAND, "once", "slow", "--", "sh", "-c", "echo begun; read -r _ < go; echo ended"],
        env=shell,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    os.mkfifo("go")
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    Path("go").write_text("\n")
    assert process.stdout.read() == b"ended\n"
    assert process.wait() == 0
    process.stdout.close()


def test_the_same_name_with_another_command_is_refused_and_shows_both(once):
    assert once("fetch", "--", "echo", "one").code == 0
    code, out, err = once("fetch", "--", "touch", "a b")
    assert (code, out) == (107, "")
    assert f"task '{TASK}', step fetch: the log holds `echo one`" in err
    assert "your code now asks for `touch 'a b'`" in err
    assert "give the step another name" in err and "holdfast fork" not in err
    assert not Path("a b").exists()
    assert once("fetch", "--file", "x", "--", "echo", "one").code == 107


def test_a_key_stands_for_the_command(once):
    words = ("fetch", "--key", "v1", "--")
    assert once(*words, "echo", "one").out == "one\n"
    assert once(*words, "echo", "two").out == "one\n"
    code, _, err = once("fetch", "--key", "v2", "--", "echo", "two")
    assert code == 107
    assert "`--key v1`" in err and "`--key v2`" in err


# Failures

FAILS_TWICE = "echo x >> ran; echo so far; [ $(wc -l < ran) -ge 3 ] || { echo no >&2; exit 5; }"


def test_a_step_that_failed_is_run_again_with_the_script(once):
    words = ("flaky", "--", "sh", "-c", FAILS_TWICE)
    code, out, err = once(*words)
    assert (code, out) == (5, "so far\n")
    again = "It is run again when the script is"
    assert err == f"no\nholdfast: step 'flaky' failed: exit code 5: no. {again}\n"
    assert statuses() == {"flaky": "failed"}
    assert once(*words).code == 5
    assert once(*words) == (0, "so far\n", "")
    assert once(*words) == (0, "so far\n", "")
    assert len(ran()) == 3
    with Holdfast("workspace") as hf:
        view = hf.task(f"{TASK}:flaky")
        assert [note.data["stdout"] for note in view.notes] == ["so far\n"] * 2
        assert "exit code 5: no" in view.calls[0].attempts[0].failure.message
        assert hf.task(TASK).calls[0].status == "completed"


def test_a_failing_command_is_retried_as_often_as_it_says(once):
    words = ("flaky", "--retry", "2", "--retry-delay", "0.01", "--", "sh", "-c", FAILS_TWICE)
    code, out, err = once(*words)
    assert (code, out, err) == (0, "so far\n" * 3, "no\nno\n")
    assert once(*words) == (0, "so far\n", "")  # what counts is the attempt that went well
    assert len(ran()) == 3


def test_a_failure_that_is_kept_is_a_result(once):
    words = ("no", "--keep-failure", "--retry", "1", "--retry-delay", "0", "--", "sh", "-c")
    command = "echo x >> ran; echo why >&2; exit 9"
    assert once(*words, command) == (9, "", "why\nwhy\n")
    assert once(*words, command) == (9, "", "why\n")
    assert once("no", "--", "sh", "-c", command) == (9, "", "why\n")
    assert len(ran()) == 2


def test_a_failed_step_may_be_mended_and_is_begun_anew(once):
    assert once("fetch", "--", "ehco", "hi").code == 127
    assert once("fetch", "--", "sh", "-c", "exit 1").code == 1
    assert once("fetch", "--", "echo", "hi").out == "hi\n"
    assert once("fetch", "--", "echo", "hi").out == "hi\n"
    assert once("fetch", "--", "ehco", "hi").code == 107
    assert statuses() == {"fetch": "completed"}


def test_a_command_that_can_not_be_started_has_the_exit_code_of_a_shell(once, place):
    code, _, err = once("lost", "--", "no-such-command")
    assert code == 127
    assert "can't run no-such-command" in err
    Path("plain").touch()
    assert once("plain", "--", "./plain").code == 126


def test_a_command_out_of_time_is_ended_with_all_that_it_started(once):
    words = ("slow", "--timeout", "0.4", "--", "sh", "-c", "sleep 60 & echo $! > pid; wait")
    code, _, err = once(*words)
    assert code == 124
    assert "exit code 124 after 0.4 s" in err
    child = int(Path("pid").read_text())
    until(lambda: is_gone(child))
    assert once("quick", "--timeout", "30", "--", "echo", "hi").out == "hi\n"


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except FileNotFoundError:
        return True


def test_a_command_does_not_outlive_the_process_that_runs_it(place, shell):
    process = subprocess.Popen(
        [
            *COMMAND,
            "once",
            "long",
            "--",
            "sh",
            "-c",
            "echo $$ > pid.new; mv pid.new pid; exec sleep 60",
        ],
        env=shell,
        stdin=subprocess.DEVNULL,
    )
    until(Path("pid").exists)
    process.kill()
    process.wait()
    until(lambda: is_gone(int(Path("pid").read_text())))


# Being interrupted

KILLED = "echo x >> ran; [ -e go-on ] || { touch go-on; kill -9 0; }; echo done"


def in_session(once_words, shell) -> int:
    return subprocess.run(
        [*COMMAND, "once", *once_words],
        env=shell,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=False,
    ).returncode


def test_in_doubt_a_person_can_be_asked(once, shell, cli):
    words = ("mail", "--in-doubt", "ask", "--", "sh", "-c", KILLED)
    assert in_session(words, shell) == -9
    for _ in range(2):
        code, out, err = once(*words)
        assert (code, out) == (103, "")
        assert "may or may not have happened" in err
        result = """--happened --unchecked --result '{"exit_code": 0}'"""
        assert f"it happened:        holdfast resolve {TASK}:mail 1 {result}" in err
        assert f"it did not happen:  holdfast resolve {TASK}:mail 1 --did-not-happen" in err
    assert cli("doubt").code == 3
    settle = ("--happened", "--unchecked", "--result", '{"exit_code": 0}')
    assert cli("resolve", f"{TASK}:mail", "1", *settle).code == 0
    assert once(*words) == (0, "", "")
    assert once(*words) == (0, "", "")
    assert ran() == ["x"]


def test_what_a_person_says_did_not_happen_is_run(once, shell, cli):
    words = ("mail", "--in-doubt", "ask", "--", "sh", "-c", KILLED)
    assert in_session(words, shell) == -9
    assert once(*words).code == 103
    assert cli("resolve", f"{TASK}:mail", "1", "--did-not-happen").code == 0
    assert once(*words) == (0, "done\n", "")
    assert ran() == ["x", "x"]


WAITS = "trap 'echo caught >> ran; exit 3' INT TERM; touch ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_sent_on_and_recorded_and_ends_us_too(place, shell, number):
    process = subprocess.Popen(
        [*COMMAND, "once", "long", "--retry", "5", "--", "sh", "-c", WAITS],
        env=shell,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=take_interrupts,  # noqa: PLW1509 (no thread of ours runs yet)
    )
    until(Path("ready").exists)
    process.send_signal(number)
    assert process.wait() == -number
    assert ran() == ["caught"]
    assert statuses() == {"long": "failed"}
    with Holdfast("workspace") as hf:
        (attempt,) = hf.task(f"{TASK}:long").calls[0].attempts
        assert "interrupted by a signal" in attempt.failure.message


def test_ctrl_c_stops_the_script_and_not_only_the_step(place, shell):
    script = f'holdfast once long -- sh -c "{WAITS}"\necho went-on >> ran'
    process = subprocess.Popen(
        ["bash", "-c", script],
        env=shell,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=take_interrupts,  # noqa: PLW1509 (no thread of ours runs yet)
    )
    until(Path("ready").exists)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait() == -signal.SIGINT
    assert "went-on" not in ran()


def test_a_wait_between_attempts_can_be_interrupted(place, shell):
    command = "touch failed; exit 1"
    process = subprocess.Popen(
        [*COMMAND, "once", "x", "--retry", "3", "--retry-delay", "50", "--", "sh", "-c", command],
        env=shell,
        stdin=subprocess.DEVNULL,
    )
    until(lambda: Path("failed").exists() and backs_off())
    process.terminate()
    assert process.wait(60) == -signal.SIGTERM


def backs_off() -> bool:
    with Holdfast("workspace") as hf:
        views = [view for view in hf.tasks() if view.id == f"{TASK}:x"]
        return bool(views and views[0].calls and views[0].calls[0].status == "backing_off")


# Files, input, output


def test_files_are_kept_and_given_back_when_they_are_missing(once):
    words = ("make", "--file", "out/data.bin", "--file", "tool", "--")
    command = ("sh", "-c", "mkdir -p out; head -c 3000000 /dev/urandom > out/data.bin; "
               "echo hi > tool; chmod 751 tool; echo x >> ran")  # fmt: skip
    assert once(*words, *command) == (0, "", "")
    data = Path("out/data.bin").read_bytes()
    assert once(*words, *command) == (0, "", "")
    shutil.rmtree("out")
    Path("tool").unlink()
    code, _, err = once(*words, *command)
    assert code == 0
    assert "out/data.bin was missing: restored" in err and "tool was missing: restored" in err
    assert Path("out/data.bin").read_bytes() == data
    assert stat.S_IMODE(Path("tool").stat().st_mode) == 0o751
    assert ran() == ["x"]
    assert not [name for name in os.listdir() if name.startswith(".holdfast-")]


def test_a_changed_file_is_left_as_it_is_unless_it_is_to_be_restored(once):
    words = ("--file", "f", "--", "sh", "-c", "echo ours > f")
    assert once("make", *words).code == 0
    Path("f").write_text("mine\n")
    code, _, err = once("make", *words)
    assert code == 0
    assert "f is not what this step made, and was left as it is (--restore" in err
    assert Path("f").read_text() == "mine\n"
    assert "restored" in once("make", "--restore", *words).err
    assert Path("f").read_text() == "ours\n"


def test_a_command_that_does_not_make_its_file_has_failed(once):
    words = ("make", "--file", "f", "--", "sh", "-c", "echo x >> ran; [ ! -e go ] || echo 1 > f")
    code, _, err = once(*words)
    assert code == 1
    assert "the file it declares can't be kept: f (No such file or directory)" in err
    Path("go").touch()
    assert once(*words).code == 0
    assert len(ran()) == 2


def test_standard_input_is_given_only_when_asked_for_and_is_part_of_what_a_step_is(once):
    assert once("none", "--", "cat", given=b"swallowed").out == ""
    assert once("some", "--stdin", "--", "cat", given=b"a\n").out == "a\n"
    assert once("some", "--stdin", "--", "cat", given=b"a\n").out == "a\n"
    code, _, err = once("some", "--stdin", "--", "cat", given=b"b\n")
    assert code == 107
    assert "cat --stdin (sha256 " in err


def test_every_attempt_is_given_the_same_standard_input(once):
    command = "cat; echo x >> ran; [ $(wc -l < ran) -ge 2 ]"
    words = ("in", "--stdin", "--retry", "1", "--retry-delay", "0", "--", "sh", "-c", command)
    assert once(*words, given=b"line\n").out == "line\nline\n"


def test_a_loop_over_standard_input_is_not_swallowed(place, shell):
    script = 'while read -r name; do holdfast once "do $name" -- echo "$name"; done < list'
    Path("list").write_text("a.csv\nhttps://example.org/b?c=1\nc d\n")
    for _ in range(2):
        assert bash(shell, script) == (0, "a.csv\nhttps://example.org/b?c=1\nc d\n", "")
    assert len(statuses()) == 3


def test_large_output_takes_little_memory_and_comes_back_byte_for_byte(place, shell):
    def peak(*words: str) -> tuple[int, int]:
        with open("out", "wb") as out:
            process = subprocess.Popen(
                [*COMMAND, "once", *words], env=shell, stdin=subprocess.DEVNULL, stdout=out
            )
            _, ended, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(ended)
        return process.returncode, used.ru_maxrss

    large = ("large", "--", "sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x")
    _, small = peak("small", "--", "echo", "hi")
    for _ in range(2):
        code, used = peak(*large)
        assert code == 0
        assert os.path.getsize("out") == 100_000_000
        assert used - small < 40_000  # kilobytes


def test_what_is_too_much_is_passed_on_but_not_recorded_and_it_says_so(once):
    words = ("much", "--max-output", "10", "--", "sh", "-c", "echo 0123456789abcdef")
    note = "holdfast: step 'much': the last 7 bytes of its stdout are not recorded\n"
    assert once(*words) == (0, "0123456789abcdef\n", note)
    assert once(*words) == (0, "0123456789", note)


def test_a_reader_that_goes_away_is_no_disaster(place, shell):
    done = bash(shell, "holdfast once many -- yes | head -1; echo ${PIPESTATUS[0]}")
    assert done.out == "y\n141\n"
    lines = "holdfast once some -- seq 100000"
    assert bash(shell, f"{lines} > /dev/null; {lines} | head -1; echo ${{PIPESTATUS[0]}}").out == (
        "1\n141\n"
    )


def test_something_left_in_the_background_does_not_hold_up_the_step(once):
    began = time.monotonic()
    words = ("daemon", "--", "sh", "-c", "sleep 30 & echo $! > pid; echo up")
    assert once(*words).out == "up\n"
    assert time.monotonic() - began < 20
    os.kill(int(Path("pid").read_text()), signal.SIGKILL)


def test_the_command_is_told_which_step_it_is(once):
    names = ("TASK", "STEP", "ATTEMPT", "IDEMPOTENCY_KEY")
    command = "".join(f"echo $HOLDFAST_{name}; " for name in names)
    told = once("who", "--", "sh", "-c", command).out.splitlines()
    assert told[:3] == [TASK, "who", "1"]
    assert told[3].startswith(f"{TASK}:who:1:command:")


# Several at once


@pytest.mark.parametrize("url", ["workspace", "sqlite:///state.db"])
def test_steps_run_at_the_same_time(place, shell, url):
    # Each waits for the other: one after the other they would never end.
    script = """mkfifo a b
        holdfast once one -- sh -c 'echo 1 > a; cat b' > out-1 &
        holdfast once two -- sh -c 'cat a; echo 2 > b' > out-2 &
        wait
        cat out-1 out-2"""
    assert bash(shell, script, HOLDFAST_URL=url) == (0, "2\n1\n", "")
    again = "rm a b; holdfast once one -- sh -c 'echo 1 > a; cat b'"
    assert bash(shell, again, HOLDFAST_URL=url).out == "2\n"


def test_many_steps_at_once_are_all_recorded(place, shell):
    script = "for n in 1 2 3 4 5 6; do holdfast once step-$n -- sh -c 'echo x >> ran' & done; wait"
    assert bash(shell, script) == (0, "", "")
    assert len(ran()) == 6
    assert set(statuses().values()) == {"completed"}
    with Holdfast("workspace") as hf:
        assert [call.path for call in hf.task(TASK).calls] == [str(n) for n in range(1, 7)]


def test_the_same_step_is_not_run_twice_at_once(place, shell, once):
    os.mkfifo("go")
    words = ("one", "--", "sh", "-c", "touch begun; echo x >> ran; cat go")
    process = subprocess.Popen([*COMMAND, "once", *words], env=shell, stdin=subprocess.DEVNULL)
    until(Path("begun").exists)
    code, out, _ = once(*words)
    assert (code, out) == (106, "")
    assert once("--done").code == 102
    opened = threading.Thread(target=lambda: Path("go").write_text(""))
    opened.start()
    assert process.wait() == 0
    opened.join()
    assert ran() == ["x"]


# The task of a script


def test_without_a_task_it_says_what_to_write_at_the_top(once):
    code, out, err = once("a", "--", "echo", "hi", HOLDFAST_TASK="")
    assert (code, out) == (102, "")
    assert "export HOLDFAST_TASK=nightly-$(date +%F)" in err
    assert once("a", "--task", "by-hand", "--", "echo", "hi", HOLDFAST_TASK="").code == 0


def test_a_script_that_is_done_runs_nothing_new(once, cli):
    assert once("--done").code == 105
    assert once("a", "--", "echo", "hi").code == 0
    assert once("--done") == (0, "", "")
    assert once("--done") == (0, "", "")
    assert once("a", "--", "echo", "hi").out == "hi\n"
    assert once("b", "--", "touch", "b").code == 102
    assert not Path("b").exists()
    [task] = json.loads(cli("ls", "--type", "script", "--json").out)
    assert (task["id"], task["status"]) == (TASK, "completed")


def test_a_cancelled_or_paused_script_runs_nothing_new(once, cli):
    assert once("a", "--", "echo", "hi").code == 0
    assert cli("pause", TASK).code == 0
    assert once("b", "--", "touch", "b").code == 103
    with Holdfast("workspace") as hf:
        hf.unpause(TASK)
    assert cli("cancel", TASK).code == 0
    assert once("b", "--", "touch", "b").code == 108
    assert not Path("b").exists()


def test_an_agent_is_no_script(folder, once):
    words = ("run", "agents:branches", '["Oslo"]', "--id", TASK)
    assert run(*words, cwd=folder).code == 0
    code, _, err = once("a", "--", "touch", "a")
    assert code == 102
    assert f"task '{TASK}' is a branches, and no script" in err
    assert not Path("a").exists()


def test_workers_leave_scripts_and_their_steps_alone(once, shell):
    assert once("a", "--", "echo", "hi").code == 0
    assert in_session(("b", "--", "sh", "-c", KILLED), shell) == -9
    with Holdfast("workspace") as hf:
        Worker(hf).run_until_idle()
    assert ran() == ["x"]
    assert once("b", "--", "sh", "-c", KILLED).out == "done\n"


def test_a_store_that_was_copied_half_way_just_continues_there(place, shell):
    script = """set -e
        holdfast once one --file one.txt -- sh -c 'echo 1 > one.txt; echo one >> "$RAN"'
        [ -z "$STOP" ] || exit 9
        holdfast once two --file two.txt -- sh -c 'cat one.txt > two.txt; echo two >> "$RAN"'
        cat two.txt"""
    assert bash(shell, script, STOP="1", RAN=str(place / "ran")).code == 9
    there = place / "there"
    there.mkdir()
    shutil.copytree("workspace", there / "workspace")
    done = bash(shell, f"cd there\n{script}", RAN=str(place / "ran"))
    assert (done.code, done.out) == (0, "1\n")
    assert ran() == ["one", "two"]


@pytest.mark.parametrize(
    "words",
    [("",), ("a" * 256,), ("a\nb",), ("--task", "x" * 250, "name-too"), ("--retry", "-1", "a")],
)
def test_bad_words_are_refused_and_leave_no_trace(once, words):
    code, out, err = once(*words, "--", "touch", "ran")
    assert code in (2, 102)
    assert (out, err.startswith("error: ")) == ("", True)
    assert not Path("ran").exists() and not Path("workspace/tasks").exists()


def test_a_step_without_a_command_is_wrong_usage(once):
    for words in ((), ("a",), ("a", "--"), ("--done", "a")):
        assert once(*words).code in (2, 105)


def test_called_alone_it_is_the_same_command(once, cli):
    # It is found without the other commands, which take long to load.
    for word in ("-h", "--help", "--no-such-option"):
        alone, among = once(word), cli("once", word)
        assert (alone.code, alone.err) == (among.code, among.err)
        assert alone.out.split() == among.out.split()  # in lines of other widths


def test_words_that_are_no_text_need_a_key(place, shell):
    command = [*COMMAND, "once", "odd", "--", "printf", b"\xff"]
    done = subprocess.run(command, env=shell, capture_output=True, check=False)
    assert done.returncode == 102
    assert b"the command (give the step a --key)" in done.stderr
    command = [*COMMAND, "once", "odd", "--key", "k", "--", "printf", b"\xff"]
    for _ in range(2):
        assert (
            subprocess.run(command, env=shell, capture_output=True, check=False).stdout == b"\xff"
        )


# What the docs show

PAGE = Path(__file__).parents[2] / "docs/how-to/shell-scripts.md"


def block(language: str) -> str:
    [found] = re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return found


def test_the_script_of_the_docs_goes_on_where_it_failed(place, shell):
    stubs = {
        "curl": 'echo curl >> ran; printf "b\\na\\nb\\n" > data.csv',
        "load.sh": "echo load >> ran; [ -e database ]",
        "mail": 'echo mail >> ran; echo "$2"',
    }
    for name, body in stubs.items():
        Path(name).write_text(f"#!/bin/sh\n{body}\n")
        Path(name).chmod(0o755)
    path = {"PATH": f"{place}:{shell['PATH']}"}
    assert bash(shell, block("bash"), **path).code == 1
    Path("database").touch()
    for _ in range(2):
        assert bash(shell, block("bash"), **path) == (0, "loaded 2 clean.csv\n", "")
    assert ran() == ["curl", "load", "load", "mail"]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_the_makefile_of_the_docs_runs_each_step_once(place, shell):
    Path("Makefile").write_text(block("make"))
    Path("VERSION").write_text("1.0\n")
    make = ["make", "-s", "release"]
    for is_first in (True, False):
        done = subprocess.run(make, env=shell, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        for name in ("uploaded.tar", "announced"):
            assert Path(name).exists() is is_first
            Path(name).unlink(missing_ok=True)


# Git


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_step_is_committed_with_its_path_and_key_and_only_once(place, once):
    Path("site").mkdir()
    words = ("build", "--git", "site", "--", "sh", "-c", "echo 1 > site/index.html")
    code, _, err = once(*words)
    assert code == 1
    assert "is in no git repository" in err
    assert once("build", "--git-init", *words[1:]).code == 0
    log = ("git", "-C", "site", "log", "--format=%s|%(trailers:only,separator=|)")
    said = subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()
    assert said.startswith(f"{TASK}: build|Holdfast-Task: {TASK}|Holdfast-Path: 1|Holdfast-Key: ")
    Path("site/index.html").write_text("by hand\n")
    assert once(*words).code == 0
    assert subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip() == said
