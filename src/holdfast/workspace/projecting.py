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
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.core import events as e
from holdfast.core.decoding import damage_in
from holdfast.core.events import NEVER, AnyEvent, Rewound
from holdfast.core.state import Attempt, Call, State
from holdfast.core.words import checked_id
from holdfast.errors import LogDamaged, TaskBusy, TaskNotFound
from holdfast.log.reading import Tail, no_task, stream_of
from holdfast.stores import system
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed, safe_name
from holdfast.stores.port import Store
from holdfast.views.task import TaskView
from holdfast.views.words import one_line, words_of
from holdfast.workspace import replacement as replacing
from holdfast.workspace.pages import (
    EDITABLE,
    PAGE_FORMAT,
    PAGES,
    PageChanges,
    as_json,
    as_line,
    is_untouched,
    rendered,
)
from holdfast.workspace.replacement import Outcome, make_root, must_be_plain, place, remove, replace
from holdfast.workspace.task_files import materialize

# The files that only grow: `progress.log`, a line for people on what happened, and
# `tool_log.jsonl`, for programs: a line when an attempt of a tool begins, and one on how it ended.
#
# A line is made of an event and of the state after it, and never changes.

PROGRESS, TOOL_LOG = "progress.log", "tool_log.jsonl"

PROGRESS_FORMAT = 3
"""In format 2, values were cut at 160 characters."""

HEADER = f"# holdfast {PROGRESS_FORMAT}: time | step | status | details\n"
"""The first line of `progress.log`."""

_DETAIL = 240
_value = partial(as_line, most=60)
"""A line with one value fits a terminal. A longer text is in the log: it need not be here again."""


def progress_line(event: AnyEvent, state: State) -> str:
    """An event as `time | step | status | details`; '' for one that is of no interest.

    `state` is that after it: it knows the names of the calls.
    """
    said = words_of(event, state)
    if said.minor:
        return ""
    status, detail = said.status, said.sentence(_value, _time, short=True)
    path: str = "" if isinstance(event, e.Rewound) else getattr(event, "path", "")
    call = state.calls.get(path) if path else None
    who = f"{path} {call.name}" if call is not None else path or _WHO.get(type(event), "task")
    if not detail:
        return f"{_time(event.at)} | {_cell(who)} | {status}\n"
    return f"{_time(event.at)} | {_cell(who)} | {status} | {_cell(detail)}\n"


def tool_line(event: AnyEvent, state: State) -> bytes:
    """The beginning of an attempt of a tool, or how it ended, as a line of JSON; b'' if the event
    is neither.

    An attempt that a crash ended has no event for its end: its beginning stands alone, and is
    told to be `interrupted` when the next attempt begins. Where the task was rewound a line says
    so: those above it, down to that event, count no more.
    """
    if isinstance(event, e.Rewound):
        return _rewound_line(event)
    outcome = _OUTCOMES.get(type(event))
    if outcome is None:
        return b""
    call = state.calls[getattr(event, "path", "")]
    if call.kind != "tool":
        return b""
    if isinstance(event, e.Started):
        return _started_lines(event, call)
    begun = call.attempts[-1].at if call.attempts else call.at
    line: dict[str, Any] = {
        "format": PAGE_FORMAT,
        "seq": event.seq,
        "path": call.path,
        "tool": call.name,
        "status": outcome,
        "input": as_json(call.args),
        "output": as_json(call.result) if call.status == "completed" else None,
        "key": call.key,
        "attempts": len(call.attempts),
        "started": _time(begun),
        "ended": _time(event.at),
        "duration_ms": round((event.at - begun).total_seconds() * 1000, 3),
        "error": None,
    }
    if isinstance(event, e.AttemptFailed):
        line["error"] = event.failure.summary()
    elif isinstance(event, e.Failed) and call.failure is not None:
        line["error"] = call.failure.summary()
    elif isinstance(event, e.Doubted):
        line["error"] = event.why
    elif isinstance(event, e.Settled):
        line["status"], line["settled_by"] = event.verdict, event.by
    elif isinstance(event, e.Adopted):  # it was not called
        line["status"], line["of"] = event.how, {"task": event.of, "path": event.of_path}
        line["error"] = event.failure.summary() if event.failure is not None else None
    return _encode(line) + b"\n"


def _started_lines(event: e.Started, call: Call) -> bytes:
    before = call.attempts[-2] if len(call.attempts) > 1 else None
    line = _attempt_line(event, call, "started", call.attempts[-1])
    if before is None or before.ended_at is not None:
        return _encode(line) + b"\n"
    cut = _attempt_line(event, call, "interrupted", before)
    return _encode(cut) + b"\n" + _encode(line) + b"\n"


def _attempt_line(event: e.Started, call: Call, status: str, attempt: Attempt) -> dict[str, Any]:
    return {
        "format": PAGE_FORMAT,
        "seq": event.seq,
        "path": call.path,
        "tool": call.name,
        "status": status,
        "input": as_json(call.args),
        "key": call.key,
        "attempts": attempt.number,
        "started": _time(attempt.at),
    }


