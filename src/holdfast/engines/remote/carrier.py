"""The work of an engine for a task that it drives, and the things that a task waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from holdfast.core.journal import Asked


class Pending(Protocol):
    """Something that a task waits for. An asyncio future is one."""

    def done(self) -> bool:
        """Whether it has come."""


class Until:
    """Waiting for a condition, which only what the engine says can change."""

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done = done


class Waits(Struct, frozen=True):
    """A call can't go on for now: it waits for a message that came after the event `seq`, or for
    a time."""

    seq: int
    until: datetime | None = None


class Lost(Struct, frozen=True):
    """The engine does not know what became of a call: who made it has gone. The log may know."""


class Timer(Pending, Protocol):
    """A time that an engine waits for."""

    def give_up(self) -> None:
        """Nobody waits for it any more. An engine that can't take it back lets it come."""


class Called(Pending, Protocol):
    """A call that an engine makes."""

    def result(self) -> Waits | Lost | None:
        """Why it has to be asked for again; None if it has ended."""

    def give_up(self) -> None:
        """The task is to stop. A call that is being made runs to its end; the next attempt at one
        that failed is not waited for."""


class ChildRun(Pending, Protocol):
    """Another task that the engine drives for this one."""

    def has_ended(self) -> bool:
        """Whether the task ended; else it was given to another engine."""


class Carrier(Protocol):
    """The work of an engine for one task, in one of its runs. Each thing asked for must be asked
    for again, in the same order, when the function runs again from its top."""

    def call(self, asked: Asked, data: bytes) -> Called:
        """Make a call with these arguments, by `attempt`."""

    def settle(self) -> Called:
        """Find out about the calls in doubt that are to be undone, by `settle`."""

    def sleep(self, until: datetime) -> Timer:
        """Wait for a time."""

    def start_child(self, id: str, task: str) -> ChildRun:
        """Have another task driven, whose log is there; done when it has ended."""

    def is_full(self) -> bool:
        """Whether the engine wants to begin a new run, because this one has grown long."""

    def now(self) -> datetime:
        """The time, as the engine has it: the same when the function runs again."""

    async def first(self, pendings: Sequence[Pending]) -> None:
        """Return when one of them is done, or when a message has come (see `messages`)."""

    def messages(self) -> Sequence[str]:
        """The names of the messages that have come since it was last asked, in their order."""
