"""Kill an agent everywhere, and see that it ends as if nothing had happened.

A `Scenario` says how to run the agent and how to ask the outside world what was done to it.
`crash_everywhere` runs it once undisturbed; then, for every boundary of that run, once more in a
process that is killed there with SIGKILL and again in a new process that goes on. Each time the
result and the outside world must be the same as undisturbed.

Boundaries are: before and after each write to the log, after each sync, and wherever the scenario
calls `boundary()` itself, which it should do right before and right after each effect.

Run it from the command line, so that the processes are forked from a clean one:

    python -m holdfast.testing.crash package.module:make_scenario

The last line it prints is a JSON report; it exits with 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from holdfast.api.app import Holdfast
from holdfast.engines.holder import Heartbeat
from holdfast.errors import StoreError
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.port import Facts, Lease, Store
from holdfast.stores.wrapped import Wrapped

__all__ = [
    "CrashDisk",
    "CrashStore",
    "NoIntentDisk",
    "Report",
    "Scenario",
    "Violation",
    "boundary",
    "crash_everywhere",
]

MISSED = "missed"

_left: int | None = None
_trail: list[str] = []


class Scenario(Protocol):
    """An agent, and the world it acts on."""

    def reset(self) -> None:
        """Make the outside world new, before each try."""

    def run(self, hf: Holdfast) -> Any:
        """Run the agent to its end, or go on with it; returns its result (plain data)."""

    def effects(self) -> Any:
        """The effects on the outside world, as plain data: the same for every right run."""


class Violation(Struct):
    """A crash that the agent did not survive unharmed."""

    point: int
    boundary: str
    problem: str


class Report(Struct):
    """The outcome of killing an agent everywhere."""

    points: int
    violations: list[Violation]
    boundaries: dict[str, int]
    seconds: float
    missed: int = 0
    """Runs that ended, rightly, before their boundary came: branches interleave as they like."""

    def __bool__(self) -> bool:
        return self.points > 0 and not self.violations


def boundary(label: str) -> None:
    """A place where the process may be killed. Costs nothing when no crash test is running."""
    global _left
    if _left is None:
        return
    _trail.append(label)
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


class CrashDisk(Disk):
    """A disk with a boundary on either side of everything that changes it."""

    def write(self, fd: int, data: bytes) -> None:
        boundary("before a write")
        super().write(fd, data)
        boundary("after a write")

    def sync(self, fd: int) -> None:
        super().sync(fd)
        boundary("after a sync")

    def sync_all(self, fd: int) -> None:
        super().sync_all(fd)
        boundary("after a sync")


class NoIntentDisk(CrashDisk):
    """A deliberately broken disk: it holds a tool's intent back until its result is written.

    Harnesses are run against it as well, and have to notice.
    """

    def __init__(self) -> None:
        self._held: dict[int, bytes] = {}

    def write(self, fd: int, data: bytes) -> None:
        held = self._held.pop(fd, b"") + data
        if b'"type":"started"' in data and b'"kind":"tool"' in data:
            self._held[fd] = held
        else:
            super().write(fd, held)


class CrashStore(Wrapped):
    """A store of any kind, with a boundary on either side of everything that is written to it."""

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        boundary("before a write")
        super().append(lease, expected_seq, lines, facts)
        boundary("after a write")

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        synced = super().sync(leases)
        boundary("after a sync")
        return synced


class Outcome(Struct):
    """How a process ended that ran the scenario."""

    killed: bool
    result: Any = None
    error: str = ""
    trail: list[str] = []


def crash_everywhere(
    scenario: Scenario,
    folder: Path,
    *,
    disk: Callable[[], Disk] = CrashDisk,
    store: Callable[[Path], Store] | None = None,
    every: int = 1,
    crashes: int = 1,
    fail_fast: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Report:
    """Kill the scenario at every boundary (or every `every`-th), and compare what comes of it.

    With `crashes=2` the process that goes on is killed as well, at its first few boundaries. With
    `fail_fast` no boundary is tried after the first violation.

    The store is a folder, unless `store` opens another one for the name of a folder: it must be
    empty the first time, and is best wrapped in a `CrashStore`.
    """
    began = time.monotonic()
    opened = store or (lambda folder: FileStore(folder, disk=disk()))
    scenario.reset()
    calm = _in_child(scenario, folder / "calm", opened, None)
    if calm.error or calm.killed:
        raise AssertionError(f"the scenario fails without any crash: {calm.error}")
    expected = _plain((calm.result, scenario.effects()))
    violations: list[Violation] = []
    missed = done = 0
    points = range(1, len(calm.trail) + 1, every)
    for done, point in enumerate(points, 1):
        problem = _crash_at(scenario, folder / f"point-{point}", opened, point, crashes, expected)
        if problem == MISSED:
            missed += 1
        elif problem:
            violations.append(Violation(point, calm.trail[point - 1], problem))
        on_progress(done, len(points))
        if violations and fail_fast:
            break
    kinds = {label: calm.trail.count(label) for label in sorted(set(calm.trail))}
    return Report(done, violations, kinds, time.monotonic() - began, missed)


def _crash_at(
    scenario: Scenario,
    folder: Path,
    opened: Callable[[Path], Store],
    point: int,
    crashes: int,
    expected: Any,
) -> str:
    scenario.reset()
    first = _in_child(scenario, folder, opened, point)
    if not first.killed:
        right = not first.error and _plain((first.result, scenario.effects())) == expected
        return MISSED if right else f"without being killed: {first.error or first.result!r}"
    for again in range(1, crashes):
        _in_child(scenario, folder, opened, 3 * again)
    last = _in_child(scenario, folder, opened, None)
    if last.error:
        return f"going on failed: {last.error}"
    found = _plain((last.result, scenario.effects()))
    shutil.rmtree(folder, ignore_errors=True)
    return "" if found == expected else f"expected {expected!r}, found {found!r}"


def _in_child(
    scenario: Scenario, folder: Path, opened: Callable[[Path], Store], kill_at: int | None
) -> Outcome:
    read_fd, write_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_fd)
        _child(scenario, folder, opened, kill_at, write_fd)
    os.close(write_fd)
    with os.fdopen(read_fd, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Outcome(killed=True)
    if not answer:
        return Outcome(killed=False, error=f"the process ended with status {status}")
    return msgspec.json.decode(answer, type=Outcome)


def _child(
    scenario: Scenario,
    folder: Path,
    opened: Callable[[Path], Store],
    kill_at: int | None,
    answer: int,
) -> None:
    global _left
    # On a slow machine a run would have more boundaries than on a fast one.
    Heartbeat.flushes = False
    # A huge number counts the boundaries of an undisturbed run without ever getting there.
    _left = kill_at if kill_at is not None else sys.maxsize
    _trail.clear()
    try:
        with Holdfast(opened(folder)) as hf:
            outcome = Outcome(killed=False, result=scenario.run(hf), trail=_trail)
    except BaseException:
        outcome = Outcome(killed=False, error=traceback.format_exc())
    os.write(answer, msgspec.json.encode(outcome))
    os._exit(0)


def _plain(value: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _scenario(where: str) -> Scenario:
    module, _, name = where.partition(":")
    sys.path.insert(0, os.getcwd())
    try:
        make: Callable[[], Scenario] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SystemExit(
            f"can't find the scenario {where!r}: {error}. Give MODULE:FUNCTION"
        ) from None
    return make()


def main(arguments: Sequence[str]) -> int:
    """Run a scenario from the command line. Exits with 1 if anything was violated."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.crash",
        description="Kill an agent at every boundary, and see that it ends as if nothing happened.",
    )
    parser.add_argument("scenario", help="MODULE:FUNCTION, a function that makes the Scenario")
    parser.add_argument("--every", type=int, default=1, help="only every N-th boundary")
    parser.add_argument("--crashes", type=int, default=1, help="kill so often before going on")
    parser.add_argument("--fail-fast", action="store_true", help="end at the first violation")
    parser.add_argument(
        "--no-intent",
        action="store_true",
        help="on a build that is broken on purpose: the run has to fail",
    )
    given = parser.parse_args(arguments)
    scenario = _scenario(given.scenario)
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        report = crash_everywhere(
            scenario,
            Path(folder),
            disk=NoIntentDisk if given.no_intent else CrashDisk,
            crashes=given.crashes,
            every=given.every,
            fail_fast=given.fail_fast,
            on_progress=_show if sys.stderr.isatty() else lambda done, total: None,
        )
    sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
    return 0 if report else 1


def _show(done: int, total: int) -> None:
    sys.stderr.write(f"\r{done} of {total} boundaries" + ("\n" if done == total else ""))
    sys.stderr.flush()


if __name__ == "__main__":
    # Under its own name, so that scenarios that import `boundary` share its counter.
    sys.exit(importlib.import_module("holdfast.testing.crash").main(sys.argv[1:]))
