"""A node that LangGraph runs again repeats no effect; a call in doubt interrupts the graph."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command

from holdfast import Holdfast, NotDurable, ask, tool
from holdfast.cli.root import root
from holdfast.integrations.langgraph import HoldfastSaver, durable_node, durable_tool
from tests.flavors import Crash

CONFIG: Any = {"configurable": {"thread_id": "t"}}
HELLO: Any = {"messages": [HumanMessage("hello")]}


def graph_of(hf: Holdfast, node: Any, *, saver: bool = True) -> Any:
    built = StateGraph(MessagesState).add_node("node", node)
    built.add_edge(START, "node").add_edge("node", END)
    return built.compile(checkpointer=HoldfastSaver(hf) if saver else None)


def test_what_was_done_before_a_crash_or_an_error_is_not_done_again(hf):
    done, troubles = [], [Crash, ValueError("bad luck")]

    @tool
    def pay_for_node(what: str) -> str:
        done.append(what)
        return f"paid {what}"

    def paying(state: MessagesState) -> dict[str, Any]:
        first = pay_for_node("room")
        if troubles:
            raise troubles.pop(0)
        return {"messages": [AIMessage(f"{first}, {pay_for_node('desk')}")]}

    graph = graph_of(hf, durable_node(hf, paying))
    with pytest.raises(Crash):
        graph.invoke(HELLO, CONFIG)
    with pytest.raises(ValueError, match="bad luck"):
        graph.invoke(None, CONFIG)
    assert graph.invoke(None, CONFIG)["messages"][-1].content == "paid room, paid desk"
    assert done == ["room", "desk"]
    (view,) = hf.tasks(session="t")
    assert view.status == "completed" and [call.name for call in view.calls] == ["pay_for_node"] * 2


def test_a_question_and_a_call_in_doubt_are_interrupts(hf):
    dies = [True]

    @tool(in_doubt="ask")
    def post_in_node() -> str:
        if dies:
            dies.clear()
            raise Crash
        return "posted"

    def posting(state: MessagesState) -> dict[str, Any]:
        if not ask("Post it?", bool):
            return {"messages": [AIMessage("left it")]}
        return {"messages": [AIMessage(post_in_node())]}

    graph = graph_of(hf, durable_node(hf, posting))
    (asked,) = graph.invoke(HELLO, CONFIG)["__interrupt__"]
    assert "Post it?" in asked.value["question"]
    with pytest.raises(Crash):
        graph.invoke(Command(resume=True), CONFIG)
    (doubt,) = graph.invoke(None, CONFIG)["__interrupt__"]
    assert doubt.value["in_doubt"] == "post_in_node"
    found = graph.invoke(Command(resume={"happened": False}), CONFIG)
    assert found["messages"][-1].content == "posted"


def test_a_tool_of_langchain_is_called_once_for_each_call_of_the_model(hf):
    booked, troubles = [], [Crash]

    def book(city: str) -> str:
        """Book a room."""
        booked.append(city)
        return f"booked {city}"

    def fail(state: MessagesState) -> dict[str, Any]:
        if troubles:
            raise troubles.pop()
        return {"messages": [AIMessage("done")]}

    calls = [
        {"name": "book", "args": {"city": c}, "id": c, "type": "tool_call"} for c in ("a", "b")
    ]
    built = StateGraph(MessagesState).add_node("tools", ToolNode([durable_tool(hf, book)]))
    built.add_node("fail", fail).add_edge(START, "tools").add_edge("tools", "fail")
    graph = built.add_edge("fail", END).compile(checkpointer=HoldfastSaver(hf))
    given: Any = {"messages": [AIMessage("", tool_calls=calls)]}
    with pytest.raises(Crash):
        graph.invoke(given, CONFIG)
    found = graph.invoke(None, CONFIG)["messages"]
    assert [m.content for m in found[1:]] == ["booked a", "booked b", "done"]
    assert sorted(booked) == ["a", "b"]


def test_async_nodes_work_alike(hf):
    async def answering(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("hi")]}

    graph = graph_of(hf, durable_node(hf, answering))
    assert asyncio.run(graph.ainvoke(HELLO, CONFIG))["messages"][-1].content == "hi"


def test_without_a_thread_the_node_runs_and_you_are_warned(hf):
    def answering(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage("hi")]}

    with pytest.warns(NotDurable, match="thread_id"):
        found = graph_of(hf, durable_node(hf, answering), saver=False).invoke(HELLO)
    assert found["messages"][-1].content == "hi" and list(hf.tasks()) == []


def holdfast(*words: str) -> str:
    ended = CliRunner().invoke(root, words, prog_name="holdfast")
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def test_the_commands_show_a_thread_and_its_tasks_in_readable_form(tmp_path):
    @tool
    def look_up_in_node(city: str) -> str:
        return f"a room in {city}"

    def looking(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(look_up_in_node("Oslo"))]}

    with Holdfast(tmp_path / "w") as hf:
        graph_of(hf, durable_node(hf, looking)).invoke(HELLO, CONFIG)
        (task,) = [view.id for view in hf.tasks(session="t")]
    session = holdfast("session", "t", "--url", str(tmp_path / "w"))
    assert "from=langgraph" in session and f"holdfast show {task}" in session
    shown = holdfast("show", task, "--url", str(tmp_path / "w"))
    assert "look_up_in_node" in shown and "AIMessage" in shown and "lc:serde" not in shown
