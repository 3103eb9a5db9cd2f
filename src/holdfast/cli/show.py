"""`holdfast show`: one task, and everything its log says of it."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli import layers
from holdfast.cli.answer import print_question, questions_of
from holdfast.cli.compensate import print_compensation, summary_of
from holdfast.cli.doubt import doubts_of, print_doubt
from holdfast.cli.exits import Exit
from holdfast.cli.head import (
    MOST_FORKS,
    Seen,
    ended_badly,
    print_compensate,
    print_head,
    print_outlook,
    print_title,
)
from holdfast.cli.layers import Page
from holdfast.cli.opening import at_work, find_task, opened
from holdfast.cli.options import json_option, pass_given, store_options, task_argument
from holdfast.cli.output import console, print_json
from holdfast.cli.settings import Given
from holdfast.cli.standing import children_of, print_children, print_progress, progress_of
from holdfast.cli.timeline import print_timeline, tree, walk
from holdfast.decoding import damage_in
from holdfast.engines.elsewhere import LOCAL
from holdfast.history import newest_rewind
from holdfast.listing import forks_of
from holdfast.reading import stream_of
from holdfast.state import Call
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
    besides all calls as a tree, the agent's facts and notes, the calls in doubt, the open questions
    and approvals, how far it says it is, its parent and children, its checkpoint and deadline; of
    a fork, whose past it shares and from where on it goes its own way; which forks there are of it;
    to where it was put back; of one that was paused or cancelled, why; of one that ended badly,
    what was undone; and of an unfinished task, who is at work on it.

    \b
    Examples:
      holdfast show trip-42
      holdfast show trip-42 --layer failures --full
      holdfast show trip-42 --json | jq .position
    """
    with opened(given) as hf:
        view = find_task(hf, task)
        seen = Seen(
            at_work(hf.store, view),
            doubts_of(hf.store, view),
            questions_of(view),
            children_of(hf.store, view),
            progress_of(view),
            forks_of(hf.store, view.id, MOST_FORKS + 1),
        )
        if as_json:
            data = _data(view, seen)
            kept = ("id", "status", layer) if layer else tuple(data)
            print_json({name: data[name] for name in kept})
            return Exit.OK
        page = Page(console(), full=full)
        print_title(page, view)
        if layer:
            LAYERS[layer](page, view)
        else:
            _print_all(page, given, view, seen)
    return Exit.OK


def _print_all(page: Page, given: Given, view: TaskView, seen: Seen) -> None:
    print_head(page, view, seen)
    print_outlook(page, given, view, seen)
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
    if view.facts:
        layers.print_facts(page, view)
    if view.notes:
        layers.print_notes(page, view)
    if seen.progress:
        print_progress(page, seen.progress)
    if seen.children:
        print_children(page, seen.children)
    if ended_badly(view) and view.compensation:
        page.heading("Compensation", summary_of(view.compensation))
        print_compensation(page.out, page.newest(view.compensation))
        print_compensate(page, given, view)
    if seen.doubts:
        page.heading("In doubt", "calls that may or may not have happened")
        for each in seen.doubts:
            print_doubt(page.out, given, each)
    if seen.questions:
        page.heading("Questions", "that wait for an answer")
        for question in seen.questions:
            print_question(page.out, given, question)


def _data(view: TaskView, seen: Seen) -> dict[str, Any]:
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
        "driver": state.driver or LOCAL,
        "at_work": seen.at_work,
        "epoch": state.epoch,
        "format": state.format,
        "input": view.input,
        "result": view.result,
        "failure": view.failure,
        "version": state.version,
        "parent": state.parent,
        "parent_path": state.parent_path,
        "fork": state.fork,
        "forks": seen.forks,
        "rewinds": state.rewinds,
        "rewound_to": rewound.to if (rewound := newest_rewind(state)) is not None else None,
        "because": state.because,
        "cancelling": state.cancelling,
        "ending": state.ending,
        "deadline": state.until,
        "wake_at": state.wake_at if state.parked else None,
        "checkpoints": state.checkpoints,
        "checkpoint": _checkpoint(view),
        "plan": view.plan,
        "observations": view.observations,
        "position": view.position,
        "outputs": view.outputs,
        "decisions": view.decisions,
        "retries": view.retries,
        "failures": view.failures,
        "facts": view.facts,
        "notes": view.notes,
        "progress": seen.progress,
        "children": seen.children,
        "compensation": view.compensation,
        "doubts": seen.doubts,
        "questions": seen.questions,
        "calls": [_call(call) for call in view.calls],
    }


def _checkpoint(view: TaskView) -> Any:
    with damage_in(stream_of(view.id)):
        return view.checkpoint


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
        "until": call.until,
        "child": call.child,
        "adopted": call.adopted,
        "adopted_of": call.adopted_of,
    }
