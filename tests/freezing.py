"""Stopping a process as a debugger, a swap or a paused machine does, to let it go on later."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path


def freeze(pid: int, is_free: Callable[[], bool], in_between: Callable[[], None]) -> None:
    """Stop a process at some moment; but where it would keep everybody from writing, at another.

    Who is stopped in the middle of a commit holds the lock of an SQLite database until it goes on
    or dies, and nobody could take anything over from it.
    """
    while True:
        in_between()
        os.kill(pid, signal.SIGSTOP)
        wait_until_stopped(pid)
        if is_free():
            return
        os.kill(pid, signal.SIGCONT)


def wait_until_stopped(pid: int) -> bool:
    """Wait until a process is stopped, or has ended; whether it is stopped."""
    while not _is_stopped(pid):
        time.sleep(0.0005)
    return _state_of(Path(f"/proc/{pid}/stat")) == "T"


def _is_stopped(pid: int) -> bool:
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return all(_state_of(thread / "stat") in "TZ" for thread in threads)
    except OSError:  # a thread that has just ended
        return False


def _state_of(stat: Path) -> str:
    return stat.read_text().rpartition(")")[2].split()[0]


def is_unlocked(path: Path) -> bool:
    """Whether an SQLite database can be written: not while its writer is stopped in a commit."""
    conn = sqlite3.connect(path, timeout=0.02, isolation_level=None)
    try:
        conn.execute("begin immediate")
        conn.execute("rollback")
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        conn.close()
