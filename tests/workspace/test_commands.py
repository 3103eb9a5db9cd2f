"""Agents that are commands: what they are given, and what is kept of them."""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import pytest

from holdfast import BadInput, Holdfast, task
from holdfast.workspace.commands import (
    MOST_KEPT,
    MOST_SHOWN,
    RanCommand,
    must_be_there,
    run_command,
)

SPEC: dict[str, object] = {}


@task(name="runs_a_command_for_tests")
def running(command: str, prompt: str) -> RanCommand:
    return run_command(command, prompt, **SPEC)  # type: ignore[arg-type]


@pytest.fixture
def ran(tmp_path):
    """Runs a program text as an agent, inside a task."""
    folder = tmp_path / "project"
    folder.mkdir()
    hf = Holdfast(tmp_path / "ws", projections=False)
    number = 0

    def run(program: str, prompt: str = "", arguments: str = "", **more: object) -> RanCommand:
        nonlocal number
        number += 1
        script = tmp_path / f"agent-{number}.py"
        script.write_text(program)
        SPEC.clear()
        SPEC.update(folder=folder, **more)
        command = f"{sys.executable} -I {script} {arguments}"
        made: RanCommand = hf.run(running, command, prompt, id=f"c-{number}")
        return made

    run.hf, run.folder = hf, folder
    yield run
    hf.close()


def test_the_prompt_comes_on_standard_input(ran):
    assert ran("import sys; print(sys.stdin.read()[::-1])", "abc").stdout.text == "cba\n"


def test_the_prompt_comes_in_a_file(ran):
    done = ran("import sys; print(open(sys.argv[1]).read())", "åbc", "{prompt_file}")
    assert done.stdout.text == "åbc\n"


def test_an_agent_that_prints_nothing_has_said_nothing(ran):
    done = ran("")
    assert (done.exit_code, done.stdout.text, done.stdout.size_bytes) == (0, "", 0)


def test_binary_output_is_text_with_what_can_be_read(ran):
    done = ran("import os; os.write(1, bytes(range(256)))")
    assert done.stdout.size_bytes == 256
    assert "ABC" in done.stdout.text
    assert "\0" not in done.stdout.text


def test_a_long_output_is_kept_whole_beside_the_log(ran):
    done = ran("print('a' * 100_000); print('end')")
    assert done.stdout.text.endswith("a\nend\n")
    assert len(done.stdout.text) == MOST_SHOWN
    with ran.hf.open(done.stdout.whole) as file:
        assert file.read() == b"a" * 100_000 + b"\nend\n"


def test_two_hundred_megabytes_cost_neither_memory_nor_log(ran, tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = ran("import os\nfor n in range(200): os.write(1, b'%07d\\n' % n * 131072)")
    assert done.stdout.size_bytes == 200 * 1024 * 1024
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024
    assert MOST_KEPT <= done.stdout.whole.size_bytes < MOST_KEPT + 100
    with ran.hf.open(done.stdout.whole) as file:
        assert file.read(8) == b"0000000\n"
        file.seek(-8, os.SEEK_END)
        assert file.read() == b"0000199\n"
    log = next((tmp_path / "ws" / "tasks").rglob("events.jsonl"))
    assert log.stat().st_size < 100_000


def test_the_exit_code_is_the_one_of_the_agent(ran):
    assert ran("raise SystemExit(3)").exit_code == 3
    assert ran("import os; os.kill(os.getpid(), 9)").exit_code == 128 + 9


FAMILY = """
import os, sys, time, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def child(name):
    if os.fork() == 0:
        if name == "elsewhere": os.setsid()
        open(f"{name}.pid.tmp", "w").write(str(os.getpid()))
        os.rename(f"{name}.pid.tmp", f"{name}.pid")
        time.sleep(600)
child("here"); child("elsewhere")
while not (os.path.exists("here.pid") and os.path.exists("elsewhere.pid")): time.sleep(0.01)
if len(sys.argv) > 1: time.sleep(600)
"""


def is_alive(folder: Path, name: str) -> bool:
    try:
        os.kill(int((folder / f"{name}.pid").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one may leave its group")
def test_all_that_an_agent_started_is_gone_when_it_has_ended(ran):
    assert ran(FAMILY).exit_code == 0
    assert not is_alive(ran.folder, "here")
    assert not is_alive(ran.folder, "elsewhere")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one may leave its group")
def test_all_that_an_agent_started_is_gone_when_its_time_is_up(ran):
    began = time.monotonic()
    done = ran(FAMILY.replace("signal.signal", "0 and signal.signal"), "", "stay", timeout_s=1)
    assert done.timed_out
    assert time.monotonic() - began < 30
    assert not is_alive(ran.folder, "here")
    assert not is_alive(ran.folder, "elsewhere")


def test_what_an_agent_changed_is_told_by_name_and_content(ran):
    (ran.folder / "old").write_text("1")
    (ran.folder / "gone").write_text("1")
    done = ran("import os; open('new', 'w').write('x'); os.remove('gone'); open('old', 'w')")
    assert [(c.name, c.how) for c in done.changed] == [
        ("gone", "removed"), ("new", "made"), ("old", "changed"),
    ]  # fmt: skip
    assert done.changed[1].sha256.startswith("2d711642b726b044")


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_file_whose_name_is_no_utf8_is_told_all_the_same(ran):
    done = ran(r"open(b'caf\xe9', 'w')")
    assert [c.name for c in done.changed] == [r"caf\xe9"]


def test_what_lies_beside_is_not_the_agents(ran):
    aside = ran.folder / "ws"
    aside.mkdir()
    done = ran(
        "open('ws/log', 'w'); open('db', 'w'); open('a', 'w')", beside=(aside, ran.folder / "db")
    )
    assert [c.name for c in done.changed] == ["a"]


@pytest.mark.parametrize("command", ["no-such-agent -p", "./missing.sh", "", "   ", "'open"])
def test_a_command_that_is_none_is_refused_before_anything_is_done(command, tmp_path):
    with pytest.raises(BadInput, match="agent"):
        must_be_there(command, tmp_path)


def test_a_command_is_found_in_the_agents_folder(tmp_path):
    (tmp_path / "agent.sh").write_text("#!/bin/sh\n")
    (tmp_path / "agent.sh").chmod(0o755)
    must_be_there("./agent.sh", tmp_path)
