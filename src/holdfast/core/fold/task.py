"""The fold of the task itself: its life, its plan, its notes, its checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.crashes import deaths_at, died_in_words
from holdfast.core.decoding import decoder
from holdfast.core.fold import waits as reads
from holdfast.core.fold.calls import reopen, try_again, try_items_again
from holdfast.core.fold.history import branched
from holdfast.core.fold.waits import perhaps_open, place, took, waits_for_a_person
from holdfast.core.lists import newest, with_results
from holdfast.core.plan import numbered, recorded, with_status
from holdfast.core.state import (
    FINISHED,
    UNDO,
    Call,
    Death,
    Decision,
    Hindrance,
    KeptFile,
    Note,
    PlanVersion,
    Progress,
    State,
    scope_of,
)

_load_call = decoder(Call)


def created(state: State, event: e.TaskCreated) -> None:
    if event.fork is not None:
        branched(state)
        state.fork, state.effects = event.fork, event.fork.effects
    else:
        state.began_at = event.at
    state.id = state.name = event.id
    state.task = event.task
    state.args = event.args
    state.args_hash = event.args_hash
    state.user = event.user
    state.session = event.session
    state.labels = event.labels
    state.created_at = event.at
    state.format = event.format
    state.version = event.version
    state.parent = event.parent
    state.parent_path = event.parent_path
    state.timeout_s = event.timeout_s
    state.driver, state.driven_since = event.engine, event.seq
    state.ticket, state.not_before = event.ticket, event.not_before
    state.in_line = event.ticket is not None and event.not_before is None
    _set_deadline(state, event)


def _set_deadline(state: State, event: e.TaskCreated | e.TaskRetried) -> None:
    if state.timeout_s is not None:
        state.until = event.at + timedelta(seconds=state.timeout_s)


def queued(state: State, event: e.Queued) -> None:
    state.in_line = True
    if event.ticket is not None:
        state.ticket = event.ticket


def claimed(state: State, event: e.Claimed) -> None:
    state.epoch = event.epoch
    state.owner = event.owner
    state.engine = event.engine
    state.format = event.format
    state.process = event.process
    state.is_held, state.hindrance = True, None
    state.claims += 1
    state.parked, state.wake_at, state.in_line = False, None, False
    if state.status == "pending":
        state.status = "in_progress"


def driver_died(state: State, event: e.DriverDied) -> None:
    state.is_held = False
    state.death = Death(event.at, event.owner, event.path, event.name, event.deaths)
    also = {path: deaths_at(state, path) + 1 for path in event.beside}
    state.deaths = {**state.deaths, **also, event.path: event.deaths}


def task_stuck(state: State, event: e.SetAside) -> None:
    state.status = "stuck"
    state.death = Death(event.at, event.owner, event.path, event.name, event.deaths)
    state.because = died_in_words(event.owner, event.path, event.name, event.deaths)
    state.is_held = False
    took(state, event.post)


def hindered(state: State, event: e.Hindered) -> None:
    state.hindrance = Hindrance(event.at, event.error, event.why, event.by)
    if event.error != "CodeMissing":  # that is no matter for those who have the code
        state.parked, state.wake_at, state.is_held = True, None, False
        state.in_line = False


def parked(state: State, event: e.Parked) -> None:
    state.parked, state.wake_at, state.is_held = True, event.until, False


def task_paused(state: State, event: e.PauseRequested) -> None:
    state.status = "paused"
    state.because = event.because
    took(state, event.post)


def task_continued(state: State, event: e.TaskContinued) -> None:
    state.status = "awaiting_user" if waits_for_a_person(state) else "in_progress"
    state.because = ""
    state.parked = False
    state.deaths = {}
    took(state, event.post)


def moved(state: State, event: e.Moved) -> None:
    state.driver, state.driven_since = event.engine, event.seq
    if event.forced:
        state.taken_at = event.seq
    state.parked = False
    took(state, event.post)


def cancel_requested(state: State, event: e.CancelRequested) -> None:
    state.cancelling = True
    state.because = event.because
    state.parked = False
    if state.status in ("paused", "stuck", "awaiting_user"):
        state.status = "in_progress"
    took(state, event.post)


def planned(state: State, event: e.Planned) -> None:
    items = numbered(event.items)
    _plan(state, event, PlanVersion(event.seq, event.at, items, by=event.by))
    took(state, event.post)


def plan_progressed(state: State, event: e.PlanProgressed) -> None:
    items = with_status(state.plan, event.id, event.status)
    _plan(state, event, PlanVersion(event.seq, event.at, items, event.id, event.because))


def _plan(state: State, event: e.Planned | e.PlanProgressed, version: PlanVersion) -> None:
    state.marks[event.mark] = event.seq
    state.plans.append(version)
    state.plan = version.items


def decided(state: State, event: e.Decided) -> None:
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
        Decision(
            path,
            event.name,
            event.at,
            event.choice,
            event.options,
            event.because,
            event.supersedes,
        )
    )


def noted(state: State, event: e.Noted) -> None:
    state.marks[event.mark] = len(state.notes)
    state.notes.append(Note(event.scope, event.text, event.at, event.data))


def observed(state: State, event: e.Observed) -> None:
    state.calls[event.path] = Call(
        event.path,
        event.name,
        "reading",
        "completed",
        event.at,
        result=event.value,
        ended_at=event.at,
    )


def list_grew(state: State, event: e.ListGrew) -> None:
    if event.base is None:
        event = replace(event, base=next(reversed(state.lists), ""))
    base, known = state.lists.get(event.base or ""), state.lists.get(event.digest)
    if base is not None and base.length >= event.length:
        raise ValueError(f"a list of {event.length} items that goes on from {base.length}")
    if known is not None and known.length != event.length:
        raise ValueError(f"a list of {event.length} items that had {known.length}")
    if event.copied and isinstance(event.items, Raw):
        try:
            items = with_results(bytes(event.items), event.copied, partial(_result_of, state))
            event = replace(event, items=Raw(items), copied=())
        except LookupError:  # of a call before the checkpoint that reading began with
            event = replace(event, items=UNSET, copied=())
    # It goes to the end, where the newest stand.
    state.lists.pop(event.digest, None)
    state.lists[event.digest] = event


def _result_of(state: State, path: str, seq: int) -> bytes:
    call = state.calls[path]
    if call.ended_seq != seq or not isinstance(call.result, Raw):
        raise LookupError(path)
    return bytes(call.result)


_load_files = decoder(list[KeptFile])


def _files(carried: Raw | UnsetType) -> list[KeptFile]:
    return _load_files(carried) if isinstance(carried, Raw) else []


def _is_elsewhere(carried: Raw | UnsetType) -> bool:
    # A reader that begins at a checkpoint has them from there; one from before knows them.
    return isinstance(carried, Raw) and not bytes(carried).startswith(b"[")


def checkpointed(state: State, event: e.Checkpointed) -> None:
    state.checkpoints = event.number
    state.checkpoint_version = event.version
    state.checkpoint_plan = state.plan
    # A reader that begins here does not know what came before, and must reach the same state.
    state.reads, state.invalidated = {}, {}
    state.deaths = {}
    if event.carried is None:
        state.changes.append(event.change)  # type: ignore[arg-type]  # one of the two is there
        return
    state.checkpoint = event.state
    state.changes = []
    carried = event.carried
    state.in_line = False  # somebody drives it: only then there is a checkpoint
    state.ticket = carried.ticket or state.ticket
    state.status = carried.status  # type: ignore[assignment]
    state.because = carried.because
    state.plan = state.checkpoint_plan = numbered(carried.plan)
    state.until = carried.until
    state.cancelling = carried.cancelling
    state.undoable = carried.undoable
    state.posts = carried.posts
    state.mail = carried.mail
    state.mission = carried.mission
    state.driver, state.driven_since = carried.driver, carried.driven_since
    state.taken_at = carried.taken_at
    state.rewinds, state.effects, state.left_at = carried.rewinds, carried.effects, carried.left_at
    if state.rewinds:
        state.name = f"{state.id}~{state.rewinds}"
    if not _is_elsewhere(carried.files):
        state.files = {file.name: file for file in _files(carried.files)}
    for digest, length in carried.lists:
        state.lists.setdefault(digest, e.ListGrew(digest=digest, length=length))
    for raw in carried.open:
        call = _load_call(bytes(raw))
        if call.path not in state.calls:
            state.calls[call.path] = call
            if call.kind != "approval":
                place(state, call.path)
            reads.writes(state, call)


def patched(state: State, event: e.Patched) -> None:
    state.marks[event.mark] = event.seq


def progressed(state: State, event: e.Progressed) -> None:
    state.progress[event.scope] = Progress(
        event.at, event.number, event.text, event.done, event.total
    )


def compensating(state: State, event: e.Compensating) -> None:
    # An undo that failed before is tried anew.
    for call in list(state.calls.values()):
        if call.status == "failed" and scope_of(call.path) == UNDO:
            reopen(state, call, event.at)
    if state.status in FINISHED:  # somebody opened it again for that
        state.driven_since = event.seq
    state.status = "in_progress"
    state.ending = event.ending
    state.compensated = True
    state.failure = event.failure
    state.causes = event.causes


def task_cancelled(state: State, event: e.TaskStopped) -> None:
    state.status = "cancelled"
    state.ending = ""
    state.because = event.because or state.because


def task_completed(state: State, event: e.TaskCompleted) -> None:
    state.status = "completed"
    state.result = event.result


def task_errored(state: State, event: e.TaskErrored) -> None:
    state.status = "failed"
    state.ending = ""
    state.failure = event.failure
    state.causes = event.causes


def task_retried(state: State, event: e.TaskRetried) -> None:
    state.status = "in_progress"
    state.failure = None
    state.deaths = {}
    state.cancelling = False  # it may have come too late to stop the task from failing
    state.parked = False
    state.driven_since = event.seq
    _set_deadline(state, event)
    for path in state.causes:
        if path.endswith(".*"):
            try_items_again(state, path[:-2], event.at)
        else:
            try_again(state, path, event.at)
    state.causes = ()


def carried(state: State, stow: Callable[[bytes], Raw]) -> e.Carried:
    """The facts of a state that a reader needs who begins at a whole checkpoint."""
    calls = [c for c in perhaps_open(state.calls) if c.status not in ("completed", "failed")]
    return e.Carried(
        state.status,
        state.because,
        recorded(state.plan),
        state.until,
        state.cancelling,
        state.undoable,
        state.posts,
        tuple(Raw(msgspec.json.encode(call)) for call in calls),
        newest(state.lists),
        state.rewinds,
        state.effects,
        state.left_at,
        state.mission,
        stow(msgspec.json.encode(list(state.files.values()))) if state.files else UNSET,
        state.driver,
        state.driven_since,
        state.taken_at,
        state.mail,
        state.ticket,
    )


# The purpose of a task, and the files that belong to it.


def mission_set(state: State, event: e.MissionSet) -> None:
    state.mission = event.text
    took(state, event.post)


def file_kept(state: State, event: e.FileKept) -> None:
    kept = KeptFile(event.name, event.file, event.at, event.seq, event.path, event.by)
    state.files[event.name] = kept
    state.kept.append(kept)
    _changed(state, event)


def file_removed(state: State, event: e.FileRemoved) -> None:
    state.files.pop(event.name, None)
    _changed(state, event)


def _changed(state: State, event: e.FileKept | e.FileRemoved) -> None:
    if event.mark:
        state.marks[event.mark] = event.seq
    took(state, event.post)
