"""The allowed answers of a store: the memory store's answer, and where its rules leave it a choice.

Every call is made on a memory store as well. Where the rules say what comes of a call, the two
must agree. They leave a choice in few places, and this is about those:

- Lines that were appended but not synced may be gone, from some line on, after a crash or a
  takeover. The rest is seen when the next lease is taken.
- Another process may see such lines late, and with them the facts that came along.
- A holder that was taken over may be told so when it appends, or when it syncs.
- Facts may be unknown at any time, and after a crash be older ones.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from typing import Any, ClassVar, Final

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine
from msgspec import Struct, field

from holdfast.errors import HoldfastError
from holdfast.log.store_calls import acquire_one, streams_in
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Facts, Lease, Store


class Memory(MemoryStore):
    """The memory store, as the one that others are compared with."""

    def __init__(self, beside: Memory | None = None) -> None:
        super().__init__(beside)

    def lines(self, stream: str) -> list[bytes]:
        """All that was appended, and is not known to be lost."""
        return list(self.read(stream))

    def cut(self, stream: str, head: int, facts: Facts | None) -> None:
        """Forget the lines that a crash took, and the facts that came with them."""
        with self._lock:
            del self._streams[stream][head:]
            if not head:
                del self._streams[stream]
            self._facts.pop(stream, None)
            if facts is not None:
                self._facts[stream] = facts


class Process(Struct, eq=False):
    """A store that is checked, and the memory store that does the same."""

    real: Store
    model: Memory


class Hold(Struct, eq=False):
    """A lease that was taken, in both."""

    stream: str
    process: Process
    real: Lease
    model: Lease
    seq: int
    """Where its holder thinks that the log ends."""
    lasts: bool
    """Else it had run out when it was taken, so that anybody may take over."""
    unsynced: bool = False
    is_zombie: bool = False
    """Whether it appended after its lease was lost."""
    is_settled: bool = False
    """Whether all that it appended before is in the log, as the one read it who took over."""


class Stream(Struct, eq=False):
    """The facts about a stream besides those in the memory store."""

    synced: int = 0
    """So many lines are there whatever happens."""
    visible: int = 0
    """So many lines are there for everybody, unless a crash takes them."""
    epoch: int = 0
    told: list[tuple[int, Facts]] = field(default_factory=list)
    """The facts so far, and after how many lines each was told."""
    last: Hold | None = None
    """The holder that had it last and has not given it back."""
    owner: str | None = None
    """The holders that may still seem to hold it."""
    has_crashed: bool = False
    """Whether a process that held it was killed."""
    has_old_facts: bool = False
    """Whether that was after facts were last told."""


class Outcome(Struct):
    """The outcome of a call."""

    value: Any = None
    error: HoldfastError | None = None

    def __str__(self) -> str:
        return repr(self.error) if self.error else f"returned {self.value!r}"


def outcome(call: Callable[..., Any], *given: Any) -> Outcome:
    """Call something, and keep what comes of it."""
    try:
        return Outcome(call(*given))
    except HoldfastError as error:
        return Outcome(error=error)


def must_agree(what: str, found: Outcome, expected: Outcome) -> None:
    """Fail if two outcomes are not of the same kind."""
    if type(found.error) is not type(expected.error):
        raise AssertionError(f"{what}: the store {found}, the memory store {expected}")


def must_be_prefix(
    what: str, found: Sequence[bytes], lines: Sequence[bytes], at_least: int, after: int = 0
) -> None:
    """Fail if what was read, from a line on, is no prefix of the log, or is too short."""
    if list(found) != list(lines[after : after + len(found)]):
        raise AssertionError(f"{what}: read {_shown(found)}, the log is {_shown(lines[after:])}")
    if len(found) < at_least - after:
        raise AssertionError(
            f"{what}: read {len(found)} lines after {after}, but {at_least} of the log are certain"
        )


def must_be_one_of(what: str, found: Any, allowed: Iterable[Any]) -> None:
    """Fail if something is not among what it may be."""
    allowed = list(allowed)
    if found not in allowed:
        raise AssertionError(f"{what}: found {found!r}, expected one of {allowed!r}")


def is_due(facts: Facts | None, now: datetime) -> bool:
    """Whether facts say that somebody should drive a stream."""
    return facts is not None and facts.wake_at is not None and facts.wake_at <= now


def nobodys_digest(text: str) -> str:
    """The digest of a blob that nobody put."""
    return sha256(text.encode()).hexdigest()


def _shown(lines: Sequence[bytes]) -> str:
    return f"{len(lines)} lines ending in {list(lines[-2:])!r}"


# The parts that the rules share: the processes, the streams, and what is known of them.


NAMES = ("a", "a/b", "A \u00e9_%'")
LONG_S, SHORT_S = 600.0, 0.001
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)

some_process: Final = st.integers(0, 2)
some_name: Final = st.sampled_from(NAMES)
the_newest_or_so: Final = st.integers(0, 5)


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
        self.prefix: str = f"tasks/{os.urandom(4).hex()}-"
        self.root: Memory = Memory()
        self.processes: dict[int, Process] = {}
        self.holds: list[Hold] = []
        self.streams: dict[str, Stream] = {self.prefix + name: Stream() for name in NAMES}
        self.blobs: dict[str, bytes] = {}
        self.numbers: count[int] = count(1)

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
            for stream in list(streams_in(process.real, self.prefix)):
                if self.root.holder(stream) is None:
                    process.real.delete(acquire_one(process.real, stream, "who tidies up", LONG_S))
        for process in self.processes.values():
            with suppress(Exception):
                process.real.close()
