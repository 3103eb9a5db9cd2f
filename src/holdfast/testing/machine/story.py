"""What the rules share: the processes, the streams, and what is known of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import ClassVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from holdfast.store import Store
from holdfast.testing.machine.model import Hold, Memory, Process, Stream

NAMES = ("a", "a/b", "A \u00e9_%'")
LONG_S, SHORT_S = 600.0, 0.001
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

some_process = st.integers(0, 2)
some_name = st.sampled_from(NAMES)
the_newest_or_so = st.integers(0, 5)


class Story(RuleBasedStateMachine):
    """A few processes with a store each on one place, and a few streams."""

    open_store: Callable[[], Store]
    crash_store: Callable[[Store], None] | None
    notices_death: bool
    notice_s: ClassVar[float] = 10.0
    """How long a store may take to notice that a process was killed."""

    def __init__(self) -> None:
        super().__init__()
        # A part of the place that no other story uses, so that it need not be new.
        self.prefix = f"tasks/{os.urandom(4).hex()}-"
        self.root = Memory()
        self.processes: dict[int, Process] = {}
        self.holds: list[Hold] = []
        self.streams = {self.prefix + name: Stream() for name in NAMES}
        self.blobs: dict[str, bytes] = {}
        self.numbers = count(1)

    def process(self, who: int) -> Process:
        """A process, started if it is not there."""
        if who not in self.processes:
            self.processes[who] = Process(self.open_store(), Memory(self.root))
        return self.processes[who]

    def hold(self, pick: int) -> Hold | None:
        """One of the leases that were taken, and may be lost by now: the newest is 0."""
        return self.holds[-1 - pick % len(self.holds)] if self.holds else None

    def must_be_seen(self, stream: str, process: Process) -> int:
        """How many lines of a stream a process can't miss."""
        known = self.streams[stream]
        if known.last is not None and known.last.process is process:
            return len(self.root.lines(stream))
        return known.visible

    def lines(self, stream: str, after: int, count: int) -> list[bytes]:
        """New lines: no two writers write the same, but all of the same length."""
        event = {"id": stream.split("/", 1)[1], "text": f"{next(self.numbers):06}"}
        return [msgspec.json.encode({**event, "seq": after + n + 1}) for n in range(count)]

    def let_run_out(self, hold: Hold) -> None:
        """A holder that hangs does so for long enough."""
        if not hold.lasts:
            time.sleep(6 * SHORT_S)

    def ended(self, who: int) -> Iterator[tuple[str, Stream]]:
        """Forget a process, and give the streams that it held."""
        process = self.processes.pop(who)
        self.holds = [hold for hold in self.holds if hold.process is not process]
        for stream, known in self.streams.items():
            if known.last is not None and known.last.process is process:
                yield stream, known

    def teardown(self) -> None:
        """Leave the place as it was found, as far as it can be."""
        with suppress(Exception):  # what matters was said before
            process = self.process(0)
            for stream in list(process.real.streams(self.prefix)):
                if self.root.holder(stream) is None:
                    process.real.delete(process.real.acquire(stream, "who tidies up", LONG_S))
        for process in self.processes.values():
            with suppress(Exception):
                process.real.close()
