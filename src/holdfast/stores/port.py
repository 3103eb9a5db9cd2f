"""The port to where logs live, and its rules in words.

A store keeps **streams** (one log each, named `tasks/<id>`) of **lines** (opaque bytes without a
newline), and **blobs**. It knows nothing of tasks, events or sums. (A line that is a JSON object
with a `seq` says its own number there, and the first line of a log has the stream's id as `id`: a
store may make use of that.) Its rules:

1. *Append is guarded.* The lines are added if the stream's head is `expected_seq` and the lease
   is the newest one; else nothing changes and `Conflict` or `LeaseLost` is raised, `LeaseLost` at
   the latest by the `sync` that would have acknowledged them.
2. *Synced means durable.* When `sync` returns, every line appended under the lease so far
   survives a power cut. A line that was appended but not yet synced may be lost in a crash, and
   then so are all lines after it: what is left is always a prefix.
3. *A stale writer is never acknowledged.* Taking a lease over ends the older one: what it synced
   is in the log as the new holder reads it; a sync under way either is too, or raises `LeaseLost`.
4. *Reading needs no lease and changes nothing.* A reader sees a prefix of what was appended: at
   least what was synced, and all of what was appended by the same store object.
5. *Failure poisons.* After a failed write or sync the lease is of no use: what is on the disk is
   unknown until a new one is taken, which reads it anew.
6. *Facts are a copy.* The facts that `find` tells of streams without reading them may be missing or
   out of date after a crash. It errs on one side: a worker may look at a stream in vain, but its
   next full look finds every stream that has work.
7. *An inbox is for callers without a lease.* A message is durable when `put_side` returns, is there
   once for each name, and stays until the holder of the lease has taken it out.
8. *A stream gets another name at once,* whole and with its lease, or keeps the one it had.
9. *A blob that was just put stays.* A writer puts a blob, then names it in a line. So a blob has
   an age, known to the minute and counted from its last put, and `delete_blob` spares blobs that
   are younger than it is told. The two do not cross: when `put_blob` returns, the blob is there,
   is young, and is whole. A put trusts no blob by its name, and replaces one that holds other
   bytes.
10. *A page is complete.* `find` gives the newest streams whose facts match, each once, in one order
   for all stores: by `created_at`, then by name, the greatest first. It goes by an index and reads
   no log; streams whose facts it does not know, and which may belong on the page, are named beside
   it for the caller to read. A stream that is added, or removed, moves no other to another page.
11. *Many are asked for at once.* `acquire`, `sync` and `release` take many streams, and one is the
   case of many. They return, for each in order, its result or its error. Each is treated as it
   would be alone: an error of one is told to that one, and nothing is acknowledged to a lease that
   was taken over meanwhile.
12. *What is derived is a copy too.* It stands beside a stream, by name, and is made of its lines,
   or of what will be in them: waypoints, words to search for, parts of a step that still streams.
   It may be lost or deleted at any time, and need not be durable;
   its reader finds out whether it is whole, and of this log. It goes with its stream when that is
   deleted or renamed. A store that must not show what is in its lines hides what is in these.

Stores are synchronous. The async driver calls them off the loop. A store that can tell of news as
it happens has one method more: see `holdfast.log.reading`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from holdfast.core.facts import LONGEST_PAGE, MOST_LABELS, Facts, Page, PagePlace, Query
from holdfast.errors import StoreError

__all__ = [
    "BLOB_AGE_S",
    "DERIVED_NAME",
    "LONGEST_PAGE",
    "MOST_LABELS",
    "Blob",
    "Facts",
    "Holder",
    "Lease",
    "Leftovers",
    "Page",
    "PagePlace",
    "Post",
    "Query",
    "SideKind",
    "Store",
    "held_for",
]


class Lease(Struct, frozen=True, eq=False):
    """The right to append to one stream, until a newer one is taken. Equal only to itself."""

    stream: str
    owner: str
    epoch: int
    head: int | None = None
    """How many lines the stream had when the lease was taken, where the store says so."""


class Holder(Struct, frozen=True):
    """The holder of a lease, as others see it."""

    name: str
    until: datetime | None = None
    """When the lease ends unless it is renewed, where the store knows."""

    def __str__(self) -> str:
        return self.name


def held_for(name: str, left_s: float) -> Holder:
    """A holder whose lease is good for so many seconds from now."""
    # A row that somebody spoiled may say anything.
    return Holder(name, datetime.now(UTC) + timedelta(seconds=min(left_s, 1e9)))


SideKind = Literal["inbox", "derived"]
"""Messages (rule 7), or bytes that were derived from the lines of a stream (rule 12)."""


DERIVED_NAME = re.compile(r"([0-9]{1,18})\.([a-z]{1,20})")


class Post(Struct, frozen=True):
    """Something beside a stream: a message in its inbox, or derived bytes."""

    stream: str
    name: str
    data: bytes


class Blob(Struct, frozen=True):
    """A blob as a store lists it."""

    digest: str
    size_bytes: int
    age_s: float
    """How long ago it was last put, by the store's own clock."""


