"""What the model says where there is no key: a script, served over real HTTP.

It decides by the request alone, as a model does. That matters: a call of a model is a step without
an effect, so after a crash between the reply and its record the model is simply asked again. A
real model may then answer something else, and nothing is lost by that, because nobody has seen its
first reply; a scripted one answers the same, so a test can compare whole conversations.
"""

from __future__ import annotations

import json
from typing import Any

from examples.support.agent import ADDRESS, REQUESTS
from holdfast.agent import Message, Reply, ToolCall, Usage, assistant
from holdfast.testing.scripted import Seen

WHERE, REFUND, CONFIRM = REQUESTS.values()

PLANS = {
    WHERE: ["look the order up"],
    REFUND: ["ask whether to refund it", "refund it"],
    CONFIRM: ["send the email"],
}

SUMMARY = "Ada asked for order 1042: a blue kettle for 49.00, delivered on 2 March."


def script(seen: Seen) -> Reply:
    """What is said to a request, and what that takes."""
    said = _said(seen)
    asked = [seen.data.get(name) for name in ("system", "messages", "input", "tools")]
    usage = Usage(_tokens(asked), _tokens([said.text, *(c.arguments for c in said.calls)]))
    return Reply(said, usage, stop="tool_calls" if said.calls else "end")


def _said(seen: Seen) -> Message:
    names = {tool.name for tool in seen.tools}
    if not names:
        return assistant(SUMMARY)
    goal, since = _request(seen.messages)
    if names == {"make_plan"}:
        return _calls(goal, "plan", ("make_plan", {"items": PLANS[goal]}))
    made = [call.name for message in since for call in message.calls]
    if goal == WHERE:
        return _where(made)
    return _refund(made) if goal == REFUND else _confirm(made)


def _where(made: list[str]) -> Message:
    if "find_order" not in made:
        return _calls(WHERE, "look", ("find_order", {"number": 1042}), _done("1"))
    return assistant("Your order 1042, a blue kettle, was delivered on 2 March.")


def _refund(made: list[str]) -> Message:
    if "ask_user" not in made:
        question = "Shall I pay back 49.00 for the blue kettle?"
        return _calls(REFUND, "ask", ("ask_user", {"question": question}), _done("1"))
    if "refund" not in made:
        return _calls(REFUND, "pay", ("refund", {"number": 1042}), _done("2"))
    return assistant("I am sorry that it broke. 49.00 is on its way back to you.")


def _confirm(made: list[str]) -> Message:
    if "send_email" not in made:
        email = {
            "to": ADDRESS,
            "subject": "Your refund",
            "text": "We paid back 49.00 for order 1042, a blue kettle.",
        }
        return _calls(CONFIRM, "send", ("send_email", email), _done("1"))
    return assistant(f"The confirmation is on its way to {ADDRESS}.")


def _done(item: str) -> tuple[str, dict[str, Any]]:
    return "update_plan", {"item": item, "status": "done"}


def _calls(goal: str, what: str, *calls: tuple[str, dict[str, Any]]) -> Message:
    number = list(REQUESTS.values()).index(goal) + 1
    return assistant(
        "",
        [
            ToolCall(f"call_{number}_{what}_{place}", name, json.dumps(arguments))
            for place, (name, arguments) in enumerate(calls, 1)
        ],
    )


def _request(messages: list[Message]) -> tuple[str, list[Message]]:
    """The request that is being attended to, and what came after it."""
    for place in range(len(messages) - 1, -1, -1):
        if messages[place].role == "user" and messages[place].text in REQUESTS.values():
            return messages[place].text, messages[place + 1 :]
    raise LookupError("the script knows none of the requests in this conversation")


def _tokens(data: object) -> int:
    return len(json.dumps(data)) // 4
