"""The answers to the calls of a replay: from the log or a stub. Without one the replay stops."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import (
    Adopted,
    AnyEvent,
    CancelRequested,
    Checkpointed,
    Claimed,
    Compensating,
    Decided,
    Derived,
    DriverDied,
    Hindered,
    Moved,
    Noted,
    Parked,
    Patched,
    PauseRequested,
    Planned,
    PlanProgressed,
    Queued,
    Rewound,
    SetAside,
    TaskCompleted,
    TaskContinued,
    TaskErrored,
    TaskRetried,
    TaskStopped,
    dump_event,
)
from holdfast.core.journal import Asked, must_match
from holdfast.core.spec import Spec
from holdfast.core.state import Call, scope_of
from holdfast.engines.execution import failure_of
from holdfast.engines.origins import adopted
from holdfast.engines.run import Run, plain
from holdfast.errors import BadInput, HoldfastError
from holdfast.log import chain
from holdfast.log.log import Log
from holdfast.log.places import ended_at_seq

# The lives of a task: the stretches in which its function runs once, from its top to an end.
#
# A crash or a pause begins no new one: the events after it continue as if it had not happened.
# Retrying a failed task does, and so does undoing one that has ended: from there on the code gets
# other answers. A fork, or a rewound task, is replayed from there on: the past that it shares with
# its original, or was rewound to, is taken as it is.


End = TaskCompleted | TaskErrored | TaskStopped
How = Literal["returned", "raised", "stopped", "open"]

TIMED_OUT = "TaskTimedOut"


class Life(Struct, frozen=True):
    """One run of a task's function: after the event `start`, to the event `last`."""

    start: int
    last: int
    end: End | None = None
    """How it ended; None if the log ends before that."""

    @property
    def how(self) -> How:
        """The cause of its end: the function itself, somebody from outside, or nothing yet."""
        match self.end:
            case TaskCompleted():
                return "returned"
            case TaskErrored(failure=failure) if failure.type != TIMED_OUT:
                return "raised"
            case None:
                return "open"
            case _:
                return "stopped"


def lives(events: Sequence[AnyEvent], base: int) -> list[Life]:
    """The lives in a log, oldest first. `base` is how many events it shares with its original."""
    begin = base
    for event in events:
        if isinstance(event, Rewound):
            begin = max(begin, event.seq)
    own = [event for event in events if event.seq > begin]
    found: list[Life] = []
    start, end = _start(own, is_paused=begin > base), None
    for event in own:
        if isinstance(event, TaskCompleted | TaskErrored | TaskStopped):
            end = event
        if isinstance(event, TaskRetried) or (isinstance(event, Compensating) and end is not None):
            found.append(Life(start, event.seq - 1, end))
            start, end = event.seq, None
    newest = events[-1].seq
    found.append(Life(start or newest, newest, end))
    return found


def _start(events: Iterable[AnyEvent], *, is_paused: bool) -> int:
    """After which event the first life begins; 0 if none does.

    The process that made the task wrote the events before the first claim. A rewound task is paused
    and runs nothing until it is resumed: an engine claims it first, to read that message.
    """
    is_claimed = False
    for event in events:
        match event:
            case Claimed() if not is_paused:
                return event.seq - 1
            case Claimed():
                is_claimed = True
            case PauseRequested():
                is_paused = True
            case TaskContinued() | CancelRequested() if is_claimed:
                return event.seq
            case TaskContinued() | CancelRequested():
                is_paused = False
            case TaskRetried():
                break
    return 0


def status_of(life: Life) -> str:
    """How a life ended, in the words for tasks; `open` if it has not."""
    match life.end:
        case TaskCompleted():
            return "completed"
        case TaskErrored():
            return "failed"
        case TaskStopped():
            return "cancelled"
        case _:
            return "open"


# The recorded events that a replay gets beforehand, and those that its code has to make itself.
#
# The outcomes of calls are given, with all that happened inside them, and so is what came from
# outside. The code's own events between its calls are left out: notes, decisions, plans,
# checkpoints, and its end. Its place stays free, so every event keeps its number.


