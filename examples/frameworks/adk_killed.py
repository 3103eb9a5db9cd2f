"""Kill an agent of Google's ADK with its own durable option and with ours, and count the effects.

    python -m examples.frameworks.adk_killed

The same agent is a resumable app with the ADK's `SqliteSessionService`, or it runs in a task with
`HoldfastSessionService` and `HoldfastPlugin`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.runners import Runner
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from examples.frameworks.killed import QUESTION, Effects, main
from holdfast import Holdfast, task
from holdfast.integrations.adk import HoldfastPlugin, HoldfastSessionService, durable_tool

MESSAGE = types.Content(role="user", parts=[types.Part(text=QUESTION)])
CHAT: Any = {"user_id": "ada", "session_id": "trip"}


def agent_with(book: Any, url: str) -> LlmAgent:
    """The agent: the same for both, but for its tool."""
    client = AsyncAnthropic(api_key="any", base_url=url, max_retries=0)
    return LlmAgent(name="trip", model=AnthropicLlm(model="scripted", client=client), tools=[book])


def plain(folder: Path, effects: Effects, url: str) -> None:
    """The ADK alone: an invocation that was cut off is resumed by its id."""

    async def book(city: str) -> str:
        """Book a room."""
        return effects.book(city)

    async def go_on() -> None:
        sessions = SqliteSessionService(str(folder / "sessions.db"))
        app = App(
            name="shop",
            root_agent=agent_with(FunctionTool(book), url),
            resumability_config=ResumabilityConfig(is_resumable=True),
        )
        runner = Runner(app=app, session_service=sessions, auto_create_session=True)
        kept = await sessions.get_session(app_name="shop", **CHAT)
        given: Any = {"new_message": MESSAGE}
        if kept is not None and kept.events:
            given = {"invocation_id": kept.events[0].invocation_id}
        async for _ in runner.run_async(**CHAT, **given):
            pass

    asyncio.run(go_on())


def ours(folder: Path, effects: Effects, url: str) -> None:
    """The ADK on Holdfast."""
    with Holdfast(folder / "workspace") as hf:

        @task
        async def trip() -> None:
            agent = agent_with(durable_tool(effects.tool()), url)
            app = App(name="shop", root_agent=agent, plugins=[HoldfastPlugin()])
            sessions = HoldfastSessionService(hf)
            runner = Runner(app=app, session_service=sessions, auto_create_session=True)
            async for _ in runner.run_async(**CHAT, new_message=MESSAGE):
                pass

        hf.run(trip, id="trip")


if __name__ == "__main__":
    ways = {"SqliteSessionService, resumable": plain, "HoldfastPlugin with its sessions": ours}
    main("google-adk", ways)
