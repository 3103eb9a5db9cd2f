"""Whether a store's folder is as it should be: leftovers, permissions, symlinks, filesystem.

It only looks. Every name is looked at as it is and no symlink is followed.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.cli.text import count
from holdfast.core.decoding import Illegible, damage_in, decode
from holdfast.core.events import AnyEvent, Said, Summarized
from holdfast.core.kinds import KINDS, id_of, kind_of
from holdfast.errors import LogDamaged, NewerFormat, StoreError
from holdfast.log.reading import base_of, read_events
from holdfast.log.states import Folded, empty, follow
from holdfast.log.store_calls import facts_of_all
from holdfast.log.values import fetch
from holdfast.log.verify import BlobCheck, must_have_items, what_in
from holdfast.stores import system
from holdfast.stores.files.catalog import INDEX
from holdfast.stores.files.catalog import spoiled as index_spoiled
from holdfast.stores.files.folder import Named, safe_name
from holdfast.stores.files.leftovers import DELETED, TEMPORARY, TORN
from holdfast.stores.files.locks import LOCK, LOG, was_started
from holdfast.stores.patrol import differs
from holdfast.stores.port import Facts, Store

# Whether logs are what was written: every line, its place, and the blobs it names.


Level = Literal["damage", "warning", "note"]

RESTORE = (
    "Keep the file as it is, and restore the log from a backup. "
    "What came before the damage can be read with `holdfast log`."
)
CORRECT = (
    "A worker corrects it as soon as it comes to compare the two. "
    "In a folder you can delete index.jsonl: it is made anew from the logs."
)


class Finding(Struct, frozen=True):
    """Something that is not as it should be, and what to do about it."""

    level: Level
    where: str
    what: str
    todo: str


def unreadable(where: str, why: str) -> Finding:
    """For what can't be opened. It counts as damage: nobody knows whether it is intact."""
    todo = "Run this as the user who owns it, or see to its permissions, then look again."
    return Finding("damage", where, f"it can't be checked: {why}", todo)


def about_to_start(where: str) -> Finding:
    """For a place without events, in which none were ever recorded."""
    what = "there is no event in it: somebody was about to begin it"
    return Finding("note", where, what, "Nothing: it does no harm.")


class Logs:
    """Checks logs one by one, and remembers what they hold."""

    def __init__(self, store: Store) -> None:
        self.counts: dict[str, int] = {kind.plural: 0 for kind in KINDS} | {"events": 0}
        """How many logs there are of each kind, and events in them."""
        self._store = store
        self._blobs = BlobCheck(store)
        self._told: dict[str, dict[str, Facts | None]] = {}

    @property
    def blobs(self) -> Collection[str]:
        """The blobs that logs name."""
        return self._blobs.problems

    def check(self, stream: str) -> Iterator[Finding]:
        """The fault of a log."""
        state, told = empty(self._store, stream), self._told_of(stream)
        self.counts[kind_of(stream).plural] += 1
        try:
            base = base_of(self._store, stream)
            for event in read_events(self._store, stream):
                self.counts["events"] += event.seq > base
                problems = list(self._blobs_of(stream, event))
                yield from problems
                if not problems:
                    self._must_be_words(stream, event)
                follow(state, event, stream)
                must_have_items(state, event, stream)
        except NewerFormat as error:
            yield Finding("warning", stream, str(error), "Use the Holdfast that wrote it.")
        except LogDamaged as error:
            yield Finding("damage", stream, _what(stream, error), RESTORE)
        except StoreError as error:
            yield unreadable(stream, str(error))
        else:
            yield from _whose(stream, state)
            yield from self._told_wrongly(stream, told, state)

    def _told_wrongly(self, stream: str, told: Facts | None, state: Folded) -> Iterator[Finding]:
        with suppress(StoreError):  # it was deleted meanwhile
            if told is not None and (wrong := differs(self._store, stream, told, state)):
                what = f"lists and workers are told something else than its log says: {wrong}"
                yield Finding("warning", stream, what, CORRECT)

    def _told_of(self, stream: str) -> Facts | None:
        """The store's facts of a log, without reading it; asked at once for all of a kind."""
        prefix = kind_of(stream).prefix
        if prefix not in self._told:
            self._told[prefix] = {}
            with suppress(StoreError):  # a reader of the log reports it
                self._told[prefix] = dict(facts_of_all(self._store, prefix))
        return self._told[prefix].get(stream)

    def _must_be_words(self, stream: str, event: AnyEvent) -> None:
        """`LogDamaged` if what was said in a session is no messages, or a summary no text."""
        with damage_in(stream, event.seq):
            if isinstance(event, Said):
                from holdfast.log.messages import load_turn  # slow to import

                load_turn(self._store, event, 1)
            elif isinstance(event, Summarized):
                decode(fetch(self._store, event.text, {}, dict), str)

    def _blobs_of(self, stream: str, event: AnyEvent) -> Iterator[Finding]:
        for problem in self._blobs.check(event):
            what = f"event {event.seq}: {problem}"
            yield Finding("damage", stream, what, "Restore the blob from a backup.")


