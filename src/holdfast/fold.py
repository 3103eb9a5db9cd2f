"""The fold: events in, state out.

`apply(state, event)` is a pure function; `fold(events)` is the same over many, in one pass. There
is no other way to come by a state, so any state can be thrown away and had again from its log.

Inside `fold` the one new state is changed in place, because copying a dict of ten thousand calls
for each event would make reading a log quadratic. Calls themselves are frozen and replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from holdfast import events as e
from holdfast.events import AnyEvent, Failure
from holdfast.state import Attempt, Call, Decision, Note, State, scope_of


def apply(state: State, event: AnyEvent) -> State:
    """The state after one more event. The one given is left as it was.

    >>> from holdfast.events import Planned
    >>> before = State()
    >>> apply(before, Planned(seq=1, items=("look", "book"))).plan, before.plan
    (('look', 'book'), ())
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
    _APPLY[type(event)](state, event)
    state.seq = event.seq
    state.updated_at = event.at


def _copy(state: State) -> State:
    return replace(
        state,
        calls=dict(state.calls),
        last=dict(state.last),
        inner=set(state.inner),
        decisions=list(state.decisions),
        notes=list(state.notes),
        marks=dict(state.marks),
    )


def _created(state: State, event: e.TaskCreated) -> None:
    state.id = event.id
    state.task = event.task
    state.args = event.args
    state.args_hash = event.args_hash
    state.user = event.user
    state.session = event.session
    state.labels = event.labels
    state.created_at = event.at
    state.format = event.format


def _claimed(state: State, event: e.Claimed) -> None:
    state.epoch = event.epoch
    state.owner = event.owner
    state.engine = event.engine
    state.format = event.format
    state.claims += 1
    if state.status == "pending":
        state.status = "in_progress"


def _planned(state: State, event: e.Planned) -> None:
    state.plan = event.items
    state.marks[event.mark] = event.seq


def _place(state: State, path: str) -> None:
    scope = scope_of(path)
    state.last[scope] = path
    while scope and scope not in state.inner:
        state.inner.add(scope)
        scope = scope_of(scope)


def _started(state: State, event: e.Started) -> None:
    path, calls = event.path, state.calls
    attempt = Attempt(event.attempt, event.at)
    call = calls.get(path)
    if call is None:
        calls[path] = Call(
            path,
            event.name,
            event.kind,
            "running",
            event.at,
            event.args,
            event.args_hash,
            event.key,
            (attempt,),
            seq=event.seq,
        )
        _place(state, path)
    else:
        if call.status in ("backing_off", "retrying"):
            _try_again_inside(state, path)
        calls[path] = replace(
            call,
            status="running",
            attempts=(*call.attempts, attempt),
            retry_at=None,
            exhausted=False,
            unmade=False,
            doubt=False,
            ended_at=None,
        )


def _attempt_failed(state: State, event: e.AttemptFailed) -> None:
    call = _unended(state, event.path)
    done = replace(call.attempts[-1], ended_at=event.at, failure=event.failure)
    state.calls[event.path] = replace(
        call,
        status="backing_off",
        attempts=(*call.attempts[:-1], done),
        failures=call.failures + 1,
        failure=event.failure,
        retry_at=event.retry_at,
        exhausted=event.retry_at is None,
        doubt=event.doubt,
    )


def _failed(state: State, event: e.Failed) -> None:
    call = _unended(state, event.path)
    state.calls[event.path] = replace(
        call, status="failed", ended_at=event.at, failed_seq=event.seq
    )


def _unended(state: State, path: str) -> Call:
    call = state.calls[path]
    if call.status in ("completed", "failed"):
        raise LookupError(f"call {path} has ended already")
    return call


def _completed(state: State, event: e.Completed) -> None:
    call = _unended(state, event.path)
    at = event.at
    last = call.attempts[-1]
    attempts = (*call.attempts[:-1], Attempt(last.number, last.at, at))
    state.calls[event.path] = replace(
        call, status="completed", attempts=attempts, result=event.result, ended_at=at
    )


def _settled(state: State, event: e.Settled) -> None:
    call = state.calls[event.path]
    if event.verdict == "happened":
        changed = replace(
            call, status="completed", result=event.result, ended_at=event.at, settled_by=event.by
        )
    else:
        # A person who says "it did not happen" wants it done; a check only reports.
        spent = call.exhausted and event.by == "check"
        changed = replace(
            call,
            status="retrying",
            exhausted=spent,
            unmade=True,
            result=UNSET,
            ended_at=None,
            settled_by="",
        )
    state.calls[event.path] = replace(changed, doubt=False, why=event.because)
    if state.status == "awaiting_user" and not _waits_for_a_person(state):
        state.status = "in_progress"


def _doubted(state: State, event: e.Doubted) -> None:
    call = state.calls[event.path]
    state.calls[event.path] = replace(call, status="in_doubt", doubt=True, why=event.why)
    state.status = "awaiting_user"


def _decided(state: State, event: e.Decided) -> None:
    path = event.path
    state.calls[path] = Call(
        path,
        event.name,
        "decision",
        "completed",
        event.at,
        result=event.choice,
        ended_at=event.at,
    )
    state.decisions.append(
        Decision(path, event.name, event.at, event.choice, event.options, event.because)
    )


