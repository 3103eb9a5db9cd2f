"""Whether a process of this machine is alive, told by what it wrote down about itself.

A number is not enough: after a restart of the machine another process has it, and so may have one
of today. So a process is named by the boot of the machine, its namespace, its number and the time
it was started at.
"""

from __future__ import annotations

import os
from functools import cache

_UNTOLD = "?"


def this_process() -> str:
    """A name for this process that no other has."""
    pid = os.getpid()
    return f"{_boot()} {_namespace()} {pid} {_started(pid)}"


def may_be_alive(process: str) -> bool:
    """Whether the process of that name may be alive: False only if it certainly is not."""
    try:
        boot, namespace, pid, started = process.split(" ")
        if boot != _boot():
            return False
        if namespace != _namespace():
            return True  # in another container: its number means nothing here
        return _started(int(pid)) in (started, _UNTOLD)
    except ValueError:
        return True


def _started(pid: int) -> str:
    """When a process was started, in ticks; empty if there is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return _UNTOLD
    # One that was killed stays listed until its parent has taken notice.
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


@cache
def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return boot.read().strip()
    except OSError:
        return _UNTOLD


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return _UNTOLD