def _whose(stream: str, state: Folded) -> Iterator[Finding]:
    if not state.seq:
        yield about_to_start(stream)
    elif state.id != id_of(stream):
        what = f"it is the log of the {kind_of(stream).name} {state.id!r}"
        yield Finding("damage", stream, what, "Was the folder renamed or copied? Name it back.")


def _what(stream: str, error: LogDamaged) -> str:
    if error.stream != stream:
        return f"event {error.seq}: {what_in(stream, error)}"
    # The advice in the message is to run doctor, which is what was done.
    return str(error).partition(" Restore the log")[0].partition(": ")[2]


_NETWORKED = re.compile(r"nfs|cifs|smb|9p|afs|ceph|gluster|lustre|fuse\.|vboxsf|drvfs|virtiofs")
_IN_MEMORY = ("tmpfs", "ramfs")


def log_folders(root: Path) -> Iterator[tuple[Path, str | None]]:
    """The folders of logs, each with its stream, or None where the log does not tell."""
    for kind in KINDS:
        folder = root / kind.plural
        if not folder.is_dir() or folder.is_symlink() or not os.access(folder, os.R_OK | os.X_OK):
            continue  # as `check_names` says where there is something wrong
        for name in sorted(os.listdir(folder)):
            if stat.S_ISDIR((folder / name).lstat().st_mode) and not DELETED.fullmatch(name):
                id = name if safe_name(name) == name else _named_in(folder / name)
                yield folder / name, None if id is None else kind.stream(id)


def _named_in(folder: Path) -> str | None:
    try:
        fd = os.open(folder / LOG, os.O_RDONLY | system.NO_LINK)
        with open(fd, "rb") as log:
            named = decode(log.readline(), Named).id
    except (OSError, Illegible):
        return None
    return named if safe_name(named) == folder.name else None


def check_names(root: Path, folder: Path) -> Iterator[Finding]:
    """The faults of a folder's contents, at every depth."""
    exposed: list[str] = []
    # A task's artifacts are its own business.
    todo = [folder]
    while todo:
        inside = todo.pop()
        try:
            found = _listed(inside)
        except OSError as error:
            yield unreadable(_place(root, inside), error.strerror or str(error))
            continue
        for path, mode in found:
            where = _place(root, path)
            yield from _check_name(where, path, mode)
            if not stat.S_ISLNK(mode) and mode & 0o077:
                exposed.append(where)
            if stat.S_ISDIR(mode) and path.name != "artifacts":
                todo.append(path)
    if exposed:
        what = f"{count(len(exposed), 'name')} in it can be opened by other users of this machine"
        advice = f"chmod -R go= {shlex.quote(str(folder))}"
        yield Finding("warning", _place(root, folder), f"{what} (such as {exposed[0]})", advice)


def check_index(root: Path) -> Iterator[Finding]:
    """Whether lines of the index are not what was written."""
    spoiled = 0
    with suppress(OSError):  # without one, or with one that can't be read, all logs are read
        fd = os.open(root / INDEX, os.O_RDONLY | system.NO_LINK | system.NO_WAIT)
        with open(fd, "rb") as index:
            spoiled = index_spoiled(index.read())
    if spoiled:
        what = (
            f"{count(spoiled, 'line')} in it count for nothing: torn by a crash, changed, or "
            f"written by an older Holdfast. Their logs are read instead"
        )
        yield Finding("note", INDEX, what, "Nothing. It may be deleted: it is made of the logs.")


def _listed(folder: Path) -> list[tuple[Path, int]]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    return [(Path(entry.path), entry.stat(follow_symlinks=False).st_mode) for entry in found]


