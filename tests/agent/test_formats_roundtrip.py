"""What was read from a provider's format is written to it just as it was."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from holdfast.agent.formats import anthropic, openai_chat, openai_responses
from holdfast.log.messages import is_valid
from tests.agent import wire
from tests.thorough import THOROUGH

MANY = settings(
    max_examples=300 if THOROUGH else 80,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@given(wire.chat())
@MANY
def test_any_openai_chat_comes_back_as_it_was(data: list[dict[str, Any]]) -> None:
    messages = openai_chat.from_wire(data)
    assert openai_chat.to_wire(messages) == data
    assert is_valid(messages)


@given(wire.items())
@MANY
def test_any_openai_items_come_back_as_they_were(data: list[dict[str, Any]]) -> None:
    messages = openai_responses.from_wire(data)
    assert openai_responses.to_wire(messages) == data
    assert is_valid(messages)


@given(wire.blocks())
@MANY
def test_any_anthropic_messages_come_back_as_they_were(
    data: tuple[Any, list[dict[str, Any]]],
) -> None:
    system, wires = data
    messages = anthropic.from_wire(wires, system)
    assert anthropic.to_wire(messages) == data
    assert is_valid(messages)
