"""Who answers the calls of a replay: the log, a stub, or nobody, and then it stops there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.failures import failure_of
from holdfast.engines.run import Run
from holdfast.errors import BadInput, HoldfastError
from holdfast.events import Adopted, AnyEvent
from holdfast.history import ended_at_seq
from holdfast.journal import Asked, must_match
from holdfast.log import Log
from holdfast.replays.script import Script
from holdfast.saying import plain
from holdfast.spec import Spec
from holdfast.state import Call
from holdfast.travel.answers import adopted


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
"""The calls that are no step, tool or child: what they return is for the code to say."""


class Reached(HoldfastError):
    """A replay has come to the call that it was to stop at."""


class Marks(dict[str, int]):
    """What the code has said so far, by its marks; tells which of them it comes by."""

    def __init__(self, marks: Mapping[str, int], seen: Callable[[str], None]) -> None:
        super().__init__(marks)
        self._seen = seen

    def __contains__(self, mark: object) -> bool:
        self._seen(str(mark))
        return super().__contains__(mark)


class Passed(Struct, frozen=True):
    """The code has come to a call: the recorded events by which that one began, and ended."""

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
        self.released: set[int] = set()
        """The events that were held back until the code asked for them."""
        self.said: dict[str, int] = {}
        """What the code has said or read again that was there already, by its mark or path; and
        how many calls it had come to by then."""
        self.reached = False
        self._script = script
        self._calls = calls
        self._stubs = stubs
        self._to = to
        self._on_reached = on_reached
        self._held = script.held()

    def begin(self, run: Run) -> None:
        """Answer the calls of a run."""
        self.run, run.answers, run.is_replay = run, self, True
        run.log.state.marks = Marks(run.log.state.marks, self.seen)

    @property
    def cut_off(self) -> set[str]:
        """The branches that were cancelled: how far they came is not for the code to say."""
        return set() if self.run is None else self.run.cut_off

    def passing(self, asked: Asked) -> None:
        path = asked.path
        call = self._calls.get(path)
        seq = self.run.log.state.seq if self.run is not None else 0
        began, ended = (0, 0) if call is None else (call.seq, ended_at_seq(call))
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
            if self._stubs[name] is REAL:
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
        """What was read and is recorded is in the log already. More than that is read anew."""
        self.said.setdefault(path, len(self.passed))

    def settle(self, path: str) -> Sequence[AnyEvent]:
        if not (held := self._release(path)):
            self._beyond(path)
            self.stopped[path] = self._calls[path].name if path in self._calls else path
        return held

    def _release(self, path: str, asked: Asked | None = None) -> list[AnyEvent]:
        """What was recorded of a call and is not in the log yet, with all that it made itself."""
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
        return adopted(asked, log, spec.signature.returns.settle(value)[0], "stub")
    except HoldfastError as error:
        raise BadInput(f"the stub for {spec.name} gives what does not fit: {error}") from None


def _called(spec: Spec, data: bytes, stub: Callable[..., Any]) -> Any:
    args, kwargs = spec.signature.load(data)
    value = stub(*args, **kwargs)
    if inspect.iscoroutine(value):
        value.close()
        raise BadInput(f"the stub for {spec.name} is async: give a plain function")
    return value
