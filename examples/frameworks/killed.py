"""Kill the durable option of a framework and ours at the same moments, and count the effects.

A model books two rooms at once, and then a third one. The agent is run once for each moment right
before and right after an effect, killed there with SIGKILL, and run again in a new process: with
what the framework itself offers, and with Holdfast. The modules whose names end in `_killed` do so;
numbers behind them choose the moments.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from holdfast import Happened, IdempotencyKey, tool
from holdfast.agent import Message, ToolCall, assistant
from holdfast.testing import ScriptedModel
from holdfast.testing.scripted import Seen

QUESTION = "Book me rooms in Oslo and Rome, and then one in Bern."
NO_KEY = IdempotencyKey()


class Effects:
    """The outside world: a file with a line for each effect; and the moment to die at."""

    def __init__(self, folder: Path, moment: int) -> None:
        self.path = folder / "effects"
        self._left = moment
        self._lock = threading.Lock()

    def book(self, city: str, key: str = "") -> str:
        """Book a room: the effect."""
        with self._lock:  # a framework may call tools in threads, and each moment is one of them
            self._pass()
            with self.path.open("a") as file:
                file.write(f"{city} {key}\n")
                file.flush()
                os.fsync(file.fileno())
            self._pass()
        return f"room in {city}"

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def lines(self) -> list[str]:
        """The effects that were made."""
        return self.path.read_text().splitlines() if self.path.exists() else []

    def was_booked(self, key: str) -> Happened[str] | None:
        """Ask the outside world for what was booked under a key."""
        found = [line for line in self.lines() if line.endswith(f" {key}")]
        return Happened(f"room in {found[0].split()[0]}") if found else None

    def tool(self) -> Any:
        """Booking a room, as a tool of ours."""

        @tool(check=self.was_booked)
        def book(city: str, *, key: IdempotencyKey = NO_KEY) -> str:
            """Book a room."""
            return self.book(city, key)

        return book


Way = Callable[[Path, Effects, str], None]
"""Runs the agent in a folder, or goes on with it. The model is behind a URL."""


def said(seen: Seen) -> Message:
    """What the model says next: by the cities that it has called for."""
    called = {call.id for message in seen.messages for call in message.calls}
    if not called:
        return assistant("", [_call("Oslo"), _call("Rome")])
    return assistant("", [_call("Bern")]) if len(called) == 2 else assistant("All is booked.")


def _call(city: str) -> ToolCall:
    return ToolCall(f"call_{city}", "book", f'{{"city": "{city}"}}')


def main(package: str, ways: Mapping[str, Way], effects: int = 3) -> dict[str, int]:
    """Kill both ways at each moment, and print how many effects each made in all."""
    moments = [int(word) for word in sys.argv[1:]] or range(1, 2 * effects + 1)
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as place:
        for name, way in ways.items():
            found[name] = 0
            for moment in moments:
                folder = Path(place) / f"{len(found)}-{moment}"
                folder.mkdir()
                found[name] += _run_and_kill(way, folder, moment)
    made = ", ".join(f"{name} made {count}" for name, count in found.items())
    print(
        f"{package} {version(package)}: killed at {len(moments)} moments, "
        f"{effects * len(moments)} effects were to be made; {made}"
    )
    return found


def _run_and_kill(way: Way, folder: Path, moment: int) -> int:
    """Run in a process that dies at a moment, and in another one to the end; count the effects."""
    for each in (moment, 0):
        # A fork need not import the framework again. Nothing else runs in this process.
        child = os.fork()
        if child == 0:
            _run(way, folder, each)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended != (-signal.SIGKILL if each else 0):
            raise RuntimeError(f"{way.__name__} at moment {each} ended with {ended}")
    return len(Effects(folder, 0).lines())


def _run(way: Way, folder: Path, moment: int) -> None:
    try:
        with ScriptedModel(said) as model:
            way(folder, Effects(folder, moment), model.url)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
