"""The files of a task, from inside of it: `from holdfast.workspace import files`.

    files.write("report.md", text)      files.read_text("report.md")      files.list()

Written content goes to the store, a part at a time, and the log says that from then on the file has
this content. So a write is all or nothing, every version is kept, and a state of the past has its
files. In an async task each of these is awaited.

A replay writes nothing again: the same write answers with what it wrote, and one of something else
is `CodeChanged`. The result of a read is recorded, so a replay finds it again, whatever was written
since, here or by people. Inside a step each attempt looks and writes for itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from hashlib import sha256
from operator import attrgetter
from tempfile import SpooledTemporaryFile
from typing import IO, Any, BinaryIO, NoReturn, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core.decoding import decode
from holdfast.core.events import FileKept, FileRemoved, Observed
from holdfast.core.filing import FileRefused, checked_file_name, refused
from holdfast.core.scope import Scope, inside
from holdfast.core.state import KeptFile, State
from holdfast.engines.execution import must_have_restored, seen_before
from holdfast.engines.run import Run
from holdfast.engines.run import append as say
from holdfast.errors import BadInput, CodeChanged, StoreError
from holdfast.log.artifacts import (
    PART_BYTES,
    Artifact,
    Content,
    File,
    base_of,
    bytes_of,
    digest_of,
    extended,
    file_of,
    kept_content,
    listed,
    opened,
    text_of,
)
from holdfast.log.values import Blobs

# How a write of a task gets into its log: once, and the same on a replay.


class Writing:
    """One write: its place in the code, and how it gets into the log."""

    def __init__(
        self, scope: Scope, name: str, base: int | UnsetType, what: str | None = None
    ) -> None:
        self.scope = scope
        self.run: Run = scope.run
        self.name = name
        self.base = base
        self.mark: str = scope.named_path(f"{what or attempt_at(scope)}file {name}", "!")

    def perform(self, data: Content) -> Artifact:
        """Carry it out; in an async task, return the awaitable that does."""
        return carried_out(self.scope, lambda: self.written(data, digest_of(data)))

    def written(self, data: Content, digest: str) -> Artifact:
        """What it comes to; with the `digest` of the data, where there is one, to compare."""
        must_go_on(self.scope, self.mark, f"writes the file {self.name!r}")
        if (known := self._recorded(digest)) is not None:
            return known
        self.run.must_write(self.mark)
        log = self.run.log
        try:
            artifact = kept_content(log.store, data, log.redact)
        except StoreError as error:  # the task did not fail: it can't go on here and now
            self.run.halt(error)
        why = self._record(artifact)
        if why is not None:
            raise why.error()
        return artifact

    def append(self, data: str | bytes) -> Artifact:
        """Carry out an addition; in an async task, return the awaitable that does."""
        return carried_out(self.scope, lambda: self._appended(bytes_of(data)))

    def _appended(self, data: bytes) -> Artifact:
        must_go_on(self.scope, self.mark, f"appends to the file {self.name!r}")
        log = self.run.log
        try:
            if (known := self._known()) is not None:
                if not _ends_with(log.store, file_of(known).artifact, data):
                    self._differs(known)
                return file_of(known).artifact
            self.run.must_write(self.mark)
            while True:  # until nobody else has written it meanwhile
                there = log.state.files.get(self.name)
                self.base = there.seq if there is not None else 0
                if there is None:
                    artifact = kept_content(log.store, data, log.redact)
                else:
                    artifact = extended(log.store, file_of(there).artifact, data)
                why = self._record(artifact, records_conflict=False)
                if why is None:
                    return artifact
                if not why.conflict:
                    raise why.error()
        except StoreError as error:
            self.run.halt(error)

    def _known(self) -> KeptFile | None:
        """The record of this write in the log; None if nothing. A refusal is raised again."""
        state = self.run.log.state
        if (call := seen_before(self.run, self.mark)) is not None:
            raise decode(cast("Raw", call.result), FileRefused).error()
        if self.mark not in state.marks:
            return None
        return state.kept[bisect_left(state.kept, state.marks[self.mark], key=attrgetter("seq"))]

    def _recorded(self, digest: str) -> Artifact | None:
        """The content written here; None if nothing, or something else by an earlier attempt."""
        known = self._known()
        if known is None:
            return None
        artifact = file_of(known).artifact
        if known.name == self.name and digest in ("", artifact.sha256):
            return artifact
        if self.scope.call is not None:  # the body of a step is no replay
            return None
        self._differs(known)

    def _differs(self, known: KeptFile) -> NoReturn:
        recorded = f"the file {known.name!r} with other content (version {known.seq})"
        asked = f"writes the file {self.name!r}"
        why = "The written content differs: what it is made from must be the same on every run"
        self.run.halt(CodeChanged(self.run.task_id, self.mark, recorded, asked, why))

    def _record(self, artifact: Artifact, *, records_conflict: bool = True) -> FileRefused | None:
        """Write it to the log, or that it was refused: a replay sees the same."""
        outcome: FileRefused | None = None
        raw = Raw(msgspec.json.encode(artifact))
        event = FileKept(
            name=self.name, file=raw, path=call_of(self.scope), mark=self.mark, base=self.base
        )

        def decided(state: State) -> FileKept | Observed | None:
            nonlocal outcome
            outcome = None if self._is_ours(state, artifact) else refused(state, event)
            if outcome is None:
                return event
            if outcome.conflict and not records_conflict:
                return None
            value = Raw(msgspec.json.encode(outcome))
            return Observed(path=self.mark, name="refused", value=value)

        say(self.scope, decided)
        self.run.sync()
        return outcome

    def _is_ours(self, state: State, artifact: Artifact) -> bool:
        """Whether what is there was written by an attempt of this very call, and is the same."""
        found = state.files.get(self.name)
        if found is None or self.scope.call is None or found.path != call_of(self.scope):
            return False
        return file_of(found).artifact.sha256 == artifact.sha256


class Creating:
    """A file that is being written. Made by `create`."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._spool: IO[bytes] = SpooledTemporaryFile(PART_BYTES)  # noqa: SIM115

    def __enter__(self) -> IO[bytes]:
        if self._writing.scope.is_async:
            raise BadInput("in an async task: async with files.create(…)")
        return self._spool

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        with self._spool:
            if kind is None:
                self._end()

    async def __aenter__(self) -> IO[bytes]:
        return self._spool

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        with self._spool:
            if kind is None:
                await cast("Any", self._end())

    def _end(self) -> Artifact:
        return carried_out(self._writing.scope, self._written)

    def _written(self) -> Artifact:
        self._spool.seek(0)
        total = sha256()
        while piece := self._spool.read(PART_BYTES):
            total.update(piece)
        self._spool.seek(0)
        return self._writing.written(cast("BinaryIO", self._spool), total.hexdigest())


