"""What a step does that is measured on an engine, whoever makes it."""

import time
from itertools import pairwise
from typing import Any

WORKERS = 8
"""How many items of a map are under way at a time."""

THREADS = 16
"""How many steps a worker makes at a time, at most."""

Message = dict[str, str]

_ends: list[float] = []
_used = [0.0]


def made(x: int) -> int:
    """Add 1, and remember when."""
    _ends.append(time.perf_counter())
    return x + 1


def said() -> dict[str, Any]:
    """Since this was last asked: the seconds that each thousand of the steps took, and those of
    the processor that this process used."""
    times = _ends[:]
    _ends.clear()
    marks = times[::1000]
    if marks[-1:] != times[-1:]:
        marks.append(times[-1])
    pace = [round(end - begin, 3) for begin, end in pairwise(marks)]
    used = time.process_time() - _used[0]
    _used[0] += used
    return {"thousands": pace, "processor_s": used}


def said_before() -> list[Message]:
    """A conversation of 209,000 tokens, of four letters each."""
    text = "word" * 1045
    return [{"role": ("user", "assistant")[n % 2], "content": f"{n} {text}"} for n in range(200)]


def replied(messages: list[Message]) -> Message:
    """What a model says: which tool is to be called now."""
    return {"role": "assistant", "content": f"look up {len(messages)}"}


def looked_up(what: str) -> Message:
    """What a tool found: 5 KB."""
    return {"role": "tool", "content": f"{what}: {'fact' * 1250}"}
