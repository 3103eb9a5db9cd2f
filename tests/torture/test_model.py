"""The parts that the torture is made of, and that the file store leaves nothing out of them."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from random import Random

import pytest

from holdfast.log import chain
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.files import store as files
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from tests.torture.crashes import Medium, states
from tests.torture.full import Short
from tests.torture.hand import Hand
from tests.torture.promises import Promises, broken, sealed
from tests.torture.recording import (
    READS,
    Closed,
    Cut,
    Made,
    Recorder,
    Renamed,
    Synced,
    SyncedAll,
    Wrote,
)

# All I/O of the file store goes through one object

STORES = Path(files.__file__).parent

HARMLESS = {"getpid", "urandom", "uname", "kill", "fspath", "PathLike", "register_at_fork"}
HARMLESS |= {"major", "minor", "readlink"}  # of /proc
"""What these modules may take from `os`, beside constants: nothing of it touches the workspace."""

BY_PATH = {
    *("open", "write_text", "write_bytes", "read_text", "read_bytes", "mkdir", "rmdir"),
    *("touch", "rename", "unlink", "symlink_to", "hardlink_to", "chmod", "truncate"),
    *("iterdir", "glob", "rglob", "stat", "lstat", "write", "fsync"),
}


def modules_of_the_file_store() -> list[str]:
    # What crashed writers left is only ever removed, long after anybody could have opened it.
    return sorted({path.stem for path in STORES.glob("*.py")} - {"disk", "leftovers"})


def own_calls(source: str) -> list[str]:
    """What a module does to a disk without asking `Disk`."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                found += [a.name for a in names if a.name in ("shutil", "tempfile", "io", "fcntl")]
            case ast.Call(func=ast.Name(id="open"), args=[place, *_]):
                if "'/proc/" not in ast.unparse(place):
                    found.append(ast.unparse(node))
            case ast.Attribute(value=ast.Name(id="os"), attr=attr):
                if attr not in HARMLESS and not attr.isupper():
                    found.append(f"os.{attr}")
            case ast.Call(func=ast.Attribute(value=receiver, attr=attr)) if attr in BY_PATH:
                by = ast.unparse(receiver)
                if not by.endswith("disk") and by not in (
                    "inbox",
                    "self._index",
                    "msgspec.structs",
                ):
                    found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("name", modules_of_the_file_store())
def test_a_module_of_the_file_store_touches_the_disk_through_its_disk_alone(name):
    assert own_calls((STORES / f"{name}.py").read_text()) == []


def test_the_file_store_is_more_than_one_module():
    expected = {"store", "folder", "locks", "blobs", "beside", "catalog"}
    assert expected <= set(modules_of_the_file_store())


@pytest.mark.parametrize(
    "source",
    [
        "import shutil",
        "open('x', 'w')",
        "os.unlink('x')",
        "os.fsync(3)",
        "(root / 'x').write_bytes(b'')",
        "path.rename('y')",
    ],
)
def test_a_call_of_its_own_is_noticed(source):
    assert own_calls(source)


def test_everything_that_changes_a_disk_is_recorded():
    methods = {name for name, _ in inspect.getmembers(Disk, inspect.isfunction) if name[0] != "_"}
    recorded = set(vars(Recorder))
    assert methods <= recorded | READS, "a new method of Disk belongs into Recorder or into READS"
    assert not recorded & READS


def test_a_recording_replayed_to_its_end_is_what_the_disk_holds(tmp_path):
    disk = Recorder(tmp_path / "real")
    (tmp_path / "real").mkdir()
    store = FileStore(tmp_path / "real/w", disk=disk)
    hand = Hand(store, "hand", Random(5), disk.say, 0.0)
    for _ in range(60):
        hand.act(["tasks/a", "tasks/b"])
    store.close()
    medium = Medium()
    for operation in disk.operations:
        medium.do(operation)
    every = set(range(len(medium.named)))
    medium.state(every, {n: medium.contents(n)[-2] for n in medium.written}, set()).make(
        tmp_path / "model"
    )
    assert tree(tmp_path / "model") == tree(tmp_path / "real")


