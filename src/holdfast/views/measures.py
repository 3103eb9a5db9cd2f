"""Where the time of one task went, from its events alone.

Between two events the task is in one state: a call is at work, or all of them wait for something,
or its own code runs, or nobody drives it. The time before a claim counts as nobody driving it, or
as waiting where the task was released: the log does not know when a process died.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Raw, Struct

from holdfast.core import events as e
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import AnyEvent
from holdfast.core.lists import BLOB, LISTED, BlobRef, value_of
from holdfast.core.state import scope_of
from holdfast.core.usage import Prices, Spent, Used, may_tell, used_in
from holdfast.errors import BadInput, StoreError
from holdfast.log.values import Blobs

# The usage of model calls: tokens as reported, money as reported or by prices.


def usage_in(result: bytes) -> Used | None:
    """The usage of a call, from its result in the log; None if it asked no model.

    >>> usage_in(b'{"model":"m","usage":{"prompt_tokens":7}}').usage.input_tokens
    7
    """
    try:
        if not may_tell(Raw(result)):
            return None
        data = value_of(result) if result.startswith(LISTED) else result
        return used_in(decode(data))
    except Illegible:
        return None


def whole_result(store: Blobs, result: Raw) -> bytes:
    """The bytes of a result, from its blob if it is a small one; else nothing."""
    data = bytes(result)
    if not data.startswith(BLOB):
        return data
    try:
        ref = decode(data, BlobRef)
        return store.get_blob(ref.digest) if may_tell(result) else b""
    except StoreError:
        return b""


def checked_prices(given: Any) -> dict[str, Prices]:
    """Prices by the name of the model: a `Prices`, or what a million tokens in and out cost.

    >>> checked_prices({"m": (3, 15)})["m"].output
    15.0
    """
    if not isinstance(given, Mapping):
        raise BadInput(f"prices={given!r:.60} must be a dict: the name of a model, its Prices(…)")
    return {model: _prices(model, price) for model, price in given.items()}


def _prices(model: Any, price: Any) -> Prices:
    if isinstance(price, Prices):
        return price
    try:
        given, made = map(float, price)
        if isinstance(model, str) and given >= 0 and made >= 0:
            return Prices(input=given, output=made)
    except (TypeError, ValueError):
        pass
    raise BadInput(
        f"prices[{model!r:.60}] = {price!r:.60} must be Prices(input=…, output=…), or what a "
        f"million tokens of input and of output cost: (3.0, 15.0)"
    )


Way = Literal["working", "people", "backoff", "asleep", "children", "between", "idle"]
WAYS: tuple[Way, ...] = (
    "working",
    "people",
    "backoff",
    "asleep",
    "children",
    "between",
    "idle",
)
"""In what state time goes by; of several at once the first counts."""

Ended = Literal["completed", "failed"]

_ENDS = (e.TaskCompleted, e.TaskErrored, e.TaskStopped)


class Measured(Struct):
    """One call: how often it was tried, and where its time went."""

    name: str
    kind: str
    attempts: int = 0
    failures: int = 0
    retries: int = 0
    """Attempts that came after one that failed."""
    interrupted: int = 0
    """Attempts of which nobody knows how they ended."""
    reused: bool = False
    ended: Literal["", "completed", "failed"] = ""
    worked_s: float = 0.0
    backoff_s: float = 0.0
    waited_s: float = 0.0
    """For a person, a time or another task."""
    spent: Spent | None = None
    has_failed: bool = False
    """Whether the newest attempt did."""
    since: datetime | None = None
    """When the attempt, the backoff or the waiting began that goes on."""

    @property
    def duration_s(self) -> float:
        """How long it was at work; of what only waits, how long it did."""
        return self.worked_s if self.kind in ("step", "tool") else self.waited_s


class Saved(Struct):
    """The calls that were recorded when tasks were resumed, and did not have to run again."""

    resumes: int = 0
    calls: int = 0
    time_s: float = 0.0
    spent: Spent = Spent()

    def add(self, other: Saved) -> None:
        """Count others too."""
        self.resumes += other.resumes
        self.calls += other.calls
        self.time_s += other.time_s
        self.spent += other.spent


class Measuring:
    """The measures of a task, event by event. `usage` tells what a result of a model took."""

    def __init__(self, usage: Callable[[Raw], Spent | None]) -> None:
        self.calls: dict[str, Measured] = {}
        self.left: list[Measured] = []
        """Calls that the task made before a rewind, and made again since."""
        self.spans: dict[Way, float] = dict.fromkeys(WAYS, 0.0)
        self.saved: Saved = Saved()
        self.claims: int = 0
        self.events: int = 0
        self._usage = usage
        self._last: datetime | None = None
        self._open: dict[str, Way] = {}
        self._held = self._paused = self._is_over = False
        self._done = Saved()
        self._steps: list[tuple[int, Saved]] = []
        """The share of each completed call in that, by the event."""
        self._inside: dict[str, float] = {}
        """By the path of a call that is not done: the time of what is done inside of it."""
        self._counted: set[str] = set()
        """The calls in which a call of a model was counted: what they return may be its reply."""
        self._approvals: dict[str, str] = {}
        """By the path of the approval: that of the call."""
        self._waited_for: dict[str, float] = {}
        self._awaits: dict[str, str] = {}
        """The name of the message that each call waits or waited for, by its path."""
        self._awaited: dict[str, str] = {}
        """The same of those that still wait."""
        self._optional: set[str] = set()
        """The calls that have a default, if no message comes in time."""
        self._mail: Counter[str] = Counter()
        """How many messages of each name no call has taken."""

    def take(self, event: AnyEvent) -> None:
        """Go on with the next event."""
        self.events += 1
        for part in e.parts_of(event):
            self._take(part)

    def _take(self, event: AnyEvent) -> None:
        if self._last is not None and not self._is_over:
            elapsed_s = (event.at - self._last).total_seconds()
            self.spans[self._way(event)] += max(elapsed_s, 0.0)
        self._last = event.at
        self._follow(event)

    def _way(self, event: AnyEvent) -> Way:
        drives = self._held and not isinstance(event, e.Claimed)
        ways = set(self._open.values())
        if not drives:
            ways.discard("working")
        if self._paused and "working" not in ways:
            return "people"
        if not drives and (self._held or not self.claims):
            return "idle"  # who held it never said that it waits
        return next((way for way in WAYS if way in ways), "between" if drives else "idle")

    def _follow(self, event: AnyEvent) -> None:
        match event:
            case e.Claimed():
                self._claimed()
            case e.Parked() | e.DriverDied() | e.Hindered():
                self._held = False
            case e.PauseRequested() | e.SetAside():
                self._paused = True
            case e.TaskContinued():
                self._paused = False
            case e.TaskRetried() | e.Compensating():
                self._is_over = False
            case e.Started() | e.AttemptFailed() | e.Failed() | e.Completed():
                self._call(event)
            case e.Reused() | e.Adopted():
                kind = event.kind if isinstance(event, e.Adopted) else "step"
                self._keep(event.path)
                found = Measured(event.name, kind, reused=True, ended="completed")
                self.calls[event.path] = found
            case e.Rewound():
                self._rewound(event)
            case e.Doubted() | e.Settled():
                self._doubt(event)
            case _ if isinstance(event, _ENDS):
                self._is_over, self._held = True, False
                self._open.clear()
            case _:
                self._wait(event)

    def _claimed(self) -> None:
        self.claims += 1
        self._held, self._paused, self._is_over = True, False, False
        if self.claims > 1:
            self.saved.add(Saved(1, self._done.calls, self._done.time_s, self._done.spent))
        # No call is at work any more: each is tried again, or found to be in doubt.
        self._open = {path: way for path, way in self._open.items() if way != "working"}

    # Calls that are at work.

    def _call(self, event: e.Started | e.AttemptFailed | e.Failed | e.Completed | e.Reused) -> None:
        path, at = event.path, event.at
        if isinstance(event, e.Reused):
            self.calls[path] = Measured(event.name, "step", reused=True, ended="completed")
            return
        if isinstance(event, e.Started):
            self._started(event)
            return
        call = self.calls.get(path)
        if call is None:
            return
        way = self._open.pop(path, None)
        if not isinstance(event, e.Failed) and way == "working":
            call.worked_s += _between(call.since, at)
        call.since = None
        if isinstance(event, e.AttemptFailed):
            call.failures += 1
            call.has_failed = True
            if event.retry_at is not None:
                self._begin(call, path, "backoff", at)
        elif isinstance(event, e.Failed):
            call.ended = "failed"
        else:
            self._completed(event, call, event.result)

    def _started(self, event: e.Started) -> None:
        path, at = event.path, event.at
        if event.attempt == 1:
            self._keep(path)  # the task was rewound, and makes the call anew
        call = self.calls.get(path)
        if call is None:
            call = self.calls[path] = Measured(event.name, event.kind)
            call.waited_s = self._waited_for.pop(path, 0.0)
        elif self._open.get(path) == "backoff":
            call.backoff_s += _between(call.since, at)
        elif call.since is not None:
            call.interrupted += 1
        call.attempts += 1
        # Not all but the first: one that was interrupted, or waited inside, is begun again as well.
        call.retries += call.has_failed
        call.has_failed, call.ended = False, ""
        self._begin(call, path, "working", at)

    def _begin(self, call: Measured, path: str, way: Way, at: datetime) -> None:
        call.since = at
        self._open[path] = way

    def _keep(self, path: str) -> None:
        if (earlier := self.calls.pop(path, None)) is not None:
            self.left.append(earlier)

    def _rewound(self, event: e.Rewound) -> None:
        """It is rewound, and paused: the calls since then count no more."""
        self._held, self._paused, self._is_over = False, True, False
        self._open.clear()
        self._done = Saved()
        for seq, done in self._steps:
            if seq <= event.to:
                self._done.add(done)

    def _completed(self, event: e.Completed | e.Settled, call: Measured, result: Raw) -> None:
        path = event.path
        call.ended = "completed"
        done = Saved(calls=1)
        # The calls inside of it are part of its time, or more: of an attempt that was cut off.
        inside_s = self._inside.pop(path, 0.0)
        whole_s = max(call.worked_s, inside_s)
        done.time_s = whole_s - inside_s
        if outer := self._around(path):
            self._inside[outer] = self._inside.get(outer, 0.0) + whole_s
        if path not in self._counted and (spent := self._usage(result)) is not None:
            call.spent = spent
            done.spent += spent
            while outer := self._around(path):
                self._counted.add(outer)
                path = outer
        self._done.add(done)
        self._steps.append((event.seq, done))

    def _around(self, path: str) -> str:
        """The call that a call was made in; '' if it was made by the task."""
        scope = scope_of(path)
        while scope and scope not in self.calls:  # a branch is no call
            scope = scope_of(scope)
        return scope

    def _doubt(self, event: e.Doubted | e.Settled) -> None:
        call, path = self.calls.get(event.path), event.path
        if call is None:
            return
        if isinstance(event, e.Doubted):
            self._begin(call, path, "people", event.at)
            return
        if self._open.pop(path, None) == "people":
            call.waited_s += _between(call.since, event.at)
        call.since = None
        if event.verdict == "happened":
            self._completed(event, call, Raw(b"null"))

    # Calls that wait.

    def _wait(self, event: AnyEvent) -> None:
        path, at = getattr(event, "path", ""), event.at
        match event:
            case e.TimerSet():
                kind = "limit" if event.call else "sleep"
                before = self.calls.get(path)
                self._waits(path, event.name, kind, "asleep", at)
                if before is not None:  # it waited in vain, and does so again
                    self.calls[path].waited_s = before.waited_s
            case e.ChildStarted():
                self._waits(path, event.name, "child", "children", at)
            case e.QuestionAsked():
                self._waits(path, "ask", "question", "people", at)
                if event.call:
                    self.calls[path].name, self.calls[path].kind = "approve", "approval"
                    self._approvals[path] = event.call
            case e.MessageAwaited() | e.MessageSent() | e.MessageRefused() | e.MessageExpired():
                self._message(event)
            case e.AnswerRefused() if path in self.calls:
                self._begin(self.calls[path], path, "people", at)
            case e.Woke() | e.QuestionAnswered() | e.ChildEnded() | e.QuestionExpired():
                self._waited(event)

    def _message(
        self, event: e.MessageAwaited | e.MessageSent | e.MessageRefused | e.MessageExpired
    ) -> None:
        """Pair messages with the calls that take them, as the fold does."""
        if isinstance(event, e.MessageSent):
            taker = next((p for p, name in self._awaited.items() if name == event.name), None)
            if taker is None:
                self._mail[event.name] += 1
            else:
                self._took_message(taker, event.at)
            return
        if isinstance(event, e.MessageExpired):
            ended: Ended = "completed" if event.path in self._optional else "failed"
            self._took_message(event.path, event.at, ended)
            return
        if isinstance(event, e.MessageAwaited):
            self._awaits[event.path] = event.name
            if isinstance(event.default, Raw):
                self._optional.add(event.path)
            self._waits(event.path, "receive", "message", "asleep", event.at)
        elif event.path in self.calls:
            self._begin(self.calls[event.path], event.path, "asleep", event.at)
        name = self._awaited[event.path] = self._awaits[event.path]
        if self._mail[name]:
            self._mail[name] -= 1
            self._took_message(event.path, event.at)

    def _took_message(self, path: str, at: datetime, ended: Ended = "completed") -> None:
        self._awaited.pop(path, None)
        self._end_wait(path, at, ended)

    def _waits(self, path: str, name: str, kind: str, way: Way, at: datetime) -> None:
        call = self.calls[path] = Measured(name, kind)
        self._begin(call, path, way, at)

    def _waited(
        self, event: e.Woke | e.QuestionAnswered | e.ChildEnded | e.QuestionExpired
    ) -> None:
        has_failed = isinstance(event, e.QuestionExpired) or bool(getattr(event, "failure", None))
        call = self._end_wait(event.path, event.at, "failed" if has_failed else "completed")
        if call is not None and event.path in self._approvals:
            # The wait is reported with the call, once that is made.
            self._waited_for[self._approvals[event.path]] = call.waited_s

    def _end_wait(self, path: str, at: datetime, ended: Ended) -> Measured | None:
        call = self.calls.get(path)
        self._open.pop(path, None)
        if call is not None:
            call.waited_s += _between(call.since, at)
            call.since = None
            call.ended = ended
        return call


def _between(since: datetime | None, at: datetime) -> float:
    return 0.0 if since is None else max((at - since).total_seconds(), 0.0)
