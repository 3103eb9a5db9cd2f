"""An agent of Pydantic AI whose calls are steps of a task.

    python -m examples.frameworks.pydantic_ai_agent

Kill it wherever you like, and run it again: it goes on, and refunds once.
"""

from __future__ import annotations

from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from examples.frameworks.showing import show
from examples.frameworks.tools import post_letter, refund, send_email
from holdfast import task
from holdfast.integrations.pydantic_ai import HoldfastDurability, durable_tool


def make_agent(url: str) -> Agent[None, str]:
    """The agent, with the model behind a URL."""
    client = AsyncOpenAI(api_key="any", base_url=url, max_retries=0)
    return Agent(
        OpenAIChatModel("scripted", provider=OpenAIProvider(openai_client=client)),
        name="support",
        tools=[durable_tool(refund), durable_tool(send_email), post_letter],
        capabilities=[HoldfastDurability()],
    )


@task
async def pydantic_ai_support(url: str, question: str) -> str:
    """Answer a customer."""
    return (await make_agent(url).run(question)).output


if __name__ == "__main__":
    show(pydantic_ai_support)
