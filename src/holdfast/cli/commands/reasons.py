"""`holdfast why` and `context`: what a task chose, why, and what the model saw when it did."""

from __future__ import annotations

from functools import partial
from typing import Any

import click
from rich.text import Text

from holdfast.agent.contexts import Context
from holdfast.agent.formats import anthropic, openai_chat, openai_responses
from holdfast.agent.model_calls import (
    AskedModel,
    Saw,
    asked_in,
    listed,
    saw,
    session_of,
    summarized_upto,
    upto,
)
from holdfast.cli.exits import Exit
from holdfast.cli.layers import (
    LayerPage,
    messages_text,
    print_choice,
    print_message,
    print_title,
    ranges_text,
)
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import (
    full_option,
    store_command,
    task_argument,
)
from holdfast.cli.output import console, print_json, print_lines, print_table
from holdfast.cli.settings import Given, our_command
from holdfast.cli.text import clock, count, plain, shown
from holdfast.core.conversation import Conversation
from holdfast.core.decoding import damage_in
from holdfast.errors import BadInput
from holdfast.history.known import Choice, chains
from holdfast.log.messages import Message, media_bytes
from holdfast.log.reading import stream_of
from holdfast.stores.port import Store
from holdfast.views.task import TaskView


@click.command()
@task_argument
@click.argument("name", metavar="[NAME]", required=False)
@full_option
@store_command()
def why(given: Given, task: str, name: str | None, full: bool, as_json: bool) -> Exit:
    """Show why a task did what it did: the chain of its decisions.

    Each comes with what was chosen, from which options, why, when and after which step. A decision
    that took the place of an earlier one stands right after it. With the NAME of a decision, or
    its path, only the chains that it is part of.

    \b
    Examples:
      holdfast why trip-42
      holdfast why trip-42 room
      holdfast why trip-42 --json | jq '.decisions[] | select(.superseded_by == "")'
    """
    with opened(given) as hf:
        view = find_task(hf, task)
        found = chains(view.decisions)
        if name is not None:
            found = [chain for chain in found if any(name in (c.name, c.path) for c in chain)]
            _must_be_some(view, name, found)
        if as_json:
            decisions = [choice for chain in found for choice in chain]
            print_json({"id": view.id, "status": view.status, "decisions": decisions})
            return Exit.OK
        page = LayerPage(console(), full=full)
        print_title(page, view)
        _print_chains(page, found)
    return Exit.OK


def _must_be_some(view: TaskView, name: str, found: list[list[Choice]]) -> None:
    if not found:
        names = sorted({choice.name for choice in view.decisions})
        there = f"it has made {', '.join(map(plain, names[:12]))}" if names else "it has made none"
        raise BadInput(f"task {view.id!r} has made no decision {name!r}: {there}")


def _print_chains(page: LayerPage, found: list[list[Choice]]) -> None:
    made = sum(map(len, found))
    page.heading("Decisions", count(made, "decision") if made else "none")
    for chain in page.newest(found):
        for choice in page.newest(chain):
            print_choice(page, choice)
            step = (
                f", after step {plain(choice.step)}" if choice.step else ", before the first step"
            )
            page.line(("when     ", "dim"), f"{clock(choice.at)}{step}", indent=5)


# `holdfast context`: exactly what a model call saw.


COLUMNS = ("CALL", "NAME", "TOKENS", "BUDGET", "MESSAGES", "LEFT OUT", "SUMMARY")
FORMATS = ("openai", "responses", "anthropic")


@click.command()
@task_argument
@click.option("--step", metavar="CALL", help="The call to show, by its path: 6, or @3.1.")
@click.option("--full", is_flag=True, help="Cut nothing, and show the schemas of the tools.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Print the request as the provider gets it, as JSON.",
)
@store_command()
def context(
    given: Given, task: str, step: str | None, full: bool, form: str | None, as_json: bool
) -> Exit:
    """Show exactly what a model call saw. It includes messages that were summarized since.

    A model call is one that was given a Context, or that made one. Without --step they are listed.
    The messages come from the session's log, and a digest in the task's log says that they are the
    very ones: if not, the exit code is 4.

    With --json: the context, its messages, the nudges (messages that came last and are in no
    conversation) and the tools. --format is what goes to a provider of them: the messages (or
    input), the system message and the tools, without what the client adds, such as the model.

    \b
    Examples:
      holdfast context support-7
      holdfast context support-7 --step @4.1
      holdfast context support-7 --step @4.1 --json | jq -r '.messages[].role'
      holdfast context support-7 --step @4.1 --format anthropic > request.json
    """
    if form is not None and step is None:
        raise click.UsageError("--format is of one call: name it with --step")
    with opened(given) as hf:
        view = find_task(hf, task)
        with damage_in(stream_of(view.id)):
            calls = list(asked_in(view))
        if step is None:
            _list_model_calls(given, view, listed(calls, hf.store), as_json)
            return Exit.OK
        asked = _chosen(view, calls, step)
        session = session_of(asked, hf.store)
        seen = saw(asked, session, hf.store)
        if form is not None:
            print_json(_request(seen, form, hf.store))
        elif as_json:
            print_json(_data(view, seen))
        else:
            _print_context(LayerPage(console(), full=full), view, seen, session.state)
    return Exit.OK


