"""Strands: code that waits for an engine without a thread, each in a greenlet.

A sync function can't be suspended half-way by Python itself; a greenlet can. All strands of a task
run in one thread, one at a time, and change over only where they wait, so they run in the same
order each time. An async function runs in a strand too: see `bodyloop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from holdfast.engines.remote.carrier import Pending


class Strand:
    """One strand: what it does, what it waits for, and what came of it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._greenlet = greenlet(self._run)
        self._greenlet.gr_context = copy_context()
        self.waits: tuple[Pending, ...] = ()
        self.value: Any = None
        self.error: BaseException | None = None

    def _run(self) -> None:
        try:
            self.value = self._work()
        except BaseException as error:
            self.error = error

    def done(self) -> bool:
        """Whether it has come to its end."""
        return bool(self._greenlet.dead)

    def result(self) -> Any:
        """What it returned or raised."""
        if self.error is not None:
            raise self.error
        return self.value

    def is_ready(self) -> bool:
        """Whether it can go on: it has not begun, or something that it waits for has come."""
        return not self.waits or any(pending.done() for pending in self.waits)

    def go_on(self) -> None:
        """Run it until it waits again, or to its end."""
        self._greenlet.parent = getcurrent()
        self._greenlet.switch()

    def is_run_by(self, it: greenlet) -> bool:
        """Whether a greenlet is that of this strand."""
        return self._greenlet is it

    def leave(self) -> None:
        """End it where it waits: what it does there will be done elsewhere."""
        while not self.done():  # somebody may catch it, and wait for something else
            self._greenlet.parent = getcurrent()
            self._greenlet.throw(GreenletExit())


class Strands:
    """The strands of one task."""

    def __init__(self) -> None:
        self._strands: list[Strand] = []
        self.are_left = False

    def begin(self, work: Callable[[], Any]) -> Strand:
        """A new strand. It runs when those before it wait."""
        strand = Strand(work)
        self._strands.append(strand)
        return strand

    def run(self) -> None:
        """Run the strands until each of them waits for something that has not come."""
        loop = _leave_loop()
        try:
            # Always the eldest first, whatever has happened so far.
            while strand := next((s for s in self._strands if s.is_ready()), None):
                strand.go_on()
                if strand.done():
                    self._strands.remove(strand)
        finally:
            _enter_loop(*loop)

    def pendings(self) -> list[Pending]:
        """What the strands wait for."""
        return [pending for strand in self._strands for pending in strand.waits]

    def wait(self, *pendings: Pending) -> None:
        """Called in a strand: go on when one of these is done."""
        if self.are_left:
            raise GreenletExit
        strand = self._current()
        if strand is None:
            raise RuntimeError("this is no strand of the task")
        if any(pending.done() for pending in pendings):
            return
        strand.waits = pendings
        loop = _leave_loop()
        try:
            getcurrent().parent.switch()
        finally:
            _enter_loop(*loop)
            strand.waits = ()

    def are_here(self) -> bool:
        """Whether the code that runs is one of them: it may be in a thread of its own."""
        return self.are_left or self._current() is not None

    def _current(self) -> Strand | None:
        this = getcurrent()
        return next((strand for strand in self._strands if strand.is_run_by(this)), None)

    def side_by_side(self, work: Iterator[Callable[[], Any]], workers: int) -> Iterator[Any]:
        """Do work in strands, so much at a time; yields, in order, what each returned or raised."""
        waiting: list[Strand] = []
        for job in work:
            waiting.append(self.begin(job))
            running = [s for s in waiting if not s.done()]
            if len(running) >= workers:
                self.wait(*running)
            while waiting and waiting[0].done():
                yield _outcome(waiting.pop(0))
        for strand in waiting:
            self.wait(strand)
            yield _outcome(strand)

    def leave(self) -> None:
        """End every strand where it waits."""
        self.are_left = True
        loop = _leave_loop()
        try:
            while self._strands:
                self._strands.pop().leave()
        finally:
            _enter_loop(*loop)


def _outcome(strand: Strand) -> Any:
    return strand.error if strand.error is not None else strand.value


# Which loop runs, and which of its tasks, is known to asyncio by thread, and not by greenlet.


def _leave_loop() -> tuple[Any, Any]:
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    if loop is not None and task is not None:
        asyncio.tasks._leave_task(loop, task)
    asyncio._set_running_loop(None)
    return loop, task


def _enter_loop(loop: Any, task: Any) -> None:
    asyncio._set_running_loop(loop)
    if task is not None:
        asyncio.tasks._enter_task(loop, task)