def _rewound_line(event: e.Rewound) -> bytes:
    line = {
        "format": PAGE_FORMAT,
        "seq": event.seq,
        "status": "rewound",
        "to": event.to,
        "by": event.by,
        "ended": _time(event.at),
    }
    return _encode(line) + b"\n"


_encode = msgspec.json.Encoder().encode
_OUTCOMES: dict[type, str] = {
    e.Started: "started",
    e.Completed: "completed",
    e.AttemptFailed: "attempt_failed",
    e.Failed: "failed",
    e.Doubted: "in_doubt",
    e.Settled: "settled",
    e.Adopted: "adopted",
}


_second: tuple[datetime, str] = (NEVER, "1970-01-01T00:00:00")


def _time(at: datetime) -> str:
    # Most events come in the second of the one before, and telling a date takes its time.
    global _second  # replaced whole, so that threads can share it
    begun, text = _second
    past = at - begun
    if past.days or past.seconds:
        begun = at.astimezone(UTC).replace(microsecond=0)
        past, text = at - begun, begun.isoformat()[:19]
        _second = begun, text
    return f"{text}.{past.microseconds // 1000:03d}Z"


def _cell(text: str) -> str:
    if len(text) > _DETAIL or not text.isprintable():
        text = one_line(text, _DETAIL)
    # The text between two bars can't make a third.
    return text.replace(" | ", " ¦ ") if "|" in text else text


_WHO: dict[type, str] = {
    e.Planned: "plan",
    e.PlanProgressed: "plan",
    e.MissionSet: "mission",
    e.FileKept: "files",
    e.FileRemoved: "files",
}


# A file that only grows with a log: `progress.log`, `tool_log.jsonl`.
#
# It compares the file with what belongs there, and writes only the rest. So a line that a crash
# tore is completed, and another process that goes on writes nothing twice.


Signature = tuple[tuple[int, int], int, float]
"""Which file it is, how long, and when it was last written."""


class GrowingFile:
    """One such file, as far as it is known to be right."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name
        self._seen: Signature | None = None
        self.size: int = 0

    def begin(self) -> None:
        """Nothing is known of it."""
        self.size, self._seen = 0, None

    def is_as_it_was(self, folder: int) -> bool:
        """Whether nobody has written to it since we looked."""
        return self._signature(folder) == self._seen

    def grow(self, folder: int, data: bytes, *, is_all: bool) -> Outcome | None:
        """Let it have this next. None if something else is there; `is_all` if it has to end so."""
        disk = self._disk
        try:
            fd = disk.open(self._name, folder, _APPEND | (os.O_CREAT if data else 0))
        except FileNotFoundError:
            return "same" if not self.size else None
        try:
            replacing.must_be_plain(disk, fd, self._name)
            there = disk.read_piece(fd, self.size, len(data))
            if not data.startswith(there):
                return None
            if rest := data[len(there) :]:
                if disk.size(fd) != self.size + len(there):  # it was cut
                    return None
                disk.write(fd, rest)
            elif is_all and disk.size(fd) > self.size + len(data):
                return None
            was_there, self.size = self.size, self.size + len(data)
            self._seen = self._signature(folder)
            return "same" if not rest else "replaced" if was_there or there else "made"
        finally:
            disk.close(fd)

    def rewrite(self, folder: int, data: bytes) -> Outcome:
        """Put all of it in place. Lines that somebody else wrote there are kept aside."""
        if not data:
            return self._remove(folder)
        outcome = replacing.replace(self._disk, folder, self._name, data, self._is_ours(data))
        self.size, self._seen = len(data), self._signature(folder)
        return outcome

    def _remove(self, folder: int) -> Outcome:
        self.begin()
        with suppress(FileNotFoundError):
            replacing.keep_aside(self._disk, folder, self._name, self._name)
            self._disk.unlink(self._name, folder)
            return "kept aside"
        return "same"

    def _is_ours(self, data: bytes) -> Callable[[bytes], bool]:
        def is_ours(before: bytes) -> bool:
            said = _FORMAT.match(before)
            return data.startswith(before) or (said is not None and said[0] not in _NOW)

        return is_ours

    def _signature(self, folder: int) -> Signature | None:
        found = self._disk.status_of(self._name, folder)
        about = self._disk.size_and_time_of(self._name, folder)
        return (found.inode, *about) if found is not None and about is not None else None


_FORMAT = re.compile(rb'(?:# holdfast |\{"format":)(\d{1,9})[:,]')
"""How such a file begins."""
_NOW = (b"# holdfast %d:" % PROGRESS_FORMAT, b'{"format":%d,' % PAGE_FORMAT)

_APPEND = os.O_RDWR | os.O_APPEND | system.NO_WAIT

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
