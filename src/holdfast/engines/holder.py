"""Holding tasks: a log open for writing, with a lease that is kept alive while it is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from msgspec import Raw

from holdfast.codec.redact import Redact, checked_redact
from holdfast.codec.secret import Secrets, checked_secrets
from holdfast.core.crashes import MAX_CRASHES
from holdfast.core.events import Parked, dump_event
from holdfast.core.kinds import id_of
from holdfast.core.state import FINISHED, State
from holdfast.engines.clocks import Moment, Tenure
from holdfast.engines.mail import Message, take_in
from holdfast.engines.parts import PartsKeeper
from holdfast.engines.routing import driven_by
from holdfast.errors import (
    Halt,
    HoldfastError,
    LeaseLost,
    StoreError,
    Suspend,
    TaskBusy,
    TaskReleased,
    TaskWaiting,
)
from holdfast.log.log import Clock, Log, Watching, open_log, opened
from holdfast.log.reading import stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import inbox_of, post_to
from holdfast.log.values import stow
from holdfast.stores.port import Lease, Post, Store

# Many logs of one store at once. Each is answered for by itself: None, or its error.


def sync_together(logs: Sequence[Log]) -> Sequence[BaseException | None]:
    """`sync` for logs of one store."""
    outcomes: dict[Log, BaseException | None] = {}
    flushed: list[Log] = []
    for log in dict.fromkeys(logs):  # branches of one task wait for the same log
        try:
            log.flush()
            flushed.append(log)
        except Exception as error:
            outcomes[log] = error
    if flushed:
        upto = [log.flushed for log in flushed]
        answers: Sequence[BaseException | None]
        try:
            answers = logs[0].store.sync([log.lease for log in flushed])
        except Exception as error:  # nobody knows what is durable, of any of them
            answers = [error] * len(flushed)
        for log, seq, answer in zip(flushed, upto, answers, strict=True):
            log.was_synced(seq, answer)
            outcomes[log] = answer
    return [outcomes[log] for log in logs]


def close_together(store: Store, logs: Sequence[Log]) -> Sequence[BaseException | None]:
    """`close` for logs of one store."""
    failures: dict[Log, BaseException] = {}
    unsynced = [log for log in logs if log.has_to_be_synced()]
    if unsynced:
        for log, outcome in zip(unsynced, sync_together(unsynced), strict=True):
            if outcome is not None:
                failures[log] = outcome
    store.release([log.lease for log in logs])
    # Acknowledged events are safe; the rest belongs to the lease's present holder.
    return [None if isinstance(e := failures.get(log), LeaseLost) else e for log in logs]


# The heartbeat: for every task that is held, shows that its holder is alive, and what it does.


TICK_S = 0.05


class Heartbeat:
    """One thread, running while tasks are held. It renews their leases well before they run out,
    flushes their logs many times a second, so that a step that takes longer is seen to run, and
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
            due = not renewed.is_within(self._every_s)
            if due:
                renewed = Moment()
            for log in logs:
                if self._closing.is_set():
                    return
                try:
                    if self.flushes:
                        log.flush(leave_new=True)
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
            posts = inbox_of(self._store, of_stream)
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


Make = Callable[[State, Callable[[bytes], Raw]], Message]
"""Makes a message for a task in a state, or raises; it stows large values where they belong."""

Wanted = tuple[str, Callable[[Log], None]]
"""A task to take hold of, and what is done to it first."""

Ending = tuple[Log, TaskWaiting | None]
"""A task to release, and why it waits."""

Poke = Callable[[State, str], bool]
"""Lets the engine of a task know of a message by its name; False if it could not."""

_WAIT_S, _HEARD_S, _ENDED_S, _POLL_S = 5.0, 1.0, 1.0, 0.02


