"""A process that forked while it held tasks: its child holds none of them, nor their files."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast import LeaseLost
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")

NAMES = ("a", "b", "c")


def in_a_child(act: Callable[[], Any]) -> Any:
    """What a function returns in a child of this process."""
    into, out = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(out, json.dumps(act()).encode())
        finally:
            os._exit(0)
    os.close(out)
    with os.fdopen(into, "rb") as told:
        data = told.read()
    os.waitpid(child, 0)
    return json.loads(data)


def open_files(root: Path) -> list[str]:
    """The files of a folder that this process has open."""
    files = [Path(link) for link in links()]
    ours = [file for file in files if file.is_relative_to(root) and file.is_file()]
    return sorted(str(file.relative_to(root)) for file in ours)


def test_a_child_has_none_of_the_files_of_its_parent_open(tmp_path):
    with closing(FileStore(tmp_path)) as store:
        leases = [acquire_one(store, f"tasks/{name}", "me", 60) for name in NAMES]
        for lease in leases:
            store.append(lease, 0, [b"one"])
            sync_one(store, lease)
        ours = open_files(tmp_path)
        assert [f"tasks/{name}/events.jsonl" for name in NAMES] == [x for x in ours if "tasks" in x]
        assert [
            name for name in in_a_child(lambda: open_files(tmp_path)) if "index" not in name
        ] == []
        assert open_files(tmp_path) == ours
        for lease in leases:
            store.append(lease, 1, [b"two"])
            sync_one(store, lease)


def test_a_child_holds_nothing_and_takes_nothing_from_its_parent(tmp_path):
    with closing(FileStore(tmp_path)) as store:
        lease = acquire_one(store, "tasks/a", "me", 60)
        store.append(lease, 0, [b"one"])
        sync_one(store, lease)

        def child() -> Any:
            told: list[Any] = []
            for act in (
                lambda: store.append(lease, 1, [b"stolen"]),
                lambda: sync_one(store, lease),
                lambda: store.renew(lease),
                lambda: acquire_one(store, "tasks/a", "child", 60),
            ):
                try:
                    act()
                    told.append("done")
                except Exception as error:
                    told.append(type(error).__name__)
            own = acquire_one(store, "tasks/child", "child", 60)
            store.append(own, 0, [b"of the child"])
            sync_one(store, own)
            holders = [store.holder("tasks/a"), store.holder("tasks/child")]
            return [told, *(each and each.name for each in holders)]

        assert in_a_child(child) == [["LeaseLost"] * 3 + ["TaskBusy"], "me", "child"]
        store.append(lease, 1, [b"two"])
        sync_one(store, lease)
        assert list(store.read("tasks/a")) == [b"one", b"two"]
        assert list(store.read("tasks/child")) == [b"of the child"]
        assert store.holder("tasks/child") is None, "the child is gone"
        with pytest.raises(LeaseLost):
            store.release([lease])
            store.append(lease, 2, [b"late"])


class Freeing(Disk):
    """Gives the number 0 to the first file that is opened by a name such as this."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.was_freed = False

    def open(self, name: str, *given: Any) -> int:
        if not self.was_freed and re.search(self._name, name):
            os.close(0)
            self.was_freed = True
        return super().open(name, *given)


@pytest.mark.parametrize("name", ["root", r"events\.jsonl$", r"-\d+-[0-9a-f]{12}$"])
def test_a_file_that_has_the_number_of_the_standard_input_is_one_like_any_other(tmp_path, name):
    def child() -> Any:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        disk = Freeing(name)
        if name == "root":
            os.close(0)
        store = FileStore(tmp_path, disk=disk)
        leases = [acquire_one(store, f"tasks/{each}", "me", 60) for each in NAMES]
        for lease in leases:
            store.append(lease, 0, [b"one"])
            sync_one(store, lease)
        at_zero = os.path.relpath(os.readlink("/proc/self/fd/0"), tmp_path)
        inherited = in_a_child(lambda: open_files(tmp_path))
        assert store._holder.mail() == []
        store.close()
        left = [link for link in links() if link.startswith(str(tmp_path))]
        return [at_zero, [each for each in inherited if "index" not in each], left]

    at_zero, inherited, left = in_a_child(child)
    assert (inherited, left) == ([], [])
    assert at_zero == "." if name == "root" else re.search(name, at_zero)


def links() -> list[str]:
    """What each file is that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one by which they were listed
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return found
