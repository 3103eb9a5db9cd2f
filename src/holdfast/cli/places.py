"""How a place in a task's past is named on the command line: by a step, or by an event."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click
from msgspec import Struct

from holdfast.api.app import Holdfast
from holdfast.cli.arguments import json_of
from holdfast.history.snapshots import Snapshot
from holdfast.log.past import When

F = TypeVar("F", bound=Callable[..., Any])


class At(Struct, frozen=True):
    """A place as it was named."""

    step: str | None = None
    when: When | None = None
    seq: int | None = None

    def of(self, hf: Holdfast, task: str) -> Snapshot:
        """What a task knew there; at its end, if no place was named."""
        return hf.snapshot(task, self.step, self.when, seq=self.seq)


def place_options(name: str, what: str) -> Callable[[F], F]:
    """`--step 6 --before` and `--event 61`, with `name` for the option that takes the step.

    The command is given the place that they name as `place`.
    """

    def decorate(command: F) -> F:
        command = _with_place(command)
        for option in (
            click.option("--event", "seq", type=int, metavar="N", help=f"{what}: after event N."),
            click.option("--after", "is_after", is_flag=True, help="… after that step."),
            click.option("--before", "is_before", is_flag=True, help="… before it (the default)."),
            click.option(name, "step", metavar="STEP", help=f"{what}: a step, by its path."),
        ):
            command = option(command)
        return command

    return decorate


def _with_place(command: F) -> F:
    @wraps(command)
    def with_place(
        *args: Any, step: str | None, is_before: bool, is_after: bool, seq: int | None, **words: Any
    ) -> Any:
        return command(*args, place=_place(step, is_before, is_after, seq), **words)

    return with_place  # type: ignore[return-value]


def _place(step: str | None, is_before: bool, is_after: bool, seq: int | None) -> At:
    if is_before and is_after:
        raise click.UsageError("say either --before or --after")
    if step is not None and seq is not None:
        raise click.UsageError("say either a step or --event, not both")
    if step is None and (is_before or is_after):
        raise click.UsageError("--before and --after go with a step: say which")
    return At(step, "after" if is_after else "before" if is_before else None, seq)


def place_of_word(word: str) -> At:
    """A place as one word: `6`, `before:6`, `after:6`, `event:61` or `end`.

    >>> place_of_word("after:6")
    At(step='6', when='after', seq=None)
    """
    if word == "end":
        return At()
    kind, colon, rest = word.partition(":")
    if not colon:
        return At(word)
    if kind == "event" and rest.isdigit():
        return At(seq=int(rest))
    if kind in ("before", "after") and rest:
        return At(rest, kind)  # type: ignore[arg-type]
    raise click.UsageError(
        f"{word!r} is no place: say a step (6), before:6, after:6, event:61 or end"
    )


def values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """`NAME=JSON` options as a dict."""
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{pair!r} is not of the form NAME=JSON", ctx, param)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx, param)
        found[name] = json_of(value)
    return found