def _ends_with(store: Blobs, artifact: Artifact, data: bytes) -> bool:
    if artifact.size_bytes < len(data):
        return False
    with opened(store, artifact) as file:
        file.seek(artifact.size_bytes - len(data))
        return file.read() == data


def attempt_at(scope: Scope) -> str:
    """The mark that tells the attempts at a step apart: each looks at what is there, and writes
    anew."""
    return f"try {scope.call.attempts[-1].number} " if scope.call is not None else ""


def call_of(scope: Scope) -> str:
    """The call that runs, or the strand."""
    return scope.call.path if scope.call is not None else scope.path


def must_go_on(scope: Scope, path: str, asked: str) -> None:
    """Raise what the task was told, or that the code does not fit its checkpoint."""
    run: Run = scope.run
    run.must_go_on_in(scope)
    must_have_restored(run, path, asked)


def carried_out(scope: Scope, work: Callable[[], T]) -> T:
    """Do it here; in an async task off the loop, and return what is to be awaited."""
    if not scope.is_async:
        return work()
    import asyncio

    return asyncio.to_thread(work)  # type: ignore[return-value]


T = TypeVar("T")


def write(name: str, data: Content, *, expected: int | UnsetType | None = UNSET) -> Artifact:
    """Give a file of the task this content; returns the artifact that holds it.

    `data` is text, bytes, an `Artifact`, a `Path`, an open file, or pieces of bytes. With
    `expected`, the `version` that was seen (None for no such file), nothing is written if another
    one is there by now: `Conflict`.

    >>> from holdfast import Holdfast, task
    >>> from holdfast.workspace import files
    >>> @task
    ... def report() -> str:
    ...     files.write("report.md", "# Rooms\\n")
    ...     return files.read_text("report.md")
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(report, id="report-1")
    '# Rooms\\n'
    """
    writing = Writing(inside("files.write()"), checked_file_name(name), base_of(expected))
    return writing.perform(data)


