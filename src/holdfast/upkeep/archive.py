"""An archive: logs in one compressed file, `trips.hfa`. It is read like a store, and runs nothing.

It is a zip file that any zip tool opens:

    manifest.json          what is in it, with the sum of everything
    streams/0.jsonl …      a log each, its lines as they are; numbered, because an id is no path
    blobs/<digest>         what the logs name

Nothing in it is taken on trust, for it may come from anywhere: nothing is unpacked to the disk, no
name in it is used as a path, nothing is read beyond the size that the manifest says, and whatever
does not fit its sum is refused. An entry is unpacked piece by piece until its sum is known to be
right, and only then kept in memory: a few bytes may be packed so that they unpack to very many.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Any, Self

from msgspec import Meta, Struct

from holdfast.decoding import Illegible, decode
from holdfast.errors import ArchiveDamaged, BadInput, NewerFormat, StorageFailed
from holdfast.kinds import TASK, Kind, id_of
from holdfast.store import Post

ARCHIVE_FORMAT = 2
"""With sessions or memories in it. One that has only tasks is of format 1, which is read for good:
an older Holdfast, which would leave the others out in silence, reads that and refuses this."""
MANIFEST = "manifest.json"
MAX_BYTES = 64 << 30
"""How much an archive may unpack to, unless more is asked for."""

_MANIFEST_BYTES = 256 << 20
_MANIFEST_SPARE_BYTES, _MANIFEST_RATIO = 8 << 20, 16
"""A manifest is mostly sums, which can't be packed to less than half: one that is packed much more
tightly, beyond a few megabytes, was made to fill the memory."""
_LONGEST_LINE = 16 << 20
_LARGEST_BLOB = 1 << 30
"""More than databases keep in one piece."""
_PIECE_BYTES = 1 << 20
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The ways in which archives are written. Others can't be unpacked piece by piece."""

_Digest = Annotated[str, Meta(min_length=64, max_length=64)]

# What the standard library raises on a file that is not, or not quite, a zip file.
_BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, struct.error, EOFError,
    NotImplementedError, RuntimeError, ValueError, OverflowError, IndexError, KeyError,
)  # fmt: skip


class ArchivedPost(Struct, frozen=True):
    """A message that was waiting for a task."""

    name: str
    data: bytes


class ArchivedStream(Struct, frozen=True, omit_defaults=True):
    """A log in an archive."""

    stream: str
    entry: str
    events: int
    size_bytes: int
    sha256: str
    posts: tuple[ArchivedPost, ...] = ()


class Manifest(Struct, frozen=True):
    """What is in an archive, and how much of it there is."""

    format: int
    holdfast: str
    made_at: datetime
    source: str
    streams: tuple[ArchivedStream, ...]
    blobs: dict[_Digest, int]
    """The size of each."""

    def ids(self, kind: Kind) -> tuple[str, ...]:
        """The logs of a kind that are in it."""
        names = (each.stream for each in self.streams)
        return tuple(id_of(name) for name in names if name.startswith(kind.prefix))

    @property
    def size_bytes(self) -> int:
        """How much it unpacks to."""
        return sum(s.size_bytes for s in self.streams) + sum(self.blobs.values())


class _Format(Struct):
    format: int


def format_of(streams: Iterable[str]) -> int:
    """The format of an archive that has these in it."""
    return 1 if all(stream.startswith(TASK.prefix) for stream in streams) else ARCHIVE_FORMAT


def blob_entry(digest: str) -> str:
    """Where a blob stands in an archive."""
    return f"blobs/{digest}"


