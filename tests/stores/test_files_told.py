"""What the files store tells of trouble and of time, each case by itself."""

from __future__ import annotations

import errno
import os
from types import SimpleNamespace

import pytest

from holdfast.stores.files import syncing
from holdfast.stores.files.folder import failed
from holdfast.stores.files.syncing import _can_be_believed


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.ENOSPC, "The disk is full"),
        (errno.EDQUOT, "The disk is full"),
        (errno.ELOOP, "A symlink or a file is where a folder"),
        (errno.ENOTDIR, "A symlink or a file is where a folder"),
        (errno.EACCES, "Check who owns the folder"),
        (errno.EPERM, "Check who owns the folder"),
        (errno.EROFS, "Check who owns the folder"),
        (errno.EMFILE, "Too many files are open"),
        (errno.ENFILE, "Too many files are open"),
        (errno.EIO, "What was acknowledged before is safe"),
        (errno.EINVAL, "What was acknowledged before is safe"),
    ],
)
def test_what_the_system_refused_is_told_with_what_to_do(number, advice):
    told = str(failed("it broke", OSError(number, os.strerror(number))))
    assert told.startswith(f"it broke: {os.strerror(number)}. {advice}")
    assert str(failed("it broke", OSError("odd"))).startswith("it broke: odd. What was")


@pytest.mark.parametrize(
    ("release", "believed"),
    [("5.8.0", True), ("6.1.2-x", True), ("5.7.19", False), ("4.20.1", False), ("odd", False)],
)
def test_a_sync_is_believed_only_of_systems_that_keep_their_word(monkeypatch, release, believed):
    named = SimpleNamespace(sysname="Linux", release=release)
    monkeypatch.setattr(syncing.platform, "system", lambda: named.sysname)
    monkeypatch.setattr(syncing.platform, "release", lambda: named.release)
    monkeypatch.setattr(syncing, "_kind", lambda line, number: next(iter(syncing._KINDS)))
    assert _can_be_believed(os.makedev(8, 1)) is believed
    monkeypatch.setattr(syncing, "_kind", lambda line, number: "odd")
    assert _can_be_believed(os.makedev(8, 1)) is False
    named.sysname = "Darwin"
    assert _can_be_believed(os.makedev(8, 1)) is False


def test_no_sync_is_believed_where_the_mounts_can_not_be_read(monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EACCES, "no")

    monkeypatch.setattr(syncing, "open", refuse, raising=False)
    assert _can_be_believed(os.makedev(8, 1)) is False
