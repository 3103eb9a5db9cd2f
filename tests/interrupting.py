"""Interrupts at chosen moments: what a signal handler raises, without the luck that a signal needs.

Python looks for signals at the start of a function, after a call of something written in C, and
where a loop goes back. At one of these moments, counted from 0, an `Interrupt` is raised in the
thread that runs the block, just where one by a signal would be. (Not where a loop goes back on
3.12, which crashes if one thread traces what another runs; see `tests/test_locks.py` for those.)
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

_BACK = "JUMP_BACKWARD"
_CAN_TRACE = sys.version_info[:2] != (3, 12)


class Interrupt(BaseException):
    """As `KeyboardInterrupt` is, but nobody else's."""


class _Moments:
    def __init__(self, at: int, outside: str, spared: str) -> None:
        self._outside = outside
        self._spared = spared
        self.at = at
        self.count = 0

    def _comes(self, frame: FrameType) -> None:
        if self._counts(frame):
            self.count += 1
            if self.count == self.at + 1:
                _unwatched()
                raise Interrupt

    def _counts(self, frame: FrameType | None) -> bool:
        is_inside = False
        while frame is not None and frame.f_code.co_filename not in (self._outside, __file__):
            if self._spared and self._spared in frame.f_code.co_filename:
                return False
            is_inside, frame = True, frame.f_back
        return is_inside

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event in ("call", "c_return"):
            self._comes(frame)

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in _jumps_back(frame.f_code):
            self._comes(frame)
        return self.trace


@cache
def _jumps_back(code: CodeType) -> frozenset[int]:
    return frozenset(found.offset for found in dis.get_instructions(code) if found.opname == _BACK)


def _unwatched() -> None:
    sys.settrace(None)
    sys.setprofile(None)


def interrupted(work: Callable[[], object], at: int, outside: str, spared: str = "") -> bool:
    """Do something that is left at a moment; False if it ended before.

    Moments in the file `outside`, which calls what is tried, do not count; nor do those in files
    whose path has the part `spared`, or in what these call.
    """
    moments = _Moments(at, outside, spared)
    before = sys.gettrace(), sys.getprofile()
    try:
        if _CAN_TRACE:
            sys.settrace(moments.trace)
        sys.setprofile(moments.profile)
        work()
    except BaseException:
        if moments.count <= at:  # otherwise it is the interrupt, or comes of it
            raise
    finally:
        _unwatched()
        sys.settrace(before[0])
        sys.setprofile(before[1])
    return moments.count > at
