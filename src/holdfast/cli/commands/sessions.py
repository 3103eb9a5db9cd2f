"""`holdfast sessions`, `session`, `say` and `memory`: conversations, and what agents remember."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import click
import msgspec
from rich.text import Text

from holdfast.agent.memories import Entry, Found
from holdfast.agent.sessions import Session, open_session
from holdfast.api.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.layers import LayerPage, messages_text, origin, print_message, said_in
from holdfast.cli.opening import find_session, opened, session_view
from holdfast.cli.options import (
    cursor_option,
    full_option,
    label_option,
    limit_option,
    session_argument,
    stacked,
    store_command,
)
from holdfast.cli.output import (
    console,
    print_error,
    print_json,
    print_json_line,
    print_lines,
    print_table,
    status_text,
    warned,
)
from holdfast.cli.settings import Given, our_command
from holdfast.cli.text import ago, clock, count, cut, plain, plain_lines, short, shown, to_json
from holdfast.errors import BadId, BadInput, Conflict, HoldfastError, SessionNotFound, StoreError
from holdfast.log.messages import Message
from holdfast.log.reading import session_stream
from holdfast.stores import finding
from holdfast.stores.listing import TaskRecord
from holdfast.stores.port import LONGEST_PAGE, PagePlace
from holdfast.views.sessions import SessionView

# `holdfast sessions`: the sessions of a store.


COLUMNS = ("ID", "USER", "STATUS", "MESSAGES", "TASKS", "LAST ACTIVITY")


@click.command()
@click.option("--user", help="Only sessions of this user.")
@limit_option(50)
@cursor_option
@store_command()
def sessions(given: Given, user: str | None, limit: int, cursor: str | None, as_json: bool) -> Exit:
    """List sessions, the newest first, a page at a time.

    A session owns a conversation, and any number of tasks that took part in it.

    A session whose log can't be read is named on standard error, and the exit code is then 4.

    \b
    Examples:
      holdfast sessions
      holdfast sessions --user ada --limit 10
      holdfast sessions --json | jq -r '.[] | select(.status == "open") | .id'
    """
    with opened(given) as hf:
        found, unreadable, after = _listed(hf, user, limit, cursor)
        if as_json:
            print_json(found)
        elif found or unreadable:
            _print_table(found, after)
        else:
            where = "match" if user or cursor else f"in {hf.store.url}"
            console().print(plain(f"no sessions {where}"))
    return warned(unreadable)


def _listed(
    hf: Holdfast, user: str | None, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], list[HoldfastError], str | None]:
    """The sessions of the page, the logs that can't be read, and where the next page begins."""
    page = hf.sessions(user=user, limit=limit, cursor=cursor)
    found, unreadable = [], list[HoldfastError](page.unreadable)
    for record in page.sessions:
        try:
            found.append(_summary(hf, open_session(hf.store, record.id)))
        except SessionNotFound:  # it was deleted meanwhile
            continue
        except (StoreError, BadId) as error:  # an id that nobody but a stranger writes
            unreadable.append(error)
    return found, unreadable, page.next


def _summary(hf: Holdfast, session: Session) -> dict[str, Any]:
    state = session.state
    return {
        "id": state.id,
        "user": state.user,
        "status": state.status,
        "messages": state.messages,
        "tasks": sum(1 for _ in tasks_of(hf, state.id)),
        "summaries": len(state.summaries),
        "labels": state.labels,
        "created_at": state.created_at,
        "updated_at": state.updated_at,
        "cursor": finding.cursor_of(PagePlace(state.created_at, session_stream(state.id))),
    }


def tasks_of(hf: Holdfast, session: str) -> Iterator[TaskRecord]:
    """The tasks of a session, the newest first."""
    cursor: str | None = None
    while True:
        page = hf.page(session=session, limit=LONGEST_PAGE, cursor=cursor)
        yield from page.tasks
        cursor = page.next
        if cursor is None:
            return


def _print_table(found: list[dict[str, Any]], after: str | None) -> None:
    out, now = console(), datetime.now(UTC)
    rows = [
        (
            plain(each["id"]),
            plain(each["user"]),
            each["status"],
            f"{each['messages']:,}",
            f"{each['tasks']:,}",
            ago(each["updated_at"], now),
        )
        for each in found
    ]
    print_table(out, COLUMNS, rows, cut_last=False)
    if after is not None:
        line = Text(f"… there are older ones: the same with --cursor {after}", "dim")
        out.print(line, soft_wrap=True)