Part = Literal["given", "held", "said", "apart"]
"""The role of a recorded event: it is there when the code begins (`given`), or when the code asks
for it (`held`); the code makes it (`said`); or it concerns the driver of the task (`apart`)."""

_APART = (
    *(Claimed, Parked, DriverDied, SetAside, Hindered, Queued),
    *(PauseRequested, TaskContinued, CancelRequested, Moved),
)
_ENDS = (TaskCompleted, TaskErrored, TaskStopped)
_OVER = (*_ENDS, TaskRetried)
_PLANS = (Planned, PlanProgressed)

_FREE = Patched(mark="(said by the code)")


class Script(Struct, frozen=True):
    """The recorded events of one life, each with its role."""

    life: Life
    parts: Mapping[int, Part]
    events: Sequence[AnyEvent]
    """All events that count up to the end of the life, those before it included."""

    def during(self) -> Iterator[AnyEvent]:
        """The events of the life itself."""
        return (event for event in self.events if event.seq > self.life.start)

    def held(self) -> dict[str, list[AnyEvent]]:
        """The events that are held back, by the path of their call."""
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
    """Sort the events of a life. `calls` are those of the recorded state, `stubbed` the names of
    steps whose recorded outcomes are not wanted."""
    upto = [event for event in events if event.seq <= life.last]
    is_edited = any(isinstance(event, Planned) and event.by for event in upto)
    named = {path for path, call in calls.items() if call.name in stubbed}
    # The code does not reach calls inside a step that the log answers, so their record stays.
    reached = {path for path in named if not is_inside(path, calls)}
    replaced = reached | {path for path in named if not reached.isdisjoint(around(path))}
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
    """Where in the code an event was made: a path, or a name beside the paths; '' for none."""
    for name in ("path", "mark"):
        if place := getattr(event, name, ""):
            return str(place)
    return str(getattr(event, "scope", "")).partition("#")[0]


def is_inside(place: str, calls: Mapping[str, Call]) -> bool:
    """Whether something was made by the body of a step or a tool, which a replay does not run."""
    return any(path in calls and calls[path].kind in ("step", "tool") for path in around(place))


def around(place: str) -> Iterator[str]:
    """The scopes around a place, the nearest first.

    >>> list(around("6.2.1"))
    ['6.2', '6']
    """
    scope = scope_of(place)
    while scope:
        yield scope
        scope = scope_of(scope)


class Real:
    """The type of `REAL`."""

    def __repr__(self) -> str:
        return "REAL"


REAL: Final = Real()
"""In the place of a stub: the step or tool is really called.

>>> REAL
REAL
"""


BUILT_IN = frozenset({"ask", "sleep"})
"""The calls that are no step, tool or child: the code decides what they return."""


class Reached(HoldfastError):
    """A replay reached the call that it was to stop at."""


class Marks(dict[str, int]):
    """The code's own events so far, by their marks; reports each mark that the code reaches."""

    def __init__(self, marks: Mapping[str, int], seen: Callable[[str], None]) -> None:
        super().__init__(marks)
        self._seen = seen

    def __contains__(self, mark: object) -> bool:
        self._seen(str(mark))
        return super().__contains__(mark)


class Passed(Struct, frozen=True):
    """A call that the code reached: the recorded events that began and ended it."""

    path: str
    began: int
    said: int
    """How many events the code had made by then."""
    ended: int


