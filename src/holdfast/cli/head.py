"""How `holdfast show` begins: what the task is, how it stands, and what it needs to go on."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import Struct
from rich.text import Text

from holdfast.cli.answer import QuestionView
from holdfast.cli.doubt import DoubtView
from holdfast.cli.hints import our_command
from holdfast.cli.layers import Page
from holdfast.cli.output import status_text
from holdfast.cli.settings import Given
from holdfast.cli.standing import ChildView, ProgressView
from holdfast.cli.text import ago, clock, count, plain, short, shown
from holdfast.engines.elsewhere import driven_by
from holdfast.history import left_at, newest_rewind, put_back_to
from holdfast.state import FINISHED, State
from holdfast.views import TaskView

MOST_FORKS = 8
"""So many are named."""


class Seen(Struct, frozen=True):
    """What matters now besides what the log says."""

    at_work: str | None
    doubts: list[DoubtView]
    questions: list[QuestionView]
    children: list[ChildView]
    progress: list[ProgressView]
    forks: list[str]


def print_title(page: Page, view: TaskView) -> None:
    """Which task it is, and how it stands."""
    page.line((plain(view.id), "bold"), "  ", status_text(view.status), indent=0)


def print_head(page: Page, view: TaskView, seen: Seen) -> None:
    """What it is, since when, and whose."""
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
        "put back": _rewinds(state),
        "parent": f"{state.parent}, call {state.parent_path}" if state.parent else "",
        "engine": state.driver,
        "last driven by": "" if seen.at_work or not state.owner else state.owner,
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
    where = f"to {put_back_to(newest)} (event {newest.to})"
    return f"{often}{where}, effects={newest.effects}, by {newest.by}{because}"


def print_outlook(page: Page, given: Given, view: TaskView, seen: Seen) -> None:
    """What the reader most wants to know: how did it end, or what does it need to go on?"""
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
        if not view.state.compensated:  # what was undone can't be gone on from
            retry = our_command(given, "retry", view.id, code=True)
            page.line(("to try it again: ", "dim"), plain(retry))
    elif view.status not in FINISHED:
        _print_needs(page, given, view, seen)


def _print_needs(page: Page, given: Given, view: TaskView, seen: Seen) -> None:
    for call in view.calls:
        if call.kind == "sleep" and call.status == "waiting" and call.until:
            until = f"{clock(call.until)} ({ago(call.until, datetime.now(UTC))})"
            page.line(("sleeps until ", "dim"), until)
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
    resume = our_command(given, "resume", view.id, code=True)
    page.line((f"{to_do}: ", "dim"), plain(resume))
    if view.status == "paused":
        worker = our_command(given, "resume", view.id, options=("--worker",))
        page.line(("or, left to a worker: ", "dim"), plain(worker))


def _print_told(page: Page, view: TaskView) -> None:
    """What it was told from outside, and what it does because of that."""
    state = view.state
    if state.ending:
        what = f"what it did is being undone; then it is {state.ending}"
        page.line(Text(what, "bold yellow"), plain(_because(view, ", ")))
    elif state.cancelling:
        page.line(Text("it is being cancelled", "bold yellow"), plain(_because(view, ", ")))
    elif view.status == "paused":
        page.line(Text("it is paused", "bold yellow"), plain(_because(view, ", ")))
    elif state.parked and state.wake_at is not None:
        until = f"{clock(state.wake_at)} ({ago(state.wake_at, datetime.now(UTC))})"
        page.line(("let go of until ", "dim"), until, (": then a worker goes on with it", "dim"))


def ended_badly(view: TaskView) -> bool:
    """Whether what it did is undone, or may be."""
    return view.status in ("failed", "cancelled") or bool(view.state.ending)


def print_compensate(page: Page, given: Given, view: TaskView) -> None:
    """How to undo what is left, if anything is."""
    if view.status in FINISHED and any(each.status != "undone" for each in view.compensation):
        command = our_command(given, "compensate", view.id, code=True)
        page.line(("to undo what is left: ", "dim"), plain(command))


def _because(view: TaskView, before: str = "") -> str:
    because = view.state.because
    return f"{before}because {because}" if because else ""


def _is_long(value: Any) -> bool:
    return len(short(value, 61)) > 60
