"""`holdfast copy`, `archive` and `restore`"""

import json
import re
from pathlib import Path

import pytest

from .conftest import begin, effects, on_terminal, run, until


def test_a_whole_store_is_copied_and_found_there(recorded, cli):
    code, out, err = cli("copy", "--from", "workspace", "--to", "sqlite:///all.db")
    assert (code, err) == (0, "")
    assert re.search(r"^both +completed +\d+ ", out, re.M)
    assert re.search(
        r"^copied 3 tasks \(\d+ events, .*\) from workspace to sqlite:///all\.db$", out, re.M
    )
    assert "1 unfinished task: to go on in sqlite:///all.db, and paused here" in out
    assert len(json.loads(cli("ls", "--url", "sqlite:///all.db", "--json").out)) == 3
    assert "paused" in cli("show", "trip-42").out
    again = cli("copy", "--to", "sqlite:///all.db").out
    assert "was there already" in again
    assert "was there, and has gone on" in again


def test_a_task_goes_on_where_it_was_moved_to(recorded, cli):
    moved = cli("copy", "trip-42", "--to", "sqlite:///all.db", "--move")
    assert (moved.code, moved.err) == (0, "")
    assert "moved 1 task " in moved.out
    assert cli("show", "trip-42").code == 5
    doubt = json.loads(cli("doubt", "--url", "sqlite:///all.db", "--json").out)
    path = doubt[0]["path"]
    options = ("--url", "sqlite:///all.db")
    assert cli("resolve", "trip-42", path, "--did-not-happen", *options).code == 0
    done = run("resume", "trip-42", "--app", "agents", *options, cwd=recorded)
    assert done.code in (0, 3), done.err
    again = cli("copy", "trip-42", "--to", "sqlite:///all.db", "--move")
    assert again.code == 5
    assert "is in sqlite:///all.db, and in workspace no more" in again.err


def test_a_dry_run_says_what_it_would_do_and_makes_nothing(recorded, cli):
    code, out, _ = cli("copy", "--to", "elsewhere", "--dry-run")
    assert code == 0
    assert "would copy 3 tasks" in out
    assert not Path("elsewhere").exists()


def test_json_is_all_there_is_on_standard_output(recorded, cli):
    found = json.loads(cli("copy", "both", "--to", "elsewhere", "--json").out)
    assert (found["source"], found["target"], found["moved"]) == ("workspace", "elsewhere", False)
    assert [(task["id"], task["how"], task["status"]) for task in found["tasks"]] == [
        ("both", "copied", "completed")
    ]
    assert found["refused"] == []


def test_filters_choose(recorded, cli):
    found = json.loads(cli("copy", "--status", "failed", "--to", "elsewhere", "--json").out)
    assert [task["id"] for task in found["tasks"]] == ["mend-1"]
    found = json.loads(cli("copy", "--label", "team=travel", "--to", "elsewhere", "--json").out)
    assert [task["id"] for task in found["tasks"]] == ["trip-42"]
    assert cli("copy", "both", "--status", "failed", "--to", "elsewhere").code == 2


def test_a_running_task_is_refused_with_its_own_exit_code(crew, cli, patience):
    assert run("start", "crew:chore", "tea", "--id", "c-1", cwd=crew).code == 0
    patience(begin("run", "crew:job", "j", "--id", "j-1", cwd=crew))
    until(lambda: "in_progress" in cli("ls").out)
    code, out, err = cli("copy", "--to", "elsewhere")
    assert code == 6
    assert "copied 1 task " in out
    assert re.search(r"^refused: task 'j-1' is being driven by .*: pause it", err)
    assert cli("copy", "j-1", "--to", "elsewhere").code == 6
    assert effects() == ["work j"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("nobody", "--to", "elsewhere"), 5, "no task 'nobody'"),
        (("--to", "workspace"), 2, "is where the tasks are"),
        (("--to", "ftp://x"), 2, "names no store"),
        ((), 2, "--to"),
        (("--from", "nowhere", "--to", "elsewhere"), 5, "no store at nowhere"),
    ],
)
def test_what_can_not_be_copied_is_said(recorded, cli, words, code, message):
    ended = cli("copy", *words)
    assert ended.code == code
    assert message in ended.err


def test_an_archive_is_written_and_restored(recorded, cli):
    code, out, err = cli("archive", "all.hfa")
    assert (code, err) == (0, "")
    assert re.match(r"archived 3 tasks, \d+ events \(.* in .*\) to all\.hfa\n", out)
    assert cli("archive", "all.hfa").code == 2
    planned = cli("restore", "all.hfa", "--url", "again", "--dry-run")
    assert (planned.code, Path("again").exists()) == (0, False)
    assert "would copy 3 tasks" in planned.out
    assert cli("restore", "all.hfa", "--url", "again").code == 0
    statuses = {t["id"]: t["status"] for t in json.loads(cli("ls", "--url", "again", "--json").out)}
    assert statuses == {"both": "completed", "mend-1": "failed", "trip-42": "paused"}
    assert cli("doctor", "--url", "again").code == 0
    chosen = json.loads(cli("archive", "one.hfa", "both", "--json").out)
    assert chosen["ids"] == ["both"]


def test_a_damaged_archive_is_refused_in_one_line(recorded, cli):
    cli("archive", "all.hfa")
    Path("cut.hfa").write_bytes(Path("all.hfa").read_bytes()[:-40])
    code, out, err = cli("restore", "cut.hfa", "--url", "again")
    assert (code, out) == (4, "")
    assert re.fullmatch(r"error: cut\.hfa: it is cut short, or no archive \(.*\)\n", err)


def test_a_terminal_shows_a_table(recorded):
    seen = on_terminal("copy", "--to", "elsewhere", cwd=recorded)
    assert "copied 3 tasks" in seen
    assert "Traceback" not in seen
