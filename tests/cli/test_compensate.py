"""`holdfast compensate`, and what other commands say of what was undone"""

import json
import re
from pathlib import Path

import pytest

from .conftest import effects, run


@pytest.fixture
def failed(crew):
    """A task that failed after it had made two calls that can be undone."""
    Path("storm").touch()
    assert run("run", "crew:trip", "--id", "t-1", cwd=crew).code == 1
    return crew


def compensate(*options: str):
    return run("compensate", "t-1", "--app", "crew", *options, cwd=Path.cwd())


def test_what_a_failed_task_did_is_undone_the_last_first(failed):
    code, out, err = compensate()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["PATH", "TOOL", "UNDO", "WHY"]
    assert [line.split() for line in lines[1:3]] == [
        ["2", "reserve", "undone"],
        ["1", "reserve", "undone"],
    ]
    assert lines[3:] == ["2 calls undone"]
    assert effects()[2:] == ["release train", "release hotel"]


def test_what_was_undone_is_not_undone_again(failed):
    compensate()
    assert compensate().code == 0
    assert effects()[2:] == ["release train", "release hotel"]


def test_what_could_not_be_undone_is_told_with_why_and_tried_anew(failed, cli):
    Path("train.stuck").touch()
    code, out, err = compensate()
    assert (code, err) == (9, "")
    stuck = r"^2 +reserve +could not be undone +RuntimeError: train can't be released$"
    assert re.search(stuck, out, re.M)
    assert re.search(r"^1 +reserve +undone$", out, re.M)
    assert out.endswith("\n1 call could not be undone, 1 call undone\n")
    shown = cli("show", "t-1").out
    assert "Compensation  1 call could not be undone, 1 call undone\n" in shown
    assert re.search(stuck, shown, re.M)
    assert "  to undo what is left: holdfast compensate t-1 --app MODULE\n" in shown
    assert "holdfast retry" not in shown
    Path("train.stuck").unlink()
    assert compensate().code == 0
    assert effects()[2:] == ["release hotel", "release train"]
    assert "what is left" not in cli("show", "t-1").out


def test_json_tells_the_same(failed, cli):
    Path("hotel.stuck").touch()
    code, out, _ = compensate("--json")
    assert code == 9
    data = json.loads(out)
    assert (data["id"], data["status"]) == ("t-1", "failed")
    assert [(each["path"], each["status"]) for each in data["compensation"]] == [
        ("2", "undone"),
        ("1", "could not be undone"),
    ]
    assert json.loads(cli("show", "t-1", "--json").out)["compensation"] == data["compensation"]


def test_a_task_that_can_be_undone_says_so_when_it_has_failed(failed, cli):
    out = cli("show", "t-1").out
    assert "Compensation  2 calls left\n" in out
    assert "  to undo what is left: holdfast compensate t-1 --app MODULE\n" in out
    assert "to try it again: holdfast retry t-1" in out


def test_a_run_that_undid_what_it_did_says_so_and_offers_no_retry(crew):
    Path("storm").touch()
    Path("hotel.stuck").touch()
    code, out, err = run("run", "crew:careful_trip", "--id", "t-1", cwd=crew)
    assert (code, out) == (1, "")
    assert "there is a storm" in err
    assert "\n  of what it did: 1 call could not be undone\n" in err
    assert "\n  to undo the rest: holdfast compensate t-1 --app crew\n" in err
    assert "retry" not in err
    code, _, err = run("retry", "t-1", "--app", "crew", cwd=crew)
    assert code == 2
    assert "what it did was undone" in err


def test_a_task_without_anything_to_undo(crew):
    run("start", "crew:chore", "tea", "--id", "t-1", cwd=crew)
    run("cancel", "t-1", cwd=crew)
    assert compensate() == (0, "nothing to undo\n", "")


@pytest.mark.parametrize(
    ("function", "args", "status", "advice"),
    [
        ("chore", ["tea"], "completed", ""),
        ("asks", [], "awaiting_user", " (this does both: holdfast cancel t-1)"),
    ],
)
def test_only_what_ended_badly_is_undone(crew, function, args, status, advice):
    run("run", f"crew:{function}", *args, "--id", "t-1", cwd=crew)
    code, out, err = compensate()
    assert (code, out) == (2, "")
    assert err == (
        f"error: task 't-1' is {status}: only what failed or was cancelled is undone{advice}\n"
    )


def test_wrong_uses(failed):
    ended = run("compensate", "t-1", cwd=failed)
    assert ended.code == 7
    assert "--app" in ended.err
    assert run("compensate", "t-2", "--app", "crew", cwd=failed).code == 5
    assert run("compensate", cwd=failed).code == 2
    assert effects() == ["reserve hotel", "reserve train"]
