"""A workspace folder as anybody may use it, without a lease: logs and lists, inboxes and blobs."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import lru_cache, partial
from hashlib import sha256
from itertools import chain as chained
from pathlib import Path

from msgspec import Struct

from holdfast.core.decoding import Illegible, decode
from holdfast.errors import BadInput, StorageFailed
from holdfast.stores import finding
from holdfast.stores.files import beside, blobs, leftovers, lines, locks
from holdfast.stores.files.catalog import Catalog, Index, IndexEntry
from holdfast.stores.files.disk import Disk, Status
from holdfast.stores.files.locks import LOCK, LOG
from holdfast.stores.port import Blob, Facts, Leftovers, Page, Post, Query, SideKind
from holdfast.stores.system import NO_WAIT

_LOOK_ANEW_S, _LOOK_SHARE = 15.0, 0.02
"""How long an entry of the index may be out of date until those who look for work know; longer
where there are so many streams that the look would take more than that share of the time."""

_PLAIN = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def safe_name(name: str) -> str:
    """A file name for any text: itself where it is plain, else a readable part and a hash.

    >>> safe_name("trip-42"), safe_name("../Trip 42")
    ('trip-42', 'Trip_42~2c9cb20c77bd60bd')
    """
    return name if _PLAIN.fullmatch(name) else _made_safe(name)


@lru_cache(1 << 12)
def _made_safe(name: str) -> str:
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:60]
    return f"{readable}~{sha256(name.encode()).hexdigest()[:16]}"


def way_to(stream: str) -> str:
    """The folder of a stream, as seen from the workspace.

    >>> way_to("tasks/trip-42")
    'tasks/trip-42'
    """
    kind, name = stream.split("/", 1)
    return f"{kind}/{safe_name(name)}"


class Named(Struct):
    """The first line of every log says whose it is."""

    id: str


class Workspace:
    """The folder that holds streams, and everything about them that takes no lease."""

    def __init__(self, root: Path, *, sync: bool, disk: Disk | None) -> None:
        self.root = root
        self.url: str = str(root)
        self._disk = disk or Disk()
        self._durable = sync
        self._root_fd = self._open_root()
        self._index = Index(self._disk, self._root_fd)
        self._catalogs: dict[str, Catalog] = {}
        self._once_right: dict[str, IndexEntry] = {}
        self._look_at = 0.0
        """When to look anew, by the clock of the process, at what the index does not know."""
        self._strays: dict[str, IndexEntry | None] = {}
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

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        if backwards:
            return self._read_back(stream, after_seq)
        if after_seq <= 0:
            return self._read_all(stream, after_seq)
        far = self._lines(stream, partial(lines.after, after_seq))
        if (first := next(far, None)) is not None:
            return chained((first,), far)
        found = self._read_end(stream, after_seq)
        return iter(found) if found is not None else self._read_all(stream, after_seq)

    def _read_all(
        self,
        stream: str,
        after_seq: int,
        reading: Callable[[Disk, str, int], Iterator[bytes]] = lines.forwards,
    ) -> Iterator[bytes]:
        kind, name = stream.split("/", 1)
        for _ in range(2):
            number = 0
            for line in self._lines(stream, reading):
                number += 1
                if number > after_seq:
                    yield line
            if number or not self._was_started((kind, safe_name(name))):
                return
            # The first events may have come between the two looks: look once more.
        raise locks.lost(stream)

    def _read_end(self, stream: str, after_seq: int) -> list[bytes] | None:
        """The lines after an event, from the end of the log; None if they do not say which is
        which."""
        found: list[bytes] = []
        for line in self._lines(stream, lines.backwards):
            seq = lines.seq_of(line)
            if not seq:
                return None
            if seq <= after_seq:
                break
            found.append(line)
        return found[::-1]

    def _read_back(self, stream: str, after_seq: int) -> Iterator[bytes]:
        if after_seq <= 0:
            return self._read_all(stream, 0, lines.backwards)
        return reversed(list(self.read(stream, after_seq)))

    def _lines(
        self, stream: str, reading: Callable[[Disk, str, int], Iterator[bytes]]
    ) -> Iterator[bytes]:
        disk = self._disk
        try:
            with self._folder(stream) as folder:
                fd = disk.open(LOG, folder, os.O_RDONLY | NO_WAIT)
            try:
                yield from reading(disk, stream, fd)
            finally:
                disk.close(fd)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(f"can't read {stream}", error) from error

    def _was_started(self, way: tuple[str, str]) -> bool:
        with suppress(OSError):
            return locks.was_started(self._disk.read_file((*way, LOCK), self._root))
        return False

    def nameless(self, kind: str) -> Iterator[str]:
        """The folders of logs that do not say whose they are, and so are in no list."""
        known = {way_to(stream) for stream, entry in self._known().items() if entry.facts}
        for name, found in self._named(kind):
            ours = f"{kind}/{name}" in known or (found is not None and safe_name(found) == name)
            if not ours:
                with suppress(OSError):
                    if self._disk.read_file((kind, name, LOG), self._root, 1):
                        yield f"{kind}/{name}"

    def _named(self, kind: str) -> Iterator[tuple[str, str | None]]:
        """Each folder, and the name of the stream in it, where that can be told."""
        try:
            folder = self._disk.folder(kind, self._root)
        except FileNotFoundError:
            return
        except OSError as error:
            raise failed(f"can't list {kind}", error) from error
        try:
            # A name with a dot in front is of something deleted, which a crash left there.
            names = sorted(name for name in self._disk.names(folder) if name[0] != ".")
        finally:
            self._disk.close(folder)
        for name in names:
            yield name, name if _PLAIN.fullmatch(name) else self._name_in(kind, name)

    def _name_in(self, kind: str, name: str) -> str | None:
        try:
            start = self._disk.read_file((kind, name, LOG), self._root, lines.LONGEST_TAIL_BYTES)
            return decode(start.partition(b"\n")[0], Named).id
        except (OSError, Illegible):
            return None

    def find(self, query: Query) -> Page:
        return self._find(query) if query.due_by is None else self._due(query)

    def _find(self, query: Query) -> Page:
        kind = query.prefix.split("/", 1)[0]
        try:
            folder = self._disk.folder(kind, self._root)
        except FileNotFoundError:
            return Page()  # without a look at the index, which may be long
        except OSError as error:
            raise failed(f"can't list {kind}", error) from error
        try:
            return self._catalog(kind).find(folder, query)
        except OSError as error:
            raise failed(f"can't list {kind}", error) from error
        finally:
            self._disk.close(folder)

    def _catalog(self, kind: str) -> Catalog:
        """What can be told of the streams of a kind without reading them."""
        try:
            entries = self._index.newest_first()
        except OSError:
            entries = ()  # it is only a copy: then every log is read
        catalog = self._catalogs.get(kind)
        if catalog is None or catalog.entries is not entries:
            catalog = self._catalogs[kind] = Catalog(
                self._disk,
                self._root,
                kind,
                entries,
                safe_name,
                self._name_in,
                self._was_started,
                self._once_right,
            )
        return catalog

    def _known(self) -> dict[str, IndexEntry]:
        try:
            return self._index.entries()
        except OSError:
            return {}  # it is only a copy: then every log is read

    def remember(self, stream: str, facts: Facts, seq: int) -> None:
        try:
            with self._folder(stream) as folder:
                log = self._durable_log(folder)
        except OSError:
            return
        if 0 < seq == lines.seq_of(next(self._read_back(stream, 0), b"")):
            self._note(IndexEntry(stream, log.size, facts, written_ns=log.written_ns))

    def _durable_log(self, folder: int) -> Status:
        """A log as it is once it is durable: the index must not outlive what it speaks of."""
        log = self._disk.open(LOG, folder, os.O_RDONLY | NO_WAIT)
        try:
            found = self._disk.status(log)
            if self._durable:
                self._disk.sync(log)
            return found
        finally:
            self._disk.close(log)

    def _due(self, query: Query) -> Page:
        """The streams that are due by the index alone, so that it costs little to ask often; and
        from time to time by a look at all that the index does not know."""
        now = time.monotonic()
        if now > self._look_at:
            unknown = self._find(Query(prefix=query.prefix, limit=None)).unknown
            self._strays = {stream: self._index.entry(stream) for stream in unknown}
            self._look_at = now + max(_LOOK_ANEW_S, (time.monotonic() - now) / _LOOK_SHARE)
        found: Sequence[tuple[str, Facts]] = ()
        with suppress(OSError):  # it is only a copy: then every log is read
            found = self._index.due(query)
        for stream, before in list(self._strays.items()):
            if self._index.entry(stream) is not before:  # somebody has looked, and said what it is
                del self._strays[stream]
        due_by = query.due_by
        strays = (
            stream
            for stream, entry in self._strays.items()
            if stream.startswith(query.prefix) and not _is_due(entry, due_by)
        )
        return finding.page_of(found, query.limit, list(strays))

    def put_side(self, stream: str, kind: SideKind, name: str, data: bytes) -> bool:
        if kind == "derived":
            return beside.put_derived(self._disk, self._folder, stream, name, data)
        try:
            with self._folder(stream) as folder:
                is_new = beside.post(self._disk, folder, name, data, durable=self._durable)
            if self._durable:
                self._sync_way_to(stream)
            return is_new
        except OSError as error:
            raise failed(f"can't leave a message for {stream}", error) from error

    def _sync_way_to(self, stream: str) -> None:
        """The stream's own folder may be so new that its name is not durable yet."""
        kind = self._disk.folder(stream.split("/", 1)[0], self._root)
        try:
            self._disk.sync_folder(kind)
            self._disk.sync_folder(self._root)
        finally:
            self._disk.close(kind)

    def get_side(
        self,
        streams: Collection[str],
        kind: SideKind,
        names: Collection[str] | None = None,
        *,
        only_names: bool = False,
    ) -> Sequence[Post]:
        if kind == "derived":
            given = (names, not only_names)
            return [
                row
                for stream in streams
                for row in beside.derived(self._disk, self._folder, stream, *given)
            ]
        found = [post for stream in streams for post in self._messages(stream)]
        return [post for post in found if names is None or post.name in names]

    def _messages(self, stream: str) -> Sequence[Post]:
        # Asked many times a second for every task that is driven, and nearly always empty.
        if not self._disk.is_there(f"{way_to(stream)}/{beside.INBOX}", self._root):
            return ()
        try:
            with suppress(FileNotFoundError), self._folder(stream) as folder:
                return beside.messages(self._disk, stream, folder)
        except OSError as error:
            raise failed(f"can't look into the inbox of {stream}", error) from error
        return ()

    def drop_side(self, stream: str, kind: SideKind, name: str | None = None) -> None:
        if kind == "derived":
            return beside.drop_derived(self._disk, self._folder, stream, name)
        try:
            with suppress(FileNotFoundError), self._folder(stream) as folder:
                beside.remove(self._disk, folder, name)
        except OSError as error:
            raise failed(f"can't take a message to {stream} out", error) from error

    def put_blob(self, data: bytes, name: str = "") -> str:
        try:
            return blobs.put(self._disk, self._root, data, name, durable=self._durable)
        except OSError as error:
            raise failed(f"can't write a value of {len(data):,} bytes", error) from error

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        return blobs.get(self._disk, self._root, name, checked=checked)

    def blobs(self) -> Iterator[Blob]:
        try:
            yield from blobs.listed(self._disk, self._root)
        except OSError as error:
            raise failed("can't list the blobs", error) from error

    def delete_blob(self, digest: str, older_than_s: float) -> bool:
        try:
            return blobs.delete(self._disk, self._root, digest, older_than_s)
        except OSError as error:
            raise failed(f"can't delete the blob {digest}", error) from error

    def sweep(
        self, older_than_s: float, torn_older_than_s: float | None = None, *, dry_run: bool = False
    ) -> Leftovers:
        try:
            return leftovers.sweep(self.root, older_than_s, torn_older_than_s, dry_run=dry_run)
        except OSError as error:
            raise failed("can't remove what crashed writers left", error) from error

    def _open_root(self) -> int:
        try:
            # Not only the last: a parent made by us is as private as the workspace.
            missing = [p for p in (self.root, *self.root.parents) if not p.exists()]
            for folder in reversed(missing):
                self._make(folder)
            return self._disk.folder(self.root)
        except OSError as error:
            raise failed(f"can't open the workspace {self.root}", error) from error

    def _make(self, folder: Path) -> None:
        disk = self._disk
        parent = disk.folder(folder.parent)
        try:
            disk.close(disk.make_folder(folder.name, parent))
            if self._durable:
                disk.sync_folder(parent)
        finally:
            disk.close(parent)

    @property
    def _root(self) -> int:
        if self._root_fd < 0:
            raise BadInput(f"the store {self.url} was closed: open it again")
        return self._root_fd

    def _note(self, entry: IndexEntry) -> bool:
        with suppress(OSError):  # a copy, which is looked at with that in mind
            self._index.note(entry)
            return True
        return False

    def close_folder(self) -> None:
        """Let the folder go."""
        self._index.close()
        if self._root_fd >= 0:
            self._disk.close(self._root_fd)
            self._root_fd = -1


def _is_due(entry: IndexEntry | None, due_by: datetime | None) -> bool:
    wake_at = entry.facts.wake_at if entry is not None and entry.facts is not None else None
    return wake_at is not None and due_by is not None and wake_at <= due_by


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
