"""How a write of a task gets into its log: once, and the same on a replay."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from hashlib import sha256
from operator import attrgetter
from tempfile import SpooledTemporaryFile
from typing import IO, Any, BinaryIO, NoReturn, TypeVar, cast

import msgspec
from msgspec import Raw, UnsetType

from holdfast.artifacts import PART_BYTES, Artifact, extended, opened
from holdfast.decoding import decode
from holdfast.engines.execution import beyond
from holdfast.engines.lookup import must_have_restored, seen_before
from holdfast.engines.run import Run
from holdfast.errors import BadInput, CodeChanged, StoreError
from holdfast.events import FileKept, Observed
from holdfast.filing import Refused, refused
from holdfast.saying import append as say
from holdfast.scope import Scope
from holdfast.state import KeptFile, State
from holdfast.values import Blobs
from holdfast.workspace.contents import Content, bytes_of, digest_of, file_of, kept_content

T = TypeVar("T")


class Writing:
    """One write: its place in the code, and how it gets into the log."""

    def __init__(
        self, scope: Scope, name: str, base: int | UnsetType, what: str | None = None
    ) -> None:
        self.scope = scope
        self.run: Run = scope.run
        self.name = name
        self.base = base
        self.mark = scope.named_path(f"{what or attempt_at(scope)}file {name}", "!")

    def perform(self, data: Content) -> Artifact:
        """Carry it out; in an async task, return the awaitable that does."""
        return carried_out(self.scope, lambda: self.written(data, digest_of(data)))

    def written(self, data: Content, digest: str) -> Artifact:
        """What it comes to; with the `digest` of the data, where there is one, to compare."""
        must_go_on(self.scope, self.mark, f"writes the file {self.name!r}")
        if (known := self._recorded(digest)) is not None:
            return known
        must_be_real(self.run, self.mark)
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
            must_be_real(self.run, self.mark)
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
        """What the log holds of this write; None if nothing. A refusal is raised again."""
        state = self.run.log.state
        if (call := seen_before(self.run, self.mark)) is not None:
            raise decode(cast("Raw", call.result), Refused).error()
        if self.mark not in state.marks:
            return None
        return state.kept[bisect_left(state.kept, state.marks[self.mark], key=attrgetter("seq"))]

    def _recorded(self, digest: str) -> Artifact | None:
        """What was written here; None if nothing, or something else by an earlier attempt."""
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
        why = "What is written differs: what it is made from must be the same on every run"
        self.run.halt(CodeChanged(self.run.task_id, self.mark, recorded, asked, why))

    def _record(self, artifact: Artifact, *, records_conflict: bool = True) -> Refused | None:
        """Write it to the log, or that it was refused: a replay sees the same."""
        outcome: Refused | None = None
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
    """What tells the attempts at a step apart: each looks at what is there, and writes anew."""
    return f"try {scope.call.attempts[-1].number} " if scope.call is not None else ""


def call_of(scope: Scope) -> str:
    """The call that runs, or the strand."""
    return scope.call.path if scope.call is not None else scope.path


def must_go_on(scope: Scope, path: str, asked: str) -> None:
    """Raise what the task was told, or that the code does not fit its checkpoint."""
    run: Run = scope.run
    run.must_go_on_in(scope)
    must_have_restored(run, path, asked)


def must_be_real(run: Run, path: str) -> None:
    """End a rehearsal where the log ends."""
    if run.is_rehearsal:
        run.park(path, beyond(run, path))


def carried_out(scope: Scope, work: Callable[[], T]) -> T:
    """Do it here; in an async task off the loop, and return what is to be awaited."""
    if not scope.is_async:
        return work()
    import asyncio

    return asyncio.to_thread(work)  # type: ignore[return-value]
