"""`holdfast why`: what an agent chose, why, and what it chose instead later."""

from __future__ import annotations

from collections.abc import Iterable

import click

from holdfast.cli.exits import Exit
from holdfast.cli.head import print_title
from holdfast.cli.layers import Page, print_choice
from holdfast.cli.opening import find_task, opened
from holdfast.cli.options import json_option, pass_given, store_options, task_argument
from holdfast.cli.output import console, print_json
from holdfast.cli.settings import Given
from holdfast.cli.text import clock, count, plain
from holdfast.errors import BadInput
from holdfast.seen import Choice
from holdfast.views import TaskView


@click.command()
@task_argument
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--full", is_flag=True, help="Cut nothing.")
@json_option
@store_options
@pass_given
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
        page = Page(console(), full=full)
        print_title(page, view)
        _print_chains(page, found)
    return Exit.OK


def chains(decisions: Iterable[Choice]) -> list[list[Choice]]:
    """Decisions by what they are about: each after those whose place it took."""
    known: dict[str, list[Choice]] = {}
    found = []
    for choice in decisions:
        chain = known.get(choice.supersedes)
        if chain is None:
            chain = []
            found.append(chain)
        chain.append(choice)
        known[choice.path] = chain
    return found


def _must_be_some(view: TaskView, name: str, found: list[list[Choice]]) -> None:
    if not found:
        names = sorted({choice.name for choice in view.decisions})
        there = f"it has made {', '.join(map(plain, names[:12]))}" if names else "it has made none"
        raise BadInput(f"task {view.id!r} has made no decision {name!r}: {there}")


def _print_chains(page: Page, found: list[list[Choice]]) -> None:
    made = sum(map(len, found))
    page.heading("Decisions", count(made, "decision") if made else "none")
    for chain in page.newest(found):
        for choice in page.newest(chain):
            print_choice(page, choice)
            step = (
                f", after step {plain(choice.step)}" if choice.step else ", before the first step"
            )
            page.line(("when     ", "dim"), f"{clock(choice.at)}{step}", indent=5)
