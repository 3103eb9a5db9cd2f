"""`holdfast show`: one task, and everything its log says of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from holdfast.cli import layers
from holdfast.cli.doubt import DoubtView, doubts_of, print_doubt
from holdfast.cli.exits import Exit
from holdfast.cli.layers import Page
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import json_option, pass_given, store_options, task_argument
from holdfast.cli.output import console, our_command, print_json, status_text
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, clock, count, plain, short, shown
from holdfast.cli.timeline import print_timeline, tree, walk
from holdfast.fold import Call
from holdfast.views import TaskView

LAYERS = {
    "position": layers.print_position,
    "outputs": layers.print_outputs,
    "decisions": layers.print_decisions,
    "retries": layers.print_retries,
    "failures": layers.print_failures,
}


@click.command()
@task_argument
@click.option("--layer", type=click.Choice(tuple(LAYERS)), help="Only this one.")
@click.option("--full", is_flag=True, help="Cut nothing, and show tracebacks.")
@json_option
@store_options
@pass_given
def show(given: Given, task: str, layer: str | None, full: bool, as_json: bool) -> Exit:
    """Show where a task is, and what happened to get there.

    \b
    Everything comes from the task's log, in layers:
      position     which step it is on, which are done, running and to come
      outputs      what each call returned, verbatim
      decisions    what the agent chose, from which options, and why
      retries      the calls that were tried more than once
      failures     everything that broke, with input and time
    besides all calls as a tree, the agent's notes, and the calls in doubt.

    \b
    Examples:
      holdfast show trip-42
      holdfast show trip-42 --layer failures --full
      holdfast show trip-42 --json | jq .position
    """
    with opened(given) as hf:
        view = find_task(hf, task)
        doubts = doubts_of(hf.store, view)
        if as_json:
            data = _data(view, doubts)
            kept = ("id", "status", layer) if layer else tuple(data)
            print_json({name: data[name] for name in kept})
            return Exit.OK
        page = Page(console(), full=full)
        if layer:
            LAYERS[layer](page, view)
        else:
            _print_all(page, given, view, doubts)
    return Exit.OK


def _print_all(page: Page, given: Given, view: TaskView, doubts: list[DoubtView]) -> None:
    _print_head(page, given, view)
    layers.print_position(page, view)
    if view.calls:
        page.heading("Calls")
        print_timeline(page.out, page.newest(list(walk(tree(view.calls)))))
    for name, there in (
        ("outputs", view.outputs),
        ("decisions", view.decisions),
        ("retries", view.retries),
        ("failures", view.failures),
    ):
        if there:
            LAYERS[name](page, view)
    if view.notes:
        layers.print_notes(page, view)
    if doubts:
        page.heading("In doubt", "calls that may or may not have happened")
        for each in doubts:
            print_doubt(page.out, given, each)


def _print_head(page: Page, given: Given, view: TaskView) -> None:
    state, now = view.state, datetime.now(UTC)
    page.line((plain(view.id), "bold"), "  ", status_text(view.status), indent=0)
    facts = {
        "task": f"{view.type}({short(view.input, 200)})",
        "started": f"{clock(state.created_at)} ({ago(state.created_at, now)})",
        "changed": f"{clock(state.updated_at)} ({ago(state.updated_at, now)}), "
        f"{count(view.seq, 'event')}",
        "driven by": f"{state.owner} ({state.engine})" if state.owner else "",
        "user": state.user,
        "session": state.session,
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(state.labels.items())),
    }
    for name, fact in facts.items():
        if fact:
            page.line((f"{name:9} ", "dim"), plain(fact))
    _print_outlook(page, given, view)


def _print_outlook(page: Page, given: Given, view: TaskView) -> None:
    # What the reader most wants to know: how did it end, or what does it need to go on?
    if view.status == "completed":
        page.line(
            (f"{'result':9} ", "dim"), *([] if _is_long(view.result) else [short(view.result)])
        )
        if _is_long(view.result):
            page.block(shown(view.result))
    elif view.failure is not None:
        page.line((f"{'failed':9} ", "dim"), (plain(view.failure.summary()), "red"))
        page.line(("to try it again: ", "dim"), plain(our_command(given, "retry", view.id)))
    elif view.status == "awaiting_user":
        page.line(Text("it waits for a person: see below, under In doubt", "bold yellow"))
    else:
        resume = plain(our_command(given, "resume", view.id))
        page.line(("if no process is at work on it, go on with: ", "dim"), resume)


def _is_long(value: Any) -> bool:
    return len(short(value, 61)) > 60


def _data(view: TaskView, doubts: list[DoubtView]) -> dict[str, Any]:
    state = view.state
    return {
        "id": view.id,
        "type": view.type,
        "status": view.status,
        "seq": view.seq,
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "user": state.user,
        "session": state.session,
        "labels": state.labels,
        "owner": state.owner,
        "engine": state.engine,
        "epoch": state.epoch,
        "format": state.format,
        "input": view.input,
        "result": view.result,
        "failure": view.failure,
        "plan": state.plan,
        "position": view.position,
        "outputs": view.outputs,
        "decisions": view.decisions,
        "retries": view.retries,
        "failures": view.failures,
        "notes": view.notes,
        "doubts": doubts,
        "calls": [_call(call) for call in view.calls],
    }


def _call(call: Call) -> dict[str, Any]:
    ended = call.ended_at
    return {
        "path": call.path,
        "name": call.name,
        "kind": call.kind,
        "status": call.status,
        "attempts": len(call.attempts),
        "at": call.at,
        "ended_at": ended,
        "duration_s": (ended - call.at).total_seconds() if ended else None,
        "key": call.key,
        "settled_by": call.settled_by,
    }
