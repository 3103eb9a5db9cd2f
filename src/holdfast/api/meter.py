"""How far a long piece of work is: a bar on a terminal, lines in a log, events for who follows.

All three are for people, so they come a few times a second, or every few seconds, and no more.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

_BAR_S, _EVENT_S, _LINE_S = 0.1, 1.0, 10.0
_BAR_WIDTH = 30
_PARTS = " ▏▎▍▌▋▊▉█"


class Meter:
    """Counts what is done, and says so."""

    def __init__(
        self,
        name: str,
        total: int | None,
        *,
        on_terminal: bool | None = None,
        event: Callable[[int, int | None], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._total = total
        self._event = event
        self._clock = clock
        self._out: Any = sys.stderr
        has_terminal = self._out is not None and self._out.isatty()
        self._on_terminal = has_terminal if on_terminal is None else on_terminal
        self._done = self._failed = self._fresh = 0
        self._began = self._drawn = self._told = self._logged = clock()

    def begin_at(self, done: int) -> None:
        """So many were done before, in an earlier run."""
        self._done = done

    def count(self, *, failed: bool = False, fresh: bool = True) -> None:
        """One more is done. `fresh` if it was done now, and not in an earlier run."""
        self._done += 1
        self._failed += failed
        self._fresh += fresh
        now = self._clock()
        if self._on_terminal and now - self._drawn >= _BAR_S:
            self._drawn = now
            self._out.write(f"\r\033[K{self.text(bar=True)}")
            self._out.flush()
        if now - self._told >= _EVENT_S:
            self._told = now
            self._event(self._done, self._total)
        if not self._on_terminal and now - self._logged >= _LINE_S:
            self._logged = now
            self._log()

    def end(self) -> None:
        """Nothing more comes."""
        if self._on_terminal and self._drawn != self._began:
            self._out.write(f"\r\033[K{self.text(bar=True)}\n")
            self._out.flush()
        if self._told != self._began:
            self._event(self._done, self._total)
        if self._logged != self._began:
            self._log()

    def text(self, *, bar: bool = False) -> str:
        """How far it is, in one line."""
        words = [self._name]
        if bar and self._total:
            words.append(_bar(self._done / self._total))
        words.append(f"{self._done:,}" + (f" of {self._total:,}" if self._total else ""))
        passed_s = self._clock() - self._began
        rate = self._fresh / passed_s if passed_s > 0 else 0.0
        words.append(f"{rate:,.1f}/s")
        if self._total and rate > 0:
            words.append(f"{_duration((self._total - self._done) / rate)} left")
        if self._failed:
            words.append(f"{self._failed:,} failed")
        return "  ".join(words)

    def _log(self) -> None:
        import logging

        logging.getLogger("holdfast").info("%s", self.text())


def _bar(share: float) -> str:
    """A bar that is full at 1.

    >>> _bar(0.5)
    '███████████████               '
    """
    eighths = round(min(max(share, 0.0), 1.0) * _BAR_WIDTH * 8)
    full, part = divmod(eighths, 8)
    return ("█" * full + (_PARTS[part] if part else "")).ljust(_BAR_WIDTH)


def _duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _duration(75), _duration(3675)
    ('1:15', '1:01:15')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
