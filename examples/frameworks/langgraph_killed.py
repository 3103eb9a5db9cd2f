"""Kill LangGraph's own durable option and ours at the same moments, and count the effects.

    python -m examples.frameworks.langgraph_killed

The same graph of two nodes makes four effects, two in each node: with `SqliteSaver` and
`durability="sync"`, and with `HoldfastSaver` and `durable_node`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from examples.frameworks.killed import Effects, main
from holdfast import Holdfast
from holdfast.integrations.langgraph import HoldfastSaver, durable_node

CITIES = (("Oslo", "Rome"), ("Bern", "Bonn"))
THREAD: Any = {"configurable": {"thread_id": "trip"}}


class Trip(TypedDict, total=False):
    """What the graph knows."""

    first: str
    second: str


def graph_of(book: Callable[[str], str], wrap: Callable[[Any], Any], saver: Any) -> Any:
    """The graph: the same for both, but for what wraps its nodes."""

    def first(state: Trip) -> Trip:
        return {"first": ", ".join(map(book, CITIES[0]))}

    def second(state: Trip) -> Trip:
        return {"second": ", ".join(map(book, CITIES[1]))}

    built = StateGraph(Trip).add_node("one", wrap(first)).add_node("two", wrap(second))
    built.add_edge(START, "one").add_edge("one", "two").add_edge("two", END)
    return built.compile(checkpointer=saver)


def go_on(graph: Any) -> None:
    """Begin, or go on from the newest checkpoint."""
    begun = graph.get_state(THREAD).created_at is not None
    graph.invoke(None if begun else {"first": ""}, THREAD, durability="sync")


def plain(folder: Path, effects: Effects, url: str) -> None:
    """LangGraph alone."""
    with closing(sqlite3.connect(folder / "checkpoints.db", check_same_thread=False)) as base:
        go_on(graph_of(effects.book, lambda node: node, SqliteSaver(base)))


def ours(folder: Path, effects: Effects, url: str) -> None:
    """LangGraph on Holdfast."""
    with Holdfast(folder / "workspace") as hf:
        go_on(graph_of(effects.tool(), lambda node: durable_node(hf, node), HoldfastSaver(hf)))


if __name__ == "__main__":
    main("langgraph", {"SqliteSaver": plain, "HoldfastSaver with durable_node": ours}, effects=4)
