"""Figures beside their aims: measured in turn, then told as a table and as a picture.

Contenders take turns, and the first one changes from round to round, because a disk's speed
drifts. A failed measurement is a line that says so; the others go on.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.running import Failed, say


@dataclass
class Figure:
    """One line: what, how much it should be, if we aim at something, and what each round found."""

    what: str
    unit: str
    aim: float | None = None
    at_least: bool = False
    found: list[float] = field(default_factory=list)
    failed: str = ""

    @property
    def value(self) -> float:
        return median(self.found)

    @property
    def is_met(self) -> bool:
        return self.share <= 1

    @property
    def share(self) -> float:
        """How far it is from the aim: 1 is met, 2 is twice as much as it should be."""
        assert self.aim is not None
        return self.aim / self.value if self.at_least else self.value / self.aim

    @property
    def measured(self) -> str:
        """The median, and the least and the greatest."""
        if not self.found:
            why = (self.failed or "interrupted").splitlines()
            return f"not measured: {why[-1].strip()[:100]}"
        if len(self.found) == 1:
            return number(self.value)
        return f"{number(self.value)} ({number(min(self.found))}–{number(max(self.found))})"


def at_most(what: str, unit: str, aim: float) -> Figure:
    return Figure(what, unit, aim)


def at_least(what: str, unit: str, aim: float) -> Figure:
    return Figure(what, unit, aim, at_least=True)


def of(what: str, unit: str) -> Figure:
    """A figure that nobody aims at: another's."""
    return Figure(what, unit)


@dataclass
class Case:
    """One measurement, and the figures that it gives in each round."""

    figures: list[Figure]
    measure: Callable[[int], Sequence[float | list[float]]]
    rounds: int
    """How often it is measured."""

    def turn(self, which: int) -> None:
        if which >= self.rounds or self.figures[0].failed:
            return
        say(f"{_clock()} round {which + 1} of {self.rounds}: {self.figures[0].what}")
        try:
            values = self.measure(which)
        except (Failed, subprocess.SubprocessError, OSError, AssertionError) as error:
            say(f"  failed: {error}")
            for each in self.figures:
                each.failed = str(error) or type(error).__name__
        else:
            for each, value in zip(self.figures, values, strict=True):
                each.found += value if isinstance(value, list) else [value]


def in_turn(cases: list[Case]) -> list[Figure]:
    """Every case once in each round, and each time another one first."""
    for which in range(max(case.rounds for case in cases)):
        first = which % len(cases)
        for case in cases[first:] + cases[:first]:
            case.turn(which)
    return [each for case in cases for each in case.figures]


def by_turns(which: int, *runs: Callable[[], float]) -> list[float]:
    """What each run takes; the last one is first in every other round."""
    order = list(range(len(runs)))
    spent = {place: runs[place]() for place in (order if which % 2 else reversed(order))}
    return [spent[place] for place in order]


class OtherWork:
    """How much of the machine others used: what its processors did, less what this process and
    its children did."""

    def __init__(self) -> None:
        self._wall, self._all, self._own = time.monotonic(), _busy_s(), _own_s()

    def share(self) -> float:
        lasted = (time.monotonic() - self._wall) * (os.cpu_count() or 1)
        return max(0.0, _busy_s() - self._all - (_own_s() - self._own)) / lasted


def _busy_s() -> float:
    """Seconds of processor time of all processes, since the machine started."""
    if not sys.platform.startswith("linux"):
        return _own_s()
    fields = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return (sum(fields) - idle) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    return sum(os.times()[:4])


_began = time.monotonic()


def _clock() -> str:
    minutes, seconds = divmod(int(time.monotonic() - _began), 60)
    return f"{minutes:02}:{seconds:02}"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


# The tables.


def table(figures: list[Figure]) -> str:
    """What we aim at: a line for each."""
    rows = ["| what | aim | measured | met |", "|---|---|---|---|"]
    for each in figures:
        assert each.aim is not None
        sign = "≥" if each.at_least else "≤"
        unit = f" {each.unit}" if each.unit else ""
        met = "–" if not each.found else "yes" if each.is_met else f"no: {number(each.share)}×"
        rows.append(f"| {each.what} | {sign} {number(each.aim)}{unit} | {each.measured} | {met} |")
    return "\n".join(rows)


def table_of_others(figures: list[Figure]) -> str:
    rows = ["| what | measured |", "|---|---|"]
    for each in figures:
        unit = f" {each.unit}" if each.unit and each.found else ""
        rows.append(f"| {each.what} | {each.measured}{unit} |")
    return "\n".join(rows)


# The picture.

_ROW, _LEFT, _WIDTH = 22, 420, 240
_FARTHEST = 2.4


def picture(figures: list[Figure]) -> str:
    """Bars: how far each figure is from its aim, which is the line."""
    rows, line = [], _LEFT + _WIDTH / _FARTHEST
    shown = [each for each in figures if each.found]
    for place, each in enumerate(shown):
        color = "#0a6a64" if each.is_met else "#b8860b"
        width = min(each.share, _FARTHEST) * _WIDTH / _FARTHEST
        rows.append(_bar(place, each.what, width, f"{number(each.value)} {each.unit}", color))
    height = 40 + len(shown) * _ROW
    return _svg(
        height,
        f'<text x="{line:.0f}" y="18" text-anchor="middle">aim (shorter is better)</text>'
        + "".join(rows)
        + f'<line x1="{line:.0f}" y1="22" x2="{line:.0f}" y2="{height - 8}" stroke="#333"/>',
    )


def picture_of_others(title: str, figures: list[Figure]) -> str:
    """Bars of one measure, ours and others', the shortest first."""
    shown = sorted((each for each in figures if each.found), key=lambda each: each.value)
    longest = max((each.value for each in shown), default=1)
    rows = [
        _bar(
            place,
            each.what,
            each.value * _WIDTH / longest,
            each.measured + f" {each.unit}",
            "#0a6a64" if each.what.startswith("Holdfast") else "#8a8a8a",
        )
        for place, each in enumerate(shown)
    ]
    head = f'<text x="{_LEFT}" y="18">{title}</text>'
    return _svg(40 + len(shown) * _ROW, head + "".join(rows))


def _bar(place: int, what: str, width: float, value: str, color: str) -> str:
    y = 30 + place * _ROW
    name = what.replace("&", "&amp;").replace("<", "&lt;").replace("`", "")
    return (
        f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{name}</text>'
        f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="15" fill="{color}"/>'
        f'<text x="{_LEFT + width + 6:.0f}" y="{y + 12}">{value}</text>'
    )


def _svg(height: int, inside: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" '
        f'font-family="sans-serif" font-size="11" fill="#333">'
        f'<rect width="800" height="{height}" fill="#fff"/>{inside}</svg>\n'
    )
