"""One damaged log, or a line of the index that makes no sense, keeps nobody from the others."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast, Worker, step, task
from holdfast.log import chain
from holdfast.stores.files.beside import MessageHead, _file_name
from holdfast.stores.files.locks import LOCK

from .conftest import Ended, run

STORE = Path("workspace")
LOG = STORE / "tasks/trip-42/events.jsonl"
DEEP = b"[" * 2000 + b"]" * 2000
READING: tuple[tuple[str, ...], ...] = (
    ("ls", "--json"),
    ("ls", "--status", "completed", "--json"),
    ("show", "both"),
    ("show", "trip-42"),
    ("log", "both"),
    ("snapshot", "both"),
    ("audit", "both"),
    ("sql", "select id from tasks"),
    ("sql", "select id, input from tasks"),
    ("stats",),
    ("sessions",),
    ("answer",),
    ("doubt",),
    ("head",),
    ("gc", "--older-than", "1s", "--dry-run"),
    ("copy", "--to", "sqlite:///other.db", "--dry-run"),
    ("archive", "all.hfa"),
)
SENSELESS = {
    "too deep": b'{"type":"noted","text":"x","data":%b' % DEEP,
    "a type that is an object": b'{"type":{}',
    "a type that is too deep": b'{"type":%b' % DEEP,
    "no type": b'{"typ":"noted"',
    "no object": b'{"type":"noted","text":[]',
    "a reference to no blob": b'{"type":"completed","path":"1","result":{"$blob":7}',
    "a second beginning": b'{"type":"task_created","format":1,"id":"trip-42","task":"x"',
    "not UTF-8": b'{"type":"noted","text":"\xff"',
}


@task
def damaged_job(n: int) -> int:
    return damaged_step(n)


@step
def damaged_step(n: int) -> int:
    return n + 1


def add_line(log: Path, body: bytes) -> None:
    """A line with a right sum, behind the others."""
    lines = log.read_bytes().splitlines()
    body += b',"seq":%d,"at":"2026-01-01T00:00:00Z"}' % (len(lines) + 1)
    line, _ = chain.seal(chain.sum_of(lines[-1]), body)
    log.write_bytes(log.read_bytes() + line + b"\n")


def spoil(what: str) -> None:
    """Put something too deep into what is derived, or was left by somebody."""
    if what == "index":
        with (STORE / "index.jsonl").open("ab") as index:
            index.write(b'\n{"stream":"tasks/both","more":%b}\n' % DEEP)
    elif what == "lock":
        for lock in STORE.glob(f"*/*/{LOCK}"):
            lock.write_bytes(b'{"more":%b}' % DEEP)
    elif what == "inbox":
        box = STORE / "tasks/trip-42/inbox"
        box.mkdir()
        (box / "x").write_bytes(b'{"more":%b}\n{}' % DEEP)
        head = msgspec.json.encode(MessageHead("deep", 1, 1))
        message = b'{"type":"task_paused","more":%b}' % DEEP
        (box / _file_name("deep")).write_bytes(head + b"\n" + message)


def everything(cli: Callable[..., Ended]) -> dict[tuple[str, ...], Ended]:
    found: dict[tuple[str, ...], Ended] = {}
    for args in READING:
        Path("all.hfa").unlink(missing_ok=True)
        found[args] = cli(*args)
    return found


@pytest.mark.parametrize("what", ["index", "lock", "inbox"])
def test_derived_data_and_messages_that_are_too_deep_are_as_if_not_there(recorded, cli, what):
    before = {args: ended.code for args, ended in everything(cli).items()}
    spoil(what)
    after = everything(cli)
    assert {args: ended.code for args, ended in after.items()} == before
    listed = {each["id"] for each in json.loads(after[READING[0]].out)}
    assert listed == {"trip-42", "both", "mend-1"}
    assert cli("doctor").code == cli("verify").code == 0
    assert cli("pause", "trip-42").code == 0  # which takes hold of it, and looks for messages
    assert cli("ls", "--status", "paused", "--json").out.count('"trip-42"') == 1


@pytest.mark.parametrize("what", SENSELESS)
def test_a_line_that_makes_no_sense_is_named_and_hides_no_other_log(recorded, cli, what):
    add_line(LOG, SENSELESS[what])
    for args, ended in everything(cli).items():
        assert ended.code in (0, 4), (args, ended)
    if what != "a reference to no blob":  # of which nobody but its readers knows
        assert "trip-42" in cli("stats").err
    found = {each["id"] for each in json.loads(cli("ls", "--json").out)}
    assert found >= {"both", "mend-1"}
    assert "Oslo" in cli("sql", "select input from tasks where id = 'both'").out
    doctor = json.loads(cli("doctor", "--json").out)
    assert {each["where"] for each in doctor["findings"] if each["level"] == "damage"} == {
        "tasks/trip-42"
    }
    verified = json.loads(cli("verify", "--json").out)
    assert [each["task"] for each in verified["damage"]] == ["trip-42"]
    heads = {each["task"] for each in json.loads(cli("head").out)}
    assert heads >= {"both", "mend-1"}


@pytest.mark.parametrize("how", ["emptied", "removed"])
def test_a_task_whose_log_was_lost_is_not_as_if_it_never_was(recorded, cli, how):
    log = STORE / "tasks/both/events.jsonl"
    log.write_bytes(b"") if how == "emptied" else log.unlink()
    of_the_task = (
        "show",
        "why",
        "log",
        "context",
        "snapshot",
        "verify",
        "doctor",
        "pause",
        "resume",
    )
    for args in (*((name, "both") for name in of_the_task), ("head",), ("ls",), ("doctor",)):
        ended = cli(*args)
        assert (args, ended.code) == (args, 4)
        assert "both" in ended.out + ended.err, args


def test_in_processes_of_their_own_they_end_in_the_same_way(recorded):
    spoil("index")
    assert run("ls", cwd=recorded).code == run("show", "both", cwd=recorded).code == 0
    add_line(LOG, SENSELESS["too deep"])
    for args in (("show", "trip-42"), ("doctor",), ("verify",)):
        ended = run(*args, cwd=recorded)
        assert ended.code == 4
        assert "trip-42" in ended.out + ended.err


@pytest.mark.parametrize("what", ["too deep", "a type that is an object"])
def test_a_worker_passes_a_damaged_log_by_and_says_so_once(recorded, what):
    said: list[str] = []
    with Holdfast(STORE) as hf:
        hf.start(damaged_job, 1, id="damaged")
        hf.start(damaged_job, 2, id="good")
    add_line(STORE / "tasks/damaged/events.jsonl", SENSELESS[what])
    spoil("index")
    with Holdfast(STORE) as hf:
        worker = Worker(hf, say=said.append)
        worker.run_until_idle()
        worker._not_before.clear()  # half a minute later
        worker.run_until_idle()
        assert hf.task("good").result == 3
    about = [each for each in said if "damaged" in each and "good" not in each]
    assert len([each for each in about if "event 2" in each]) == 1, said


def test_an_archive_with_a_damaged_log_brings_back_the_others(recorded, cli):
    assert cli("archive", "all.hfa").code == 0
    add_line(LOG, SENSELESS["too deep"])
    with zipfile.ZipFile("all.hfa") as packed:
        entries = {name: packed.read(name) for name in packed.namelist()}
    manifest = json.loads(entries["manifest.json"])
    said = next(each for each in manifest["streams"] if each["stream"] == "tasks/trip-42")
    entries[said["entry"]] = data = LOG.read_bytes()
    said |= {"size_bytes": len(data), "sha256": sha256(data).hexdigest()}
    said["events"] += 1
    entries["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile("damaged.hfa", "w") as packed:
        for name, data in entries.items():
            packed.writestr(name, data)
    ended = cli("restore", "damaged.hfa", "--url", "back", "--json")
    assert ended.code == 4
    refused = json.loads(ended.out)["refused"]
    assert [each["id"] for each in refused] == ["trip-42"]
    assert {each["id"] for each in json.loads(cli("ls", "--json", "--url", "back").out)} == {
        "both",
        "mend-1",
    }


def test_settings_that_are_too_deep_are_told(recorded, cli):
    Path("pyproject.toml").write_bytes(b"a = " + DEEP)
    ended = cli("ls")
    assert ended.code == 2
    assert "pyproject.toml" in ended.err
