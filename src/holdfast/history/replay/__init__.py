"""Replay: a task's code runs over its log, with no effect at all.

Recorded calls answer from the log and the log is left as it is: everything happens in a store
aside, in memory. A call that is not recorded goes to a stub, or stops the replay. (*Resume* goes on
with a task, and *fork* makes a new one: both do things. Replay does not.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.codec.tags import readable
from holdfast.core.events import AnyEvent, CancelRequested, Failure
from holdfast.core.fold import fold
from holdfast.core.journal import Raised, Returned
from holdfast.core.journal.requests import describe
from holdfast.core.spec import Spec, registry
from holdfast.core.state import FINISHED, UNDO, State
from holdfast.core.words import checked_id, html_table
from holdfast.engines.here import REPLAYING
from holdfast.engines.holder import Holding
from holdfast.engines.local.tasks import Begin, Driving
from holdfast.engines.run import Family, Run
from holdfast.errors import (
    BadInput,
    CodeChanged,
    CodeMissing,
    HoldfastError,
    LogDamaged,
    TaskCancelled,
    TaskFailed,
    TaskWaiting,
    Unserializable,
)
from holdfast.history.replay.recorded import (
    BUILT_IN,
    REAL,
    Life,
    Passed,
    Reached,
    Recorded,
    Script,
    is_inside,
    lives,
    script,
    status_of,
)
from holdfast.history.replay.retraced import Compared, compared, is_cut_off, retraced, wanted_tags
from holdfast.history.snapshots import Tag
from holdfast.log.places import place_of
from holdfast.log.reading import advance_checked, base_of, no_task, plain_in, read_events, stream_of
from holdfast.stores.memory import Aside
from holdfast.stores.port import Store

__all__ = ["REAL", "ReplayDivergence", "Replayed", "WantedReplay", "replay"]


class WantedReplay(Struct, frozen=True, kw_only=True):
    """From where to where a task is replayed, and who answers besides its log."""

    start: str | int | None = None
    to: str | int | None = None
    stubs: Mapping[str, Any] = {}
    on_reached: Callable[[], bool] | None = None
    """Called at the call `to`, from inside of the task's code; whether to go on from there."""
    always: bool = False
    """Whether to make every snapshot, also where the events say that it is the same."""


class _Past(Struct, frozen=True):
    """The content of a log, as far as it can be read."""

    events: Sequence[AnyEvent]
    base: int
    newest: State
    note: str


def replay(holding: Holding, id: str, wanted: WantedReplay) -> Replayed:
    """Run the code of a task over its log. It calls only the `stubs`, and writes nothing."""
    past = _past(holding, checked_id(id))
    found = _lives(past, wanted.start)
    to = None if wanted.to is None else _place_to_stop(past, wanted, found[0].start)
    _must_be_names(past, wanted.stubs)
    total = Replayed(id=id, outcome="open", recorded=status_of(found[-1]), note=past.note)
    used: set[str] = set()
    for life in found:
        aside = Aside(holding.store)
        ran = _run(holding, aside, past, life, wanted, to)
        used |= ran.answers.used
        seen = told(holding.store, aside, ran, total, always=wanted.always)
        if life is not found[-1] and seen.divergence is not None and _is_mended(ran):
            total = replace(total, mended=(*total.mended, seen.divergence))
            continue
        total = seen
        if total.divergence is not None or total.outcome == "stopped":
            break
    # Where it was stopped on the way, nobody knows what it would have reached.
    unused = () if to is not None else tuple(name for name in wanted.stubs if name not in used)
    return replace(total, unused=unused)


def _is_mended(ran: RanLife) -> bool:
    """Whether the code made all the calls of a try that failed, and does not fail there any more.

    The retry was made for this.
    """
    is_further = ran.error is None or isinstance(ran.error, TaskWaiting)
    return ran.script.life.how == "raised" and ran.state.status != "failed" and is_further


def _past(holding: Holding, id: str) -> _Past:
    store, stream = holding.store, stream_of(id)
    base = base_of(store, stream)
    events: list[AnyEvent] = []
    state, note = State(), ""
    try:
        # One by one: the events before the damage are sound.
        for event in read_events(store, stream):
            advance_checked(state, event, stream)
            events.append(event)
    except LogDamaged as error:
        if not events or events[-1].seq <= base:  # of a fork: nothing of its own can be read
            raise
        note = f"only what comes before the damage was replayed. {error}"
    if not events:
        raise no_task(store, id)
    return _Past(events, base, fold(events) if note else state, note)


