"""Stands between the harness and an agent that is a command, and ends whatever the agent started.

Run as a program of its own, so it imports nothing of ours: `python -I -S guard.py PIPE COMMAND…`.
It hears of the harness by a pipe. If that closes, the harness is dead, and another one may be doing
the item again: everything is killed at once. If a byte comes, the agent's time is up: it is asked
to end first. An agent that ended by itself takes with it what it left behind.

On Linux processes that lose their parent come to the guard, so none gets away. Elsewhere one that
leaves the agent's process group does.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from contextlib import suppress

GRACE_S = 5.0
CANNOT_RUN, NOT_FOUND = 126, 127
_CHILD_SUBREAPER = 36


def main(pipe: int, words: list[str]) -> int:
    """Run a command until it ends, or has to; the exit code, as a shell would tell it."""
    os.set_inheritable(pipe, False)
    is_linux = sys.platform == "linux"
    if is_linux:
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)
    heard, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    agent = os.fork()
    if agent == 0:
        _become(words)
    code = _watch(agent, pipe, heard)
    _end(agent, everywhere=is_linux)
    return 128 + signal.SIGKILL if code is None else code


def _become(words: list[str]) -> None:
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.execvp(words[0], words)
    except OSError as error:
        os.write(2, f"{words[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN)
    finally:
        os._exit(CANNOT_RUN)


def _watch(agent: int, pipe: int, heard: int) -> int | None:
    """Wait for the agent; None if it has to be killed."""
    give_up_at: float | None = None
    listening = [pipe, heard]
    while (code := _ended(agent)) is None:
        left_s = None if give_up_at is None else give_up_at - time.monotonic()
        if left_s is not None and left_s <= 0:
            return None
        seen = select.select(listening, [], [], left_s)[0]
        if heard in seen:
            os.read(heard, 4096)
        if pipe in seen:
            if not os.read(pipe, 1):
                return None
            if give_up_at is None:
                _signal(-agent, signal.SIGTERM)
                give_up_at = time.monotonic() + GRACE_S
    return code


def _ended(agent: int) -> int | None:
    """The exit code of the agent, if it has ended. Others that did are reaped on the way."""
    while True:
        try:
            about = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return 0
        if about is None:
            return None
        status = os.waitpid(about.si_pid, 0)[1]
        if about.si_pid == agent:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _end(agent: int, *, everywhere: bool) -> None:
    """Kill what is left of the agent, and wait until it is gone."""
    _signal(-agent, signal.SIGKILL)
    while True:
        for child in _children() if everywhere else ():
            _signal(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)  # its own children come to us, to be killed in the next round
        except ChildProcessError:
            return


def _children() -> list[int]:
    """Processes whose parent we are."""
    found, us = [], str(os.getpid())
    for name in os.listdir("/proc"):
        with suppress(OSError, IndexError):
            if name.isdigit():
                with open(f"/proc/{name}/stat") as file:
                    if file.read().rpartition(")")[2].split()[1] == us:
                        found.append(int(name))
    return found


def _signal(process: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, number)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
