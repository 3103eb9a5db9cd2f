"""The tools that the agents of every framework have, and the world that they act on.

`refund` has a receiver that honours keys. `send_email` has one that can be asked. Nobody can be
asked about `post_letter` but a person; it is a plain function, and the framework makes it a tool.
"""

from __future__ import annotations

from examples.trip.client import World
from holdfast import Happened, IdempotencyKey, tool

NO_KEY = IdempotencyKey()

_worlds: list[World] = []


def work_in(world: World) -> None:
    """Say which world the tools act on."""
    _worlds[:] = [world]


def world() -> World:
    """The world that the tools act on."""
    return _worlds[0]


@tool
async def refund(order: int, *, key: IdempotencyKey = NO_KEY) -> str:
    """Refund an order."""
    world().effect("refund", f"order {order}", honour_key=True, key=key)
    return f"order {order} is refunded"


async def was_sent(key: str) -> Happened[str] | None:
    """Ask the mail server for what was sent under a key."""
    return Happened("sent") if world().find("email", key) else None


@tool(check=was_sent)
async def send_email(to: str, text: str, *, key: IdempotencyKey = NO_KEY) -> str:
    """Send an email."""
    world().effect("email", key)
    return "sent"


async def post_letter(to: str) -> str:
    """Post a letter."""
    world().effect("letter", f"to {to}")
    return "posted"


def letter_is_there(to: str) -> bool:
    """Look into the letter box."""
    return bool(world().find("letter", f"to {to}"))
