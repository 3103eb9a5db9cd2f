"""The port to where logs live, and its rules in words.

A store keeps **streams** (one log each, named `tasks/<id>`) of **lines** (opaque bytes without a
newline), and **blobs**. It knows nothing of tasks, events or sums. Its rules:

1. *Append is guarded.* The lines are added if the stream's head is `expected_seq` and the lease
   is the newest one; else nothing changes and `Conflict` or `LeaseLost` is raised, `LeaseLost` at
   the latest by the `sync` that would have acknowledged them.
2. *Synced means durable.* When `sync` returns, every line appended under the lease so far
   survives a power cut. A line that was appended but not yet synced may be lost in a crash, and
   then so are all lines after it: what is left is always a prefix.
3. *A stale writer is never acknowledged.* Taking a lease over ends the older one: what it synced
   is in the log as the new holder reads it; a sync under way either is too, or raises `LeaseLost`.
4. *Reading needs no lease and changes nothing.* A reader sees a prefix of what was appended.
5. *Failure poisons.* After a failed write or sync the lease is of no use: what is on the disk is
   unknown until a new one is taken, which reads it anew.
6. *Facts are a copy.* What a store tells of streams without reading them (`facts`, `due`) may be
   missing or out of date after a crash, but errs on one side only: a stream that has something to
   do is never kept from those who look for work for longer than it takes them to look anew.
7. *An inbox is for who holds no lease.* A message is durable when `post` returns, is there once
   for each name, and stays until the holder of the lease has taken it.
8. *Many may be asked for at once.* A store that can do so for the price of one has the methods of
   `ManyAtOnce` besides. Each lease in such a call is treated as it would be alone: what goes wrong
   with one is told to that one, and nothing is acknowledged to one that was taken over meanwhile.

Stores are synchronous. The async driver calls them off the loop.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

from msgspec import Struct

from holdfast.errors import StoreError
from holdfast.events import NEVER


class Lease(Struct, frozen=True, eq=False):
    """The right to append to one stream, until a newer one is taken. Equal only to itself."""

    stream: str
    owner: str
    epoch: int
    head: int | None = None
    """How many lines the stream had when the lease was taken, where the store says so."""


class Facts(Struct, frozen=True, omit_defaults=True):
    """What is asked of a stream most often: kept beside the log, so that nobody has to read it."""

    task: str = ""
    status: str = ""
    user: str = ""
    session: str = ""
    labels: dict[str, str] = {}
    parent: str = ""
    created_at: datetime = NEVER
    updated_at: datetime = NEVER
    wake_at: datetime | None = None
    """From when on somebody should drive it; None while there is nothing to do."""


class Post(Struct, frozen=True):
    """A message in the inbox of a stream."""

    stream: str
    name: str
    data: bytes


class Store(Protocol):
    """Where logs live. See the rules at the top of this module."""

    @property
    def url(self) -> str:
        """How a person would name this store: in messages, and to open it again."""

    def acquire(self, stream: str, owner: str, lease_s: float) -> Lease:
        """Take the lease of a stream (made by its first append). `TaskBusy` if another has it.

        A lease that its holder has not renewed for the `lease_s` it asked for may be taken over.
        """

    def holder(self, stream: str) -> str | None:
        """Who is at work on a stream now, as far as can be told without disturbing them."""

    def renew(self, lease: Lease) -> None:
        """Say that the holder is alive. `LeaseLost` if it holds the lease no more."""

    def release(self, lease: Lease) -> None:
        """Give the lease back. Doing so twice, or late, is no error."""

    def append(
        self,
        lease: Lease,
        expected_seq: int,
        lines: Sequence[bytes],
        facts: Facts | None = None,
    ) -> None:
        """Add lines after `expected_seq` (0: to a stream that is new). Quick: syncs nothing.

        `facts` are those after the lines, where they differ from what the store was told before.
        """

    def sync(self, lease: Lease) -> None:
        """Make what was appended durable. Threads that sync at once share the work."""

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        """The lines after `after_seq`; none if there is no such stream."""

    def tail(self, stream: str) -> Iterator[bytes]:
        """The lines from the newest to the oldest, read only as far as they are asked for."""

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        """The streams that begin with `prefix`, in no order; None where a log has to be read."""

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        """Keep the facts of a log that was read up to `seq`, if it still ends there."""

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        """The streams that somebody should drive now, as `facts` gives them. Some may be held."""

    def post(self, stream: str, name: str, data: bytes) -> bool:
        """Leave a message for the holder of a stream; False if there is one of that name."""

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        """The messages that were left for streams, the oldest first."""

    def unpost(self, stream: str, name: str) -> None:
        """Take a message out of the inbox. It may be gone already."""

    def streams(self, prefix: str) -> Iterator[str]:
        """The names of the streams that begin with `prefix`, in no order."""

    def delete(self, lease: Lease) -> None:
        """Remove the leased stream, for good, and with it the lease."""

    def put_blob(self, data: bytes) -> str:
        """Keep bytes under the sha256 of their content, durably; returns its hex digits."""

    def get_blob(self, digest: str) -> bytes:
        """The bytes of a blob. `LogDamaged` if it is gone or is not what was put."""

    def close(self) -> None:
        """Release every lease this object holds and free what it uses."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """What a store may have besides, for the many tasks that one event loop drives.

    Returned is, for each in order, the result or what the call for it alone would have raised.
    """

    def acquire_many(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        """`acquire` for many streams. Of a stream that is named twice the second is busy."""

    def sync_many(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        """`sync` for many leases, each of them named once."""

    def release_many(self, leases: Sequence[Lease]) -> None:
        """`release` for many leases."""
