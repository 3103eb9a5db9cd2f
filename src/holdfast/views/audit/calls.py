"""What is told of calls: those that are made, that are decided, and that wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET

from holdfast.core import events as e
from holdfast.views.audit.entry import Fields, SeenTask, Tell


def started(event: e.Started, seen: SeenTask) -> Fields:
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


def attempt_failed(event: e.AttemptFailed, seen: SeenTask) -> Fields:
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


def ended(what: str, value: str = "") -> Tell:
    """A call that ended: its output is the field `value` of the event."""

    def told(event: Any, seen: SeenTask) -> Fields:
        call = seen.call(event.path)
        return {
            **seen.about(event.path),
            "what": what,
            "attempt": call.attempts[-1].number if call is not None and call.attempts else 0,
            "output": getattr(event, value) if value else UNSET,
            "duration_s": _since(call.at if call is not None else None, event.at),
        }

    return told


def _since(began: datetime | None, at: datetime) -> float | None:
    return None if began is None else (at - began).total_seconds()


def reused(event: e.Reused, seen: SeenTask) -> Fields:
    return {**seen.about(event.path), "what": "reused", "name": event.name, "of": (event.of,)}


def adopted(event: e.Adopted, seen: SeenTask) -> Fields:
    """A call that was not made: it has the outcome of another one, or one that was given for it."""
    return {
        "what": "adopted",
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


def settled(event: e.Settled, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "what": "doubt settled",
        "who": event.by,
        "verdict": event.verdict,
        "output": event.result,
        "because": event.because,
    }


def doubted(event: e.Doubted, seen: SeenTask) -> Fields:
    return {**seen.about(event.path), "what": "in doubt", "text": event.why}


def decided(event: e.Decided, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "what": "decided",
        "name": event.name,
        "output": event.choice,
        "options": event.options,
        "because": event.because,
        "of": (event.supersedes,) if event.supersedes else (),
    }


def noted(event: e.Noted, seen: SeenTask) -> Fields:
    return {"what": "noted", "path": event.scope, "text": event.text, "output": event.data}


def derived(event: e.Derived, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "what": "fact",
        "name": event.name,
        "output": event.value,
        "of": event.sources,
        "until": event.as_of,
    }


def observed(event: e.Observed, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "what": "observed",
        "name": event.name,
        "output": event.value,
    }


def checkpointed(event: e.Checkpointed, seen: SeenTask) -> Fields:
    told = {"what": "checkpoint", "name": str(event.number)}
    if event.carried is not None:
        return {**told, "output": event.state, "text": "the whole state"}
    return {**told, "output": event.change, "text": "what changed since the one before"}


def patched(event: e.Patched, seen: SeenTask) -> Fields:
    return {"what": "new way taken", "name": event.mark}


def progressed(event: e.Progressed, seen: SeenTask) -> Fields:
    done = {"done": event.done, "total": event.total} if event.done is not None else UNSET
    return {"what": "progress", "path": event.scope, "text": event.text, "output": done}


def timer(event: e.TimerSet, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "what": "sleeps",
        "input": event.args,
        "until": event.until,
    }


def question(event: e.QuestionAsked, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "what": "approval asked" if event.call else "asked",
        "input": event.args,
        "key": event.id,
        "text": event.question,
        "until": event.until,
        "of": (event.call,) if event.call else (),
    }


def answered(event: e.QuestionAnswered, seen: SeenTask) -> Fields:
    call = seen.call(event.path)
    of = call.approves if call is not None else ""
    what = "answered"
    if of:
        is_yes = bytes(event.answer) == b"true"
        what = "approved" if is_yes else "not approved"
        if is_yes:
            seen.approved[of] = (event.by, event.at)
    return {
        **ended(what, "answer")(event, seen),
        "who": event.by,
        "key": call.key if call is not None else "",
        "text": call.why if call is not None else "",
        "of": (of,) if of else (),
    }


def refused(event: e.AnswerRefused, seen: SeenTask) -> Fields:
    return {**seen.about(event.path), "what": "answer refused", "text": event.why}


def child(event: e.ChildStarted, seen: SeenTask) -> Fields:
    return {
        **seen.about(event.path),
        "what": "child started",
        "input": event.args,
        "task": event.id,
    }


def child_ended(event: e.ChildEnded, seen: SeenTask) -> Fields:
    call = seen.call(event.path)
    return {
        **ended("child ended", "result")(event, seen),
        "failure": event.failure,
        "task": call.child if call is not None else "",
    }
