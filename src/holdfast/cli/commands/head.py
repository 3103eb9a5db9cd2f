"""How `holdfast show` begins: what the task is, how it stands, and what it needs to go on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from rich.text import Text

from holdfast.cli.hints import our_command, resume_command
from holdfast.cli.layers import LayerPage
from holdfast.cli.opening import read_task
from holdfast.cli.output import print_table, status_text
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, clock, count, plain, short, shown
from holdfast.core.events import OnCancel
from holdfast.core.state import FINISHED, HALTED, Call, State
from holdfast.engines.routing import driven_by
from holdfast.errors import StoreError, TaskNotFound
from holdfast.log.places import left_at, newest_rewind, rewound_to
from holdfast.stores.port import Store
from holdfast.views.needs import DoubtView, QuestionView, is_worked_off
from holdfast.views.task import TaskView
from holdfast.views.words import raised_at

# What `holdfast show` tells besides calls: how far a task says it is, and its children.


class ChildView(Struct, frozen=True):
    """A task that this one started."""

    path: str
    id: str
    type: str
    status: str
    """The facts of its own log, or why they can't be told."""
    on_cancel: OnCancel


class ProgressView(Struct, frozen=True):
    """How far a strand of the task last said it is."""

    path: str
    """Of the call or branch that said so; '' for the task itself."""
    attempt: int | None
    text: str
    done: float | None
    total: float | None
    at: datetime


def children_of(store: Store, view: TaskView) -> list[ChildView]:
    """The tasks that this one started, and how they stand."""
    return [
        ChildView(call.path, call.child, call.name, _status(store, call), call.on_cancel)
        for call in view.children
    ]


def _status(store: Store, call: Call) -> str:
    try:
        return read_task(store, call.child).status
    except TaskNotFound:
        return "gone"
    except StoreError:
        return "unreadable"


def print_children(page: LayerPage, children: list[ChildView]) -> None:
    """The tasks that this one started."""
    page.heading("Children", "tasks that this one started")
    rows = [
        (plain(each.path), plain(each.id), plain(each.type), status_text(each.status))
        for each in page.newest(children)
    ]
    print_table(page.out, ("PATH", "ID", "TYPE", "STATUS"), rows, cut_last=False)


def progress_of(view: TaskView) -> list[ProgressView]:
    """How far each strand is. Of a call that was tried again, only its last attempt counts."""
    newest: dict[str, ProgressView] = {}
    for scope, said in view.progress:
        path, number = _strand(scope)
        made = ProgressView(path, number, said.text, said.done, said.total, said.at)
        before = newest.get(path)
        if before is None or (before.attempt or 0) <= (number or 0):
            newest[path] = made
    return list(newest.values())


def _strand(scope: str) -> tuple[str, int | None]:
    """Its author: `6.1#2` is the second attempt of the call 6.1."""
    path, _, attempt = scope.rpartition("#")
    return (path, int(attempt)) if path and attempt.isdecimal() else (scope, None)


def print_progress(page: LayerPage, found: list[ProgressView]) -> None:
    """How far each strand said it is, and when."""
    page.heading("Progress", "what it last said")
    for each in page.newest(found):
        who = f"{plain(each.path)}  " if each.path else ""
        when = f"  ({ago(each.at, datetime.now(UTC))})"
        page.line((who, "cyan"), plain(_how_far(each)), (when, "dim"))


def _how_far(each: ProgressView) -> str:
    parts = [each.text] if each.text else []
    if each.done is not None and each.total:
        parts.append(f"{each.done:g} of {each.total:g} ({each.done / each.total:.0%})")
    elif each.done is not None:
        parts.append(f"{each.done:g}")
    return " ".join(parts)


MOST_FORKS = 8
"""So many are named."""


class SeenNow(Struct, frozen=True):
    """The facts of this moment that the log does not have."""

    at_work: str | None
    doubts: list[DoubtView]
    questions: list[QuestionView]
    children: list[ChildView]
    progress: list[ProgressView]
    forks: list[str]


def print_title(page: LayerPage, view: TaskView) -> None:
    """Which task it is, and how it stands."""
    page.line((plain(view.id), "bold"), "  ", status_text(view.status), indent=0)


def print_head(page: LayerPage, view: TaskView, seen: SeenNow) -> None:
    """Its kind, its age and its owner."""
    state, now = view.state, datetime.now(UTC)
    facts = {
        "task": f"{view.type}({short(view.input, 200)})",
        "started": f"{clock(state.created_at)} ({ago(state.created_at, now)})",
        "changed": f"{clock(state.updated_at)} ({ago(state.updated_at, now)}), "
        f"{count(view.seq, 'event')}",
        "deadline": f"{clock(state.until)} ({ago(state.until, now)})" if state.until else "",
        "checkpoint": f"number {state.checkpoints:,}" if state.checkpoints else "",
        "fork of": _fork(state),
        "forks": _forks(seen.forks),
        "rewound": _rewinds(state),
        "parent": ", call ".join(each for each in (state.parent, state.parent_path) if each),
        "engine": state.driver,
        "last driven by": "" if seen.at_work or is_worked_off(view) else state.owner,
        "user": state.user,
        "session": state.session,
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(state.labels.items())),
    }
    for name, fact in facts.items():
        if fact:
            page.line((f"{name:14} ", "dim"), plain(fact))


