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
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from itertools import chain as joined
from itertools import zip_longest
from pathlib import Path
from types import TracebackType
from typing import IO, Annotated, Any, Self

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import VERSION
from holdfast.core.kinds import MEMORY, SESSION, TASK, Kind, id_of, kind_of
from holdfast.engines.holder import Holding
from holdfast.errors import (
    ArchiveDamaged,
    BadInput,
    LogDamaged,
    NewerFormat,
    StorageFailed,
    StoreError,
)
from holdfast.log import chain
from holdfast.log.reading import stream_of
from holdfast.log.states import load_any
from holdfast.log.store_calls import inbox_of
from holdfast.log.values import blob_of, may_name, references
from holdfast.stores import system
from holdfast.stores.port import Post, Store
from holdfast.upkeep.families import (
    Archived,
    CopyProgress,
    Tell,
    Wanted,
    choose,
    others_meant,
    told_by,
    why_refused,
)

ARCHIVE_FORMAT = 2
"""The format of an archive with sessions or memories. An archive of tasks alone keeps format 1,
which stays readable. An older Holdfast, which would skip sessions silently, refuses format 2."""
MANIFEST = "manifest.json"
MAX_BYTES = 64 << 30
"""How much an archive may unpack to, unless more is asked for."""

_MANIFEST_BYTES = 256 << 20
_MANIFEST_SPARE_BYTES, _MANIFEST_RATIO = 8 << 20, 16
"""A manifest is mostly sums, which can't be packed to less than half. A large manifest that is
packed much more tightly was made to fill the memory."""
_LONGEST_LINE = 16 << 20
_LARGEST_BLOB = 1 << 30
"""More than databases keep in one piece."""
_PIECE_BYTES = 1 << 20
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The ways in which archives are written. Others can't be unpacked piece by piece."""

_Digest = Annotated[str, Meta(min_length=64, max_length=64)]

# The errors that the standard library raises on a damaged zip file, or on another kind of file.
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
    """The list of an archive's content, with sizes."""

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
    """The name of a blob's entry in an archive."""
    return f"blobs/{digest}"


