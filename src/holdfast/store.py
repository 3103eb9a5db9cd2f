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
6. *Facts are a copy.* What a store tells of streams without reading them (`facts`, `due`) may be
   missing or out of date after a crash, but errs on one side only: a stream that has something to
   do is never kept from those who look for work for longer than it takes them to look anew.
7. *An inbox is for who holds no lease.* A message is durable when `post` returns, is there once
   for each name, and stays until the holder of the lease has taken it.
8. *A stream gets another name at once,* whole and with its lease, or keeps the one it had.
9. *A blob that was just put stays.* Who puts one names it in a line soon after. So a blob has an
   age, counted from its last put, also where it was there before (and known to the minute), and is
   deleted only if it is older than the one who deletes it says. The two do not cross: when
   `put_blob` returns, the blob is there and is young. It is whole, too: a put believes no blob
   because of its name, and replaces one that holds other bytes.
10. *A page is complete.* `find` gives the newest streams whose facts match, each once, in one order
   for all stores: by `created_at`, then by name, the greatest first. It goes by an index and reads
   no log; streams whose facts it does not know, and which may belong on the page, are named beside
   it for the caller to read. A stream that is added, or removed, moves no other to another page.
11. *Many may be asked for at once.* A store that can do so for the price of one has the methods of
   `ManyAtOnce` besides. Each lease in such a call is treated as it would be alone: what goes wrong
   with one is told to that one, and nothing is acknowledged to one that was taken over meanwhile.
12. *An index of texts is a copy too.* A store that can search has the method of `TextSearch`
   besides. Its index says up to which line of a stream it goes, and moves from there to a later one
   at once, with the words of the lines between, or not at all: of two that bring it up to date,
   one does. It goes with its stream. A store that must not show what is in its lines has none.

13. *Waypoints are a copy too.* A store that can keep them has the method of `WaypointStore`
   besides: bytes beside a stream, by an event's number and the name of a part. They are made of its
   lines, and go with it when it is deleted or renamed. They may be lost or deleted at any time, and
   need not be durable; whoever reads one finds out whether it is whole, and of this log. A store
   that must not show what is in its lines hides what is in these.

Stores are synchronous. The async driver calls them off the loop. One that can tell of news as they
happen has one method more: see `holdfast.news`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

from msgspec import Struct

from holdfast.errors import BadInput, StoreError
from holdfast.facts import Facts
from holdfast.words import must_be_texts

__all__ = [
    "BLOB_AGE_S",
    "LONGEST_PAGE",
    "MOST_LABELS",
    "Blob",
    "Facts",
    "Lease",
    "Leftovers",
    "ManyAtOnce",
    "Page",
    "Place",
    "Post",
    "Query",
    "Store",
    "TextIndex",
    "TextSearch",
    "WaypointStore",
    "Waypoints",
]

LONGEST_PAGE = 1000
MOST_LABELS = 100
"""In one query: a database has its limits."""


class Lease(Struct, frozen=True, eq=False):
    """The right to append to one stream, until a newer one is taken. Equal only to itself."""

    stream: str
    owner: str
    epoch: int
    head: int | None = None
    """How many lines the stream had when the lease was taken, where the store says so."""


class Place(NamedTuple):
    """Where a stream stands in a list: the order of a page, and where the next one begins."""

    created_at: datetime
    stream: str


