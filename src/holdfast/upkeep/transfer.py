"""One log, brought from where it is to another store, byte by byte.

Its lines are copied as they are, so their sums stay valid. They are written to a stream of another
name (a draft: see `kinds`), read back and compared, and only then given the name of the log: so a
store never holds half of a task, which a worker would continue as if it were whole. The next copy
finds the lines of an interrupted one there and continues after them.

A session or a memory that is there in part is completed in place. Half of it is a state it once
had, and it never disappears for a moment in which somebody would begin it anew.

A blob is put before the line that names it, and put even where it is there already: that makes it
young, and nobody deletes it before its line is written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain as joined
from itertools import islice, zip_longest
from types import TracebackType
from typing import Literal, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import PauseRequested, dump_event
from holdfast.core.kinds import SESSION, TASK, final_name, id_of, kind_of
from holdfast.core.state import State
from holdfast.errors import BadInput, Conflict, LogDamaged, StoreError, TaskBusy, TaskNotFound
from holdfast.log import chain
from holdfast.log.reading import lineage, must_have_its_past
from holdfast.log.states import facts_in, lines_of, load_any, status_in
from holdfast.log.store_calls import acquire_one, holder_of, sync_one
from holdfast.log.values import Reference, blob_of, references
from holdfast.stores.port import Facts, Lease, Store
from holdfast.upkeep.families import CopiedLog, Told, What, sessions_needed, told_by

# Leases that are kept alive while something long is done under them.


PATIENCE_S, _MOMENT_S = 10.0, 0.005


class Keeping:
    """A thread that renews leases. The next use of a lost lease raises."""

    def __init__(self, lease_s: float) -> None:
        self.lease_s = lease_s
        self._kept: dict[Lease, Store] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="holdfast leases", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closing.set()
        self._thread.join()

    def take(self, store: Store, stream: str, owner: str) -> Lease:
        """Take a lease, and keep it."""
        return self.keep(store, acquire_one(store, stream, owner, self.lease_s))

    def take_in_turn(self, store: Store, stream: str, owner: str) -> Lease:
        """The same, for a log that others hold only for moments: it waits until they release it."""
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self.take(store, stream, owner)
            except TaskBusy:
                if time.monotonic() > give_up_at:
                    raise
            time.sleep(_MOMENT_S)

    def keep(self, store: Store, lease: Lease) -> Lease:
        """Renew a lease that was taken."""
        self._kept[lease] = store
        return lease

    def forget(self, lease: Lease) -> None:
        """Stop renewing a lease."""
        self._kept.pop(lease, None)

    def release(self, lease: Lease) -> None:
        """Release a lease."""
        store = self._kept.pop(lease, None)
        if store is not None:
            store.release([lease])

    def _renew(self) -> None:
        while not self._closing.wait(self.lease_s / 3):
            for lease, store in list(self._kept.items()):
                with suppress(StoreError, OSError):
                    store.renew(lease)


How = Literal["copied", "continued", "there", "ahead"]
"""It was not there; it was there in part; it is there; it is there, and has gone on."""

_BATCH_LINES, _BATCH_BYTES = 500, 1 << 20


class Source(Protocol):
    """A source of tasks for a copy: a store, or an archive."""

    @property
    def url(self) -> str:
        """The name that people use for it."""

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        """The lines after `after_seq`."""

    def get_blob(self, digest: str) -> bytes:
        """The bytes of a blob."""


class Brought(Struct, frozen=True):
    """The result of bringing a log to a store."""

    how: How
    events: int
    size_bytes: int
    blobs: int
    head: bytes
    """The last line of the source."""


class Transfer:
    """Brings logs from a source to a store."""

    def __init__(
        self,
        source: Source,
        target: Store,
        owner: str,
        keeping: Keeping,
        clock: Callable[[], datetime],
        written: Callable[[str, int], None],
    ) -> None:
        self._source = source
        self._target = target
        self._owner = owner
        self._keeping = keeping
        self._clock = clock
        self._written = written
        self._carried: set[tuple[str, bool]] = set()
        self._unverified: list[str] = []

    def bring(
        self, stream: str, *, arrives_paused: bool = False, events: int | None = None
    ) -> Brought:
        """Bring a log, if it is not there already, and verify it.

        With `arrives_paused` the copy gets one event more. With `events`, a log that has grown
        beyond that number is refused.
        """
        how, kind = compared(self._source, self._target, stream), kind_of(stream)
        if how == "continued" and kind is not TASK:
            return self._go_on_with(stream)
        if how in ("there", "ahead"):
            found = self._read_through(stream, how, None, 0)
            _must_have(events, found, stream)
            return found
        draft = self._keeping.take(self._target, kind.draft(id_of(stream)), self._owner)
        try:
            draft, begun = self._begun(draft, stream)
            found = self._read_through(stream, how, draft, begun)
            _must_have(events, found, stream)
            last: list[bytes] = []
            if arrives_paused:
                last = [self._pause(found)]
                self._target.append(draft, found.events, last)
                sync_one(self._target, draft)
            self._verify(stream, draft.stream, found.events, last)
            if how == "continued":
                self._remove_the_older(stream)
            self._target.rename(draft, stream)
            return found
        except BaseException:
            self._forget_carried()
            raise
        finally:
            self._keeping.release(draft)

    def _go_on_with(self, stream: str) -> Brought:
        """Add what is missing of a log that nobody drives to what the target has of it."""
        lease = self._keeping.take_in_turn(self._target, stream, self._owner)
        try:
            how = compared(self._source, self._target, stream)  # as it is under the lease
            there = sum(1 for _ in self._target.read(stream))
            adding = lease if how == "continued" else None
            found = self._read_through(stream, how, adding, there)
            if adding is not None:
                self._verify(stream, stream, found.events, [])
            return found
        except BaseException:
            self._forget_carried()
            raise
        finally:
            self._keeping.release(lease)

    def _forget_carried(self) -> None:
        # Perhaps no log names the blobs carried so far, and a clean-up deleted them: carry them
        # again.
        self._carried.clear()
        self._unverified.clear()

    def carry(self, data: bytes) -> int:
        """Bring the blobs that bytes name, those that a list names before the list itself."""
        count = 0
        waiting = list(references(data))
        while waiting:
            reference = waiting[-1]
            blob = None
            if not self._is_carried(reference):
                blob = blob_of(reference, self._source.get_blob)
            if blob is not None:
                inner = references(blob) if reference.names_more else ()
                if first := [other for other in inner if not self._is_carried(other)]:
                    waiting += first
                    continue
                if self._target.put_blob(blob) != reference.digest:
                    what = "the blob's bytes do not fit its name"
                    raise LogDamaged(f"blobs/{reference.digest}", 0, what)
                self._unverified.append(reference.digest)
                count += 1
            # If it only looks like a name, there is nothing to carry, now or later.
            self._carried.add((reference.digest, reference.names_more))
            waiting.pop()
        return count

    def _is_carried(self, reference: Reference) -> bool:
        """Whether a blob is carried. One carried as content may, read as a value, still name
        others."""
        digest = reference.digest
        return not {(digest, True), (digest, reference.names_more)}.isdisjoint(self._carried)

    def _begun(self, draft: Lease, stream: str) -> tuple[Lease, int]:
        """The draft of an earlier copy, and how many of its lines still match the source."""
        count = 0
        source = self._source.read(stream)
        for line in self._target.read(draft.stream):
            if next(source, None) != line:
                self._target.delete(draft)
                self._keeping.forget(draft)
                return self._keeping.take(self._target, draft.stream, self._owner), 0
            count += 1
        return draft, count

    def _pause(self, found: Brought) -> bytes:
        """The line that makes a task arrive paused."""
        because = f"it is a copy of that in {self._source.url}, which may have gone on since"
        event = PauseRequested(
            seq=found.events + 1, at=self._clock(), by=self._owner, because=because
        )  # fmt: skip
        return chain.seal(chain.sum_of(found.head), dump_event(event))[0]

    def _read_through(self, stream: str, how: How, draft: Lease | None, begun: int) -> Brought:
        """Check every line, bring its blobs, and write those that are not written yet."""
        total, seq, size, blobs, line = chain.ROOT, 0, 0, 0, b""
        batch: list[bytes] = []
        waiting = 0
        for line in self._source.read(stream):
            seq += 1
            size += len(line) + 1
            total = _sum_after(stream, seq, total, line)
            blobs += self.carry(line)
            if draft is not None and seq > begun:
                batch.append(line)
                waiting += len(line)
                if len(batch) >= _BATCH_LINES or waiting >= _BATCH_BYTES:
                    self._write(draft, seq, batch)
                    batch, waiting = [], 0
        if draft is not None and batch:
            self._write(draft, seq, batch)
        self._verify_blobs()
        return Brought(how, seq, size, blobs, line)

    def _write(self, draft: Lease, seq: int, batch: list[bytes]) -> None:
        told = None
        if (stream := final_name(draft.stream)) != draft.stream:
            # It has a time, so that an abandoned draft is found and removed later.
            told = Facts(status="pending", created_at=self._clock(), updated_at=self._clock())
        self._target.append(draft, seq - len(batch), batch, told)
        sync_one(self._target, draft)
        self._written(kind_of(stream).shown(id_of(stream)), seq)

    def _verify(self, stream: str, draft: str, events: int, last: Sequence[bytes]) -> None:
        """Read back what was written: the same lines, and as many, with sums that fit."""
        total = chain.ROOT
        expected = joined(islice(self._source.read(stream), events), last)
        pairs = zip_longest(expected, self._target.read(draft))
        for seq, (ours, theirs) in enumerate(pairs, 1):
            if ours != theirs or ours is None:
                what = f"the copy in {self._target.url} is not what was written: copy it again"
                raise LogDamaged(stream, seq, what)
            total = _sum_after(stream, seq, total, ours)

    def _verify_blobs(self) -> None:
        while self._unverified:
            self._target.get_blob(self._unverified.pop())  # looks whether its bytes fit its name

    def _remove_the_older(self, stream: str) -> None:
        """Remove the shorter log that the new one continues."""
        older = self._keeping.take(self._target, stream, self._owner)
        try:
            if compared(self._source, self._target, stream) == "continued":
                self._target.delete(older)
        finally:
            self._keeping.release(older)


def compared(source: Source, target: Source, stream: str) -> How:
    """How a log in the target relates to the source's; `Conflict` if they diverged."""
    pairs = zip_longest(source.read(stream), target.read(stream))
    for seq, (ours, theirs) in enumerate(pairs, 1):
        if ours is None:
            return "ahead"
        if theirs is None:
            return "continued" if seq > 1 else "copied"
        if ours != theirs:
            raise Conflict(
                f"{stream} is in {target.url} too, and from event {seq} on it is another: both "
                f"went on, or they were never the same. Nothing was changed. Look at both, and "
                f"delete the one you don't need, or copy it elsewhere"
            )
    return "there"