class Archive:
    """An archive, opened for reading."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.url: str = str(path)
        self._path = path
        try:
            self._file = open(path, "rb")  # noqa: SIM115  # closed by `close`
        except OSError as error:
            raise StorageFailed(f"can't open {path}: {error.strerror or error}") from error
        try:
            with self._broken_is_damage():
                self._zip = zipfile.ZipFile(self._file)
            self.manifest: Manifest = self._read_manifest()
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
        """Close the file."""
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
        """Unpack an entry once, keeping nothing, to check it against the manifest."""
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


# Writing archives: whole and verified, or not at all.


def place_for(path: Path, now: datetime) -> Path:
    """Where an archive goes: to that file, or, if it is a folder, to a new file in it."""
    if path.is_dir():
        path = path / f"holdfast-{now:%Y%m%d-%H%M%S}.hfa"
    if path.exists() or path.is_symlink():
        raise BadInput(f"{path} is there already: give another name")
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {path.parent}: make it first")
    return path


def archive_tasks(holding: Holding, path: Path, wanted: Wanted, tell: Tell) -> Archived:
    """Write tasks to an archive: see `Holdfast.archive_to`."""
    now, store = holding.clock(), holding.store
    place = place_for(path, now)
    told = told_by(store)
    chosen, _ = choose(told, wanted, store.url)
    meant = {id: told.facts[id] for family in chosen for id in family.ids}
    others = others_meant(store, wanted, meant)
    # Sessions come after the tasks, so that they hold everything a running task said in them.
    units = [[stream_of(id) for id in family.ids] for family in chosen]
    units += [[stream] for stream in others]
    streams: list[str] = []
    followed: set[str] = set()
    refused = [] if wanted.is_by_name else told.refused()
    for unit in units:
        try:
            for stream in unit:
                load_any(store, stream)
                _must_have_blobs(store, stream, followed)
            streams += unit
        except StoreError as error:
            if wanted.is_by_name:
                raise
            refused.append(why_refused(unit[0], error))
    archived = write_archive(store, streams, place, now, VERSION, tell)
    return replace(archived, refused=tuple(refused))


def write_archive(
    store: Store, streams: Iterable[str], path: Path, now: datetime, version: str, tell: Tell
) -> Archived:
    """Write logs to a new file, read it back, and only then give it its name."""
    draft = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    try:
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | system.CLOSE_ON_EXEC, 0o600)
        with open(fd, "w+b") as file:
            system.make_private(fd)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as packed:
                manifest = _Writer(store, packed, tell).write(list(streams), now, version)
            file.flush()
            system.sync_all(fd)
        _verify(store, draft, manifest)
        _give_name(draft, path)
        system.sync_folder(path.parent)
    except FileExistsError:
        raise BadInput(f"{path} is there already: give another name") from None
    except OSError as error:
        raise StorageFailed(f"can't write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            os.unlink(draft)
    return Archived(
        path=str(path),
        ids=manifest.ids(TASK),
        events=sum(stream.events for stream in manifest.streams),
        blobs=len(manifest.blobs),
        unpacked_bytes=manifest.size_bytes,
        size_bytes=path.stat().st_size,
        sessions=manifest.ids(SESSION),
        memories=manifest.ids(MEMORY),
    )


def _give_name(draft: Path, path: Path) -> None:
    # A link, because a rename would replace a file that somebody put there meanwhile. But not every
    # filesystem has links.
    try:
        os.link(draft, path)
        os.unlink(draft)
    except FileExistsError:
        raise
    except OSError:
        os.rename(draft, path)


class _Writer:
    def __init__(self, store: Store, packed: zipfile.ZipFile, tell: Tell) -> None:
        self._store = store
        self._packed = packed
        self._tell = tell
        self._blobs: dict[str, int] = {}
        self._followed: set[str] = set()

    def write(self, names: list[str], now: datetime, version: str) -> Manifest:
        streams = []
        for number, name in enumerate(names):
            streams.append(self._stream(name, f"streams/{number}.jsonl"))
            shown = kind_of(name).shown(id_of(name))
            self._tell(CopyProgress("archiving", shown, number + 1, len(names), streams[-1].events))
        url = self._store.url
        found = Manifest(format_of(names), version, now, url, tuple(streams), self._blobs)
        self._packed.writestr(MANIFEST, msgspec.json.encode(found))
        return found

    def _stream(self, stream: str, entry: str) -> ArchivedStream:
        posts = tuple(ArchivedPost(p.name, p.data) for p in inbox_of(self._store, [stream]))
        total, size, seq, running = sha256(), 0, 0, chain.ROOT
        named: list[bytes] = [post.data for post in posts]
        with self._packed.open(entry, "w", force_zip64=True) as file:
            for line in self._store.read(stream):
                seq += 1
                after = chain.check(running, line)
                if after is None:
                    raise LogDamaged(stream, seq, "its sum does not fit its bytes")
                running = after
                file.write(line + b"\n")
                total.update(line + b"\n")
                size += len(line) + 1
                if may_name(line):
                    named.append(line)
        # One entry is written at a time.
        for digest, blob in _blobs_in(self._store, named, self._followed, self._blobs):
            if digest not in self._blobs:
                self._blobs[digest] = len(blob)
                self._packed.writestr(blob_entry(digest), blob)
        return ArchivedStream(stream, entry, seq, size, total.hexdigest(), posts)


def _blobs_in(
    store: Store, named: Iterable[bytes], followed: set[str], known: Container[str]
) -> Iterator[tuple[str, bytes]]:
    """The blobs that pieces of data name, and the blobs that those name in turn. It skips the
    `known` ones, unless they may name others and were not `followed` yet."""
    waiting = [reference for data in named for reference in references(data)]
    while waiting:
        reference = waiting.pop()
        digest = reference.digest
        if digest in followed or (digest in known and not reference.names_more):
            continue
        blob = blob_of(reference, store.get_blob)
        if blob is None:
            continue
        yield digest, blob
        if reference.names_more:
            followed.add(digest)
            waiting += references(blob)


def _must_have_blobs(store: Store, stream: str, followed: set[str]) -> None:
    """`LogDamaged` if a blob that a log names is not there, or is not what was written."""
    posts = (post.data for post in inbox_of(store, [stream]))
    named = filter(may_name, joined(store.read(stream), posts))
    for _ in _blobs_in(store, named, followed, ()):
        pass


def _verify(store: Store, draft: Path, written: Manifest) -> None:
    """Read an archive back: it holds what the store does, to the byte."""
    with Archive(draft, max_bytes=written.size_bytes) as archive:
        if archive.manifest != written:
            raise ArchiveDamaged(f"{draft}: it is not what was written: is the disk sound?")
        for stream in written.streams:
            # The log may have grown since it was archived.
            ours = _first(store.read(stream.stream), stream.events)
            for mine, theirs in zip_longest(ours, archive.read(stream.stream)):
                if mine != theirs:
                    raise ArchiveDamaged(f"{draft}: it is not what was written: is the disk sound?")
        for digest in written.blobs:
            archive.get_blob(digest)


def _first(lines: Iterator[bytes], count: int) -> Iterator[bytes]:
    for _, line in zip(range(count), lines, strict=False):
        yield line
