"""An agent of the OpenAI Agents SDK whose calls are steps of a task.

    python -m examples.frameworks.openai_agents_agent

Kill it wherever you like, and run it again: it goes on, and refunds once.
"""

from __future__ import annotations

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, function_tool
from openai import AsyncOpenAI

from examples.frameworks.showing import show
from examples.frameworks.tools import post_letter, refund, send_email
from holdfast import task
from holdfast.integrations.openai_agents import HoldfastRunner, durable_tool

runner = HoldfastRunner()


def make_agent(url: str) -> Agent[None]:
    """The agent, with the model behind a URL."""
    client = AsyncOpenAI(api_key="any", base_url=url, max_retries=0)
    return Agent(
        name="support",
        model=OpenAIChatCompletionsModel("scripted", client),
        tools=[durable_tool(refund), durable_tool(send_email), function_tool(post_letter)],
    )


@task
async def openai_agents_support(url: str, question: str) -> str:
    """Answer a customer."""
    quiet = RunConfig(tracing_disabled=True)
    result = await runner.run(make_agent(url), question, run_config=quiet)
    return result.final_output_as(str)


if __name__ == "__main__":
    show(openai_agents_support)
