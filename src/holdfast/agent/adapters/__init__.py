"""Models from the clients of providers: each is called with a `Request` and gives a `Reply`.

| name | of which client | |
|---|---|---|
| `OpenAIChat` | `openai.OpenAI()`, `openai.AsyncOpenAI()` | chat completions |
| `OpenAIResponses` | the same | responses |
| `AnthropicMessages` | `anthropic.Anthropic()`, `anthropic.AsyncAnthropic()` | messages |

You make the client, so its library is never loaded by us. Its own retries are switched off: those
of the step that calls the model are recorded, and wait as long as the provider asks.
"""

from __future__ import annotations

from holdfast.agent.adapters.anthropic import AnthropicMessages
from holdfast.agent.adapters.base import ModelBusy, ModelFailed, ModelRejected, model_retry
from holdfast.agent.adapters.openai import OpenAIChat, OpenAIResponses

__all__ = [
    "AnthropicMessages",
    "ModelBusy",
    "ModelFailed",
    "ModelRejected",
    "OpenAIChat",
    "OpenAIResponses",
    "model_retry",
]
