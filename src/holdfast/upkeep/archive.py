"""An archive: logs in one compressed file, `trips.hfa`. It is read like a store, and runs nothing.

It is a zip file that any zip tool opens:

    manifest.json          what is in it, with the sum of everything
    streams/0.jsonl …      a log each, its lines as they are; numbered, because an id is no path
    blobs/<digest>         what the logs name

Nothing in it is taken on trust, for it may come from anywhere: nothing is unpacked to the disk, no
name in it is used as a path, nothing is read beyond the size that the manifest says, and whatever
does not fit its sum is refused.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from msgspec import Struct

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
_LONGEST_LINE = 16 << 20

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
    blobs: dict[str, int]
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
        total, size, seq = sha256(), 0, 0
        with self._opened(found.entry) as entry:
            while line := self._piece(entry.readline, min(_LONGEST_LINE, found.size_bytes) + 1):
                seq += 1
                size += len(line)
                total.update(line)
                if size > found.size_bytes or not line.endswith(b"\n"):
                    raise self._damaged(f"{stream}, line {seq}, is longer than it should be")
                if seq > after_seq:
                    yield line[:-1]
        if (seq, size, total.hexdigest()) != (found.events, found.size_bytes, found.sha256):
            raise self._damaged(f"{stream} is not what was written")

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        found = [self._streams[name] for name in streams if name in self._streams]
        return [Post(s.stream, post.name, post.data) for s in found for post in s.posts]

    def get_blob(self, digest: str) -> bytes:
        size = self.manifest.blobs.get(digest)
        if size is None:
            raise self._damaged(f"the blob {digest:.80} is not in it")
        with self._opened(blob_entry(digest)) as entry:
            data: bytes = self._piece(entry.read, size + 1)
        if len(data) != size or sha256(data).hexdigest() != digest:
            raise self._damaged(f"blob {digest} is not what was written")
        return data

    # Reading a file that may be anything

    @contextmanager
    def _opened(self, name: str) -> Iterator[IO[bytes]]:
        with self._broken_is_damage():
            entry = self._zip.open(name)
        try:
            yield entry
        finally:
            entry.close()

    def _piece(self, read: Any, most: int) -> bytes:
        with self._broken_is_damage():
            data: bytes = read(most)
            return data

    def _read_manifest(self) -> Manifest:
        with self._opened(MANIFEST) as entry:
            data = self._piece(entry.read, _MANIFEST_BYTES + 1)
        if len(data) > _MANIFEST_BYTES:
            raise self._damaged("its manifest is too large to be one")
        try:
            found = decode(data, _Format).format
            if found > ARCHIVE_FORMAT:
                raise NewerFormat(
                    f"{self.url} was written by a newer Holdfast: it is of format {found}, this "
                    f"version knows {ARCHIVE_FORMAT}. Upgrade this one"
                )
            return decode(data, Manifest)
        except Illegible as error:
            raise self._damaged(f"its manifest makes no sense ({error})") from None

    def _must_fit(self, max_bytes: int) -> None:
        sizes = [s.size_bytes for s in self.manifest.streams] + [*self.manifest.blobs.values()]
        if any(size < 0 for size in sizes):
            raise self._damaged("its manifest has sizes below 0")
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