class Query(Struct, frozen=True, kw_only=True):
    """Which streams, and how many of them. What is left out (None, or empty) matches everything.

    Texts match what is equal to them and nothing else. Of two times, `after` is included and
    `before` is not, so that neither a task is missed between two spans nor counted in both.
    """

    prefix: str = "tasks/"
    status: tuple[str, ...] = ()
    """Any of these."""
    task: str | None = None
    user: str | None = None
    session: str | None = None
    parent: str | None = None
    origin: str | None = None
    labels: dict[str, str] = {}
    """All of these."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    updated_after: datetime | None = None
    updated_before: datetime | None = None
    limit: int = 50
    beyond: Place | None = None
    """Only what comes after this place: the last one of the page before."""

    def __post_init__(self) -> None:
        # Here, so that whatever a store is given to bind to its SQL is of the right kind.
        for name in ("task", "user", "session", "parent", "origin"):
            if getattr(self, name) is not None:
                must_be_texts("a query", **{name: getattr(self, name)})
        for status in self.status:
            must_be_texts("a query", status=status)
        _must_be_labels(self.labels)
        for name in ("created_after", "created_before", "updated_after", "updated_before"):
            _must_be_a_time(name, getattr(self, name))
        if type(self.limit) is not int or not 1 <= self.limit <= LONGEST_PAGE:
            raise BadInput(
                f"a query: limit={self.limit!a:.60} must be 1 to {LONGEST_PAGE}, the longest page: "
                f"for more, take the next page by its cursor"
            )


def _must_be_labels(labels: object) -> None:
    if not isinstance(labels, dict) or len(labels) > MOST_LABELS:
        raise BadInput(
            f"a query: labels={labels!a:.60} must be a dict of at most {MOST_LABELS} texts"
        )
    for name, value in labels.items():
        must_be_texts("a query", **{"the name of a label": name, "a label": value})


def _must_be_a_time(name: str, time: object) -> None:
    if time is None or (isinstance(time, datetime) and time.utcoffset() is not None):
        return
    raise BadInput(
        f"a query: {name}={time!a:.60} must be a datetime with its time zone, such as "
        f"datetime(2026, 1, 1, tzinfo=UTC)"
    )


class Page(Struct, frozen=True):
    """What a store found, in order, and what it can't tell anything of without reading it."""

    found: Sequence[tuple[str, Facts]] = ()
    more: bool = False
    """Whether there are others that match, after those found."""
    unknown: Sequence[str] = ()


class Post(Struct, frozen=True):
    """A message in the inbox of a stream."""

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
    """What crashed writers left behind: how many things, and how large they are."""

    count: int = 0
    size_bytes: int = 0


BLOB_AGE_S = 60.0
"""A put of a blob that is younger than this need not make it younger still."""


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
        """Say that the holder is alive. `LeaseLost` if it holds the lease no more.

        When it returns, nobody has taken the lease over, nor can anybody before its time is over,
        counted from the call: also if it had run out before, and somebody wants it just now.
        """

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

    def find(self, query: Query) -> Page:
        """A page of the streams that match. `holdfast.finding.find` makes it of `facts`."""

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

    def rename(self, lease: Lease, stream: str) -> None:
        """Give the leased stream another name, durably, and give the lease back.

        `Conflict` if there is a stream of that name, `TaskBusy` if somebody holds it.
        """

    def put_blob(self, data: bytes, name: str = "") -> str:
        """Keep bytes under the sha256 of their content, durably; returns its hex digits.

        Or under another `name` of 64 hex digits, for who can tell otherwise that they are right.
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


class TextIndex(Protocol):
    """Which lines of a stream hold which words. Derived from the log, and free to be deleted.

    Words are letters and digits, folded, at most 64 characters (see `holdfast.texts`).
    """

    def upto(self, stream: str) -> int:
        """Up to which line it goes; 0 if there is none, or no such stream."""

    def add(
        self,
        stream: str,
        after_seq: int,
        upto_seq: int,
        texts: Sequence[tuple[int, Sequence[str]]],
        gone: Sequence[int],
    ) -> None:
        """Go on from `after_seq` to `upto_seq`, at once; if it is elsewhere, change nothing.

        `texts` are lines with their words, in order and with repetitions; the lines in `gone` are
        not to be found any more. From 0 on it is made anew, whatever was left of another.
        """

    def find(self, stream: str, words: Sequence[str], limit: int) -> Sequence[tuple[int, float]]:
        """The lines that hold any of the words, at least one, and how well they match (above 0).

        The best first; of equal ones the newest.
        """

    def drop(self, stream: str) -> None:
        """Delete it. It may be gone already."""


@runtime_checkable
class TextSearch(Protocol):
    """What a store may have besides: search in texts that it keeps an index of."""

    def text_index(self) -> TextIndex | None:
        """The index; None where the database was built without what it takes."""


class Waypoints(Protocol):
    """States along streams: see `holdfast.waypoints.encoding`, which makes and reads them."""

    def put(self, stream: str, seq: int, part: str, data: bytes) -> None:
        """Keep a part of the waypoint after an event, in place of the one there was.

        Of a stream that is not there nothing is kept. A part has a plain name of a few letters.
        """

    def get(self, stream: str, seqs: Sequence[int], part: str) -> Mapping[int, bytes]:
        """That part of each of these waypoints, as far as they are there."""

    def seqs(self, stream: str) -> Sequence[int]:
        """The events after which there is a waypoint, in no order."""

    def drop(self, stream: str) -> None:
        """Delete those of a stream. They may be gone already."""


@runtime_checkable
class WaypointStore(Protocol):
    """What a store may have besides: a place for waypoints."""

    def waypoints(self) -> Waypoints | None:
        """That place; None where a store around this one can't use it."""
