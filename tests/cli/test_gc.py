"""`holdfast gc`"""

import json
import os
import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.cli.arguments import AgeParam, Size
from tests.stores import sessions


def listed(cli):
    return {task["id"] for task in json.loads(cli("ls", "--json").out)}


def test_a_dry_run_says_what_would_go_and_how_much_that_frees(recorded, cli):
    code, out, err = cli("gc", "--older-than", "0s", "--dry-run")
    assert (code, err) == (0, "")
    assert re.search(r"^both +branches +completed .* older than 0:00:00$", out, re.M)
    assert re.search(r"^would delete 2 tasks, 0 blobs .*, and free \d.*$", out, re.M)
    assert listed(cli) == {"both", "mend-1", "trip-42"}


def test_what_has_ended_goes_and_what_has_not_stays(recorded, cli):
    code, out, _ = cli("gc", "--older-than", "0s", "--status", "completed")
    assert code == 0
    assert re.search(r"^deleted 1 task, .*: .* freed, .* left$", out, re.M)
    assert listed(cli) == {"mend-1", "trip-42"}
    assert cli("gc", "--keep-last", "0").code == 0
    assert listed(cli) == {"trip-42"}


def test_nothing_said_no_task_goes_but_leftovers_do(recorded, cli):
    left = Path("workspace/tasks/both/lock.0123456789ab")
    left.write_bytes(b"x" * 1000)
    os.utime(left, (time.time() - 7200,) * 2)
    out = cli("gc").out
    assert out == (
        "deleted 0 tasks, 0 blobs that nobody names, 1 leftover: 1.0 kB freed, "
        + re.search(r"[\d.]+ kB left\n", out)[0]
    )
    assert listed(cli) == {"both", "mend-1", "trip-42"}


def test_what_goes_is_archived_and_comes_back(recorded, cli):
    found = json.loads(cli("gc", "--older-than", "0s", "--archive", "old.hfa", "--json").out)
    assert sorted(found["archive"]["ids"]) == ["both", "mend-1"]
    assert found["freed_bytes"] > 1000
    assert listed(cli) == {"trip-42"}
    assert cli("restore", "old.hfa", "both").code == 0
    assert listed(cli) == {"both", "trip-42"}


def test_a_policy_by_type_and_size(recorded, cli):
    assert cli("gc", "--max-size", "1GB").out.startswith("deleted 0 tasks")
    found = json.loads(cli("gc", "--max-size", "0", "--type", "mendable", "--json").out)
    assert [task["id"] for task in found["tasks"]] == ["mend-1"]


def test_a_damaged_log_is_told_of_and_the_exit_code_says_so(recorded, cli):
    Path("workspace/tasks/both/events.jsonl").write_bytes(b"")
    code, _, err = cli("gc", "--older-than", "0s")
    assert code == 4
    assert "tasks/both can't be read, so no blob was deleted" in err
    assert "trip-42" in listed_with_damage(cli)


def test_a_damaged_log_keeps_the_tasks_that_would_go_for_their_size(recorded, cli):
    log = Path("workspace/tasks/both/events.jsonl")
    log.write_bytes(log.read_bytes().replace(b'"seq":2', b'"seq":3', 1))
    code, out, err = cli("gc", "--max-size", "0")
    assert (code, out[:15]) == (4, "deleted 0 tasks")
    assert "tasks/both can't be read, so no blob was deleted, and no task because of" in err
    assert "mend-1" in listed_with_damage(cli)


def listed_with_damage(cli):
    return cli("ls").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--older-than", "soon"), "no length of time"),
        (("--older-than", "9" * 30 + "w"), "no length of time"),
        (("--max-size", "big"), "no size"),
        (("--keep-last", "-1"), "--keep-last"),
        (("--status", "paused"), "--status"),
        (("--archive", "nowhere/x.hfa", "--keep-last", "0"), "no folder nowhere"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_goes(recorded, cli, words, message):
    ended = cli("gc", *words)
    assert ended.code == 2
    assert message in ended.err
    assert listed(cli) == {"both", "mend-1", "trip-42"}


def test_times_and_sizes_as_people_write_them():
    spans = [
        AgeParam().convert(text, None, None).total_seconds() for text in ("90s", "1.5h", "2w", "3D")
    ]
    assert spans == [90, 5400, 1209600, 259200]
    sizes = [Size().convert(text, None, None) for text in ("0", "12b", "1kB", "1 KiB", "2g")]
    assert sizes == [0, 12, 1000, 1024, 2 * 10**9]


def test_idle_sessions_go_when_told_to(recorded, cli):
    with Holdfast("workspace") as hf:
        long_ago = sessions.ticking(datetime(2020, 1, 1, tzinfo=UTC))
        sessions.end(sessions.begun(hf.store, "s-9", clock=long_ago))
    assert " session" not in cli("gc").out
    out = cli("gc", "--sessions-after", "1h").out
    assert re.search(r"^s-9 +ada +ended ", out, re.M) and "deleted 0 tasks, 1 session, " in out
    assert not Path("workspace/sessions/s-9").exists()
