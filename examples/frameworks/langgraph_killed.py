"""Kill LangGraph's own durable option and ours at the same moments, and count the effects.

    python -m examples.frameworks.langgraph_killed

The same graph of two nodes makes four effects, two in each node. It is run once for each moment
right before and right after an effect, killed there with SIGKILL, and run again in a new process:
with `SqliteSaver` and `durability="sync"`, and with `HoldfastSaver` and `durable_node`.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from holdfast import Happened, Holdfast, IdempotencyKey, tool
from holdfast.integrations.langgraph import HoldfastSaver, durable_node

CITIES = (("Oslo", "Rome"), ("Bern", "Bonn"))
MOMENTS = 8
THREAD: Any = {"configurable": {"thread_id": "trip"}}
NO_KEY = IdempotencyKey()


class Trip(TypedDict, total=False):
    """What the graph knows."""

    first: str
    second: str


class Effects:
    """The outside world: a file with a line for each effect; and the moment to die at."""

    def __init__(self, folder: Path, moment: int) -> None:
        self.path = folder / "effects"
        self._left = moment

    def book(self, city: str, key: str = "") -> str:
        self._pass()
        with self.path.open("a") as file:
            file.write(f"{city} {key}\n")
            file.flush()
            os.fsync(file.fileno())
        self._pass()
        return f"room in {city}"

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


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


def plain(folder: Path, effects: Effects) -> None:
    """LangGraph alone."""
    with sqlite3.connect(folder / "checkpoints.db", check_same_thread=False) as base:
        go_on(graph_of(effects.book, lambda node: node, SqliteSaver(base)))
    base.close()


def ours(folder: Path, effects: Effects) -> None:
    """LangGraph on Holdfast."""

    def was_booked(key: str) -> Happened[str] | None:
        found = [line for line in effects.lines() if line.endswith(f" {key}")]
        return Happened(f"room in {found[0].split()[0]}") if found else None

    @tool(check=was_booked)
    def book(city: str, *, key: IdempotencyKey = NO_KEY) -> str:
        return effects.book(city, key)

    with Holdfast(folder / "workspace") as hf:
        go_on(graph_of(book, lambda node: durable_node(hf, node), HoldfastSaver(hf)))


WAYS = {"plain": plain, "ours": ours}


def run_and_kill(way: str, folder: Path, moment: int) -> int:
    """Run in a process that dies at a moment, and in another one to the end; count the effects."""
    for each in (moment, 0):
        command = [sys.executable, "-m", __spec__.name, way, str(folder), str(each)]
        done = subprocess.run(command, check=False)
        expected = -signal.SIGKILL if each else 0
        if done.returncode != expected:
            raise RuntimeError(f"{way} at moment {each} ended with {done.returncode}")
    return len(Effects(folder, 0).lines())


def main(moments: range = range(1, MOMENTS + 1)) -> dict[str, int]:
    """Kill both at each moment, and print how many effects were made in all."""
    needed = 4 * len(moments)
    found = {}
    for way in WAYS:
        with tempfile.TemporaryDirectory() as place:
            counts = []
            for moment in moments:
                folder = Path(place) / str(moment)
                folder.mkdir()
                counts.append(run_and_kill(way, folder, moment))
        found[way] = sum(counts)
    print(
        f"langgraph {version('langgraph')}: killed at {len(moments)} moments, {needed} effects "
        f"were to be made; SqliteSaver made {found['plain']}, HoldfastSaver with durable_node "
        f"{found['ours']}"
    )
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        way, folder, moment = sys.argv[1:]
        WAYS[way](Path(folder), Effects(Path(folder), int(moment)))
    else:
        main()
