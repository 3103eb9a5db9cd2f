"""A debugger at a call of a task that is replayed: in the code that makes the call, as it makes it.

What is there is real: the frame of the task's function, with its variables. `c` goes on with the
replay from there, `n` and `s` go on line by line, `q` ends it.
"""

from __future__ import annotations

import asyncio
import pdb
import sys
import threading
from collections.abc import Iterator
from types import CoroutineType, FrameType
from typing import Any

_NOT_THEIRS = ("holdfast", "asyncio", "concurrent", "threading", "contextvars")
"""Whose frames may stand between the task's code and the call that it makes."""


class Debugging:
    """Opens a debugger in the task's code that makes a call, when it is called there."""

    def __init__(self) -> None:
        self._debugger: pdb.Pdb | None = None

    def __call__(self) -> bool:
        """Debug; whether the replay is to go on."""
        frame = frame_of_the_task(sys._getframe(1))
        self._debugger = pdb.Pdb(skip=[f"{name}.*" for name in _NOT_THEIRS], nosigint=True)
        self._debugger.reset()
        self._debugger.interaction(frame, None)
        if self.was_left:
            return False
        if self._debugger.stoplineno != -1 or self._debugger.breaks:  # not just `continue`
            _follow(self._debugger, frame)
        return True

    @property
    def was_left(self) -> bool:
        """Whether the person at it ended it, and with it the replay."""
        return self._debugger is not None and self._debugger.quitting


def frame_of_the_task(frame: FrameType) -> FrameType:
    """The nearest frame of the task's own code.

    A call in a branch may be made by a thread or an asyncio task that has none: then it is the
    code that waits for the branch.
    """
    for outer in (_outwards(frame), _waiting_coroutines(), _main_thread()):
        if (found := next(filter(_is_theirs, outer), None)) is not None:
            return found
    return frame


def _is_theirs(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] not in _NOT_THEIRS


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those around it, up to where the task's function was called."""
    while frame is not None:
        if _module(frame).startswith("holdfast.engines") and frame.f_code.co_name == "run_function":
            return
        if _module(frame) == "asyncio.base_events":
            return
        yield frame
        frame = frame.f_back


def _waiting_coroutines() -> Iterator[FrameType]:
    """The frames of coroutines that wait, each from the inside out."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop runs here
        return
    for task in tasks:
        frames: list[FrameType] = []
        waiting: Any = task.get_coro()
        while isinstance(waiting, CoroutineType) and waiting.cr_frame is not None:
            frames.append(waiting.cr_frame)
            waiting = waiting.cr_await
        yield from reversed(frames)


def _main_thread() -> Iterator[FrameType]:
    return _outwards(sys._current_frames().get(threading.main_thread().ident or 0))


def _follow(debugger: pdb.Pdb, frame: FrameType) -> None:
    """Let the debugger stop where it was told to: it is told of each line from here on."""
    outer: FrameType | None = frame
    while outer is not None:
        outer.f_trace = debugger.trace_dispatch
        debugger.botframe = outer
        outer = outer.f_back
    sys.settrace(debugger.trace_dispatch)
