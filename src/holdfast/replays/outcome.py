"""What became of a replay, and whether that is what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.errors import CodeChanged, HoldfastError, TaskWaiting
from holdfast.events import AnyEvent
from holdfast.journal.words import describe
from holdfast.reading import plain_in
from holdfast.replays.comparing import Compared, compared, wanted_tags
from holdfast.replays.order import is_cut_off
from holdfast.replays.recorded import Passed, Reached, Recorded
from holdfast.replays.replayed import Divergence, Replayed
from holdfast.replays.retracing import retraced
from holdfast.replays.script import Script, is_inside
from holdfast.state import FINISHED, UNDO, State
from holdfast.store import Store

_canonical = msgspec.json.Encoder(order="sorted").encode
_MOST_SHOWN = 200


class Ran(Struct, frozen=True):
    """One life, driven anew."""

    script: Script
    answers: Recorded
    then: State
    """What the log came to at the end of the life."""
    state: State
    """What the replay came to."""
    made: Sequence[AnyEvent]
    """What its code made."""
    error: HoldfastError | None
    """Why it stopped, if it came to no end."""


def told(
    store: Store, aside: Store, ran: Ran, before: Replayed, *, always: bool = False
) -> Replayed:
    """What is known of a replay after one more life."""
    divergence = _divergence(store, aside, ran)
    snapshots = _compared(store, aside, ran, divergence, always)
    answers = ran.answers
    passed = {passed.path for passed in _passed(ran, divergence) if passed.ended}
    is_over = ran.error is None and ran.state.status in FINISHED
    is_open = divergence is None and not isinstance(ran.error, Reached)
    return replace(
        before,
        outcome=ran.state.status if is_over else "open" if is_open else "stopped",
        result=_plain(aside, ran.state, ran.state.result) if is_over else None,
        failure=ran.state.failure.summary() if is_over and ran.state.failure is not None else "",
        divergence=divergence,
        stopped_at="" if is_over else _stopped_at(ran),
        answered=before.answered + len(passed.difference(answers.stubbed)),
        stubbed=(*before.stubbed, *answers.stubbed),
        snapshots=before.snapshots + snapshots.count,
        differing=(*before.differing, *snapshots.differing),
    )


def _passed(ran: Ran, divergence: Divergence | None) -> Sequence[Passed]:
    """The calls that were answered: not the one at which it stopped, or went another way."""
    passed = ran.answers.passed
    if isinstance(ran.error, Reached):
        return passed[:-1]
    return [each for each in passed if divergence is None or each.path != divergence.path]


def _stopped_at(ran: Ran) -> str:
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


def _divergence(store: Store, aside: Store, ran: Ran) -> Divergence | None:
    error, life = ran.error, ran.script.life
    if isinstance(error, Reached):
        return None
    if isinstance(error, CodeChanged):
        return Divergence(error.path, error.recorded, error.asked, str(error))
    if isinstance(error, TaskWaiting):
        return _stopped_short(store, ran, error)
    if error is not None:
        return Divergence("", _shown_end(store, ran.then), f"can't go on: {error}", str(error))
    if life.how == "open":
        return None  # it needs nothing more than what the log holds
    if life.how != "stopped" and (missed := _missed(ran)):
        asked = "ends without that call"
        if ran.state.status == "failed":
            asked = f"{_shown_end(aside, ran.state)} before it"
        return Divergence(missed, describe(ran.then.calls[missed]), asked)
    if _end(store, ran.then) == _end(aside, ran.state):
        return None
    return Divergence("", _shown_end(store, ran.then), _shown_end(aside, ran.state))


def _stopped_short(store: Store, ran: Ran, error: TaskWaiting) -> Divergence | None:
    """Whether a replay that stopped at a call should have gone on."""
    if ran.script.life.how == "open":
        if not (missed := _missed(ran)):
            return None
        return Divergence(missed, describe(ran.then.calls[missed]), f"does not come to it: {error}")
    for path, asked in ran.answers.stopped.items():
        known = ran.then.calls.get(path)
        recorded = "no such call" if known is None else f"{describe(known)}, {known.status}"
        return Divergence(path, recorded, f"calls {asked}", "it is not recorded, and has no stub")
    return Divergence("", _shown_end(store, ran.then), f"waits: {error}", str(error))


def _missed(ran: Ran) -> str:
    """A recorded call that the code has not come to; '' if there is none."""
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
    store: Store, aside: Store, ran: Ran, divergence: Divergence | None, always: bool
) -> Compared:
    """The snapshots on the way: as far as the replay came."""
    wanted = wanted_tags(ran.then, ran.script, set(ran.answers.stubbed))
    if divergence is not None or isinstance(ran.error, Reached):
        ended = [passed.ended for passed in _passed(ran, divergence)]
        upto = max((*ended, *(passed.began - 1 for passed in ran.answers.passed)), default=0)
        wanted = [tag for tag in wanted if tag.path and tag.seq <= upto]
    found = retraced(ran.script, ran.answers, ran.made, ran.state)
    return compared(store, aside, found, wanted, always=always)
