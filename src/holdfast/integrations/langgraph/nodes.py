"""`durable_node` and `durable_tool`: what a node does is journaled, and is done once.

LangGraph runs a node again that had not ended when the process died, or that was interrupted. Its
id is the same then, and so is that of our task, so steps and tools that were recorded answer from
the log. A call in doubt, and a question that the node asks (`ask`), become an `interrupt` of
LangGraph: `Command(resume=…)` answers it.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar, Unpack

from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as make_tool
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.config import get_config
from langgraph.types import Command, interrupt

from holdfast.api.app import Holdfast
from holdfast.core.scope import scope_var
from holdfast.core.spec import is_async
from holdfast.errors import NotDurable
from holdfast.integrations.calls import CallOptions, Piece, journaled_call
from holdfast.integrations.langgraph.encoding import Encoding

P = ParamSpec("P")
R = TypeVar("R")

_encoding = Encoding(JsonPlusSerializer(), readable=True)


def durable_node(hf: Holdfast, node: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """A node as a task of ours: the steps and tools that it calls are journaled, and so is its
    result. Its code has to replay, as that of any task.

    >>> from holdfast import Holdfast, tool
    >>> from holdfast.integrations.langgraph import HoldfastSaver, durable_node
    >>> from langgraph.graph import END, START, MessagesState, StateGraph
    >>> @tool
    ... def book_a_room(city: str) -> str:
    ...     return f"booked in {city}"
    >>> def booking(state: MessagesState) -> dict[str, object]:
    ...     return {"messages": [("assistant", book_a_room("Oslo"))]}
    >>> with Holdfast("memory://") as hf:
    ...     built = StateGraph(MessagesState).add_node("booking", durable_node(hf, booking))
    ...     built = built.add_edge(START, "booking").add_edge("booking", END)
    ...     graph = built.compile(checkpointer=HoldfastSaver(hf))
    ...     config = {"configurable": {"thread_id": "trip-1"}}
    ...     graph.invoke({"messages": [("user", "a room, please")]}, config)["messages"][-1].content
    ...     [call.name for call in next(iter(hf.tasks(session="trip-1"))).calls]
    'booked in Oslo'
    ['book_a_room']
    """
    called = str(name or getattr(node, "__name__", type(node).__name__))

    @functools.wraps(node)
    def run(*args: Any, **kwargs: Any) -> Any:
        piece = piece_of(hf, called, _config())
        if piece is None:
            return node(*args, **kwargs)
        return _encoding.load(piece.run(lambda: _encoding.dump(node(*args, **kwargs)), interrupt))

    @functools.wraps(node)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        async def body() -> Any:
            return _encoding.dump(await node(*args, **kwargs))  # type: ignore[misc]

        piece = piece_of(hf, called, _config())
        if piece is None:
            return await node(*args, **kwargs)  # type: ignore[misc]
        return _encoding.load(await piece.arun(body, interrupt))

    return arun if is_async(node) else run  # type: ignore[return-value]


def durable_tool(
    hf: Holdfast, tool: BaseTool | Callable[..., Any], **policy: Unpack[CallOptions]
) -> BaseTool:
    """A tool of LangChain whose calls are journaled: each call that a model asked for is made once.

    `policy` is what `@tool` takes: `in_doubt`, `check`, `retry`, `timeout_s`, `approve`. The key of
    a call is `holdfast.current().key` inside the tool. An exception of the tool is not recorded: an
    error that the agent handles is handled anew.
    """
    inner = tool if isinstance(tool, BaseTool) else make_tool(tool)
    return DurableTool(
        name=inner.name,
        description=inner.description,
        args_schema=inner.args_schema,
        return_direct=inner.return_direct,
        hf=hf,
        inner=inner,
        policy=dict(policy),
    )


class DurableTool(BaseTool):
    """Made by `durable_tool`."""

    hf: Any
    inner: BaseTool
    policy: dict[str, Any]

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """Make the call, or answer from the log."""
        given = config or _config()
        piece = piece_of(self.hf, self.name, given, _call_id(input))
        if piece is None:
            return self.inner.invoke(input, config, **kwargs)

        def body(args: Any) -> Any:
            return tool_record(self.inner.invoke(input, config, **kwargs), input)

        call = journaled_call(self.name, "tool", body, self.policy)  # type: ignore[arg-type]
        return tool_answer(piece.run(lambda: call(_args(input)), interrupt), input)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """`invoke` for async code."""
        given = config or _config()
        piece = piece_of(self.hf, self.name, given, _call_id(input))
        if piece is None:
            return await self.inner.ainvoke(input, config, **kwargs)

        async def body(args: Any) -> Any:
            return tool_record(await self.inner.ainvoke(input, config, **kwargs), input)

        call = journaled_call(self.name, "tool", body, self.policy)  # type: ignore[arg-type]

        async def run() -> Any:
            return await call(_args(input))

        return tool_answer(await piece.arun(run, interrupt), input)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner._run(*args, **kwargs)


def piece_of(hf: Holdfast, name: str, config: RunnableConfig, *more: str) -> Piece | None:
    """The piece of a graph that runs now; None, with a warning, where nothing could go on with it.

    Its id is made of the thread, the node, and LangGraph's id of this run of the node, which is
    the same when the node is run again.
    """
    given: Mapping[str, Any] = config.get("configurable", {})
    thread, run = given.get("thread_id"), given.get("__pregel_task_id")
    if scope_var.get() is not None:
        about = config.get("metadata", {})
        place = (about.get("langgraph_step"), about.get("langgraph_node"), *more)
        return Piece(hf, name, ":".join(map(str, place)))
    if thread is None or run is None:
        warnings.warn(
            f"{name} runs in a graph without a thread, or outside of any: nothing is recorded. "
            f"Compile the graph with a checkpointer and give a thread_id, or run it in a task",
            NotDurable,
            stacklevel=3,
        )
        return None
    return Piece(hf, name, ":".join((str(thread), name, str(run), *more)), str(thread))


def tool_record(answer: Any, call: Any) -> Any:
    """The answer of a tool as the log has it: without the message around it, where that says
    nothing more. So a check, and a person, would say it."""
    said = getattr(answer, "content", None)
    if isinstance(said, str) and tool_answer(said, call) == answer:
        return said
    return _encoding.dump(answer)


def tool_answer(data: Any, call: Any) -> Any:
    """The answer of a tool, in a message if a model's call asked for it."""
    found = _encoding.load(data)
    is_call = isinstance(call, Mapping) and call.get("type") == "tool_call"
    if not is_call or isinstance(found, ToolMessage | Command):
        return found
    text = found if isinstance(found, str) else json.dumps(data, ensure_ascii=False)
    return ToolMessage(text, name=call["name"], tool_call_id=str(call.get("id") or ""))


def _config() -> RunnableConfig:
    try:
        return get_config()
    except RuntimeError:  # outside of any graph
        return {}


def _call_id(input: Any) -> str:
    return str(input.get("id") or "") if isinstance(input, Mapping) else ""


def _args(input: Any) -> Any:
    """The arguments of a call as they are recorded."""
    given = input.get("args", input) if isinstance(input, Mapping) else input
    kept = (
        {k: v for k, v in given.items() if k not in _INJECTED} if isinstance(given, dict) else given
    )
    return _encoding.dump(kept)


_INJECTED = frozenset({"runtime", "state", "store"})
