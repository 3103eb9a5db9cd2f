"""An agent of Google's ADK whose calls are steps of a task.

    python -m examples.frameworks.adk_agent

Kill it wherever you like, and run it again: it goes on, and refunds once. The model is behind the
ADK's client for Anthropic, which needs no service of Google.
"""

from __future__ import annotations

from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.runners import Runner
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from examples.frameworks.showing import show, store
from examples.frameworks.tools import post_letter, refund, send_email
from holdfast import task
from holdfast.integrations.adk import (
    HoldfastArtifactService,
    HoldfastPlugin,
    HoldfastSessionService,
    durable_tool,
)


def make_runner(url: str) -> Runner:
    """The agent and its runner, with the model behind a URL."""
    client = AsyncAnthropic(api_key="any", base_url=url, max_retries=0)
    agent = LlmAgent(
        name="support",
        model=AnthropicLlm(model="scripted", client=client),
        tools=[durable_tool(refund), durable_tool(send_email), FunctionTool(post_letter)],
    )
    return Runner(
        app=App(name="shop", root_agent=agent, plugins=[HoldfastPlugin()]),
        session_service=HoldfastSessionService(store()),
        artifact_service=HoldfastArtifactService(store()),
        auto_create_session=True,
    )


@task
async def adk_support(url: str, question: str) -> str:
    """Answer a customer."""
    message = types.Content(role="user", parts=[types.Part(text=question)])
    said = []
    events = make_runner(url).run_async(user_id="ada", session_id="chat-1", new_message=message)
    async for event in events:
        if event.is_final_response() and event.content and event.content.parts:
            said += [part.text for part in event.content.parts if part.text]
    return " ".join(said)


if __name__ == "__main__":
    show(adk_support)
