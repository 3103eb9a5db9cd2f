"""The streams of a workspace, as its folders and its index tell of them without reading a log.

The folders say which streams there are, the index what is known of each (see `index`). An entry
of the index is believed while the log is the one that it speaks of, or while somebody holds the
stream: its writer adds a line for every change. Looking at the log is what costs, one `stat`
for each stream. So a page without a filter looks at no more of them than it shows. One with a
filter looks at all: an entry that does not match may be out of date. Only of the facts that last
(all but the status and its times) an entry need not be asked again, once it was right: a stream
that is begun anew has a new one.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import islice

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.decoding import Illegible, decoder
from holdfast.core.events import NEVER
from holdfast.log import chain
from holdfast.stores import finding
from holdfast.stores.files import locks
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.locks import LOG
from holdfast.stores.port import Facts, Page, Query

# The index of a workspace: what its logs say, so that a list of tasks need not read them.
#
#     workspace/index.jsonl    one line for each change of a task's facts; the last one counts
#
# It is a copy, and never synced: it may be deleted at any time, and may be out of date after a
# crash. So an entry says of which log it speaks (how long it was, and when it was last written),
# and is believed only while the log is still that one. Nothing is final: a task that has ended may
# be rewound. The exception are entries that say "somebody should look at this at once", which are
# written before the log is: who looks for work believes them, because looking does no harm.
#
# A line has a sum, as those of logs have: one that anything happened to counts for nothing.
#
# Every process appends to it, each line in one write. A process that finds many lines in it
# rewrites it, under its lock; others notice that their file has lost its name, and write their
# line again. A rewritten file begins with packs: lines that hold many entries, the newest first,
# under one sum. To read an entry of a pack takes a third of the time that one with a line of its
# own takes. Lines that were written just before are copied when the new file has its name already,
# and may come behind newer ones there: so an entry that was copied counts only until its stream has
# one that was not.


INDEX = "index.jsonl"
UNKNOWN = -1
"""The length of a log that is gone."""

_SPARE_LINES = 1000
_IN_A_PACK = 1000


class IndexEntry(Struct, frozen=True, omit_defaults=True, gc=False):
    """The last that was heard of a stream; without facts if it was deleted."""

    stream: str
    size: int = UNKNOWN
    facts: Facts | None = None
    copied: bool = False
    """Whether it was written to another file before, where it was the newest."""
    written_ns: int = 0
    """When the log was last written, as its file says."""
    early: bool = False
    """Whether it was written before the log was: as long as it says it was only to be."""


class _Pack(Struct):
    """A line that holds many entries, each copied."""

    entries: list[IndexEntry]


class _Heading(Struct):
    """The part of an entry that says whose it is."""

    stream: str


_decode = decoder(IndexEntry)
_decode_heading = decoder(_Heading)
_decode_pack = decoder(_Pack)
_encode = msgspec.json.Encoder().encode
_PACK = b'{"entries":['


def _sealed(entry: IndexEntry | _Pack) -> bytes:
    return chain.seal(chain.ROOT, _encode(entry))[0] + b"\n"


def _packed(entries: Sequence[IndexEntry]) -> bytes:
    """The beginning of a rewritten index. A flipped bit in it spoils one pack, not all."""
    starts = range(0, len(entries), _IN_A_PACK)
    return b"".join(_sealed(_Pack([*map(_copy, entries[at : at + _IN_A_PACK])])) for at in starts)


def _line(entry: IndexEntry) -> bytes:
    # A line of its own, whatever a crash left of the one before.
    return b"\n" + _sealed(entry)


def spoiled(data: bytes) -> int:
    """How many lines of an index count for nothing, because they are not what was written."""
    lines = filter(None, data.rpartition(b"\n")[0].split(b"\n"))
    return sum(chain.check(chain.ROOT, line) is None for line in lines)


def _newest(data: bytes) -> dict[str, IndexEntry]:
    """The entry of each stream that counts. A crash or a full disk may have left part of a line,
    which spoils that line alone; so does whatever else happened to one."""
    found: dict[str, IndexEntry] = {}
    lines: dict[bytes, list[bytes]] = {}
    for line in data.split(b"\n"):
        if not line:
            continue
        if line.startswith(_PACK):
            if chain.check(chain.ROOT, line) is not None:
                with suppress(Illegible):
                    for entry in _decode_pack(line).entries:
                        found[entry.stream] = entry
            continue
        name = line[_NAME : line.find(b'"', _NAME)]
        if b"\\" in name:  # a quote may be part of it
            try:
                name = _decode_heading(line).stream.encode()
            except Illegible:
                continue
        lines.setdefault(name, []).append(line)
    for of_one in lines.values():
        if len(of_one) > 1:  # the last that was not copied, if there is one
            of_one.sort(key=_is_written)
        # Only the last is decoded: a task changes a few times, and nobody asks for what was.
        for line in reversed(of_one):
            if chain.check(chain.ROOT, line) is None:
                continue
            with suppress(Illegible):
                entry = _decode(line)
                found[entry.stream] = entry
                break
    return found


_LINE = b'\n{"stream":"'
_NAME = len(_LINE) - 1


def _is_written(line: bytes) -> bool:
    # A quote in a text has a backslash before it, so no text looks like that.
    return b'"copied":true' not in line


def _counts(entry: IndexEntry, before: IndexEntry | None) -> bool:
    """Whether an entry that was read further on in the same file counts."""
    return not entry.copied or before is None or before.copied


def _copy(entry: IndexEntry) -> IndexEntry:
    return msgspec.structs.replace(entry, copied=True)


def _place(entry: IndexEntry) -> tuple[datetime, str]:
    return entry.facts.created_at if entry.facts is not None else NEVER, entry.stream


def _due_place(entry: IndexEntry | None) -> tuple[datetime, str] | None:
    if entry is None or entry.facts is None or entry.facts.wake_at is None:
        return None
    return entry.facts.wake_at, entry.stream


class Index:
    """The index as one process knows it."""

    def __init__(self, disk: Disk, root: int) -> None:
        self._disk = disk
        self._root = root
        self._fd = -1
        self._read_bytes = 0
        self._lines = 0
        """How many lines hold one entry."""
        self._rest = b""
        self._entries: dict[str, IndexEntry] = {}
        self._in_order: list[IndexEntry] | None = None
        self._to_wake: list[tuple[datetime, str]] | None = None
        """When streams wake, in order: changed line by line, as workers ask again and again."""
        self._lock = threading.RLock()

    def note(self, entry: IndexEntry) -> None:
        """Write down what is now known of a stream."""
        line = _line(entry)
        with self._lock:
            for _ in range(3):
                self._disk.write(self._opened(), line)
                if self._disk.has_name(self._fd):
                    return
                self._close()

    def entries(self) -> dict[str, IndexEntry]:
        """What is known of each stream, with what other processes wrote meanwhile."""
        with self._lock:
            self._refresh()
            return dict(self._entries)

    def entry(self, stream: str) -> IndexEntry | None:
        """The entry of a stream as it was when the file was last read."""
        return self._entries.get(stream)

    def due(self, query: Query) -> list[tuple[str, Facts]]:
        """A page of the streams that are due, and one more if there is one."""
        with self._lock:
            self._refresh()
            if self._to_wake is None:
                self._to_wake = sorted(filter(None, map(_due_place, self._entries.values())))
            most = None if query.limit is None else query.limit + 1
            return list(islice(self._due_after(query, self._to_wake), most))

    def _due_after(
        self, query: Query, to_wake: Sequence[tuple[datetime, str]]
    ) -> Iterator[tuple[str, Facts]]:
        matches, beyond = finding.matcher(query), query.beyond
        at = bisect_right(to_wake, (beyond.at, beyond.stream)) if beyond else 0
        for place in range(at, len(to_wake)):
            wake_at, stream = to_wake[place]
            facts = self._entries[stream].facts
            if query.due_by is None or wake_at > query.due_by:
                return
            if facts is not None and matches(stream, facts):
                yield stream, facts

    def _refresh(self) -> None:
        fd = self._opened()
        if not self._disk.has_name(fd):
            self._close()
            fd = self._opened()
        self._read_on(fd)
        if self._lines > len(self._entries) // 4 + _SPARE_LINES:
            self._rewrite()

    def start_anew(self) -> None:
        """In a process that was forked: open the file anew, for locks belong to an opening."""
        self._lock = threading.RLock()
        self._close()

    def newest_first(self) -> Sequence[IndexEntry]:
        """What is known of each stream that was not deleted, in the order of a list.

        The same object, as long as nothing has changed.
        """
        with self._lock:
            self._refresh()
            if self._in_order is None:
                self._in_order = self._live()
            return self._in_order

    def _live(self) -> list[IndexEntry]:
        live = (entry for entry in self._entries.values() if entry.facts is not None)
        return sorted(live, key=_place, reverse=True)

    def close(self) -> None:
        """Let the file go."""
        with self._lock:
            self._close()

    def _opened(self) -> int:
        if self._fd < 0:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._fd = self._disk.open(INDEX, self._root, flags)
            self._read_bytes = self._lines = 0
            self._rest = b""
            self._entries = {}
            self._in_order = self._to_wake = None
        return self._fd

    def _close(self) -> None:
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1

    def _read_on(self, fd: int) -> None:
        new = self._disk.read_all(fd, self._read_bytes)
        if not new:
            return
        self._read_bytes += len(new)
        data = self._rest + new if self._rest else new
        whole = data.rfind(b"\n") + 1
        self._rest = data[whole:]
        if self._rest:
            data = data[:whole]
        self._join(_newest(data))
        self._lines += data.count(_LINE)
        self._in_order = None

    def _join(self, read: dict[str, IndexEntry]) -> None:
        """Add what was read further on in the same file."""
        if not self._entries:
            self._entries, self._to_wake = read, None
            return
        for stream, entry in read.items():
            before = self._entries.get(stream)
            if _counts(entry, before):
                self._entries[stream] = entry
                self._wake_at(_due_place(before), _due_place(entry))

    def _wake_at(
        self, before: tuple[datetime, str] | None, now: tuple[datetime, str] | None
    ) -> None:
        if self._to_wake is None or before == now:
            return
        if before is not None:
            del self._to_wake[bisect_left(self._to_wake, before)]
        if now is not None:
            insort(self._to_wake, now)

    def _rewrite(self) -> None:
        disk, old = self._disk, self._fd
        if not disk.try_lock(old):
            return  # somebody else is at it
        if disk.has_name(old):
            name = f"{INDEX}.{os.urandom(6).hex()}"
            new = disk.open(name, self._root, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL)
            try:
                # Or else somebody rewrites this one before it holds what was late.
                disk.try_lock(new)
                self._write_anew(name, new, old)
            finally:
                disk.close(new)
        # Else somebody was at it between our look at the name and the lock, and what was written
        # since is in a file that ours would replace.
        self._close()
        self._read_on(self._opened())

    def _write_anew(self, name: str, new: int, old: int) -> None:
        disk = self._disk
        disk.write(new, _packed(self._live()))
        disk.rename(name, INDEX, self._root)
        # The lines that were written after we read, and before the file lost its name.
        late = _newest(disk.read_all(old, self._read_bytes - len(self._rest)))
        self._join(late)
        for stream in late:
            disk.write(new, _line(_copy(self._entries[stream])))


class Catalog:
    """The streams of one kind (`tasks`), as the index knows them."""

    def __init__(
        self,
        disk: Disk,
        root: int,
        kind: str,
        entries: Sequence[IndexEntry],
        safe_name: Callable[[str], str],
        name_in: Callable[[str, str], str | None],
        was_started: Callable[[tuple[str, str]], bool],
        once_right: dict[str, IndexEntry],
    ) -> None:
        self.entries = entries
        """Those of the index, the newest first."""
        self._disk = disk
        self._root = root
        self._kind = kind
        self._safe_name = safe_name
        self._name_in = name_in
        self._was_started = was_started
        self._once_right = once_right
        """The entries that were seen to be right, for this and for later catalogs."""
        start, named = f"{kind}/", len(kind) + 1
        ours = (entry.stream for entry in entries if entry.stream.startswith(start))
        self._folders = {stream: safe_name(stream[named:]) for stream in ours}

    def find(self, folder: int, query: Query) -> Page:
        """A page, with a look at no more logs than are needed for it."""
        names = set(self._disk.names(folder))
        folders = self._folders
        gone = set(folders.values()) - names
        unknown = list(self._strangers(folder, names, query.prefix))
        may_match, matches = finding.matcher(_lasting(query)), finding.matcher(query)
        found: list[tuple[str, Facts]] = []
        prefix, once_right, mark_of = query.prefix, self._once_right, self._disk.mark_of
        for entry in self.entries:
            stream, facts = entry.stream, entry.facts
            if facts is None or not stream.startswith(prefix):
                continue
            if once_right.get(stream) is entry and not may_match(stream, facts):
                continue
            name = folders[stream]
            if gone and name in gone:
                continue
            size, written_ns = mark_of(f"{name}/{LOG}", folder)
            is_same = size == entry.size and written_ns == entry.written_ns and not entry.early
            if size <= 0 or not (is_same or self._is_of_its_holder(folder, name, entry)):
                if self._is_there(folder, name):
                    unknown.append(stream)
                continue
            once_right[stream] = entry
            if matches(stream, facts):
                found.append((stream, facts))
                if query.limit is not None and len(found) > query.limit:
                    break
        return finding.page_of(found, query.limit, unknown)

    def _strangers(self, folder: int, names: set[str], prefix: str) -> Iterator[str]:
        """The streams that the index does not know."""
        for name in names.difference(self._folders.values()):
            if name.startswith(".") or not self._is_there(folder, name):
                continue
            plain = self._safe_name(name) == name
            found = name if plain else self._name_in(self._kind, name)
            if found is not None and f"{self._kind}/{found}".startswith(prefix):
                yield f"{self._kind}/{found}"

    def _is_there(self, folder: int, name: str) -> bool:
        """Whether there is a stream, and not only somebody who took hold of its name."""
        size = self._disk.size_of(f"{name}/{LOG}", folder)
        return size > 0 or self._was_started((self._kind, name))

    def _is_of_its_holder(self, folder: int, name: str, entry: IndexEntry) -> bool:
        """Whether somebody holds a stream, and nothing can have changed since the entry that they
        would not have written down."""
        try:
            inner = self._disk.folder(name, folder)
        except OSError:
            return False
        try:
            held = locks.at_work(self._disk, self._root, inner)
        except OSError:
            return False
        finally:
            self._disk.close(inner)
        if held is None or (lock := held[0]).size is None:
            return False
        return entry.size > lock.size or (entry.size == lock.size and not entry.early)


def _lasting(query: Query) -> Query:
    return replace(query, status=(), updated_after=None, updated_before=None)
