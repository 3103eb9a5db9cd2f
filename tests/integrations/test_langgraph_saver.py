"""`HoldfastSaver` passes LangGraph's own conformance suite, and costs what is new."""

from __future__ import annotations

import asyncio
import copy
import json
from typing import Annotated, Any

import pytest
from click.testing import CliRunner
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, MessagesState, StateGraph
from typing_extensions import TypedDict

from holdfast import BadInput, Holdfast
from holdfast.cli.root import root
from holdfast.integrations.langgraph import HoldfastSaver
from holdfast.integrations.langgraph.encoding import Encoding
from holdfast.views.sessions import SessionView
from tests.stores.every import LASTING, new_url, postgres_server  # noqa: F401


@pytest.mark.parametrize("kind", LASTING)
def test_it_has_every_capability_of_the_public_suite(new_url, kind):  # noqa: F811
    @checkpointer_test(name=f"HoldfastSaver on {kind}")
    async def make():
        with Holdfast(new_url(kind)) as hf:
            yield HoldfastSaver(hf)

    report = asyncio.run(validate(make))
    assert set(report.results) == {each.value for each in ALL_CAPABILITIES}
    failed = {name: found.failures for name, found in report.results.items() if not found.passed}
    assert not failed
    assert sum(found.tests_passed for found in report.results.values()) >= 81


def answer(state: MessagesState) -> dict[str, Any]:
    return {"messages": [AIMessage(f"answer to {state['messages'][-1].content}")]}


def graph_on(saver: Any) -> Any:
    built = StateGraph(MessagesState).add_node(answer)
    return built.add_edge(START, "answer").add_edge("answer", END).compile(checkpointer=saver)


def config(thread: str = "t") -> Any:
    return {"configurable": {"thread_id": thread}}


def turns(graph: Any, count: int) -> list[str]:
    for number in range(count):
        graph.invoke({"messages": [HumanMessage(f"question {number} {'x' * 200}")]}, config())
    return [message.content for message in graph.get_state(config()).values["messages"]]


