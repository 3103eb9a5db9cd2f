"""What a step does that is measured on an engine, whoever makes it."""

import time

WORKERS = 8
"""How many items of a map are under way at a time."""

THREADS = 16
"""How many steps a worker makes at a time, at most."""

_ends: list[float] = []


def made(x: int) -> int:
    """Add 1, and remember when."""
    _ends.append(time.perf_counter())
    return x + 1


def said() -> list[float]:
    """The seconds that each thousand of the steps took since this was last asked."""
    times = _ends[:]
    _ends.clear()
    marks = times[::1000]
    if marks[-1:] != times[-1:]:
        marks.append(times[-1])
    return [round(end - begin, 3) for begin, end in zip(marks, marks[1:], strict=False)]