class Leftovers(Struct, frozen=True):
    """The files that crashed writers left behind: how many things, and how large they are."""

    count: int = 0
    size_bytes: int = 0


BLOB_AGE_S = 60.0
"""A put of a blob that is younger than this need not make it younger still."""


class Store(Protocol):
    """Where logs live. See the rules at the top of this module."""

    @property
    def url(self) -> str:
        """How a person would name this store: in messages, and to open it again."""

    def acquire(
        self, streams: Sequence[str], owner: str, lease_s: float
    ) -> Sequence[Lease | StoreError]:
        """Take the lease of each stream (made by its first append). `TaskBusy` if another has it.

        A lease that its holder has not renewed for the `lease_s` it asked for may be taken over. Of
        a stream that is named twice the second is busy.
        """

    def holder(self, stream: str) -> Holder | None:
        """The holder at work on a stream now, as far as can be told without disturbing it."""

    def renew(self, lease: Lease) -> None:
        """Say that the holder is alive. `LeaseLost` if it holds the lease no more.

        When it returns, nobody has taken the lease over, nor can anybody before its time is over,
        counted from the call: also if it had run out before, and somebody wants it just now.
        """

    def release(self, leases: Sequence[Lease]) -> None:
        """Give leases back. Doing so twice, or late, is no error."""

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

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        """Make what was appended under these leases durable, each of them named once.

        Threads that sync at once share the work.
        """

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        """The lines after `after_seq`; none if there is no such stream.

        In order, or `backwards` from the newest, and read only as far as they are asked for.
        """

    def find(self, query: Query) -> Page:
        """The streams that match a query. `holdfast.stores.finding.find` makes it of all facts."""

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        """Keep the facts of a log that was read up to `seq`, if it still ends there."""

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        """Keep bytes beside a stream; False if nothing was kept.

        A message is kept if there is none of that name. Derived bytes replace those of that name,
        and are kept only beside a stream that is there. Their name is a number and a word, such as
        `1024.head`.
        """

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        """The data kept beside streams: all, or what has one of these names. Messages come in
        order, the oldest first. With `only_names` the bytes are left out."""

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        """Remove what has that name, or all of the kind. It may be gone already."""

    def delete(self, lease: Lease) -> None:
        """Remove the leased stream, for good, and with it the lease."""

    def rename(self, lease: Lease, stream: str) -> None:
        """Give the leased stream another name, durably, and give the lease back.

        `Conflict` if there is a stream of that name, `TaskBusy` if somebody holds it.
        """

    def put_blob(self, data: bytes, name: str = "") -> str:
        """Keep bytes under the sha256 of their content, durably; returns its hex digits.

        Or under `name` (64 hex digits), if the caller verifies the bytes itself.
        """

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        """The bytes of a blob. `LogDamaged` if it is gone, or its name is not their sha256.

        The latter only if `checked`.
        """

    def blobs(self) -> Iterator[Blob]:
        """Every blob, in no order. Some may be put or deleted meanwhile."""

    def delete_blob(self, digest: str, older_than_s: float) -> bool:
        """Remove a blob that was last put longer ago than that; False if there is none so old."""

    def sweep(
        self, older_than_s: float, torn_older_than_s: float | None = None, *, dry_run: bool = False
    ) -> Leftovers:
        """Remove what crashed writers left behind, if it is older than that; say what it was.

        Torn tails, which were kept aside for people to look at, go only if an age is given.
        """

    def close(self) -> None:
        """Release every lease this object holds and free what it uses."""
