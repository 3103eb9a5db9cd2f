"""Google's ADK: its services keep what its own keep, and its agents run as tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.artifacts import InMemoryArtifactService
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from holdfast import BadInput, InDoubt, TaskFailed, task
from holdfast.integrations.adk import (
    HoldfastArtifactService,
    HoldfastPlugin,
    HoldfastSessionService,
)
from holdfast.testing.scripted import Fault
from tests.flavors import Crash
from tests.integrations.scripts import calling, scripted

HOSTILE = "../a b/%2F:ü"


def event(id: str, at: float, **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=id)])
    actions = EventActions(state_delta=delta)
    return Event(id=id, author="user", timestamp=at, content=content, actions=actions)


async def story(service: Any) -> list[Any]:
    """What a session service answers to everything that it can be asked."""
    app: dict[str, Any] = {"app_name": "shop", "user_id": HOSTILE}
    made = await service.create_session(
        **app, session_id=" s/1 ", state={"a": 1, "app:b": 2, "user:c": 3, "temp:d": 4}
    )
    seen: list[Any] = [made.id, made.state, made.events]
    await service.append_event(made, event("e1", 10.0, **{"a": 5, "user:c": 6, "temp:x": 7}))
    await service.append_event(made, event("e2", 20.0, **{"app:b": [8]}))
    await service.append_event(made, event("e2", 20.0, **{"app:b": [8]}))  # delivered twice
    await service.append_event(made, event("e3", 30.0).model_copy(update={"partial": True}))
    seen += [made.state, [each.id for each in made.events], made.last_update_time]
    other = await service.create_session(**app, session_id="s2")
    seen += [other.state, await service.get_user_state(**app)]
    for config in (
        None,
        GetSessionConfig(num_recent_events=1),
        GetSessionConfig(num_recent_events=0),
        GetSessionConfig(after_timestamp=15.0),
    ):
        found = await service.get_session(**app, session_id="s/1", config=config)
        seen += [found.state, [each.id for each in found.events], found.last_update_time]
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**app, session_id="s2")
    listed = (await service.list_sessions(**app)).sessions
    seen += [sorted(each.id for each in listed), [each.events for each in listed]]
    seen.append(len((await service.list_sessions(app_name="shop")).sessions))
    seen.append(len((await service.list_sessions(app_name="another")).sessions))
    await service.delete_session(**app, session_id="s2")
    await service.delete_session(**app, session_id="never")
    seen.append(await service.get_session(**app, session_id="s2"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(other, event("e4", 40.0))
    again = await service.create_session(**app, session_id="s2")
    return [*seen, again.events, again.state]


def test_the_session_service_answers_as_the_adks_own_one_does(hf):
    ours, theirs = HoldfastSessionService(hf), InMemorySessionService()
    assert asyncio.run(story(ours)) == asyncio.run(story(theirs))


def test_two_writers_of_one_session_lose_nothing(hf):
    async def write() -> list[str]:
        service = HoldfastSessionService(hf)
        of: dict[str, Any] = {"app_name": "shop", "user_id": "ada", "session_id": "s"}
        await service.create_session(**of)
        stale: list[Any] = [await service.get_session(**of) for _ in range(4)]
        writes = (service.append_event(s, event(f"e{n}", float(n))) for n, s in enumerate(stale))
        await asyncio.gather(*writes)
        found: Any = await service.get_session(**of)
        return sorted(each.id for each in found.events)

    assert asyncio.run(write()) == ["e0", "e1", "e2", "e3"]


async def files(service: Any) -> list[Any]:
    """What an artifact service answers."""
    of: dict[str, Any] = {"app_name": "shop", "user_id": "ada", "session_id": "s1"}
    text, data = types.Part(text="one"), types.Part.from_bytes(data=b"\0\xff", mime_type="a/b")
    seen = [await service.load_artifact(**of, filename="a.txt")]
    seen += [
        await service.save_artifact(**of, filename="a.txt", artifact=each) for each in (text, data)
    ]
    seen.append(await service.save_artifact(**of, filename="user:b", artifact=text))
    seen.append(await service.save_artifact(**of, filename="c", artifact={"text": "from a dict"}))
    for version in (None, 0, 1, 2, -1):
        seen.append(await service.load_artifact(**of, filename="a.txt", version=version))
    seen.append(await service.list_artifact_keys(**of))
    seen.append(await service.list_artifact_keys(**{**of, "session_id": "s2"}))
    seen.append(await service.list_versions(**of, filename="a.txt"))
    versions = await service.list_artifact_versions(**of, filename="a.txt")
    seen += [(each.version, each.mime_type, each.custom_metadata) for each in versions]
    found = await service.get_artifact_version(**of, filename="a.txt")
    seen.append((found.version, found.mime_type))
    await service.delete_artifact(**of, filename="a.txt")
    seen.append(await service.load_artifact(**of, filename="a.txt"))
    seen.append(await service.list_artifact_keys(**of))
    with pytest.raises(InputValidationError):
        await service.save_artifact(**{**of, "session_id": None}, filename="d", artifact=text)
    with pytest.raises(InputValidationError):
        await service.save_artifact(**of, filename="d", artifact=types.Part())
    return seen


def test_the_artifact_service_answers_as_the_adks_own_one_does(hf):
    ours, theirs = HoldfastArtifactService(hf), InMemoryArtifactService()
    assert asyncio.run(files(ours)) == asyncio.run(files(theirs))


def talking(hf, url: str, *tools: Any, plugin: HoldfastPlugin | None = None):
    @task
    async def talk(question: str) -> str:
        client = AsyncAnthropic(api_key="any", base_url=url, max_retries=0)
        model = AnthropicLlm(model="scripted", client=client)
        agent = LlmAgent(name="helper", model=model, tools=list(tools))
        runner = Runner(
            app=App(name="app", root_agent=agent, plugins=[plugin or HoldfastPlugin()]),
            session_service=HoldfastSessionService(hf),
            auto_create_session=True,
        )
        said = ""
        message = types.Content(role="user", parts=[types.Part(text=question)])
        async for each in runner.run_async(user_id="u", session_id="s", new_message=message):
            if each.is_final_response() and each.content and each.content.parts:
                said = each.content.parts[0].text or ""
        await client.close()
        return said

    return talk


def history(hf) -> list[str]:
    service = HoldfastSessionService(hf)
    found = asyncio.run(service.get_session(app_name="app", user_id="u", session_id="s"))
    assert found is not None
    return [each.author for each in found.events]


def test_a_resumed_run_repeats_nothing_and_its_session_has_each_event_once(hf):
    made: list[str] = []
    left = [1]

    def look(where: str, tool_context: ToolContext) -> str:
        made.append(where)
        tool_context.state["seen"] = where
        return "a tree"

    def walk(tool_context: ToolContext) -> str:
        assert tool_context.state["seen"] == "up"  # also where `look` was not called again
        if left[0]:
            left[0] -= 1
            raise Crash
        return "home"

    plugin = HoldfastPlugin(tools={"walk": {"kind": "step"}})
    with scripted(calling("look", where="up"), calling("walk"), "done", "hello") as model:
        work = talking(hf, model.url, look, walk, plugin=plugin)
        with pytest.raises(Crash):
            hf.run(work, "Go.", id="go-1")
        assert hf.run(work, "Go.", id="go-1") == "done"
        assert made == ["up"]
        assert len(model.requests) == 3
        assert history(hf) == ["user", *["helper"] * 5]
        assert hf.run(work, "And?", id="go-2") == "hello"
        assert history(hf) == ["user", *["helper"] * 5, "user", "helper"]


def test_a_tool_in_doubt_waits_for_a_person_whose_answer_the_model_sees(hf):
    left = [1]

    def pay() -> str:
        if left[0]:
            left[0] -= 1
            raise Crash
        return "paid again"

    with scripted(calling("pay"), "fine") as model:
        work = talking(hf, model.url, pay)
        with pytest.raises(Crash):
            hf.run(work, "Pay.", id="pay-1")
        with pytest.raises(InDoubt) as doubt:
            hf.run(work, "Pay.", id="pay-1")
        hf.resolve("pay-1", doubt.value.path, happened=True, result="paid", by="ada")
        assert hf.run(work, "Pay.", id="pay-1") == "fine"
        assert "paid" in str(model.requests[-1].messages[-1].results[0].content)


def test_a_model_that_refuses_is_asked_once(hf):
    with scripted(Fault(401), "never") as model:
        with pytest.raises(TaskFailed, match="ModelRejected"):
            hf.run(talking(hf, model.url), "Hi.")
        assert len(model.requests) == 1


def test_wrong_options_are_refused_by_name():
    with pytest.raises(BadInput, match="no option 'in_dout'"):
        HoldfastPlugin(tools={"pay": {"in_dout": "ask"}})