def _must_have(events: int | None, found: Brought, stream: str) -> None:
    if events not in (None, found.events):
        raise TaskBusy(f"task {id_of(stream)!r} has gone on since: copy it again")


def _sum_after(stream: str, seq: int, total: bytes, line: bytes) -> bytes:
    after = chain.check(total, line)
    if after is None:
        raise LogDamaged(stream, seq, "its sum does not fit its bytes and the event before it")
    return after


# Sessions and memories, which go along with tasks.
#
# Nobody drives them, so nothing is paused: the copy holds each log in the source while it brings
# it. A target that has a part of the log gets the rest, and a target that has more keeps it. If
# both went on, that is a `Conflict` and nothing changes. A session that can't be brought keeps
# its tasks from being copied, because it holds what they said and saw.


Say = Callable[[What, str, int], None]


class Along:
    """The sessions and memories that go along from one store to another."""

    def __init__(
        self,
        source: Store,
        target: Store,
        transfer: Transfer,
        keeping: Keeping,
        owner: str,
        say: Say,
    ) -> None:
        self._source = source
        self._target = target
        self._transfer = transfer
        self._keeping = keeping
        self._owner = owner
        self._say = say
        self._brought: dict[str, Brought] = {}
        self._compared: dict[str, tuple[bytes, bytes]] = {}
        self.logs: dict[str, CopiedLog] = {}
        """The logs that were brought, or would be, by stream."""

    def sessions_of(self, *states: State) -> list[str]:
        """The streams of the sessions that tasks talk in, as far as they are there; those whose
        past they share come first."""
        ids = {id for state in states for id in (state.session, state.id) if id}
        streams = [lineage(self._source, SESSION.stream(id)) for id in sorted(ids)]
        found = dict.fromkeys(stream for line in streams for stream in line)
        return [stream for stream in found if self._head(self._source, stream)]

    def check(self, stream: str) -> None:
        """Raise what would keep a log from being brought now."""
        heads = self._head(self._source, stream), self._head(self._target, stream)
        if self._compared.get(stream) != heads:  # a session may have a thousand tasks
            must_have_its_past(self._source, stream)
            compared(self._source, self._target, stream)
            self._compared[stream] = heads

    def plan(self, stream: str) -> None:
        """Note what bringing a log would do now."""
        self.logs[stream] = planned(self._source, self._target, stream)

    def bring(self, stream: str) -> None:
        """Bring a log, with what was added to it since it was last brought."""
        before = self._brought.get(stream)
        if before is not None and self._head(self._source, stream) == before.head:
            return
        must_have_its_past(self._source, stream)
        lease = self._keeping.take_in_turn(self._source, stream, self._owner)
        try:
            self._must_be_two_stores(stream)
            brought = self._brought[stream] = self._transfer.bring(stream)
        finally:
            self._keeping.release(lease)
        log = arrived(self._target, stream, brought)
        if before is not None:  # how it was when this copy began
            log = replace(log, how=self.logs[stream].how)
        self.logs[stream] = log
        self._say("copied", kind_of(stream).shown(log.id), brought.events)

    def delete_spare(self) -> list[tuple[str, Exception]]:
        """Remove the logs from the source that the target has and that no task of the source needs.

        Returns the logs that could not be deleted, and why.
        """
        told, sessions = told_by(self._source), told_by(self._source, SESSION)
        failed: list[tuple[str, Exception]] = []
        for stream in reversed(self._brought):  # forks before those whose past they share
            is_session = kind_of(stream) is SESSION
            if is_session and _is_needed(id_of(stream), told, sessions):
                continue
            try:
                self._delete(stream)
                sessions.facts.pop(id_of(stream), None)
            except (TaskBusy, TaskNotFound, BadInput) as error:
                failed.append((stream, error))
        return failed

    def _delete(self, stream: str) -> None:
        brought = self._brought[stream]
        lease = self._keeping.take_in_turn(self._source, stream, self._owner)
        try:
            self._must_be_two_stores(stream)
            if self._head(self._source, stream) != brought.head:
                raise TaskBusy(f"{stream} has gone on since: copy it again")
            if next(self._target.read(stream, brought.events - 1), b"") != brought.head:
                raise TaskNotFound(f"{stream} is not in {self._target.url} any more")
            self._source.delete(lease)
        finally:
            self._keeping.release(lease)
        self._say("deleted", kind_of(stream).shown(id_of(stream)), brought.events)

    def _must_be_two_stores(self, stream: str) -> None:
        must_be_two(self._source, self._target, stream, self._owner)

    def _head(self, store: Store, stream: str) -> bytes:
        return next(iter(store.read(stream, backwards=True)), b"")


