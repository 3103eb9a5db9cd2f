"""`SUMMARY.md`: all that somebody needs to go on with a task, if they have only that and its plan.

Made from the log alone, without a model and without a clock, so the same log gives the same page.
It quotes texts of others from the log, so that they can't pass for ours.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Raw

from holdfast.core.decoding import Illegible, decode
from holdfast.core.plan import PlanItem, ready
from holdfast.core.state import FINISHED, Call
from holdfast.history.known import Choice, FailureContext
from holdfast.views.markdown import block, code, prose
from holdfast.views.task import TaskView
from holdfast.workspace.pages import as_line, as_text, plan_in_words, time_text

_MOST = 30
_MOST_FAILURES = 10
_VALUE = 600


def summary_text(view: TaskView, *, notes: Iterable[str] = ()) -> str:
    """Where a task stands, what was decided and why, what failed, what is next, and its files.

    `notes` are the words of the person who hands it over, and come first.

    >>> from holdfast import Holdfast, current, decide, task
    >>> @task
    ... def sail_on() -> None:
    ...     current().plan(["rig", "sail"])
    ...     current().mark("1", "done", because="all ropes are new")
    ...     decide("course", "north", because="the wind")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(sail_on, id="sail_on-1")
    ...     print(summary_text(hf.task("sail_on-1")).partition("## Done")[2])
    <BLANKLINE>
    <BLANKLINE>
    - 1\\. rig: all ropes are new
    <BLANKLINE>
    ## Decided
    <BLANKLINE>
    - `course`: `"north"`, because the wind
    <BLANKLINE>
    ## Next
    <BLANKLINE>
    - nothing: the task is completed
    <BLANKLINE>
    """
    sections: list[tuple[str, Iterable[str]]] = [
        ("Where things stand", _standing(view)),
        ("Done", _done(view)),
        ("Found out", _found_out(view)),
        ("Decided", map(_decided, view.decisions)),
        ("Failed", _failed(view)),
        ("Waits for somebody", _waits(view)),
        ("Next", _next(view)),
        ("Later", _later(view)),
        ("Removed from the plan", _removed(view)),
        ("Files", _files(view)),
    ]
    parts = [f"# Summary of {code(view.id, 255)}", *(prose(note, 4000) for note in notes)]
    parts += ["## Mission", _mission(view)]
    for title, lines in sections:
        if found := list(lines):
            parts += [f"## {title}", "\n".join(f"- {line}" for line in _newest(found))]
    return "\n\n".join(parts) + "\n"


def _newest(lines: list[str]) -> list[str]:
    if len(lines) <= _MOST:
        return lines
    return [f"{len(lines) - _MOST:,} older ones: see the log", *lines[-_MOST:]]


def _mission(view: TaskView) -> str:
    state = view.state
    if isinstance(state.mission, Raw):
        said = view.value(state.mission)
        return block(said if isinstance(said, str) else as_text(state.mission), most=20_000)
    told = f"Nobody said one. {code(state.task)} was started with"
    given = view.input
    if isinstance(given, dict) and len(given) == 1:
        (name, value), *_ = given.items()
        if isinstance(value, str):  # the goal of an agent: as it was said
            return f"{told} {code(name)}:\n\n{block(value, most=20_000)}"
    return f"{told}:\n\n{block(as_text(state.args), 'json')}"


def _standing(view: TaskView) -> Iterator[str]:
    state = view.state
    yield f"as of event {state.seq}, {time_text(state.updated_at)}: {state.status}, {view.position}"
    if state.plan:
        yield f"the plan: {plan_in_words(view)}"
    if state.session:
        talk = code(f"holdfast session {shlex.quote(state.session)}", 700)
        yield f"the conversation is in session {code(state.session, 255)}: {talk}"
    if state.because:
        yield f"because {prose(state.because, 1000)}"
    if isinstance(state.result, Raw):
        yield f"its result: {code(as_line(state.result, _VALUE), _VALUE)}"
    if state.failure is not None:
        yield f"it failed: {prose(state.failure.summary(), 1000)}"


def _done(view: TaskView) -> Iterator[str]:
    why = {version.marked: version.because for version in view.plans if version.marked}
    for item in view.plan:
        if item.status in ("done", "skipped"):
            mark = " (skipped)" if item.status == "skipped" else ""
            yield f"{_item(item)}{mark}" + (
                f": {prose(why[item.id], 1000)}" if why.get(item.id) else ""
            )


def _found_out(view: TaskView) -> Iterator[str]:
    for call in view.calls:
        if call.status == "completed" and call.kind in ("step", "tool", "question", "child"):
            name = call.key if call.kind == "question" else call.name
            if (
                call.kind == "step"
                and (said := _said_by_model(view.value(call.result))) is not None
            ):
                if said:  # one that only calls tools is told by those calls
                    yield f"{code(call.path)} {code(name)} said: {prose(said, _VALUE)}"
                continue
            yield f"{code(call.path)} {code(name)}: {code(as_line(call.result, _VALUE), _VALUE)}"
    for note in view.notes:
        data = f": {code(_plain(note.data), _VALUE)}" if note.data is not None else ""
        yield f"noted {prose(note.text, 1000)}{data}"


def _said_by_model(result: Any) -> str | None:
    """The words of a model's reply; None if a result is none."""
    if not isinstance(result, dict) or not {"message", "usage", "stop"} <= result.keys():
        return None
    message = result["message"]
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    content = message.get("content")
    if isinstance(content, str):
        return content.strip()
    parts = content if isinstance(content, list) else []
    texts = [str(part.get("text") or "") for part in parts if isinstance(part, dict)]
    return "\n".join(text for text in texts if text).strip()


