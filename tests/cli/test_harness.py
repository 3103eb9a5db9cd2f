"""`holdfast init`, `next` and `loop`, as scripts use them: real processes and exit codes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast

from .conftest import COMMAND, begin, environment, run, until

AGENT = r"""
import os, re, sys, time, pathlib
prompt = open(sys.argv[1]).read() if len(sys.argv) > 1 else sys.stdin.read()
if "Write the plan for this mission" in prompt:
    sys.exit(print(open("wanted.md").read()))
item = re.search(r"\n# Your item\n\n\S+\. (.*)\n", prompt)[1]
with open("did", "a") as file: file.write(item + "\n")
if os.path.exists("fail"):
    sys.exit(3)
if os.path.exists("hang"):
    if os.fork() == 0:  # what it started goes on by itself, unless somebody ends it
        while True:
            with open("beats", "a") as file: file.write("x")
            time.sleep(0.01)
    time.sleep(600)
print(item, "is done")
"""


@pytest.fixture
def project(folder):
    (folder / "agent.py").write_text(AGENT)
    (folder / "wanted.md").write_text("- [ ] 1. look\n- [ ] 2. sweep (after: 1)\n- [ ] 3. wash\n")
    return folder


AGENT_COMMAND = shlex.join([sys.executable, "-S", "agent.py"])


def next_(project: Path, *more: str) -> tuple[int, str, str]:
    return run("next", "--agent", AGENT_COMMAND, *more, cwd=project)


def did(project: Path) -> list[str]:
    path = project / "did"
    return path.read_text().splitlines() if path.exists() else []


def make(project: Path) -> None:
    assert run("init", "Tidy up", "--id", "m", cwd=project).code == 0


def test_next_exits_by_what_is_left(project):
    make(project)
    assert next_(project)[0] == 0
    assert did(project) == []
    assert next_(project)[:2] == (0, "done: 1. look (2 items left)\n")
    (project / "fail").touch()
    code, out, _ = next_(project)
    assert (code, out) == (
        1,
        "failed: 2. sweep: it ended with exit code 3: it said nothing (2 items left)\n",
    )
    (project / "fail").unlink()
    assert next_(project)[0] == 0
    assert next_(project)[0] == 12
    assert next_(project, "--retry")[0] == 0
    assert next_(project)[0] == 10
    assert did(project) == ["look", "sweep", "wash", "sweep"]


def test_a_prompt_file_works_as_well_as_standard_input(project):
    make(project)
    agent = AGENT_COMMAND + " {prompt_file}"
    assert run("loop", "--agent", agent, cwd=project).code == 10
    assert did(project) == ["look", "sweep", "wash"]


def test_next_tells_everything_as_json(project):
    make(project)
    told = json.loads(next_(project, "--json")[1])
    assert (told["what"], told["left"]) == ("planned", 3)


def test_a_function_is_an_agent_too(project):
    make(project)
    (project / "helpful.py").write_text(
        "def work(prompt):\n    return '- [ ] 1. one' if 'Write the plan' in prompt else 'ok'\n"
    )
    assert run("loop", "--python", "--agent", "helpful:work", cwd=project).code == 10


def test_a_command_that_does_not_exist_changes_nothing(project):
    make(project)
    code, _, err = run("next", "--agent", "no-such-agent -p", cwd=project)
    assert code == 2
    assert "no-such-agent" in err
    with Holdfast(project / "workspace") as hf:
        assert [view.id for view in hf.tasks()] == ["m"]


def test_a_mission_that_is_no_text_is_refused(project):
    done = subprocess.run(
        [*COMMAND, "init", "-"], input=b"\xff\xfe", cwd=project, env=environment(),
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"UTF-8" in done.stderr


def test_an_agent_that_takes_too_long_is_ended_with_all_that_it_started(project):
    make(project)
    next_(project)
    (project / "hang").touch()
    code, out, _ = next_(project, "--timeout", "1")
    assert (code, "did not end in time" in out) == (1, True)
    must_be_still(project)


def must_be_still(project: Path) -> None:
    """Nobody writes any more: a file that another process writes to would soon be longer."""
    size = (project / "beats").stat().st_size
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert (project / "beats").stat().st_size == size


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere one may leave its group")
def test_killing_next_ends_its_agent_and_the_next_one_does_the_item_again(project, patience):
    make(project)
    next_(project)
    (project / "hang").touch()
    process = begin("next", "--agent", AGENT_COMMAND, cwd=project)
    patience(process)
    until((project / "beats").exists)
    process.kill()
    process.wait()
    (project / "hang").unlink()
    assert next_(project)[0] == 0
    must_be_still(project)
    assert did(project) == ["look", "look"]


def test_two_at_once_take_different_items_and_a_third_finds_none(project, patience):
    make(project)
    next_(project)
    (project / "hang").touch()
    for number in (1, 2):
        patience(begin("next", "--agent", AGENT_COMMAND, cwd=project))
        until(lambda wanted=number: len(did(project)) == wanted)
    assert sorted(did(project)) == ["look", "wash"]
    assert next_(project)[0] == 11


def test_an_agent_that_wrote_into_our_log_is_found_out(project):
    make(project)
    next_(project)
    log = project / "workspace/tasks/m/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"look", b"LOOK"))
    damaged = log.read_bytes()
    code, _, err = next_(project)
    assert code == 4, err
    assert "m" in err
    assert did(project) == []
    assert log.read_bytes() == damaged


def test_a_mission_in_sqlite_does_not_count_its_database_as_changed(project):
    url = f"sqlite:///{project}/s.db"
    assert run("init", "Tidy up", "--id", "m", "--url", url, cwd=project).code == 0
    done = run("loop", "--agent", AGENT_COMMAND, "--url", url, cwd=project)
    assert done.code == 10, done.err
    with Holdfast(url) as hf:
        first = next(view for view in hf.tasks() if view.type == "mission_item")
        assert [each["name"] for each in first.result["changed"]] == ["did"]


def test_a_plan_of_a_database_is_edited_in_the_folder_that_mirrors_it(project):
    url, files = f"sqlite:///{project}/s.db", ("--files", "view")
    assert run("init", "Tidy up", "--id", "m", "--url", url, cwd=project).code == 0
    words = ("--agent", AGENT_COMMAND, "--url", url, *files)
    assert run("next", *words, cwd=project).code == 0
    plan = project / "view/tasks/m/plan.md"
    first, *rest = plan.read_text().split("\n\n<!--")
    plan.write_text("\n\n<!--".join([f"{first}\n- [ ] 9. one more thing", *rest]))
    assert run("next", *words, cwd=project).code == 0
    with Holdfast(url) as hf:
        assert "one more thing" in [item.text for item in hf.task("m").plan]
        first_item = next(view for view in hf.tasks() if view.type == "mission_item")
        assert [each["name"] for each in first_item.result["changed"]] == ["did"]


# From a shell, a Makefile and cron: what the how-to shows

PAGE = Path(__file__).parents[2] / "docs/how-to/harness.md"


def shown(language: str, marker: str) -> str:
    """The block of the page that holds `marker`."""
    blocks = PAGE.read_text().split("```")[1::2]
    found = [block for block in blocks if block.startswith(f"{language}\n") and marker in block]
    assert len(found) == 1, f"{marker!r} is in {len(found)} blocks"
    return found[0].partition("\n")[2]


@pytest.fixture
def shell(project):
    """Runs a command as a user's shell would, with `holdfast` and `assistant` on the path."""
    tools = project / "bin"
    tools.mkdir()
    for name, command in (("holdfast", COMMAND), ("assistant", [sys.executable, "-S", "agent.py"])):
        words = shlex.join(command)
        given = ' "$@"' if name == "holdfast" else ""
        (tools / name).write_text(f"#!/bin/sh\nexec {words}{given}\n")
        (tools / name).chmod(0o755)

    def sh(*command: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{tools}:{os.environ['PATH']}"
        return subprocess.run(
            command, cwd=project, env=environment(PATH=path, **env), capture_output=True,
            text=True, check=False,
        )  # fmt: skip

    return sh


def test_a_while_loop_works_off_a_mission(project, shell):
    make(project)
    done = shell("sh", "-c", shown("sh", "while holdfast next"))
    assert did(project) == ["look", "sweep", "wash"], done.stderr
    assert "everything is done" in done.stdout


def test_a_makefile_works_off_a_mission(project, shell):
    (project / "Makefile").write_text(shown("make", "holdfast loop"))
    done = shell("make")
    assert done.returncode == 0, done.stdout + done.stderr
    assert did(project) == ["look", "sweep", "wash"]
    assert shell("make").returncode == 0
    assert len(did(project)) == 3, "what is done is not done again"


def test_a_line_of_cron_works_off_a_mission(project, shell):
    make(project)
    line = shown("text", "* * * *").strip()
    command = line.split(maxsplit=5)[5].replace("\\%", "%").replace("$HOME/project", str(project))
    for _ in range(5):
        shell("sh", "-c", command)
    assert did(project) == ["look", "sweep", "wash"]
    assert "everything is done" in (project / "harness.log").read_text()


def test_signals_end_a_loop_and_its_agent(project, patience):
    make(project)
    next_(project)
    (project / "hang").touch()
    process = begin("loop", "--agent", AGENT_COMMAND, cwd=project)
    patience(process)
    until((project / "beats").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    must_be_still(project)