# A conversation as a page of Markdown: for people, and to send to others.


def conversation_md(session: Session, messages: Iterable[Message]) -> str:
    """The page. Messages are quoted, so that nothing in them can pass for a heading.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     chat = hf.session("chat-md", user="ada")
    ...     _ = chat.say("# Hello")
    ...     page = conversation_md(chat, chat.messages())
    >>> page.splitlines()[0], page.splitlines()[-1]
    ('# Session chat-md', '> # Hello')
    """
    return "\n".join(_lines(session, messages))


def _lines(session: Session, messages: Iterable[Message]) -> Iterator[str]:
    state = session.state
    yield f"# Session {_one_line(state.id)}"
    yield ""
    of = f" of {_one_line(state.user)}" if state.user else ""
    yield f"A session{of}, {state.status}, begun {state.created_at:%Y-%m-%d %H:%M} UTC."
    if state.summary is not None:
        yield ""
        yield f"## Summary up to message {state.summary.upto}"
        yield ""
        yield _quoted(session.summary)
    for message in messages:
        pinned = ", pinned" if message.number in state.pinned else ""
        yield ""
        yield f"## {message.number} {message.role}{pinned}"
        yield ""
        yield f"*{_one_line(', '.join(origin(message)))}*"
        yield ""
        yield _quoted("\n\n".join(said_in(message)))


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _one_line(text: str) -> str:
    return " ".join(text.split())


