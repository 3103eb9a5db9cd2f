"""The tables of what tasks called: steps, tools, attempts, failures, questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.core.decoding import decode
from holdfast.core.events import Failure
from holdfast.core.state import Attempt, Call, scope_of
from holdfast.core.usage import Usage, Used, used_by
from holdfast.views.sql.columns import (
    Broken,
    Column,
    Table,
    TaskLog,
    integer,
    real,
    seconds,
    text,
    time,
    value,
)


class Tried(NamedTuple):
    """An attempt, and what it is of."""

    call: Call
    attempt: Attempt


def _calls(*kinds: str) -> Callable[[TaskLog], Iterator[Call]]:
    def each(log: TaskLog) -> Iterator[Call]:
        return (call for call in log.state.calls.values() if not kinds or call.kind in kinds)

    return each


def _tries(log: TaskLog) -> Iterator[Tried]:
    for call in log.state.calls.values():
        for attempt in call.attempts:
            yield Tried(call, attempt)


def _summary(failure: Failure | None) -> str | None:
    return None if failure is None else failure.summary()


def _failed(call: Call) -> int:
    return sum(attempt.failure is not None for attempt in call.attempts)


def _failure_of(call: Call) -> Failure | None:
    """Why it failed; not what went wrong before it went well."""
    return None if call.status == "completed" else call.failure


_TASK = text("task_id", "The task.", lambda log, _: log.id)

_CALL: tuple[Column, ...] = (
    _TASK,
    text("path", "Its place in the tree of calls: 6, or 6.2.1.", lambda _, c: c.path),
    text("name", "What was called.", lambda _, c: c.name),
)

_COURSE: tuple[Column, ...] = (
    text(
        "status",
        "running, backing_off, in_doubt, retrying, waiting, completed or failed.",
        lambda _, c: c.status,
    ),
    value("input", "Its arguments.", lambda log, c: log.value(c.args)),
    value("output", "What it returned; NULL while it has not.", lambda log, c: log.value(c.result)),
    text(
        "failure",
        "Why it failed, or why the last attempt did; NULL once it went well.",
        lambda _, c: _summary(_failure_of(c)),
    ),
    integer("attempts", "How often it was tried.", lambda _, c: len(c.attempts)),
    integer("failures", "How many attempts failed.", lambda _, c: _failed(c)),
    time("started_at", "When it was first begun.", lambda _, c: c.at),
    time("ended_at", "When it ended; NULL if it has not.", lambda _, c: c.ended_at),
    real(
        "duration_s", "How long it took, retries and all.", lambda _, c: seconds(c.at, c.ended_at)
    ),
    text("key", "A tool's idempotency key; a question's id.", lambda _, c: c.key),
    text(
        "scope", "The call or branch it was made in; '' in the body.", lambda _, c: scope_of(c.path)
    ),
    integer("seq", "The event that began it.", lambda _, c: c.seq),
    text("args_hash", "Equal for calls with the same arguments.", lambda _, c: c.args_hash),
    integer(
        "shared",
        "1 if the task has it from the one that it is a fork of.",
        lambda log, c: log.is_shared(c.seq),
    ),
    text(
        "adopted",
        "How a call that was not made came by its output: reused, stub, recorded or edited.",
        lambda _, c: c.adopted,
    ),
    time("retry_at", "When it is tried next.", lambda _, c: c.retry_at),
)

_DOUBT: tuple[Column, ...] = (
    integer("in_doubt", "1 if nobody knows whether it happened.", lambda _, c: _is_doubtful(c)),
    text("why", "What was said of it: a doubt, a verdict, a question.", lambda _, c: c.why),
    text(
        "settled_by", "Who settled or answered it: a check, or a person.", lambda _, c: c.settled_by
    ),
    integer("can_undo", "1 if it can be undone.", lambda _, c: c.undo),
)

_DETAILS: tuple[Column, ...] = (
    time("until", "For what waits: up to when.", lambda _, c: c.until),
    text("child", "For a child: the id of its task.", lambda _, c: c.child),
    text("reused", "For a read that an earlier one answered: the path of that.", lambda _, c: c.of),
    time("as_of", "For a read of the outside world: how old it is.", lambda _, c: c.as_of),
)


def _is_doubtful(call: Call) -> bool:
    return call.status == "in_doubt" or (call.doubt and call.status != "completed")


STEPS = Table(
    "steps",
    "Every call of a task: steps, tools, decisions, questions, sleeps, children, limits.",
    "task",
    _calls(),
    (
        *_CALL,
        text(
            "kind",
            "step, tool, decision, fact, sleep, reading, question, approval, child or limit.",
            lambda _, c: c.kind,
        ),
        *_COURSE,
        *_DOUBT,
        *_DETAILS,
    ),
)

TOOL_CALLS = Table(
    "tool_calls",
    "The calls of tools: those of `steps` that touch the outside world.",
    "task",
    _calls("tool"),
    (*_CALL, *_COURSE, *_DOUBT),
)

ATTEMPTS = Table(
    "attempts",
    "Every try of every call.",
    "task",
    _tries,
    (
        _TASK,
        text("path", "The call.", lambda _, t: t.call.path),
        text("name", "What was called.", lambda _, t: t.call.name),
        text("kind", "step or tool.", lambda _, t: t.call.kind),
        integer("number", "Which try it is, counted from 1.", lambda _, t: t.attempt.number),
        time("started_at", "When it was begun.", lambda _, t: t.attempt.at),
        time("ended_at", "When it ended; NULL if nobody knows.", lambda _, t: t.attempt.ended_at),
        real(
            "duration_s",
            "How long it took.",
            lambda _, t: seconds(t.attempt.at, t.attempt.ended_at),
        ),
        text("failure", "Why it failed, if it did.", lambda _, t: _summary(t.attempt.failure)),
    ),
)


def _of_failure(name: str, about: str, of: Callable[[Failure], str]) -> Column:
    def get(_: TaskLog, found: Broken) -> str:
        return of(found.failure)

    return text(name, about, get)


FAILURES = Table(
    "failures",
    "Everything that broke: each failed attempt, and what a task failed with.",
    "task",
    lambda log: log.failures(),
    (
        _TASK,
        text("path", "The call; '' for the task itself.", lambda _, f: f.path),
        text("name", "What was called.", lambda _, f: f.name),
        integer("attempt", "Which try it was; 0 for the task itself.", lambda _, f: f.attempt),
        time("at", "When it broke.", lambda _, f: f.at),
        _of_failure("type", "The class of the exception.", lambda f: f.type),
        _of_failure("message", "What the exception said.", lambda f: f.message),
        _of_failure("traceback", "Where it was raised.", lambda f: f.traceback),
        _of_failure("module", "The module of the exception's class.", lambda f: f.module),
        integer("timed_out", "1 if it took too long.", lambda _, f: f.failure.timed_out),
        value("input", "What it was called with.", lambda log, f: log.value(f.args)),
    ),
)

QUESTIONS = Table(
    "questions",
    "What tasks asked people, and what was answered.",
    "task",
    _calls("question", "approval"),
    (
        _TASK,
        text("path", "The place in the tree of calls.", lambda _, c: c.path),
        text("id", "The question's id, by which it is answered.", lambda _, c: c.key),
        text("kind", "question, or approval of a call.", lambda _, c: c.kind),
        text("question", "What was asked.", lambda _, c: c.why),
        text("expects", "What an answer has to be.", lambda _, c: c.expects),
        text("status", "waiting, completed, or failed if nobody answered.", lambda _, c: c.status),
        value("answer", "What was answered.", lambda log, c: log.value(c.result)),
        text("answered_by", "Who answered.", lambda _, c: c.settled_by),
        time("asked_at", "When it was asked.", lambda _, c: c.at),
        time("answered_at", "When it was answered, or given up.", lambda _, c: c.ended_at),
        real("duration_s", "How long it waited.", lambda _, c: seconds(c.at, c.ended_at)),
        time("until", "Up to when an answer counts.", lambda _, c: c.until),
        text("call", "For an approval: the path of the call.", lambda _, c: c.approves),
        value("input", "For an approval: the arguments.", lambda log, c: log.value(c.args)),
        value("default_answer", "What counts if nobody does.", lambda log, c: log.value(c.default)),
    ),
)


# The table of model calls: what each took, as the provider reported it.


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