def test_another_process_goes_on_with_a_thread_and_time_travel_forks_it(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        said = turns(graph_on(HoldfastSaver(hf)), 5)
    with Holdfast(tmp_path / "w") as hf:
        graph = graph_on(HoldfastSaver(hf))
        assert [m.content for m in graph.get_state(config()).values["messages"]] == said
        history = list(graph.get_state_history(config()))
        then = next(each for each in history if len(each.values["messages"]) == 4)
        graph.invoke({"messages": [HumanMessage("another way")]}, then.config)
        now = graph.get_state(config()).values["messages"]
        assert [m.content for m in now] == [*said[:4], "another way", "answer to another way"]
        assert [len(s.values.get("messages", ())) for s in history] == [
            len(s.values.get("messages", ())) for s in list(graph.get_state_history(config()))[3:]
        ]
        assert hf.verify().sound and hf.sessions().sessions[0].id == "t"


def test_a_thread_is_shown_and_compared_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Holdfast("workspace") as hf:
        graph = graph_on(HoldfastSaver(hf))
        for thread, last in (("t", "thanks"), ("u", "goodbye")):
            for said in ("one", "two", "three", last):
                graph.invoke({"messages": [HumanMessage(said)]}, config(thread))
        length = len(list(graph.get_state_history(config())))

    def holdfast(*args: str) -> tuple[int, str]:
        done = CliRunner().invoke(root, list(args))
        return done.exit_code, done.output

    code, told = holdfast("show", "t", "--json")
    shown = json.loads(told)
    assert code == 0 and len(shown["checkpoints"]) == length
    assert [m["content"] for m in shown["values"]["messages"]][-2:] == [
        "thanks",
        "answer to thanks",
    ]
    newest = shown["checkpoints"][-1]
    assert (
        newest["name"] == "answer"
        and newest["new"]["messages"][-1]["content"] == "answer to thanks"
    )
    assert "answer to thanks" in holdfast("show", "t")[1]

    code, told = holdfast("diff", "t", "--from", str(length - 1), "--to", newest["id"])
    assert code == 1 and "answer to thanks" in told and len(told.splitlines()) == 1
    code, told = holdfast("diff", "t", "--from", "99")
    assert code == 2 and f"it has {length}" in told

    code, told = holdfast("compare", "t", "u", "--json")
    (alignment,) = json.loads(told)["alignments"]
    assert code == 1 and alignment["first"]["a"]["path"] == str(length - 1)
    assert holdfast("compare", "t", "t")[0] == 0


@pytest.mark.parametrize("with_ids", [True, False])
def test_the_values_of_a_thread_are_read_without_langgraph(with_ids):
    given = {"id": "m1"} if with_ids else {}
    with Holdfast("memory://") as hf:
        saver = HoldfastSaver(hf)
        graph = graph_on(saver)
        graph.invoke({"messages": [HumanMessage("one", **given)]}, config())
        for number in range(6):
            graph.invoke({"messages": [HumanMessage(f"more {number}")]}, config())
        graph.update_state(config(), {"messages": [HumanMessage("edited", **given)]})
        session = hf.session("t")
        view = SessionView(hf.store, session.state, session.messages())
        history = list(graph.get_state_history(config()))[::-1]
        assert [each.id for each in view.moments] == [
            each.config["configurable"]["checkpoint_id"] for each in history
        ]
        for number, each in enumerate(history, 1):
            held = view.content(number)["values"].get("messages", [])
            assert [m["content"] for m in held] == [
                m.content for m in each.values.get("messages", ())
            ]


def test_a_thread_costs_what_is_new_in_it(tmp_path):
    sizes = []
    with Holdfast(tmp_path / "w") as hf:
        graph = graph_on(HoldfastSaver(hf))
        for _ in range(2):
            turns(graph, 30)
            sizes.append(sum(len(line) for line in hf.store.read("sessions/t")))
    assert sizes[1] < 2.1 * sizes[0]
    assert sizes[1] / 60 < 12 * 450, "each turn is a handful of lines"


def test_a_message_that_a_node_changed_in_place_is_written_anew(tmp_path):
    def changing(state: MessagesState) -> dict[str, Any]:
        state["messages"][0].content = "changed"
        state["messages"][1].additional_kwargs["mark"] = [len(state["messages"])]
        return {"messages": state["messages"]}

    with Holdfast(tmp_path / "w") as hf:
        saver = HoldfastSaver(hf)
        turns(graph_on(saver), 4)
        built = StateGraph(MessagesState).add_node(changing)
        graph = built.add_edge(START, "changing").add_edge("changing", END)
        graph.compile(checkpointer=saver).invoke({"messages": [HumanMessage("more")]}, config())
    with Holdfast(tmp_path / "w") as hf:
        found = graph_on(HoldfastSaver(hf)).get_state(config()).values["messages"]
        assert found[0].content == "changed" and found[1].additional_kwargs == {"mark": [9]}


def test_what_a_caller_does_to_a_loaded_message_changes_nothing(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        graph = graph_on(HoldfastSaver(hf))
        turns(graph, 4)
        loaded = graph.get_state(config()).values["messages"]
        before = copy.deepcopy(loaded)
        loaded[0].content = "spoiled"
        loaded[1].additional_kwargs["spoiled"] = True
        assert graph.get_state(config()).values["messages"] == before


def test_messages_that_are_removed_and_replaced_are_gone(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        graph = graph_on(HoldfastSaver(hf))
        turns(graph, 5)
        first = graph.get_state(config()).values["messages"][0]
        graph.update_state(config(), {"messages": [RemoveMessage(id=first.id)]})
        left = graph.get_state(config()).values["messages"]
        assert len(left) == 9 and first not in left


VALUES = [
    None, 1, 1.5, float("inf"), "x", b"\0", [1, [2]], {"a": {"$b": 1}}, {1: 2},
    {"lc:message": "AIMessage"}, {1, 2}, [HumanMessage("a"), {"x": {1}}],
    {"messages": [AIMessage("a"), {1, 2}], "deep": {"m": HumanMessage("c"), "lc:x": 1}},
    AIMessage("", tool_calls=[{"name": "f", "args": {"a": 1}, "id": "1", "type": "tool_call"}]),
    AIMessage([{"type": "text", "text": "hi"}], id="1", usage_metadata={
        "input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
    ToolMessage("x", tool_call_id="1", artifact={"a": b"1"}, status="error"),
    ToolMessage("x", tool_call_id="1", name="f"),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:40])
@pytest.mark.parametrize("readable", [True, False])
def test_values_come_back_as_they_were(value, readable):
    import msgspec

    encoding = Encoding(JsonPlusSerializer(), readable=readable)
    data = msgspec.json.decode(msgspec.json.encode(encoding.dump(value)))
    found = encoding.load(data)
    assert found == value and type(found) is type(value)


class Turned:
    """Stands for a cipher."""

    def encrypt(self, plaintext: bytes) -> tuple[str, bytes]:
        return "turned", plaintext[::-1]

    def decrypt(self, ciphername: str, ciphertext: bytes) -> bytes:
        return ciphertext[::-1]


def test_messages_are_readable_in_the_log_unless_a_serializer_hides_them(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        turns(graph_on(HoldfastSaver(hf)), 1)
        assert b'"lc:message":"HumanMessage","content":"question 0' in b"".join(
            hf.store.read("sessions/t")
        )
    with Holdfast(tmp_path / "x") as hf:
        serde = EncryptedSerializer(Turned(), JsonPlusSerializer())
        said = turns(graph_on(HoldfastSaver(hf, serde=serde)), 6)
        assert len(said) == 12
        assert b"question" not in b"".join(hf.store.read("sessions/t"))


def join(old: list[str], new: list[list[str]]) -> list[str]:
    return [*(old or []), *(item for each in new for item in each)]


class Words(TypedDict):
    words: Annotated[list[str], DeltaChannel(join, snapshot_frequency=3)]


def add_word(state: Words) -> dict[str, Any]:
    return {"words": [f"w{len(state['words'])}"]}


def test_delta_channels_are_rebuilt_as_in_memory_and_outlive_a_prune(tmp_path):
    def built(saver: Any) -> Any:
        graph = StateGraph(Words).add_node("add", add_word)
        return graph.add_edge(START, "add").add_edge("add", END).compile(checkpointer=saver)

    with Holdfast(tmp_path / "w") as hf:
        saver = HoldfastSaver(hf)
        ours, theirs = built(saver), built(InMemorySaver())
        for graph in (ours, theirs):
            for number in range(7):
                graph.invoke({"words": [f"in{number}"]}, config())
        expected = theirs.get_state(config()).values
        assert ours.get_state(config()).values == expected and len(expected["words"]) == 14
        saver.prune(["t"])
        assert ours.get_state(config()).values == expected
        ours.invoke({"words": ["more"]}, config())
        assert len(ours.get_state(config()).values["words"]) == 16


def test_a_pruned_thread_of_long_lists_goes_on(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        saver = HoldfastSaver(hf)
        said = turns(graph_on(saver), 6)
        saver.prune(["t"])
        assert len(list(saver.list(config()))) == 1
    with Holdfast(tmp_path / "w") as hf:
        graph = graph_on(HoldfastSaver(hf))
        assert [m.content for m in graph.get_state(config()).values["messages"]] == said
        assert len(turns(graph, 1)) == len(said) + 2


@pytest.mark.parametrize("thread", ["", None, 3.5, "\ud800", "x" * 300, "a\nb"])
def test_an_id_that_can_name_no_thread_is_refused(thread):
    with Holdfast("memory://") as hf:
        saver = HoldfastSaver(hf)
        with pytest.raises((BadInput, ValueError)):
            saver.put(
                {"configurable": {"thread_id": thread, "checkpoint_ns": ""}},
                empty_checkpoint(), {}, {},
            )  # fmt: skip
        assert list(saver.list(None)) == []


def test_a_graph_without_a_thread_is_told_what_to_do():
    with Holdfast("memory://") as hf, pytest.raises((BadInput, ValueError), match="thread_id"):
        graph_on(HoldfastSaver(hf)).invoke({"messages": [HumanMessage("x")]})


def test_a_thread_is_deleted_with_its_log_but_a_conversation_stays(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        saver = HoldfastSaver(hf)
        turns(graph_on(saver), 1)
        saver.delete_thread("t")
        assert list(hf.store.read("sessions/t")) == [] and saver.get_tuple(config()) is None
        hf.session("t").say("hello")
        turns(graph_on(saver), 1)
        saver.delete_thread("t")
        assert saver.get_tuple(config()) is None
        assert [message.text for message in hf.session("t").messages()] == ["hello"]


def test_async_graphs_work_alike(tmp_path):
    async def main(graph: Any) -> int:
        await graph.ainvoke({"messages": [HumanMessage("hi")]}, config())
        return len([each async for each in graph.aget_state_history(config())])

    with Holdfast(tmp_path / "w") as hf:
        assert asyncio.run(main(graph_on(HoldfastSaver(hf)))) == 3
