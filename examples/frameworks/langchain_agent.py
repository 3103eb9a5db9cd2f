"""An agent of LangChain whose model calls and tool calls are journaled by a middleware.

    python -m examples.frameworks.langchain_agent

Kill it wherever you like, and run it again: it goes on, and refunds once.
"""

from __future__ import annotations

import asyncio
from typing import Any

from langchain.agents import create_agent
from langchain_core.tools import tool

from examples.frameworks.chat_model import ChatModel
from examples.frameworks.langgraph_agent import attend
from examples.frameworks.showing import show_thread
from examples.frameworks.tools import post_letter, was_sent, world
from holdfast import Holdfast, current
from holdfast.integrations.langchain import HoldfastMiddleware
from holdfast.integrations.langgraph import HoldfastSaver


@tool
async def refund(order: int) -> str:
    """Refund an order."""
    world().effect("refund", f"order {order}", honour_key=True, key=current().key)
    return f"order {order} is refunded"


@tool
async def send_email(to: str, text: str) -> str:
    """Send an email."""
    world().effect("email", current().key)
    return "sent"


def make_agent(hf: Holdfast, url: str) -> Any:
    """The agent, with the model behind a URL."""
    durable = HoldfastMiddleware(
        hf, tools={"refund": {"in_doubt": "retry"}, "send_email": {"check": was_sent}}
    )
    return create_agent(
        ChatModel(url=url),
        [refund, send_email, tool(post_letter)],
        middleware=[durable],
        checkpointer=HoldfastSaver(hf),
    )


def support(hf: Holdfast, url: str) -> str:
    """Answer a customer."""
    return asyncio.run(attend(make_agent(hf, url)))


if __name__ == "__main__":
    show_thread(support)