@click.command()
@session_argument
@click.option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Only the last so many messages."
)
@click.option("--task", metavar="TASK", help="Only messages that this task said.")
@full_option
@click.option("--markdown", is_flag=True, help="The conversation as a Markdown page.")
@store_command()
def session(
    given: Given,
    id: str,
    last: int | None,
    task: str | None,
    full: bool,
    markdown: bool,
    as_json: bool,
) -> Exit:
    """Show a session: its conversation and its tasks.

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
            page = LayerPage(console(), full=full)
            _print_head(page, given, found, list(tasks_of(hf, id)))
            view = SessionView(hf.store, found.state, ())
            _print_thread(page, view)
            if found.state.messages or not view.is_thread:
                _print_conversation(page, found, messages)
    return Exit.OK


def show_session(given: Given, hf: Holdfast, id: str, page: LayerPage, as_json: bool) -> None:
    """Print a session for `holdfast show`."""
    found, view = find_session(hf, id), session_view(hf, id)
    if as_json:
        moments = "checkpoints" if view.is_thread else "messages"
        content = {"values": view.content()["values"]} if view.is_thread else {}
        print_json({**_summary(hf, found), moments: view.moments, **content})
        return
    _print_head(page, given, found, list(tasks_of(hf, id)))
    _print_thread(page, view)
    if found.state.messages or not view.is_thread:
        _print_conversation(page, found, list(found.messages()))


def _print_thread(page: LayerPage, view: SessionView) -> None:
    """The checkpoints of a thread of LangGraph, and what it knows; nothing of another session."""
    if not view.is_thread:
        return
    page.heading("Checkpoints", count(len(view.moments), "checkpoint"))
    rows = [
        (f"{each.number}", str(each.step), plain(each.name), short(each.new, 48), plain(each.id))
        for each in page.newest(view.moments)
    ]
    print_table(page.out, ("", "STEP", "AFTER", "NEW", "ID"), rows, cut_last=False)
    page.heading("Values")
    for name, value in view.content()["values"].items():
        page.line((plain(name), "bold"))
        page.block(shown(value), indent=5)


def _wanted(found: Session, last: int | None, task: str | None) -> Sequence[Message]:
    total = found.state.messages
    if task is None:
        return list(found.messages(total - last + 1 if last else 1))
    said = [message for message in found.messages() if message.task == task]
    return said[-last:] if last else said


def _print_head(page: LayerPage, given: Given, found: Session, tasks: list[TaskRecord]) -> None:
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


def _print_conversation(page: LayerPage, found: Session, messages: Sequence[Message]) -> None:
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
@store_command("redact")
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


# `holdfast memory`: what agents remember beyond sessions.

MEMORY_COLUMNS = ("ID", "REMEMBERED", "USER", "SESSION", "TEXT")
_LONGEST_TEXT = 120

user_option: Final = click.option("--user", help="Only what belongs to this user.")
session_option: Final = click.option("--session", help="Only what comes from a session.")
which_options: Final = stacked(
    user_option, session_option, label_option, limit_option(20, "How many at most.")
)


@click.group(short_help="What agents remember beyond sessions: search, list, add, forget.")
def memory() -> None:
    """The long-term memory: short entries that outlive sessions, each with its source.

    \b
    Examples:
      holdfast memory search "quiet room" --user ada
      holdfast memory ls --label kind=taste
      holdfast memory add "Ada wants a quiet room" --user ada
      holdfast memory forget 8c1f0e2ad94b7a13 --because "she moved"
    """


@memory.command()
@click.argument("query", metavar="QUERY")
@which_options
@store_command()
def search(given: Given, /, query: str, as_json: bool, **which: Any) -> Exit:
    """Find entries that have any word of QUERY, the best first.

    Case and accents do not matter, and nothing in a query is an operator.

    \b
    Examples:
      holdfast memory search "quiet room"
      holdfast memory search zurich --user ada --json | jq -r '.[].text'
    """
    with opened(given) as hf:
        found = hf.memory.search(query, **which)
    _print([_scored(each) for each in found], [each.entry for each in found], as_json)
    return Exit.OK


@memory.command()
@which_options
@store_command()
def ls(given: Given, /, limit: int, as_json: bool, **which: Any) -> Exit:
    """List what is remembered, the newest first.

    \b
    Examples:
      holdfast memory ls
      holdfast memory ls --user ada --label kind=taste --json
    """
    with opened(given) as hf:
        entries = hf.memory.entries(**which)
        found = list(islice(entries, limit))
        is_more = next(entries, None) is not None
    _print(found, found, as_json)
    if is_more and not as_json:
        print_error(f"there are older ones: the same with --limit, up to {LONGEST_PAGE}")
    return Exit.OK


@memory.command()
@click.argument("text", metavar="TEXT")
@click.option("--user", default="", help="Whom it is about.")
@click.option("--session", default="", help="The session that it comes from.")
@click.option("--id", metavar="ID", help="Its id: what was remembered under it is replaced.")
@label_option
@store_command("redact")
def add(given: Given, /, text: str, as_json: bool, **about: Any) -> Exit:
    """Remember TEXT.

    \b
    Examples:
      holdfast memory add "Ada wants a quiet room" --user ada --label kind=taste
      holdfast memory add "Orders ship from Oslo" --id shipping
    """
    with opened(given, create=True) as hf:
        entry = hf.memory.remember(text, **about)
    if as_json:
        print_json(entry)
    else:
        print_lines(console(), f"remembered: {plain(entry.id)}")
    return Exit.OK


@memory.command()
@click.argument("id", metavar="ID")
@click.option("--because", default="", metavar="WHY", help="Why, for the log.")
@store_command("redact")
def forget(given: Given, id: str, because: str, as_json: bool) -> Exit:
    """See to it that an entry is found no more. The log still has it.

    If there is none of that ID, the exit code is 5.

    \b
    Examples:
      holdfast memory forget shipping --because "the warehouse moved"
    """
    with opened(given) as hf:
        was_there = hf.memory.forget(id, because)
    if as_json:
        print_json({"id": id, "forgotten": was_there})
    elif was_there:
        print_lines(console(), f"forgotten: {plain(id)}")
    if not was_there:
        print_error(f"error: no entry {plain(id)} is remembered: see `holdfast memory ls`")
    return Exit.OK if was_there else Exit.NOT_FOUND


def _scored(found: Found) -> dict[str, Any]:
    return {**msgspec.structs.asdict(found.entry), "score": found.score}


def _print(values: list[Any], entries: list[Entry], as_json: bool) -> None:
    if as_json:
        print_json(values)
    elif entries:
        print_table(console(), MEMORY_COLUMNS, list(_rows(entries)), cut_last=True)
    else:
        console().print("nothing is remembered that matches")


def _rows(entries: Iterable[Entry]) -> Iterable[tuple[str, ...]]:
    now = datetime.now(UTC)
    for entry in entries:
        text = cut(plain(entry.text), _LONGEST_TEXT)
        yield (
            plain(entry.id),
            ago(entry.at, now),
            plain(entry.user),
            plain(entry.session),
            text,
        )
