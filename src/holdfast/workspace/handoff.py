"""Handing a task over: `SUMMARY.md` and `CHANGELOG.md`, for the next one who goes on with it.

They are written on demand (`holdfast handoff`, `handoff`), when a task is released, and when the
context of an agent nears its limit (`here`). A new agent that reads only the summary and the plan
can go on. They are made from the log. A model may write the summary, where one is given; what the
log says stands below its words, because a model may leave out what matters.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from holdfast.api.app import Holdfast
from holdfast.core import events as e
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import AnyEvent
from holdfast.core.fold import advance
from holdfast.core.plan import PlanItem, ready, told_changes
from holdfast.core.scope import inside
from holdfast.core.state import FINISHED, Call, State
from holdfast.engines.run import Run
from holdfast.errors import BadInput
from holdfast.history.known import Choice, FailureContext
from holdfast.views.task import TaskView, view_task
from holdfast.views.words import block, code, prose, words_of
from holdfast.workspace.pages import (
    as_line,
    as_text,
    is_untouched,
    plan_in_words,
    time_text,
    with_footer,
)

if TYPE_CHECKING:
    from holdfast.agent.contexts import Context
    from holdfast.agent.model import Model


# `CHANGELOG.md`: what each step of a task changed, from its log alone, the newest last.
#
# Calls that only read are left out: a change is a file, the plan, the mission, a decision, a call
# of a tool, or something that became of the task itself.


_MOST_LINES = 5000
_VALUE = 300


def changelog_text(events: Iterable[AnyEvent]) -> str:
    """The changes of each step, under their day.

    >>> from holdfast import Holdfast, current, task
    >>> @task
    ... def tidy_up() -> None:
    ...     current().plan(["sweep"])
    ...     current().mark("1", "done")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(tidy_up, id="tidy-1")
    ...     text = changelog_text(hf.task("tidy-1").events())
    >>> [line.partition("Z ")[2] for line in text.splitlines() if line.startswith("- ")]
    ['created: tidy_up `{}`', "plan: added 1: 'sweep'", 'plan: 1: pending, now done', \
'task completed: → `null`']
    """
    lines: list[tuple[str, str]] = []
    state = State()
    for event in events:
        changed = _CHANGED.get(type(event))
        said = list(changed(state, event)) if changed else []
        advance(state, event)
        said += [] if changed else _told(state, event)
        lines += [(time_text(event.at), line) for line in said]
    cut = max(len(lines) - _MOST_LINES, 0)
    parts = [f"# Changelog of {code(state.id, 255)}"]
    if cut:
        parts.append(f"{cut:,} older changes are left out: see the log.")
    for day, group in groupby(lines[cut:], key=lambda line: line[0][:10]):
        parts += [f"## {day}", "\n".join(f"- {at[11:]} {line}" for at, line in group)]
    return "\n\n".join(parts) + "\n"


def _kept(state: State, event: e.FileKept) -> Iterator[str]:
    before = state.files.get(event.name)
    size, was = size_of(event.file), size_of(before.file) if before else None
    now = "" if size is None else f", {size:,} bytes"
    change = f"changed {code(event.name, 500)}" if before else f"made {code(event.name, 500)}"
    yield f"{_who(state, event)}{change}{now}" + ("" if was is None else f" (was {was:,})")


def _removed(state: State, event: e.FileRemoved) -> Iterator[str]:
    before = state.files.get(event.name)
    size = size_of(before.file) if before else None
    yield f"{_who(state, event)}removed {code(event.name, 500)}" + (
        "" if size is None else f", {size:,} bytes; its versions are kept"
    )


def _who(state: State, event: e.FileKept | e.FileRemoved) -> str:
    call = state.calls.get(event.path)
    if call is not None:
        return f"{code(call.path)} {code(call.name)} "
    return f"{prose(event.by, 100)} " if event.by else ""


def _planned(state: State, event: e.Planned | e.PlanProgressed) -> Iterator[str]:
    after = State(plan=state.plan)
    advance(after, event)
    by = f", by {prose(event.by, 100)}" if isinstance(event, e.Planned) and event.by else ""
    because = event.because if isinstance(event, e.PlanProgressed) else ""
    why = f": {prose(because)}" if because else ""
    for change in told_changes(state.plan, after.plan):
        yield f"plan{by}: {prose(change)}{why}"


_CHANGED: dict[type, Callable[[State, Any], Iterator[str]]] = {
    e.FileKept: _kept,
    e.FileRemoved: _removed,
    e.Planned: _planned,
    e.PlanProgressed: _planned,
}
"""Events that are told by what they change: so each is given the state before it."""

_OF_INTEREST = (
    *(e.TaskCreated, e.Rewound, e.MissionSet, e.Decided, e.Failed, e.Settled),
    *(e.PauseRequested, e.TaskContinued, e.TaskRetried),
    *(e.TaskStopped, e.TaskCompleted, e.TaskErrored),
)
"""Others that are told, in their words; and of tools, that they were called."""


def _told(state: State, event: AnyEvent) -> Iterator[str]:
    """An event in words. `state` is that after it."""
    call = state.calls.get(getattr(event, "path", ""))
    is_tool = call is not None and call.kind == "tool"
    if not isinstance(event, _OF_INTEREST) and not (
        is_tool and isinstance(event, e.Completed | e.Adopted)
    ):
        return
    said = words_of(event, state)
    about = f"{code(call.path)} {code(call.name)} " if call is not None else ""
    sentence = said.sentence(_value, time_text, prose)
    yield f"{about}{said.what}" + (f": {sentence}" if sentence else "")


def _value(raw: Raw) -> str:
    return code(as_line(raw, _VALUE), _VALUE)


__all__ = ["CHANGELOG", "SUMMARY", "changelog_text", "handoff", "here", "nears", "summary_text"]

SUMMARY, CHANGELOG = "SUMMARY.md", "CHANGELOG.md"

HANDING_OVER = (
    "You hand a task over to somebody who has nothing but your summary and the plan. Say where "
    "things stand, what was decided and why, what failed, and what is next. Keep names, numbers "
    "and ids exactly. Write only the summary, in Markdown."
)
_MOST_SHOWN = 60_000
"""So many characters of the changelog a model is shown: the newest."""


def handoff(
    hf: Holdfast, id: str, folder: str | os.PathLike[str], *, model: Model | None = None
) -> list[Path]:
    """Write `SUMMARY.md` and `CHANGELOG.md` of a task into a folder; returns their paths.

    A version of them that somebody edited is kept beside the new one. If the model fails, or says
    nothing, the summary is what the log says, and why.

    >>> import tempfile
    >>> from holdfast import task
    >>> @task
    ... def hand_it_on() -> str:
    ...     return "done"
    >>> with Holdfast("memory://") as hf, tempfile.TemporaryDirectory() as folder:
    ...     _ = hf.run(hand_it_on, id="hand-1")
    ...     [path.name for path in handoff(hf, "hand-1", folder)]
    ['SUMMARY.md', 'CHANGELOG.md']
    """
    return written(hf.task(id), Path(folder), model)


def here(folder: str | os.PathLike[str]) -> list[Path]:
    """The same inside of a task, of itself: before it is released, or forgets what it knew.

    `hf.replay` and `holdfast check` run the task's code, too, and write nothing.

    >>> import tempfile
    >>> from holdfast import task
    >>> @task
    ... def hand_over_itself() -> list[str]:
    ...     with tempfile.TemporaryDirectory() as folder:
    ...         return [path.name for path in here(folder)]
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(hand_over_itself, id="hand-2")
    ['SUMMARY.md', 'CHANGELOG.md']
    """
    scope = inside("handoff.here()")
    run: Run = scope.run
    if not run.driver.acts and scope.call is None:
        return [Path(folder, name) for name in (SUMMARY, CHANGELOG)]
    # Read anew, because other branches go on changing the state that the task is driven by.
    return written(view_task(run.log.store, run.task_id), Path(folder))


def nears(context: Context, share: float = 0.8) -> bool:
    """Whether a context has come near its limit: it takes that share of its budget, or more.

    >>> from holdfast.agent.contexts import Context
    >>> nears(Context("chat", 1, (), tokens=7, budget=10, digest="")), \\
    ...     nears(Context("chat", 1, (), tokens=8, budget=10, digest=""))
    (False, True)
    """
    if not 0 < share <= 1:
        raise BadInput(f"nears(share={share!r:.40}) is a share of the budget: above 0, at most 1")
    return context.tokens >= share * context.budget or context.left_out.messages > 0


def written(view: TaskView, folder: Path, model: Model | None = None) -> list[Path]:
    """Write both, of a task as it is seen."""
    changes = changelog_text(event for event in view.events() if event.seq <= view.seq)
    summary = summary_text(view) if model is None else _by_model(model, view, changes)
    state = view.state
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return [
        _replace(folder / name, with_footer(text, state.seq, state.updated_at))
        for name, text in ((SUMMARY, summary), (CHANGELOG, changes))
    ]


def _by_model(model: Model, view: TaskView, changes: str) -> str:
    """The text that a model makes of the log, and below it the facts in the log."""
    try:
        said = _asked(model, f"{summary_text(view)}\n\n{changes[-_MOST_SHOWN:]}")
    except Exception as error:  # handing over must not depend on a model that answers
        why = f"{type(error).__name__}: {error}".partition("\n")[0]
        return summary_text(
            view, notes=[f"Written from the log alone, for the model failed: {why}"]
        )
    if not said:
        return summary_text(view, notes=["Written from the log alone, for the model said nothing."])
    return f"{said}\n\n---\n\n{summary_text(view, notes=['What the log says:'])}"


def _asked(model: Model, text: str) -> str:
    from holdfast.agent.model import Reply, Request
    from holdfast.log.messages import system, user

    reply: Any = model(Request((system(HANDING_OVER), user(text))))
    if inspect.isawaitable(reply):
        reply = asyncio.run(_awaited(reply))
    if not isinstance(reply, Reply):
        raise TypeError(f"it returned {reply!r:.60}, which is no Reply")
    return reply.message.text.strip()


async def _awaited(reply: Any) -> Any:
    return await reply


def _replace(path: Path, data: bytes) -> Path:
    """Put a page in its place, at once. A version that a person edited is kept aside."""
    with suppress(FileNotFoundError):
        before = path.read_bytes()
        if before == data:
            return path
        if not is_untouched(path.name, before):
            _kept_aside(path)
    temporary = path.with_name(f".{os.urandom(6).hex()}")
    try:
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _kept_aside(path: Path) -> None:
    number = 1
    while True:
        try:
            path.with_name(f"{path.name}.edited-{number}").hardlink_to(path)
        except FileExistsError:
            number += 1
        else:
            return


# `SUMMARY.md`: all that somebody needs to go on with a task, if they have only that and its plan.
#
# Made from the log alone, without a model and without a clock, so the same log gives the same page.
# It quotes texts of others from the log, so that they can't pass for ours.

_MOST = 30
_MOST_FAILURES = 10
_CUT = 600


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
        ("Removed from the plan", _removed_items(view)),
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
        yield f"its result: {code(as_line(state.result, _CUT), _CUT)}"
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
                    yield f"{code(call.path)} {code(name)} said: {prose(said, _CUT)}"
                continue
            yield f"{code(call.path)} {code(name)}: {code(as_line(call.result, _CUT), _CUT)}"
    for note in view.notes:
        data = f": {code(_plain(note.data), _CUT)}" if note.data is not None else ""
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
    return f"{code(choice.name)}: {code(_plain(choice.choice), _CUT)}{because}{gone}"


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


def _removed_items(view: TaskView) -> Iterator[str]:
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