def append(name: str, data: str | bytes) -> Artifact:
    """Add to the end of a file, which is made if it is not there; returns the artifact.

    Content that the store has is not stored again. Also an attempt at a step does it once: what its
    attempts append has to be the same.
    """
    scope = inside("files.append()")
    return Writing(scope, checked_file_name(name), UNSET, "more of ").append(data)


def create(name: str, *, expected: int | UnsetType | None = UNSET) -> Creating:
    """A file to be written piece by piece: `with files.create(name) as out: out.write(…)`.

    It is there when the block ends; if the block raises, nothing is. In an async task: `async
    with`.
    """
    return Creating(Writing(inside("files.create()"), checked_file_name(name), base_of(expected)))


def read(name: str) -> bytes:
    """The content of a file of the task."""
    return _content("files.read()", name, lambda file: file.read())


def read_text(name: str, encoding: str = "utf-8") -> str:
    """The content of a file of the task, as text."""
    return _content("files.read_text()", name, lambda file: text_of(file.read(), name, encoding))


def open(name: str) -> BinaryIO:
    """A file of the task, to be read from any place in it, a part at a time."""
    return _content("files.open()", name, lambda file: file)


def version(name: str) -> int | None:
    """Which version of a file is there, for `write(expected=…)`; None if there is none."""
    checked_file_name(name)
    scope = inside("files.version()")

    def look(state: State) -> int | None:
        return state.files[name].seq if name in state.files else None

    found: int | None = _looked(scope, f"file version {name}", look, int | None)
    return found


def list() -> tuple[File, ...]:
    """The files of the task as they are now, by name."""
    scope = inside("files.list()")
    kind = tuple[File, ...]
    found: tuple[File, ...] = _looked(scope, "files", lambda state: listed(state.files), kind)
    return found


def remove(name: str) -> None:
    """Take a file away, if it is there. Its versions stay in the log."""
    scope = inside("files.remove()")
    run: Run = scope.run
    mark = scope.named_path(f"{attempt_at(scope)}no file {checked_file_name(name)}", "!")

    def removed() -> None:
        must_go_on(scope, mark, f"removes the file {name!r}")
        if mark not in run.log.state.marks:
            run.must_write(mark)
            say(scope, FileRemoved(name=name, path=call_of(scope), mark=mark))
            run.sync()

    return carried_out(scope, removed)


def _content(what: str, name: str, use: Callable[[BinaryIO], T]) -> T:
    """The result made of the content of a file, as that was when the code first came by."""
    checked_file_name(name)
    scope = inside(what)
    run: Run = scope.run
    place = _place(scope, f"file {name}")

    def look(state: State) -> File | None:
        return file_of(state.files[name]) if name in state.files else None

    def used() -> T:
        file = _seen(scope, place, name, look, File | None)
        if file is None:
            raise BadInput(f"task {run.task_id!r} has no file {name!r}: see files.list()")
        try:
            return use(opened(run.log.store, file.artifact))
        except StoreError as error:
            run.halt(error)

    return carried_out(scope, used)


def _looked(scope: Scope, what: str, look: Callable[[State], Any], kind: Any) -> Any:
    place = _place(scope, what)
    return carried_out(scope, lambda: _seen(scope, place, what, look, kind))


def _place(scope: Scope, what: str) -> str:
    return scope.named_path(f"{attempt_at(scope)}{what}", "=")


def _seen(scope: Scope, path: str, what: str, look: Callable[[State], Any], kind: Any) -> Any:
    """The content as the code first saw it here. It is not synced: nothing that followed from it
    can be durable without it."""
    run: Run = scope.run
    must_go_on(scope, path, f"looks at {what}")
    log = run.log
    if seen_before(run, path) is None:
        run.must_write(path)

        def observed(state: State) -> Observed:
            value = log.stow_alone(msgspec.json.encode(look(state)))
            return Observed(path=path, name=what, value=value)

        run.append(observed, scope)
    raw = log.fetch(cast("Raw", log.state.calls[path].result))
    return decode(raw, kind)


__all__ = ["append", "create", "list", "open", "read", "read_text", "remove", "version", "write"]
