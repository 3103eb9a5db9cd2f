"""Putting a file in the place of another, so that what was there is still at hand.

A rename drops what had the name, also what somebody put there a moment ago. Two names that are
exchanged drop nothing: whoever replaced a file can look at what it was, and decide.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from itertools import count
from typing import Any

_EXCHANGE = 2
_UNSUPPORTED = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


def exchange(new: str, name: str, folder: int) -> None:
    """Exchange two names of a folder, at once where the system can; `name` has to be there."""
    if not _exchanged(new, name, folder):
        aside = f"{new}-old"
        os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.rename(aside, new, src_dir_fd=folder, dst_dir_fd=folder)


def _exchanged(new: str, name: str, folder: int) -> bool:
    call = _renameat2()
    if call is None:
        return False
    if call(folder, os.fsencode(new), folder, os.fsencode(name), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), name)


@cache
def _renameat2() -> Any:
    """The system call that Python has no name for; None where there is none."""
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


def set_aside(old: str, name: str, folder: int) -> str:
    """Give a file or folder the first free name `name.edited-<n>`; returns that."""
    for number in count(1):
        aside = f"{name}.edited-{number}"
        try:
            os.stat(aside, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(old, aside, src_dir_fd=folder, dst_dir_fd=folder)
            return aside
    raise OSError(errno.EEXIST, "there is no end of edited files", name)
