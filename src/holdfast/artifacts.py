"""Artifacts: large files that tasks make, kept in the store and handed on by reference.

The content goes to the store in parts, each a blob of its own, as it comes: neither writing nor
reading ever holds more than a part. A last blob lists the parts; an `Artifact` names that one. It
is a small value like any other, so a step returns it, and the next one opens it.

Equal parts are kept once, so a new version of a file costs the parts that differ. One that goes on
from another has the parts of that and a new one; when there are many small ones in a row they are
put together, so that neither their number nor what is written again gets out of hand.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
from msgspec import Struct

from holdfast.decoding import Illegible, decode
from holdfast.errors import BadInput, LogDamaged
from holdfast.scope import inside
from holdfast.values import PARTS, Blobs, Part, Parts

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

PART_BYTES = 1024 * 1024

_TOGETHER = 16
"""How many parts of about one size are put together, once they stand in a row."""

Source = Path | BinaryIO | Iterable[bytes]
"""Where content comes from: a file, something to read from, or pieces of bytes."""


class Artifact(Struct, frozen=True):
    """A file that is kept in the store. Made by `keep`; a value like any other.

    >>> from holdfast import Holdfast, keep, step, task
    >>> @step
    ... def report(lines: int) -> Artifact:
    ...     return keep((b"line %d\\n" % n for n in range(lines)), name="report.txt")
    >>> @task
    ... def reporting(lines: int) -> Artifact:
    ...     return report(lines)
    >>> with Holdfast("memory://") as hf:
    ...     made = hf.run(reporting, 3, id="r-1")
    ...     with hf.open(made) as file:
    ...         made.name, made.size_bytes, file.read()
    ('report.txt', 21, b'line 0\\nline 1\\nline 2\\n')
    """

    digest: str = msgspec.field(name=PARTS)
    size_bytes: int
    sha256: str
    """Of the whole content, as other programs would tell it."""
    name: str = ""

    def open(self) -> BinaryIO:
        """The content, to be read inside of a task. Elsewhere: `hf.open(artifact)`."""
        return opened(inside("artifact.open()").run.log.store, self)


def keep(source: Source, name: str = "") -> Artifact:
    """Put a file into the store, a part at a time; returns what stands for it from here on.

    `source` is a `Path`, a file open for reading bytes, or whatever gives bytes piece by piece: the
    body of a download, say. It may be much larger than the memory.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def fetch() -> Artifact:
    ...     return keep([b"one ", b"two"], name="words")
    >>> @task
    ... def fetching() -> bytes:
    ...     with fetch().open() as file:
    ...         return file.read()
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(fetching, id="f-1")
    b'one two'
    """
    store: Blobs = inside("keep()").run.log.store
    if isinstance(source, Path):
        with source.open("rb") as file:
            return kept(store, file, name or source.name)
    return kept(store, source, name)


def kept(store: Blobs, source: BinaryIO | Iterable[bytes], name: str = "") -> Artifact:
    """Content put into a store."""
    total, size, parts = sha256(), 0, []
    for part in _cut(_pieces(source)):
        total.update(part)
        size += len(part)
        parts.append(Part(store.put_blob(part), len(part)))
    listing = store.put_blob(msgspec.json.encode(Parts(parts)))
    return Artifact(listing, size, total.hexdigest(), name)


def _pieces(source: Any) -> Iterator[bytes]:
    if isinstance(source, bytes | bytearray | memoryview | str):
        kind = type(source).__name__
        raise BadInput(f"keep() takes a Path, a file or pieces of bytes, not {kind}")
    read = getattr(source, "read", None)
    for piece in source if read is None else iter(lambda: read(PART_BYTES), b""):
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise BadInput(f"keep() takes bytes: open the file with 'rb' (got {piece!r:.40})")
        yield bytes(piece)


def _cut(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same content in parts of one size."""
    held = bytearray()
    for piece in pieces:
        for start in range(0, len(piece), PART_BYTES):
            held += piece[start : start + PART_BYTES]
            if len(held) >= PART_BYTES:
                yield bytes(held[:PART_BYTES])
                del held[:PART_BYTES]
    if held:
        yield bytes(held)


