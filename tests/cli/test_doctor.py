"""`holdfast doctor`"""

import ctypes
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast import Holdfast, Keys, task
from holdfast.cli.folder import check_filesystem, filesystem_of
from holdfast.log import chain
from holdfast.log.log import open_log
from holdfast.stores.files.folder import safe_name
from tests.stores import sessions

from .conftest import COMMAND, environment

TASKS = Path("workspace/tasks")
LOG = TASKS / "trip-42/events.jsonl"


@pytest.fixture
def found(recorded, cli):
    """The exit code, and the findings as level and place."""

    def look(*args):
        ended = cli("doctor", "--json", *args)
        data = json.loads(ended.out)
        assert data["healthy"] is (ended.code == 0)
        for finding in data["findings"]:
            assert finding["what"] and finding["todo"]
        # Where the tests run may well be a filesystem in memory, which is warned of.
        kept = [f for f in data["findings"] if f["where"] != "workspace"]
        return ended.code, [(f["level"], f["where"]) for f in kept]

    return look


def test_a_sound_store_is_healthy(recorded, cli, found):
    assert found() == (0, [])
    code, out, err = cli("doctor")
    assert (code, err) == (0, "")
    assert "3 tasks, " in out
    assert "Python 3." in out and "msgspec " in out
    assert out.endswith("no damage found\n")


def test_sessions_and_memories_are_looked_at_too(recorded, found, cli):
    with Holdfast("workspace") as hf:
        sessions.talked(hf.store, "A session")
        sessions.memory(hf.store)
    assert found() == (0, [])  # so their blobs are known to be named
    assert "3 tasks, 1 session, 1 memory, " in cli("doctor").out
    log = Path("workspace/sessions") / safe_name("A session") / "events.jsonl"
    right = log.read_bytes()
    log.write_bytes(right.replace(b"turn 1", b"turn 9"))
    code, findings = found()
    assert code == 4 and ("damage", "sessions/A session") in findings
    log.write_bytes(b"{" + right)
    assert ("damage", f"sessions/{log.parent.name}") in found()[1]


@pytest.mark.parametrize("signed", [False, True])
def test_an_encrypted_store_shows_its_sessions_to_who_has_the_key(tmp_path, cli, signed):
    keys = {"key": Keys.new()} | ({"sign_key": Keys.new()} if signed else {})
    options = []
    for name, key in keys.items():
        (tmp_path / name).write_text(key + "\n")
        options += [f"--{name.replace('_', '-')}-file", str(tmp_path / name)]
    url = tmp_path / "closed"
    with Holdfast(url, **keys) as hf:
        sessions.talked(hf.store, "A session")
    ended = cli("doctor", "--json", "--url", str(url), *options)
    found = json.loads(ended.out)
    assert (ended.code, found["sessions"], found["blobs"]) == (0, 1, 3)
    assert [each for each in found["findings"] if each["where"] != str(url)] == []
    (log,) = url.glob("sessions/*/events.jsonl")
    right = log.read_bytes()
    log.write_bytes(right[:-40] + (b"y" if right[-40:-39] == b"x" else b"x") + right[-39:])
    ended = cli("doctor", "--json", "--url", str(url), *options)
    damaged = [each for each in json.loads(ended.out)["findings"] if each["level"] == "damage"]
    assert [each["where"] for each in damaged] == ["sessions/A session"]


def test_one_task(recorded, found, cli):
    LOG.write_bytes(LOG.read_bytes().replace(b"Oslo Lodge", b"Oslo Lofts"))
    assert found("both") == (0, [])
    assert found("trip-42") == (4, [("damage", "tasks/trip-42")])
    assert cli("doctor", "trip-24").code == 5
    assert cli("doctor", "--url", "elsewhere").code == 5
    assert not Path("elsewhere").exists()


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data.replace(b"Oslo Lodge", b"Oslo Lofts"),
        lambda data: data.replace(b'"seq":3', b'"seq":4'),
        lambda data: data[data.index(b"\n") + 1 :],
        lambda data: b"".join(sorted(data.splitlines(keepends=True))),
        lambda data: data.replace(b"\n", b"\n\n", 1),
        lambda data: data + b"not json\n",
        lambda data: data[:-1] + b"x",
    ],
)
def test_any_harm_to_a_log_is_damage_that_is_placed(recorded, cli, found, harm):
    LOG.write_bytes(harm(LOG.read_bytes()))
    code, findings = found()
    assert code == 4
    assert ("damage", "tasks/trip-42") in findings
    assert "damage found" in cli("doctor").out