def _lives(past: _Past, start: str | int | None) -> list[Life]:
    """The lives to be replayed, the first of them from where it was said."""
    found = lives(past.events, past.base)
    if start is None:
        return found
    seq = place_of(past.newest, start, "before", None).seq
    first = next(life for life in found if seq <= life.last)
    rest = found[found.index(first) + 1 :]
    return [replace(first, start=max(first.start, seq)), *rest]


def _place_to_stop(past: _Past, wanted: WantedReplay, start: int) -> str:
    place = place_of(past.newest, wanted.to, "before", None)
    calls, path = past.newest.calls, place.path
    around = [p for p in calls if path.startswith(f"{p}.") and calls[p].kind in ("step", "tool")]
    if any(wanted.stubs.get(calls[p].name) is not REAL for p in around):
        outer = calls[around[0]]
        raise BadInput(
            f"task {past.newest.id!r}: step {path} was made by the body of step {outer.path}, "
            f"{outer.name}, which a replay does not run: stop at step {outer.path}, or let "
            f"{outer.name} be called for real (--real {outer.name})"
        )
    if calls[path].kind not in ("step", "tool", "question", "sleep", "child"):
        raise BadInput(f"task {past.newest.id!r}: {path} is no call that a replay can stop at")
    if place.seq < start and wanted.start is not None:
        raise BadInput(
            f"task {past.newest.id!r}: step {path} comes before step {wanted.start}, where the "
            f"replay is to begin"
        )
    return path


def _must_be_names(past: _Past, stubs: Mapping[str, Any]) -> None:
    """Refuse stubs for names that nobody calls, and `REAL` for names without a step or tool."""
    if not isinstance(stubs, Mapping):
        raise BadInput(f"stubs={stubs!r:.60} must be a dict: the name of a step, who answers it")
    recorded = {call.name for call in past.newest.calls.values()}
    for name, stub in stubs.items():
        if stub is REAL and not _is_known(registry.call, name):
            raise BadInput(
                f"{name!a:.60} can't be called for real: the code that is loaded has no step or "
                f"tool of that name"
            )
        is_code = _is_known(registry.call, name) or _is_known(registry.task, name)
        if name not in recorded and name not in BUILT_IN and not is_code:
            raise BadInput(
                f"a stub is given for {name!a:.60}, but neither the log nor the code that is "
                f"loaded has a step, a tool or a child of that name"
            )
        spec = None if stub is REAL or callable(stub) else registry.surely(name)
        if spec is not None and name not in BUILT_IN:
            try:
                spec.signature.returns.given(stub)
            except Unserializable as error:
                raise BadInput(f"the stub for {name} gives what does not fit: {error}") from None


def _is_known(look_up: Callable[[str], Spec], name: str) -> bool:
    try:
        look_up(name)
    except CodeMissing:
        return False
    return True


class _Kin:
    """The children of a task that is replayed: they are left alone."""

    def must_be_free(self, id: str, parent: str) -> None: ...

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None: ...

    def outcome(self, id: str) -> Returned | Raised | None:
        # Only a stopped parent asks: it was told to end, and nobody waits for it.
        return Raised(Failure("TaskCancelled", "its parent was cancelled"))

    def drive(self, id: str) -> None: ...

    async def adrive(self, id: str) -> None: ...

    def send(self, id: str, name: str, value: Any, key: str, by: str) -> bool:
        return False

    def cancel(self, id: str, *, wait: bool) -> None: ...


class _Replaying(Driving):
    """Drives a task over a log that answers for it."""

    driver = REPLAYING

    def __init__(self, holding: Holding, answers: Recorded) -> None:
        super().__init__(holding)
        self._answers = answers

    def family(self) -> Family:
        return _Kin()

    def prepare(self, run: Run) -> None:
        self._answers.begin(run)

    def tell_parent(self, state: State) -> None: ...

    def _must_be_ours(self, task: Begin, state: State) -> None:
        """Always: it makes no difference which engine drove the task."""

    def _heed(self, run: Run) -> None: ...


