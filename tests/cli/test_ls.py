"""`holdfast ls`"""

import json
from pathlib import Path

import pytest

from .conftest import run


def ids(out: str) -> list[str]:
    return [line.split()[0] for line in out.splitlines()[1:]]


def test_tasks_are_listed_with_the_latest_first(recorded, cli):
    code, out, err = cli("ls")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == ["ID", "TYPE", "STATUS", "POSITION", "UPDATED", "USER"]
    assert ids(out) == ["both", "mend-1", "trip-42"]
    trip = next(line for line in out.splitlines() if line.startswith("trip-42"))
    for word in ("plan_trip", "awaiting_user", "step 5 of 7", "ada"):
        assert word in trip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--status", "failed"], ["mend-1"]),
        (["--status", "cancelled"], []),
        (["--type", "branches"], ["both"]),
        (["--user", "ada"], ["trip-42"]),
        (["--session", "s-1"], ["trip-42"]),
        (["--session", "s-2"], []),
        (["--label", "team=travel"], ["trip-42"]),
        (["--label", "team=travel", "--label", "more=x"], []),
        (["--user", "ada", "--status", "failed"], []),
        (["--limit", "2"], ["both", "mend-1"]),
    ],
)
def test_filters(recorded, cli, options, expected):
    code, out, _ = cli("ls", "--json", *options)
    assert code == 0
    assert [task["id"] for task in json.loads(out)] == expected


def test_json_is_one_array_and_nothing_else(recorded, cli):
    task = json.loads(cli("ls", "--json").out)[-1]
    assert task["position"]["step"] == 5
    assert task["position"]["of"] == 7
    assert task["position"]["committed"] == ["1", "2", "3"]
    assert task["labels"] == {"team": "travel"}
    assert {"created_at", "updated_at", "user", "session"} <= task.keys()


def test_what_the_limit_leaves_out_is_counted(recorded, cli):
    assert "… and 1 older task" in cli("ls", "--limit", "2").out


def test_an_empty_folder_has_no_tasks(folder, cli):
    Path("state").mkdir()
    assert cli("ls", "--url", "state") == (0, "no tasks in state\n", "")
    assert cli("ls", "--url", "state", "--json") == (0, "[]\n", "")


def test_no_match_is_said_and_is_no_error(recorded, cli):
    assert cli("ls", "--user", "nobody") == (0, "no tasks match\n", "")


def test_a_folder_that_does_not_exist_is_not_made(folder, cli):
    code, out, err = cli("ls")
    assert (code, out) == (5, "")
    assert err.startswith("error: there is no store at workspace")
    assert "--url" in err
    assert not Path("workspace").exists()


def test_a_file_is_no_store(folder, cli):
    code, _, err = cli("ls", "--url", "agents.py")
    assert code == 5
    assert "agents.py is not a folder" in err


def test_a_damaged_log_does_not_hide_the_others(recorded, cli):
    log = recorded / "workspace/tasks/mend-1/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"risky", b"frisk"))
    code, out, err = cli("ls", "--json")
    assert code == 4
    assert [task["id"] for task in json.loads(out)] == ["both", "trip-42"]
    assert err.startswith("warning: tasks/mend-1: event")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--status", "sleeping"], "'sleeping' is not one of"),
        (["--label", "team"], "'team' is not of the form name=value"),
        (["--label", "a=1", "--label", "a=2"], "'a' is given twice"),
        (["--limit", "0"], "--limit"),
        (["--limit", "many"], "--limit"),
        (["--colour"], "--colour"),
        (["extra"], "extra"),
    ],
)
def test_wrong_usage_is_one_paragraph_and_exit_code_2(recorded, cli, options, complaint):
    code, out, err = cli("ls", *options)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert complaint in err
    assert "holdfast ls --help" in err


def test_an_unknown_kind_of_store_is_refused(folder, cli):
    code, _, err = cli("ls", "--url", "ftp://somewhere")
    assert code == 2
    assert "names no store" in err


def test_reading_changes_nothing(recorded):
    def everything() -> dict[str, tuple[int, bytes]]:
        files = [path for path in Path("workspace").rglob("*") if path.is_file()]
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in files}

    before = everything()
    for command in ("ls", "show trip-42", "log trip-42", "doubt", "doctor"):
        run(*command.split(), cwd=recorded)
    assert everything() == before
