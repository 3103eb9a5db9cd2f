"""LangGraph, SqliteSaver, durability="sync": one node that loops n times."""

import sqlite3
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command

SYNCHRONOUS = {0: "off", 1: "normal", 2: "full", 3: "extra"}

notes = [f"langgraph {version('langgraph')}"]


class State(TypedDict):
    x: int


def loop(n: int, saver: SqliteSaver) -> Any:
    # A Command loops a little cheaper than a conditional edge does.
    def add(state: State) -> Command[str]:
        x = state["x"] + 1
        return Command(update={"x": x}, goto="add" if x < n else END)

    builder = StateGraph(State)
    builder.add_node("add", add, destinations=("add", END))
    builder.add_edge(START, "add")
    return builder.compile(checkpointer=saver)


def run(n: int, folder: Path) -> float:
    connection = sqlite3.connect(folder / "langgraph.sqlite", check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    graph = loop(n, saver)

    start = time.perf_counter()
    result = graph.invoke(
        {"x": 0},
        {"configurable": {"thread_id": "bench"}, "recursion_limit": n + 10},
        durability="sync",
    )
    seconds = time.perf_counter() - start

    assert result["x"] == n
    (recorded,) = connection.execute("select count(*) from checkpoints").fetchone()
    assert recorded >= n, f"LangGraph recorded {recorded} checkpoints for {n} steps"
    (journal,) = connection.execute("pragma journal_mode").fetchone()
    (synchronous,) = connection.execute("pragma synchronous").fetchone()
    connection.close()
    notes.append(f"journal_mode={journal}, synchronous={SYNCHRONOUS[synchronous]}")
    return seconds
