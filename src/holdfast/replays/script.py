"""What a replay is given of the recorded log beforehand, and what its code has to come by itself.

The outcomes of calls are given, with all that happened inside them, and so is what came from
outside. What the code says between its calls is left out: notes, decisions, plans, checkpoints, and
its end. Its place stays free, so every event keeps its number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast import chain
from holdfast.events import (
    AnyEvent,
    CancelRequested,
    Checkpointed,
    Claimed,
    Compensating,
    Decided,
    Derived,
    Moved,
    Noted,
    Parked,
    Patched,
    PauseRequested,
    Planned,
    PlanProgressed,
    TaskCompleted,
    TaskContinued,
    TaskErrored,
    TaskRetried,
    TaskStopped,
    dump_event,
)
from holdfast.replays.lives import Life
from holdfast.state import Call, scope_of

Part = Literal["given", "held", "said", "apart"]
"""What becomes of a recorded event: it is there when the code begins (`given`), or when the code
asks for it (`held`); the code says it (`said`); or it tells of who drove the task (`apart`)."""

_APART = (Claimed, Parked, PauseRequested, TaskContinued, CancelRequested, Moved)
_ENDS = (TaskCompleted, TaskErrored, TaskStopped)
_OVER = (*_ENDS, TaskRetried)
_PLANS = (Planned, PlanProgressed)

_FREE = Patched(mark="(said by the code)")


class Script(Struct, frozen=True):
    """The recorded events of one life, each with what becomes of it."""

    life: Life
    parts: Mapping[int, Part]
    events: Sequence[AnyEvent]
    """All that count up to the end of the life, those before it included."""

    def during(self) -> Iterator[AnyEvent]:
        """Those of the life itself."""
        return (event for event in self.events if event.seq > self.life.start)

    def held(self) -> dict[str, list[AnyEvent]]:
        """Those that are held back, by the path of the call that they belong to."""
        found: dict[str, list[AnyEvent]] = {}
        for event in self.during():
            if self.parts[event.seq] == "held":
                found.setdefault(place_in(event), []).append(event)
        return found

    def lines(self, base: int) -> list[bytes]:
        """The log that the code is run over: what a fork shares with its original stays there."""
        made, total = [], chain.ROOT
        for event in self.events:
            if event.seq <= base:
                continue
            kept = event.seq <= self.life.start or self.parts[event.seq] == "given"
            placed = replace(event if kept else _FREE, seq=event.seq - base, at=event.at)
            line, total = chain.seal(total, dump_event(placed))
            made.append(line)
        return made


def script(
    events: Sequence[AnyEvent], life: Life, calls: Mapping[str, Call], stubbed: Collection[str]
) -> Script:
    """Sort the events of a life. `calls` are those that the log comes to, `stubbed` the names of
    steps whose recorded outcomes are not wanted."""
    upto = [event for event in events if event.seq <= life.last]
    is_edited = any(isinstance(event, Planned) and event.by for event in upto)
    replaced = {path for path, call in calls.items() if call.name in stubbed}
    parts: dict[int, Part] = {}
    is_ending = False
    for event in upto:
        is_ending = isinstance(event, Compensating) or (is_ending and not isinstance(event, _OVER))
        if event.seq <= life.start:
            continue
        parts[event.seq] = _part(event, calls, replaced, is_ending, is_edited)
    return Script(life, parts, upto)


def _part(
    event: AnyEvent,
    calls: Mapping[str, Call],
    replaced: Collection[str],
    is_ending: bool,
    is_edited: bool,
) -> Part:
    place = place_in(event)
    if isinstance(event, _APART):
        return "apart"
    if isinstance(event, (*_ENDS, Checkpointed, Compensating)):
        return "said"
    if place and any(path in replaced for path in (place, *around(place))):
        return "held"
    if place and is_ending:  # the undos, and what has to be known before them
        return "held"
    if isinstance(event, _PLANS) and (is_edited or not event.mark):
        return "given"
    if isinstance(event, (Noted, Decided, Derived, *_PLANS)) and not is_inside(place, calls):
        return "said"
    return "given"


def place_in(event: AnyEvent) -> str:
    """Where in the code an event was made: a path, or what stands beside the paths; '' for none."""
    for name in ("path", "mark"):
        if place := getattr(event, name, ""):
            return str(place)
    return str(getattr(event, "scope", "")).partition("#")[0]


def is_inside(place: str, calls: Mapping[str, Call]) -> bool:
    """Whether something was made by the body of a step or a tool, which a replay does not run."""
    return any(path in calls and calls[path].kind in ("step", "tool") for path in around(place))


def around(place: str) -> Iterator[str]:
    """The scopes that something stands in, the nearest first.

    >>> list(around("6.2.1"))
    ['6.2', '6']
    """
    scope = scope_of(place)
    while scope:
        yield scope
        scope = scope_of(scope)
