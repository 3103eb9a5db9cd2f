"""A workspace folder as anybody may use it, without a lease: logs and lists, inboxes and blobs."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from holdfast.errors import BadInput, StorageFailed
from holdfast.store import Facts, Post
from holdfast.stores import blobs, inbox, lines, locks
from holdfast.stores.disk import Disk
from holdfast.stores.index import Entry, Index
from holdfast.stores.locks import LOCK, LOG

_LOOK_ANEW_S = 15.0
"""How long an entry of the index may be out of date until those who look for work know."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def safe_name(name: str) -> str:
    """A file name for any text: itself where it is plain, else a readable part and a hash.

    >>> safe_name("trip-42"), safe_name("../Trip 42")
    ('trip-42', 'Trip_42~2c9cb20c77bd60bd')
    """
    if _PLAIN.fullmatch(name):
        return name
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:60]
    return f"{readable}~{sha256(name.encode()).hexdigest()[:16]}"


class Named(Struct):
    """The first line of every log says whose it is."""

    id: str


class Workspace:
    """The folder that holds streams, and everything about them that takes no lease."""

    def __init__(self, root: Path, *, sync: bool, disk: Disk | None) -> None:
        self.root = root
        self.url = str(root)
        self._disk = disk or Disk()
        self._durable = sync
        self._root_fd = self._open_root()
        self._index = Index(self._disk, self._root_fd)
        self._looked_at: float | None = None
        self._strays: dict[str, Entry | None] = {}
        """The streams of which the index knew nothing for sure when we last looked at all."""

    @contextmanager
    def _folder(self, stream: str) -> Iterator[int]:
        """The folder of a stream that is there."""
        kind, name = stream.split("/", 1)
        outer = self._disk.folder(kind, self._root)
        try:
            folder = self._disk.folder(safe_name(name), outer)
        finally:
            self._disk.close(outer)
        try:
            yield folder
        finally:
            self._disk.close(folder)

    def read(self, stream: str, after_seq: int = 0) -> Iterator[bytes]:
        if after_seq > 0 and (found := self._read_end(stream, after_seq)) is not None:
            return iter(found)
        return self._read_all(stream, after_seq)

    def _read_all(self, stream: str, after_seq: int) -> Iterator[bytes]:
        number = 0
        for line in self._lines(stream, lines.forwards):
            number += 1
            if number > after_seq:
                yield line
        if not number:
            kind, name = stream.split("/", 1)
            self._must_never_have_started(stream, (kind, safe_name(name)))

    def _read_end(self, stream: str, after_seq: int) -> list[bytes] | None:
        """The lines after an event, from the end of the log; None if they do not say which is
        which."""
        found: list[bytes] = []
        for line in self.tail(stream):
            seq = lines.seq_of(line)
            if not seq:
                return None
            if seq <= after_seq:
                break
            found.append(line)
        return found[::-1]

    def tail(self, stream: str) -> Iterator[bytes]:
        return self._lines(stream, lines.backwards)

    def _lines(
        self, stream: str, reading: Callable[[Disk, str, int], Iterator[bytes]]
    ) -> Iterator[bytes]:
        disk = self._disk
        try:
            with self._folder(stream) as folder:
                fd = disk.open(LOG, folder, os.O_RDONLY | os.O_NONBLOCK)
            try:
                yield from reading(disk, stream, fd)
            finally:
                disk.close(fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(f"can't read {stream}", error) from error

    def _must_never_have_started(self, stream: str, way: tuple[str, str]) -> None:
        with suppress(OSError):
            if locks.was_started(self._disk.read_file((*way, LOCK), self._root)):
                raise locks.lost(stream)

    def streams(self, prefix: str) -> Iterator[str]:
        kind = prefix.split("/", 1)[0]
        try:
            folder = self._disk.folder(kind, self._root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(f"can't list {kind}", error) from error
        try:
            names = sorted(self._disk.names(folder))
        finally:
            self._disk.close(folder)
        for name in names:
            found = name if _PLAIN.fullmatch(name) else self._name_in(kind, name)
            if found is not None and f"{kind}/{found}".startswith(prefix):
                yield f"{kind}/{found}"

    def _name_in(self, kind: str, name: str) -> str | None:
        try:
            start = self._disk.read_file((kind, name, LOG), self._root, lines.LONGEST_TAIL_BYTES)
            return msgspec.json.decode(start.partition(b"\n")[0], type=Named).id
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    def facts(self, prefix: str) -> Iterator[tuple[str, Facts | None]]:
        kind = prefix.split("/", 1)[0]
        known = self._known()
        try:
            folder = self._disk.folder(kind, self._root)
        except FileNotFoundError:
            return
        try:
            for stream in self.streams(prefix):
                entry = known.get(stream)
                name = safe_name(stream.split("/", 1)[1])
                if entry is None or entry.size != self._disk.size_of(f"{name}/{LOG}", folder):
                    yield stream, None
                else:
                    yield stream, entry.facts
        finally:
            self._disk.close(folder)

    def _known(self) -> dict[str, Entry]:
        try:
            return self._index.entries()
        except OSError:
            return {}  # it is only a copy: then every log is read

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        try:
            with self._folder(stream) as folder:
                size = self._disk.size_of(LOG, folder)
        except OSError:
            return
        if lines.seq_of(next(self.tail(stream), b"")) == seq:
            self._note(stream, facts, size)

    def due(self, prefix: str, now: datetime) -> Iterator[tuple[str, Facts | None]]:
        known = self._known()
        if self._looked_at is None or time.monotonic() - self._looked_at > _LOOK_ANEW_S:
            self._looked_at = time.monotonic()
            unknown = [stream for stream, facts in self.facts(prefix) if facts is None]
            self._strays = {stream: known.get(stream) for stream in unknown}
        for stream, entry in known.items():
            facts = entry.facts
            if stream.startswith(prefix) and facts and facts.wake_at and facts.wake_at <= now:
                yield stream, facts
        for stream, before in list(self._strays.items()):
            if known.get(stream) is not before:  # somebody has looked, and said what it is
                del self._strays[stream]
            elif stream.startswith(prefix) and not _is_due(before, now):
                yield stream, None

    def post(self, stream: str, name: str, data: bytes) -> bool:
        try:
            with self._folder(stream) as folder:
                return inbox.post(self._disk, folder, name, data, durable=self._durable)
        except OSError as error:
            raise failed(f"can't leave a message for {stream}", error) from error

    def inbox(self, streams: Collection[str]) -> Sequence[Post]:
        found: list[Post] = []
        for stream in streams:
            kind, name = stream.split("/", 1)
            # Asked many times a second for every task that is driven, and nearly always empty.
            if not self._disk.is_there(f"{kind}/{safe_name(name)}/{inbox.INBOX}", self._root):
                continue
            try:
                with suppress(FileNotFoundError), self._folder(stream) as folder:
                    found += inbox.messages(self._disk, stream, folder)
            except OSError as error:
                raise failed(f"can't look into the inbox of {stream}", error) from error
        return found

    def unpost(self, stream: str, name: str) -> None:
        with suppress(FileNotFoundError), self._folder(stream) as folder:
            inbox.remove(self._disk, folder, name)

    def put_blob(self, data: bytes) -> str:
        try:
            return blobs.put(self._disk, self._root, data, durable=self._durable)
        except OSError as error:
            raise failed(f"can't write a value of {len(data):,} bytes", error) from error

    def get_blob(self, digest: str) -> bytes:
        return blobs.get(self._disk, self._root, digest)

    def _open_root(self) -> int:
        try:
            # Not only the last: a parent made by us is as private as the workspace.
            missing = [p for p in (self.root, *self.root.parents) if not p.exists()]
            for folder in reversed(missing):
                with suppress(FileExistsError):
                    os.mkdir(folder, 0o700)
                    os.chmod(folder, 0o700)
                    self._sync_name_of(folder)
            return self._disk.folder(self.root)
        except OSError as error:
            raise failed(f"can't open the workspace {self.root}", error) from error

    def _sync_name_of(self, folder: Path) -> None:
        if self._durable:
            parent = self._disk.folder(folder.parent)
            self._disk.sync_folder(parent)
            self._disk.close(parent)

    @property
    def _root(self) -> int:
        if self._root_fd < 0:
            raise BadInput(f"the store {self.url} was closed: open it again")
        return self._root_fd

    def _note(self, stream: str, facts: Facts | None, size: int) -> None:
        with suppress(OSError):  # a copy, which is looked at with that in mind
            self._index.note(stream, facts, size)

    def close_folder(self) -> None:
        """Let the folder go."""
        self._index.close()
        if self._root_fd >= 0:
            self._disk.close(self._root_fd)
            self._root_fd = -1


def _is_due(entry: Entry | None, now: datetime) -> bool:
    wake_at = entry.facts.wake_at if entry is not None and entry.facts is not None else None
    return wake_at is not None and wake_at <= now


def failed(what: str, error: OSError) -> StorageFailed:
    """The error for what the system refused, with what to do about it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        advice = "The disk is full: free some space, then run the task again; it goes on from here"
    elif error.errno in (errno.ELOOP, errno.ENOTDIR):
        advice = "A symlink or a file is where a folder of the workspace should be: remove it"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "Check who owns the folder and whether it can be written"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        advice = "Too many files are open: raise the limit (ulimit -n)"
    else:
        advice = "What was acknowledged before is safe"
    return StorageFailed(f"{what}: {error.strerror or error}. {advice}")
