"""Each call of the disk does what it says, and follows no symlink."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from holdfast.stores.files import disk as disks
from holdfast.stores.files.disk import Disk

CREATE = os.O_RDWR | os.O_CREAT


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/inner").write_bytes(b"inner")
    (tmp_path / "file").write_bytes(b"0123456789")
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "file link").symlink_to("file")
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_folders_and_files_are_made_for_their_owner_alone(tmp_path, root):
    disk, before = Disk(), os.umask(0)
    try:
        for fd in (disk.make_folder("new", root), disk.open("made", root, CREATE)):
            os.close(fd)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o600
    (tmp_path / "file").chmod(0o644)
    os.close(disk.open("file", root, os.O_RDONLY))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    with disk.opened(disk.make_folder("folder", root)) as again:
        assert os.listdir(again) == ["inner"]
    with pytest.raises(OSError):
        os.fstat(again)


def test_no_symlink_is_followed(root):
    disk = Disk()
    for call in (
        lambda: disk.folder("link", root),
        lambda: disk.make_folder("link", root),
        lambda: disk.open("file link", root, os.O_RDONLY),
        lambda: disk.read_file(("link", "inner"), root),
        lambda: disk.read_file(("folder", "..", "file link"), root),
    ):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno in (errno.ELOOP, errno.ENOTDIR)
    assert disk.is_folder("folder", root) and not disk.is_folder("link", root)
    assert not disk.is_folder("file", root)


def test_what_is_there_and_what_is_not(tmp_path, root):
    disk = Disk()
    marks = (tmp_path / "file").stat()
    assert disk.is_there("file", root) and disk.is_there("folder/inner", root)
    assert not disk.is_there("gone", root) and not disk.is_there("folder/gone", root)
    assert disk.is_there("file/inside", root), "whoever goes that way is told"
    assert [disk.size_of(name, root) for name in ("file", "folder/inner", "gone")] == [10, 5, -1]
    assert disk.mark_of("file", root) == (10, marks.st_mtime_ns)
    assert disk.mark_of("gone", root) == (-1, 0)
    assert disk.size_and_time_of("file", root) == (10, marks.st_mtime)
    assert disk.size_and_time_of("gone", root) is None
    assert disk.size_and_time_of("folder", root) is None
    assert disk.inode_of("file", root) == (marks.st_dev, marks.st_ino)
    assert disk.inode_of("gone", root) is None and disk.status_of("gone", root) is None
    assert sorted(disk.names(root)) == ["file", "file link", "folder", "link"]
    assert disk.device(root) == marks.st_dev


def test_parts_of_files_are_read_whole_whatever_the_system_gives_at_once(
    tmp_path, root, monkeypatch
):
    disk, pread = Disk(), os.pread
    fd = disk.open("file", root, os.O_RDONLY)
    monkeypatch.setattr(disks.os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    assert disk.read_all(fd) == b"0123456789" and disk.read_all(fd, 4) == b"456789"
    assert disk.read_piece(fd, 2, 5) == b"23456" and disk.read_piece(fd, 7, 99) == b"789"
    assert disk.read_piece(fd, 10, 5) == b"" and disk.read_piece(fd, 0, 0) == b""
    assert disk.peek(fd, 5) == b"012" and disk.peek(fd, 2, 4) == b"45"
    assert disk.size(fd) == 10
    assert disk.read_file(("folder", "inner"), root) == b"inner"
    assert disk.read_file(("folder", "inner"), root, 2) == b"in"
    assert disk.read_file(("file",), root, 0) == b""
    disk.close(fd)


def test_all_is_written_whatever_the_system_takes_at_once(tmp_path, root):
    class Short(Disk):
        def write_some(self, fd: int, data: bytes) -> int:
            return super().write_some(fd, data[:3])

    disk = Short()
    fd = disk.open("new", root, CREATE)
    disk.write(fd, b"0123456789")
    disk.write(fd, b"")
    assert (tmp_path / "new").read_bytes() == b"0123456789"
    disk.overwrite(fd, b"ab", 4)
    disk.overwrite(fd, b"x")
    assert (tmp_path / "new").read_bytes() == b"x123ab6789"
    disk.truncate(fd, 4)
    assert (tmp_path / "new").read_bytes() == b"x123"
    disk.close(fd)


def test_names_are_given_moved_and_taken(tmp_path, root):
    disk = Disk()
    folder = disk.folder("folder", root)
    disk.rename("file", "renamed", root)
    disk.link("renamed", "second", root)
    with pytest.raises(FileExistsError):
        disk.link("renamed", "second", root)
    disk.move("second", root, "moved", folder)
    assert (tmp_path / "folder/moved").read_bytes() == b"0123456789"
    disk.unlink("renamed", root)
    assert not (tmp_path / "renamed").exists() and not (tmp_path / "second").exists()
    with pytest.raises(OSError, match="not empty"):
        disk.remove_folder("folder", root)
    (tmp_path / "folder/deep").mkdir()
    (tmp_path / "folder/deep/link").symlink_to(tmp_path)
    (tmp_path / "folder/deep/file").write_bytes(b"x")
    disk.remove_all("folder", root)
    assert sorted(os.listdir(tmp_path)) == ["file link", "link"], "no symlink was followed"
    disk.close(folder)
    with pytest.raises(FileNotFoundError):
        disk.remove_all("folder", root)


def test_a_folder_in_which_somebody_makes_one_more_file_is_removed_all_the_same(tmp_path, root):
    class Late(Disk):
        left = 2

        def remove_folder(self, name: str, parent: int) -> None:
            if self.left:
                self.left -= 1
                (tmp_path / name / "late").write_bytes(b"x")
            super().remove_folder(name, parent)

    late = Late()
    late.remove_all("folder", root)
    assert not (tmp_path / "folder").exists() and late.left == 0


class Outrun(Disk):
    """Lists a file that somebody removes before it could be."""

    def names(self, fd: int) -> Sequence[str]:
        return ["gone", *super().names(fd), "gone too"]


def test_a_folder_of_which_somebody_removes_a_file_meanwhile_is_removed_all_the_same(
    tmp_path, root
):
    (tmp_path / "box/inner").mkdir(parents=True)
    (tmp_path / "box/inner/one").write_bytes(b"1")
    Outrun().remove_all("box", root)
    assert not (tmp_path / "box").exists()


def test_locks_are_shared_or_not_and_free_once_they_are_freed(root):
    disk = Disk()
    one, two, three = (disk.open("file", root, os.O_RDWR) for _ in range(3))
    assert disk.try_lock(one) and not disk.try_lock(two) and not disk.try_lock(two, shared=True)
    disk.unlock(one)
    assert disk.try_lock(two, shared=True) and disk.try_lock(three, shared=True)
    assert not disk.try_lock(one)
    for fd in (two, three):
        disk.close(fd)
    disk.lock(one)
    again = disk.open("file", root, os.O_RDWR)
    assert not disk.try_lock(again)
    disk.close(one)
    assert disk.try_lock(again)
    disk.close(again)
    with pytest.raises(OSError):
        disk.try_lock(again)


def test_the_status_of_a_file_says_whether_it_has_a_name_and_may_be_written(tmp_path, root):
    disk = Disk()
    fd = disk.open("file", root, os.O_RDWR)
    found = os.fstat(fd)
    status = disk.status(fd)
    assert status == disk.status_of("file", root)
    assert (status.inode, status.size) == ((found.st_dev, found.st_ino), 10)
    assert status.has_name and status.may_be_written and status.written_ns == found.st_mtime_ns
    assert disk.has_name(fd) and disk.is_plain(fd) and not disk.is_plain(root)
    disk.forbid_writing(fd)
    assert not disk.status(fd).may_be_written
    os.utime(fd, (1, 1))
    assert disk.touched_at(fd) == 1
    disk.touch(fd)
    assert disk.touched_at(fd) > 1
    disk.unlink("file", root)
    assert not disk.has_name(fd) and not disk.status(fd).has_name
    disk.sync(fd)
    disk.sync_folder(root)
    disk.sync_all(root)
    disk.close(fd)
    for sync in (disk.sync, disk.sync_folder, disk.sync_all):
        with pytest.raises(OSError):
            sync(fd)
