"""`HoldfastStore` finds what LangGraph's own store finds, and keeps it; threads are imported."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from holdfast import BadInput, Holdfast
from holdfast.cli.root import root
from holdfast.integrations.langgraph import HoldfastSaver, HoldfastStore, import_threads
from holdfast.testing import Clock
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401


def letters(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) + 0.1 for letter in "abc"] for text in texts]


INDEX: Any = {"dims": 3, "embed": letters, "fields": ["text"]}


def filled(store: Any) -> Any:
    for number, text in enumerate(("aaa", "bbb", "abc", "ccc a")):
        store.put(
            ("docs", "x/y" if number % 2 else "z"), f"d {number}", {"text": text, "n": number}
        )
    store.put(("docs", "z"), "d 0", {"text": "cc", "n": 9})
    store.put(("users",), "ada", {"quiet": True}, index=False)
    store.put(("users",), "bob", {"quiet": False})
    store.delete(("users",), "bob")
    return store


def looked_at(store: Any) -> list[Any]:
    def plain(items: Any) -> Any:
        return [(item.namespace, item.key, item.value) for item in items]

    return [
        plain([store.get(("docs", "z"), "d 0")]),
        store.get(("users",), "bob"),
        sorted(plain(store.search(("docs",)))),
        plain(store.search(("docs",), query="aaaa", limit=2)),
        plain(store.search((), query="ccc", limit=1)),
        sorted(plain(store.search(("docs",), filter={"n": {"$gte": 3}}))),
        sorted(store.list_namespaces()),
        sorted(store.list_namespaces(prefix=("docs",), max_depth=1)),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_it_finds_what_the_store_in_memory_finds(new_url, kind):  # noqa: F811
    with Holdfast(new_url(kind)) as hf:
        ours = filled(HoldfastStore(hf, index=INDEX))
        theirs = filled(InMemoryStore(index=INDEX))
        assert looked_at(ours) == looked_at(theirs)
        assert looked_at(HoldfastStore(hf, index=INDEX)) == looked_at(theirs), "after a restart"
        assert hf.verify().sound


def test_async_code_and_batches_work_alike():
    async def main(store: Any) -> Any:
        await asyncio.gather(*(store.aput(("n",), str(n), {"n": n}) for n in range(5)))
        await store.adelete(("n",), "0")
        return sorted(item.key for item in await store.asearch(("n",)))

    with Holdfast("memory://") as hf:
        assert asyncio.run(main(HoldfastStore(hf))) == ["1", "2", "3", "4"]


def test_items_expire_unless_they_are_read():
    clock = Clock()
    with Holdfast("memory://", clock=clock) as hf:
        store = HoldfastStore(hf, ttl={"default_ttl": 1, "refresh_on_read": True})
        for key in ("read", "left"):
            store.put(("n",), key, {"a": 1})
        store.put(("n",), "for good", {"a": 1}, ttl=None)
        for _ in range(3):
            clock.advance(40)
            assert store.get(("n",), "read") is not None
        assert sorted(item.key for item in store.search(("n",))) == ["for good", "read"]


def test_a_value_that_is_no_dict_is_refused():
    with Holdfast("memory://") as hf:
        with pytest.raises(BadInput, match="must be a dict"):
            HoldfastStore(hf).put(("n",), "a", ["x"])
        assert HoldfastStore(hf).search(()) == []


def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"answer to {state['messages'][-1].content}")]}


def graph_on(saver: Any) -> Any:
    built = StateGraph(MessagesState).add_node(answer)
    return built.add_edge(START, "answer").add_edge("answer", END).compile(checkpointer=saver)


def shown(graph: Any, thread: str) -> list[Any]:
    config = {"configurable": {"thread_id": thread}}
    return [
        (state.config, state.parent_config, state.values, state.next, dict(state.metadata))
        for state in graph.get_state_history(config)
    ]


@contextmanager
def saver_of(kind: str, place: str) -> Iterator[Any]:
    """A checkpointer of LangGraph's own, with two threads."""
    opened: Any = PostgresSaver if kind == "postgres" else SqliteSaver
    with opened.from_conn_string(place.removeprefix("sqlite:///")) as saver:
        saver.setup()
        for thread in ("a", "b"):
            for number in range(5):
                config: Any = {"configurable": {"thread_id": thread}}
                graph_on(saver).invoke({"messages": [HumanMessage(f"{thread} {number}")]}, config)
        yield saver


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_threads_of_langgraphs_checkpointers_are_brought_along_and_gone_on_with(
    new_url,  # noqa: F811
    kind,
    tmp_path,
):
    with saver_of(kind, new_url(kind)) as old, Holdfast(tmp_path / "w") as hf:
        found = import_threads(hf, old)
        assert found.threads == ("a", "b") and found.checkpoints == 30
        for thread in ("a", "b"):
            assert shown(graph_on(HoldfastSaver(hf)), thread) == shown(graph_on(old), thread)
        assert import_threads(hf, old).checkpoints == 0, "a second import adds what is new"
        config: Any = {"configurable": {"thread_id": "a"}}
        graph = graph_on(HoldfastSaver(hf))
        graph.invoke({"messages": [HumanMessage("on")]}, config)
        assert len(graph.get_state(config).values["messages"]) == 12
        assert {s.id: s.labels for s in hf.sessions().sessions} == {
            "a": {"imported": "langgraph"}, "b": {"imported": "langgraph"},
        }  # fmt: skip
        assert hf.verify().sound


def test_the_command_line_imports_from_postgresql_and_says_what_is_wrong(new_url, tmp_path):  # noqa: F811
    def holdfast(*words: str) -> Any:
        return CliRunner().invoke(root, ["--url", str(tmp_path / "w"), "import", *words])

    url = new_url("postgres")
    empty = holdfast("langgraph", url)
    assert empty.exit_code == 2 and "no checkpoints of LangGraph" in empty.output
    with saver_of("postgres", url):
        brought = holdfast("langgraph", url, "--only", "b")
    assert brought.exit_code == 0 and "1 session; new: 15 checkpoints" in brought.output
    nobody = holdfast("langgraph", "postgresql://127.0.0.1:1/none?connect_timeout=5")
    assert nobody.exit_code == 2 and "127.0.0.1" in nobody.output
