"""What the commands that only read tell of forks, and of tasks that were rewound."""

from __future__ import annotations

import json
import shutil

import pytest

from holdfast import Holdfast
from tests.stores import forks


@pytest.fixture
def family(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Holdfast("workspace") as hf:
        forks.family(hf)
        hf.fork(
            "first", at=3, effects="reuse", new_id="again", by="ada", because="it was late",
            results={"1": "seen nothing"},
        )  # fmt: skip
        hf.resume("again")
        hf.rewind("fork", to=4, by="bob", because="too soon")
    return tmp_path


def test_show_tells_whose_past_a_fork_shares_and_which_forks_there_are(family, cli):
    shown = cli("show", "again").out
    assert "fork of        first, before step 3 (event 8), effects=reuse, by ada" in shown
    assert "because it was late" in shown
    assert "forks          again, fork\n" in cli("show", "first").out
    data = json.loads(cli("show", "fork", "--json").out)
    assert (data["fork"]["of"], data["fork"]["seq"]) == ("first", 8)
    assert data["forks"] == ["fork-of-fork"]


def test_show_tells_which_calls_were_not_made(family, cli):
    shown = cli("show", "again").out
    assert "completed (result edited by ada)" in shown
    assert "completed (not called: reused of first 4)" in shown
    calls = {call["path"]: call for call in json.loads(cli("show", "again", "--json").out)["calls"]}
    assert (calls["4"]["adopted"], calls["4"]["adopted_of"]) == ("reused", ["first", "4"])
    assert calls["3"]["adopted"] == ""


def test_show_tells_to_where_a_task_was_put_back(family, cli):
    shown = cli("show", "fork").out
    assert "rewound        to before step 4 (event 12), effects=reuse, by bob, because" in shown
    data = json.loads(cli("show", "fork", "--json").out)
    assert (data["rewinds"], data["rewound_to"]) == (1, 12)
    assert "rewound  " not in cli("show", "first").out
    assert json.loads(cli("show", "first", "--json").out)["rewound_to"] is None


def test_the_log_of_a_fork_says_where_the_shared_past_ends(family, cli):
    lines = cli("log", "fork-of-fork").out.splitlines()
    marks = [number for number, line in enumerate(lines) if line.startswith("--- up to here")]
    assert [lines[number] for number in marks] == [
        f"--- up to here it shares the log of task {id} ---" for id in ("first", "fork")
    ]
    assert "fork of fork, after step 4, effects live" in lines[marks[1] + 1]
    numbers = [int(line.split()[0]) for line in lines if not line.startswith("---")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert cli("log", "fork-of-fork", "--after", "14").out.splitlines() == lines[marks[1] :]
    own = cli("log", "fork-of-fork", "--after", "15").out
    assert "---" not in own


def test_the_events_of_history_can_be_asked_for(family, cli):
    (line,) = cli("log", "fork", "--type", "rewound").out.splitlines()
    assert "to before step 4 (event 12), by bob, because too soon" in line
    assert len(cli("log", "again", "--type", "adopted").out.splitlines()) == 2


def test_as_json_the_log_of_a_fork_is_the_lines_of_both_logs(family, cli):
    lines = cli("log", "fork", "--json").out.splitlines()
    with Holdfast("workspace") as hf:
        at = hf.task("fork").state.fork.seq
        shared = [line.decode() for line in hf.store.read("tasks/first")][:at]
        assert 1 < at < len(list(hf.store.read("tasks/first")))
        own = [line.decode() for line in hf.store.read("tasks/fork")]
    assert lines == [*shared, *own]


def test_ls_tells_the_origin(family, cli):
    listed = {task["id"]: task["origin"] for task in json.loads(cli("ls", "--json").out)}
    assert listed == {"first": "", "fork": "first", "again": "first", "fork-of-fork": "fork"}
    assert "branching_trip, a fork of first" in cli("ls").out
    assert [t["id"] for t in json.loads(cli("ls", "--origin", "fork", "--json").out)] == [
        "fork-of-fork"
    ]


def test_doctor_counts_a_shared_past_once_and_finds_nothing(family, cli):
    found = json.loads(cli("doctor", "--json").out)
    with Holdfast("workspace") as hf:
        lines = sum(len(list(hf.store.read(stream))) for stream in forks.all_of(hf))
    assert found["healthy"] and found["events"] == lines
    assert json.loads(cli("verify", "--json").out)["events"] == lines


def test_doctor_and_verify_name_an_original_that_is_missing(family, cli):
    shutil.rmtree("workspace/tasks/first")
    code, out, _ = cli("doctor", "--json")
    found = {each["where"]: each["what"] for each in json.loads(out)["findings"]}
    assert code == 4
    for fork in ("fork", "again", "fork-of-fork"):
        assert "shares its past with tasks/first" in found[f"tasks/{fork}"]
    code, out, _ = cli("verify")
    assert code == 4 and "tasks/first" in out and "is missing" in out
    code, _, err = cli("show", "fork")
    assert code == 4 and "tasks/first" in err and "is missing" in err
    assert cli("ls").code == 4


def test_a_fork_that_was_copied_by_the_command_is_whole(family, cli):
    assert cli("copy", "fork-of-fork", "--to", "sqlite:///other.db").code == 0
    assert "fork of        fork" in cli("show", "fork-of-fork", "--url", "sqlite:///other.db").out
    assert cli("verify", "--url", "sqlite:///other.db").code == 0
