"""Commits in groups: what many threads have to write goes into one transaction.

A job is added to a queue. Who has to know that it is durable waits for it, and the first who
waits leads: it commits the whole queue, for the others too, while what they add meanwhile becomes
the next group. So one task alone pays for no change of threads, which would cost it a third of
its speed, and many tasks share their commits. What nobody waits for is committed by a thread of
ours soon after.

Those who wait while another leads sleep, each on a bell of its own. A leader that is done wakes
those whose jobs are done, and one of the others, which leads next. (A plain lock would have them
all stand in line through commit after commit, with their jobs long done.)

A job stays in the queue until it is done. So an interrupt (Ctrl-C) in the middle of a commit
loses no job of another thread: whoever leads next commits it. And who sleeps looks up from time
to time, in case an interrupt took the leader away before it could wake anybody.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

from holdfast.errors import StoreError

_LINGER_S = 0.02
"""How long something that nobody waits for is kept from others."""

_LOOK_UP_S = 0.05

_GATHER_S = 0.0001
"""How long a leader waits for those who were in the group before, and have just been woken."""


class Job:
    """Something to be written: done when it is durable, or when it was refused with an error."""

    __slots__ = ("bells", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: StoreError | None = None
        self.bells: list[threading.Lock] = []

    def fail(self, error: StoreError) -> None:
        """It was not written, or nobody knows."""
        self.error = error


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
        self._choosing = threading.Lock()
        self._leader: threading.Lock | None = None
        self._size = 0
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
            self._see_done(job)
        if job.error is not None:
            raise job.error

    def settle(self) -> None:
        """Return when everything added so far is done, in one way or another."""
        try:
            last = self._queue[-1]
        except IndexError:
            return
        self._see_done(last)

    def close(self) -> None:
        """Write what is left, and end the thread."""
        self.settle()
        self._closing.set()
        self._added.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _see_done(self, job: J) -> None:
        bell = threading.Lock()
        bell.acquire()
        job.bells.append(bell)
        try:
            while not job.done:
                with self._choosing:
                    self._leader = self._leader or bell
                if self._leader is bell:
                    self._lead(bell)
                elif not bell.acquire(timeout=_LOOK_UP_S) and not self._turn.locked():
                    self._leader = None  # nobody leads: an interrupt took it away
        finally:
            job.bells.remove(bell)  # nobody listens to it any more
            if self._leader is bell:
                self._resign(bell, [])

    def _lead(self, bell: threading.Lock) -> None:
        jobs: list[J] = []
        try:
            with self._turn:
                if len(self._queue) < self._size:
                    time.sleep(_GATHER_S)
                jobs = [job for job in list(self._queue) if not job.done]
                self._size = len(jobs)
                if jobs:
                    self._commit(jobs)
                while self._queue and self._queue[0].done:
                    self._queue.popleft()
        finally:
            self._resign(bell, jobs)

    def _resign(self, bell: threading.Lock, jobs: Sequence[J]) -> None:
        """Choose who leads next, and wake them and those who are done."""
        with self._choosing:
            waiting = [job for job in list(self._queue) if not job.done]
            following = next((other for other in _bells(waiting) if other is not bell), None)
            if self._leader is bell:
                self._leader = following
        for other in _bells(job for job in jobs if job.done):
            _ring(other)
        if following is not None:
            _ring(following)

    def _start(self) -> None:
        with self._choosing:
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


def _bells(jobs: Iterable[Job]) -> Iterator[threading.Lock]:
    for job in jobs:
        yield from list(job.bells)


def _ring(bell: threading.Lock) -> None:
    with suppress(RuntimeError):  # it was rung before
        bell.release()
