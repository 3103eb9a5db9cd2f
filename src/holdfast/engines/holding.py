"""Holding tasks: a log open for writing, with a lease that is kept alive while it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Raw

from holdfast.engines.clocks import Moment
from holdfast.engines.elsewhere import driven_by
from holdfast.engines.heartbeat import Heartbeat
from holdfast.engines.mail import Message, take_in
from holdfast.engines.many import acquire_many, close_together
from holdfast.engines.tenure import Tenure
from holdfast.errors import Halt, StoreError, Suspend, TaskBusy, TaskReleased, TaskWaiting
from holdfast.events import Parked, dump_event
from holdfast.log import Clock, Log, open_log, opened
from holdfast.reading import read_state, stream_of
from holdfast.redact import Redact, checked_redact
from holdfast.secret import Secrets, checked_secrets
from holdfast.state import FINISHED, State
from holdfast.store import Lease, Post, Store
from holdfast.values import stow

Make = Callable[[State, Callable[[bytes], Raw]], Message]
"""Makes a message for a task in a state, or raises; it stows large values where they belong."""

Wanted = tuple[str, Callable[[Log], None]]
"""A task to take hold of, and what is done to it first."""

Ending = tuple[Log, TaskWaiting | None]
"""A task to let go of, and why it waits."""

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
        self.redact = checked_redact(redact)
        self.secrets = checked_secrets(secrets)
        self.max_value_bytes = max_value_bytes
        self.start: Callable[[State], None] | None = None
        """Hands a task to the engine that is to drive it, where there is one."""
        self.poke: Poke | None = None
        self._heartbeat = Heartbeat(store, lease_s)
        self.of_loop: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """Where the tasks of an event loop wait: see `together`."""

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
            self.let_go(log)

    def _open(self, task_id: str) -> Log:
        give_up_at = time.monotonic() + _ENDED_S
        while True:
            try:
                return self.open(task_id)
            except TaskBusy:
                # Whoever wrote that it ended lets go of it a moment later.
                ended = read_state(self.store, stream_of(task_id)).status in FINISHED
                if not ended or time.monotonic() >= give_up_at:
                    raise
            time.sleep(_POLL_S)

    def open(self, task_id: str) -> Log:
        """A task's log, held until `let_go`, or `TaskBusy`."""
        since = Moment()
        log = open_log(self.store, task_id, self.owner, self.lease_s, self.clock)
        return self._attend(log, since)

    def take_many(self, wanted: Sequence[Wanted]) -> Sequence[Log | BaseException]:
        """Take hold of many tasks; for each its log, begun, or what stood in the way."""
        since = Moment()
        streams = [stream_of(task_id) for task_id, _ in wanted]
        outcomes = list(acquire_many(self.store, streams, self.owner, self.lease_s))
        leases = [lease for lease in outcomes if isinstance(lease, Lease)]
        try:
            posts = self.store.inbox([lease.stream for lease in leases]) if leases else ()
        except BaseException:
            for lease in leases:
                self.store.release(lease)
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
                self.let_go(log)
                raise
        except Exception as error:
            return error
        return log

    def let_go_many(self, endings: Sequence[Ending]) -> Sequence[BaseException | None]:
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
        self._heartbeat.add(log)
        return log

    def let_go(self, log: Log) -> None:
        """Give a log back."""
        self._heartbeat.remove(log)
        log.close()
        self._take_in_late([log])

    def _park(self, log: Log, waiting: TaskWaiting) -> None:
        """Say in the log that nobody needs to look after the task for a while."""
        if isinstance(waiting, TaskReleased) or log.state.status in FINISHED:
            return
        why = str(waiting).partition("\n")[0]
        until = min((time for time in log.waits if time is not None), default=None)
        parked = Parked(until=until, why=why)
        with suppress(StoreError):  # then it is looked after at once, which does no harm
            # Not if it was told something since it began: that may be what it waits for.
            log.append(lambda state: parked if log.messages == log.seen else None)

    def _take_in_late(self, logs: Sequence[Log]) -> None:
        # A message may have come after we last looked, from somebody who found the task held.
        with suppress(StoreError, OSError):
            ours = [log for log in logs if log.state.seq and not driven_by(log.state)]
            ids = {log.lease.stream: log.state.id for log in ours}
            late = {post.stream for post in self.store.inbox(ids)} if ids else ()
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
        state = read_state(self.store, stream)
        message = self.redact.event(make(state, self._stow))
        if not self.store.post(stream, name, dump_event(message)):
            return False
        if driven_by(state):
            self._let_know(state, stream, name, wait)
        else:
            self._see_to_it(task_id, stream, name)
        if self._is_left(stream, name):
            return True  # it is safe there, and will be taken
        return name in read_state(self.store, stream).posts

    def _is_left(self, stream: str, name: str) -> bool:
        return any(post.name == name for post in self.store.inbox([stream]))

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
                # Who takes hold of a task takes in its messages, unless it was moved meanwhile.
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
        if not driven_by(read_state(self.store, stream)):  # it was moved here meanwhile
            self._see_to_it(state.id, stream, name)

    def close(self) -> None:
        """Let go of everything."""
        self._heartbeat.close()
