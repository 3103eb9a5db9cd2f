"""`holdfast log`"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.core.events import FORMAT, NEWEST_FORMAT, Claimed, Completed, TaskCreated, dump_event
from holdfast.errors import LogDamaged, NewerFormat, TaskNotFound
from holdfast.log import chain
from holdfast.log.reading import Tail
from holdfast.stores.files.store import FileStore

from .conftest import begin, environment, line_of, on_terminal, run

LOG = Path("workspace/tasks/trip-42/events.jsonl")


def test_every_event_is_one_readable_line(recorded, cli):
    code, out, err = cli("log", "trip-42")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == len(LOG.read_bytes().splitlines())
    assert [line.split()[0] for line in lines] == [str(n + 1) for n in range(len(lines))]
    for words in (
        'task_created plan_trip {"city":"Oslo"}',
        "planned 7 items: search, read_page",
        'started 1 search {"city":"Oslo"}',
        "attempt_failed 1 search attempt 1, again at 20",
        "started 1 search attempt 3",
        'ms → [{"name":"Oslo Inn"',
        'decided room?1 room {"name":"Oslo Inn","price":70}, because the cheapest',
        'started 3.1 pay {"amount":70} key trip-42:3.1:pay:',
        "failed 4 visit_museum",
        'noted booked a room ["Oslo Inn"]',
        "doubted 5 send_letter the process died",
    ):
        assert any(words in " ".join(line.split()) for line in lines), words


def test_json_gives_the_very_lines_of_the_log(recorded, cli):
    assert cli("log", "trip-42", "--json") == (0, LOG.read_text(), "")


def test_after_and_type_choose(recorded, cli):
    every = [json.loads(line) for line in LOG.read_text().splitlines()]
    out = cli("log", "trip-42", "--json", "--after", "20").out
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [e["seq"] for e in every[20:]]
    options = ("--type", "noted", "--type", "doubted", "--after", "1")
    found = [
        json.loads(line)["type"]
        for line in cli("log", "trip-42", "--json", *options).out.splitlines()
    ]
    assert found == ["noted", "noted", "doubted"]
    assert cli("log", "trip-42", "--after", "9999") == (0, "", "")


def test_on_a_terminal_no_line_is_wider_than_it(recorded):
    for columns in (60, 140):
        seen = on_terminal("log", "trip-42", cwd=recorded, columns=columns, TERM="dumb")
        assert len(seen.splitlines()) == len(LOG.read_bytes().splitlines())
        assert max(len(line) for line in seen.splitlines()) <= columns


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["trip-24"], 5),
        (["trip-42", "--type", "nonsense"], 2),
        (["trip-42", "--after", "-1"], 2),
        (["trip-42", "--url", "elsewhere"], 5),
        ([], 2),
    ],
)
def test_wrong_input(recorded, cli, args, code):
    ended = cli("log", *args)
    assert ended.code == code
    assert ended.out == ""
    assert ended.err.startswith("error: ")
    assert not Path("elsewhere").exists()


def test_what_is_before_the_damage_is_printed(recorded, cli):
    lines = LOG.read_bytes().split(b"\n")
    lines[9] = lines[9].replace(b"cheapest", b"dearest_")
    LOG.write_bytes(b"\n".join(lines))
    code, out, err = cli("log", "trip-42")
    assert code == 4
    assert len(out.splitlines()) == 9
    assert err.startswith("error: tasks/trip-42: event 10 is damaged")


def test_follow_ends_when_the_task_has_ended(folder, patience):
    working = begin("run", "agents:waits", "flag", "--id", "w-1", cwd=folder)
    patience(working)
    following = begin("log", "-f", "--wait", "w-1", cwd=folder)
    patience(following)
    line_of(following, "about to wait")
    Path("flag").touch()
    line_of(following, "task_completed")
    assert following.wait(60) == 0
    assert working.wait(60) == 0


def test_follow_of_a_task_that_has_ended_does_not_wait(recorded):
    assert run("log", "--follow", "both", cwd=recorded).code == 0


def test_follow_goes_on_when_the_log_is_replaced_by_a_copy(folder, patience):
    working = begin("run", "agents:waits", "flag", "--id", "w-1", cwd=folder)
    patience(working)
    following = begin("log", "-f", "--wait", "--json", "w-1", cwd=folder)
    patience(following)
    line_of(following, "about to wait")
    working.kill()
    working.wait()
    log = Path("workspace/tasks/w-1/events.jsonl")
    shutil.copy(log, "copy")
    os.replace("copy", log)
    Path("flag").touch()
    assert run("resume", "w-1", "--app", "agents", cwd=folder).code == 0
    line_of(following, "task_completed")
    assert following.wait(60) == 0


def test_follow_waits_for_a_store_that_is_not_there_only_if_told_so(folder, patience):
    assert run("log", "-f", "w-1", cwd=folder).code == 5
    following = begin("log", "--wait", "w-1", cwd=folder)
    patience(following)
    with pytest.raises(subprocess.TimeoutExpired):
        following.wait(1)
    assert not Path("workspace").exists()
    run("run", "agents:greet", "Ada", "--id", "w-1", cwd=folder)
    assert following.wait(60) == 0


def test_follow_can_be_interrupted(recorded, patience):
    following = begin("log", "-f", "trip-42", cwd=recorded)
    patience(following)
    line_of(following, "doubted")
    following.send_signal(signal.SIGINT)
    assert following.wait(60) == 130
    assert following.stderr is not None
    assert "Traceback" not in following.stderr.read()


def test_a_closed_pipe_is_no_traceback(folder):
    run("run", "agents:counts", "1500", "--id", "many", cwd=folder)
    for options in ([], ["--json"]):
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli", "log", "many", *options],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as printing:
            assert printing.stdout is not None and printing.stderr is not None
            assert b"task_created" in printing.stdout.readline()
            printing.stdout.close()
            assert (printing.wait(60), printing.stderr.read()) == (141, b"")


# Reading on from where one left off


def seal(*bodies: bytes) -> bytes:
    total, lines = chain.ROOT, []
    for body in bodies:
        line, total = chain.seal(total, body)
        lines.append(line + b"\n")
    return b"".join(lines)


def created(format: int = FORMAT) -> bytes:
    from msgspec import Raw

    return dump_event(
        TaskCreated(seq=1, format=format, id="t", task="f", args=Raw(b"{}"), args_hash="")
    )


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "tasks" / "t" / "events.jsonl"
    path.parent.mkdir(parents=True)
    return path


def tail_of(log: Path) -> Tail:
    return Tail(FileStore(log.parents[2]), "t")


def test_only_new_lines_are_read(log):
    claimed = dump_event(Claimed(seq=2, format=FORMAT, epoch=1, owner="me"))
    log.write_bytes(seal(created()))
    tail = tail_of(log)
    assert [event.seq for _, event in tail.read()] == [1]
    assert list(tail.read()) == []
    log.write_bytes(seal(created(), claimed))
    assert [event.seq for _, event in tail.read()] == [2]


def test_a_deleted_log_is_noticed(log):
    log.write_bytes(seal(created()))
    tail = tail_of(log)
    list(tail.read())
    log.unlink()
    with pytest.raises(TaskNotFound, match="deleted"):
        list(tail.read())


def test_another_log_in_its_place_is_noticed(log):
    log.write_bytes(seal(created()))
    tail = tail_of(log)
    list(tail.read())
    log.write_bytes(seal(created().replace(b'"f"', b'"g"')))
    with pytest.raises(LogDamaged, match="another one than when it was read"):
        list(tail.read())


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (dump_event(Claimed(seq=3, format=FORMAT, epoch=1, owner="me")), LogDamaged),
        (dump_event(Claimed(seq=2, format=NEWEST_FORMAT + 1, epoch=1, owner="me")), NewerFormat),
        (b'{"seq":2,"type":"from_the_future"}', NewerFormat),
        (b'{"seq":2,"type":"failed","path":"9"}', LogDamaged),
    ],
)
def test_what_does_not_follow_is_named(log, second, error):
    log.write_bytes(seal(created(), second))
    tail = tail_of(log)
    with pytest.raises(error, match="event 2"):
        list(tail.read())
    assert tail.state.seq == 1


def test_a_line_with_a_wrong_sum_is_named(log):
    log.write_bytes(
        seal(created()) + b'{"seq":2,"type":"failed","path":"9","sum":"0123456789abcdef"}\n'
    )
    with pytest.raises(LogDamaged, match="event 2"):
        list(tail_of(log).read())


def test_results_of_calls_never_made_are_damage_everywhere(log, cli):
    from msgspec import Raw

    nonsense = dump_event(Completed(seq=2, path="7", result=Raw(b"1")))
    log.write_bytes(seal(created(), nonsense))
    url = str(log.parents[2])
    for command in (["ls"], ["show", "t"], ["log", "t"], ["doctor"]):
        ended = cli(*command, "--url", url)
        assert ended.code == 4, command
        assert "fault in Holdfast" not in ended.err
