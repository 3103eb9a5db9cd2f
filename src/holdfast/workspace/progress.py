"""The files that only grow: `progress.log`, a line for people on what happened, and
`tool_log.jsonl`, for programs: a line when an attempt of a tool begins, and one on how it ended.

A line is made of an event and of the state after it, and never changes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from holdfast.core import events as e
from holdfast.core.events import NEVER, AnyEvent
from holdfast.core.state import Attempt, Call, State
from holdfast.stores import system
from holdfast.stores.files.disk import Disk
from holdfast.views.markdown import one_line
from holdfast.views.words import words_of
from holdfast.workspace import replacement as replacing
from holdfast.workspace.pages import PAGE_FORMAT, as_json, as_line
from holdfast.workspace.replacement import Outcome

PROGRESS, TOOL_LOG = "progress.log", "tool_log.jsonl"

PROGRESS_FORMAT = 3
"""In format 2, values were cut at 160 characters."""

HEADER = f"# holdfast {PROGRESS_FORMAT}: time | step | status | details\n"
"""The first line of `progress.log`."""

_DETAIL = 240
_value = partial(as_line, most=60)
"""A line with one value fits a terminal. A longer text is in the log, and need not be here again."""


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
