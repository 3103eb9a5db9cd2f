"""The files of a task, from inside of it: `from holdfast.workspace import files`.

    files.write("report.md", text)      files.read_text("report.md")      files.list()

What is written goes to the store, a part at a time, and the log says that from then on the file
has this content. So a write is all or nothing, every version is kept, and a state of the past has
its files. In an async task each of these is awaited.

A replay writes nothing again: the same write answers with what it wrote, and one of something else
is `CodeChanged`. What a read found is recorded, so a replay finds it again, whatever was written
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

from holdfast.artifacts import PART_BYTES, Artifact, opened
from holdfast.engines.execution import beyond, must_have_restored
from holdfast.engines.run import Run
from holdfast.errors import BadInput, CodeChanged, StoreError
from holdfast.events import FileKept, FileRemoved, Observed
from holdfast.filing import Refused, checked_file_name, refused
from holdfast.saying import append
from holdfast.scope import Scope, inside
from holdfast.state import KeptFile, State
from holdfast.workspace.contents import (
    Content,
    File,
    base_of,
    digest_of,
    file_of,
    kept_content,
    listed,
    text_of,
)

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
    writing = _Writing(inside("files.write()"), checked_file_name(name), base_of(expected))
    return writing.perform(data)


def create(name: str, *, expected: int | UnsetType | None = UNSET) -> Creating:
    """A file to be written piece by piece: `with files.create(name) as out: out.write(…)`.

    It is there when the block ends; if the block raises, nothing is. In an async task: `async
    with`.
    """
    return Creating(_Writing(inside("files.create()"), checked_file_name(name), base_of(expected)))


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
    mark = scope.named_path(f"{_attempt(scope)}no file {checked_file_name(name)}", "!")

    def removed() -> None:
        _must_go_on(scope, mark, f"removes the file {name!r}")
        if mark not in run.log.state.marks:
            _must_be_real(run, mark)
            append(scope, FileRemoved(name=name, path=_call(scope), mark=mark))
            run.sync()

    return _carried_out(scope, removed)


class _Writing:
    """One write: its place in the code, and how it gets into the log."""

    def __init__(self, scope: Scope, name: str, base: int | UnsetType) -> None:
        self.scope = scope
        self.run: Run = scope.run
        self.name = name
        self.base = base
        self.mark = scope.named_path(f"{_attempt(scope)}file {name}", "!")

    def perform(self, data: Content) -> Artifact:
        """Carry it out; in an async task, return the awaitable that does."""
        return _carried_out(self.scope, lambda: self.written(data, digest_of(data)))

    def written(self, data: Content, digest: str) -> Artifact:
        """What it comes to; with the `digest` of the data, where there is one, to compare."""
        _must_go_on(self.scope, self.mark, f"writes the file {self.name!r}")
        if (known := self._recorded(digest)) is not None:
            return known
        _must_be_real(self.run, self.mark)
        log = self.run.log
        try:
            artifact = kept_content(log.store, data, log.redact)
        except StoreError as error:  # the task did not fail: it can't go on here and now
            self.run.halt(error)
        why = self._record(artifact)
        if why is not None:
            raise why.error()
        return artifact

    def _recorded(self, digest: str) -> Artifact | None:
        """What the log holds of this write; None if nothing, or what an attempt wrote before."""
        state = self.run.log.state
        if (call := state.calls.get(self.mark)) is not None:
            raise msgspec.json.decode(cast("Raw", call.result), type=Refused).error()
        if self.mark not in state.marks:
            return None
        known = state.kept[bisect_left(state.kept, state.marks[self.mark], key=attrgetter("seq"))]
        artifact = file_of(known).artifact
        if known.name == self.name and digest in ("", artifact.sha256):
            return artifact
        if self.scope.call is not None:  # the body of a step is no replay
            return None
        self._differs(known)

    def _differs(self, known: KeptFile) -> NoReturn:
        recorded = f"the file {known.name!r} with other content (version {known.seq})"
        asked = f"writes the file {self.name!r}"
        why = "What is written differs: what it is made from must be the same on every run"
        self.run.halt(CodeChanged(self.run.task_id, self.mark, recorded, asked, why))

    def _record(self, artifact: Artifact) -> Refused | None:
        """Write it to the log, or that it was refused: a replay sees the same."""
        outcome: Refused | None = None
        raw = Raw(msgspec.json.encode(artifact))
        event = FileKept(
            name=self.name, file=raw, path=_call(self.scope), mark=self.mark, base=self.base
        )

        def decided(state: State) -> FileKept | Observed:
            nonlocal outcome
            outcome = None if self._is_ours(state, artifact) else refused(state, event)
            if outcome is None:
                return event
            value = Raw(msgspec.json.encode(outcome))
            return Observed(path=self.mark, name="refused", value=value)

        append(self.scope, decided)
        self.run.sync()
        return outcome

    def _is_ours(self, state: State, artifact: Artifact) -> bool:
        """Whether what is there was written by an attempt of this very call, and is the same."""
        found = state.files.get(self.name)
        if found is None or self.scope.call is None or found.path != _call(self.scope):
            return False
        return file_of(found).artifact.sha256 == artifact.sha256


class Creating:
    """A file that is being written. Made by `create`."""

    def __init__(self, writing: _Writing) -> None:
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
        return _carried_out(self._writing.scope, self._written)

    def _written(self) -> Artifact:
        self._spool.seek(0)
        total = sha256()
        while piece := self._spool.read(PART_BYTES):
            total.update(piece)
        self._spool.seek(0)
        return self._writing.written(cast("BinaryIO", self._spool), total.hexdigest())


def _content(what: str, name: str, use: Callable[[BinaryIO], T]) -> T:
    """What is made of the content of a file, which is what it was when the code first came by."""
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

    return _carried_out(scope, used)


def _looked(scope: Scope, what: str, look: Callable[[State], Any], kind: Any) -> Any:
    place = _place(scope, what)
    return _carried_out(scope, lambda: _seen(scope, place, what, look, kind))


def _place(scope: Scope, what: str) -> str:
    return scope.named_path(f"{_attempt(scope)}{what}", "=")


def _seen(scope: Scope, path: str, what: str, look: Callable[[State], Any], kind: Any) -> Any:
    """What was seen when the code first came by here. It is not synced: nothing that followed from
    it can be durable without it."""
    run: Run = scope.run
    _must_go_on(scope, path, f"looks at {what}")
    log = run.log
    if path not in log.state.calls:
        _must_be_real(run, path)

        def observed(state: State) -> Observed:
            value = log.stow_alone(msgspec.json.encode(look(state)))
            return Observed(path=path, name=what, value=value)

        run.append(observed, scope)
    raw = log.fetch(cast("Raw", log.state.calls[path].result))
    return msgspec.json.decode(raw, type=kind)


def _attempt(scope: Scope) -> str:
    """What tells the attempts at a step apart: each looks at what is there, and writes anew."""
    return f"try {scope.call.attempts[-1].number} " if scope.call is not None else ""


def _call(scope: Scope) -> str:
    return scope.call.path if scope.call is not None else scope.path


def _must_go_on(scope: Scope, path: str, asked: str) -> None:
    run: Run = scope.run
    run.must_go_on_in(scope)
    must_have_restored(run, path, asked)


def _must_be_real(run: Run, path: str) -> None:
    if run.is_rehearsal:
        run.park(path, beyond(run, path))


def _carried_out(scope: Scope, work: Callable[[], T]) -> T:
    """Do it here; in an async task off the loop, and return what is to be awaited."""
    if not scope.is_async:
        return work()
    import asyncio

    return asyncio.to_thread(work)  # type: ignore[return-value]


__all__ = ["create", "list", "open", "read", "read_text", "remove", "version", "write"]
