"""The fold: events in, state out.

`apply(state, event)` is a pure function; `fold(events)` is the same over many, in one pass. There
is no other way to come by a state, so any state can be thrown away and had again from its log.

Inside `fold` the one new state is changed in place, because copying a dict of ten thousand calls
for each event would make reading a log quadratic. Calls themselves are frozen and replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.events import AnyEvent
from holdfast.core.fold import calls, history, task, waits
from holdfast.core.state import READ_AGAIN, Reread, State


def apply(state: State, event: AnyEvent) -> State:
    """The state after one more event. The one given is left as it was.

    >>> from holdfast.core.events import Planned
    >>> before = State()
    >>> [item.text for item in apply(before, Planned(seq=1, items=("look", "book"))).plan]
    ['look', 'book']
    >>> before.plan
    ()
    """
    return fold((event,), state)


def fold(events: Iterable[AnyEvent], start: State | None = None) -> State:
    """The state after `events`, from nothing or from `start` (which is left as it was)."""
    state = _copy(start) if start is not None else State()
    for event in events:
        advance(state, event)
    return state


def advance(state: State, event: AnyEvent) -> None:
    """Change `state`, which the caller alone owns, by one event. For those who keep it current."""
    if event.at < state.updated_at:
        waits.clock_set_back(state, event.seq)
    _APPLY[type(event)](state, event)
    state.seq = event.seq
    state.updated_at = event.at
    trail = state.trail
    if type(trail) is not Reread or trail.is_whole or type(event) not in READ_AGAIN:
        trail.append(event)


def _copy(state: State) -> State:
    return replace(
        state,
        calls=state.calls.copy(),  # which makes none of those that nobody looked at
        last=dict(state.last),
        inner=set(state.inner),
        decisions=list(state.decisions),
        notes=list(state.notes),
        plans=list(state.plans),
        files=dict(state.files),
        kept=list(state.kept),
        facts=list(state.facts),
        marks=dict(state.marks),
        changes=list(state.changes),
        lists=state.lists.copy(),
        reads=dict(state.reads),
        invalidated=dict(state.invalidated),
        writers=dict(state.writers),
        progress=dict(state.progress),
        trail=state.trail.copy(),
    )


def _rewound(state: State, event: e.Rewound) -> None:
    history.rewound(state, event, _fold_effective)


def _fold_effective(events: Iterable[AnyEvent]) -> State:
    """The state after events of which all count, also those before a rewind."""
    state = State()
    for event in events:
        if isinstance(event, e.Rewound):
            history.take_past(state, event, event.seq - 1)
            state.seq, state.updated_at = event.seq, event.at
        else:
            advance(state, event)
    return state


_APPLY: dict[type, Callable[[State, Any], None]] = {
    e.TaskCreated: task.created,
    e.Queued: task.queued,
    e.Claimed: task.claimed,
    e.DriverDied: task.driver_died,
    e.SetAside: task.task_stuck,
    e.Hindered: task.hindered,
    e.Parked: task.parked,
    e.PauseRequested: task.task_paused,
    e.TaskContinued: task.task_continued,
    e.Moved: task.moved,
    e.CancelRequested: task.cancel_requested,
    e.Planned: task.planned,
    e.PlanProgressed: task.plan_progressed,
    e.MissionSet: task.mission_set,
    e.FileKept: task.file_kept,
    e.FileRemoved: task.file_removed,
    e.Started: calls.started,
    e.Reused: waits.reused,
    e.AttemptFailed: calls.attempt_failed,
    e.Failed: calls.failed,
    e.Completed: calls.completed,
    e.Stepped: calls.stepped,
    e.Settled: calls.settled,
    e.Doubted: calls.doubted,
    e.Decided: task.decided,
    e.Noted: task.noted,
    e.Derived: waits.derived,
    e.TimerSet: waits.timer_set,
    e.Woke: waits.woke,
    e.Observed: task.observed,
    e.QuestionAsked: waits.question_asked,
    e.QuestionAnswered: waits.question_answered,
    e.AnswerRefused: waits.answer_refused,
    e.QuestionExpired: waits.question_expired,
    e.MessageAwaited: waits.message_awaited,
    e.MessageSent: waits.message_sent,
    e.MessageRefused: waits.message_refused,
    e.MessageExpired: waits.message_expired,
    e.ChildStarted: waits.child_started,
    e.ChildMade: waits.child_made,
    e.ChildEnded: waits.child_ended,
    e.ListGrew: task.list_grew,
    e.Checkpointed: task.checkpointed,
    e.Patched: task.patched,
    e.Progressed: task.progressed,
    e.Compensating: task.compensating,
    e.TaskStopped: task.task_cancelled,
    e.TaskCompleted: task.task_completed,
    e.TaskErrored: task.task_errored,
    e.TaskRetried: task.task_retried,
    e.Adopted: history.adopted,
    e.Rewound: _rewound,
}
