"""The outcome of a replay, and whether it is the recorded one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.codec.readable import readable
from holdfast.core.events import AnyEvent
from holdfast.core.journal.requests import describe
from holdfast.core.state import FINISHED, UNDO, State
from holdfast.core.words import html_table
from holdfast.errors import CodeChanged, HoldfastError, TaskWaiting
from holdfast.history.replay.recorded import Passed, Reached, Recorded, Script, is_inside
from holdfast.history.replay.retraced import Compared, compared, is_cut_off, retraced, wanted_tags
from holdfast.history.snapshots import Tag
from holdfast.log.reading import plain_in
from holdfast.stores.port import Store

# The report of a replay.


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
