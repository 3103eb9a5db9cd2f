"""`holdfast verify`, `holdfast head` and `holdfast keys`, and the keys that every command takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast, Keys, step, task
from tests.stores import sessions

from .conftest import environment


@step
def kept_step(n: int) -> int:
    return n + 1


@task
def kept_agent() -> int:
    return kept_step(kept_step(1))


@pytest.fixture
def key(tmp_path, monkeypatch):
    """The file of a key, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name in ("KEY", "KEY_FILE", "SIGN_KEY", "SIGN_KEY_FILE", "URL", "APP"):
        monkeypatch.delenv(f"HOLDFAST_{name}", raising=False)
    file = tmp_path / "store.key"
    file.write_text(Keys.new() + "\n")
    return file


def make(**keys) -> None:
    with Holdfast("workspace", **keys) as hf:
        for n in range(3):
            hf.run(kept_agent, id=f"kept-{n}", user="ada")


def spoil(task_id: str, line: int) -> None:
    file = Path("workspace/tasks") / task_id / "events.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[line - 1] = lines[line - 1].replace(b'"seq":', b'"seq": ')
    file.write_bytes(b"".join(lines))


def test_what_is_sound_is_said_to_be_and_what_is_not_is_named(key, cli):
    make()
    assert cli("verify") == (0, "3 tasks, 15 events, 0 blobs checked: as it was written\n", "")
    spoil("kept-1", 3)
    done = cli("verify")
    assert done.code == 4
    assert "kept-1, event 3\n" in done.out and "damage found" in done.out
    assert cli("verify", "kept-0", "kept-2").code == 0
    done = cli("verify", "--json", "kept-1", "kept-2")
    assert done.code == 4
    found = json.loads(done.out)
    assert not found["sound"] and found["tasks"] == 2
    assert [(damage["task"], damage["seq"]) for damage in found["damage"]] == [("kept-1", 3)]


def test_sessions_and_memories_are_checked_too(key, cli):
    make()
    with Holdfast("workspace") as hf:
        sessions.talked(hf.store, "s-1")
        sessions.memory(hf.store)
    assert cli("verify").out == (
        "3 tasks, 1 session, 1 memory, 27 events, 4 blobs checked: as it was written\n"
    )
    Path("heads.json").write_text(cli("head").out)
    log = Path("workspace/sessions/s-1/events.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    assert cli("verify").code == cli("verify", "kept-0", "--against", "heads.json").code == 0
    done = cli("verify", "--against", "heads.json")
    assert done.code == 4 and "sessions/s-1, event 8\n  the log was cut" in done.out


def test_a_task_that_is_not_there_is_not_found(key, cli):
    make()
    for command in ("verify", "head"):
        done = cli(command, "kept-7")
        assert (done.code, done.out) == (5, "")
        assert "Did you mean kept-" in done.err


def test_a_head_shows_what_was_cut(key, cli):
    make()
    heads = cli("head")
    assert heads.code == 0
    assert [head["task"] for head in json.loads(heads.out)] == ["kept-0", "kept-1", "kept-2"]
    assert len(json.loads(cli("head", "kept-1").out)) == 1
    Path("heads.json").write_text(heads.out)
    assert cli("verify", "--against", "heads.json").code == 0
    log = Path("workspace/tasks/kept-1/events.jsonl")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:4]))
    assert cli("verify").code == 0
    done = cli("verify", "--against", "heads.json")
    assert done.code == 4
    assert "kept-1, event 5\n  the log was cut: it ends with event 4" in done.out


def test_what_is_no_list_of_heads_is_refused(key, cli):
    make()
    Path("heads.json").write_text('{"task": 1}')
    done = cli("verify", "--against", "heads.json")
    assert done.code == 2 and "is not what `holdfast head` prints" in done.err


def test_there_is_no_head_of_a_log_that_ends_in_garbage(key, cli):
    make()
    log = Path("workspace/tasks/kept-1/events.jsonl")
    log.write_bytes(log.read_bytes() + b"\xff garbage\n")
    done = cli("head")
    assert done.code == 4 and "no head to go by" in done.err
    assert [head["task"] for head in json.loads(done.out)] == ["kept-0", "kept-2"]
    assert cli("head", "kept-2").code == 0
    named = cli("head", "kept-1", "kept-2")
    assert (named.code, named.out) == (4, "") and "no head to go by" in named.err


@pytest.mark.parametrize("way", ["option", "before", "file", "variable", "project"])
def test_every_way_to_give_a_key(key, cli, monkeypatch, way):
    make(key=key)
    assert cli("ls").code == 2
    before, after = [], []
    if way == "option":
        after = ["--key-file", str(key)]
    elif way == "before":
        before = ["--key-file", str(key)]
    elif way == "file":
        monkeypatch.setenv("HOLDFAST_KEY_FILE", str(key))
    elif way == "variable":
        monkeypatch.setenv("HOLDFAST_KEY", key.read_text())
    else:
        Path("pyproject.toml").write_text('[tool.holdfast]\nkey_file = "store.key"\n')
    for command in (["ls", "--user", "ada"], ["show", "kept-1"], ["log", "kept-1"], ["verify"]):
        done = cli(*before, *command, *after)
        assert (done.code, done.err) == (0, "")
        assert "kept" in done.out or "3 tasks" in done.out
    assert cli(*before, "doctor", *after).code == 0


def test_a_signed_store_is_verified_with_its_key(key, cli):
    make(sign_key=key)
    assert cli("verify").code == 0
    assert cli("verify", "--sign-key-file", str(key)).code == 0
    Path("other.key").write_text(Keys.new())
    done = cli("verify", "--sign-key-file", "other.key")
    assert done.code == 4 and "signed with another key" in done.out


def test_a_key_that_is_none_is_refused_and_not_shown(key, cli):
    Path("bad.key").write_text("correct horse battery staple")
    make()
    done = cli("ls", "--key-file", "bad.key")
    assert done.code == 2 and "horse" not in done.err
    assert cli("ls", "--key-file", "nowhere.key").code == 2
    done = cli("ls", "--key-file", str(key))
    assert done.code == 2 and "begun without a key" in done.err


def test_a_new_key_is_written_for_its_owner_alone(key):
    with open("new.key", "w") as out:
        command = [sys.executable, "-m", "holdfast.cli", "keys", "new"]
        env = environment(PYTHONPATH=":".join(sys.path))
        subprocess.run(command, stdout=out, env=env, check=True, timeout=60)
    assert Path("new.key").stat().st_mode & 0o777 == 0o600
    assert len(Keys.from_file("new.key").ids) == 1


def test_a_rotated_store_opens_with_the_new_key_alone(key, cli):
    make(key=key)
    new = Path("new.key")
    new.write_text(cli("keys", "new").out)
    done = cli("keys", "rotate", "--key-file", str(key), "--to", "new.key")
    assert done == (0, f"workspace has now the key {Keys.from_file(new).ids[0]}\n", "")
    assert "had already" in cli("keys", "rotate", "--key-file", "new.key").out
    done = cli("keys", "rotate", "--key-file", "new.key", "--json")
    assert json.loads(done.out) == {"key": Keys.from_file(new).ids[0], "changed": False}
    assert cli("verify", "--key-file", "new.key").code == 0
    done = cli("verify", "--key-file", str(key))
    assert done.code == 2 and "is encrypted with the key" in done.err
    assert cli("keys", "rotate").code == 2
