"""Commits in groups: what many threads have to write goes into one transaction.

A job is added to a queue. A thread that has to know that its job is durable waits for it, and the
first that waits leads: it commits the whole queue, for the others too, while what they add
meanwhile becomes the next group. So one task alone pays for no change of threads, which would cost
it a third of its speed, and many tasks share their commits. A thread of ours commits soon after
what nobody waits for.

Threads that find another leading sleep, each on a bell of its own. A leader that is done wakes
those whose jobs are done, and one of the others, which leads next. (A plain lock would have them
all stand in line through commit after commit, with their jobs long done.)

**An interrupt** (Ctrl-C, or whatever a signal handler raises) may strike the main thread between
any two instructions, also while it leads. A lock could then stay locked for ever: Python 3.13
leaves a `with` that ends in a loop without unlocking, and 3.14 one that has just begun. So there
is no lock here. The turn to lead is a generator: Python itself refuses to resume one that is
running, and knows that it runs no more however it was left. A job stays in the queue until it is
done, so the next leader commits what an interrupted one did not. And a sleeper looks up from time
to time, in case an interrupt kept a leader from waking it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet

from holdfast.errors import StoreError

_LINGER_S = 0.02
"""How long something that nobody waits for is kept from others."""

_LOOK_UP_S = 0.05

_GATHER_S = 0.0001
"""How long a leader waits for those who were in the group before, and have just been woken."""


class GroupedWrite:
    """Something to be written: done when it is durable, or when it was refused with an error."""

    __slots__ = ("bells", "done", "error")

    def __init__(self) -> None:
        self.done: bool = False
        self.error: StoreError | None = None
        self.bells: list[threading.Lock] = []

    def fail(self, error: StoreError) -> None:
        """It was not written, or nobody knows."""
        self.error = error


J = TypeVar("J", bound=GroupedWrite)


class Groups(Generic[J]):
    """A queue of jobs, and a function that writes many of them at once.

    The function says for each job that it is `done`, be it refused, and raises nothing but
    interrupts. Jobs that are not done then were not written, and stay in the queue.
    """

    def __init__(self, commit: Callable[[Sequence[J]], None]) -> None:
        self._commit = commit
        self._queue: deque[J] = deque()
        self._size = 0
        self._turns = {0: self._turn()}
        """Numbered. Only the last one is in use: interrupts ended those before it."""
        self._words: SimpleQueue[bool] = SimpleQueue()
        """For our thread: that something was added, or that it is to end."""
        self._is_told = False
        self._threads: list[threading.Thread] = []

    def add(self, job: J) -> None:
        """Have a job done soon."""
        self._queue.append(job)
        if not self._is_told:
            self._words.put(True)
            if not self._threads:
                self._start()
            self._is_told = True  # at last: an interrupt before it means that somebody tells anew

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
        self._words.put(False)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _see_done(self, job: J) -> None:
        if self._lead() and job.done:
            return
        bell = threading.Lock()
        bell.acquire()
        job.bells.append(bell)
        try:
            self._stand_in_line(job, bell)
        finally:
            job.bells.remove(bell)  # nobody listens to it any more

    def _stand_in_line(self, job: J, bell: threading.Lock) -> None:
        while not job.done:
            # The bell is known before we ask for the turn: so the thread that has it will ring.
            if not self._lead():
                bell.acquire(timeout=_LOOK_UP_S)

    def _lead(self) -> bool:
        """Commit what is in the queue, and wake others; False if another thread is at it."""
        number = len(self._turns) - 1
        try:
            jobs = next(self._turns[number])
        except ValueError:  # it is running
            return False
        except StopIteration:
            # Of several threads that find it ended, the first decides which is the next.
            self._turns.setdefault(number + 1, self._turn())
            return self._lead()
        for bell in _bells(job for job in jobs if job.done):
            _ring(bell)
        for bell in _bells(job for job in list(self._queue) if not job.done):
            _ring(bell)
            break
        return True

    def _turn(self) -> Iterator[Sequence[J]]:
        """Commits a group each time that it is resumed."""
        while True:
            if len(self._queue) < self._size:
                time.sleep(_GATHER_S)
            jobs = [job for job in list(self._queue) if not job.done]
            self._size = len(jobs)
            if jobs:
                self._commit(jobs)
            while self._queue and self._queue[0].done:
                self._queue.popleft()
            yield jobs

    def _start(self) -> None:
        # Two threads that add their first jobs at once may start two: one would do, none harms.
        thread = threading.Thread(target=self._linger, name="holdfast commits", daemon=True)
        with suppress(RuntimeError):  # the interpreter is ending, and starts no more threads
            thread.start()
            self._threads.append(thread)

    def _linger(self) -> None:
        while self._words.get():
            with suppress(Empty):
                if not self._words.get(timeout=_LINGER_S):
                    break
            self._is_told = False
            with suppress(Exception):  # the caller that needs the job is told why it is not done
                self.settle()
        self._words.put(False)  # for the next, if there is one


def _bells(jobs: Iterable[GroupedWrite]) -> Iterator[threading.Lock]:
    for job in jobs:
        yield from list(job.bells)


def _ring(bell: threading.Lock) -> None:
    with suppress(RuntimeError):  # it was rung before
        bell.release()


# The things that a forked process must not share with its parent: connections, locks, threads.


class Forkable(Protocol):
    """A store with connections."""

    def start_anew(self) -> None:
        """Forget every connection, lock and lease, without touching them: they are the parent's."""


_open: WeakSet[Forkable] = WeakSet()


def start_anew_in_children(store: Forkable) -> None:
    """Let a store start anew in every process that is forked from now on."""
    _open.add(store)


def _start_anew() -> None:
    for store in list(_open):
        store.start_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
