"""`holdfast replay` and `holdfast testcase`"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast import Holdfast
from holdfast.cli.root import root

from .conftest import COMMAND, Ended, environment, run

CODE = """\
import asyncio
from pathlib import Path
from holdfast import decide, each, note, step, task, tool

def effect(what):
    with Path("effects").open("a") as file:
        file.write(what + "\\n")

@step
def {name}_rooms(city: str) -> list[str]:
    effect("rooms")
    return [f"{{city}} attic", f"{{city}} cellar"]

@tool
def {name}_book(room: str) -> str:
    effect("book")
    return f"booked {{room}}"

@task(name="{name}_trip")
def trip(city: str) -> str:
    rooms = {name}_rooms(city)
    print("chose from", rooms)
    room = decide("room", rooms[0], options=rooms)
    booked = {name}_book(room)
    return booked

@step
async def {name}_look(city: str) -> str:
    return city.upper()

@task(name="{name}_tour")
async def tour() -> list[str]:
    first = await {name}_look("Oslo")
    return [first, *await asyncio.gather({name}_look("Rome"), {name}_look("Lima"))]

@task(name="{name}_all")
def all_of_them() -> list[str]:
    cities = ["a", "b"]
    return list(each({name}_book, cities))
"""


class Agents:
    """Code in a module of its own, which can be changed, and runs of it in a store."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.file = Path(f"{name}.py")
        self.file.write_text(CODE.format(name=name))
        self.module = self._imported()
        self._number = 0

    def _imported(self):
        import importlib

        sys.modules.pop(self.name, None)
        importlib.invalidate_caches()
        return importlib.import_module(self.name)

    def change(self, old: str, new: str) -> None:
        source = self.file.read_text()
        assert old in source
        # Of another length, so that nobody takes the compiled file for this one.
        self._number += 1
        self.file.write_text(f"{source.replace(old, new)}\n{'#' * self._number}\n")
        self._imported()

    def record(self) -> None:
        with Holdfast("workspace") as hf:
            hf.run(self.module.trip, "Oslo", id="trip-42")
            hf.run(self.module.tour, id="tour")
            hf.run(self.module.all_of_them, id="all")
        Path("effects").unlink()

    def __call__(self, *args: str) -> Ended:
        result = CliRunner().invoke(root, ("--app", self.name, *args), prog_name="holdfast")
        return Ended(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def agents(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    monkeypatch.syspath_prepend(str(folder))
    made = Agents(f"rp{abs(hash(request.node.name)) % 10**8}")
    made.record()
    yield made
    sys.modules.pop(made.name, None)


def everything() -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path("workspace").rglob("events.jsonl")}


def test_the_same_code_does_the_same_and_nothing_happens(agents):
    before = everything()
    code, out, err = agents("replay", "trip-42")
    assert (code, out) == (
        0,
        "trip-42  the same: completed, as recorded\n"
        "  answered      2 calls from the log\n"
        "  compared      5 snapshots, all the same\n",
    )
    assert "chose from" in err  # what the code prints
    assert everything() == before
    assert not Path("effects").exists()


def test_what_changed_is_shown_at_the_first_divergence(agents):
    agents.change("rooms[0]", "rooms[1]")
    code, out, _ = agents("replay", "trip-42")
    assert code == 7
    assert out.startswith(
        "trip-42  diverges at call 2\n"
        f'  the log holds {agents.name}_book({{"room":"Oslo attic"}})\n'
        f'  the code      calls {agents.name}_book({{"room":"Oslo cellar"}})\n'
    )
    code, out, _ = agents("replay", "trip-42", "--json")
    found = json.loads(out)
    assert (code, found["same"], found["divergence"]["path"]) == (7, False, "2")
    assert not Path("effects").exists()


def test_stubs_and_the_real_thing(agents):
    book = f"{agents.name}_book"
    code, out, _ = agents("replay", "trip-42", "--stub", f'{book}="none"', "--json")
    assert (code, json.loads(out)["result"]) == (7, "none")
    assert not Path("effects").exists()
    code, out, _ = agents("replay", "trip-42", "--from", "2", "--real", book, "--json")
    assert (code, json.loads(out)["same"]) == (0, True)
    assert Path("effects").read_text() == "book\n"


def test_it_stops_at_a_call(agents):
    code, out, _ = agents("replay", "trip-42", "--to", "2")
    assert code == 0
    assert f'  stopped at    step 2, {agents.name}_book({{"room":"Oslo attic"}})\n' in out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((), "name a task, or say --all"),
        (("trip-42", "--all"), "name a task, or say --all"),
        (("trip-42", "--type", "x"), "--type and --since go with --all"),
        (("--all", "--to", "2"), "are for one task"),
        (("trip-42", "--pdb"), "nothing failed, so --pdb needs a call to stop at"),
        (("trip-42", "--pdb", "--to", "2", "--json"), "leave one out"),
        (("trip-42", "--to", "9"), "has made no step '9'"),
        (("trip-42", "--stub", "x=}"), "x=}: that is no JSON"),
        (("trip-42", "--real", "nobody"), "can't be called for real"),
    ],
)
def test_what_makes_no_sense_is_refused(agents, args, words):
    code, _, err = agents("replay", *args)
    assert code == 2
    assert words in err