def extended(store: Blobs, artifact: Artifact, data: bytes) -> Artifact:
    """An artifact that goes on from another: what is there already is not written again.

    >>> from holdfast.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> with opened(store, extended(store, kept(store, [b"one "]), b"two")) as file:
    ...     file.read()
    b'one two'
    """
    total = _hashed(store, artifact)
    total.update(data)
    parts = _parts_of(store, artifact)
    parts += [Part(store.put_blob(part), len(part)) for part in _cut(iter([data]))]
    while (few := _last_alike(parts)) >= _TOGETHER:
        pieces = (store.get_blob(part.digest) for part in parts[-few:])
        parts[-few:] = [Part(store.put_blob(part), len(part)) for part in _cut(pieces)]
    listing = store.put_blob(msgspec.json.encode(Parts(parts)))
    made = Artifact(listing, artifact.size_bytes + len(data), total.hexdigest(), artifact.name)
    _remember(listing, total)
    return made


def _last_alike(parts: list[Part]) -> int:
    """How many parts at the end are no larger than the last one, roughly, and not full."""
    last = _level(parts[-1]) if parts else 0
    few = 0
    for part in reversed(parts):
        if part.size_bytes >= PART_BYTES or _level(part) > last:
            break
        few += 1
    return few


def _level(part: Part) -> int:
    """How often parts were put together to make one of that size, roughly."""
    return (part.size_bytes.bit_length() - 1) // 4


_totals: dict[str, Any] = {}
"""The hashes of the newest artifacts that were extended: each goes on from the one before."""


def _hashed(store: Blobs, artifact: Artifact) -> Any:
    if (known := _totals.get(artifact.digest)) is not None:
        return known.copy()
    total = sha256()
    with opened(store, artifact) as file:
        while piece := file.read(PART_BYTES):
            total.update(piece)
    return total


def _remember(digest: str, total: Any) -> None:
    _totals[digest] = total
    while len(_totals) > 64:
        _totals.pop(next(iter(_totals)), None)


def opened(store: Blobs, artifact: Artifact) -> BinaryIO:
    """The content of an artifact, to be read from any place in it."""
    return io.BufferedReader(_Reading(store, _parts_of(store, artifact)), PART_BYTES)


def _parts_of(store: Blobs, artifact: Artifact) -> list[Part]:
    data = store.get_blob(artifact.digest)
    try:
        return decode(data, Parts).parts
    except Illegible as error:
        raise LogDamaged(f"blobs/{artifact.digest}", 0, f"it lists no parts ({error})") from None


class _Reading(io.RawIOBase):
    """A file made of parts, one of which is at hand."""

    def __init__(self, store: Blobs, parts: list[Part]) -> None:
        self._store = store
        self._parts = parts
        self._ends = list(accumulate(part.size_bytes for part in parts))
        self._size = self._ends[-1] if parts else 0
        self._place = 0
        self._at_hand = (-1, b"")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"a place before the beginning: {start + offset}")
        self._place = start + offset
        return self._place

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer).cast("B")
        number = bisect_right(self._ends, self._place)
        if number >= len(self._parts) or not view:
            return 0
        within = self._place - (self._ends[number] - self._parts[number].size_bytes)
        piece = self._part(number)[within : within + len(view)]
        view[: len(piece)] = piece
        self._place += len(piece)
        return len(piece)

    def _part(self, number: int) -> bytes:
        if self._at_hand[0] != number:
            self._at_hand = (number, self._store.get_blob(self._parts[number].digest))
        return self._at_hand[1]

    def write(self, data: ReadableBuffer, /) -> int:
        raise io.UnsupportedOperation("an artifact is read only: keep() a new one")
