"""How far a long command is: a bar on a terminal, lines elsewhere"""

import io
import sys

from holdfast.cli import output as progress
from holdfast.upkeep.families import CopyProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def tell_all(tell):
    for done in range(3):
        tell(CopyProgress("copying", "trip-\x1b[31m", done, 3, 1000 * done))


def test_a_terminal_shows_a_bar_and_nothing_that_an_id_may_hold(monkeypatch):
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    monkeypatch.setattr(progress, "_QUICK_S", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    with progress.telling() as tell:
        tell_all(tell)
    assert "copying: 2 of 3 tasks" in seen.getvalue()
    assert "trip-\\x1b[31m" in seen.getvalue()
    assert "trip-\x1b" not in seen.getvalue()


def test_what_is_done_soon_shows_no_bar(monkeypatch):
    seen = Terminal()
    monkeypatch.setattr(sys, "stderr", seen)
    with progress.telling() as tell:
        tell_all(tell)
    assert seen.getvalue() == ""


def test_a_log_gets_a_line_now_and_then(monkeypatch):
    seen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", seen)
    with progress.telling() as tell:
        tell_all(tell)
    assert seen.getvalue() == ""
    monkeypatch.setattr(progress, "_LINE_S", 0.0)
    with progress.telling() as tell:
        tell_all(tell)
    assert seen.getvalue().splitlines()[-1] == (
        "copying: 2 of 3 tasks (trip-\\x1b[31m, 2,000 events)"
    )
