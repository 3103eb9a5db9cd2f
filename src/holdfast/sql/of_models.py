"""The table of model calls: what each took, as the provider reported it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.decoding import decode
from holdfast.sql.columns import Table, integer, real, seconds, text, time
from holdfast.sql.logs import TaskLog
from holdfast.state import Call
from holdfast.usage import Usage, Used, used_by


class Replied(NamedTuple):
    """A call that a model answered, and what that took."""

    call: Call
    used: Used


def _replies(log: TaskLog) -> Iterator[Replied]:
    calls = log.state.calls
    for path, used in used_by(calls.values(), lambda raw: decode(log.whole(raw))).items():
        yield Replied(calls[path], used)


def _tokens(replied: Replied, name: str) -> int | None:
    """How many there were; None where the provider told of nothing."""
    usage = replied.used.usage
    return None if usage == Usage() else getattr(usage, name)


MODEL_CALLS = Table(
    "model_calls",
    "The steps that a model answered, and what each took.",
    "task",
    _replies,
    (
        text("task_id", "The task.", lambda log, _: log.id),
        text("path", "The call: a row of `steps`.", lambda _, r: r.call.path),
        text("name", "The name of the step.", lambda _, r: r.call.name),
        text("model", "The model, as the provider calls it.", lambda _, r: r.used.model or None),
        integer("input_tokens", "What it read.", lambda _, r: _tokens(r, "input_tokens")),
        integer("output_tokens", "What it wrote.", lambda _, r: _tokens(r, "output_tokens")),
        integer(
            "cached_tokens",
            "Those of the input that the provider had at hand.",
            lambda _, r: _tokens(r, "cached_tokens"),
        ),
        real(
            "cost",
            "What it cost, in whatever prices are in.",
            lambda _, r: r.used.usage.cost or None,
        ),
        text(
            "stop",
            "Why it stopped: end, tool_calls, length, refusal or other.",
            lambda _, r: r.used.stop or None,
        ),
        integer(
            "shared",
            "1 if the task has it from the one that it is a fork of, which has the same row.",
            lambda log, r: log.is_shared(r.call.seq),
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