def _run(
    holding: Holding, aside: Aside, past: _Past, life: Life, wanted: WantedReplay, to: str | None
) -> RanLife:
    upto = [event for event in past.events if event.seq <= life.last]
    then = fold(upto)
    given = script(upto, life, then.calls, wanted.stubs)
    stream = stream_of(then.id)
    aside.take(stream, given.lines(past.base))
    answers = Recorded(given, then.calls, wanted.stubs, to, wanted.on_reached)
    clock = [_before_deadline(upto[-1].at, fold(e for e in upto if e.seq <= life.start))]
    inside = Holding(
        aside,
        holding.owner,
        holding.lease_s,
        lambda: clock[0],
        holding.max_value_bytes,
        holding.redact,
        holding.secrets,
    )
    driving = _Replaying(inside, answers)
    try:
        error = _driven(driving, then.id)
        while isinstance(error, TaskWaiting) and (at := _next_attempt(aside, stream, answers)):
            clock[0] = at  # a call that is really made is tried again as it says, without the wait
            error = _driven(driving, then.id)
        if isinstance(error, TaskWaiting) and _was_stopped(then, life):
            _stop(inside, then, clock)
            error = _driven(driving, then.id)
    finally:
        inside.close()
    events = list(read_events(aside, stream))
    made = [event for event in events if event.seq > life.last]
    return RanLife(given, answers, then, fold(events), made, error)


def _next_attempt(aside: Aside, stream: str, answers: Recorded) -> datetime | None:
    """When a call that is really made is to be tried again; None if there is none."""
    calls = fold(read_events(aside, stream)).calls
    made = [calls[path] for path in answers.real if path in calls]
    return min((call.retry_at for call in made if call.retry_at is not None), default=None)


def _before_deadline(at: datetime, state: State) -> datetime:
    """The time that the code sees: late enough for all that happened, but not too late."""
    return at if state.until is None else min(at, state.until - timedelta(microseconds=1))


def _driven(driving: Driving, id: str) -> HoldfastError | None:
    """Drive the code to its end, or to where it stops; why it stopped."""
    task = driving.resuming(id)
    try:
        _apart_from_loops(lambda: driving.drive(task, patience_s=0.0))
    except (TaskFailed, TaskCancelled):
        return None
    except HoldfastError as error:
        return error
    return None


def _apart_from_loops(work: Callable[[], Any]) -> None:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        work()
        return
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    with ThreadPoolExecutor(1) as thread:
        thread.submit(copy_context().run, work).result()


def _was_stopped(then: State, life: Life) -> bool:
    """Whether the task was told to end, or its time was up, while its function waited."""
    is_late = then.ending == "failed" and then.failure is not None and then.failure.timed_out
    return life.how == "stopped" or (life.how == "open" and (then.cancelling or is_late))


def _stop(holding: Holding, then: State, clock: list[datetime]) -> None:
    """Tell the task what it was told when it was stopped: to end, or what time it is."""
    clock[0] = then.updated_at
    if not (then.cancelling or then.status == "cancelled"):
        return
    with holding.hold(then.id) as log:
        log.append(CancelRequested(by="a replay", because=then.because))
        log.sync()


# The report of a replay: its outcome, and whether that is the recorded one.


class ReplayDivergence(Struct, frozen=True):
    """Where the code first does something else than the log holds.

    >>> print(ReplayDivergence("6", "book(attic)", "calls book(cellar)"))
    at step 6: the log holds book(attic), the code calls book(cellar)
    """

    path: str
    """The call; '' for the end of the task."""
    recorded: str
    asked: str
    why: str = ""

    def __str__(self) -> str:
        where = "at its end" if not self.path else f"at step {self.path}"
        if not self.recorded:
            return f"{where}: the code {self.asked}"
        return f"{where}: the log holds {self.recorded}, the code {self.asked}"


