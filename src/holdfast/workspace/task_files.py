"""The files of a task, from outside: `hf.files(id)`. Read at any version, written by people.

Who writes says which version they have seen, and replaces that one or none. Where another process
drives the task, the write goes by way of its inbox, and is compared again when it arrives.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core.events import AnyEvent, FileKept, FileRemoved
from holdfast.core.filing import checked_file_name, refused
from holdfast.core.fold.history import effective
from holdfast.core.state import State
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines.control import must_be_there
from holdfast.engines.holding import Holding
from holdfast.errors import BadInput, Conflict, TaskBusy
from holdfast.log.artifacts import opened
from holdfast.log.files import Content, File, base_of, file_in, kept_content, text_of
from holdfast.log.reading import read_events, read_state, stream_of


class TaskFiles:
    """The files of one task. What `hf.files(id)` returns."""

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
            why = refused(read_state(holding.store, stream_of(self.id)), placed)
            raise why.error() if why else Conflict(f"{self._named(event.name)} was just changed")
        self._must_be_taken(post, event.name)

    def _must_be_taken(self, post: str, name: str) -> None:
        """Take a message back that nobody took in: its writer would not know what came of it."""
        store, stream = self._holding.store, stream_of(self.id)
        if all(other.name != post for other in store.inbox([stream])):
            return
        store.unpost(stream, post)
        if post not in read_state(store, stream).posts:
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
        if only_what_counts and events:  # a task that was put back has the files of then
            events = effective(events, events[-1].seq)
        for event in events:
            if isinstance(event, FileKept | FileRemoved):
                yield event
