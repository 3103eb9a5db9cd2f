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
        (["--status", "failed", "--status", "awaiting_user"], ["mend-1", "trip-42"]),
        (["--parent", "trip-42"], []),
        (["--origin", "trip-42"], []),
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


def test_a_page_says_how_to_see_the_next_one(recorded, cli):
    first = cli("ls", "--limit", "2").out
    assert ids(first)[:2] == ["both", "mend-1"]
    more = first.splitlines()[-1]
    assert more.startswith("… there are older ones: the same with --cursor ")
    second = cli("ls", "--limit", "2", "--cursor", more.split()[-1]).out
    assert ids(second) == ["trip-42"]
    assert ids(cli("ls", "--limit", "1", "--all").out) == ["both", "mend-1", "trip-42"]


def test_with_json_each_task_has_the_cursor_of_what_comes_after_it(recorded, cli):
    tasks = json.loads(cli("ls", "--json").out)
    after = cli("ls", "--json", "--cursor", tasks[0]["cursor"])
    assert json.loads(after.out) == tasks[1:]
    assert json.loads(cli("ls", "--json", "--cursor", tasks[-1]["cursor"]).out) == []


def test_only_the_logs_of_a_page_are_read(recorded, cli, monkeypatch):
    import holdfast.cli.commands.overview as module

    read = []
    reading = module.read_task
    monkeypatch.setattr(module, "read_task", lambda *of: read.append(of[1]) or reading(*of))
    cli("ls", "--limit", "1")
    cli("ls", "--user", "ada")
    assert read == ["both", "trip-42"]


def test_a_span_of_time_is_given_by_age_or_by_date(recorded, cli):
    created = {task["id"]: task["created_at"] for task in json.loads(cli("ls", "--json").out)}

    def listed(*options):
        return [task["id"] for task in json.loads(cli("ls", "--json", *options).out)]

    assert listed("--since", "1h") == list(created)
    assert listed("--until", "1h") == listed("--since", "2999-01-01") == []
    assert listed("--since", created["mend-1"]) == ["both", "mend-1"]
    assert listed("--until", created["mend-1"]) == ["trip-42"]


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
        (["--limit", "1001"], "--limit"),
        (["--since", "soon"], "'soon' is no time: give how long ago (30m, 12h, 7d, 2w)"),
        (["--until", "99999999w"], "is no time"),
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


def test_a_cursor_that_was_not_given_out_is_refused(recorded, cli):
    code, out, err = cli("ls", "--cursor", "garbage")
    assert (code, out) == (2, "")
    assert err.startswith("error: cursor='garbage' is none that was given out")


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
