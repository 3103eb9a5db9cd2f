"""Kill an agent of the OpenAI Agents SDK with its own session and with ours, and count the effects.

    python -m examples.frameworks.openai_agents_killed

The same agent has the SDK's `SQLiteSession`, which keeps what was said, or it runs in a task with
`HoldfastRunner`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
)
from openai import AsyncOpenAI

from examples.frameworks.killed import QUESTION, Effects, main
from holdfast import Holdfast, task
from holdfast.integrations.openai_agents import HoldfastRunner, durable_tool

QUIET = RunConfig(tracing_disabled=True)


def agent_with(book: Any, url: str) -> Agent[None]:
    """The agent: the same for both, but for its tool."""
    client = AsyncOpenAI(api_key="any", base_url=url, max_retries=0)
    model = OpenAIChatCompletionsModel("scripted", client)
    return Agent(name="trip", model=model, tools=[book])


def plain(folder: Path, effects: Effects, url: str) -> None:
    """The SDK alone: a run that was cut off is begun again, with what its session has kept."""

    @function_tool
    async def book(city: str) -> str:
        """Book a room."""
        return effects.book(city)

    session = SQLiteSession("trip", folder / "sessions.db")
    items: Any = asyncio.run(session.get_items())
    given: Any = [] if items else QUESTION
    asyncio.run(Runner.run(agent_with(book, url), given, session=session, run_config=QUIET))
    session.close()


def ours(folder: Path, effects: Effects, url: str) -> None:
    """The SDK on Holdfast."""

    @task
    async def trip() -> str:
        agent = agent_with(durable_tool(effects.tool()), url)
        result = await HoldfastRunner().run(agent, QUESTION, run_config=QUIET)
        return result.final_output_as(str)

    with Holdfast(folder / "workspace") as hf:
        hf.run(trip, id="trip")


if __name__ == "__main__":
    main("openai-agents", {"SQLiteSession": plain, "HoldfastRunner": ours})
