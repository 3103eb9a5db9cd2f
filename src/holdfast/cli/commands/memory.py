"""`holdfast memory`: what agents remember beyond sessions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import click
import msgspec

from holdfast.agent.memories import Entry, Found
from holdfast.cli.exits import Exit
from holdfast.cli.opening import opened
from holdfast.cli.options import (
    label_option,
    limit_option,
    stacked,
    store_command,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, print_table
from holdfast.cli.settings import Given
from holdfast.cli.text import ago, cut, plain
from holdfast.stores.port import LONGEST_PAGE

COLUMNS = ("ID", "REMEMBERED", "USER", "SESSION", "TEXT")
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
        print_table(console(), COLUMNS, list(_rows(entries)), cut_last=True)
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
