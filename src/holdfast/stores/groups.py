"""Commits in groups: what many threads have to write goes into one transaction.

A job is added to a queue. Who has to know that it is durable waits for it, and the first who
waits commits the whole queue, for the others too; what is added meanwhile is the next group. So
one task alone pays for no change of threads, which would cost it a third of its speed, and many
tasks share their commits. What nobody waits for is committed by a thread of ours soon after.

Those who wait while another commits sleep, each on a bell of its own, until their job is done or
it is their turn. They do not queue for the turn itself: they would stand there through the next
commit, and the one after it, with their job long done.

A job stays in the queue until it is done. An interrupt (Ctrl-C) in the middle of a commit thus
loses no job of another thread: whoever waits next commits it. A bell that an interrupt kept from
being rung is not waited for for long.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from holdfast.errors import StoreError

_LINGER_S = 0.02
"""How long something that nobody waits for is kept from others."""

_UNHEARD_S = 0.05


class Job:
    """Something to be written: done when it is durable, or when it was refused with an error."""

    __slots__ = ("bell", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: StoreError | None = None
        self.bell: threading.Lock | None = None

    def fail(self, error: StoreError) -> None:
        """It was not written, or nobody knows."""
        self.error = error

    def ring(self) -> None:
        """Wake who waits for it."""
        if self.bell is not None:
            with suppress(RuntimeError):  # it was rung before
                self.bell.release()


J = TypeVar("J", bound=Job)


class Groups(Generic[J]):
    """A queue of jobs, and a function that writes many of them at once.

    The function says for each job that it is `done`. If it raises, those that are not done were
    not written, and stay in the queue.
    """

    def __init__(self, commit: Callable[[Sequence[J]], None]) -> None:
        self._commit = commit
        self._queue: deque[J] = deque()
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._added = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, job: J) -> None:
        """Have a job done soon."""
        self._queue.append(job)
        if not self._added.is_set():
            self._added.set()
            if self._thread is None:
                self._start()

    def do(self, job: J) -> None:
        """Have a job done now."""
        self._queue.append(job)
        self.wait(job)

    def wait(self, job: J) -> None:
        """Return when a job is done; raises what it was refused with."""
        if not job.done:
            job.bell = threading.Lock()
            job.bell.acquire()
        while not job.done:
            if self._turn.locked() and job.bell is not None:
                job.bell.acquire(timeout=_UNHEARD_S)
            else:
                self._take_turn(job)
        if job.error is not None:
            raise job.error

    def settle(self) -> None:
        """Return when everything added so far is done, in one way or another."""
        with suppress(IndexError):
            last = self._queue[-1]
            while not last.done:
                self._take_turn(last)

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self.settle()
        self._closing.set()
        self._added.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _take_turn(self, job: J) -> None:
        jobs: list[J] = []
        with self._turn:
            if not job.done:
                jobs = [job for job in list(self._queue) if not job.done]
                self._commit(jobs)
            while self._queue and self._queue[0].done:
                self._queue.popleft()
        # Only now that the turn is free: who is woken takes it, and who comes meanwhile sees it.
        for done in jobs:
            done.ring()
        for other in list(self._queue):
            if other.bell is not None and not other.done:
                other.ring()
                break

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._closing.is_set():
                name = "holdfast commits"
                self._thread = threading.Thread(target=self._linger, name=name, daemon=True)
                self._thread.start()

    def _linger(self) -> None:
        while self._added.wait():
            self._closing.wait(_LINGER_S)
            self._added.clear()
            # After the clearing: `close` says so first, and wakes us afterwards.
            if self._closing.is_set():
                return
            with suppress(Exception):  # who needs the job to be done commits it, and is told why
                self.settle()
