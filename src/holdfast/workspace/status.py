"""`status.md`: where a task stands, as of one event of its log.

It says only what that event and those before it say. That something *runs* means that the log has
its beginning and not its end; whether the process is still alive, no file can know.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Raw

from holdfast.history import left_at
from holdfast.plan import ready
from holdfast.state import FINISHED, Call, State
from holdfast.views import TaskView
from holdfast.workspace.footers import time_text
from holdfast.workspace.markdown import code, prose
from holdfast.workspace.showing import as_line

_MOST = 20
_LAST_FAILURES = 5
_IN_DOUBT = "may or may not have happened"

T = TypeVar("T")


def status_text(view: TaskView) -> str:
    """Where a task stands: what runs, what it waits for, what failed, what comes next."""
    state = view.state
    parts = [
        f"# Status of {code(state.id, 255)}",
        f"As of event {state.seq}, {time_text(state.updated_at)}:",
        "\n".join(_facts(view)),
        *_section("Runs", [call for call in view.calls if call.status == "running"], _running),
        *_section("Waits", list(_waits(view)), str),
        *_section("Said", _said(view), str),
        *_section("Failed", _failures(state), str),
        *_section("Next", _next(view), str),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(view: TaskView) -> Iterable[str]:
    state = view.state
    yield f"- task: {code(state.task)}"
    yield f"- status: {state.status}"
    yield f"- position: {view.position}"
    if state.fork is not None:
        yield f"- a fork of {code(state.fork.of, 255)}, {prose(str(left_at(state.fork)))}"
    if state.rewinds:
        yield f"- put back: {state.rewinds} times" if state.rewinds > 1 else "- put back: once"
    if state.plan:
        done = sum(item.status in ("done", "skipped") for item in state.plan)
        yield f"- plan: {done} of {len(state.plan)} items done or skipped"
    if state.user:
        yield f"- user: {code(state.user)}"
    if state.owner:
        yield f"- last driven by: {code(state.owner)}"
    if state.cancelling and state.status not in FINISHED:
        yield "- it is being cancelled"
    if state.because:
        yield f"- because: {prose(state.because)}"
    if isinstance(state.result, Raw):
        yield f"- result: {code(as_line(state.result, 300), 300)}"
    if state.failure is not None:
        yield f"- failure: {prose(state.failure.summary())}"


def _section(title: str, found: Sequence[T], line: Callable[[T], str]) -> list[str]:
    if not found:
        return []
    lines = [f"- {line(each)}" for each in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(f"- and {len(found) - _MOST:,} more")
    return [f"## {title}", "\n".join(lines)]


def _running(call: Call) -> str:
    attempt = f", attempt {len(call.attempts)}" if len(call.attempts) > 1 else ""
    since = call.attempts[-1].at if call.attempts else call.at
    doubt = f"; if nobody runs it any more, it {_IN_DOUBT}" if call.kind == "tool" else ""
    return f"{_name(call)} since {time_text(since)}{attempt}{doubt}"


def _waits(view: TaskView) -> Iterable[str]:
    quoted = shlex.quote(view.id)
    for call in view.questions:
        until = f", until {time_text(call.until)}" if call.until else ""
        how = code(f"holdfast answer {quoted} {shlex.quote(call.key)} JSON", 700)
        yield f"for a person{until}: {prose(call.why)} ({code(call.expects)}): {how}"
    over = view.status in FINISHED
    for call in view.calls:
        if call.status == "in_doubt":
            how = code(f"holdfast resolve {quoted} {shlex.quote(call.path)}", 700)
            yield f"for a person: {_name(call)} {_IN_DOUBT}: {prose(call.why)}: {how}"
        elif over:
            continue
        elif call.status in ("backing_off", "retrying"):
            when = f"at {time_text(call.retry_at)}" if call.retry_at else "at once"
            why = f", after {prose(call.failure.summary())}" if call.failure else ""
            yield f"to try {_name(call)} again {when}{why}"
        elif call.status == "waiting" and call.kind == "sleep" and call.until:
            yield f"for the time: {_name(call)} until {time_text(call.until)}"
        elif call.status == "waiting" and call.kind == "child":
            yield f"for task {code(call.child, 255)}: {_name(call)}"


def _said(view: TaskView) -> list[str]:
    found = []
    for scope, said in view.progress:
        of = f" of {said.total:g}" if said.total is not None else ""
        done = f" {said.done:g}{of}" if said.done is not None else ""
        who = f"{code(scope)}:" if scope else "the task:"
        found.append(f"{who}{done} {prose(said.text)} ({time_text(said.at)})")
    return found[-_MOST:]


def _failures(state: State) -> list[str]:
    found = [
        (attempt.ended_at or attempt.at, call, attempt.number, attempt.failure)
        for call in state.calls.values()
        if call.failure is not None
        for attempt in call.attempts
        if attempt.failure is not None
    ]
    found.sort(key=lambda each: each[0])
    return [
        f"{_name(call)}, attempt {number}, {time_text(at)}: {prose(failure.summary())}"
        for at, call, number, failure in found[-_LAST_FAILURES:]
    ]


def _next(view: TaskView) -> list[str]:
    state, quoted = view.state, shlex.quote(view.id)
    if state.status == "completed":
        return ["nothing: the task is completed"]
    if state.status == "cancelled":
        return ["nothing: the task is cancelled"]
    if state.status == "failed":
        return [f"nothing, unless it is tried again: {code(f'holdfast retry {quoted}', 700)}"]
    if state.status == "paused":
        return [f"nothing, until it goes on: {code(f'holdfast resume {quoted}', 700)}"]
    doing = [item for item in state.plan if item.status == "doing"]
    items = [*doing, *ready(state.plan)]
    return [f"item {code(item.id, 60)}: {prose(item.text)}" for item in items] or [
        "what its code does after that"
    ]


def _name(call: Call) -> str:
    return f"{code(call.path)} {code(call.name)}"
