"""What was acknowledged, and whether a store still has it.

Whoever writes says so in **marks**, small lists that fit a line of JSON. `Promises` folds them to
what a store must hold; `broken` opens the store and says what it does not.

    ["append", stream, seq, sum]    the lines up to `seq` are durable, the last one has that sum
    ["blob", digest]                a blob is durable
    ["post", stream, name]          a message is durable
    ["unpost", stream, name]        it is about to be taken out: from now on it may be gone
    ["deleting", stream]            it is about to be deleted: all of it may be gone, or nothing
    ["deleted", stream]             it is gone for good
    ["making", stream]              it is about to be made, perhaps anew
    ["failed", error]               something was refused, and nothing acknowledged
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from holdfast.errors import HoldfastError, LogDamaged, StoreError, TaskBusy
from holdfast.log import chain
from holdfast.log.store_calls import (
    acquire_one,
    due_in,
    facts_of_all,
    inbox_of,
    streams_in,
    sync_one,
)
from holdfast.stores.port import Facts, Store

Mark = list[str | int]
T = TypeVar("T")

STUCK = "nothing is lost, but a person has to look at line"
"""How a log is told of that has a damaged line where none was acknowledged."""

PATIENCE_S = 20.0
"""How long a lease of somebody who is gone may stand in the way."""


class Promises:
    """What a store must hold."""

    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.heads: dict[str, tuple[int, str]] = {}
        self.going: set[str] = set()
        self.gone: set[str] = set()
        self.blobs: set[str] = set()
        self.posts: dict[tuple[str, str], bool] = {}
        self.failures: list[str] = []
        self.count = 0
        for mark in marks:
            self.hear(mark)

    def hear(self, mark: Mark) -> None:
        """Take a mark in."""
        what, *given = mark
        getattr(self, f"_{what}")(*given)
        self.count += what in ("append", "blob", "post", "deleted")

    def hear_late(self, mark: Mark) -> None:
        """Take in a mark that counts no more, but may tell that something is gone."""
        what, *given = mark
        if what in ("making", "unpost", "deleting"):
            self.hear(mark)
        elif what == "deleted":
            self.heads.pop(str(given[0]), None)

    def _append(self, stream: str, seq: int, total: str) -> None:
        self.heads[stream] = seq, total
        self.going.discard(stream)

    def _blob(self, digest: str) -> None:
        self.blobs.add(digest)

    def _post(self, stream: str, name: str) -> None:
        self.posts[stream, name] = True

    def _unpost(self, stream: str, name: str) -> None:
        self.posts[stream, name] = False

    def _deleting(self, stream: str) -> None:
        self.going.add(stream)
        for post in self.posts:
            if post[0] == stream:
                self.posts[post] = False

    def _deleted(self, stream: str) -> None:
        self.heads.pop(stream, None)
        self.going.discard(stream)
        self.gone.add(stream)

    def _failed(self, error: str) -> None:
        self.failures.append(error)

    def _making(self, stream: str) -> None:
        self.gone.discard(stream)


def data_of(name: str) -> bytes:
    """What is in a message: told by its name, so that nobody has to remember it."""
    return name.encode() * 7


def is_due(seq: int) -> bool:
    """Whether a stream says, after this line, that somebody should drive it."""
    return seq % 3 == 0


def broken(store: Store, promises: Promises) -> list[str]:
    """How a store breaks what was promised; it is written to, to see that one can go on."""
    found: list[str] = []
    for what in (_logs, _blobs, _posts, _lists):
        try:
            found += what(store, promises)
        except (HoldfastError, OSError) as error:
            found.append(f"{type(error).__name__}: {error}")
    if not found:
        for stream in sorted({*promises.heads, *streams_in(store, "tasks/"), "tasks/next"}):
            try:
                promises.hear(["making", stream])
                promises.hear(go_on(store, stream))
            except (HoldfastError, OSError, AssertionError) as error:
                found.append(f"{stream}: can't go on: {type(error).__name__}: {error}")
    return found


def lines_of(store: Store, stream: str) -> list[bytes]:
    """The lines of a stream, each of which has to fit the one before it, or `LogDamaged`."""
    lines = list(store.read(stream))
    if (whole := _whole(lines)) < len(lines):
        raise LogDamaged(stream, whole + 1, "it does not follow the line before it")
    return lines


def _whole(lines: list[bytes]) -> int:
    """How many lines there are until one is wrong."""
    total = chain.ROOT
    for number, line in enumerate(lines):
        after = chain.check(total, line)
        if after is None or msgspec.json.decode(line)["seq"] != number + 1:
            return number
        total = after
    return len(lines)


def _logs(store: Store, promises: Promises) -> Iterable[str]:
    for stream in sorted({*promises.heads, *promises.gone, *streams_in(store, "tasks/")}):
        try:
            lines = list(store.read(stream))
        except StoreError as error:
            yield f"{stream}: does not open: {error}"
            continue
        whole = _whole(lines)
        seq, total = promises.heads.get(stream, (0, ""))
        if not lines and stream in promises.going:
            continue
        if stream in promises.gone and lines:
            yield f"{stream}: was deleted, and is back with {len(lines)} lines"
        elif whole < seq:
            yield f"{stream}: {seq} lines were acknowledged, {whole} are there"
        elif seq and chain.sum_of(lines[seq - 1]).decode() != total:
            yield f"{stream}: line {seq} is not the one that was acknowledged"
        elif whole < len(lines):
            yield f"{stream}: {STUCK} {whole + 1}, beyond the {seq} that were acknowledged"
        for line in lines[:whole]:
            digest = msgspec.json.decode(line)["blob"]
            if digest and digest not in promises.blobs:
                store.get_blob(digest)  # its mark may have been lost on the way to us


def _blobs(store: Store, promises: Promises) -> Iterable[str]:
    for digest in promises.blobs:
        store.get_blob(digest)
    return ()


def _posts(store: Store, promises: Promises) -> Iterable[str]:
    streams = {stream for stream, _ in promises.posts}
    there = [(post.stream, post.name) for post in inbox_of(store, streams)]
    for post, must_be in promises.posts.items():
        if must_be and post not in there:
            yield f"the message {post} was acknowledged, and is gone"
    if len(there) != len(set(there)):
        yield "a message is there twice"
    for message in inbox_of(store, streams):
        if message.data != data_of(message.name):
            yield f"the message {message.name} is not what was left"


def _lists(store: Store, promises: Promises) -> Iterable[str]:
    """Facts are right or unknown, and what is due is found."""
    listed = list(streams_in(store, "tasks/"))
    if len(listed) != len(set(listed)):
        yield f"a stream is listed twice: {listed}"
    for stream in promises.gone.intersection(listed):
        yield f"{stream}: was deleted, and is listed"
    told = dict(facts_of_all(store, "tasks/"))
    due = {stream for stream, _ in due_in(store, "tasks/", datetime.now(UTC))}
    for stream in promises.heads:
        seq = len(list(store.read(stream)))
        facts = told.get(stream)
        if seq and stream not in told:
            yield f"{stream}: is in no list"
        elif facts is not None and facts.status != str(seq):
            yield f"{stream}: is at {seq}, and listed as at {facts.status}"
        if seq and is_due(seq) and stream not in due:
            yield f"{stream}: is due, and nobody would find it"


def facts_at(seq: int, stream: str) -> Facts:
    """The facts after a line."""
    at = datetime(2031, 5, 4, tzinfo=UTC) if not is_due(seq) else datetime(2021, 5, 4, tzinfo=UTC)
    return Facts(
        task="torture",
        status=str(seq),
        created_at=datetime(2021, 5, 4, tzinfo=UTC),
        updated_at=datetime(2021, 5, 5, tzinfo=UTC),
        wake_at=at,
    )


def sealed(
    before: bytes, stream: str, seq: int, by: str, blob: str = "", size: int = 0
) -> tuple[bytes, bytes]:
    """A line that follows another, and its sum."""
    body = {"seq": seq, "id": stream.split("/", 1)[1], "by": by, "blob": blob, "pad": "." * size}
    return chain.seal(before, msgspec.json.encode(body))


def go_on(store: Store, stream: str, lines: int = 2) -> Mark:
    """Append to a stream as whoever finds it would; returns what was acknowledged."""
    lease = patiently(lambda: acquire_one(store, stream, "who goes on", PATIENCE_S))
    try:
        found = lines_of(store, stream)
        total = chain.sum_of(found[-1]) if found else chain.ROOT
        seq, added = len(found), []
        for number in range(seq + 1, seq + lines + 1):
            line, total = sealed(total, stream, number, "who goes on")
            added.append(line)
        store.append(lease, seq, added, facts_at(seq + lines, stream))
        sync_one(store, lease)
        assert lines_of(store, stream) == found + added, "what was added can't be read"
        return ["append", stream, seq + lines, total.decode()]
    finally:
        store.release([lease])


def patiently(act: Callable[[], T]) -> T:
    """Do what a lease of somebody who is gone may stand in the way of."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except TaskBusy:
            if time.monotonic() > give_up_at:
                raise
        time.sleep(0.01)
