"""An agent of Pydantic AI in a task: its calls are recorded, settled and shown as any others."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import FunctionToolset

from holdfast import (
    BadInput,
    CodeChanged,
    Happened,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Retry,
    TaskFailed,
    Unanswered,
    current,
    task,
    tool,
)
from holdfast.integrations.pydantic_ai import HoldfastDurability, durable_tool
from holdfast.testing.scripted import Fault
from tests.flavors import Crash
from tests.integrations.scripts import calling, client_at, scripted

QUICK = Retry(attempts=3, delay_s=0.001, jitter=0)


def agent_at(url: str, *tools, name: str = "helper", **options) -> Agent[None, str]:
    capability = HoldfastDurability(retry=QUICK, **options.pop("durability", {}))
    provider = OpenAIProvider(openai_client=client_at(url))
    model = OpenAIChatModel("scripted", provider=provider)
    return Agent(model, name=name, tools=tools, capabilities=[capability], **options)


def asking(agent: Agent[None, str], **options):
    @task
    async def ask_agent(question: str) -> str:
        return (await agent.run(question, **options)).output

    return ask_agent


def names(hf: Holdfast, id: str) -> list[str]:
    return [f"{call.kind} {call.name}" for call in hf.task(id).calls]


def test_outside_a_task_the_agent_is_the_plain_agent():
    with scripted(calling("look"), "seen") as model:

        def look() -> str:
            return "a tree"

        assert asyncio.run(agent_at(model.url, look).run("Look.")).output == "seen"


def test_a_resumed_run_asks_no_model_and_calls_no_tool_again(hf):
    made: list[str] = []
    crashed: list[bool] = []

    def look(where: str) -> str:
        made.append(where)
        return "a tree"

    async def walk() -> str:
        if not crashed:
            crashed.append(True)
            raise Crash
        return "home"

    with scripted(calling("look", where="up"), calling("walk"), "done") as model:
        agent = agent_at(model.url, look)
        agent.tool_plain(metadata={"holdfast": {"kind": "step"}})(walk)
        work = asking(agent)
        with pytest.raises(Crash):
            hf.run(work, "Go.", id="go-1")
        assert hf.run(work, "Go.", id="go-1") == "done"
        assert made == ["up"]
        assert len(model.requests) == 3


def test_a_plain_tool_in_doubt_waits_for_a_person_whose_answer_the_model_sees(hf):
    crashed: list[bool] = []

    def pay() -> str:
        if not crashed:
            crashed.append(True)
            raise Crash
        return "paid again"

    with scripted(calling("pay"), "fine") as model:
        work = asking(agent_at(model.url, pay))
        with pytest.raises(Crash):
            hf.run(work, "Pay.", id="pay-1")
        with pytest.raises(InDoubt) as doubt:
            hf.run(work, "Pay.", id="pay-1")
        assert doubt.value.name == "pay"
        hf.resolve("pay-1", doubt.value.path, happened=True, result="paid", by="ada")
        assert hf.run(work, "Pay.", id="pay-1") == "fine"
        assert "paid" in model.requests[-1].messages[-1].results[0].content


def test_options_in_the_metadata_of_a_tool_are_its_policy(hf):
    crashed: list[bool] = []
    keys: list[str] = []

    def pay() -> str:
        keys.append(current().key)
        if not crashed:
            crashed.append(True)
            raise Crash
        return "paid"

    def find(key: str):
        return Happened("paid before") if key in keys else None

    with scripted(calling("pay"), "fine") as model:
        agent = agent_at(model.url)
        agent.tool_plain(metadata={"holdfast": {"check": find}})(pay)
        work = asking(agent)
        with pytest.raises(Crash):
            hf.run(work, "Pay.", id="pay-2")
        assert hf.run(work, "Pay.", id="pay-2") == "fine"
        assert len(keys) == 1
        assert model.requests[-1].messages[-1].results[0].content == "paid before"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"in_dout": "ask"}, "no option 'in_dout'"),
        ({"kind": "task"}, "must be 'step' or 'tool'"),
        ({"kind": "step", "approve": True}, "an option of a tool"),
        ("retry", "expected a dict|must be a dict"),
    ],
)
def test_wrong_options_are_refused_by_name(hf, options, said):
    with scripted(calling("_pay"), "fine") as model:
        agent = agent_at(model.url)
        agent.tool_plain(metadata={"holdfast": options})(_pay)
        with pytest.raises(TaskFailed, match=said):
            hf.run(asking(agent), "Pay.")


def _pay() -> str:
    return "paid"


def test_a_tool_with_approve_asks_before_it_runs(hf):
    with scripted(calling("_pay"), "fine") as model:
        agent = agent_at(model.url)
        agent.tool_plain(metadata={"holdfast": {"approve": True}})(_pay)
        work = asking(agent)
        with pytest.raises(Unanswered) as asked:
            hf.run(work, "Pay.", id="pay-3")
        hf.answer("pay-3", True, question=asked.value.id)
        assert hf.run(work, "Pay.", id="pay-3") == "fine"


def test_a_decorated_tool_keeps_its_key_from_the_model_and_its_retries_from_it_too(hf):
    tries: list[str] = []

    @tool(retry=QUICK)
    def send(to: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
        """Send it."""
        tries.append(key)
        if to == "nobody":
            raise ModelRetry("give a name")
        return "sent"

    with scripted(calling("send", to="nobody"), calling("send", to="ada"), "fine") as model:
        work = asking(agent_at(model.url, durable_tool(send)))
        assert hf.run(work, "Send.", id="send-1") == "fine"
        shown = model.requests[0].tools[0]
        assert list(shown.parameters["properties"]) == ["to"]
        assert "give a name" in model.requests[1].messages[-1].results[0].content
        assert len(tries) == 2 and all(tries)
        assert hf.run(work, "Send.", id="send-1") == "fine"


def test_durable_tool_refuses_a_plain_function():
    with pytest.raises(BadInput, match="decorate it with @tool"):
        durable_tool(_pay)


def test_a_busy_model_is_asked_again_and_one_that_refuses_is_not(hf):
    with scripted(Fault(503), "here") as model:
        assert hf.run(asking(agent_at(model.url)), "Hi.") == "here"
    with scripted(Fault(401), "never") as model:

        @task
        async def careful(question: str) -> str:
            try:
                return (await agent_at(model.url).run(question)).output
            except ModelHTTPError as error:
                return f"refused with {error.status_code}"

        assert hf.run(careful, "Hi.", id="hi-1") == "refused with 401"
        assert len(model.requests) == 1
        assert hf.replay("hi-1").result == "refused with 401"


@pytest.mark.parametrize("where", ["capability", "run"])
def test_handlers_of_streams_are_kept(hf, where):
    heard: list[str] = []

    async def listen(ctx: RunContext[None], events) -> None:
        heard.extend([event.event_kind async for event in events])

    with scripted(calling("_pay"), "fine") as model:
        if where == "capability":
            agent = agent_at(model.url, _pay, durability={"event_stream_handler": listen})
            work = asking(agent)
        else:
            agent = agent_at(model.url, _pay)
            work = asking(agent, event_stream_handler=listen)
        assert hf.run(work, "Pay.", id="pay-4") == "fine"
    assert {"part_start", "function_tool_call", "function_tool_result"} <= set(heard)


def test_agents_side_by_side_and_one_after_the_other_have_places_of_their_own(hf):
    with scripted(lambda seen: f"to {seen.messages[-1].text}") as model:
        agent = agent_at(model.url)

        async def ask(question: str) -> str:
            return (await agent.run(question)).output

        @task
        async def both() -> list[str]:
            first = await ask("one")
            return [first, *await asyncio.gather(ask("two"), ask("three"))]

        assert hf.run(both, id="both-1") == ["to one", "to two", "to three"]
        paths = {call.path for call in hf.task("both-1").calls}
        assert paths == {"helper~1.1", "ask~1.helper~1.1", "ask~2.helper~1.1"}
        assert hf.replay("both-1").result == ["to one", "to two", "to three"]


def test_another_question_on_a_resume_is_noticed(hf):
    asked = ["one"]
    with scripted(calling("_fail"), "fine") as model:

        async def _fail() -> str:
            raise Crash

        agent = agent_at(model.url, _fail)

        @task
        async def changing() -> str:
            return (await agent.run(asked[0])).output

        with pytest.raises(Crash):
            hf.run(changing, id="changing-1")
        asked[0] = "another"
        with pytest.raises(CodeChanged, match="helper__model_request"):
            hf.run(changing, id="changing-1")


def test_the_tools_of_an_mcp_server_are_journaled_and_called_once(hf, tmp_path):
    counted = tmp_path / "counted"
    program = Path(__file__).with_name("mcp_counter.py")
    with scripted(calling("count", label="a"), calling("_crash"), "fine") as model:
        crashed: list[bool] = []

        async def _crash() -> str:
            if not crashed:
                crashed.append(True)
                raise Crash
            return "on"

        transport = StdioTransport(sys.executable, [str(program), str(counted)])
        quiet = FunctionToolset(id="quiet")
        quiet.add_function(_crash, metadata={"holdfast": {"kind": "step"}})
        counter = MCPToolset(transport, id="counter", init_timeout=60)
        agent = agent_at(model.url, toolsets=[counter, quiet])
        work = asking(agent)
        with pytest.raises(Crash):
            hf.run(work, "Count.", id="count-1")
        assert hf.run(work, "Count.", id="count-1") == "fine"
        assert counted.read_text() == "a\n"
        assert "tool count" in names(hf, "count-1")
        assert "step helper__mcp_server__counter_get_tools" in names(hf, "count-1")