def test_a_task_that_is_not_there_and_code_that_is_not(agents, cli):
    code, _, err = agents("replay", "trip-43")
    assert (code, "Did you mean trip-42?" in err) == (5, True)


# Calls that are really made, and stubs that nobody needs


REALLY = """
import sys
from pathlib import Path
from holdfast import Retry, step, task

@step(retry=Retry(attempts=3, delay_s=0.01))
def really_fetch(n: int) -> int:
    if Path("flaky").exists():
        Path("flaky").unlink()
        raise ValueError("flaky")
    return n

@step
def really_inner(n: int) -> int:
    return n

@step
def really_outer(n: int) -> int:
    return really_inner(n)

@task
def really_walk(n: int) -> int:
    return really_outer(really_fetch(n))
"""


@pytest.fixture
def walked(folder: Path, monkeypatch: pytest.MonkeyPatch):
    import importlib

    monkeypatch.syspath_prepend(str(folder))
    Path("walking.py").write_text(REALLY)
    importlib.invalidate_caches()
    with Holdfast("workspace") as hf:
        hf.run(importlib.import_module("walking").really_walk, 3, id="walk")
    yield lambda *words: CliRunner().invoke(
        root, ("replay", "walk", "--app", "walking", *words), prog_name="holdfast"
    )
    sys.modules.pop("walking", None)


def test_a_call_that_is_really_made_may_be_tried_again_and_is_no_answer_of_the_log(walked):
    Path("flaky").touch()
    done = walked("--real", "really_fetch")
    assert (done.exit_code, Path("flaky").exists()) == (0, False), done.output
    assert "the same: completed, as recorded" in done.stdout
    assert "1 call from the log; 1 call really made" in done.stdout
    told = json.loads(walked("--real", "really_fetch", "--json").stdout)
    assert (told["answered"], told["real"], told["unused"]) == (1, ["1"], [])


@pytest.mark.parametrize("word", [("--real", "really_inner"), ("--stub", "really_inner=7")])
def test_a_stub_that_the_code_never_reaches_is_named_and_changes_nothing(walked, word):
    done = walked(*word)
    assert done.exit_code == 0, done.output
    assert "the same: completed, as recorded" in done.stdout
    assert "never reached really_inner: the code made no such call of its own" in done.stdout


# The debugger