def _is_needed(id: str, tasks: Told, sessions: Told) -> bool:
    """Whether a task of a session is left, or another one that shares its past."""
    if tasks.unreadable or sessions.unreadable or id in sessions_needed(tasks.facts):
        return True
    return any(facts.origin == id for facts in sessions.facts.values())


def must_be_two(source: Store, target: Store, stream: str, owner: str) -> None:
    """Refuse two names of one store: the holder of a log here holds it there too."""
    if holder_of(target, stream) == owner:
        raise BadInput(f"{source.url} and {target.url} are one and the same store")


def planned(source: Source, target: Store, stream: str) -> CopiedLog:
    """The result that bringing a session or a memory would have now."""
    how = compared(source, target, stream)
    state = load_any(source, stream)
    size = sum(len(line) + 1 for line in source.read(stream))
    return CopiedLog(id_of(stream), how, status_in(state), lines_of(state), size, 0)


def arrived(target: Store, stream: str, brought: Brought) -> CopiedLog:
    """The report of a log that was brought; from here on the target knows its facts."""
    state = load_any(target, stream)
    target.remember(stream, facts_in(state), lines_of(state))
    return CopiedLog(
        id_of(stream), brought.how, status_in(state), brought.events, brought.size_bytes,
        brought.blobs,
    )  # fmt: skip