class Archive:
    """An archive, opened for reading."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.url = str(path)
        self._path = path
        try:
            self._file = open(path, "rb")  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise StorageFailed(f"can't open {path}: {error.strerror or error}") from error
        try:
            with self._broken_is_damage():
                self._zip = zipfile.ZipFile(self._file)
            self.manifest = self._read_manifest()
            self._must_fit(max_bytes)
        except BaseException:
            self._file.close()
            raise
        self._streams = {stream.stream: stream for stream in self.manifest.streams}
        self._sound: set[tuple[str, int, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let the file go."""
        self._zip.close()
        self._file.close()

    # As something that tasks can be copied from

    def streams(self, prefix: str) -> Iterator[str]:
        return iter([name for name in self._streams if name.startswith(prefix)])

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        found = self._streams.get(stream)
        if found is None:
            return
        self._must_be(stream, found.entry, found.size_bytes, found.sha256)
        seq = 0
        with self._opened(found.entry) as entry:
            while line := self._piece(entry.readline, min(_LONGEST_LINE, found.size_bytes) + 1):
                seq += 1
                if not line.endswith(b"\n"):
                    raise self._damaged(f"{stream}, line {seq}, is longer than it should be")
                if seq > after_seq:
                    yield line[:-1]
        if seq != found.events:
            raise self._damaged(f"{stream} is not what was written")

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        found = [self._streams[name] for name in streams if name in self._streams]
        return [Post(s.stream, post.name, post.data) for s in found for post in s.posts]

    def get_blob(self, digest: str) -> bytes:
        size = self.manifest.blobs.get(digest)
        if size is None:
            raise self._damaged(f"the blob {digest:.80} is not in it")
        self._must_be(f"blob {digest}", blob_entry(digest), size, digest)
        with self._opened(blob_entry(digest)) as entry:
            return b"".join(self._pieces(entry))

    # Reading a file that may be anything

    def _must_be(self, what: str, name: str, size: int, digest: str) -> None:
        """Unpack an entry to nowhere, once, to see whether it is what the manifest says."""
        if (name, size, digest) in self._sound:
            return
        total, found = sha256(), 0
        if self._info(name).file_size == size:  # which is as far as it is unpacked
            with self._opened(name) as entry:
                for piece in self._pieces(entry):
                    found += len(piece)
                    total.update(piece)
        if found != size or total.hexdigest() != digest:
            raise self._damaged(f"{what} is not what was written")
        self._sound.add((name, size, digest))

    def _pieces(self, entry: IO[bytes]) -> Iterator[bytes]:
        while piece := self._piece(entry.read, _PIECE_BYTES):
            yield piece

    def _info(self, name: str) -> zipfile.ZipInfo:
        with self._broken_is_damage():
            found = self._zip.getinfo(name)
        if found.compress_type not in _PACKED:
            raise self._damaged(f"{name:.80} is packed in a way that archives are not")
        return found

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        found = self._info(name)
        with self._broken_is_damage():
            entry = self._zip.open(found)
        try:
            yield entry
        finally:
            entry.close()

    def _piece(self, read: Any, most: int) -> bytes:
        with self._broken_is_damage():
            data: bytes = read(most)
            return data

    def _read_manifest(self) -> Manifest:
        found, size = self._info(MANIFEST), os.fstat(self._file.fileno()).st_size
        packed = min(found.compress_size, size)
        most = min(_MANIFEST_BYTES, _MANIFEST_SPARE_BYTES + _MANIFEST_RATIO * packed)
        if found.file_size > most:
            raise self._damaged("its manifest is too large to be one")
        with self._opened(MANIFEST) as entry:
            data = b"".join(self._pieces(entry))
        try:
            format = decode(data, _Format).format
            if format > ARCHIVE_FORMAT:
                raise NewerFormat(
                    f"{self.url} was written by a newer Holdfast: it is of format {format}, this "
                    f"version knows {ARCHIVE_FORMAT}. Upgrade this one"
                )
            return decode(data, Manifest)
        except Illegible as error:
            raise self._damaged(f"its manifest makes no sense ({error})") from None

    def _must_fit(self, max_bytes: int) -> None:
        sizes = [s.size_bytes for s in self.manifest.streams] + [*self.manifest.blobs.values()]
        if any(size < 0 for size in sizes):
            raise self._damaged("its manifest has sizes below 0")
        if len(sizes) > len(self._zip.filelist):
            raise self._damaged("its manifest speaks of more than is in it")
        if any(size > _LARGEST_BLOB for size in self.manifest.blobs.values()):
            raise self._damaged(f"it has values above {_LARGEST_BLOB:,} bytes")
        if sum(sizes) > max_bytes:
            raise BadInput(
                f"{self.url} would unpack to {sum(sizes):,} bytes, more than {max_bytes:,}: if you "
                f"trust it, allow more (--max-bytes)"
            )

    @contextmanager
    def _broken_is_damage(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"can't read {self.url}: {error.strerror or error}") from error
        except _BROKEN as error:
            raise self._damaged(f"it is cut short, or no archive ({error})") from None

    def _damaged(self, what: str) -> ArchiveDamaged:
        return ArchiveDamaged(f"{self.url}: {what}")
