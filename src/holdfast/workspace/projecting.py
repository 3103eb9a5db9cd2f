"""Keeping the readable files of a task in step with its log.

    tasks/<safe id>/
      mission.md  plan.md  status.md  decisions.md  state.json     replaced, each at once
      progress.log  tool_log.jsonl                                 grown

The log is the only truth, and these are made of it alone: delete them, and `project` makes the
same bytes again. Nothing is synced. Their writer holds a lock on `progress.log` and reads
the log under it, so that nobody ever replaces a newer page by an older one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from msgspec import Struct

from holdfast.core.decoding import damage_in
from holdfast.core.events import Rewound
from holdfast.core.words import checked_id
from holdfast.errors import LogDamaged, TaskBusy, TaskNotFound
from holdfast.log.reading import Tail, no_task, stream_of
from holdfast.stores import system
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed, safe_name
from holdfast.stores.port import Store
from holdfast.views.task import TaskView
from holdfast.workspace.pages import EDITABLE, PAGES, PageChanges, is_untouched, rendered
from holdfast.workspace.progress import (
    HEADER,
    PROGRESS,
    TOOL_LOG,
    GrowingFile,
    progress_line,
    tool_line,
)
from holdfast.workspace.replacement import Outcome, make_root, must_be_plain, place, remove, replace
from holdfast.workspace.task_files import materialize

FILES = ("mission.md", "plan.md", "status.md", "decisions.md", "state.json", PROGRESS, TOOL_LOG)

_WAIT_S = 10.0
_POLL_S = 0.01
_SLICE = 100
"""After so many events other threads may have the interpreter. A smaller slice yields sooner but
costs twice as much: each switch empties the caches of the processor."""

Place = Callable[[], AbstractContextManager[int]]
"""Opens the folder of a task."""


ARTIFACTS = "artifacts"
"""The folder in that of a task which has the files that the task made."""


class Projected(Struct, frozen=True):
    """The outcome for the files of a task: at which event they are, and what was done to each."""

    task: str
    seq: int
    files: dict[str, Outcome]
    is_current: bool = True
    """Whether that was the newest event when the log was read."""


def task_folder(root: str | os.PathLike[str], task_id: str) -> Path:
    """Where the files of a task are in a workspace.

    >>> task_folder("workspace", "Trip 42").as_posix()
    'workspace/tasks/Trip_42~97eeb84134dd8508'
    """
    return Path(root) / "tasks" / safe_name(task_id)


def project(
    store: Store,
    task_id: str,
    folder: str | os.PathLike[str],
    *,
    taken: Mapping[str, bytes] | None = None,
) -> Projected:
    """Bring every readable file of a task up to date, in this folder, which is made if need be.

    An edited `plan.md` or `mission.md` is left alone, unless its text is the one given as `taken`
    in. An edited version of any other file is kept aside.

    >>> import tempfile
    >>> from holdfast import Holdfast, task
    >>> @task
    ... def greet(name: str) -> str:
    ...     return f"hello {name}"
    >>> with tempfile.TemporaryDirectory() as folder, Holdfast("memory://") as hf:
    ...     _ = hf.run(greet, "Ada", id="greet-1")
    ...     made = project(hf.store, "greet-1", folder)
    ...     sorted(made.files)
    ['mission.md', 'progress.log', 'state.json', 'status.md']
    """
    disk, path = Disk(), Path(os.path.abspath(folder))
    where = partial(place, disk, path.parent, path.name, make=True)
    projection = Projection(store, checked_id(task_id), where, disk)
    give_up_at = time.monotonic() + _WAIT_S
    while True:
        try:
            make_root(path.parent)
            made = projection.update(taken=taken)
            projection.put_files(path)
            return made
        except TaskBusy:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(_POLL_S)
        except OSError as error:
            raise failed(f"can't write the files of task {task_id!r}", error) from error


class Projection:
    """The files of one task, and how much of its log is in them. Read on by `update`."""

    def __init__(self, store: Store, task_id: str, where: Place, disk: Disk) -> None:
        self._store = store
        self._task_id = task_id
        self._where = where
        self._disk = disk
        self._progress = GrowingFile(disk, PROGRESS)
        self._tools = GrowingFile(disk, TOOL_LOG)
        self._put: tuple[tuple[str, int], ...] | None = None
        """The versions of the task's own files that are in its folder, once that was looked at."""
        self._begin()

    @property
    def finished(self) -> bool:
        """Whether the task had ended when its log was last read."""
        return self._tail.finished

    @property
    def was_put_back(self) -> bool:
        """Whether the newest event of the task is a rewind."""
        state = self._tail.state
        newest = state.trail[-1] if state.trail else None
        return isinstance(newest, Rewound) and newest.seq == state.seq

    @property
    def waits(self) -> bool:
        """Whether the task was released, to wait, when its log was last read."""
        state = self._tail.state
        return state.parked and not self.finished

    def update(
        self,
        *,
        most: int | None = None,
        breathe: Callable[[], object] = lambda: None,
        taken: Mapping[str, bytes] | None = None,
    ) -> Projected:
        """Take in what is new in the log, at most so many events, and write it.

        `TaskBusy` if somebody else is at it, `OSError` if the disk refuses: the files are then as
        true as they were, and the next time goes on.
        """
        if not self._tail.state.seq:
            self._must_be_there()
        try:
            return self._updated(most, breathe, taken)
        except OSError:
            self._begin()  # lines that were read and not written are read again
            raise

    def _updated(
        self, most: int | None, breathe: Callable[[], object], taken: Mapping[str, bytes] | None
    ) -> Projected:
        with damage_in(stream_of(self._task_id)), self._where() as folder, self._lock(folder):
            both = (self._progress, self._tools)
            if not all(file.is_as_it_was(folder) for file in both):
                self._begin()
            lines, calls, is_all = self._read_on(most, breathe)
            files: dict[str, Outcome] = {}
            grown = self._grow(folder, lines, calls, is_all)
            if grown is None:
                self._begin()
                lines, calls, is_all = self._read(None, breathe)
            view = TaskView(self._store, self._tail.state)
            pages = rendered(view, self._changes)
            for name, data in pages.items():
                files[name] = self._page(folder, name, data, taken)
            for name in PAGES if self._changes.are_fewer else ():
                if name not in pages and (gone := self._no_page(folder, name)) is not None:
                    files[name] = gone
            if grown is None:  # last, because the lock is lost with the file
                grown = (
                    self._tools.rewrite(folder, calls),
                    self._progress.rewrite(folder, lines),
                )
            tools, progress = grown
            files[PROGRESS] = progress
            if self._tools.size:
                files[TOOL_LOG] = tools
            return Projected(self._task_id, self._tail.state.seq, files, is_all)

    def put_files(self, folder: Path) -> None:
        """Let the task's own files be in its folder, under `artifacts`, as they are now."""
        state = self._tail.state
        now = tuple((name, kept.seq) for name, kept in state.files.items())
        if now == self._put:
            return
        place = folder / ARTIFACTS
        if now or (place.is_dir() and not place.is_symlink()):  # there may be files to be removed
            materialize(self._store, state, place)
        self._put = now

    def _must_be_there(self) -> None:
        if next(iter(self._store.read(stream_of(self._task_id))), None) is None:
            raise no_task(self._store, self._task_id)

    def _begin(self) -> None:
        self._tail = Tail(self._store, self._task_id)
        self._changes = PageChanges()
        self._progress.begin()
        self._tools.begin()

    def _no_page(self, folder: int, name: str) -> Outcome | None:
        """Remove a page that there is nothing to say on any more."""
        return remove(self._disk, folder, name, partial(is_untouched, name), leave=name in EDITABLE)

    @contextmanager
    def _lock(self, folder: int) -> Iterator[None]:
        disk = self._disk
        fd = disk.open(PROGRESS, folder, os.O_RDWR | os.O_CREAT | system.NO_WAIT)
        try:
            must_be_plain(disk, fd, PROGRESS)
            is_it = disk.try_lock(fd) and disk.inode_of(PROGRESS, folder) == disk.status(fd).inode
            if not is_it:
                raise TaskBusy(
                    f"somebody else is writing the files of task {self._task_id!r}: "
                    f"they are up to date in a moment"
                )
            yield
        finally:
            disk.close(fd)

    def _read_on(
        self, most: int | None, breathe: Callable[[], object]
    ) -> tuple[bytes, bytes, bool]:
        try:
            return self._read(most, breathe)
        except (LogDamaged, TaskNotFound):  # or it was deleted, and another one made of that id
            self._begin()
            return self._read(most, breathe)

    def _read(self, most: int | None, breathe: Callable[[], object]) -> tuple[bytes, bytes, bool]:
        """The new lines for the two files that grow, and whether that was all."""
        tail, note = self._tail, self._changes.note
        lines = [] if tail.state.seq else [HEADER]
        calls: list[bytes] = []
        count = 0
        for _, event in islice(tail.read(), most):
            note(event)
            if line := progress_line(event, tail.state):
                lines.append(line)
            if call := tool_line(event, tail.state):
                calls.append(call)
            count += 1
            if count % _SLICE == 0:
                breathe()
        text = "".join(lines).encode(errors="backslashreplace")
        return text, b"".join(calls), most is None or count < most

    def _grow(
        self, folder: int, lines: bytes, calls: bytes, is_all: bool
    ) -> tuple[Outcome, Outcome] | None:
        tools = self._tools.grow(folder, calls, is_all=is_all)
        progress = self._progress.grow(folder, lines, is_all=is_all)
        return None if tools is None or progress is None else (tools, progress)

    def _page(
        self, folder: int, name: str, data: bytes, taken: Mapping[str, bytes] | None
    ) -> Outcome:
        def is_ours(before: bytes) -> bool:
            return is_untouched(name, before) or before == (taken or {}).get(name)

        return replace(self._disk, folder, name, data, is_ours, leave=name in EDITABLE)


__all__ = ["FILES", "Projected", "Projection", "project", "task_folder"]
