"""The knowledge of a store in a database about the streams it holds, between acquiring and
releasing.

An append is checked here against what the holder knows, and put in line to be written; the
database checks it again, in the transaction that writes it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from holdfast.errors import Conflict, LeaseLost, StorageFailed, StoreError, TaskBusy
from holdfast.stores.groups import GroupedWrite
from holdfast.stores.port import Facts, Lease

T = TypeVar("T")
R = TypeVar("R")


class HeldLines(GroupedWrite):
    """Lines to be added to a stream that is held."""

    __slots__ = ("facts", "held", "lines", "seq")

    def __init__(self, held: Held, seq: int, lines: Sequence[bytes], facts: Facts | None) -> None:
        super().__init__()
        self.held: Held = held
        self.seq: int = seq
        self.lines: Sequence[bytes] = lines
        self.facts: Facts | None = facts

    def fail(self, error: StoreError) -> None:
        """It was not written, or nobody knows: the lease is of no use any more."""
        super().fail(error)
        self.held.spoil(error)

    def refusal(self, epoch: int | None, head: int) -> StoreError:
        """The error for a stream that is not as its holder knows it; no epoch if it is gone."""
        lease = self.held.lease
        if epoch != lease.epoch:
            return taken_over(lease)
        return not_there(lease.stream, head, self.seq)


class Held:
    """One stream held for writing."""

    __slots__ = ("head", "id", "lease", "newest", "trouble", "writing")

    def __init__(self, lease: Lease, id: int, head: int) -> None:
        self.lease: Lease = lease
        self.id: int = id
        self.head: int = head
        self.newest: HeldLines | None = None
        self.trouble: StoreError | None = None
        self.writing: threading.Lock = threading.Lock()

    def append(
        self,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None,
        add: Callable[[HeldLines], None],
    ) -> None:
        """Put lines in line to be written."""
        with self.writing:
            if self.trouble is not None:
                self.must_be_sound()
            if self.head != expected_seq:
                raise not_there(self.lease.stream, self.head, expected_seq)
            job = HeldLines(self, expected_seq, list(lines), facts)
            self.head += len(job.lines)
            self.newest = job
            add(job)

    def spoil(self, error: StoreError) -> None:
        """From now on nothing more may be written under this lease."""
        if self.trouble is None:
            self.trouble = error

    def must_be_sound(self) -> None:
        """Raise what makes the lease useless, if anything does."""
        error = self.trouble
        if isinstance(error, StorageFailed):
            raise StorageFailed(
                f"{self.lease.stream}: an earlier write failed ({error}), so what was written is "
                f"not known: run the task again to read it anew"
            )
        if error is not None:
            raise type(error)(str(error))


class Leases:
    """The streams that one store holds."""

    def __init__(self) -> None:
        self._held: dict[Lease, Held] = {}
        self._newest: dict[str, Held] = {}

    def add(self, lease: Lease, id: int, head: int) -> Lease:
        """Hold a stream; an earlier holder in this process holds it no more."""
        before = self._newest.get(lease.stream)
        if before is not None:
            before.spoil(taken_over(before.lease))
        self._newest[lease.stream] = self._held[lease] = Held(lease, id, head)
        return lease

    def of(self, lease: Lease) -> Held:
        """The stream that is held by a lease."""
        held = self._held.get(lease)
        if held is None:
            raise LeaseLost(
                f"{lease.stream}: this lease was given back, or is that of a process which forked"
            )
        return held

    def drop(self, lease: Lease) -> Held | None:
        """Hold a stream no more."""
        held = self._held.pop(lease, None)
        if held is not None and self._newest.get(lease.stream) is held:
            del self._newest[lease.stream]
        return held

    def all(self) -> list[Lease]:
        """Every lease."""
        return list(self._held)


def taken_over(lease: Lease) -> LeaseLost:
    """The error for a holder that is none any more."""
    return LeaseLost(
        f"{lease.stream} was taken over from {lease.owner}, or deleted: this process may write "
        f"no more of it, and what it did since is settled by the other"
    )


def not_there(stream: str, head: int, expected_seq: int) -> Conflict:
    """The error for an append at the wrong place."""
    return Conflict(f"{stream} is at event {head}, the writer thought {expected_seq}")


def busy(stream: str, owner: str, silent_s: float, lease_s: float) -> TaskBusy:
    """The error raised when a stream that another holds is asked for."""
    return TaskBusy(
        f"{stream} is being driven by {owner or 'another process'}, alive {max(silent_s, 0):.0f} s "
        f"ago. Wait for it to end; if it hangs, its lease of {lease_s:g} s runs out and this can "
        f"be tried again"
    )


def each(ask: Callable[[T], R], items: Iterable[T]) -> list[R | StoreError]:
    """The outcomes of asking for each, one after the other: a result, or what was raised."""
    outcomes: list[R | StoreError] = []
    for item in items:
        try:
            outcomes.append(ask(item))
        except StoreError as error:
            outcomes.append(error)
    return outcomes