def _noted(state: State, event: e.Noted) -> None:
    state.marks[event.mark] = len(state.notes)
    state.notes.append(Note(event.scope, event.text, event.at, event.data))


def _timer_set(state: State, event: e.TimerSet) -> None:
    state.calls[event.path] = Call(
        event.path,
        event.name,
        "sleep",
        "waiting",
        event.at,
        event.args,
        event.args_hash,
        until=event.until,
        seq=event.seq,
    )
    _place(state, event.path)


def _woke(state: State, event: e.Woke) -> None:
    call = state.calls[event.path]
    state.calls[event.path] = replace(call, status="completed", ended_at=event.at)


def _observed(state: State, event: e.Observed) -> None:
    state.calls[event.path] = Call(
        event.path,
        event.name,
        "reading",
        "completed",
        event.at,
        result=event.value,
        ended_at=event.at,
    )


def _question_asked(state: State, event: e.QuestionAsked) -> None:
    state.calls[event.path] = Call(
        event.path,
        "ask",
        "question",
        "waiting",
        event.at,
        args_hash=event.args_hash,
        key=event.id,
        why=event.question,
        until=event.until,
        default=event.default,
        expects=event.expects,
        seq=event.seq,
    )
    _place(state, event.path)
    state.status = "awaiting_user"


def _question_answered(state: State, event: e.QuestionAnswered) -> None:
    _end_question(state, event, status="completed", result=event.answer, settled_by=event.by)


def _answer_refused(state: State, event: e.AnswerRefused) -> None:
    call = state.calls[event.path]
    state.calls[event.path] = replace(
        call, status="waiting", result=UNSET, settled_by="", ended_at=None
    )
    state.status = "awaiting_user"


def _question_expired(state: State, event: e.QuestionExpired) -> None:
    failure = Failure("NoAnswer", f"nobody answered by {state.calls[event.path].until}")
    _end_question(state, event, status="failed", failure=failure, failed_seq=event.seq)


def _end_question(
    state: State, event: e.QuestionAnswered | e.QuestionExpired, **changes: Any
) -> None:
    state.calls[event.path] = replace(state.calls[event.path], ended_at=event.at, **changes)
    if state.status == "awaiting_user" and not _waits_for_a_person(state):
        state.status = "in_progress"


def _waits_for_a_person(state: State) -> bool:
    return any(
        call.status == "in_doubt" or (call.status == "waiting" and call.kind == "question")
        for call in state.calls.values()
    )


def _task_completed(state: State, event: e.TaskCompleted) -> None:
    state.status = "completed"
    state.result = event.result


def _task_errored(state: State, event: e.TaskErrored) -> None:
    state.status = "failed"
    state.failure = event.failure
    state.causes = event.causes


def _task_retried(state: State, event: e.TaskRetried) -> None:
    state.status = "in_progress"
    state.failure = None
    for path in state.causes:
        if path.endswith(".*"):
            _try_items_again(state, path[:-2])
        else:
            _try_again(state, path)
    state.causes = ()


def _try_again(state: State, path: str) -> None:
    call = state.calls.get(path)
    if call and call.status == "failed" and not _went_on(state, scope_of(path), call.failed_seq):
        _reopen(state, call)


def _try_items_again(state: State, batch: str) -> None:
    # The items of an `each` know nothing of each other: only what came after all of them counts.
    failed = [c for p, c in state.calls.items() if scope_of(p) == batch and c.status == "failed"]
    if failed and not _went_on(state, scope_of(batch), max(c.failed_seq for c in failed)):
        for call in failed:
            _reopen(state, call)


def _reopen(state: State, call: Call) -> None:
    state.calls[call.path] = replace(
        call, status="retrying", failures=0, retry_at=None, exhausted=False
    )


def _went_on(state: State, scope: str, seq: int) -> bool:
    """Whether anything was begun in a scope, or in one around it, after the event `seq`.

    What came after a failure was chosen in the knowledge of it, and would not match the log if the
    call now succeeded.
    """
    while True:
        newest = state.last.get(scope)
        if newest is not None and state.calls[newest].seq > seq:
            return True
        if not scope:
            return False
        scope = scope_of(scope)


def _try_again_inside(state: State, path: str) -> None:
    inside = path + "."
    for other in [p for p in state.calls if p.startswith(inside)]:
        _try_again(state, other)


_APPLY: dict[type, Callable[[State, Any], None]] = {
    e.TaskCreated: _created,
    e.Claimed: _claimed,
    e.Planned: _planned,
    e.Started: _started,
    e.AttemptFailed: _attempt_failed,
    e.Failed: _failed,
    e.Completed: _completed,
    e.Settled: _settled,
    e.Doubted: _doubted,
    e.Decided: _decided,
    e.Noted: _noted,
    e.TimerSet: _timer_set,
    e.Woke: _woke,
    e.Observed: _observed,
    e.QuestionAsked: _question_asked,
    e.QuestionAnswered: _question_answered,
    e.AnswerRefused: _answer_refused,
    e.QuestionExpired: _question_expired,
    e.TaskCompleted: _task_completed,
    e.TaskErrored: _task_errored,
    e.TaskRetried: _task_retried,
}