def tree(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
    }


# The model


def after(*operations) -> list[dict[str, bytes]]:
    """What may be in the outermost folder if the power fails after these operations."""
    medium = Medium()
    for operation in operations:
        medium.do(operation)
    found = states(medium, Random(1), 200)
    return [
        {name: state.data.get(node, b"") for name, node in state.names[0].items()}
        for state in found
    ]


MADE = Made(0, "log", 1, False)
WROTE = Wrote(1, 0, b"one\n")


def test_what_was_synced_is_there_whatever_happens():
    assert after(MADE, Synced(0), WROTE, Synced(1)) == [{"log": b"one\n"}] * 6


def test_a_name_lasts_only_when_its_folder_was_synced():
    found = after(MADE, WROTE, Synced(1))
    assert {} in found and {"log": b"one\n"} in found


def test_bytes_that_were_not_synced_are_there_in_part_or_as_zeros_or_not_at_all():
    found = {state["log"] for state in after(MADE, Synced(0), WROTE)}
    assert {b"", b"one\n", b"\0\0\0\0", b"on"} <= found


def test_a_rename_may_come_before_the_bytes_and_is_never_half_done():
    old = (MADE, WROTE, Synced(1), Made(0, "draft", 2, False), Synced(0))
    found = after(*old, Wrote(2, 0, b"new"), Renamed(0, "draft", "log"))
    assert {"log": b"one\n", "draft": b"new"} in found
    assert {"log": b""} in found and {"log": b"new"} in found
    assert all("log" in state for state in found)


def test_a_permission_that_was_taken_away_may_be_back():
    medium = Medium()
    for operation in (MADE, Synced(0), Closed(1), Synced(1)):
        medium.do(operation)
    assert {1 in state.closed for state in states(medium, Random(1), 20)} == {True, False}
    medium.do(SyncedAll())
    assert {1 in state.closed for state in states(medium, Random(1), 20)} == {True}


def test_after_a_sync_of_everything_all_of_it_is_there():
    assert after(MADE, WROTE, SyncedAll()) == [{"log": b"one\n"}] * 6


def test_a_cut_may_be_lost():
    found = {state["log"] for state in after(MADE, Synced(0), WROTE, Synced(1), Cut(1, 2))}
    assert {b"on", b"one\n"} <= found


def test_sectors_come_in_any_order():
    data = bytes([1]) * 512 + bytes([2]) * 512
    found = {state["log"] for state in after(MADE, Synced(0), Wrote(1, 0, data))}
    assert bytes(512) + bytes([2]) * 512 in found


# Short writes, and what is not mended


def test_writes_that_the_system_cuts_short_are_carried_on(tmp_path):
    promises = Promises()
    store = FileStore(tmp_path / "w", disk=Short(Random(3)))
    hand = Hand(store, "hand", Random(3), promises.hear, 0.0)
    for _ in range(150):
        hand.act(["tasks/a", "tasks/b"])
    assert promises.count > 50
    assert broken(store, promises) == []
    store.close()


@pytest.mark.xfail(
    reason="sectors of one append that reach the disk out of order leave a whole last line with a "
    "hole before it, which can't be told from damage yet: see docs/decisions/0027"
)
def test_a_hole_in_an_append_that_was_never_acknowledged_is_cut_off(tmp_path):
    store = FileStore(tmp_path / "w")
    lease = acquire_one(store, "tasks/a", "me", 60)
    first, total = sealed(chain.ROOT, "tasks/a", 1, "me", size=600)
    store.append(lease, 0, [first])
    sync_one(store, lease)
    store.close()
    log = tmp_path / "w/tasks/a/events.jsonl"
    data = log.read_bytes()
    second, _ = sealed(total, "tasks/a", 2, "me", size=2000)
    after = bytearray(data + second + b"\n")
    after[1024:1536] = bytes(512)
    log.write_bytes(after)
    store = FileStore(tmp_path / "w")
    assert list(store.read("tasks/a")) == [first]
    store.close()