def _chosen(view: TaskView, calls: list[AskedModel], step: str) -> AskedModel:
    for each in calls:
        if each.path == step:
            return each
    known = ", ".join(plain(each.path) for each in calls[-12:])
    there = f"its model calls are {known}" if known else "it has made no model call"
    is_one = step in view.state.calls
    what = "was given no context" if is_one else "is none that it has made"
    raise BadInput(f"task {view.id!r}: call {step!r} {what}: {there}")


def _list_model_calls(
    given: Given, view: TaskView, rows: list[dict[str, Any]], as_json: bool
) -> None:
    if as_json:
        print_json(rows)
        return
    out = console()
    if not rows:
        out.print(plain(f"task {view.id!r} has made no call that was given a context"))
        return
    print_table(out, COLUMNS, [_cells(row) for row in rows], cut_last=False)
    command = our_command(given, "context", view.id, options=("--step", rows[-1]["path"]))
    print_lines(out, Text(f"to see what one saw:  {plain(command)}", "dim"))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        plain(row["path"]),
        plain(row["name"]),
        f"{row['tokens']:,}",
        f"{row['budget']:,}",
        f"{row['messages']:,}",
        f"{row['left_out']:,}" if row["left_out"] else "",
        f"up to {row['summarized_upto']:,}" if row["summarized_upto"] else "",
    )


def _data(view: TaskView, seen: Saw) -> dict[str, Any]:
    return {
        "task": view.id,
        "path": seen.asked.path,
        "name": seen.asked.name,
        "at": seen.asked.at,
        "context": seen.asked.context,
        "messages": [message for _, message in seen.messages],
        "nudges": seen.nudges,
        "tools": seen.tools,
    }


def _request(seen: Saw, form: str, store: Store) -> dict[str, Any]:
    """The request as the provider's adapter writes it."""
    messages = [*(message for _, message in seen.messages), *seen.nudges]
    load = partial(media_bytes, store)
    request: dict[str, Any]
    if form == "anthropic":
        system, said = anthropic.to_wire(messages, load)
        request = {"system": system, "messages": said} if system else {"messages": said}
        tools, output_to_wire = anthropic.tools_to_wire(seen.tools), anthropic.output_to_wire
    elif form == "responses":
        request = {"input": openai_responses.to_wire(messages, load)}
        tools = openai_responses.tools_to_wire(seen.tools)
        output_to_wire = openai_responses.output_to_wire
    else:
        request = {"messages": openai_chat.to_wire(messages, load)}
        tools, output_to_wire = openai_chat.tools_to_wire(seen.tools), openai_chat.output_to_wire
    for form_of_answer in (tool for tool in seen.tools if tool.is_answer):
        request |= output_to_wire(form_of_answer)
    return {**request, "tools": tools} if tools else request


def _print_context(page: LayerPage, view: TaskView, seen: Saw, conversation: Conversation) -> None:
    asked = seen.asked
    page.line((plain(view.id), "bold"), plain(f"  call {asked.path}, {asked.name}"), indent=0)
    for name, fact in _facts(seen.asked.context, conversation).items():
        if fact:
            page.line((f"{name:9} ", "dim"), plain(fact))
    page.heading("What it saw", messages_text(len(seen.messages)))
    for kind, message in seen.messages:
        print_message(page, message, "" if kind in ("recent", message.role) else kind)
    _print_nudges(page, seen.nudges)
    _print_tools(page, seen)


def _facts(made: Context, conversation: Conversation) -> dict[str, str]:
    left, last, now = made.left_out, upto(made, conversation), conversation.messages
    by_now = f" (by now it has {now:,})" if now > last else ""
    factor = f" (as counted × {made.ratio:.2f}, by what the provider reported)"
    gone = (
        f"{messages_text(left.messages)} ({ranges_text(left.ranges)}), about {left.tokens:,} tokens"
    )
    summarized = summarized_upto(made, conversation)
    return {
        "session": f"{made.session}, up to message {last:,}{by_now}",
        "tokens": f"{made.tokens:,} of a budget of {made.budget:,}{factor * (made.ratio != 1)}",
        "summary": f"up to message {summarized:,}" if summarized else "",
        "left out": gone if left.messages else "nothing",
        "cut": f"texts to {left.cut_to:,} characters" if left.cut_to else "",
    }


def _print_nudges(page: LayerPage, nudges: tuple[Message, ...]) -> None:
    if nudges:
        page.heading("On top of that", "in no conversation")
        for message in nudges:
            print_message(page, message)


def _print_tools(page: LayerPage, seen: Saw) -> None:
    if not seen.tools:
        return
    page.heading("Tools", "" if page.full else plain(", ".join(tool.name for tool in seen.tools)))
    for tool in seen.tools if page.full else ():
        page.line((plain(tool.name), "bold"), plain(f"  {tool.description}"))
        page.block(shown(tool.parameters))