def _place(root: Path, path: Path) -> str:
    return str(path.relative_to(root))


def _check_name(where: str, path: Path, mode: int) -> Iterator[Finding]:
    name = path.name
    if stat.S_ISLNK(mode):
        what = "it is a symlink, which Holdfast does not follow: what it points to is not read"
        yield Finding("damage", where, what, "Move the real file or folder here in its place.")
    elif TORN.fullmatch(name):
        what = (
            f"{path.lstat().st_size:,} bytes of a write that a crash cut short. It was never "
            f"acknowledged, so nothing is lost"
        )
        yield Finding("note", where, what, "Delete it whenever you like.")
    elif TEMPORARY.fullmatch(name) or DELETED.fullmatch(name):
        what = "a leftover of a process that was killed, unless one is at work right now"
        yield Finding("note", where, what, "Delete it when no process uses the store.")
    elif name == LOG and stat.S_ISREG(mode):
        with suppress(OSError):  # to be reported when the log is read
            yield from _check_tail(where, path)


def _check_tail(where: str, path: Path) -> Iterator[Finding]:
    tail = _tail(path)
    if tail.count(0):
        what = (
            f"it ends with {len(tail):,} bytes that are no whole line, with zeros among them: a "
            f"power cut does that to a write that was not acknowledged, a broken disk to any"
        )
        yield Finding("warning", where, what, "Copy the file before the task goes on.")
    elif tail:
        what = "it ends within a line: a process is writing, or a crash cut a write short"
        yield Finding("note", where, what, "Nothing: the next one to drive the task sees to it.")


def _tail(path: Path) -> bytes:
    """The bytes after the last newline of a file."""
    tail = b""
    with open(path, "rb") as log:
        end = log.seek(0, os.SEEK_END)
        while end and b"\n" not in tail:
            start = max(end - (1 << 16), 0)
            log.seek(start)
            tail = log.read(end - start) + tail
            end = start
    return tail.rpartition(b"\n")[2]


def check_nameless(root: Path, folder: Path) -> Finding:
    """For a folder whose log does not tell whose it is."""
    where = _place(root, folder)
    try:
        log, lock = _bytes_of(folder / LOG), _bytes_of(folder / LOCK)
    except OSError as error:
        return unreadable(where, error.strerror or str(error))
    if log:
        what = "its first line does not tell whose log it is, or names another"
    elif was_started(lock):
        what = "events were recorded here, and the log is empty or gone"
    else:
        return about_to_start(where)
    return Finding("damage", where, what, RESTORE)


def _bytes_of(path: Path) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | system.NO_LINK), "rb") as file:
            return file.read(1 << 16)
    except FileNotFoundError:
        return b""


def check_filesystem(root: Path, kind: str) -> Iterator[Finding]:
    """Whether the folder lies where locks and syncs can be relied on."""
    if _NETWORKED.match(kind):
        what = f"it lies on {kind}, where locks may not hold between machines"
        todo = "Drive its tasks from one machine only, or move it to a local disk."
        yield Finding("warning", str(root), what, todo)
    elif kind in _IN_MEMORY:
        what = f"it lies on {kind}, in memory: it is gone when the machine stops"
        yield Finding("warning", str(root), what, "Move it to a disk.")
    if problem := _lock_problem(root):
        what = f"files in it can't be locked ({problem}), so no task can be driven here"
        yield Finding("warning", str(root), what, "Move it to a local disk.")


def _lock_problem(root: Path) -> str:
    # A shared lock on the folder itself, which nobody else locks: it is in nobody's way.
    fd = os.open(root, system.FOLDER)
    try:
        system.try_lock(fd, shared=True)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        os.close(fd)
    return ""


def filesystem_of(folder: Path) -> str:
    """The type of filesystem that a folder lies on; '' where the system does not tell."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    best, kind = -1, ""
    real = folder.resolve()
    for line in mounts.splitlines():
        _, place, found, *_ = line.split(" ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), place))
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found
    return kind


def blobs_in(root: Path) -> dict[str, int]:
    """The blobs that are there, and how large each is."""
    found = {}
    for path in (root / "blobs").glob("[0-9a-f][0-9a-f]/*"):
        if re.fullmatch("[0-9a-f]{64}", path.name) and not path.is_symlink():
            found[path.name] = path.lstat().st_size
    return found