def _decided(choice: Choice) -> str:
    because = f", because {prose(choice.because, 1000)}" if choice.because else ""
    gone = f" (no longer: see {code(choice.superseded_by)})" if choice.superseded_by else ""
    return f"{code(choice.name)}: {code(_plain(choice.choice), _VALUE)}{because}{gone}"


def _failed(view: TaskView) -> Iterator[str]:
    why = {version.marked: version.because for version in view.plans if version.marked}
    for item in view.plan:
        if item.status == "failed":
            yield f"{_item(item)}: {prose(why.get(item.id) or 'nobody said why', 1000)}"
    yield from map(_failure, view.failures[-_MOST_FAILURES:])


def _failure(each: FailureContext) -> str:
    what = (
        f"{code(each.path)} {code(each.name)}, attempt {each.attempt}" if each.path else "the task"
    )
    return f"{what}, {time_text(each.at)}: {prose(each.failure.summary(), 1000)}"


def _waits(view: TaskView) -> Iterator[str]:
    if view.status in FINISHED:
        return
    task = shlex.quote(view.id)
    for call in view.questions:
        how = code(f"holdfast answer {task} {shlex.quote(call.key)} ANSWER", 700)
        yield f"a person is asked: {prose(call.why, 1000)} ({how})"
    for call in view.doubts:
        how = code(f"holdfast resolve {task} {shlex.quote(call.path)}", 700)
        yield f"{_call(call)} may or may not have happened ({how})"


def _next(view: TaskView) -> Iterator[str]:
    ends = {
        "completed": "nothing: the task is completed",
        "cancelled": "nothing: the task is cancelled",
        "failed": "nothing, until it is tried again: "
        + code(f"holdfast retry {shlex.quote(view.id)}", 700),
    }
    if view.status in ends:
        yield ends[view.status]
        return
    for item in view.plan:
        if item.status == "doing":
            yield f"{_item(item)} (begun)"
    for item in ready(view.plan):
        yield _item(item)
    for call in view.calls:
        if call.status in ("running", "backing_off", "retrying"):
            yield f"{_call(call)} was begun and has not ended"


def _later(view: TaskView) -> Iterator[str]:
    now = {item.id for item in ready(view.plan)}
    for item in view.plan:
        if item.status == "pending" and item.id not in now:
            yield f"{_item(item)}, after {', '.join(prose(id, 60) for id in item.after)}"


def _removed(view: TaskView) -> Iterator[str]:
    """Items that were planned once and are no more: people take items out, and nothing of them is
    lost."""
    last = {item.id: item for version in view.plans for item in version.items}
    there = {item.id for item in view.plan}
    for id, item in last.items():
        if id not in there:
            yield f"{_item(item)}: it was {item.status}"


def _files(view: TaskView) -> Iterator[str]:
    for name, kept in sorted(view.state.files.items()):
        size = size_of(kept.file)
        bytes_ = "" if size is None else f", {size:,} bytes"
        yield f"{code(name, 500)}{bytes_}, {time_text(kept.at)}"


def size_of(file: Raw) -> int | None:
    """How large a file of a task is, if its record says so."""
    try:
        return decode(file, _Sized).size_bytes
    except Illegible:
        return None


class _Sized(msgspec.Struct):
    size_bytes: int


def _item(item: PlanItem) -> str:
    return f"{prose(item.id, 60)}\\. {prose(item.text, 1000)}"


def _call(call: Call) -> str:
    return f"{code(call.path)} {code(call.name)}"


def _plain(value: Any) -> str:
    return msgspec.json.encode(value).decode(errors="replace")
