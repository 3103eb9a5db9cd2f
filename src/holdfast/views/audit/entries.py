"""The fields that an audit keeps of each event, besides its words (see `views.words`).

A function of the table is given the event and what was known, and returns fields of an
`AuditEntry`; values stay as the log has them, and are read later. A new type of event gets a line
in `ENTRIES`, or in `OMITTED` with the reason.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET

from holdfast.core import events as e
from holdfast.core.crashes import died_in_words
from holdfast.core.decoding import decode
from holdfast.core.events import AnyEvent
from holdfast.views.audit.entry import Fields, SeenTask, Tell
from holdfast.views.words import words_of

OMITTED: dict[type[AnyEvent], str] = {
    e.ListGrew: "parts of values: these are shown whole, where they stand",
    e.ChildMade: "the child's log is there: how it went is in that log, and where it ended here",
    e.QueueBegan: "of the log of a queue, which no audit is about",
    e.PlacesChanged: "the same",
    e.QueueTurned: "the same",
}
"""The types of events that make no entry, and why."""


_RELEASES = (
    e.Parked,
    e.Hindered,
    e.SetAside,
    e.PauseRequested,
    e.TaskStopped,
    e.TaskCompleted,
    e.TaskErrored,
    e.Rewound,
)


def tell(event: AnyEvent, seen: SeenTask) -> Fields | None:
    """The fields of the entry that an event makes; None if it makes none."""
    if type(event) in OMITTED:
        return None
    fields = {"what": words_of(event, seen.state).what, **ENTRIES[type(event)](event, seen)}
    fields.setdefault("who", seen.state.owner if isinstance(event, e.Parked) else seen.by(""))
    if isinstance(event, _RELEASES):
        seen.released = True
    elif isinstance(event, e.Claimed | e.Started | e.Stepped):
        seen.released = False
    return fields


# The task itself.


def _created(event: e.TaskCreated, seen: SeenTask) -> Fields:
    if event.fork is not None:
        return _forked(event, event.fork)
    # The log says whose task it is, and not who called `run`.
    text = f"for {event.user}" if event.user else ""
    if event.parent:
        call = f"call {event.parent_path} of " if event.parent_path else ""
        text = f"by {call}task {event.parent}{text and f', {text}'}"
    return {
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


def _rewound(event: e.Rewound, seen: SeenTask) -> Fields:
    return {
        "who": event.by,
        "text": _place(event.when, event.path),
        "because": event.because,
        "how": event.effects,
        "to": event.to,
        "options": {"sessions": event.sessions} if event.sessions else UNSET,
    }


def _place(when: str, path: str) -> str:
    return f"{when} call {path}".strip() if path else ""


def _claimed(event: e.Claimed, seen: SeenTask) -> Fields:
    return {
        "who": event.owner,
        "name": event.engine,
        "text": how_claimed(seen),
    }


def how_claimed(seen: SeenTask) -> str:
    """The origin of a claim."""
    if not seen.epoch:
        return "the first claim"
    before = f"{seen.owner} (epoch {seen.epoch})"
    if seen.released:
        return f"after {before} had released it"
    return f"after {before}, which never released it: its process ended, or it was taken over"


def _died(event: e.DriverDied | e.SetAside, seen: SeenTask) -> Fields:
    text = died_in_words(event.owner, event.path, event.name, event.deaths)
    return {"who": event.owner, "path": event.path, "name": event.name, "text": text}


def _hindered(event: e.Hindered, seen: SeenTask) -> Fields:
    return {"who": event.by, "name": event.error, "text": event.why}


def _queued(event: e.Queued, seen: SeenTask) -> Fields:
    ticket = event.ticket or seen.state.ticket
    return {"name": ticket.queue if ticket is not None else ""}


def _parked(event: e.Parked, seen: SeenTask) -> Fields:
    return {"text": event.why, "until": event.until}


def _asked_to(event: Any, seen: SeenTask) -> Fields:
    return {"who": event.by, "because": getattr(event, "because", "")}


def _moved(event: e.Moved, seen: SeenTask) -> Fields:
    how = "by force" if event.forced else "a new run of the same engine" if event.since else ""
    return {"who": event.by, "name": event.engine or "local", "text": how}


def _planned(event: e.Planned, seen: SeenTask) -> Fields:
    items = msgspec.to_builtins(event.items)
    return {"who": seen.by(event.by), "output": items, "text": event.diff}


def _progressed_in_plan(event: e.PlanProgressed, seen: SeenTask) -> Fields:
    text = next((item.text for item in seen.state.plan if item.id == event.id), "")
    return {
        "name": event.id,
        "output": event.status,
        "text": text,
        "because": event.because,
    }


def _mission(event: e.MissionSet, seen: SeenTask) -> Fields:
    who = seen.by(event.by)
    return {"who": who, "output": event.text, "text": event.diff}


def _file(event: e.FileKept | e.FileRemoved, seen: SeenTask) -> Fields:
    file = event.file if isinstance(event, e.FileKept) else UNSET
    path = {**seen.about(event.path), "kind": ""} if event.path else {}
    return {**path, "name": event.name, "who": seen.by(event.by), "output": file}


def _compensating(event: e.Compensating, seen: SeenTask) -> Fields:
    return {
        "who": seen.by(event.by),
        "text": f"what it did is undone; then it is {event.ending}",
        "failure": event.failure,
        "of": event.causes,
    }


def _errored(event: e.TaskErrored, seen: SeenTask) -> Fields:
    return {"failure": event.failure, "of": event.causes}


# The entries of calls: those that are made, that are decided, and that wait.


def _started(event: e.Started, seen: SeenTask) -> Fields:
    by, at = seen.approved.get(event.path, ("", None))
    return {
        **seen.about(event.path),
        "attempt": event.attempt,
        "input": event.args,
        "key": event.key,
        "approved_by": by,
        "approved_at": at,
    }


def _attempt_failed(event: e.AttemptFailed, seen: SeenTask) -> Fields:
    doubt = "it may have had its effect all the same" if event.doubt else ""
    call = seen.call(event.path)
    began = call.attempts[-1].at if call is not None and call.attempts else None
    return {
        **seen.about(event.path),
        "attempt": event.attempt,
        "failure": event.failure,
        "output": event.parts,
        "until": event.retry_at,
        "text": doubt,
        "duration_s": _since(began, event.at),
    }


def _ended(value: str = "") -> Tell:
    """A call that ended: its output is the field `value` of the event."""

    def told(event: Any, seen: SeenTask) -> Fields:
        call = seen.call(event.path)
        return {
            **seen.about(event.path),
            "attempt": call.attempts[-1].number if call is not None and call.attempts else 0,
            "output": getattr(event, value) if value else UNSET,
            "duration_s": _since(call.at if call is not None else None, event.at),
        }

    return told


def _stepped(event: e.Stepped, seen: SeenTask) -> Fields:
    return {**_ended("result")(event, seen), "input": event.args}


def _since(began: datetime | None, at: datetime) -> float | None:
    return None if began is None else (at - began).total_seconds()


def _reused(event: e.Reused, seen: SeenTask) -> Fields:
    return {**seen.about(event.path), "name": event.name, "of": (event.of,)}


def _adopted(event: e.Adopted, seen: SeenTask) -> Fields:
    """A call that was not made: it has the outcome of another one, or one that was given for it."""
    return {
        "who": seen.by(event.by),
        "path": event.path,
        "name": event.name,
        "kind": event.kind,
        "how": event.how,
        "input": event.args,
        "output": event.result,
        "failure": event.failure,
        "key": event.key,
        "text": event.why,
        "of": (event.of_path,) if event.of_path else (),
        "task": event.of,
    }


def _settled(event: e.Settled, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "who": event.by,
        "verdict": event.verdict,
        "output": event.result,
        "because": event.because,
    }


def _doubted(event: e.Doubted, seen: SeenTask) -> Fields:
    return {**seen.about(event.path), "text": event.why}


def _decided(event: e.Decided, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "name": event.name,
        "output": event.choice,
        "options": event.options,
        "because": event.because,
        "of": (event.supersedes,) if event.supersedes else (),
    }


def _noted(event: e.Noted, seen: SeenTask) -> Fields:
    return {"path": event.scope, "text": event.text, "output": event.data}


def _derived(event: e.Derived, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "name": event.name,
        "output": event.value,
        "of": event.sources,
        "until": event.as_of,
    }


def _observed(event: e.Observed, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "name": event.name,
        "output": event.value,
    }


def _checkpointed(event: e.Checkpointed, seen: SeenTask) -> Fields:
    told = {"name": str(event.number)}
    if event.carried is not None:
        return {**told, "output": event.state, "text": "the whole state"}
    return {**told, "output": event.change, "text": "what changed since the one before"}


def _patched(event: e.Patched, seen: SeenTask) -> Fields:
    return {"name": event.mark}


def _progressed(event: e.Progressed, seen: SeenTask) -> Fields:
    done = {"done": event.done, "total": event.total} if event.done is not None else UNSET
    return {"path": event.scope, "text": event.text, "output": done}


def _timer(event: e.TimerSet, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "input": event.args if not event.call else UNSET,
        "until": event.until,
        "of": (event.call,) if event.call else (),
    }


def _question(event: e.QuestionAsked, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "input": event.args,
        "key": event.id,
        "text": event.question,
        "until": event.until,
        "of": (event.call,) if event.call else (),
    }


def _answered(event: e.QuestionAnswered, seen: SeenTask) -> Fields:
    call = seen.call(event.path)
    of = call.approves if call is not None else ""
    if of and bytes(event.answer) == b"true":
        seen.approved[of] = (event.by, event.at)
    return {
        **_ended("answer")(event, seen),
        "who": event.by,
        "key": call.key if call is not None else "",
        "text": call.why if call is not None else "",
        "of": (of,) if of else (),
    }


def _refused(event: e.AnswerRefused | e.MessageRefused, seen: SeenTask) -> Fields:
    return {**seen.about(event.path), "text": event.why}


def _child(event: e.ChildStarted, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "input": event.args,
        "task": event.id,
    }


def _child_ended(event: e.ChildEnded, seen: SeenTask) -> Fields:
    call = seen.call(event.path)
    return {
        **_ended("result")(event, seen),
        "failure": event.failure,
        "task": call.child if call is not None else "",
    }


def _awaited(event: e.MessageAwaited, seen: SeenTask) -> Fields:
    return {**seen.about(event.path), "key": event.name, "until": event.until}


def _sent(event: e.MessageSent, seen: SeenTask) -> Fields:
    return {"who": event.by, "key": event.name, "output": event.value}


ENTRIES: dict[type[AnyEvent], Tell] = {
    e.TaskCreated: _created,
    e.Rewound: _rewound,
    e.Adopted: _adopted,
    e.Queued: _queued,
    e.Claimed: _claimed,
    e.DriverDied: _died,
    e.SetAside: _died,
    e.Hindered: _hindered,
    e.Parked: _parked,
    e.PauseRequested: _asked_to,
    e.TaskContinued: _asked_to,
    e.Moved: _moved,
    e.CancelRequested: _asked_to,
    e.TaskRetried: _asked_to,
    e.Planned: _planned,
    e.PlanProgressed: _progressed_in_plan,
    e.MissionSet: _mission,
    e.FileKept: _file,
    e.FileRemoved: _file,
    e.Started: _started,
    e.Reused: _reused,
    e.AttemptFailed: _attempt_failed,
    e.Failed: _ended(),
    e.Completed: _ended("result"),
    e.Stepped: _stepped,
    e.Settled: _settled,
    e.Doubted: _doubted,
    e.Decided: _decided,
    e.Noted: _noted,
    e.Derived: _derived,
    e.Observed: _observed,
    e.TimerSet: _timer,
    e.Woke: _ended(),
    e.QuestionAsked: _question,
    e.QuestionAnswered: _answered,
    e.AnswerRefused: _refused,
    e.QuestionExpired: _ended(),
    e.MessageAwaited: _awaited,
    e.MessageSent: _sent,
    e.MessageRefused: _refused,
    e.MessageExpired: _ended(),
    e.ChildStarted: _child,
    e.ChildEnded: _child_ended,
    e.Checkpointed: _checkpointed,
    e.Patched: _patched,
    e.Progressed: _progressed,
    e.Compensating: _compensating,
    e.TaskStopped: lambda event, seen: {"because": event.because},
    e.TaskCompleted: lambda event, seen: {"output": event.result},
    e.TaskErrored: _errored,
}
"""The fields of each type of event. A test holds it against the types that there are."""
