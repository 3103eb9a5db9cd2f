"""`holdfast session` and `say`: one conversation, read and added to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from holdfast.agent.messages import Message
from holdfast.agent.sessions import Session
from holdfast.cli.exits import Exit
from holdfast.cli.hints import our_command
from holdfast.cli.layers import Page
from holdfast.cli.markdown import conversation_md
from holdfast.cli.opening import find_session, opened
from holdfast.cli.options import imports, json_option, pass_given, session_argument, store_options
from holdfast.cli.output import console, print_json, print_json_line, print_lines, status_text
from holdfast.cli.sessions import tasks_of
from holdfast.cli.settings import Given
from holdfast.cli.spoken import messages_text, print_message
from holdfast.cli.text import ago, clock, count, plain, plain_lines, to_json
from holdfast.errors import BadInput, Conflict
from holdfast.listing import TaskRecord


@click.command()
@session_argument
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Only the last so many messages."
)
@click.option("--task", metavar="TASK", help="Only messages that this task said.")
@click.option("--full", is_flag=True, help="Cut nothing.")
@click.option("--markdown", is_flag=True, help="The conversation as a Markdown page.")
@json_option
@store_options
@pass_given
def session(
    given: Given,
    id: str,
    last: int | None,
    task: str | None,
    full: bool,
    markdown: bool,
    as_json: bool,
) -> Exit:
    """Show a session: its conversation, and the tasks that took part in it.

    Each message comes with its number, when it was said, and by which step of which task. Messages
    that were summarized are there too. With --json each message is a line of JSON.

    \b
    Examples:
      holdfast session chat-7
      holdfast session chat-7 --last 20 --full
      holdfast session chat-7 --markdown > conversation.md
      holdfast session chat-7 --json | jq -r 'select(.role == "user") | .content'
    """
    if markdown and as_json:
        raise click.UsageError("--markdown and --json are two ways to print: give one")
    with opened(given) as hf:
        found = find_session(hf, id)
        messages = _wanted(found, last, task)
        if as_json:
            for message in messages:
                print_json_line(to_json(message))
        elif markdown:
            print_lines(console(), plain_lines(conversation_md(found, messages)))
        else:
            page = Page(console(), full=full)
            _print_head(page, given, found, list(tasks_of(hf, id)))
            _print_conversation(page, found, messages)
    return Exit.OK


def _wanted(found: Session, last: int | None, task: str | None) -> Sequence[Message]:
    total = found.state.messages
    if task is None:
        return list(found.messages(total - last + 1 if last else 1))
    said = [message for message in found.messages() if message.task == task]
    return said[-last:] if last else said


def _print_head(page: Page, given: Given, found: Session, tasks: list[TaskRecord]) -> None:
    state, now = found.state, datetime.now(UTC)
    page.line((plain(state.id), "bold"), f"  {state.status}", indent=0)
    facts = {
        "user": state.user,
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(state.labels.items())),
        "begun": f"{clock(state.created_at)} ({ago(state.created_at, now)})",
        "changed": f"{clock(state.updated_at)} ({ago(state.updated_at, now)})",
        "ended": f"because {state.because}" if state.status == "ended" and state.because else "",
        "pinned": f"messages {', '.join(map(str, sorted(state.pinned)))}" if state.pinned else "",
    }
    for name, fact in facts.items():
        if fact:
            page.line((f"{name:8} ", "dim"), plain(fact))
    page.heading("Tasks", count(len(tasks), "task") if tasks else "none")
    for task in page.newest(tasks[::-1]):
        page.line(plain(f"{task.id}  {task.type}  "), status_text(task.status))
    if tasks:
        show = our_command(given, "show", tasks[0].id)
        page.line(("to look at one: ", "dim"), plain(show))


def _print_conversation(page: Page, found: Session, messages: Sequence[Message]) -> None:
    state = found.state
    if state.summaries:
        page.heading("Summaries", f"{len(state.summaries):,}, the newest last")
    for each in page.newest(state.summaries):
        by = f", by task {each.task}" if each.task else ""
        page.line(plain(f"up to message {each.upto:,}"), (plain(f"  {clock(each.at)}{by}"), "dim"))
        page.block(plain_lines(found.book.summary_text(each)), indent=7)
    of = f" of {state.messages:,}" if len(messages) < state.messages else ""
    page.heading(
        "Conversation", f"{len(messages):,}{of} messages" if of else messages_text(len(messages))
    )
    for message in page.newest(messages):
        print_message(page, message, "pinned" if message.number in state.pinned else "")


@click.command()
@session_argument
@click.argument("text")
@click.option("--user", help="Whose session it is; begins it if there is none.")
@click.option("--key", default="", help="Say it once, however often this command is run.")
@json_option
@store_options
@imports("redact")
@pass_given
def say(given: Given, id: str, text: str, user: str | None, key: str, as_json: bool) -> Exit:
    """Add what the user says to a session.

    It is durable when the command ends. No task is started by it, and none is woken: one that
    goes on sees it in its next context.

    \b
    Examples:
      holdfast say chat-7 "Where is my order?"
      holdfast say chat-8 "Hello" --user ada
      holdfast say chat-7 "Where is my order?" --key request-17
    """
    if not text.strip():
        raise BadInput("there is nothing to say: give a TEXT")
    with opened(given, create=user is not None) as hf:
        if user is None:
            find_session(hf, id)
        try:
            (message,) = hf.session(id, user=user).say(text, key=key)
        except Conflict as error:  # the store is fine: the key was given to something else
            raise BadInput(str(error)) from None
    if as_json:
        print_json(message)
    else:
        print_lines(console(), plain(f"message {message.number:,} of session {id}"))
    return Exit.OK