def _fork(state: State) -> str:
    fork = state.fork
    if fork is None:
        return ""
    changed = [*fork.stubs, *fork.arguments]
    other = f", other answers or arguments for {', '.join(sorted(changed))}" if changed else ""
    because = f", because {fork.because}" if fork.because else ""
    where = f"{fork.of}, {left_at(fork)} (event {fork.seq})"
    return f"{where}, effects={fork.effects}{other}, by {fork.by}{because}"


def _forks(forks: list[str]) -> str:
    more = ", …: see `holdfast ls --origin`" if len(forks) > MOST_FORKS else ""
    return ", ".join(forks[:MOST_FORKS]) + more


def _rewinds(state: State) -> str:
    newest = newest_rewind(state)
    if newest is None:
        return ""
    because = f", because {newest.because}" if newest.because else ""
    often = f"{count(state.rewinds, 'time')}, last " if state.rewinds > 1 else ""
    where = f"to {rewound_to(newest)} (event {newest.to})"
    return f"{often}{where}, effects={newest.effects}, by {newest.by}{because}"


def print_outlook(page: LayerPage, given: Given, view: TaskView, seen: SeenNow) -> None:
    """The headline: how did it end, or what does it need to go on?"""
    if view.status == "completed":
        long = _is_long(view.result)
        page.line((f"{'result':14} ", "dim"), "" if long else short(view.result))
        if long:
            page.block(shown(view.result))
    elif view.status == "cancelled":
        if view.state.because:
            page.line((f"{'cancelled':14} ", "dim"), plain(_because(view)))
    elif view.status == "failed" and view.failure is not None:
        page.line((f"{'failed':14} ", "dim"), (plain(view.failure.summary()), "red"))
        if where := raised_at(view.failure):
            page.line((f"{'at':14} ", "dim"), plain(where))
        if not view.state.compensated:  # what was undone can't be gone on from
            retry = resume_command(given, view.state, "retry")
            page.line(("to try it again: ", "dim"), plain(retry))
    elif view.status not in FINISHED:
        _print_needs(page, given, view, seen)


def _print_needs(page: LayerPage, given: Given, view: TaskView, seen: SeenNow) -> None:
    for call in view.calls:
        if call.kind == "sleep" and call.status == "waiting" and call.until:
            until = f"{clock(call.until)} ({ago(call.until, datetime.now(UTC))})"
            page.line(("sleeps until ", "dim"), until)
        elif call.kind == "limit" and call.status == "waiting" and call.until:
            until = f"{clock(call.until)} ({ago(call.until, datetime.now(UTC))})"
            page.line((f"waits for the limit {plain(call.name)} until ", "dim"), until)
    if view.status == "awaiting_user":
        parts = {"In doubt": seen.doubts, "Questions": seen.questions}
        where = " and ".join(name for name, there in parts.items() if there)
        page.line(Text(f"it waits for a person: see below, under {where}", "bold yellow"))
    _print_told(page, view)
    if seen.at_work:
        page.line(("at work: ", "dim"), (plain(seen.at_work), "cyan"))
        return
    if driver := driven_by(view.state):
        page.line(("driven by ", "dim"), (plain(driver), "cyan"))
        return
    page.line(Text("nobody is at work on it", "bold yellow"))
    if view.status == "awaiting_user" and not view.state.cancelling:
        return
    to_do = "to end it" if view.state.cancelling or view.state.ending else "to go on"
    resume = resume_command(given, view.state)
    page.line((f"{to_do}: ", "dim"), plain(resume))
    if view.status in HALTED:
        worker = our_command(given, "resume", view.id, options=("--worker",))
        page.line(("or, left to a worker: ", "dim"), plain(worker))


def _print_told(page: LayerPage, view: TaskView) -> None:
    """Orders from outside, and what the task does because of them."""
    state = view.state
    if state.ending:
        what = f"what it did is being undone; then it is {state.ending}"
        page.line(Text(what, "bold yellow"), plain(_because(view, ", ")))
    elif state.cancelling:
        page.line(Text("it is being cancelled", "bold yellow"), plain(_because(view, ", ")))
    elif view.status == "paused":
        page.line(Text("it is paused", "bold yellow"), plain(_because(view, ", ")))
    elif view.status == "stuck":
        page.line(Text("it is stuck", "bold red"), plain(_because(view, ", ")))
    elif state.hindrance is not None:
        since = ago(state.hindrance.at, datetime.now(UTC))
        page.line(
            Text("it could not go on", "bold yellow"),
            plain(
                f" ({since}), by "
                f"{state.hindrance.by}: {state.hindrance.error}: {state.hindrance.why}"
            ),
        )
    elif state.parked and state.wake_at is not None:
        until = f"{clock(state.wake_at)} ({ago(state.wake_at, datetime.now(UTC))})"
        page.line(("released until ", "dim"), until, (": then a worker goes on with it", "dim"))


def ended_badly(view: TaskView) -> bool:
    """Whether what it did is undone, or may be."""
    return view.status in ("failed", "cancelled") or bool(view.state.ending)


def print_compensate(page: LayerPage, given: Given, view: TaskView) -> None:
    """How to undo what is left, if anything is."""
    if view.status in FINISHED and any(each.status != "undone" for each in view.compensation):
        command = our_command(given, "compensate", view.id, code=True)
        page.line(("to undo what is left: ", "dim"), plain(command))


def _because(view: TaskView, before: str = "") -> str:
    because = view.state.because
    return f"{before}because {because}" if because else ""


def _is_long(value: Any) -> bool:
    return len(short(value, 61)) > 60
