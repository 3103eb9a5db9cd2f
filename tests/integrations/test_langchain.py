"""LangChain's own suites for stores and caches pass, sync and async; agents repeat nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration
from langchain_core.tools import tool
from langchain_tests.integration_tests import (
    AsyncCacheTestSuite,
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    SyncCacheTestSuite,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from holdfast import BadInput, Holdfast, NotDurable, current, task
from holdfast.integrations.langchain import (
    HoldfastByteStore,
    HoldfastCache,
    HoldfastKVStore,
    HoldfastMiddleware,
)
from holdfast.integrations.langgraph import HoldfastSaver
from tests.flavors import Crash


class BytesGiven:
    @pytest.fixture
    def kv_store(self, hf):
        return HoldfastByteStore(hf, "bytes")

    @pytest.fixture
    def three_values(self):
        return b"foo", b"\0\xff", b""


class ValuesGiven:
    @pytest.fixture
    def kv_store(self, hf):
        return HoldfastKVStore(hf, "typed", of=dict[str, int])

    @pytest.fixture
    def three_values(self):
        return {"a": 1}, {}, {"c": 3}


class CacheGiven:
    @pytest.fixture
    def cache(self, hf):
        return HoldfastCache(hf)


class TestBytes(BytesGiven, BaseStoreSyncTests[bytes]):
    pass


@pytest.mark.filterwarnings("ignore:.*asyncio mark")
@pytest.mark.asyncio
class TestBytesAsync(BytesGiven, BaseStoreAsyncTests[bytes]):
    pass


class TestValues(ValuesGiven, BaseStoreSyncTests[dict[str, int]]):
    pass


@pytest.mark.filterwarnings("ignore:.*asyncio mark")
@pytest.mark.asyncio
class TestValuesAsync(ValuesGiven, BaseStoreAsyncTests[dict[str, int]]):
    pass


class TestCache(CacheGiven, SyncCacheTestSuite):
    pass


@pytest.mark.filterwarnings("ignore:.*asyncio mark")
@pytest.mark.asyncio
class TestCacheAsync(CacheGiven, AsyncCacheTestSuite):
    pass


def test_a_cache_keeps_chat_answers_with_all_that_is_in_them(hf):
    answer = ChatGeneration(
        message=AIMessage("hi", id="1", response_metadata={"model": "m"}),
        generation_info={"finish_reason": "stop"},
    )
    HoldfastCache(hf).update("p", "m", [answer])
    assert HoldfastCache(hf).lookup("p", "m") == [answer]
    with pytest.raises(BadInput, match="keeps Generations"):
        HoldfastCache(hf).update("p", "m", [object()])


# Agents


class World:
    """What the agent does, and the place where the process dies."""

    def __init__(self) -> None:
        self.booked: list[str] = []
        self.asked = 0
        self.dies_after = ""

    def agent(self, hf: Holdfast, saver: Any, **policy: Any) -> Any:
        world = self
        policies: Any = {"book": policy} if policy else None

        class Model(GenericFakeChatModel):
            def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
                return self

            def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
                world.asked += 1
                answers = sum(isinstance(each, ToolMessage) for each in messages)
                self.messages = iter([answer_to(answers)])
                return super()._generate(messages, *args, **kwargs)

        @tool
        def book(city: str) -> str:
            """Book a room."""
            world.booked.append(city)
            if world.dies_after == city:
                world.dies_after = ""
                raise Crash
            return f"booked {city} as {current().key[:3]}"

        return create_agent(
            Model(messages=iter([])), [book], checkpointer=saver,
            middleware=[HoldfastMiddleware(hf, tools=policies)],
        )  # fmt: skip


def answer_to(results: int) -> AIMessage:
    cities = [("Oslo", "Rome"), ("Bern",)]
    if results >= 3:
        return AIMessage("done")
    asked = cities[0] if results == 0 else cities[1]
    return AIMessage(
        "", tool_calls=[{"name": "book", "args": {"city": c}, "id": f"call-{c}"} for c in asked]
    )


CONFIG: Any = {"configurable": {"thread_id": "trip"}}
ASK = {"messages": [HumanMessage("book all")]}


def test_an_agent_that_goes_on_repeats_neither_model_nor_tools(hf):
    world = World()
    agent = world.agent(hf, HoldfastSaver(hf), in_doubt="ask")
    world.dies_after = "Bern"
    with pytest.raises(Crash):
        agent.invoke(ASK, CONFIG)
    before = world.asked
    found = agent.invoke(None, CONFIG)
    assert "__interrupt__" in found, "the call in doubt stops the agent for a person"
    shown = found["__interrupt__"][0].value
    assert shown["in_doubt"] == "book" and "Bern" not in shown["why"]
    found = agent.invoke(Command(resume={"happened": True, "result": "booked Bern"}), CONFIG)
    *_, told, last = found["messages"]
    assert (told.content, told.tool_call_id, last.content) == ("booked Bern", "call-Bern", "done")
    assert sorted(world.booked) == ["Bern", "Oslo", "Rome"]
    assert world.asked == before + 1


def test_a_policy_settles_a_call_in_doubt_without_a_person(hf):
    world = World()
    agent = world.agent(hf, HoldfastSaver(hf), in_doubt="retry")
    world.dies_after = "Rome"
    with pytest.raises(Crash):
        agent.invoke(ASK, CONFIG)
    assert agent.invoke(None, CONFIG)["messages"][-1].content == "done"
    assert sorted(world.booked) == ["Bern", "Oslo", "Rome", "Rome"]


def test_inside_a_task_the_calls_are_in_its_log(hf):
    world = World()
    agent = world.agent(hf, None, in_doubt="retry")

    @task
    def trip() -> str:
        return str(agent.invoke(ASK)["messages"][-1].content)

    world.dies_after = "Bern"
    with pytest.raises(Crash):
        hf.run(trip, id="trip-1")
    asked = world.asked
    assert hf.run(trip, id="trip-1") == "done"
    assert world.asked == asked + 1 and sorted(world.booked) == ["Bern", "Bern", "Oslo", "Rome"]
    names = [call.name for call in hf.task("trip-1").calls]
    assert sorted(names) == ["book", "book", "book", "model", "model", "model"]


def test_async_agents_and_async_tasks_work_alike(hf):
    world = World()
    agent = world.agent(hf, HoldfastSaver(hf), in_doubt="retry")
    bare = world.agent(hf, None, in_doubt="retry")

    @task
    async def atrip() -> str:
        return str((await bare.ainvoke(ASK))["messages"][-1].content)

    async def main() -> list[str]:
        first = (await agent.ainvoke(ASK, CONFIG))["messages"][-1].content
        return [first, await hf.arun(atrip, id="a-1"), await hf.arun(atrip, id="a-1")]

    assert asyncio.run(main()) == ["done"] * 3
    assert len(world.booked) == 6 and world.asked == 6


def test_without_a_thread_or_a_task_it_warns(hf):
    world = World()
    agent = create = world.agent(hf, InMemorySaver(), in_doubt="retry")
    assert agent is create
    with pytest.warns(NotDurable, match="thread"):
        try:
            world.agent(hf, None, in_doubt="retry").invoke(ASK)
        except Exception as error:  # its tool asks for its key, and there is none
            assert "outside a task" in str(error)


def test_a_policy_that_makes_no_sense_is_refused_at_once(hf):
    with pytest.raises(BadInput, match="in_doubt"):
        HoldfastMiddleware(hf, tools={"book": {"in_doubt": "guess"}})
