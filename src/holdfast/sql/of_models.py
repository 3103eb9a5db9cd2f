"""The table of model calls: what each took, as the provider reported it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from holdfast.sql.columns import Table, integer, real, seconds, text, time
from holdfast.sql.logs import TaskLog
from holdfast.state import Call
from holdfast.values import REFERENCES

_REPLY = b'{"$type":"Reply"'
"""How the result of a step begins that returned a `holdfast.agent.Reply`."""


class Replied(NamedTuple):
    """A call that a model answered: its reply, and what that took, as the log has them."""

    call: Call
    reply: dict[str, Any]
    usage: dict[str, Any]


def _replies(log: TaskLog) -> Iterator[Replied]:
    for call in log.state.calls.values():
        if call.kind != "step" or not isinstance(call.result, Raw):
            continue
        data = bytes(call.result)
        if data.startswith(REFERENCES):
            data = log.whole(call.result)
        if data.startswith(_REPLY):
            reply = _fields(msgspec.json.decode(data))
            yield Replied(call, reply, _fields(reply.get("usage")))


def _fields(tagged: Any) -> dict[str, Any]:
    # Somebody else's class may be called the same: what is not there is not known.
    found = tagged.get("of") if isinstance(tagged, dict) else None
    return found if isinstance(found, dict) else {}


def _number(replied: Replied, name: str) -> Any:
    found = replied.usage.get(name)
    is_number = type(found) in (int, float) and abs(found) < 2**62  # type: ignore[arg-type]
    return found if is_number else None


def _tokens(replied: Replied, name: str) -> int | None:
    found = _number(replied, name)
    return found if type(found) is int else None


def _said(replied: Replied, name: str) -> str | None:
    found = replied.reply.get(name)
    return found if isinstance(found, str) else None


MODEL_CALLS = Table(
    "model_calls",
    "The steps that a model answered, and what each took.",
    "task",
    _replies,
    (
        text("task_id", "The task.", lambda log, _: log.id),
        text("path", "The call: a row of `steps`.", lambda _, r: r.call.path),
        text("name", "The name of the step.", lambda _, r: r.call.name),
        text("model", "The model, as the provider calls it.", lambda _, r: _said(r, "model")),
        integer("input_tokens", "What it read.", lambda _, r: _tokens(r, "input_tokens")),
        integer("output_tokens", "What it wrote.", lambda _, r: _tokens(r, "output_tokens")),
        integer(
            "cached_tokens",
            "Those of the input that the provider had at hand.",
            lambda _, r: _tokens(r, "cached_tokens"),
        ),
        real("cost", "What it cost, in whatever prices are in.", lambda _, r: _number(r, "cost")),
        text(
            "stop",
            "Why it stopped: end, tool_calls, length, refusal or other.",
            lambda _, r: _said(r, "stop"),
        ),
        integer("attempts", "How often it was tried.", lambda _, r: len(r.call.attempts)),
        time("started_at", "When it was begun.", lambda _, r: r.call.at),
        real(
            "duration_s",
            "How long it took, retries and all.",
            lambda _, r: seconds(r.call.at, r.call.ended_at),
        ),
    ),
)
