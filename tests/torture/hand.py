"""A hand that writes: acts at random on a store, by its port alone, and says what was acknowledged.

A mark is said after the call that acknowledges has returned, never before (and before the call,
where a thing may be gone from then on).
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from holdfast.errors import LeaseLost
from holdfast.log import chain
from holdfast.log.store_calls import acquire_one, post_to, sync_one, unpost
from holdfast.stores.port import Lease, Store
from tests.torture.promises import Mark, data_of, facts_at, lines_of, sealed

Tell = Callable[[Mark], None]


class Stream:
    """One stream as its holder knows it."""

    def __init__(self, lease: Lease, lines: list[bytes]) -> None:
        self.lease = lease
        self.seq = len(lines)
        self.total = chain.sum_of(lines[-1]) if lines else chain.ROOT


class Hand:
    """Somebody who holds a few streams and writes to them."""

    ACTS = (
        ("write", 12),
        ("write_much", 2),
        ("write_everywhere", 2),
        ("write_unsynced", 2),
        ("write_blob", 2),
        ("post", 3),
        ("unpost", 1),
        ("remember", 2),
        ("let_go", 2),
        ("delete", 1),
    )

    def __init__(
        self, store: Store, name: str, chance: Random, tell: Tell, lease_s: float = 30.0
    ) -> None:
        self.store = store
        self.name = name
        self.chance = chance
        self.tell = tell
        self.lease_s = lease_s
        self.held: dict[str, Stream] = {}
        self._posts: list[tuple[str, str]] = []
        self._number = 0

    def take(self, stream: str) -> Stream:
        """Take hold of a stream, from whoever has it."""
        if stream not in self.held:
            self.tell(["making", stream])
            lease = acquire_one(self.store, stream, self.name, self.lease_s)
            self.held[stream] = Stream(lease, lines_of(self.store, stream))
        return self.held[stream]

    def act(self, streams: list[str]) -> None:
        """Do something to one of the streams."""
        stream = self.chance.choice(streams)
        names, weights = zip(*self.ACTS, strict=True)
        (what,) = self.chance.choices(names, weights)
        try:
            self.take(stream)
            getattr(self, what)(stream)
        except LeaseLost:
            self.held.pop(stream, None)

    def append(self, stream: str, count: int, size: int = 0, blob: str = "") -> None:
        """Append lines, and do not wait for them."""
        at = self.take(stream)
        lines: list[bytes] = []
        total = at.total
        for seq in range(at.seq + 1, at.seq + count + 1):
            line, total = sealed(total, stream, seq, self.name, blob, size)
            lines.append(line)
        seq = at.seq + count
        self.store.append(at.lease, at.seq, lines, facts_at(seq, stream))
        at.seq, at.total = seq, total

    def sync(self, stream: str) -> None:
        """Wait for what was appended, and say that it is acknowledged."""
        at = self.held[stream]
        seq, total = at.seq, at.total
        sync_one(self.store, at.lease)
        if seq:
            self.tell(["append", stream, seq, total.decode()])

    def write(self, stream: str) -> None:
        self.append(stream, self.chance.choice((1, 1, 1, 2, 3)), self.chance.choice((0, 40, 200)))
        self.sync(stream)

    def write_much(self, stream: str) -> None:
        self.append(stream, self.chance.choice((2, 5)), self.chance.choice((300, 900, 1500)))
        self.sync(stream)

    def write_everywhere(self, stream: str) -> None:
        """Append to all that is held, and sync that together where the store can."""
        for name in list(self.held):
            try:
                self.append(name, 1)
            except LeaseLost:
                del self.held[name]
        held = dict(self.held)
        for name, error in zip(
            held, self.store.sync([at.lease for at in held.values()]), strict=True
        ):
            if error is None:
                self.tell(["append", name, held[name].seq, held[name].total.decode()])
            elif isinstance(error, LeaseLost):
                del self.held[name]
            else:
                raise error

    def write_unsynced(self, stream: str) -> None:
        self.append(stream, 1, self.chance.choice((0, 400)))

    def write_blob(self, stream: str) -> None:
        self._number += 1
        data = f"{self.name} {self._number} ".encode() * self.chance.choice((10, 500, 3000))
        digest = self.store.put_blob(data)
        self.tell(["blob", digest])
        self.append(stream, 1, blob=digest)
        self.sync(stream)

    def post(self, stream: str) -> None:
        self._number += 1
        name = f"{self.name} {self._number}"
        if post_to(self.store, stream, name, data_of(name)):
            self.tell(["post", stream, name])
            self._posts.append((stream, name))

    def unpost(self, stream: str) -> None:
        if self._posts:
            stream, name = self._posts.pop(self.chance.randrange(len(self._posts)))
            self.tell(["unpost", stream, name])
            unpost(self.store, stream, name)

    def remember(self, stream: str) -> None:
        """As whoever lists tasks, and had to read a log."""
        if seq := len(lines_of(self.store, stream)):
            self.store.remember(stream, facts_at(seq, stream), seq)

    def let_go(self, stream: str) -> None:
        self.store.release([self.held.pop(stream).lease])

    def delete(self, stream: str) -> None:
        self.tell(["deleting", stream])
        self.store.delete(self.held[stream].lease)
        del self.held[stream]
        self._posts = [post for post in self._posts if post[0] != stream]
        self.tell(["deleted", stream])
