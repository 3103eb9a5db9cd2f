"""Messages for people: who says what, which one it is, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.agent.messages import Message
from holdfast.agent.transcript import lines_of
from holdfast.cli.layers import Page
from holdfast.cli.text import clock, count, plain, plain_lines

STYLES = {"system": "dim", "user": "bold", "assistant": "cyan", "tool": "green"}


def print_message(page: Page, message: Message, *more: str) -> None:
    """A message: a line on what it is, and what it says set in below it."""
    number = f"{message.number:>4} " if message.number else "     "
    said = [part for part in (*more, *origin(message)) if part]
    page.line(
        (number, "dim"),
        (plain(message.role), STYLES.get(message.role, "")),
        (plain(f"  {', '.join(said)}") if said else "", "dim"),
        indent=0,
    )
    for line in said_in(message):
        page.block(plain_lines(line), indent=7)


def said_in(message: Message) -> Iterator[str]:
    """What a message says, a text for each thing in it, without who says it."""
    who = f"{message.role} ({message.name}): " if message.name else f"{message.role}: "
    if not message.parts:
        yield "(nothing)"
        return
    for line in lines_of(message):
        yield line.removeprefix(who)


def origin(message: Message) -> tuple[str, ...]:
    """When a message was said, and by which step of which task."""
    at = clock(message.at) if message.at else ""
    by = f"task {message.task}, {message.step}" if message.task else ""
    return tuple(each for each in (at, f"as {message.name}" if message.name else "", by) if each)


def ranges_text(ranges: tuple[tuple[int, int], ...]) -> str:
    """Stretches of messages by their numbers.

    >>> ranges_text(((3, 14), (20, 20)))
    '3 to 14, 20'
    """
    return ", ".join(f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in ranges)


def messages_text(number: int) -> str:
    """So many messages.

    >>> messages_text(1)
    '1 message'
    """
    return count(number, "message")
