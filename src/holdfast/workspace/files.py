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

from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.artifacts import Artifact, opened
from holdfast.decoding import decode
from holdfast.engines.lookup import seen_before
from holdfast.engines.run import Run
from holdfast.errors import BadInput, StoreError
from holdfast.events import FileRemoved, Observed
from holdfast.filing import checked_file_name
from holdfast.saying import append as say
from holdfast.scope import Scope, inside
from holdfast.state import State
from holdfast.workspace.contents import Content, File, base_of, file_of, listed, text_of
from holdfast.workspace.writing import (
    Creating,
    Writing,
    attempt_at,
    call_of,
    carried_out,
    must_be_real,
    must_go_on,
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
    writing = Writing(inside("files.write()"), checked_file_name(name), base_of(expected))
    return writing.perform(data)


def append(name: str, data: str | bytes) -> Artifact:
    """Add to the end of a file, which is made if it is not there; returns the artifact.

    What is there is not stored again. Also an attempt at a step does it once: what its attempts
    append has to be the same.
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
            must_be_real(run, mark)
            say(scope, FileRemoved(name=name, path=call_of(scope), mark=mark))
            run.sync()

    return carried_out(scope, removed)


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

    return carried_out(scope, used)


def _looked(scope: Scope, what: str, look: Callable[[State], Any], kind: Any) -> Any:
    place = _place(scope, what)
    return carried_out(scope, lambda: _seen(scope, place, what, look, kind))


def _place(scope: Scope, what: str) -> str:
    return scope.named_path(f"{attempt_at(scope)}{what}", "=")


def _seen(scope: Scope, path: str, what: str, look: Callable[[State], Any], kind: Any) -> Any:
    """What was seen when the code first came by here. It is not synced: nothing that followed from
    it can be durable without it."""
    run: Run = scope.run
    must_go_on(scope, path, f"looks at {what}")
    log = run.log
    if seen_before(run, path) is None:
        must_be_real(run, path)

        def observed(state: State) -> Observed:
            value = log.stow_alone(msgspec.json.encode(look(state)))
            return Observed(path=path, name=what, value=value)

        run.append(observed, scope)
    raw = log.fetch(cast("Raw", log.state.calls[path].result))
    return decode(raw, kind)


__all__ = ["append", "create", "list", "open", "read", "read_text", "remove", "version", "write"]
