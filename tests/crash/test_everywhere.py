"""Killed with SIGKILL at every boundary, the agents end as if nothing had happened.

The first of them at every one each time; the others at some, and at all with `make thorough`. And
the harness that says so is run against a build without the intent write, where it must not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.testing.crash import Report
from tests.thorough import every

ROOT = Path(__file__).parents[2]


def kill_everywhere(scenario: str, *options: str) -> Report:
    return report_of("holdfast.testing.crash", scenario, *options)


def report_of(module: str, *arguments: str) -> Report:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Report)


def must_be_unharmed(report: Report, boundaries: int) -> None:
    assert report.violations == []
    assert report.points > 0
    assert sum(report.boundaries.values()) > boundaries
    # Branches interleave as they like, and their writes are sometimes made together.
    assert report.missed <= max(1, report.points // 5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("sync_scenario", ()),
        ("sync_scenario", ("--crashes", "3", *every(11))),
        ("async_scenario", every(13)),
        ("async_scenario", ("--crashes", "2", *every(17))),
        ("fleet_scenario", every(11)),
    ],
)
def test_same_result_and_every_effect_exactly_once(scenario, options):
    report = kill_everywhere(f"tests.crash.agents:{scenario}", *options)
    must_be_unharmed(report, 80)
    assert scenario != "sync_scenario" or report.missed == 0
    assert set(report.boundaries) == {
        "before a write",
        "after a write",
        "after a sync",
        "before an effect",
        "after an effect",
    }


def test_a_run_has_as_many_boundaries_however_long_it_takes():
    few = ("--every", "40")
    calm = kill_everywhere("tests.crash.agents:sync_scenario", *few)
    slow = kill_everywhere("tests.crash.agents:slow_scenario", *few)
    assert slow.boundaries == calm.boundaries
    assert calm.violations == slow.violations == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("sync_flow", every(19)),
        ("async_flow", every(23)),
        ("cancelled_flow", ("--crashes", "2", *every(11))),
    ],
)
def test_what_waits_branches_and_is_undone_survives_too(scenario, options):
    report = kill_everywhere(f"tests.crash.flow_agents:{scenario}", *options)
    must_be_unharmed(report, 80)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["sync_reads", "async_reads"])
def test_what_an_agent_sees_of_the_world_is_what_it_made_of_it(scenario):
    report = kill_everywhere(f"tests.crash.external_agents:{scenario}", *every(11))
    must_be_unharmed(report, 40)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scenario", ["sync_scenario", "letters_scenario"])
def test_the_harness_catches_a_build_without_the_intent_write(scenario):
    # The harm is done at two boundaries in a row, so one of them is hit.
    broken = ("--no-intent", "--fail-fast", "--every", "2")
    report = kill_everywhere(f"tests.crash.agents:{scenario}", *broken)
    assert report.violations
    assert {v.boundary for v in report.violations} <= {"after an effect", "before a write"}
    assert all("found" in v.problem or "in doubt" in v.problem for v in report.violations)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("rows_in_batches", every(11)),
        ("rows_async", every(13)),
        ("project_undone", every(13)),
        ("project_undone", ("--crashes", "2", *every(17))),
    ],
)
def test_files_hold_every_row_and_every_edit_once(scenario, options):
    report = kill_everywhere(f"tests.crash.workspace_agents:{scenario}", *options)
    must_be_unharmed(report, 80)