def test_events_that_make_no_sense_together_are_damage(recorded, found):
    lines = LOG.read_bytes().splitlines()
    body = b'{"type":"completed","path":"99","result":1,"seq":%d}' % (len(lines) + 1)
    line, _ = chain.seal(chain.sum_of(lines[-1]), body)
    LOG.write_bytes(LOG.read_bytes() + line + b"\n")
    assert found() == (4, [("damage", "tasks/trip-42")])


def test_a_newer_format_is_no_damage(recorded, found):
    lines = LOG.read_bytes().splitlines()
    body = b'{"type":"from_the_future","seq":%d}' % (len(lines) + 1)
    line, _ = chain.seal(chain.sum_of(lines[-1]), body)
    LOG.write_bytes(LOG.read_bytes() + line + b"\n")
    assert found() == (0, [("warning", "tasks/trip-42")])


def test_a_renamed_folder_is_noticed(recorded, found):
    (TASKS / "both").rename(TASKS / "bath")
    assert found() == (4, [("damage", "tasks/bath")])


def test_a_log_that_does_not_tell_whose_it_is_is_noticed(recorded, found):
    odd = TASKS / "Odd_one~0123456789abcdef"
    odd.mkdir(mode=0o700)
    assert found() == (0, [("note", "tasks/Odd_one~0123456789abcdef")])
    shutil.copy(LOG, odd)
    assert found() == (4, [("damage", "tasks/Odd_one~0123456789abcdef")])


def test_what_a_crash_leaves_is_a_note(recorded, found):
    leftovers = {
        TASKS / "both/events.jsonl.torn-123-abcdef": b'{"seq',
        TASKS / "both/events.jsonl.0123456789ab": b"",
        TASKS / "both/lock.0123456789ab": b"",
        TASKS / "both/inbox/.0123456789ab": b"",
        Path("workspace/index.jsonl.0123456789ab"): b"",
    }
    for path, data in leftovers.items():
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o600)
    (TASKS / ".deleted-0123456789ab").mkdir(mode=0o700)
    code, findings = found()
    assert code == 0
    assert sorted(findings) == sorted(
        ("note", str(path.relative_to("workspace")))
        for path in [*leftovers, TASKS / ".deleted-0123456789ab"]
    )


def test_a_torn_tail_is_a_note(recorded, found, cli):
    LOG.write_bytes(LOG.read_bytes() + b'{"type":"comple')
    assert found() == (0, [("note", "tasks/trip-42/events.jsonl")])
    assert cli("show", "trip-42").code == 0


def test_zeros_at_the_end_are_a_warning(recorded, found):
    LOG.write_bytes(LOG.read_bytes() + b"\0" * 100_000)
    assert found() == (0, [("warning", "tasks/trip-42/events.jsonl")])
    LOG.write_bytes(b"\0" * 100_000)
    assert ("warning", "tasks/trip-42/events.jsonl") in found()[1]


def test_a_task_that_never_began_is_a_note(recorded, found):
    (TASKS / "empty").mkdir(mode=0o700)
    assert found() == (0, [("note", "tasks/empty")])
    with Holdfast("workspace") as hf:
        open_log(hf.store, "empty", "somebody", 30, hf._holding.clock).close()
    assert (TASKS / "empty/lock").exists()
    assert found() == (0, [("note", "tasks/empty")])


@pytest.mark.parametrize("task_id", ["plain", "Odd one"])
@pytest.mark.parametrize("harm", [Path.unlink, lambda log: log.write_bytes(b"")])
def test_a_lost_or_emptied_log_is_damage(recorded, found, cli, task_id, harm):
    @task
    def quick() -> int:
        return 1

    with Holdfast("workspace") as hf:
        hf.run(quick, id=task_id)
    place = TASKS / safe_name(task_id)
    harm(place / "events.jsonl")
    where = str(place.relative_to("workspace"))
    assert found() == (4, [("damage", where)])
    assert "about to start" not in cli("doctor").out
    assert ("damage", f"tasks/{task_id}") in found(task_id)[1]


def test_a_log_that_can_not_be_read_does_not_keep_the_rest_from_being_checked(recorded, found):
    both = TASKS / "both/events.jsonl"
    both.write_bytes(both.read_bytes().replace(b"Bergen", b"Berlin"))
    LOG.unlink()
    LOG.mkdir(mode=0o700)
    assert found() == (4, [("damage", "tasks/both"), ("damage", "tasks/trip-42")])


