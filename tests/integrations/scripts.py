"""What scripted models say in the tests of the frameworks."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
from openai import AsyncOpenAI

from holdfast.agent import Message, ToolCall, assistant
from holdfast.testing import ScriptedModel
from holdfast.testing.scripted import Answer, Seen


def client_at(url: str) -> AsyncOpenAI:
    """A client of a scripted model that keeps no connection for later: nobody would close it."""
    plain: Any = httpx.AsyncClient(limits=httpx.Limits(max_keepalive_connections=0))
    return AsyncOpenAI(api_key="any", base_url=url, max_retries=0, http_client=plain)


def calling(name: str, **arguments: Any) -> Message:
    """A word of a model that calls a tool."""
    return assistant("", [ToolCall(f"call_{name}", name, json.dumps(arguments))])


def scripted(*script: Answer | Callable[[Seen], Answer]) -> ScriptedModel:
    """A model that says these things one after the other, or what a function makes of each."""
    first = script[0]
    if callable(first):
        return ScriptedModel(first)
    return ScriptedModel(list(script))  # type: ignore[arg-type]
