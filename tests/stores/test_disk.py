"""What the system refuses is told with its own number, also by calls that Python does not know."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

import pytest

from holdfast.stores.files.disk import Disk
from holdfast.workspace.replacement import exchange as exchange_in_workspace

Exchange = Callable[[str, str, int], object]
BOTH: dict[str, Exchange] = {"disk": Disk().exchange, "workspace": exchange_in_workspace}


@pytest.fixture(params=list(BOTH))
def exchange(request) -> Exchange:
    return BOTH[request.param]


@pytest.fixture
def folder(tmp_path) -> Iterator[int]:
    for name in ("one", "other"):
        (tmp_path / name).write_text(name)
    fd = os.open(tmp_path, os.O_RDONLY)
    # What an earlier call left there would be taken for the number of this one.
    with pytest.raises(FileNotFoundError):
        os.stat("nowhere", dir_fd=fd)
    yield fd
    os.close(fd)


def test_names_are_exchanged(tmp_path, folder, exchange):
    exchange("one", "other", folder)
    assert [(tmp_path / name).read_text() for name in ("one", "other")] == ["other", "one"]


@pytest.mark.parametrize(
    ("one", "other", "number"),
    [
        ("gone", "other", errno.ENOENT),
        ("one", "gone", errno.ENOENT),
        ("one", "one/inside", errno.ENOTDIR),
        ("one", "x" * 300, errno.ENAMETOOLONG),
    ],
)
def test_an_exchange_that_is_refused_says_why_and_changes_nothing(
    tmp_path, folder, exchange, one, other, number
):
    with pytest.raises(OSError) as refused:
        exchange(one, other, folder)
    assert refused.value.errno == number
    assert os.strerror(number) in str(refused.value)
    assert sorted(os.listdir(tmp_path)) == ["one", "other"]
    assert [(tmp_path / name).read_text() for name in ("one", "other")] == ["one", "other"]


def test_an_exchange_in_what_is_no_folder_says_so(tmp_path, folder, exchange):
    fd = os.open(tmp_path / "one", os.O_RDONLY)
    with pytest.raises(NotADirectoryError):
        exchange("one", "other", fd)
    os.close(fd)


def test_where_names_can_not_be_exchanged_the_disk_says_that_and_nothing_more(tmp_path, folder):
    """Of a folder and what is in it no system can exchange the names."""
    (tmp_path / "a/b").mkdir(parents=True)
    assert Disk().exchange("a", "a/b", folder) is False


def test_a_sync_that_fails_says_why():
    fd = os.open("/", os.O_RDONLY)
    os.close(fd)
    with pytest.raises(OSError) as refused:
        Disk().sync_all(fd)
    assert refused.value.errno == errno.EBADF