class Holding:
    """The tasks that this process holds of one store."""

    def __init__(
        self,
        store: Store,
        owner: str,
        lease_s: float,
        clock: Clock,
        max_value_bytes: int,
        redact: Redact | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self.store = store
        self.owner = owner
        self.lease_s = lease_s
        self.clock = clock
        self.redact: Redact = checked_redact(redact)
        self.secrets: Secrets | None = checked_secrets(secrets)
        self.max_value_bytes = max_value_bytes
        self.process: str = os.urandom(4).hex()
        """Tells this process from every other one, in claims."""
        self.max_crashes = MAX_CRASHES
        """How many drivers may die at one place of a task before it is set aside."""
        self.start: Callable[[State], None] | None = None
        """Hands a task to the engine that is to drive it, where there is one."""
        self.poke: Poke | None = None
        self.watched: Watching | None = None
        """The meter of what is written to the logs that are held here, if there is one."""
        self._heartbeat = Heartbeat(store, lease_s)
        self._keeper = PartsKeeper()
        self.of_loop: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """Where the tasks of an event loop wait: see `loops`."""

    @contextmanager
    def hold(self, task_id: str) -> Iterator[Log]:
        """A task's log, held until the block ends. Signals leave it as the errors they carry."""
        log = self._open(task_id)
        try:
            take_in(log)
            yield log
        except Suspend as signal:
            self._park(log, signal.waiting)
            raise signal.waiting from None
        except Halt as signal:
            raise signal.error from signal.__cause__
        finally:
            self.release(log)

    def _open(self, task_id: str) -> Log:
        give_up_at = time.monotonic() + _ENDED_S
        while True:
            try:
                return self.open(task_id)
            except TaskBusy:
                # The driver that recorded its end releases it a moment later. A task without any
                # event is being begun, or a worker finds that the one who made it died before.
                state = load(self.store, task_id, missing_ok=True)
                is_brief = state.status in FINISHED or not state.seq
                if not is_brief or time.monotonic() >= give_up_at:
                    raise
            time.sleep(_POLL_S)

    def open(self, task_id: str) -> Log:
        """A task's log, held until `release`, or `TaskBusy`."""
        since = Moment()
        log = open_log(self.store, task_id, self.owner, self.lease_s, self.clock)
        return self._attend(log, since)

    def take_many(self, wanted: Sequence[Wanted]) -> Sequence[Log | BaseException]:
        """Take hold of many tasks; for each its log, begun, or what stood in the way."""
        since = Moment()
        streams = [stream_of(task_id) for task_id, _ in wanted]
        outcomes = list(self.store.acquire(streams, self.owner, self.lease_s))
        leases = [lease for lease in outcomes if isinstance(lease, Lease)]
        try:
            posts = inbox_of(self.store, [lease.stream for lease in leases]) if leases else ()
        except BaseException:
            for lease in leases:
                self.store.release([lease])
            raise
        taken: list[Log | BaseException] = []
        for outcome, (_, begin) in zip(outcomes, wanted, strict=True):
            if isinstance(outcome, Lease):
                its_posts = [post for post in posts if post.stream == outcome.stream]
                taken.append(self._begun(outcome, since, its_posts, begin))
            else:
                taken.append(outcome)
        return taken

    def _begun(
        self, lease: Lease, since: Moment, posts: Sequence[Post], begin: Callable[[Log], None]
    ) -> Log | BaseException:
        try:
            log = self._attend(opened(self.store, lease, self.clock), since)
            try:
                take_in(log, posts)
                begin(log)
            except BaseException:
                self.release(log)
                raise
        except Exception as error:
            return error
        return log

    def release_many(self, endings: Sequence[Ending]) -> Sequence[BaseException | None]:
        """Let go of many tasks, some of which wait for something."""
        logs = [log for log, _ in endings]
        for log, waiting in endings:
            if waiting is not None:
                self._park(log, waiting)
            self._heartbeat.remove(log)
        outcomes = close_together(self.store, logs)
        self._take_in_late(logs)
        return outcomes

    def _attend(self, log: Log, since: Moment) -> Log:
        """Look after a log that was opened: its lease, and what may be written to it."""
        log.tenure = Tenure(log, self.lease_s, since)
        log.max_value_bytes = self.max_value_bytes
        log.redact = self.redact
        log.watched = self.watched
        log.keeper = self._keeper if Heartbeat.flushes else None
        self._heartbeat.add(log)
        return log

    def release(self, log: Log) -> None:
        """Give a log back."""
        self._heartbeat.remove(log)
        log.close()
        self._take_in_late([log])

    def _park(self, log: Log, waiting: TaskWaiting) -> None:
        """Say in the log that nobody needs to look after the task for a while."""
        if log.state.status in FINISHED or driven_by(log.state):
            return
        why = str(waiting).partition("\n")[0]
        until = min((time for time in log.waits if time is not None), default=None)
        if isinstance(waiting, TaskReleased):  # anyone may go on with it at once
            until = log.clock()
        if log.messages != log.seen:  # what it was told since it began may be what it waits for
            until = log.clock()
        with suppress(StoreError):  # then it is looked after at once, which does no harm
            log.append(Parked(until=until, why=why))

    def _take_in_late(self, logs: Sequence[Log]) -> None:
        # A message may have come after we last looked, from somebody who found the task held.
        with suppress(StoreError, OSError):
            ours = [log for log in logs if log.state.seq and not driven_by(log.state)]
            ids = {log.lease.stream: log.state.id for log in ours}
            late = {post.stream for post in inbox_of(self.store, ids)} if ids else ()
            for stream in late:
                with suppress(StoreError, OSError):
                    log = open_log(self.store, ids[stream], self.owner, self.lease_s, self.clock)
                    try:
                        take_in(log)
                    finally:
                        log.close()

    def tell(self, task_id: str, name: str, make: Make, *, wait: bool = True) -> bool:
        """Say something to a task: at once if nobody holds it, else by way of its inbox.

        Always so if a remote engine drives it, which is then told; with `wait`, it is given a
        moment to take the message in. `name` is that of the message: there is one of each. Returns
        whether ours was taken, or is safe and will be.
        """
        with suppress(TaskBusy), self.hold(task_id) as log:
            if not driven_by(log.state):
                log.append(lambda state: make(state, log.stow))
                log.sync()
                return True
        stream = stream_of(task_id)
        state = load(self.store, id_of(stream), missing_ok=True)
        message = self.redact.event(make(state, self._stow))
        if not post_to(self.store, stream, name, dump_event(message)):
            return False
        if driven_by(state):
            self._let_know(state, stream, name, wait)
        else:
            self._see_to_it(task_id, stream, name)
        if self._is_left(stream, name):
            return True  # it is safe there, and will be taken
        return name in load(self.store, id_of(stream), missing_ok=True).posts

    def _is_left(self, stream: str, name: str) -> bool:
        return any(post.name == name for post in inbox_of(self.store, [stream]))

    def _stow(self, value: bytes) -> Raw:
        self.redact.must_be_free(value)
        return stow(self.store, value, self.max_value_bytes)

    def _see_to_it(self, task_id: str, stream: str, name: str) -> None:
        """Wait until a message was taken: its holder may just have died. It is safe in any case."""
        give_up_at = time.monotonic() + _WAIT_S
        while time.monotonic() < give_up_at:
            if not self._is_left(stream, name):
                return
            time.sleep(_POLL_S)
            with suppress(TaskBusy), self.hold(task_id) as log:
                # A new holder of a task takes in its messages, unless the task was moved meanwhile.
                if driven_by(log.state):
                    return self._let_know(log.state, stream, name, wait=False)

    def _let_know(self, state: State, stream: str, name: str, wait: bool) -> None:
        """Tell the engine of a task of a message. If it can't be told, its workers see to that."""
        is_told = self.poke is not None and self.poke(state, name)
        give_up_at = time.monotonic() + (_HEARD_S if is_told and wait else 0)
        while self._is_left(stream, name):
            if time.monotonic() >= give_up_at:
                break
            time.sleep(_POLL_S)
        else:
            return
        if not driven_by(
            load(self.store, id_of(stream), missing_ok=True)
        ):  # it was moved here meanwhile
            self._see_to_it(state.id, stream, name)

    def close(self) -> None:
        """Let go of everything."""
        self._keeper.close()
        self._heartbeat.close()
