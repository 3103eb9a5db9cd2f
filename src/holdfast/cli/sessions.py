"""`holdfast sessions`: the sessions of a store."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
from rich.text import Text

from holdfast import finding
from holdfast.agent.sessions import Session, open_session
from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import json_option, pass_given, store_options
from holdfast.cli.output import console, print_error, print_json, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, plain
from holdfast.errors import BadId, HoldfastError, SessionNotFound, StoreError
from holdfast.listing import TaskRecord
from holdfast.reading import session_stream
from holdfast.store import LONGEST_PAGE, Place

COLUMNS = ("ID", "USER", "STATUS", "MESSAGES", "TASKS", "LAST ACTIVITY")


@click.command()
@click.option("--user", help="Only sessions of this user.")
@click.option(
    "--limit",
    type=click.IntRange(1, LONGEST_PAGE),
    default=50,
    show_default=True,
    metavar="N",
    help="The length of a page.",
)
@click.option("--cursor", metavar="CURSOR", help="The page after this place.")
@json_option
@store_options
@pass_given
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
    for error in unreadable:
        print_error(f"warning: {error}")
    return Exit.DAMAGED if unreadable else Exit.OK


def _listed(
    hf: Holdfast, user: str | None, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], list[HoldfastError], str | None]:
    """What is on the page, what can't be read, and where the next page begins."""
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
        "cursor": finding.cursor_of(Place(state.created_at, session_stream(state.id))),
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
