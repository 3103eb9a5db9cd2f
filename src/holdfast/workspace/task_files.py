"""The files of a task, from outside: `hf.files(id)`. Read at any version, written by people.

A writer says which version it has seen, and replaces that one or none. Where another process
drives the task, the write goes by way of its inbox, and is compared again when it arrives.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core.events import AnyEvent, FileKept, FileRemoved
from holdfast.core.filing import OURS, checked_file_name, refused
from holdfast.core.fold.history import effective
from holdfast.core.kinds import id_of
from holdfast.core.state import State
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines.control import must_be_there
from holdfast.engines.holder import Holding
from holdfast.errors import BadInput, Conflict, TaskBusy
from holdfast.log.artifacts import (
    PART_BYTES,
    Content,
    File,
    base_of,
    file_in,
    file_of,
    kept_content,
    opened,
    text_of,
)
from holdfast.log.reading import read_events, stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import inbox_of, unpost
from holdfast.log.values import Blobs
from holdfast.stores import system
from holdfast.workspace.replacement import exchange, set_aside

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast


class TaskFiles:
    """The files of one task. The result of `hf.files(id)`."""

    def __init__(self, holding: Holding, id: str, at: int | None = None) -> None:
        must_be_there(holding.store, checked_id(id))
        self.id = id
        self._holding = holding
        self._at = at

    def list(self) -> tuple[File, ...]:
        """The files as they are, or were at that event, by name."""
        current = self._current()
        return tuple(current[name] for name in sorted(current))

    def versions(self, name: str) -> tuple[File, ...]:
        """Every version of a file, the oldest first; also of one that was removed since."""
        return tuple(
            file_in(event)
            for event in self._changes()
            if event.name == name and isinstance(event, FileKept)
        )

    def version(self, name: str) -> int | None:
        """Which version of a file is there; None if there is none."""
        file = self._current().get(checked_file_name(name))
        return file.version if file is not None else None

    def read(self, name: str, version: int | None = None) -> bytes:
        """The content of a file: the newest, or that of a version."""
        with self.open(name, version) as file:
            return file.read()

    def read_text(self, name: str, version: int | None = None, encoding: str = "utf-8") -> str:
        """The content of a file, as text."""
        return text_of(self.read(name, version), name, encoding)

    def open(self, name: str, version: int | None = None) -> BinaryIO:
        """A file, to be read from any place in it, a part at a time."""
        return opened(self._holding.store, self._one(checked_file_name(name), version).artifact)

    def write(
        self,
        name: str,
        data: Content,
        *,
        expected: int | UnsetType | None = UNSET,
        by: str = "",
    ) -> File:
        """Give a file this content; returns the new version of it.

        With `expected`, the version that was seen (None for no such file), nothing is written if
        another one is there by now: `Conflict`, which names both.
        """
        holding = self._holding
        base = base_of(expected)
        checked_file_name(name)
        artifact = kept_content(holding.store, data, holding.redact)
        raw = Raw(msgspec.json.encode(artifact))
        self._tell(FileKept(name=name, file=raw, by=by, base=base))
        return self._newest(name, artifact.digest)

    def remove(self, name: str, *, expected: int | UnsetType | None = UNSET, by: str = "") -> None:
        """Take a file away. Its versions stay."""
        base = base_of(expected)
        self._one(checked_file_name(name), None)
        self._tell(FileRemoved(name=name, by=by, base=base))

    def _tell(self, event: FileKept | FileRemoved) -> None:
        must_be_texts("files", by=event.by)
        if self._at is not None:
            raise BadInput(f"the files of task {self.id!r} at event {self._at} can't be written")
        holding = self._holding
        placed = msgspec.structs.replace(event, by=event.by or holding.owner)

        def make(state: State, stow: object) -> FileKept | FileRemoved:
            if (why := refused(state, placed)) is not None:
                raise why.error()
            return placed

        post = f"file-{os.urandom(8).hex()}"
        if not holding.tell(self.id, post, make):
            why = refused(load(holding.store, self.id, missing_ok=True), placed)
            raise why.error() if why else Conflict(f"{self._named(event.name)} was just changed")
        self._must_be_taken(post, event.name)

    def _must_be_taken(self, post: str, name: str) -> None:
        """Take a message back that nobody took in: its writer would not know what came of it."""
        store, stream = self._holding.store, stream_of(self.id)
        if all(other.name != post for other in inbox_of(store, [stream])):
            return
        unpost(store, stream, post)
        if post not in load(store, id_of(stream), missing_ok=True).posts:
            raise TaskBusy(
                f"{self._named(name)} was not written: the process that drives the task does not "
                f"answer. Try again when it does, or when its lease has run out"
            )

    def _newest(self, name: str, digest: str) -> File:
        found = [file for file in self.versions(name) if file.artifact.digest == digest]
        return found[-1]

    def _one(self, name: str, version: int | None) -> File:
        if version is None:
            file = self._current().get(name)
        else:
            found = (file for file in self.versions(name) if file.version == version)
            file = next(found, None)
        if file is None:
            what = "has no file" if version is None else f"has no version {version} of the file"
            known = ", ".join(repr(each) for each in sorted(self._current())[:20]) or "none"
            raise BadInput(f"task {self.id!r} {what} {name!r}; there are: {known}")
        return file

    def _named(self, name: str) -> str:
        return f"task {self.id!r}: the file {name!a:.200}"

    def _current(self) -> dict[str, File]:
        current: dict[str, File] = {}
        for event in self._changes(only_what_counts=True):
            if isinstance(event, FileKept):
                current[event.name] = file_in(event)
            else:
                current.pop(event.name, None)
        return current

    def _changes(self, *, only_what_counts: bool = False) -> Iterator[FileKept | FileRemoved]:
        events: Sequence[AnyEvent]
        events = list(read_events(self._holding.store, stream_of(self.id), self._at))
        if only_what_counts and events:  # a rewound task has the files of that time
            events = effective(events, events[-1].seq)
        for event in events:
            if isinstance(event, FileKept | FileRemoved):
                yield event


# The files of a task as files of a folder: `artifacts/`, where people and programs find them.
#
# The folder is a copy, and can be deleted; the log is the truth. A file that is written there has
# the time of its version, so one look tells which one it is.
#
# People may edit there. A file whose content is that of no version is theirs, and is never lost: as
# long as the task has not written the same file since, it stays where it is, until it is taken
# in (`take_in_files`). If the task has, theirs is kept beside it as `NAME.edited-<n>`.
#
# No symlink is followed, and nothing outside of the folder is touched: what is in the way, whatever
# it is, is moved aside under such a name too.


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LEFT_BEHIND_S = 3600
_ASIDE = re.compile(r".*\.edited-\d+")
_FOLDER = system.FOLDER | system.NO_LINK


class Materialized(Struct, frozen=True):
    """The changes to a folder: the names of the files written, removed, found to be edited (and
    left as they are), and the new names of those that had to be set aside."""

    written: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    edited: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()


def materialize(store: Blobs, state: State, folder: Path) -> Materialized:
    """Make a folder hold the files of a task, as they are in a state that was read whole.

    >>> import tempfile
    >>> from holdfast import Holdfast, task
    >>> from holdfast.workspace import files
    >>> @task
    ... def drafting() -> None:
    ...     files.write("drafts/one.md", "# One")
    >>> with Holdfast("memory://") as hf, tempfile.TemporaryDirectory() as name:
    ...     hf.run(drafting, id="drafting-1")
    ...     made = materialize(hf.store, hf.task("drafting-1").state, Path(name))
    ...     made.written, Path(name, "drafts/one.md").read_text()
    (('drafts/one.md',), '# One')
    """
    with _opened(folder) as root:
        work = _Work(store, state, root)
        work.remove_gone(root, "")
        for name in sorted(state.files):
            work.put(file_of(state.files[name]))
        return work.done()


def take_in_files(hf: Holdfast, id: str, folder: Path, *, by: str = "") -> tuple[File, ...]:
    """Give a task the files that people edited or added in its folder; returns their versions.

    A file deleted there is not removed from the task, and one that was set aside is left alone.
    `BadInput` for a name that a file can't have, before anything is taken.
    """
    state = load(hf.store, id, missing_ok=True)
    taken = []
    with _opened(folder) as root:
        work = _Work(hf.store, state, root)
        theirs = [name for name in work.names(root, "") if not _ASIDE.fullmatch(name)]
        for name in theirs:
            checked_file_name(name)
        for name in theirs:
            with work.way_to(name, make=False) as (inner, last):
                fd = os.open(
                    last, os.O_RDONLY | system.CLOSE_ON_EXEC | system.NO_LINK, dir_fd=inner
                )
            with open(fd, "rb") as file:
                taken.append(hf.files(id).write(name, file, by=by))
    return tuple(taken)


class _Work:
    """One pass over a folder."""

    def __init__(self, store: Blobs, state: State, root: int) -> None:
        self._store = store
        self._root = root
        self._current = {name: file_of(kept) for name, kept in state.files.items()}
        self._known: dict[str, list[File]] = defaultdict(list)
        for kept in (*state.files.values(), *state.kept):
            self._known[kept.name].append(file_of(kept))
        if state.rewinds:  # what was written in a past that counts no more is ours, too
            for event in state.trail:
                if isinstance(event, FileKept):
                    self._known[event.name].append(file_in(event))
        self._written: list[str] = []
        self._removed: list[str] = []
        self._edited: list[str] = []
        self._aside: list[str] = []

    def done(self) -> Materialized:
        return Materialized(
            tuple(self._written), tuple(self._removed), tuple(self._edited), tuple(self._aside)
        )

    def remove_gone(self, folder: int, way: str) -> None:
        """Remove the files that the task has no more, and the folders that are empty then."""
        for entry, found in _entries(folder):
            name = f"{way}{entry}"
            if stat.S_ISDIR(found.st_mode):
                inner = os.open(entry, _FOLDER, dir_fd=folder)
                try:
                    self.remove_gone(inner, f"{name}/")
                finally:
                    os.close(inner)
                if not any(each.startswith(f"{name}/") for each in self._current):
                    with suppress(OSError):  # it is not empty: something in it is not ours
                        os.rmdir(entry, dir_fd=folder)
            elif _is_left_behind(entry, found):
                os.unlink(entry, dir_fd=folder)
            elif name not in self._current and self._is_ours(folder, entry, name):
                os.unlink(entry, dir_fd=folder)
                self._removed.append(name)

    def put(self, file: File) -> None:
        """See to it that a file is there."""
        with self.way_to(file.name, make=True) as (folder, last):
            found = _status_of(last, folder)
            if found is not None and self._may_stay(file, found, folder, last):
                return
            new = self._made(file, folder)
            try:
                self._place(file.name, new, last, folder)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(new, dir_fd=folder)
            self._written.append(file.name)

    def _may_stay(self, file: File, found: os.stat_result, folder: int, last: str) -> bool:
        if not stat.S_ISREG(found.st_mode):
            return False
        if (found.st_size, found.st_mtime_ns) == (file.size_bytes, _time_ns(file)):
            return True
        digest = _digest(folder, last)
        if digest == file.artifact.sha256:
            return True
        if digest in {each.artifact.sha256 for each in self._known[file.name]}:
            return False
        if found.st_mtime_ns > _time_ns(file):  # an edit of what is the newest still
            self._edited.append(file.name)
            return True
        return False

    def _made(self, file: File, folder: int) -> str:
        """A new file with the content, under a name of ours."""
        new = f"{OURS}{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.CLOSE_ON_EXEC | system.NO_LINK
        fd = os.open(new, flags, 0o600, dir_fd=folder)
        try:
            with open(fd, "wb") as out, opened(self._store, file.artifact) as content:
                os.fchmod(out.fileno(), 0o600)
                while piece := content.read(PART_BYTES):
                    out.write(piece)
                out.flush()
                os.utime(out.fileno(), ns=(_time_ns(file), _time_ns(file)))
        except BaseException:
            os.unlink(new, dir_fd=folder)
            raise
        return new

    def _place(self, name: str, new: str, last: str, folder: int) -> None:
        """Give the new file its name. What had it is looked at afterwards: it may be another one
        than a moment ago."""
        while True:
            with suppress(FileExistsError):
                os.link(new, last, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
                return
            with suppress(FileNotFoundError):
                exchange(new, last, folder)
                break
        if not self._is_ours(folder, new, name):
            self._set_aside(new, last, folder, name)

    def _set_aside(self, old: str, last: str, folder: int, name: str) -> None:
        aside = set_aside(old, last, folder)
        way, slash, _ = name.rpartition("/")
        self._aside.append(f"{way}{slash}{aside}")

    def _is_ours(self, folder: int, entry: str, name: str) -> bool:
        """Whether something is a version of the file, byte for byte."""
        found = _status_of(entry, folder)
        if found is None or not stat.S_ISREG(found.st_mode) or name not in self._known:
            return False
        alike = [each for each in self._known[name] if each.size_bytes == found.st_size]
        return bool(alike) and _digest(folder, entry) in {each.artifact.sha256 for each in alike}

    @contextmanager
    def way_to(self, name: str, *, make: bool) -> Iterator[tuple[int, str]]:
        """The folder that a file is in, made if need be, and the last part of its name."""
        *parts, last = name.split("/")
        folder = os.dup(self._root)
        try:
            for number, part in enumerate(parts, 1):
                inner = self._inner(part, folder, "/".join(parts[:number]), make)
                os.close(folder)
                folder = inner
            yield folder, last
        finally:
            os.close(folder)

    def _inner(self, part: str, folder: int, way: str, make: bool) -> int:
        if make:
            found = _status_of(part, folder)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                self._set_aside(part, part, folder, way)
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=folder)
        return os.open(part, _FOLDER, dir_fd=folder)

    def names(self, folder: int, way: str) -> Iterator[str]:
        """The files that people added or edited."""
        for entry, found in _entries(folder):
            name = f"{way}{entry}"
            if stat.S_ISDIR(found.st_mode):
                inner = os.open(entry, _FOLDER, dir_fd=folder)
                try:
                    yield from self.names(inner, f"{name}/")
                finally:
                    os.close(inner)
            elif not stat.S_ISREG(found.st_mode) or entry.startswith(OURS):
                continue
            elif not self._is_ours(folder, entry, name):
                yield name


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        root = os.open(folder, _FOLDER)
    except OSError as error:
        raise BadInput(f"{folder} is no folder that files can be put into: {error}") from None
    try:
        yield root
    finally:
        os.close(root)


def _entries(folder: int) -> list[tuple[str, os.stat_result]]:
    found = ((entry, _status_of(entry, folder)) for entry in sorted(os.listdir(folder)))
    return [(entry, status) for entry, status in found if status is not None]


def _status_of(entry: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(entry, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _is_left_behind(entry: str, found: os.stat_result) -> bool:
    """Whether a crashed writer left it: nobody takes an hour to write a file."""
    return entry.startswith(OURS) and time.time() - found.st_ctime > _LEFT_BEHIND_S


def _digest(folder: int, entry: str) -> str:
    total = sha256()
    fd = os.open(entry, os.O_RDONLY | system.CLOSE_ON_EXEC | system.NO_LINK, dir_fd=folder)
    with open(fd, "rb") as file:
        while piece := file.read(PART_BYTES):
            total.update(piece)
    return total.hexdigest()


def _time_ns(file: File) -> int:
    return (file.at - _EPOCH) // timedelta(microseconds=1) * 1000
