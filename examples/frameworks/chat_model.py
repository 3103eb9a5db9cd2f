"""A chat model of LangChain for any server that speaks OpenAI's chat protocol."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from openai import OpenAI


class ChatModel(BaseChatModel):
    """The model behind a URL."""

    url: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        """The model, told of tools."""
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with OpenAI(api_key="any", base_url=self.url, max_retries=0) as client:
            spoken: Any = convert_to_openai_messages(messages)
            said = client.chat.completions.create(
                model="scripted", messages=spoken, tools=kwargs.get("tools") or []
            )
        message = said.choices[0].message
        calls = [
            {"name": c.function.name, "args": json.loads(c.function.arguments), "id": c.id}
            for c in message.tool_calls or ()
            if c.type == "function"
        ]
        answer = AIMessage(message.content or "", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=answer)])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, None, **kwargs)
