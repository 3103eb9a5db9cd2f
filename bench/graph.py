"""What a conversation in a graph of LangGraph costs: `python -m bench.graph SAVER TURNS FOLDER`.

On every turn the user says 500 bytes, and a node answers as many; `durability="sync"`. The savers
are LangGraph's `SqliteSaver`, the same with a delta channel for the messages, and `HoldfastSaver`.
Printed are the seconds of the first and of the second half of the turns, and the bytes on disk
beside those of the messages. `python -m bench --graph-only` has them all, one after the other.
"""

import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.metadata import version
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

TEXT = "blah " * 100
THREAD: Any = {"configurable": {"thread_id": "talk"}}


class Talk(TypedDict):
    messages: Annotated[list[str], add]


def joined(messages: list[str], written: list[list[str]]) -> list[str]:
    """The messages with all that was written since."""
    return [*messages, *(message for each in written for message in each)]


class DeltaTalk(TypedDict):
    messages: Annotated[list[str], DeltaChannel(joined)]


@contextmanager
def sqlite_saver(folder: Path) -> Iterator[Any]:
    with closing(sqlite3.connect(folder / "graph.db", check_same_thread=False)) as base:
        yield SqliteSaver(base)


@contextmanager
def holdfast_saver(url: str) -> Iterator[Any]:
    from holdfast import Holdfast
    from holdfast.integrations.langgraph import HoldfastSaver

    with Holdfast(url) as hf:
        yield HoldfastSaver(hf)


SAVERS: dict[str, tuple[Any, Any]] = {
    "SqliteSaver": (Talk, sqlite_saver),
    "SqliteSaver, delta channel": (DeltaTalk, sqlite_saver),
    "HoldfastSaver, files": (Talk, lambda folder: holdfast_saver(str(folder / "w"))),
    "HoldfastSaver, SQLite": (Talk, lambda folder: holdfast_saver(f"sqlite:///{folder}/w.db")),
    "HoldfastSaver, SQLite, delta channel": (
        DeltaTalk,
        lambda folder: holdfast_saver(f"sqlite:///{folder}/w.db"),
    ),
}


def main(name: str, turns: int, folder: Path) -> None:
    state, saver_in = SAVERS[name]

    def answer(known: Any) -> Any:
        return {"messages": [f"{len(known['messages'])} {TEXT}"]}

    halves: list[float] = []
    with saver_in(folder) as saver:
        built: Any = StateGraph(state)
        built.add_node("answer", answer)
        graph = built.add_edge(START, "answer").add_edge("answer", END).compile(checkpointer=saver)
        start = time.perf_counter()
        for turn in range(turns):
            graph.invoke({"messages": [f"{turn} {TEXT}"]}, THREAD, durability="sync")
            if turn + 1 in (turns // 2, turns):
                halves.append(time.perf_counter() - start)
                start = time.perf_counter()
        messages = graph.get_state(THREAD).values["messages"]
    assert len(messages) == 2 * turns
    files = [each for each in folder.rglob("*") if each.is_file()]
    report = {
        "saver": name,
        "langgraph": version("langgraph"),
        "turns": turns,
        "first_half_s": halves[0],
        "second_half_s": halves[1],
        "messages_bytes": len(json.dumps(messages)),
        "disk_bytes": sum(each.stat().st_size for each in files),
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
