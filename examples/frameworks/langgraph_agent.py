"""A graph of LangGraph whose nodes repeat no effect.

    python -m examples.frameworks.langgraph_agent

Kill it wherever you like, and run it again: it goes on, and refunds once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Command

from examples.frameworks.chat_model import ChatModel
from examples.frameworks.script import QUESTION
from examples.frameworks.showing import show_thread
from examples.frameworks.tools import letter_is_there, post_letter, refund, send_email
from holdfast import Holdfast, tool
from holdfast.integrations.langgraph import HoldfastSaver, durable_node

THREAD: Any = {"configurable": {"thread_id": "support-1"}}
TOOLS: dict[str, Callable[..., Awaitable[str]]] = {
    "refund": refund,
    "send_email": send_email,
    "post_letter": tool(post_letter),
}


async def use_tools(state: MessagesState) -> dict[str, Any]:
    """The node that does what the model asked for."""
    asked = state["messages"][-1]
    calls = asked.tool_calls if isinstance(asked, AIMessage) else []
    answers = [
        ToolMessage(await TOOLS[call["name"]](**call["args"]), tool_call_id=call["id"] or "")
        for call in calls
    ]
    return {"messages": answers}


def wants_more(state: MessagesState) -> str:
    """Where the graph goes from the model."""
    last = state["messages"][-1]
    return "tools" if isinstance(last, AIMessage) and last.tool_calls else END


def make_graph(hf: Holdfast, url: str) -> Any:
    """The graph, with the model behind a URL."""

    async def ask_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await ChatModel(url=url).ainvoke(state["messages"])]}

    built = StateGraph(MessagesState).add_node("model", durable_node(hf, ask_model))
    built.add_node("tools", durable_node(hf, use_tools))
    built.add_edge(START, "model").add_conditional_edges("model", wants_more, ["tools", END])
    return built.add_edge("tools", "model").compile(checkpointer=HoldfastSaver(hf))


async def attend(graph: Any) -> str:
    """Run the graph, or go on with it; a person settles what is in doubt."""
    begun = (await graph.aget_state(THREAD)).created_at is not None
    given: Any = None if begun else {"messages": [HumanMessage(QUESTION)]}
    while True:
        found = await graph.ainvoke(given, THREAD, durability="sync")
        if "__interrupt__" not in (found or {}):
            state = await graph.aget_state(THREAD)
            return str(state.values["messages"][-1].content)
        # A person looks into the letter box.
        happened = letter_is_there("Ada")
        given = Command(resume={"happened": happened, "result": "posted" if happened else None})


def support(hf: Holdfast, url: str) -> str:
    """Answer a customer."""
    return asyncio.run(attend(make_graph(hf, url)))


if __name__ == "__main__":
    show_thread(support)
