"""How calls are named in messages, and the errors that flows and drivers raise of records."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

from msgspec import Raw

from holdfast.errors import BadInput, CodeChanged, InDoubt, StepFailed, Unanswered
from holdfast.events import Failure
from holdfast.lists import in_short
from holdfast.state import Call

if TYPE_CHECKING:
    from holdfast.journal.requests import Asked


def must_match(asked: Asked, record: Call) -> None:
    """Raise `CodeChanged` unless the record is of the call that the code asks for now."""
    same_kind = (record.kind == "tool") == asked.spec.is_tool
    if record.name == asked.spec.name and record.args_hash == asked.args_hash and same_kind:
        return
    why = ""
    if record.name == asked.spec.name and same_kind:
        why = "The arguments differ: what they are made from must be the same on every run"
    elif record.name == asked.spec.name:
        kind = "tool" if asked.spec.is_tool else "step"
        why = f"It was recorded as a {record.kind}, and is a {kind} now"
    elif asked.path.startswith("@"):
        why = "The task's code changed, or a step stands between restore() and the loop"
    raise CodeChanged(asked.task_id, asked.path, describe(record), f"calls {asked}", why)


def describe(record: Call) -> str:
    """A call as it stands in the log, for messages."""
    if record.kind == "decision":
        return f"the decision {record.name!r}"
    if record.kind == "fact":
        return f"the fact {record.name!r}"
    return f"{record.name}({shown(record.args)})"


def unanswered(task_id: str, record: Call) -> Unanswered:
    """The error that tells a person what they are asked."""
    return Unanswered(task_id, record.key, record.why, record.expects, record.until, record.refused)


def in_doubt(task_id: str, record: Call) -> InDoubt:
    """The error that tells a person what to find out."""
    return InDoubt(task_id, record.path, record.name, record.key, record.why)


def misfit(task_id: str, record: Call, error: Exception) -> BadInput:
    """The error for a result that a person gave, and which is not what the tool returns."""
    return BadInput(
        f"task {task_id!r}, call {record.path}, {record.name}: the result given by "
        f"{record.settled_by} does not fit ({error}). Settle it again: "
        f"holdfast resolve {quote(task_id)} {quote(record.path)} --happened --result JSON"
    )


def step_failed(record: Call) -> StepFailed:
    """The error that a failed call raises in the task, from its record alone."""
    failure = record.failure or Failure("Unknown", "")
    return StepFailed(record.path, record.name, failure, len(record.attempts))


def shown(raw: Any, most: int = 200) -> str:
    if not isinstance(raw, Raw):
        return ""
    text = in_short(bytes(raw)).decode(errors="replace")
    return text if len(text) <= most else f"{text[:most]}… {len(text):,} characters"