class Recorded:
    """The answers of a replay: see `holdfast.engines.run.Answers`."""

    def __init__(
        self,
        script: Script,
        calls: Mapping[str, Call],
        stubs: Mapping[str, Any],
        to: str | None = None,
        on_reached: Callable[[], bool] | None = None,
    ) -> None:
        self.run: Run | None = None
        self.passed: list[Passed] = []
        self.stopped: dict[str, str] = {}
        """The calls that nobody could answer, and what was asked for."""
        self.stubbed: list[str] = []
        self.real: list[str] = []
        """The calls that were really made, by their paths."""
        self.used: set[str] = set()
        """The stubs that the code reached, by their names."""
        self.released: set[int] = set()
        """The events that were held back until the code asked for them."""
        self.said: dict[str, int] = {}
        """The events in the log that the code made or read again, by mark or path; each with the
        number of calls that the code had reached by then."""
        self.reached: bool = False
        self._script = script
        self._calls = calls
        self._stubs = stubs
        self._to = to
        self._on_reached = on_reached
        self._held = script.held()
        self._passed: set[str] = set()

    def begin(self, run: Run) -> None:
        """Answer the calls of a run."""
        self.run, run.answers, run.recorded = run, self, self._calls
        run.log.state.marks = Marks(run.log.state.marks, self.seen)

    @property
    def cut_off(self) -> set[str]:
        """The cancelled branches: the code does not decide how far they went."""
        return set() if self.run is None else self.run.loop.cut_off

    def passing(self, asked: Asked) -> None:
        path = asked.path
        call = self._calls.get(path)
        seq = 0
        if self.run is not None:
            self.run.log.flush()  # a step under way has its number then
            seq = self.run.log.state.seq
        began, ended = (0, 0) if call is None else (call.seq, ended_at_seq(call))
        if path not in self._passed:  # the code runs again from its top after a call's back-off
            self._passed.add(path)
            self.passed.append(Passed(path, began, seq, ended))
        if path != self._to or self.reached:
            return
        self.reached = True
        self.stopped[path] = str(asked)
        if self._on_reached is None or not self._on_reached():
            raise Reached(f"it has come to call {path}")
        del self.stopped[path]

    def find(self, asked: Asked, log: Log) -> Sequence[AnyEvent] | None:
        if (name := asked.spec.name) in self._stubs:
            self.used.add(name)
            if self._stubs[name] is REAL:
                self.real.append(asked.path)
                return None
            self.stubbed.append(asked.path)
            return [_stubbed(asked, log, self._stubs[name])]
        held = self._release(asked.path, asked)
        if held:
            return held
        self._beyond(asked.path)
        approval = log.state.calls.get(f"{asked.path}!{asked.args_hash[:12]}")
        if approval is None or approval.status != "completed":
            self.stopped[asked.path] = str(asked)
        return None

    def seen(self, path: str) -> None:
        """Note a reading. A recorded one is in the log already; further ones are read anew."""
        self.said.setdefault(path, len(self.passed))

    def settle(self, path: str) -> Sequence[AnyEvent]:
        if not (held := self._release(path)):
            self._beyond(path)
            self.stopped[path] = self._calls[path].name if path in self._calls else path
        return held

    def _release(self, path: str, asked: Asked | None = None) -> list[AnyEvent]:
        """Take the recorded events of a call that are not in the log yet, with those made inside
        it."""
        places = [place for place in self._held if place == path or place.startswith(f"{path}.")]
        if asked is not None and places and path in self._calls:
            must_match(asked, self._calls[path])
        events = sorted((e for place in places for e in self._held.pop(place)), key=_seq)
        self.released.update(event.seq for event in events)
        return events

    def _beyond(self, path: str) -> None:
        if self.run is not None:
            self.run.beyond.add(path)


def _seq(event: AnyEvent) -> int:
    return event.seq


def _stubbed(asked: Asked, log: Log, stub: Any) -> Adopted:
    spec = asked.spec
    try:
        value = _called(spec, log.fetch(asked.args), stub) if callable(stub) else stub
    except HoldfastError:
        raise
    except Exception as error:
        return replace(adopted(asked, log, b"null", "stub"), failure=failure_of(error, log.redact))
    try:
        if spec.name in BUILT_IN:
            return adopted(asked, log, plain(value), "stub")
        return adopted(asked, log, spec.signature.returns.given(value), "stub")
    except HoldfastError as error:
        raise BadInput(f"the stub for {spec.name} gives what does not fit: {error}") from None


def _called(spec: Spec, data: bytes, stub: Callable[..., Any]) -> Any:
    args, kwargs = spec.signature.load(data)
    value = stub(*args, **kwargs)
    if inspect.iscoroutine(value):
        value.close()
        raise BadInput(f"the stub for {spec.name} is async: give a plain function")
    return value
