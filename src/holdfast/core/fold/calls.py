"""The fold of steps and tools: tried, failed, settled, tried again."""

from __future__ import annotations

from datetime import datetime

from msgspec import UNSET
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.fold import waits as reads
from holdfast.core.fold.waits import heard, place, took, unended, waits
from holdfast.core.state import Attempt, Call, State, scope_of


def started(state: State, event: e.Started) -> None:
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
            undo=event.undo,
        )
        state.undoable = state.undoable or event.undo
        scope = path.rpartition(".")[0]
        state.last[scope] = path
        if scope and scope not in state.inner:
            place(state, path)
        if event.external or event.invalidates:
            reads.begun(state, event)
    else:
        if call.status in ("backing_off", "retrying"):
            _try_again_inside(state, path, event.at)
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
        if call.reads or call.invalidates:
            reads.begun_again(state, calls[path], event.at)


def attempt_failed(state: State, event: e.AttemptFailed) -> None:
    call = unended(state, event.path)
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
        parts=event.parts,
    )


def failed(state: State, event: e.Failed) -> None:
    call = unended(state, event.path)
    state.calls[event.path] = replace(
        call, status="failed", ended_at=event.at, failed_seq=event.seq
    )
    if call.invalidates:
        reads.wrote(state, call, event.seq)
    if state.deaths:
        survived(state, event.path)


def completed(state: State, event: e.Completed) -> None:
    call = state.calls[event.path]
    if call.status in ("completed", "failed"):
        call = unended(state, event.path)  # which says so
    at = event.at
    last = call.attempts[-1]
    attempts = (*call.attempts[:-1], Attempt(last.number, last.at, at))
    state.calls[event.path] = replace(
        call,
        status="completed",
        attempts=attempts,
        result=event.result,
        ended_at=at,
        ended_seq=event.seq,
    )
    if call.reads:
        reads.saw(state, call)
    if call.invalidates:
        reads.wrote(state, call, event.seq)
    if state.deaths:
        survived(state, event.path)


def stepped(state: State, event: e.Stepped) -> None:
    path, calls = event.path, state.calls
    begun = calls.get(path)
    if begun is None:
        place(state, path)
    elif begun.status != "running" or begun.seq != event.seq:
        raise LookupError(f"call {path} was begun before")
    calls[path] = Call(
        path,
        event.name,
        "step",
        "completed",
        event.began,
        event.args,
        event.args_hash,
        "",
        (Attempt(1, event.began, event.at),),
        result=event.result,
        ended_at=event.at,
        seq=event.seq,
        ended_seq=event.seq,
    )
    if state.deaths:
        survived(state, path)


def survived(state: State, path: str) -> None:
    """A call has ended, so the deaths during it, and before it, were not its end."""
    state.deaths = {at: count for at, count in state.deaths.items() if at not in ("", path)}


def settled(state: State, event: e.Settled) -> None:
    call = state.calls[event.path]
    if event.verdict == "happened":
        changed = replace(
            call,
            status="completed",
            result=event.result,
            ended_at=event.at,
            ended_seq=event.seq,
            settled_by=event.by,
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
    if call.invalidates and event.verdict == "happened":
        reads.wrote(state, call, event.seq)
    heard(state)
    took(state, event.post)


def doubted(state: State, event: e.Doubted) -> None:
    call = state.calls[event.path]
    state.calls[event.path] = replace(call, status="in_doubt", doubt=True, why=event.why)
    waits(state)


def try_again(state: State, path: str, at: datetime) -> None:
    call = state.calls.get(path)
    if call and call.status == "failed" and not _went_on(state, scope_of(path), call.failed_seq):
        reopen(state, call, at)


def try_items_again(state: State, batch: str, at: datetime) -> None:
    # The items of an `each` know nothing of each other: only what came after all of them counts.
    failed = [c for p, c in state.calls.items() if scope_of(p) == batch and c.status == "failed"]
    if failed and not _went_on(state, scope_of(batch), max(c.failed_seq for c in failed)):
        for call in failed:
            reopen(state, call, at)


def reopen(state: State, call: Call, at: datetime) -> None:
    """Let a call that failed go on: a step is tried again, what waited waits again."""
    if call.kind not in ("child", "question"):
        state.calls[call.path] = replace(
            call, status="retrying", failures=0, retry_at=None, exhausted=False
        )
        return
    until = at + (call.until - call.at) if call.until is not None else None
    state.calls[call.path] = replace(
        call, status="waiting", at=at, until=until, failure=None, ended_at=None
    )
    if call.kind == "question":
        waits(state)


def _went_on(state: State, scope: str, seq: int) -> bool:
    """Whether anything was begun in a scope, or in one around it, after the event `seq`.

    The later calls were chosen in the knowledge of the failure, and would not match the log if the
    call now succeeded.
    """
    while True:
        newest = state.last.get(scope)
        if newest is not None and state.calls[newest].seq > seq:
            return True
        if not scope:
            return False
        scope = scope_of(scope)


def _try_again_inside(state: State, path: str, at: datetime) -> None:
    inside = path + "."
    for other in [p for p in state.calls if p.startswith(inside)]:
        try_again(state, other, at)
