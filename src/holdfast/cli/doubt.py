"""`holdfast doubt` and `resolve`: calls that may or may not have happened, and how they end."""

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
from holdfast.cli.opening import find_task, opened, read_all, stored
from holdfast.cli.options import (
    code_options,
    complete_task,
    json_option,
    pass_given,
    store_options,
    task_argument,
)
from holdfast.cli.output import console, our_command, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, clock, count, plain, short
from holdfast.fold import FINISHED, Call, CallStatus
from holdfast.store import Store
from holdfast.views import TaskView

_STANDINGS = {
    "in_doubt": "in doubt: waits for a person",
    "running": "running, or interrupted",
    "failed": "failed, but may have happened",
}
_SETTLED_LATER = "may have happened: is settled when the task goes on"


class DoubtView(Struct, frozen=True):
    """A call that may or may not have happened."""

    task: str
    path: str
    tool: str
    key: str
    status: CallStatus
    waits_for_a_person: bool
    since: datetime
    why: str
    input: Any


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

    Calls that the log shows as begun are listed as "running, or interrupted": reading a log can't
    tell whether a process is at work on it right now. Resume the task to find out.

    The exit code is 3 if any call waits for a person, else 4 if a log can't be read, else 0.

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
    if any(each.waits_for_a_person for each in found):
        return Exit.WAITING
    return Exit.DAMAGED if unreadable else Exit.OK


def doubts_of(store: Store, view: TaskView) -> list[DoubtView]:
    """The calls of a task that may or may not have happened."""
    return [_doubt_view(store, view.id, call) for call in view.doubts]


def _doubt_view(store: Store, task_id: str, call: Call) -> DoubtView:
    return DoubtView(
        task=task_id,
        path=call.path,
        tool=call.name,
        key=call.key,
        status=call.status,
        waits_for_a_person=call.status == "in_doubt",
        since=call.attempts[-1].at if call.attempts else call.at,
        why=call.why,
        input=stored(store, call.args),
    )


def _print(given: Given, found: list[DoubtView]) -> None:
    out = console()
    waiting = sum(each.waits_for_a_person for each in found)
    if not waiting:
        out.print("no call waits for a person")
    else:
        verb = "waits" if waiting == 1 else "wait"
        out.print(Text(f"{count(waiting, 'call')} {verb} for a person", "bold yellow"))
    for each in sorted(found, key=lambda each: not each.waits_for_a_person):
        out.print()
        print_doubt(out, given, each)


def print_doubt(out: Console, given: Given, each: DoubtView) -> None:
    """One such call, and how to settle it."""
    standing = _STANDINGS.get(each.status, _SETTLED_LATER)
    style = "bold yellow" if each.waits_for_a_person else "cyan"
    who = f"task {plain(each.task)}, call {plain(each.path)}, {plain(each.tool)}"
    out.print(Text.assemble((who, "bold"), "  ", (standing, style)))
    since = f"{clock(each.since)} ({ago(each.since, datetime.now(UTC))})"
    facts = {"begun": since, "why": each.why, "input": short(each.input, 300), "key": each.key}
    for name, fact in facts.items():
        if fact:
            print_lines(out, Text.assemble((f"  {name:6} ", "dim"), plain(fact)))
    if each.waits_for_a_person:
        resolve = our_command(given, "resolve", each.task, each.path)
        out.print("  Look for the key in the outside system, then say what you found:")
        print_lines(out, f"    {plain(resolve)} --happened --result JSON")
        print_lines(out, f"    {plain(resolve)} --did-not-happen")
    elif each.status == "running":
        resume = plain(our_command(given, "resume", each.task))
        print_lines(out, f"  If no process is at work on it, go on with: {resume}")


@click.command()
@task_argument
@click.argument("path")
@click.option("--happened", is_flag=True, help="It happened: it is not made again.")
@click.option(
    "--did-not-happen", is_flag=True, help="It did not: it is made when the task goes on."
)
@click.option("--result", metavar="JSON", help="What the call returned.  [default: null]")
@click.option("--because", default="", metavar="TEXT", help="How you know, for the log.")
@json_option
@code_options
@pass_given
def resolve(
    given: Given,
    task: str,
    path: str,
    happened: bool,
    did_not_happen: bool,
    result: str | None,
    because: str,
    as_json: bool,
) -> Exit:
    """Settle a call in doubt by hand: say whether it happened.

    PATH is the call's, as `holdfast doubt` shows it. With --app the result is checked against the
    type that the tool returns. The task is not driven: resume it afterwards.

    \b
    Examples:
      holdfast resolve trip-42 6 --happened --result '{"booking": "B-17"}'
      holdfast resolve trip-42 6 --did-not-happen --because "no mail with that key"
    """
    if happened == did_not_happen:
        raise click.UsageError("say either --happened or --did-not-happen")
    if did_not_happen and result is not None:
        raise click.UsageError("a call that did not happen has no --result")
    value = json_of(result) if result is not None else None
    with opened(given) as hf:
        find_task(hf, task)
        code = load_app(given)
        hf.resolve(task, path, happened=happened, result=value, because=because)
    verdict = "happened" if happened else "did_not_happen"
    if as_json:
        print_json({"task": task, "path": path, "verdict": verdict, "result": value})
        return Exit.OK
    out = console()
    out.print(f"settled: call {plain(path)} {verdict.replace('_', ' ')}")
    app = "" if code.modules else " --app MODULE"
    print_lines(out, f"To go on: {plain(our_command(given, 'resume', task) + app)}")
    return Exit.OK
