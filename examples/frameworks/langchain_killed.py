"""Kill a LangChain agent with its own durable option and with ours, and count the effects.

    python -m examples.frameworks.langchain_killed

The same agent has LangGraph's `SqliteSaver` with `durability="sync"`, or `HoldfastSaver` and
`HoldfastMiddleware`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.sqlite import SqliteSaver

from examples.frameworks.chat_model import ChatModel
from examples.frameworks.killed import QUESTION, Effects, main
from holdfast import Holdfast, current
from holdfast.integrations.langchain import HoldfastMiddleware
from holdfast.integrations.langgraph import HoldfastSaver

THREAD: Any = {"configurable": {"thread_id": "trip"}}


def go_on(agent: Any) -> None:
    """Begin, or go on from the newest checkpoint."""
    begun = agent.get_state(THREAD).created_at is not None
    given = None if begun else {"messages": [HumanMessage(QUESTION)]}
    agent.invoke(given, THREAD, durability="sync")


def plain(folder: Path, effects: Effects, url: str) -> None:
    """LangChain with LangGraph's checkpointer."""

    def book(city: str) -> str:
        """Book a room."""
        return effects.book(city)

    with closing(sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)) as base:
        tools = [StructuredTool.from_function(book)]
        go_on(create_agent(ChatModel(url=url), tools, checkpointer=SqliteSaver(base)))


def ours(folder: Path, effects: Effects, url: str) -> None:
    """LangChain on Holdfast."""

    def book(city: str) -> str:
        """Book a room."""
        return effects.book(city, current().key)

    with Holdfast(folder / "workspace") as hf:
        durable = HoldfastMiddleware(hf, tools={"book": {"check": effects.was_booked}})
        tools = [StructuredTool.from_function(book)]
        saver = HoldfastSaver(hf)
        go_on(create_agent(ChatModel(url=url), tools, middleware=[durable], checkpointer=saver))


if __name__ == "__main__":
    main("langchain", {"SqliteSaver": plain, "HoldfastMiddleware with HoldfastSaver": ours})