class Replayed(Struct, frozen=True, kw_only=True):
    """The report of a replay: whether the code still does what the log says.

    >>> Replayed(id="trip-42", outcome="completed", recorded="completed").same
    True
    """

    id: str
    outcome: str
    """How it ended: completed, failed, cancelled; `stopped` at a call; or `open`, like the log."""
    recorded: str
    """How the log ends: completed, failed, cancelled, or `open`."""
    result: Any = None
    """The value that the code returned, as plain data."""
    failure: str = ""
    """The error that the code raised, if it failed."""
    divergence: ReplayDivergence | None = None
    stopped_at: str = ""
    """The call that it stopped at, with its arguments: nobody could answer it, or it was asked
    to stop there."""
    answered: int = 0
    """How many calls were answered by the log."""
    stubbed: tuple[str, ...] = ()
    """The paths of the calls that stubs answered."""
    real: tuple[str, ...] = ()
    """The paths of the calls that were really made."""
    unused: tuple[str, ...] = ()
    """The stubs, and what was to be called for real, that the code never reached, by name."""
    snapshots: int = 0
    """How many snapshots were compared."""
    differing: tuple[Tag, ...] = ()
    """The snapshots that are not the same, byte for byte; if they are many, the first of them."""
    mended: tuple[ReplayDivergence, ...] = ()
    """Where the code goes on in tries that failed there, before the task was tried again."""
    note: str = ""
    """A further remark, such as that the log is damaged further on."""

    @property
    def same(self) -> bool:
        """Whether the outcome is the recorded one, and so is every snapshot on the way."""
        return self.divergence is None and not self.differing

    def __repr__(self) -> str:
        return f"Replayed({self.id!r}, {self.summary()!r:.300})"

    def _repr_html_(self) -> str:
        """The replay as notebooks show it."""
        rows: list[tuple[str, Any]] = [
            ("task", self.id),
            ("replay", self.summary()),
            ("answered by the log", self.answered),
            ("snapshots compared", self.snapshots),
        ]
        rows += [("stubbed", ", ".join(self.stubbed))] if self.stubbed else []
        rows += [("really called", ", ".join(self.real))] if self.real else []
        rows += [("failure", self.failure)] if self.failure else []
        rows += [("note", self.note)] if self.note else []
        return html_table(rows)

    def summary(self) -> str:
        """The report in one line.

        >>> Replayed(id="trip-42", outcome="completed", recorded="completed").summary()
        'the same: completed, as recorded'
        """
        if self.divergence is not None:
            return f"diverges {self.divergence}"
        if self.differing:
            first = self.differing[0]
            where = f"{first.when} step {first.path}" if first.path else "at its end"
            return f"diverges: what it knows {where} is not what it knew"
        ends = (
            "as far as its log goes" if self.recorded == "open" else f"{self.recorded}, as recorded"
        )
        if self.outcome == "stopped":
            return f"the same as far as {self.stopped_at}"
        return f"the same: {ends}"


_canonical = msgspec.json.Encoder(order="sorted").encode
_MOST_SHOWN = 200


class RanLife(Struct, frozen=True):
    """One life, driven anew."""

    script: Script
    answers: Recorded
    then: State
    """The recorded state at the end of the life."""
    state: State
    """The state that the replay reached."""
    made: Sequence[AnyEvent]
    """The events that its code made."""
    error: HoldfastError | None
    """Why it stopped, if it did not reach its end."""


def told(
    store: Store, aside: Store, ran: RanLife, before: Replayed, *, always: bool = False
) -> Replayed:
    """The report of a replay after one more life."""
    divergence = _divergence(store, aside, ran)
    snapshots = _compared(store, aside, ran, divergence, always)
    answers = ran.answers
    passed = {passed.path for passed in _passed(ran, divergence) if passed.ended}
    is_over = ran.error is None and ran.state.status in FINISHED
    is_open = divergence is None and not isinstance(ran.error, Reached)
    return replace(
        before,
        outcome=ran.state.status if is_over else "open" if is_open else "stopped",
        result=readable(_plain(aside, ran.state, ran.state.result)) if is_over else None,
        failure=ran.state.failure.summary() if is_over and ran.state.failure is not None else "",
        divergence=divergence,
        stopped_at="" if is_over else _stopped_at(ran),
        answered=before.answered + len(passed.difference(answers.stubbed, answers.real)),
        stubbed=(*before.stubbed, *answers.stubbed),
        real=(*before.real, *dict.fromkeys(answers.real)),
        snapshots=before.snapshots + snapshots.count,
        differing=(*before.differing, *snapshots.differing),
    )


def _passed(ran: RanLife, divergence: ReplayDivergence | None) -> Sequence[Passed]:
    """The answered calls: without the one at which it stopped or diverged."""
    passed = ran.answers.passed
    if isinstance(ran.error, Reached):
        return passed[:-1]
    return [each for each in passed if divergence is None or each.path != divergence.path]


