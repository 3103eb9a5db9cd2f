"""What the command line tells people to do works when they do it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast import Holdfast, now, step, task
from holdfast.cli.root import root
from holdfast.errors import CodeChanged
from holdfast.workspace import init

from .conftest import on_terminal


def holdfast(*words: str) -> Result:
    return CliRunner().invoke(root, words, prog_name="holdfast")


@step
def advised_get(n: int) -> int:
    return n


@step
def advised_fail(n: int) -> int:
    raise ValueError("too much")


@task
def advised_many(n: int) -> int:
    now()
    for each in range(n):
        advised_get(each)
    return advised_fail(n)


def test_show_of_many_calls_is_a_screen_and_all_shows_every_one(folder: Path) -> None:
    with Holdfast("workspace") as hf, pytest.raises(Exception, match="too much"):
        hf.run(advised_many, 300, id="many")
    shown = on_terminal("show", "many", cwd=folder)
    assert len(shown.splitlines()) < 70
    assert "1 … 300" in shown
    assert "300 calls" in shown
    assert "… 292 earlier ones: --all shows them" in shown
    assert "reading" not in shown  # of the clock
    listed = on_terminal("snapshot", "many", cwd=folder)
    assert len(listed.splitlines()) < 50
    assert " earlier ones: --full shows them" in listed and "after   301" in listed
    for every in (
        on_terminal("show", "many", "--all", cwd=folder),
        holdfast("show", "many").output,
    ):
        assert "1 … 300" not in every
        assert "earlier" not in every
        assert len(every.splitlines()) > 900


def test_show_names_the_file_and_line_of_a_failure(folder: Path) -> None:
    with Holdfast("workspace") as hf, pytest.raises(Exception, match="too much"):
        hf.run(advised_many, 1, id="one")
    shown = holdfast("show", "one").output
    lines = Path(__file__).read_text().splitlines()
    raised = next(number for number, line in enumerate(lines, 1) if "raise ValueError" in line)
    called = next(number for number, line in enumerate(lines, 1) if "return advised_fail" in line)
    assert f"{__file__}:{raised}, in advised_fail" in shown
    assert f"{__file__}:{called}, in advised_many" in shown


@task
def advised_planned(calls: int) -> int:
    from holdfast import current

    current().plan(["one", "two", "three", "four"])
    return sum(advised_get(n) for n in range(calls))


@pytest.mark.parametrize(("calls", "said"), [(4, "step 4 of 4"), (5, "step 5\n")])
def test_a_task_with_more_calls_than_its_plan_is_not_measured_by_it(folder, calls, said) -> None:
    with Holdfast("workspace") as hf:
        hf.run(advised_planned, calls, id="planned")
    assert f"Position  {said}" in holdfast("show", "planned").output


def test_a_mission_is_gone_on_with_by_next(folder: Path) -> None:
    with Holdfast("workspace") as hf:
        init(hf, "Tidy up", id="tidy")
    shown = holdfast("show", "tidy").output
    assert "--app" not in shown
    advice = next(line for line in shown.splitlines() if "holdfast next" in line)
    words = shlex.split(advice.partition("holdfast ")[2])
    assert words[-1] == "COMMAND …"
    planner = f"{sys.executable} -c \"print('- [ ] sweep')\""
    done = holdfast(*words[:-1], planner)
    assert done.exit_code == 0, done.output


def test_a_script_that_stopped_is_run_again(folder: Path) -> None:
    done = holdfast("once", "fetch", "--task", "nightly", "--", "true")
    assert done.exit_code == 0, done.output
    shown = holdfast("show", "nightly").output
    assert "run the script again, with HOLDFAST_TASK=nightly" in shown
    assert "--app" not in shown


def test_the_fork_that_changed_code_advises_can_be_made(folder: Path) -> None:
    with Holdfast("workspace") as hf:
        hf.run(advised_planned, 2, id="changed")
    advice = str(CodeChanged("changed", "2", "advised_get(1)", "calls another"))
    words = shlex.split(advice.partition("(holdfast ")[2].rstrip(")"))
    done = holdfast(*words)
    assert done.exit_code == 0, done.output
