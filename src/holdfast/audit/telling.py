"""Which entry each event makes: one table, by the type of the event.

A function of it is given the event and what was known, and returns fields of an `Entry`; values
stay as the log has them, and are read later. A new type of event gets a line in `ENTRIES`, or in
`OMITTED` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from holdfast import events as e
from holdfast.events import AnyEvent
from holdfast.state import UNDO, Call, State

Fields = dict[str, Any]
Tell = Callable[[Any, "Seen"], Fields]

OMITTED: dict[type[AnyEvent], str] = {
    e.ListGrew: "parts of values: these are shown whole, where they stand",
    e.ChildMade: "the child's log is there: how it went is in that log, and where it ended here",
}
"""The types of events that make no entry, and why."""


class Seen(Struct):
    """What was known when an event came: the state after it, and what is left of that before."""

    state: State
    owner: str = ""
    epoch: int = 0
    let_go: bool = False
    """Whether who held it had let go of it, or it had ended."""
    approved: dict[str, tuple[str, datetime]] = {}
    """By the path of a call: who approved it, and when."""

    def call(self, path: str) -> Call | None:
        """The call of a path; a part of it, such as its approval, has its own."""
        return self.state.calls.get(path)

    def by(self, who: str) -> str:
        """Who is named, else the process that drives the task."""
        return who or self.state.owner

    def about(self, path: str) -> Fields:
        """What is known of a call."""
        call = self.call(path)
        known = {"name": call.name, "kind": call.kind} if call is not None else {}
        return {"path": path, **known, "of": _undoes(path)}


_LETS_GO = (e.Parked, e.PauseRequested, e.TaskStopped, e.TaskCompleted, e.TaskErrored)


def tell(event: AnyEvent, seen: Seen) -> Fields | None:
    """The fields of the entry that an event makes; None if it makes none."""
    if type(event) in OMITTED:
        return None
    fields = ENTRIES.get(type(event), _unknown)(event, seen)
    if isinstance(event, _LETS_GO):
        seen.let_go = True
    elif isinstance(event, e.Claimed | e.Started):
        seen.let_go = False
    return fields


def _undoes(path: str) -> tuple[str, ...]:
    scope, _, call = path.partition(".")
    return (call.replace("/", "."),) if scope == UNDO and call else ()


def _unknown(event: AnyEvent, seen: Seen) -> Fields:
    return {"what": "recorded", "output": msgspec.to_builtins(event)}


# The task itself.


def _created(event: e.TaskCreated, seen: Seen) -> Fields:
    # The log says whose task it is, and not who called `run`.
    text = f"for {event.user}" if event.user else ""
    if event.parent:
        text = f"by call {event.parent_path} of task {event.parent}{text and f', {text}'}"
    return {
        "what": "created",
        "who": "",
        "name": event.task,
        "input": event.args,
        "task": event.parent,
        "text": text,
        "until": seen.state.until,
    }


def _claimed(event: e.Claimed, seen: Seen) -> Fields:
    return {
        "what": "claimed",
        "who": event.owner,
        "name": event.engine,
        "text": how_claimed(seen),
    }


def how_claimed(seen: Seen) -> str:
    """How a claim came to be."""
    if not seen.epoch:
        return "the first claim"
    before = f"{seen.owner} (epoch {seen.epoch})"
    if seen.let_go:
        return f"after {before} had let go of it"
    return f"after {before}, which never let go of it: its process ended, or it was taken over"


def _parked(event: e.Parked, seen: Seen) -> Fields:
    return {"what": "let go of", "text": event.why, "until": event.until}


def _asked_to(what: str) -> Tell:
    def told(event: Any, seen: Seen) -> Fields:
        return {"what": what, "who": event.by, "because": getattr(event, "because", "")}

    return told


def _planned(event: e.Planned, seen: Seen) -> Fields:
    items = msgspec.to_builtins(event.items)
    return {"what": "planned", "who": seen.by(event.by), "output": items, "text": event.diff}


def _progressed_in_plan(event: e.PlanProgressed, seen: Seen) -> Fields:
    text = next((item.text for item in seen.state.plan if item.id == event.id), "")
    return {
        "what": "plan item marked",
        "name": event.id,
        "output": event.status,
        "text": text,
        "because": event.because,
    }


def _mission(event: e.MissionSet, seen: Seen) -> Fields:
    who = seen.by(event.by)
    return {"what": "mission set", "who": who, "output": event.text, "text": event.diff}


def _file(what: str) -> Tell:
    def told(event: e.FileKept | e.FileRemoved, seen: Seen) -> Fields:
        file = event.file if isinstance(event, e.FileKept) else UNSET
        path = {**seen.about(event.path), "kind": ""} if event.path else {}
        who = seen.by(event.by)
        return {**path, "what": what, "name": event.name, "who": who, "output": file}

    return told


def _compensating(event: e.Compensating, seen: Seen) -> Fields:
    return {
        "what": "compensating",
        "who": seen.by(event.by),
        "text": f"what it did is undone; then it is {event.ending}",
        "failure": event.failure,
        "of": event.causes,
    }


def _errored(event: e.TaskErrored, seen: Seen) -> Fields:
    return {"what": "task failed", "failure": event.failure, "of": event.causes}


# Calls.


def _started(event: e.Started, seen: Seen) -> Fields:
    by, at = seen.approved.get(event.path, ("", None))
    return {
        **seen.about(event.path),
        "what": "called" if event.attempt == 1 else "tried again",
        "attempt": event.attempt,
        "input": event.args,
        "key": event.key,
        "approved_by": by,
        "approved_at": at,
    }


def _attempt_failed(event: e.AttemptFailed, seen: Seen) -> Fields:
    doubt = "it may have had its effect all the same" if event.doubt else ""
    call = seen.call(event.path)
    began = call.attempts[-1].at if call is not None and call.attempts else None
    return {
        **seen.about(event.path),
        "what": "attempt failed",
        "attempt": event.attempt,
        "failure": event.failure,
        "output": event.parts,
        "until": event.retry_at,
        "text": doubt,
        "duration_s": _since(began, event.at),
    }


def _ended(what: str, value: str = "") -> Tell:
    """A call that ended: its output is the field `value` of the event."""

    def told(event: Any, seen: Seen) -> Fields:
        call = seen.call(event.path)
        return {
            **seen.about(event.path),
            "what": what,
            "attempt": call.attempts[-1].number if call is not None and call.attempts else 0,
            "output": getattr(event, value) if value else UNSET,
            "duration_s": _since(call.at if call is not None else None, event.at),
        }

    return told


def _since(began: datetime | None, ended: datetime) -> float | None:
    return None if began is None else (ended - began).total_seconds()


def _reused(event: e.Reused, seen: Seen) -> Fields:
    return {**seen.about(event.path), "what": "reused", "name": event.name, "of": (event.of,)}


def _settled(event: e.Settled, seen: Seen) -> Fields:
    return {
        **seen.about(event.path),
        "what": "doubt settled",
        "who": event.by,
        "verdict": event.verdict,
        "output": event.result,
        "because": event.because,
    }


def _doubted(event: e.Doubted, seen: Seen) -> Fields:
    return {**seen.about(event.path), "what": "in doubt", "text": event.why}


def _decided(event: e.Decided, seen: Seen) -> Fields:
    return {
        **seen.about(event.path),
        "what": "decided",
        "name": event.name,
        "output": event.choice,
        "options": event.options,
        "because": event.because,
        "of": (event.supersedes,) if event.supersedes else (),
    }


def _noted(event: e.Noted, seen: Seen) -> Fields:
    return {"what": "noted", "path": event.scope, "text": event.text, "output": event.data}


def _derived(event: e.Derived, seen: Seen) -> Fields:
    return {
        **seen.about(event.path),
        "what": "fact",
        "name": event.name,
        "output": event.value,
        "of": event.sources,
        "until": event.as_of,
    }


def _observed(event: e.Observed, seen: Seen) -> Fields:
    return {
        **seen.about(event.path),
        "what": "observed",
        "name": event.name,
        "output": event.value,
    }


def _checkpointed(event: e.Checkpointed, seen: Seen) -> Fields:
    told = {"what": "checkpoint", "name": str(event.number)}
    if event.carried is not None:
        return {**told, "output": event.state, "text": "the whole state"}
    return {**told, "output": event.change, "text": "what changed since the one before"}


def _patched(event: e.Patched, seen: Seen) -> Fields:
    return {"what": "new way taken", "name": event.mark}


def _progressed(event: e.Progressed, seen: Seen) -> Fields:
    done = {"done": event.done, "total": event.total} if event.done is not None else UNSET
    return {"what": "progress", "path": event.scope, "text": event.text, "output": done}


# What it waits for.


def _timer(event: e.TimerSet, seen: Seen) -> Fields:
    return {
        **seen.about(event.path),
        "what": "sleeps",
        "input": event.args,
        "until": event.until,
    }


def _question(event: e.QuestionAsked, seen: Seen) -> Fields:
    return {
        **seen.about(event.path),
        "what": "approval asked" if event.call else "asked",
        "input": event.args,
        "key": event.id,
        "text": event.question,
        "until": event.until,
        "of": (event.call,) if event.call else (),
    }


def _answered(event: e.QuestionAnswered, seen: Seen) -> Fields:
    call = seen.call(event.path)
    of = call.approves if call is not None else ""
    what = "answered"
    if of:
        is_yes = bytes(event.answer) == b"true"
        what = "approved" if is_yes else "not approved"
        if is_yes:
            seen.approved[of] = (event.by, event.at)
    return {
        **_ended(what, "answer")(event, seen),
        "who": event.by,
        "key": call.key if call is not None else "",
        "text": call.why if call is not None else "",
        "of": (of,) if of else (),
    }


def _refused(event: e.AnswerRefused, seen: Seen) -> Fields:
    return {**seen.about(event.path), "what": "answer refused", "text": event.why}


def _child(event: e.ChildStarted, seen: Seen) -> Fields:
    return {
        **seen.about(event.path),
        "what": "child started",
        "input": event.args,
        "task": event.id,
    }


def _child_ended(event: e.ChildEnded, seen: Seen) -> Fields:
    call = seen.call(event.path)
    return {
        **_ended("child ended", "result")(event, seen),
        "failure": event.failure,
        "task": call.child if call is not None else "",
    }


ENTRIES: dict[type[AnyEvent], Tell] = {
    e.TaskCreated: _created,
    e.Claimed: _claimed,
    e.Parked: _parked,
    e.PauseRequested: _asked_to("paused"),
    e.TaskContinued: _asked_to("continued"),
    e.CancelRequested: _asked_to("cancel asked"),
    e.TaskRetried: _asked_to("retried"),
    e.Planned: _planned,
    e.PlanProgressed: _progressed_in_plan,
    e.MissionSet: _mission,
    e.FileKept: _file("file kept"),
    e.FileRemoved: _file("file removed"),
    e.Started: _started,
    e.Reused: _reused,
    e.AttemptFailed: _attempt_failed,
    e.Failed: _ended("failed"),
    e.Completed: _ended("returned", "result"),
    e.Settled: _settled,
    e.Doubted: _doubted,
    e.Decided: _decided,
    e.Noted: _noted,
    e.Derived: _derived,
    e.Observed: _observed,
    e.TimerSet: _timer,
    e.Woke: _ended("woke"),
    e.QuestionAsked: _question,
    e.QuestionAnswered: _answered,
    e.AnswerRefused: _refused,
    e.QuestionExpired: _ended("nobody answered"),
    e.ChildStarted: _child,
    e.ChildEnded: _child_ended,
    e.Checkpointed: _checkpointed,
    e.Patched: _patched,
    e.Progressed: _progressed,
    e.Compensating: _compensating,
    e.TaskStopped: lambda event, seen: {"what": "task cancelled", "because": event.because},
    e.TaskCompleted: lambda event, seen: {"what": "task completed", "output": event.result},
    e.TaskErrored: _errored,
}
"""The entry of each type of event. A test holds it against the types that there are."""
