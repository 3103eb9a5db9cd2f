"""What the scripted model says to each of the agents: two calls at once, another one, a word."""

from __future__ import annotations

import json

from holdfast.agent import Message, ToolCall, assistant
from holdfast.testing.scripted import Seen

QUESTION = "My order 7 arrived broken. Please refund it, and write to me."


def said(seen: Seen) -> Message:
    """What the model says next, by how often it has spoken since the user's last word."""
    asked = [number for number, each in enumerate(seen.messages) if _is_users(each)]
    last = asked[-1] if asked else 0
    turns = sum(each.role == "assistant" for each in seen.messages[last:])
    if turns == 0:
        mail = {"to": "ada@example.org", "text": "Your refund is on its way."}
        return assistant("", [_call("refund", order=7), _call("send_email", **mail)])
    if turns == 1:
        return assistant("", [_call("post_letter", to="Ada")])
    return assistant("Order 7 is refunded, and you have mail.")


def _is_users(message: Message) -> bool:
    return message.role == "user" and not message.results


def _call(name: str, **arguments: object) -> ToolCall:
    return ToolCall(f"call_{name}", name, json.dumps(arguments))