def debugged(agents: Agents, task: str, to: str, typed: str) -> tuple[int, str]:
    """In a process of its own: click keeps debuggers away from its terminal."""
    words = ("replay", task, "--app", agents.name, "--to", to, "--pdb")
    done = subprocess.run(
        [*COMMAND, *words],
        input=typed,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_the_debugger_opens_in_the_code_of_the_task(agents):
    code, out = debugged(agents, "trip-42", "2", "p room\nq\n")
    assert code == 0
    assert f"{agents.name}.py(24)trip()\n" in out
    assert f"-> booked = {agents.name}_book(room)\n" in out
    assert "(Pdb) 'Oslo attic'\n" in out
    assert "the same as far as step 2," in out
    assert not Path("effects").exists()


def test_it_goes_on_from_there_line_by_line_or_to_the_end(agents):
    code, out = debugged(agents, "trip-42", "2", "n\np booked\nc\n")
    assert code == 0
    assert "-> return booked\n" in out
    assert "(Pdb) 'booked Oslo attic'\n" in out
    assert "trip-42  the same: completed, as recorded\n" in out
    code, out = debugged(agents, "trip-42", "1", "n\nq\n")
    assert (code, "left in the debugger" in out) == (0, True)


@pytest.mark.parametrize(
    ("task", "to", "shown"),
    [
        ("tour", "1", "-> first = await"),  # awaited in the task
        ("tour", "3", "-> return [first, *await asyncio.gather("),  # in an asyncio task of its own
        ("all", "1.2", "-> return list(each("),  # in a thread
    ],
)
def test_in_async_tasks_and_branches_it_is_the_code_that_waits(agents, task, to, shown):
    code, out = debugged(agents, task, to, "q\n")
    assert code == 0
    assert shown in out


# Many


def test_a_cohort_lists_what_changed_and_whose_code_is_gone(agents):
    code, out, _ = agents("replay", "--all")
    assert (code, out) == (0, "3 tasks: all do the same\n")
    agents.change("city.upper()", "city.lower()")  # inside a step: that is not run
    assert agents("replay", "--all").code == 0
    agents.change("return [first,", "return [first.lower(),")
    from holdfast.core.spec import registry

    registry._found.pop(("task", f"{agents.name}_all"))
    code, out, _ = agents("replay", "--all", "--since", "7d")
    assert code == 7
    assert f"all  {agents.name}_all  its code is missing\n" in out
    assert f"tour  {agents.name}_tour  diverges at its end\n" in out
    assert '  the code      returns ["oslo","ROME","LIMA"]\n' in out
    assert out.endswith("3 tasks: 1 the same, 1 changed, 1 without code\n")
    code, out, _ = agents("replay", "--all", "--type", f"{agents.name}_trip", "--json")
    found = json.loads(out)
    assert (code, found["same"]) == (0, True)
    assert [task["task"] for task in found["tasks"]] == ["trip-42"]


def test_a_damaged_log_does_not_hide_the_others(agents):
    log = Path("workspace/tasks/tour/events.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"type":"task_created"', b'"type":"task_createt"'))
    code, out, err = agents("replay", "--all")
    assert code == 4
    assert "2 tasks: all do the same\n" in out
    assert "tasks/tour: event 1 is damaged" in err


def test_damage_further_on_and_in_the_past_of_a_fork_is_told_too(agents):
    with Holdfast("workspace") as hf:
        hf.fork("trip-42", at=2, effects="stub", new_id="fork")
    log = Path("workspace/tasks/trip-42/events.jsonl")
    lines = log.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"Oslo", b"Lima")
    when = log.stat()
    log.write_bytes(b"\n".join(lines))
    os.utime(log, ns=(when.st_atime_ns, when.st_mtime_ns))  # as a disk does that forgets
    code, _, err = agents("replay", "fork")
    assert code == 4
    assert "tasks/trip-42: event 3 is damaged" in err
    code, out, err = agents("replay", "--all")
    assert code == 4
    assert "3 tasks: all do the same\n" in out
    assert "warning: fork: tasks/trip-42: event 3 is damaged" in err
    assert "warning: trip-42: only what comes before the damage was replayed" in err


def test_the_tasks_of_shell_scripts_have_no_code_to_replay_or_to_check(agents):
    assert agents("once", "greet", "--task", "shell", "--", "true").code == 0
    assert agents("replay", "--all")[:2] == (0, "3 tasks: all do the same\n")
    assert agents("check").code == 0


# Tests


def test_a_run_becomes_a_test_that_passes_and_fails_when_the_code_is_changed(agents):
    code, out, _ = agents("testcase", "trip-42")
    assert (code, out) == (0, "wrote tests/test_trip_42.py and tests/trip_42.hfa\n")
    text = Path("tests/test_trip_42.py").read_text()
    assert f"import {agents.name}  # noqa: F401 (the code of the task)\n" in text
    assert '    assert replayed.result == "booked Oslo attic"\n' in text
    assert passes() == (True, "1 passed")
    assert not Path("effects").exists()
    agents.change("rooms[0]", "rooms[1]")
    passed, words = passes()
    assert not passed
    assert "diverges at step 2: the log holds" in words


def passes() -> tuple[bool, str]:
    """Whether the tests pass in a project that has nothing but them and the code."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null"]
    done = subprocess.run(
        [*command, "--rootdir", ".", "tests"], capture_output=True, text=True, check=False
    )
    shown = (
        done.stdout.splitlines()[-1].partition(" in ")[0] if not done.returncode else done.stdout
    )
    return done.returncode == 0, shown


def test_a_test_that_is_there_or_would_fail_is_not_written_unless_forced(agents):
    assert agents("testcase", "trip-42", "-o", "replays").code == 0
    before = Path("replays/test_trip_42.py").stat().st_mtime_ns
    code, _, err = agents("testcase", "trip-42", "-o", "replays")
    assert code == 2
    assert "are there already: say --force to replace" in err
    assert Path("replays/test_trip_42.py").stat().st_mtime_ns == before
    agents.change("rooms[0]", "rooms[1]")
    code, _, err = agents("testcase", "trip-42", "-o", "other")
    assert (code, "so the test would fail: diverges at step 2" in err) == (7, True)
    assert not Path("other").exists()
    assert agents("testcase", "trip-42", "-o", "other", "--force").code == 0


def test_recorded_runs_are_evaluated_with_the_code_of_today(agents):
    Path("checks.py").write_text(
        "def is_attic(run):\n    assert 'attic' in str(run.result), 'no attic'\n    return True\n"
    )
    assert agents("testcase", "trip-42").code == 0
    code, out, err = agents("evaluate", "tests/trip_42.hfa", "--check", "checks:is_attic")
    assert code == 0, err
    head, case, last = out.splitlines()
    assert head.split()[:3] == ["case", "outcome", "is_attic"]
    assert case.split()[:3] == ["trip-42", "completed", "yes"]
    assert last.startswith("1 of 1 passed")
    assert "book" not in Path("effects").read_text(), "no tool is called"
    agents.change("rooms[0]", "rooms[1]")
    code, out, err = agents("evaluate", "trip-42", "--check", "checks:is_attic", "--json")
    assert code == 1
    found = json.loads(out)
    assert (found["passed"], found["cases"][0]["scores"]) == (False, {"is_attic": False})
    assert "cellar" in found["cases"][0]["problem"]
    assert "trip-42: is_attic: no attic" in err


def test_an_evaluation_needs_code_and_checks_that_are_there(agents, cli):
    code, _, err = cli("evaluate", "trip-42")
    assert (code, "say where it is with --app" in err) == (2, True)
    code, _, err = agents("evaluate", "trip-42", "--check", "no_such_module:f")
    assert (code, "there is no module" in err) == (2, True)


def test_where_the_code_is_has_to_be_said(agents, cli):
    code, _, err = cli("testcase", "trip-42")
    assert (code, "say where it is with --app" in err) == (2, True)


def test_the_command_as_it_is_installed(agents):
    code, out, _ = run("replay", "trip-42", "--app", agents.name, cwd=Path.cwd())
    assert (code, out.splitlines()[0]) == (0, "trip-42  the same: completed, as recorded")


BROKEN = """
import contextlib
from holdfast import step, task

@step
def look(n: int) -> int:
    return n

@step
def jump(n: int) -> int:
    raise ValueError("too high")

@task
def climb(height: int) -> int:
    with contextlib.ExitStack() as stack:
        seen = stack.enter_context(contextlib.nullcontext(look(height)))
    return jump(seen)
"""


def test_the_debugger_opens_at_the_call_that_failed_and_stops_in_no_library(folder: Path):
    Path("climbing.py").write_text(BROKEN)
    run = [sys.executable, "-m", "holdfast.cli"]
    subprocess.run([*run, "run", "climbing:climb", "3", "--id", "up"], check=False)
    done = subprocess.run(
        [*run, "replay", "up", "--app", "climbing", "--pdb"],
        input="p height\ns\ns\ns\nq\n",
        capture_output=True,
        text=True,
        check=False,
    )
    stops = [line for line in done.stdout.splitlines() if line.startswith("> ")]
    assert stops, done
    assert all("climbing.py" in line for line in stops if not line.startswith("> <")), stops
    assert "jump(seen)" in done.stdout
    assert "(Pdb) 3" in done.stdout
