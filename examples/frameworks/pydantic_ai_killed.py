"""Kill a Pydantic AI agent with its own durable option and with ours, and count the effects.

    python -m examples.frameworks.pydantic_ai_killed

The same agent has `DBOSDurability` with a DBOS that keeps its state in SQLite, and its tool is a
step of DBOS; or it has `HoldfastDurability`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from examples.frameworks.killed import QUESTION, Effects, main
from holdfast import Holdfast, task
from holdfast.integrations.pydantic_ai import HoldfastDurability, durable_tool


def agent_with(book: Any, durability: Any, url: str) -> Agent[None, str]:
    """The agent: the same for both, but for its tool and its capability."""
    client = AsyncOpenAI(api_key="any", base_url=url, max_retries=0)
    model = OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client))
    return Agent(model, name="trip", tools=[book], capabilities=[durability])


def plain(folder: Path, effects: Effects, url: str) -> None:
    """Pydantic AI on DBOS, which goes on with its workflows when it is launched."""

    @DBOS.step()
    async def book(city: str) -> str:
        """Book a room."""
        return effects.book(city)

    agent = agent_with(book, DBOSDurability(), url)

    @DBOS.workflow()
    async def trip() -> str:
        return (await agent.run(QUESTION)).output

    place = f"sqlite:///{folder}/dbos.sqlite"
    DBOS(config={"name": "trip", "system_database_url": place, "log_level": "ERROR"})
    DBOS.launch()
    if DBOS.get_workflow_status("trip") is None:
        with SetWorkflowID("trip"):
            asyncio.run(trip())
    else:
        DBOS.retrieve_workflow("trip").get_result()
    DBOS.destroy()


def ours(folder: Path, effects: Effects, url: str) -> None:
    """Pydantic AI on Holdfast."""
    agent = agent_with(durable_tool(effects.tool()), HoldfastDurability(), url)

    @task
    async def trip() -> str:
        return (await agent.run(QUESTION)).output

    with Holdfast(folder / "workspace") as hf:
        hf.run(trip, id="trip")


if __name__ == "__main__":
    main("pydantic-ai-slim", {"DBOSDurability": plain, "HoldfastDurability": ours})
