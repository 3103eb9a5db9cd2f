"""Which entry each event makes: one table, by the type of the event.

A function of it is given the event and what was known, and returns fields of an `Entry`; values
stay as the log has them, and are read later. A new type of event gets a line in `ENTRIES`, or in
`OMITTED` with the reason.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET

from holdfast import events as e
from holdfast.audit import calls
from holdfast.audit.seen import Fields, Seen, Tell
from holdfast.decoding import decode
from holdfast.events import AnyEvent

OMITTED: dict[type[AnyEvent], str] = {
    e.ListGrew: "parts of values: these are shown whole, where they stand",
    e.ChildMade: "the child's log is there: how it went is in that log, and where it ended here",
}
"""The types of events that make no entry, and why."""


_LETS_GO = (
    e.Parked,
    e.PauseRequested,
    e.TaskStopped,
    e.TaskCompleted,
    e.TaskErrored,
    e.Rewound,
)


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


def _unknown(event: AnyEvent, seen: Seen) -> Fields:
    return {"what": "recorded", "output": decode(e.dump_event(event))}


# The task itself.


def _created(event: e.TaskCreated, seen: Seen) -> Fields:
    if event.fork is not None:
        return _forked(event, event.fork)
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


def _forked(event: e.TaskCreated, fork: e.Fork) -> Fields:
    changes = {"stubs": fork.stubs, "arguments": fork.arguments, "sessions": fork.sessions}
    given = {name: value for name, value in changes.items() if value}
    return {
        "what": "forked",
        "who": fork.by,
        "name": event.task,
        "input": event.args,
        "options": decode(msgspec.json.encode(given)) if given else UNSET,
        "text": _place(fork.when, fork.path),
        "because": fork.because,
        "how": fork.effects,
        "to": fork.seq,
        "task": fork.of,
    }


def _rewound(event: e.Rewound, seen: Seen) -> Fields:
    return {
        "what": "rewound",
        "who": event.by,
        "text": _place(event.when, event.path),
        "because": event.because,
        "how": event.effects,
        "to": event.to,
        "options": {"sessions": event.sessions} if event.sessions else UNSET,
    }


def _place(when: str, path: str) -> str:
    return f"{when} call {path}".strip() if path else ""


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


def _moved(event: e.Moved, seen: Seen) -> Fields:
    how = "by force" if event.forced else "a new run of the same engine" if event.since else ""
    return {"what": "moved", "who": event.by, "name": event.engine or "local", "text": how}


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


ENTRIES: dict[type[AnyEvent], Tell] = {
    e.TaskCreated: _created,
    e.Rewound: _rewound,
    e.Adopted: calls.adopted,
    e.Claimed: _claimed,
    e.Parked: _parked,
    e.PauseRequested: _asked_to("paused"),
    e.TaskContinued: _asked_to("continued"),
    e.Moved: _moved,
    e.CancelRequested: _asked_to("cancel asked"),
    e.TaskRetried: _asked_to("retried"),
    e.Planned: _planned,
    e.PlanProgressed: _progressed_in_plan,
    e.MissionSet: _mission,
    e.FileKept: _file("file kept"),
    e.FileRemoved: _file("file removed"),
    e.Started: calls.started,
    e.Reused: calls.reused,
    e.AttemptFailed: calls.attempt_failed,
    e.Failed: calls.ended("failed"),
    e.Completed: calls.ended("returned", "result"),
    e.Settled: calls.settled,
    e.Doubted: calls.doubted,
    e.Decided: calls.decided,
    e.Noted: calls.noted,
    e.Derived: calls.derived,
    e.Observed: calls.observed,
    e.TimerSet: calls.timer,
    e.Woke: calls.ended("woke"),
    e.QuestionAsked: calls.question,
    e.QuestionAnswered: calls.answered,
    e.AnswerRefused: calls.refused,
    e.QuestionExpired: calls.ended("nobody answered"),
    e.ChildStarted: calls.child,
    e.ChildEnded: calls.child_ended,
    e.Checkpointed: calls.checkpointed,
    e.Patched: calls.patched,
    e.Progressed: calls.progressed,
    e.Compensating: _compensating,
    e.TaskStopped: lambda event, seen: {"what": "task cancelled", "because": event.because},
    e.TaskCompleted: lambda event, seen: {"what": "task completed", "output": event.result},
    e.TaskErrored: _errored,
}
"""The entry of each type of event. A test holds it against the types that there are."""
