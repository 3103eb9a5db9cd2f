"""Every system call that writes or syncs, failed once and killed at once, by strace.

A process does a fixed piece of work. First its calls are counted. Then it does the same again and
again, and each time one of them fails with an error, or is the last thing it does.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.stores.port import Store
from tests.torture.model import fast_folder
from tests.torture.process import Process, acts_in_turn, is_clear
from tests.torture.promises import Promises, broken

CALLS = (
    *("write", "pwrite64", "fsync", "fdatasync", "ftruncate", "openat"),
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir"),
    *("mkdir", "mkdirat"),
)
FAULTS = ("error=EIO", "error=ENOSPC", "signal=KILL")
ACTS = 18


class Fault(Struct):
    """One call of one run, and what happens to it."""

    call: str
    number: int
    fault: str


class Outcome(Struct):
    """What a fault led to."""

    fault: Fault
    said: list[str]
    broken: list[str]


def why_not() -> str:
    """Why strace can't be used here; empty if it can."""
    if not shutil.which("strace"):
        return "there is no strace here (see .ci/tools)"
    asleep = Process(lambda tell: None, at_once=False)
    try:
        _attached(asleep.pid, "-o", "/dev/null")
        return ""
    except AssertionError as error:
        return f"strace can't be used here: {error}"
    finally:
        asleep.kill()


def faults(open_store: Callable[[Path], Store], seed: str) -> list[Fault]:
    """Every call that a run makes, with everything that may happen to it."""
    with _Folder() as folder:
        output = folder / "calls"
        _run(open_store, folder, seed, "-o", str(output), "-e", f"trace={_names(CALLS)}")
        lines = output.read_text().splitlines()
    names = [line.split("(")[0].split()[-1] for line in lines if "(" in line]
    counts = Counter(name for name in names if name in CALLS)
    return [
        Fault(call, number, fault)
        for call in CALLS
        for number in range(1, counts[call] + 1)
        for fault in FAULTS
    ]


def outcome(open_store: Callable[[Path], Store], seed: str, fault: Fault) -> Outcome:
    """Let a fault happen, and see what is left."""
    with _Folder() as folder:
        inject = f"inject={fault.call}:{fault.fault}:when={fault.number}"
        trace = ("-e", f"trace={fault.call}", "-e", inject, "-o", "/dev/null")
        process, code = _run(open_store, folder, seed, *trace)
        promises = Promises(process.marks)
        store = open_store(folder)
        try:
            found = broken(store, promises)
        finally:
            store.close()
    said = [*promises.failures, *([process.last_words] if process.last_words else [])]
    found += [f"it was not told what failed: {words}" for words in said if not is_clear(words)]
    if code not in (0, 1, -signal.SIGKILL):
        found.append(f"it ended with {code}")
    return Outcome(fault, said, found)


def _run(
    open_store: Callable[[Path], Store], folder: Path, seed: str, *options: str
) -> tuple[Process, int]:
    process = Process(acts_in_turn(lambda: open_store(folder), seed, ACTS), at_once=False)
    tracer = _attached(process.pid, *options)
    process.go()
    code = process.end()
    tracer.wait(30)
    return process, code


def _attached(pid: int, *options: str) -> subprocess.Popen[bytes]:
    """An strace that watches a process, and ends with it."""
    command = ["strace", "-f", "-qq", *options, "-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    give_up_at = time.monotonic() + 20
    while f"TracerPid:\t{tracer.pid}" not in Path(f"/proc/{pid}/status").read_text():
        assert tracer.poll() is None and time.monotonic() < give_up_at, tracer.communicate()[1]
        time.sleep(0.002)
    return tracer


def _names(calls: tuple[str, ...]) -> str:
    return ",".join(f"?{call}" for call in calls)  # not every machine has them all


class _Folder:
    """A new folder while the `with` lasts."""

    def __enter__(self) -> Path:
        self._folder = fast_folder()
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder)
