"""The heartbeat: for every task that is held, shows that its holder is alive, and what it does."""

from __future__ import annotations

import threading
from typing import ClassVar

from holdfast.engines.clocks import Moment
from holdfast.engines.mail import take_in
from holdfast.errors import HoldfastError
from holdfast.log import Log
from holdfast.store import Store

TICK_S = 0.05


class Heartbeat:
    """One thread, running while tasks are held. It renews their leases well before they run out,
    flushes their logs many times a second, so that a step that takes long is seen to run, and
    brings them the messages that were left for them."""

    flushes: ClassVar[bool] = True
    """Off in a harness that counts writes: those of a heartbeat come sooner or later, or not."""

    def __init__(self, store: Store, lease_s: float) -> None:
        self._store = store
        self._every_s = lease_s / 3
        self._logs: set[Log] = set()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, log: Log) -> None:
        """Look after a log from now on."""
        with self._lock:
            self._logs.add(log)
            if self._thread is None or not self._thread.is_alive():  # a fork leaves it behind
                self._closing.clear()
                thread = threading.Thread(target=self._beat, name="holdfast heartbeat", daemon=True)
                thread.start()
                self._thread = thread

    def remove(self, log: Log) -> None:
        """Let a log be."""
        with self._lock:
            self._logs.discard(log)

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._logs.clear()
        self._closing.set()
        if thread is not None:
            thread.join()

    def _beat(self) -> None:
        renewed = Moment()
        while not self._closing.wait(min(TICK_S, self._every_s)):
            with self._lock:
                logs = list(self._logs)
            due = renewed.ago_s() >= self._every_s
            if due:
                renewed = Moment()
            for log in logs:
                if self._closing.is_set():
                    return
                try:
                    if self.flushes:
                        log.flush()
                    if due and log.tenure is not None:
                        log.tenure.confirm()
                except (HoldfastError, OSError):
                    # A store that can't be reached may be the next time. Of a log that is broken
                    # its own next append says so, where it matters.
                    if log.is_broken:
                        self.remove(log)
            self._attend(logs)

    def _attend(self, logs: list[Log]) -> None:
        if not logs:
            return
        of_stream = {log.lease.stream: log for log in logs}
        try:
            posts = self._store.inbox(of_stream)
        except (HoldfastError, OSError):
            return  # they stay where they are
        for post in posts:
            log = of_stream[post.stream]
            with self._lock:
                if log not in self._logs:  # given back meanwhile
                    continue
            try:
                take_in(log, [post])
            except (HoldfastError, OSError):
                if log.is_broken:
                    self.remove(log)
        for log in logs:
            attended = log.attended  # who may leave at any moment
            if attended is not None:
                attended.tick()
