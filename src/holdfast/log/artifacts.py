"""Artifacts: large files that tasks make, kept in the store and handed on by reference.

The content goes to the store in parts, each a blob of its own, as it comes: neither writing nor
reading ever holds more than a part. A last blob lists the parts; an `Artifact` names that one. It
is a small value like any other, so a step returns it, and the next one opens it.

Equal parts are kept once, so a new version of a file costs the parts that differ. A file that
continues another one has its parts and a new one. Many small parts in a row are joined, so that
neither their number nor the bytes that are written again get out of hand.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.codec.redact import Redact
from holdfast.core.decoding import Illegible, decode, decoder
from holdfast.core.events import FileKept
from holdfast.core.scope import inside
from holdfast.core.state import KeptFile
from holdfast.errors import BadInput, LogDamaged
from holdfast.log.values import PARTS, Blobs, Part, Parts

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


# The contents of files, and how they are shown, inside of a task and outside.


Content = str | bytes | Artifact | Source
"""A file takes text, bytes, an artifact, a path, an open file or pieces of bytes."""


class File(Struct, frozen=True):
    """One version of a file of a task.

    >>> from datetime import UTC
    >>> File("a.md", 7, datetime(2026, 1, 1, tzinfo=UTC), Artifact("0" * 64, 3, "")).size_bytes
    3
    """

    name: str
    version: int
    """The event that kept it."""
    at: datetime
    artifact: Artifact
    path: str = ""
    """The call that wrote it; '' for the task's own body, or for people."""
    by: str = ""
    """The person who wrote it, if it was not the task."""

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self.artifact.size_bytes


artifact_in: Final = decoder(Artifact)
"""The artifact that an event names."""


def file_of(known: KeptFile) -> File:
    """A file as it stands in a state, to be looked at."""
    artifact = artifact_in(known.file)
    return File(known.name, known.seq, known.at, artifact, known.path, known.by)


def file_in(event: FileKept) -> File:
    """A file as an event of the log has it."""
    artifact = artifact_in(event.file)
    return File(event.name, event.seq, event.at, artifact, event.path, event.by)


def listed(files: Mapping[str, KeptFile]) -> tuple[File, ...]:
    """Files by their names."""
    return tuple(file_of(files[name]) for name in sorted(files))


def base_of(expected: Any) -> int | UnsetType:
    """The version that a writer expects, as an event has it: 0 for none."""
    if expected is None or expected is UNSET:
        return UNSET if expected is UNSET else 0
    if type(expected) is not int or expected < 1:
        raise BadInput(
            f"expected={expected!r:.60}: give the version that you have seen, a number, or None "
            f"for a file that is not there"
        )
    return expected


def kept_content(store: Blobs, data: Content, redact: Redact) -> Artifact:
    """The content, put into a store."""
    if isinstance(data, Artifact):
        return data
    if isinstance(data, str | bytes | bytearray | memoryview):
        raw = bytes_of(data)
        if isinstance(data, str):
            redact.must_be_free(raw)
        return kept(store, [raw])
    if isinstance(data, Path):
        with data.open("rb") as file:
            return kept(store, file)
    return kept(store, data)


def digest_of(data: Content) -> str:
    """The sha256 of content; '' where it could only be told by using it up."""
    if isinstance(data, Artifact):
        return data.sha256
    if isinstance(data, str | bytes | bytearray | memoryview):
        return sha256(bytes_of(data)).hexdigest()
    return ""


def bytes_of(data: str | bytes | bytearray | memoryview) -> bytes:
    """Text or bytes, as they are stored."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if not isinstance(data, str):
        raise BadInput(f"give text or bytes, not {type(data).__name__}: {data!r:.60}")
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"a text can't be written as UTF-8: {error}") from None


def text_of(data: bytes, name: str, encoding: str = "utf-8") -> str:
    """Bytes as text, or an error that says whose they are."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(f"the file {name!r} is no text in {encoding}: {error}") from None
