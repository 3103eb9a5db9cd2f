"""Writing archives: whole and verified, or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from itertools import chain as joined
from itertools import zip_longest
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast import chain
from holdfast.engines.holding import Holding
from holdfast.errors import ArchiveDamaged, BadInput, LogDamaged, StorageFailed, StoreError
from holdfast.events import VERSION
from holdfast.folding import read_folded
from holdfast.kinds import MEMORY, SESSION, TASK, id_of, kind_of
from holdfast.naming import blob_of, may_name, references
from holdfast.reading import stream_of
from holdfast.store import Store
from holdfast.upkeep.archive import (
    MANIFEST,
    Archive,
    ArchivedPost,
    ArchivedStream,
    Manifest,
    blob_entry,
    format_of,
)
from holdfast.upkeep.choosing import Wanted, choose, others_meant
from holdfast.upkeep.copied import Progress, Refused, Tell, why_refused
from holdfast.upkeep.families import told_by


class Archived(Struct, frozen=True):
    """What was put into an archive."""

    path: str
    ids: tuple[str, ...]
    """Of tasks."""
    events: int
    blobs: int
    unpacked_bytes: int
    size_bytes: int
    """Of the file."""
    refused: tuple[Refused, ...] = ()
    """What can't be read, and so is not in it."""
    sessions: tuple[str, ...] = ()
    memories: tuple[str, ...] = ()


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
    # Sessions after the tasks: so they have all that a task which is under way said in them.
    units = [[stream_of(id) for id in family.ids] for family in chosen]
    units += [[stream] for stream in others]
    streams: list[str] = []
    followed: set[str] = set()
    refused = [] if wanted.is_by_name else told.refused()
    for unit in units:
        try:
            for stream in unit:
                read_folded(store, stream)
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
        fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w+b") as file:
            os.fchmod(fd, 0o600)
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, allowZip64=True) as packed:
                manifest = _Writer(store, packed, tell).write(list(streams), now, version)
            file.flush()
            os.fsync(fd)
        _verify(store, draft, manifest)
        with _folder(path) as folder:
            _give_name(draft, path)
            os.fsync(folder)
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
    # A link, and no rename, which would replace what somebody put there meanwhile; but not every
    # filesystem has links.
    try:
        os.link(draft, path)
        os.unlink(draft)
    except FileExistsError:
        raise
    except OSError:
        os.rename(draft, path)


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


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
            self._tell(Progress("archiving", shown, number + 1, len(names), streams[-1].events))
        url = self._store.url
        found = Manifest(format_of(names), version, now, url, tuple(streams), self._blobs)
        self._packed.writestr(MANIFEST, msgspec.json.encode(found))
        return found

    def _stream(self, stream: str, entry: str) -> ArchivedStream:
        posts = tuple(ArchivedPost(p.name, p.data) for p in self._store.inbox([stream]))
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
    """The blobs that pieces of data name, and those that these name in turn; not the `known` ones,
    unless they may name others and were not `followed` yet."""
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
    posts = (post.data for post in store.inbox([stream]))
    named = filter(may_name, joined(store.read(stream), posts))
    for _ in _blobs_in(store, named, followed, ()):
        pass


def _verify(store: Store, draft: Path, written: Manifest) -> None:
    """Read an archive back: it holds what the store does, to the byte."""
    with Archive(draft, max_bytes=written.size_bytes) as archive:
        if archive.manifest != written:
            raise ArchiveDamaged(f"{draft}: it is not what was written: is the disk sound?")
        for stream in written.streams:
            # Behind what was archived the log may have grown meanwhile.
            ours = _first(store.read(stream.stream), stream.events)
            for mine, theirs in zip_longest(ours, archive.read(stream.stream)):
                if mine != theirs:
                    raise ArchiveDamaged(f"{draft}: it is not what was written: is the disk sound?")
        for digest in written.blobs:
            archive.get_blob(digest)


def _first(lines: Iterator[bytes], count: int) -> Iterator[bytes]:
    for _, line in zip(range(count), lines, strict=False):
        yield line