@pytest.mark.parametrize("closed", ["tasks/trip-42/events.jsonl", "tasks/trip-42"])
@pytest.mark.parametrize("other", ["mend-1", "Odd one"])
def test_neither_do_permissions(recorded, closed, other):
    @task
    def quick() -> int:
        return 1

    with Holdfast("workspace") as hf:
        hf.run(quick, id="Odd one")
    harmed = TASKS / safe_name(other) / "events.jsonl"
    harmed.write_bytes(harmed.read_bytes().replace(b"claimed", b"clammed"))
    (Path("workspace") / closed).chmod(0)
    for args in (["doctor", "--json"], ["doctor", "trip-42", "--json"]):
        done = subprocess.run(
            [*COMMAND, *args],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=_respect_permissions if os.geteuid() == 0 else None,
        )
        assert (done.returncode, done.stderr) == (4, "")
        data = json.loads(done.stdout)
        assert not data["healthy"]
        told = {f["where"]: f for f in data["findings"] if f["level"] == "damage"}
        assert "Permission denied" in told["tasks/trip-42"]["what"]
        assert "permissions" in told["tasks/trip-42"]["todo"]
        assert (f"tasks/{other}" in told) is (len(args) == 2)
    (Path("workspace") / closed).chmod(0o700)


def _respect_permissions() -> None:
    # The system lets root read everything. Without these two capabilities it does not.
    system = ctypes.CDLL(None)
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        system.prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def test_a_symlink_is_damage(recorded, found):
    shutil.move(LOG, "elsewhere.jsonl")
    LOG.symlink_to(Path("elsewhere.jsonl").absolute())
    code, findings = found()
    assert code == 4
    assert ("damage", "tasks/trip-42/events.jsonl") in findings


def test_what_others_can_read_is_a_warning(recorded, found, cli):
    LOG.chmod(0o644)
    assert found() == (0, [("warning", ".")])
    assert "chmod -R go= workspace" in cli("doctor").out
    assert found("trip-42") == (0, [("warning", "tasks/trip-42")])


def test_blobs_are_checked(folder, cli):
    @task
    def big(size: int) -> str:
        return "x" * size

    with Holdfast("workspace") as hf:
        hf.run(big, 100_000, id="big")
    assert cli("doctor").code == 0
    assert "1 blob " in cli("doctor").out
    [blob] = Path("workspace/blobs").glob("*/*")
    kept = blob.read_bytes()
    blob.write_bytes(kept[:-1] + b"y")
    assert cli("doctor").code == 4
    assert "do not fit its name" in cli("doctor").out
    blob.unlink()
    assert cli("doctor").code == 4
    assert "can't be read" in cli("doctor").out
    assert cli("show", "big").code == 4
    blob.write_bytes(kept)
    blob.chmod(0o600)
    assert cli("doctor").code == 0


def test_a_blob_that_no_log_names_is_a_note(recorded, found):
    with Holdfast("workspace") as hf:
        hf.store.put_blob(b"nobody's")
    assert found() == (0, [("note", "blobs")])


def test_gc_is_no_advice_while_a_log_is_damaged(recorded, cli):
    with Holdfast("workspace") as hf:
        hf.store.put_blob(b"nobody's")
    assert "`holdfast gc` removes them" in cli("doctor").out
    LOG.write_bytes(LOG.read_bytes().replace(b"Oslo Lodge", b"Oslo Lofts"))
    out = cli("doctor").out
    assert "until every log can be read" in out
    assert "holdfast gc" not in out


def test_a_log_can_not_make_it_read_other_files(recorded, cli):
    lines = LOG.read_bytes().splitlines()
    body = b'{"type":"task_completed","result":{"$blob":"../../../etc/passwd","size_bytes":1}'
    line, _ = chain.seal(chain.sum_of(lines[-1]), body + b',"seq":%d}' % (len(lines) + 1))
    LOG.write_bytes(LOG.read_bytes() + line + b"\n")
    code, out, _ = cli("doctor")
    assert code == 4
    assert "'../../../etc/passwd' names no blob" in out


def test_the_worst_comes_first(recorded, found):
    (TASKS / "empty").mkdir(mode=0o700)
    LOG.write_bytes(LOG.read_bytes().replace(b"Oslo Lodge", b"Oslo Lofts"))
    (TASKS / "both/lock").chmod(0o644)
    assert [level for level, _ in found()[1]] == ["damage", "warning", "note"]


def test_filesystems_that_are_not_fit_are_warned_of(tmp_path):
    assert [f.level for f in check_filesystem(tmp_path, "nfs4")] == ["warning"]
    assert [f.level for f in check_filesystem(tmp_path, "fuse.sshfs")] == ["warning"]
    assert [f.level for f in check_filesystem(tmp_path, "tmpfs")] == ["warning"]
    assert list(check_filesystem(tmp_path, "ext4")) == []


def test_the_filesystem_is_that_of_the_innermost_mount(tmp_path):
    if os.path.exists("/proc/mounts"):
        assert filesystem_of(Path("/proc/self")) == "proc"
        assert filesystem_of(tmp_path)


def test_a_store_that_is_no_folder_has_its_logs_checked(cli):
    assert cli("doctor", "--url", "memory://").code == 0
