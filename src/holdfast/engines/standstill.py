"""Whether a task can go on by itself, from its state alone.

Who drives a task sees it stop. Who only watches one, that a remote engine drives, has to tell from
the log that nothing more will happen before a person has done something.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast.engines.execution import is_open_child
from holdfast.errors import TaskPaused, TaskWaiting
from holdfast.fold.waits import perhaps_open
from holdfast.journal.words import in_doubt, unanswered
from holdfast.state import FINISHED, UNDO, Call, State, scope_of

OfChild = Callable[[str], State]
"""The state of a child, by its id."""


def standstill(state: State, of_child: OfChild) -> TaskWaiting | None:
    """Why a task can't go on before a person has done something; None while it can.

    What it raised had it been driven here. A strand that still sleeps, backs off or runs something
    goes on first; a child that waits for a person holds up its parent, if nothing else goes on.

    >>> print(standstill(State(id="trip-42", status="paused", because="lunch"), lambda id: State()))
    task 'trip-42' is paused (lunch). To let it go on: ...
    """
    if state.status in FINISHED:
        return None
    if state.status == "paused":
        return TaskPaused(state.id, state.because)
    if state.cancelling and not state.ending:
        return None
    ends = _innermost(state)
    asked = [_asked(state, call) for call in ends if not is_open_child(call)]
    if asked:
        first, others = asked[0], asked[1:]
        return first if first is not None and None not in others else None
    return _of_children([call for call in ends if is_open_child(call)], of_child)


def _asked(state: State, call: Call) -> TaskWaiting | None:
    if call.status == "in_doubt":
        return in_doubt(state.id, call)
    if call.status == "waiting" and call.kind in ("question", "approval"):
        return unanswered(state.id, call)
    return None


def _innermost(state: State) -> list[Call]:
    """The calls that have not ended, without those that wait for one of these."""
    opened = [
        call for call in perhaps_open(state.calls) if call.status not in ("completed", "failed")
    ]
    if state.ending:  # what the function waited for does not matter any more
        opened = [call for call in opened if _is_undo(call)]
    outer: set[str] = {call.approves for call in opened if call.approves}
    for call in opened:
        scope = scope_of(call.path)
        while scope:
            outer.add(scope)
            scope = scope_of(scope)
    return [call for call in opened if call.path not in outer]


def _is_undo(call: Call) -> bool:
    return f"{call.approves or call.path}.".startswith(f"{UNDO}.")


def _of_children(calls: list[Call], of_child: OfChild) -> TaskWaiting | None:
    found = None
    for call in calls:
        child = of_child(call.child)
        if child.status in FINISHED:
            continue  # its parent has yet to hear of it, or does not care
        waiting = standstill(child, of_child)
        if waiting is None:
            return None
        found = found or waiting
    return found
