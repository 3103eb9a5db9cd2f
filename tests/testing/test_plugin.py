"""The pytest plugin: what a project gets in its tests by installing Holdfast."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_docs import blocks

AGENTS = """
import json
from pathlib import Path

from holdfast import IdempotencyKey, sleep, step, task, tool
from holdfast.testing.crash import boundary

@task
def patient() -> str:
    sleep(86_400)
    return "rested"

class Mailing:
    world = Path("world.txt")
    keyed = True

    def reset(self):
        self.world.unlink(missing_ok=True)

    def run(self, hf):
        return hf.run(mail_all, self.keyed, id="mail")

    def effects(self):
        return self.world.read_text().splitlines()

@tool
def mail(to: str, keyed: bool, *, key: IdempotencyKey = IdempotencyKey()) -> None:
    boundary("before an effect")
    known = Mailing.world.read_text() if Mailing.world.exists() else ""
    if not (keyed and to in known):
        Mailing.world.write_text(known + to + "\\n")
    boundary("after an effect")

@task
def mail_all(keyed: bool) -> int:
    for to in ("ada", "bob"):
        mail(to, keyed)
    return 2

def careless():
    made = Mailing()
    made.keyed = False
    return made
"""


class Project:
    """A project of a user, whose tests run in a process of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "agents.py").write_text(AGENTS)
        (folder / "pytest.ini").write_text("[pytest]\npythonpath = .\n")

    def test(self, text: str, *options: str) -> tuple[int, str]:
        (self.folder / "test_it.py").write_text(text)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:asyncio",
                *options,
            ],
            cwd=self.folder,
            env={k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_fixtures_are_there_without_any_setting_up(project: Project) -> None:
    code, said = project.test(
        """
import pytest, urllib.request
from agents import careless, patient
from datetime import timedelta
from holdfast import Holdfast

def test_time_is_skipped(hf, holdfast_clock):
    began = holdfast_clock.now
    assert hf.run(patient) == "rested"
    assert holdfast_clock.now - began == timedelta(days=1)

def test_each_has_a_store_of_its_own(hf, holdfast_url, tmp_path):
    assert not list(hf.tasks()) and holdfast_url == str(tmp_path / "workspace")

@pytest.mark.holdfast("memory://", "sqlite:///{tmp_path}/t.db", lease_s=7)
def test_on_stores(hf, request):
    assert type(hf.store).__name__ in ("MemoryStore", "SqliteStore")
    assert hf._holding.lease_s == 7

def test_a_model(holdfast_model):
    model = holdfast_model(["Hello!"])
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(model.url + "/nowhere")

def test_crashes(holdfast_crash):
    report = holdfast_crash("agents:Mailing", every=4)
    assert report and report.points < 10

def test_harm_is_seen(holdfast_crash):
    report = holdfast_crash(careless)
    assert not report
    assert "bob" in report.violations[-1].problem

def test_where_there_is_none(holdfast_crash):
    with pytest.raises(pytest.fail.Exception, match="can't find the scenario"):
        holdfast_crash("agents:missing")
""",
        "--strict-markers",
        "-W",
        "error",
    )
    assert code == 0, said
    assert "8 passed" in said


def test_the_page_about_tests_is_true(project: Project) -> None:
    page = Path(__file__).parents[2] / "docs/how-to/testing.md"
    code, said = project.test("\n".join(blocks(page, "python")), "-W", "error")
    assert code == 0, said
    assert "5 passed" in said


def test_a_test_finds_the_tasks_of_its_own_module_first(project: Project) -> None:
    """pytest loads all modules of tests at once, and two of them may use one name."""
    of_a_module = """
from holdfast import Holdfast, task

@task
def greets():
    "Greet.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def waves():
    ...     return greets()
    >>> with Holdfast('memory://') as hf:
    ...     _ = hf.run(waves, id='t')
    ...     hf.replay('t').same
    True
    "
    return __name__

def test_here(hf):
    @task
    def waves():
        return greets()

    assert hf.run(waves, id="t") == __name__
    assert hf.replay("t").same and not hf.replay("t").divergence
    hf.run(greets, id="g")
    assert hf.replay("g").same
""".replace('    "', '    """')
    (project.folder / "test_other.py").write_text(of_a_module)
    code, said = project.test(of_a_module, "--doctest-modules", "-W", "error")
    assert code == 0, said
    assert "4 passed" in said


def test_a_user_s_own_fixtures_win(project: Project) -> None:
    code, said = project.test(
        """
import pytest

@pytest.fixture
def hf():
    return "mine"

def test_mine(hf):
    assert hf == "mine"
"""
    )
    assert code == 0, said


def test_it_loads_nothing_that_import_holdfast_does_not(project: Project) -> None:
    """pytest loads it in every project: what a fixture needs is imported when a test asks."""
    code, said = project.test(
        """
import json, subprocess, sys

def test_nothing():
    ours = [name for name in sys.modules if name.partition(".")[0] == "holdfast"]
    code = "import holdfast, sys, json; print(json.dumps(list(sys.modules)))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert set(ours) - set(json.loads(plain)) == {"holdfast.testing", "holdfast.testing.plugin"}
"""
    )
    assert code == 0, said


def test_the_mark_is_explained(project: Project) -> None:
    _, said = project.test("", "--markers")
    assert "@pytest.mark.holdfast(*urls, **options)" in said


def test_what_one_test_defines_is_unknown_to_the_next(project: Project) -> None:
    code, said = project.test(
        """
import pytest
from holdfast import CodeMissing, task
from holdfast.core.spec import registry

@task
def kept() -> int:
    return 1

def test_a_task_of_its_own(hf):
    @task
    def trip() -> int:
        return 2
    hf.run(trip, id="t-1")
    assert hf.replay("t-1").same

def test_another_of_the_same_name(hf):
    @task
    def trip() -> int:
        return 3
    hf.run(trip, id="t-1")
    assert hf.replay("t-1").same and hf.run(kept) == 1

def test_none_is_left():
    with pytest.raises(CodeMissing):
        registry.task("trip")
    assert registry.task("kept").name == "kept"
"""
    )
    assert code == 0 and "3 passed" in said, said
