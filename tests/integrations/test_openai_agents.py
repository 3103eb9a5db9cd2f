"""Agents of the OpenAI Agents SDK in a task: their calls are recorded, asked for and streamed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    OpenAIChatCompletionsModel,
    OpenAIProvider,
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    function_tool,
    handoff,
)
from agents.memory import Session

from holdfast import (
    BadInput,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    Retry,
    Unanswered,
    current,
    task,
    tool,
)
from holdfast.integrations.openai_agents import HoldfastRunner, HoldfastSession, durable_tool
from holdfast.testing.scripted import Fault
from tests.flavors import Crash
from tests.integrations.scripts import calling, client_at, scripted

runner = HoldfastRunner(
    retry=Retry(attempts=3, delay_s=0.001, jitter=0), tools={"walk": {"kind": "step"}}
)


def agent_at(url: str, *tools, name: str = "helper", **options) -> Agent[None]:
    model = OpenAIChatCompletionsModel("scripted", client_at(url))
    return Agent(name=name, model=model, tools=list(tools), **options)


def asking(agent, **options):
    @task
    async def ask_agent(question: str) -> str:
        done = await runner.run(agent, question, run_config=quiet(), **options)
        return done.final_output

    return ask_agent


def quiet(**options) -> RunConfig:
    return RunConfig(tracing_disabled=True, **options)


def walking(crashes: int = 1):
    left = [crashes]

    async def walk() -> str:
        if left[0]:
            left[0] -= 1
            raise Crash
        return "home"

    return function_tool(walk)


def test_outside_a_task_it_is_the_plain_runner():
    with scripted("hello") as model:
        done = asyncio.run(runner.run(agent_at(model.url), "Hi.", run_config=quiet()))
        assert done.final_output == "hello"


def test_a_resumed_run_asks_no_model_and_calls_no_tool_again(hf):
    made: list[str] = []

    @function_tool
    def look(where: str) -> str:
        made.append(where)
        return "a tree"

    with scripted(calling("look", where="up"), calling("walk"), "done") as model:
        work = asking(agent_at(model.url, look, walking()))
        with pytest.raises(Crash):
            hf.run(work, "Go.", id="go-1")
        assert hf.run(work, "Go.", id="go-1") == "done"
        assert made == ["up"]
        assert len(model.requests) == 3
        assert [call.name for call in hf.task("go-1").calls] == [
            *("helper_model", "look", "helper_model", "walk", "helper_model"),
        ]


def test_a_tool_in_doubt_waits_for_a_person_whose_answer_the_model_sees(hf):
    left = [1]

    @function_tool
    def pay() -> str:
        if left[0]:
            left[0] -= 1
            raise Crash
        return "paid again"

    with scripted(calling("pay"), "fine") as model:
        work = asking(agent_at(model.url, pay))
        with pytest.raises(Crash):
            hf.run(work, "Pay.", id="pay-1")
        with pytest.raises(InDoubt) as doubt:
            hf.run(work, "Pay.", id="pay-1")
        hf.resolve("pay-1", doubt.value.path, happened=True, result="paid", by="ada")
        assert hf.run(work, "Pay.", id="pay-1") == "fine"
        assert model.requests[-1].messages[-1].results[0].content == "paid"


def test_a_decorated_tool_keeps_its_key_from_the_model(hf):
    keys: list[str] = []

    @tool
    async def send(to: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
        """Send it."""
        keys.append(key)
        assert current().key == key
        return "sent"

    with scripted(calling("send", to="ada"), "fine") as model:
        assert hf.run(asking(agent_at(model.url, durable_tool(send))), "Send.", id="s-1") == "fine"
        assert list(model.requests[0].tools[0].parameters["properties"]) == ["to"]
        assert keys and keys[0].startswith("s-1:helper~1.call_send~1.1:send:")


def test_approval_is_asked_for_by_the_task_and_its_run_state_is_kept(hf):
    paid: list[int] = []

    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    with scripted(calling("pay", amount=5), "fine") as model:
        agent = agent_at(model.url, pay)
        work = asking(agent)
        with pytest.raises(Unanswered, match="May helper call pay"):
            hf.run(work, "Pay.", id="pay-2")
        assert paid == []
        hf.answer("pay-2", True)
        assert hf.run(work, "Pay.", id="pay-2") == "fine"
        assert paid == [5]
        (kept,) = [each for each in hf.task("pay-2").outputs if each.name == "run_state"]
        state = asyncio.run(RunState.from_string(agent, kept.output))
        assert [item.name for item in state.get_interruptions()] == ["pay"]


def test_a_call_that_is_not_approved_is_not_made(hf):
    @function_tool(needs_approval=True)
    def pay(amount: int) -> str:
        raise AssertionError("it was called")

    with scripted(calling("pay", amount=5), "as you like") as model:
        work = asking(agent_at(model.url, pay))
        with pytest.raises(Unanswered):
            hf.run(work, "Pay.", id="pay-3")
        hf.answer("pay-3", False)
        assert hf.run(work, "Pay.", id="pay-3") == "as you like"


@pytest.mark.parametrize("as_handoff", [False, True])
def test_handoffs_are_followed_and_their_tools_are_journaled(hf, as_handoff):
    made: list[str] = []

    @function_tool
    def refund() -> str:
        made.append("refund")
        return "refunded"

    script = (calling("transfer_to_billing"), calling("refund"), calling("walk"), "done")
    with scripted(*script) as model:
        billing = agent_at(model.url, refund, walking(), name="billing")
        triage = agent_at(model.url, name="triage")
        triage.handoffs = [handoff(billing) if as_handoff else billing]
        billing.handoffs = [triage]  # and back

        @task
        async def help_out(question: str) -> list[str]:
            done = await runner.run(triage, question, run_config=quiet())
            return [done.final_output, done.last_agent.name]

        with pytest.raises(Crash):
            hf.run(help_out, "Refund me.", id="help-1")
        assert hf.run(help_out, "Refund me.", id="help-1") == ["done", "billing"]
        assert made == ["refund"]
        assert len(model.requests) == 4


def test_the_verdict_of_a_guardrail_is_recorded(hf):
    judged: list[str] = []

    async def no_shouting(context, agent, input) -> GuardrailFunctionOutput:
        judged.append(str(input))
        return GuardrailFunctionOutput(output_info="loud", tripwire_triggered="!" in str(input))

    with scripted(calling("walk"), "done") as model:
        guard = InputGuardrail(no_shouting, run_in_parallel=False)
        agent = agent_at(model.url, walking(), input_guardrails=[guard])

        @task
        async def guarded(question: str) -> str:
            try:
                done = await runner.run(agent, question, run_config=quiet())
            except InputGuardrailTripwireTriggered as stopped:
                return f"stopped: {stopped.guardrail_result.output.output_info}"
            return done.final_output

        with pytest.raises(Crash):
            hf.run(guarded, "Go.", id="g-1")
        assert hf.run(guarded, "Go.", id="g-1") == "done"
        assert hf.run(guarded, "Go!", id="g-2") == "stopped: loud"
        assert judged == ["Go.", "Go!"]


def test_a_streamed_run_streams_the_same_events_again_on_a_resume(hf):
    heard: list[list[str]] = []
    with scripted("one two three", calling("walk"), "done") as model:
        agent = agent_at(model.url, walking())

        @task
        async def talk(question: str) -> str:
            heard.append([])
            first = runner.run_streamed(agent, question, run_config=quiet())
            async for event in first.stream_events():
                if event.type == "raw_response_event":
                    heard[-1].append(event.data.model_dump_json(exclude_unset=True))
            second = await runner.run(agent, "And?", run_config=quiet())
            return f"{first.final_output}, {second.final_output}"

        with pytest.raises(Crash):
            hf.run(talk, "Say.", id="talk-1")
        assert hf.run(talk, "Say.", id="talk-1") == "one two three, done"
        assert len(heard[0]) > 3 and heard[0] == heard[1]
        assert len(model.requests) == 3


def test_a_streamed_run_waits_for_a_person_when_a_tool_is_in_doubt(hf):
    left = [1]

    @function_tool
    def pay() -> str:
        if left[0]:
            left[0] -= 1
            raise Crash
        return "paid"

    with scripted(calling("pay"), "fine") as model:
        agent = agent_at(model.url, pay)

        @task
        async def talk(question: str) -> str:
            streaming = runner.run_streamed(agent, question, run_config=quiet())
            async for _ in streaming.stream_events():
                pass
            return streaming.final_output

        with pytest.raises(Crash):
            hf.run(talk, "Pay.", id="talk-2")
        with pytest.raises(InDoubt) as doubt:
            hf.run(talk, "Pay.", id="talk-2")
        hf.resolve("talk-2", doubt.value.path, happened=False, by="ada")
        assert hf.run(talk, "Pay.", id="talk-2") == "fine"


def test_models_by_name_are_journaled_and_a_busy_one_is_asked_again(hf):
    with scripted(Fault(503), "here") as model:
        provider = OpenAIProvider(openai_client=client_at(model.url), use_responses=False)

        @task
        async def by_name(question: str) -> str:
            config = quiet(model_provider=provider)
            agent = Agent(name="helper", model="scripted")
            return (await runner.run(agent, question, run_config=config)).final_output

        assert hf.run(by_name, "Hi.", id="n-1") == "here"
        assert hf.run(by_name, "Hi.", id="n-1") == "here"
        assert len(model.requests) == 2


def test_a_session_answers_as_the_sdks_own_one_does(hf, tmp_path):
    async def both(session: Session) -> list:
        seen = [await session.get_items(), await session.pop_item()]
        await session.add_items([{"role": "user", "content": f"{n}"} for n in range(5)])
        seen += [await session.get_items(), await session.get_items(2), await session.pop_item()]
        seen += [await session.get_items(limit=1)]
        await session.add_items([])
        await session.clear_session()
        seen += [await session.get_items(), await session.pop_item()]
        call: Any = {"type": "function_call", "name": "f", "arguments": "{}"}
        await session.add_items([call])
        return [*seen, await session.get_items()]

    ours = asyncio.run(both(HoldfastSession(hf, "chat-1")))
    theirs = SQLiteSession("chat-1", tmp_path / "chat.db")
    assert ours == asyncio.run(both(theirs))
    theirs.close()
    assert isinstance(HoldfastSession(hf, "chat-2"), Session)


def test_a_conversation_goes_on_over_tasks_and_each_turn_is_in_it_once(hf):
    with scripted(lambda seen: f"{len(seen.messages)} heard") as model:

        @task
        async def turn(url: str, question: str, crash: bool) -> str:
            session = HoldfastSession(hf, "chat-3")
            done = await runner.run(agent_at(url), question, session=session, run_config=quiet())
            if crash and not crashed:
                crashed.append(True)
                raise Crash
            return done.final_output

        crashed: list[bool] = []
        assert hf.run(turn, model.url, "one", False, id="turn-1") == "1 heard"
        with pytest.raises(Crash):
            hf.run(turn, model.url, "two", True, id="turn-2")
        assert hf.run(turn, model.url, "two", True, id="turn-2") == "3 heard"
        said = [message.text for message in hf.session("chat-3").messages()]
        assert said == ["one", "1 heard", "two", "3 heard"]
        items = asyncio.run(HoldfastSession(hf, "chat-3").get_items())
        assert [item["role"] for item in items] == ["user", "assistant"] * 2


def test_wrong_options_are_refused_by_name():
    with pytest.raises(BadInput, match="no option 'in_dout'"):
        HoldfastRunner(tools={"pay": {"in_dout": "ask"}})


def test_the_plain_runner_is_not_changed(hf: Holdfast):
    with scripted(calling("walk"), "done") as model:
        agent = agent_at(model.url, walking(0))
        before = (agent.model, list(agent.tools), agent.get_all_tools)
        assert hf.run(asking(agent), "Go.") == "done"
        assert (agent.model, list(agent.tools), agent.get_all_tools) == before
    with scripted("hi") as model:
        plain = agent_at(model.url)
        assert asyncio.run(Runner.run(plain, "Hi.", run_config=quiet())).final_output == "hi"