def _stopped_at(ran: RanLife) -> str:
    """The call that it stopped at, with its arguments."""
    if isinstance(ran.error, Reached):
        path = ran.answers.passed[-1].path
    else:
        path = next(iter(ran.answers.stopped), "")
    if not path:
        return ""
    record = ran.then.calls.get(path)
    shown = ran.answers.stopped.get(path) or ("" if record is None else describe(record))
    return f"step {path}, {shown}" if shown else f"step {path}"


def _divergence(store: Store, aside: Store, ran: RanLife) -> ReplayDivergence | None:
    error, life = ran.error, ran.script.life
    if isinstance(error, Reached):
        return None
    if isinstance(error, CodeChanged):
        return ReplayDivergence(error.path, error.recorded, error.asked, str(error))
    if isinstance(error, TaskWaiting):
        return _stopped_short(store, ran, error)
    if error is not None:
        return ReplayDivergence(
            "", _shown_end(store, ran.then), f"can't go on: {error}", str(error)
        )
    if life.how == "open":
        return None  # it needs nothing more than what the log holds
    if life.how != "stopped" and (missed := _missed(ran)):
        asked = "ends without that call"
        if ran.state.status == "failed":
            asked = f"{_shown_end(aside, ran.state)} before it"
        return ReplayDivergence(missed, describe(ran.then.calls[missed]), asked)
    if _end(store, ran.then) == _end(aside, ran.state):
        return None
    return ReplayDivergence("", _shown_end(store, ran.then), _shown_end(aside, ran.state))


def _stopped_short(store: Store, ran: RanLife, error: TaskWaiting) -> ReplayDivergence | None:
    """Whether a replay that stopped at a call should have gone on."""
    if ran.script.life.how == "open":
        if not (missed := _missed(ran)):
            return None
        return ReplayDivergence(
            missed, describe(ran.then.calls[missed]), f"does not come to it: {error}"
        )
    for path, asked in ran.answers.stopped.items():
        known = ran.then.calls.get(path)
        recorded = "no such call" if known is None else f"{describe(known)}, {known.status}"
        return ReplayDivergence(
            path, recorded, f"calls {asked}", "it is not recorded, and has no stub"
        )
    return ReplayDivergence("", _shown_end(store, ran.then), f"waits: {error}", str(error))


def _missed(ran: RanLife) -> str:
    """A recorded call that the code did not reach; '' if there is none."""
    made = {passed.path for passed in ran.answers.passed}
    start, calls = ran.script.life.start, ran.then.calls
    for path, call in calls.items():
        if call.seq <= start or path in made or not path.rpartition(".")[2].isdigit():
            continue
        is_of_the_code = not is_inside(path, calls) and not path.startswith(UNDO)
        if is_of_the_code and not is_cut_off(path, ran.answers.cut_off):
            return path
    return ""


def _end(store: Store, state: State) -> tuple[str, Any]:
    """How a task ended, to be compared."""
    if state.failure is not None and state.status == "failed":
        return state.status, (state.failure.type, state.failure.message)
    return state.status, _canonical(_plain(store, state, state.result))


def _shown_end(store: Store, state: State) -> str:
    match state.status:
        case "failed" if state.failure is not None:
            return f"raises {state.failure.summary()}"
        case "completed":
            shown = _canonical(_plain(store, state, state.result)).decode()
            return f"returns {shown[:_MOST_SHOWN]}{'…' * (len(shown) > _MOST_SHOWN)}"
        case status:
            return f"ends as {status}" if status in FINISHED else "goes on"


def _plain(store: Store, state: State, value: Raw | UnsetType) -> Any:
    return plain_in(store, state, value) if isinstance(value, Raw) else None


def _compared(
    store: Store, aside: Store, ran: RanLife, divergence: ReplayDivergence | None, always: bool
) -> Compared:
    """Compare the snapshots on the way, as far as the replay went."""
    wanted = wanted_tags(ran.then, ran.script, set(ran.answers.stubbed))
    if divergence is not None or isinstance(ran.error, Reached):
        ended = [passed.ended for passed in _passed(ran, divergence)]
        upto = max((*ended, *(passed.began - 1 for passed in ran.answers.passed)), default=0)
        wanted = [tag for tag in wanted if tag.path and tag.seq <= upto]
    found = retraced(ran.script, ran.answers, ran.made, ran.state)
    return compared(store, aside, found, wanted, always=always)
