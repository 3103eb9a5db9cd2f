"""`CHANGELOG.md`: what each step of a task changed, from its log alone, the newest last.

What only read is left out: a change is a file, the plan, the mission, a decision, a call of a tool,
or something that became of the task itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from holdfast import events as e
from holdfast.events import AnyEvent
from holdfast.fold import advance
from holdfast.history import left_at, put_back_to
from holdfast.merging import told_changes
from holdfast.state import State
from holdfast.workspace.footers import time_text
from holdfast.workspace.markdown import code, prose
from holdfast.workspace.showing import as_line
from holdfast.workspace.summary import size_of

_MOST_LINES = 5000
_VALUE = 300


def changelog_text(events: Iterable[AnyEvent]) -> str:
    """What each step changed, under the day it did.

    >>> from holdfast import Holdfast, current, task
    >>> @task
    ... def tidy_up() -> None:
    ...     current().plan(["sweep"])
    ...     current().mark("1", "done")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(tidy_up, id="tidy-1")
    ...     text = changelog_text(hf.task("tidy-1").events())
    >>> [line.partition("Z ")[2] for line in text.splitlines() if line.startswith("- ")]
    ['the task was made', "plan: added 1: 'sweep'", 'plan: 1: pending, now done', \
'the task was completed']
    """
    lines: list[tuple[str, str]] = []
    state = State()
    for event in events:
        told = _TOLD.get(type(event))
        # Most look at what was before them.
        said = list(told(state, event)) if told else []
        advance(state, event)
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


def _mission(state: State, event: e.MissionSet) -> Iterator[str]:
    by = f" by {prose(event.by, 100)}" if event.by else ""
    yield f"mission set{by}: {code(as_line(event.text, _VALUE), _VALUE)}"


def _decided(state: State, event: e.Decided) -> Iterator[str]:
    because = f", because {prose(event.because)}" if event.because else ""
    yield f"decided {code(event.name)}: {code(as_line(event.choice, _VALUE), _VALUE)}{because}"


def _completed(state: State, event: e.Completed) -> Iterator[str]:
    call = state.calls.get(event.path)
    if call is not None and call.kind == "tool":
        result = code(as_line(event.result, _VALUE), _VALUE)
        yield f"{code(call.path)} {code(call.name)} was called: {result}"


def _failed(state: State, event: e.Failed) -> Iterator[str]:
    call = state.calls.get(event.path)
    if call is not None:
        why = f": {prose(call.failure.summary())}" if call.failure else ""
        yield f"{code(call.path)} {code(call.name)} failed{why}"


def _settled(state: State, event: e.Settled) -> Iterator[str]:
    call = state.calls.get(event.path)
    if call is not None and event.verdict == "happened":
        by = prose(event.by, 100)
        yield f"{code(call.path)} {code(call.name)} did happen, as {by} found out"


def _said(text: str) -> Callable[[State, Any], Iterator[str]]:
    def say(state: State, event: Any) -> Iterator[str]:
        because = getattr(event, "because", "")
        yield text + (f": {prose(because)}" if because else "")

    return say


def _errored(state: State, event: e.TaskErrored) -> Iterator[str]:
    yield f"the task failed: {prose(event.failure.summary())}"


def _created(state: State, event: e.TaskCreated) -> Iterator[str]:
    fork = event.fork
    if fork is None:
        yield "the task was made"
        return
    because = f": {prose(fork.because)}" if fork.because else ""
    where = prose(str(left_at(fork)))
    yield f"the task was made, as a fork of {code(fork.of, 255)}, {where}{because}"


def _rewound(state: State, event: e.Rewound) -> Iterator[str]:
    because = f": {prose(event.because)}" if event.because else ""
    yield f"the task was put back to {prose(str(put_back_to(event)))}{because}"


def _adopted(state: State, event: e.Adopted) -> Iterator[str]:
    if event.kind == "tool":
        outcome = event.failure.summary() if event.failure else as_line(event.result, _VALUE)
        what = f"{code(event.path)} {code(event.name)} was not called ({event.how})"
        yield f"{what}: {code(outcome, _VALUE)}"


_TOLD: dict[type, Callable[[State, Any], Iterator[str]]] = {
    e.TaskCreated: _created,
    e.Adopted: _adopted,
    e.Rewound: _rewound,
    e.FileKept: _kept,
    e.FileRemoved: _removed,
    e.Planned: _planned,
    e.PlanProgressed: _planned,
    e.MissionSet: _mission,
    e.Decided: _decided,
    e.Completed: _completed,
    e.Failed: _failed,
    e.Settled: _settled,
    e.PauseRequested: _said("the task was paused"),
    e.TaskContinued: _said("the task goes on"),
    e.TaskRetried: _said("the task is tried again"),
    e.TaskStopped: _said("the task was cancelled"),
    e.TaskCompleted: _said("the task was completed"),
    e.TaskErrored: _errored,
}
