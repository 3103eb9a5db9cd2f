"""What a disk may hold after a crash: a model, from the operations that were recorded.

A crash may come after any operation. What was synced by then is there. Of the rest, each on its
own:

- a *name* that was made, removed or replaced since its folder was synced may be so or not; only a
  rename is all or nothing;
- a *permission* that was taken away may be back, though the file was synced;
- a *file* that was written or cut since it was synced may hold any prefix of that, torn at any
  byte; it may have grown without the bytes (zeros); or each of its sectors may be old or new.

That is more than ext4 and xfs do, which keep the order of names: what survives this model does not
depend on their manners. Not in it are disks that lose what they said was synced, and zeros where
a byte was synced.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from random import Random

from msgspec import Struct

from tests.torture.recording import (
    ROOT,
    Closed,
    Cut,
    Linked,
    Made,
    Operation,
    Removed,
    Renamed,
    Said,
    Synced,
    SyncedAll,
    Wrote,
)

SECTOR_BYTES = 512


class Named(Struct, frozen=True):
    """A change of the names in a folder: what each is of now, None if it is gone."""

    folder: int
    names: tuple[tuple[str, int | None], ...]


class State(Struct):
    """What a disk holds: of each folder the names, of each file the bytes."""

    names: dict[int, dict[str, int]]
    data: dict[int, bytes]
    closed: set[int]
    """Which files may not be written any more."""
    has_holes: bool = False
    """Whether a sector that was not synced is missing while a later one of its file is there."""

    def make(self, place: Path, node: int = ROOT) -> None:
        """Put it into a real folder."""
        os.mkdir(place, 0o700)
        for name, inner in self.names[node].items():
            if inner in self.names:
                self.make(place / name, inner)
            else:
                fd = os.open(place / name, os.O_WRONLY | os.O_CREAT, 0o600)
                os.write(fd, self.data.get(inner, b""))
                if inner in self.closed:
                    os.fchmod(fd, 0o400)
                os.close(fd)

    def digest(self, node: int = ROOT) -> bytes:
        """Tells states apart."""
        total = sha256()
        for name, inner in sorted(self.names[node].items()):
            total.update(name.encode() + (b"\0", b"\1")[inner in self.closed])
            content = self.digest(inner) if inner in self.names else self.data.get(inner, b"")
            total.update(len(content).to_bytes(8) + content)
        return total.digest()


class Medium:
    """A disk while operations are done to it: what is safe, and what is not yet."""

    def __init__(self) -> None:
        self.safe = State({ROOT: {}}, {}, set())
        self.named: list[Named] = []
        """Changes of names that are not safe yet."""
        self.written: dict[int, list[Wrote | Cut]] = {}
        """Of each file, the writes that are not safe yet."""
        self.closed: set[int] = set()
        """Files that may not be written any more. To sync their bytes does not make that safe."""
        self._now: dict[int, dict[str, int]] = {ROOT: {}}

    def do(self, operation: Operation) -> None:
        """Take an operation in."""
        match operation:
            case Made(folder, name, node, is_folder):
                if is_folder:
                    self.safe.names[node] = {}
                    self._now[node] = {}
                self._change(folder, ((name, node),))
            case Renamed(folder, old, new):
                node = self._now[folder][old]
                self._change(folder, ((old, None), (new, node)))
            case Linked(folder, old, new):
                self._change(folder, ((new, self._now[folder][old]),))
            case Removed(folder, name):
                self._change(folder, ((name, None),))
            case Wrote(node) | Cut(node):
                self.written.setdefault(node, []).append(operation)
            case Closed(node):
                self.closed.add(node)
            case Synced(node):
                self._sync(node)
            case SyncedAll():
                for node in (*self.safe.names, *list(self.written)):
                    self._sync(node)
                self.safe.closed |= self.closed
                self.closed = set()
            case Said():
                pass

    def _sync(self, node: int) -> None:
        if node in self._now:
            for change in self.named:
                if change.folder == node:
                    _apply(self.safe.names[node], change)
            self.named = [change for change in self.named if change.folder != node]
        else:
            before = self.safe.data.get(node, b"")
            self.safe.data[node] = _written(before, self.written.pop(node, []))

    def _change(self, folder: int, names: tuple[tuple[str, int | None], ...]) -> None:
        change = Named(folder, names)
        _apply(self._now[folder], change)
        self.named.append(change)

    def state(self, kept: set[int], content: dict[int, bytes], closed: set[int]) -> State:
        """The state in which, of what is not safe, these names, this content and this is so."""
        has_holes = any(self._has_hole(node, data) for node, data in content.items())
        names = {folder: dict(inner) for folder, inner in self.safe.names.items()}
        for number, change in enumerate(self.named):
            if number in kept:
                _apply(names[change.folder], change)
        return State(names, self.safe.data | content, self.safe.closed | closed, has_holes)

    def _has_hole(self, node: int, data: bytes) -> bool:
        before = self.safe.data.get(node, b"")
        after = _written(before, self.written[node])
        is_missing = False
        for at in range(0, len(data), SECTOR_BYTES):
            old, new, now = (part[at : at + SECTOR_BYTES] for part in (before, after, data))
            if is_missing and now == new != old:
                return True
            is_missing = is_missing or now != new
        return False

    def contents(self, node: int) -> list[bytes]:
        """The plain cases of a file: each prefix of its writes, and grown to its size by zeros."""
        before, writes = self.safe.data.get(node, b""), self.written[node]
        found = [_written(before, writes[:upto]) for upto in range(len(writes) + 1)]
        return [*found, before + bytes(max(0, len(found[-1]) - len(before)))]

    def torn(self, node: int, chance: Random) -> bytes:
        """A file in one of the other cases."""
        before, writes = self.safe.data.get(node, b""), self.written[node]
        after = _written(before, writes)
        upto = chance.randrange(len(writes))
        last = writes[upto]
        match chance.randrange(4):
            case 0 | 1 if isinstance(last, Wrote):
                part = last.data[: chance.randint(0, len(last.data))]
                return _written(before, [*writes[:upto], Wrote(node, last.offset, part)])
            case 2:
                done = _written(before, writes[:upto])
                return done + bytes(max(0, len(after) - len(done)))
            case _:
                return _by_sector(before, after, chance)


def _by_sector(before: bytes, after: bytes, chance: Random) -> bytes:
    size = chance.choice((len(after), max(len(before), len(after))))
    old, new = before.ljust(size, b"\0"), after.ljust(size, b"\0")
    parts = range(0, size, SECTOR_BYTES)
    return b"".join(chance.choice((old, new))[at : at + SECTOR_BYTES] for at in parts)[:size]


def _apply(names: dict[str, int], change: Named) -> None:
    for name, node in change.names:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _written(data: bytes, writes: list[Wrote | Cut]) -> bytes:
    content = bytearray(data)
    for write in writes:
        if isinstance(write, Cut):
            del content[write.size :]
            content.extend(bytes(write.size - len(content)))
        else:
            content.extend(bytes(max(0, write.offset - len(content))))
            content[write.offset : write.offset + len(write.data)] = write.data
    return bytes(content)


def states(medium: Medium, chance: Random, sampled: int) -> Iterator[State]:
    """What the disk may hold if the power fails now: the plain cases, and some at random."""
    every, closed = set(range(len(medium.named))), medium.closed
    nodes = list(medium.written)
    none: dict[int, bytes] = {}
    whole = {node: medium.contents(node)[-2] for node in nodes}
    zeros = {node: medium.contents(node)[-1] for node in nodes}
    for names, content in itertools.product((set[int](), every), (none, whole, zeros)):
        yield medium.state(names, content, closed)
    for number in every:
        yield medium.state(every - {number}, whole, closed)
        yield medium.state({number}, none, closed)
    for node in nodes:
        for data in medium.contents(node):
            yield medium.state(every, whole | {node: data}, closed)
    for _ in range(sampled if every or nodes or closed else 0):
        names = {number for number in every if chance.random() < chance.choice((0.2, 0.5, 0.9))}
        some = {node for node in closed if chance.random() < 0.5}
        yield medium.state(names, {node: medium.torn(node, chance) for node in nodes}, some)
