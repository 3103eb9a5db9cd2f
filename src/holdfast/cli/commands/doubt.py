"""`holdfast doubt`: calls that may or may not have happened."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
from msgspec import Struct
from rich.console import Console
from rich.text import Text

from holdfast.cli.arguments import json_of
from holdfast.cli.code import load_app
from holdfast.cli.exits import Exit
from holdfast.cli.hints import go_on_hint, our_command, resolve_commands
from holdfast.cli.opening import at_work, find_task, opened, read_all
from holdfast.cli.options import (
    code_options,
    complete_task,
    imports,
    json_option,
    pass_given,
    store_options,
    task_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, clock, count, plain, short
from holdfast.core.spec import registry
from holdfast.core.state import FINISHED, Call, CallStatus
from holdfast.engines.routing import driven_by
from holdfast.errors import CodeMissing
from holdfast.stores.port import Store
from holdfast.views.task import TaskView

_STANDINGS = {
    "in_doubt": "in doubt: waits for a person",
    "failed": "failed, but may have happened",
}
_INTERRUPTED = "interrupted: is settled by its policy when the task is resumed"
_SETTLED_LATER = "may have happened: is settled when the task goes on"
_NEVER_ENDED = "may have happened: the task ended without it"


class DoubtView(Struct, frozen=True):
    """A call that may or may not have happened."""

    task: str
    path: str
    tool: str
    key: str
    status: CallStatus
    waits_for_a_person: bool
    interrupted: bool
    """Whether it was running, in a task that can go on and that nobody is at work on."""
    at_work: str | None
    since: datetime
    why: str
    input: Any
    engine: str = ""
    """The remote engine that drives the task."""


@click.command(short_help="List calls that may or may not have happened.")
@click.argument("task", metavar="[TASK]", required=False, shell_complete=complete_task)
@json_option
@store_options
@pass_given
def doubt(given: Given, task: str | None, as_json: bool) -> Exit:
    """List the tool calls that may or may not have happened, of all unfinished tasks or of one.

    A call is in doubt when the process died after the call was begun and before its result was
    recorded: the mail may have been sent. Look for the call's key in the outside system, then
    settle it with `holdfast resolve`.

    A call of a task that nobody is at work on was interrupted, and is in doubt once the task is
    resumed: it is then made again, checked, or left to a person, as its tool says. One that
    somebody is at work on is running now.

    The exit code is 3 if any call waits for a person or was interrupted, else 4 if a log can't be
    read, else 0. Calls that are running now do not count.

    \b
    Examples:
      holdfast doubt
      holdfast doubt trip-42 --json
      holdfast doubt > /dev/null || notify "somebody has to look"
    """
    with opened(given) as hf:
        views, unreadable = ([find_task(hf, task)], []) if task else read_all(hf.store)
        wanted = [view for view in views if task or view.status not in FINISHED]
        found = [each for view in wanted for each in doubts_of(hf.store, view)]
    if as_json:
        print_json(found)
    else:
        _print(given, found)
    for error in unreadable:
        print_error(f"warning: {error}")
    if any(each.waits_for_a_person or each.interrupted for each in found):
        return Exit.WAITING
    return Exit.DAMAGED if unreadable else Exit.OK


def doubts_of(store: Store, view: TaskView) -> list[DoubtView]:
    """The calls of a task that may or may not have happened."""
    holder = at_work(store, view)
    return [_doubt_view(store, view, call, holder) for call in view.doubts]


def _doubt_view(store: Store, view: TaskView, call: Call, holder: str | None) -> DoubtView:
    ended = view.status in FINISHED  # then nobody can settle it any more
    return DoubtView(
        task=view.id,
        path=call.path,
        tool=call.name,
        key=call.key,
        status=call.status,
        waits_for_a_person=call.status == "in_doubt" and not ended,
        interrupted=call.status == "running" and holder is None and not ended,
        at_work=holder,
        since=call.attempts[-1].at if call.attempts else call.at,
        why=call.why,
        input=view.value(call.args),
        engine=driven_by(view.state),
    )


def _print(given: Given, found: list[DoubtView]) -> None:
    out = console()
    waiting = sum(each.waits_for_a_person for each in found)
    if not waiting:
        out.print("no call waits for a person")
    else:
        verb = "waits" if waiting == 1 else "wait"
        out.print(Text(f"{count(waiting, 'call')} {verb} for a person", "bold yellow"))
    if interrupted := sum(each.interrupted for each in found):
        verb = "was" if interrupted == 1 else "were"
        out.print(Text(f"{count(interrupted, 'call')} {verb} interrupted", "bold yellow"))
    for each in sorted(found, key=lambda each: (not each.waits_for_a_person, not each.interrupted)):
        out.print()
        print_doubt(out, given, each)


def print_doubt(out: Console, given: Given, each: DoubtView) -> None:
    """One such call, and how to settle it."""
    style = "bold yellow" if each.waits_for_a_person or each.interrupted else "cyan"
    who = f"task {plain(each.task)}, call {plain(each.path)}, {plain(each.tool)}"
    out.print(Text.assemble((who, "bold"), "  ", (_standing(each), style)))
    since = f"{clock(each.since)} ({ago(each.since, datetime.now(UTC))})"
    facts = {"begun": since, "why": each.why, "input": short(each.input, 300), "key": each.key}
    for name, fact in facts.items():
        if fact:
            print_lines(out, Text.assemble((f"  {name:6} ", "dim"), plain(fact)))
    if each.waits_for_a_person:
        out.print("  Look for the key in the outside system, then say what you found")
        out.print("  (the result is null if the call returns nothing):")
        for command in resolve_commands(given, each.task, each.path):
            print_lines(out, f"    {plain(command)}")
    elif each.interrupted:
        if each.engine:
            print_lines(out, f"  A worker of {plain(each.engine)} goes on with it.")
            return
        resume = plain(our_command(given, "resume", each.task, code=True))
        print_lines(out, f"  To go on: {resume}")


def _standing(each: DoubtView) -> str:
    if each.status == "in_doubt" and not each.waits_for_a_person:
        return _NEVER_ENDED
    if each.status != "running":
        return _STANDINGS.get(each.status, _SETTLED_LATER)
    if each.at_work:
        return f"running now, by {plain(each.at_work)}"
    return _INTERRUPTED if each.interrupted else _NEVER_ENDED


# `holdfast resolve`: settle a call in doubt by hand.


@click.command()
@task_argument
@click.argument("path")
@click.option("--happened", is_flag=True, help="It happened: it is not made again.")
@click.option(
    "--did-not-happen", is_flag=True, help="It did not: it is made when the task goes on."
)
@click.option(
    "--result", metavar="JSON", help="What the call returned: null if it returns nothing."
)
@click.option(
    "--unchecked",
    is_flag=True,
    help="Take the result as it is, without the code. One that does not fit what the tool returns "
    "stops the task until the call is settled again.",
)
@click.option("--because", default="", metavar="TEXT", help="How you know, for the log.")
@click.option("--by", default="", metavar="NAME", help="Who says so, for the log.")
@json_option
@code_options
@imports("app", "redact", "engine")
@pass_given
def resolve(
    given: Given,
    task: str,
    path: str,
    happened: bool,
    did_not_happen: bool,
    result: str | None,
    unchecked: bool,
    because: str,
    by: str,
    as_json: bool,
) -> Exit:
    """Settle a call in doubt by hand: say whether it happened.

    PATH is the call's, as `holdfast doubt` shows it. That it happened needs its --result, which
    the task goes on with, and --app, so that the result is checked against the type that the tool
    returns. The task is not driven: resume it afterwards. A call settled by mistake can be settled
    again while the task has made nothing of it.

    \b
    Examples:
      holdfast resolve trip-42 6 --happened --result '{"booking": "B-17"}' --app agents
      holdfast resolve trip-42 6 --happened --result null --app agents --by ada
      holdfast resolve trip-42 6 --did-not-happen --because "no mail with that key"
    """
    if happened == did_not_happen:
        raise click.UsageError("say either --happened or --did-not-happen")
    if did_not_happen and result is not None:
        raise click.UsageError("a call that did not happen has no --result")
    if happened and result is None:
        raise click.UsageError(
            "--happened needs the --result that the call returned: --result null if it returns "
            "nothing"
        )
    value = json_of(result) if result is not None else None
    with opened(given) as hf:
        view = find_task(hf, task)
        if happened and not unchecked:
            load_app(given)
            _must_be_checkable(view, path)
        hf.resolve(task, path, happened=happened, result=value, because=because, by=by)
    verdict = "happened" if happened else "did_not_happen"
    if as_json:
        print_json({"task": task, "path": path, "verdict": verdict, "result": value})
        return Exit.OK
    out = console()
    out.print(f"settled: call {plain(path)} {verdict.replace('_', ' ')}")
    print_lines(out, plain(go_on_hint(given, view.state)))
    return Exit.OK


def _must_be_checkable(view: TaskView, path: str) -> None:
    call = view.state.calls.get(path)
    if call is None or call.kind != "tool":
        return  # there is more wrong than this, as settling it will say
    try:
        registry.call(call.name)
    except CodeMissing as error:
        raise CodeMissing(
            f"the result can't be checked: {error}. Or say --unchecked: a result that does not "
            f"fit then stops the task until the call is settled again"
        ) from None
