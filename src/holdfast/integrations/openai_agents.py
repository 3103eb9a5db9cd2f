"""The OpenAI Agents SDK inside a task: `HoldfastRunner` runs agents, `HoldfastSession` remembers.

    runner = HoldfastRunner()

    @task
    async def support(question: str) -> str:
        return (await runner.run(agent, question)).final_output

A request to a model is a step, streamed or not. A call of a function tool, or of an MCP server's,
is a tool of ours. Guardrails are steps. A tool that needs approval makes the task ask. Handoffs are
followed. Outside a task the runner is the SDK's own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from functools import partial
from typing import Any, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from holdfast.api.app import Holdfast
from holdfast.api.waiting import aask
from holdfast.core.decoding import Illegible, decode
from holdfast.core.scope import Scope, scope_var
from holdfast.core.spec import Retry
from holdfast.integrations.calls import (
    CallOptions,
    begin_run,
    call_name,
    checked_options,
    for_models,
    in_task,
    journaled,
    kept_once,
    place_of,
    plain,
    standing_at,
    streamed,
)
from holdfast.integrations.frameworks import need
from holdfast.integrations.past import OPENAI_ITEM, import_sessions, said_by_item
from holdfast.log.messages import Message

need("openai_agents", openai_agents=">=0.24,<0.25")

import openai  # noqa: E402
from agents import (  # noqa: E402
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    Handoff,
    InputGuardrail,
    Model,
    ModelProvider,
    ModelResponse,
    RunConfig,
    Runner,
    RunResult,
    RunResultStreaming,
    RunState,
    Tool,
    TResponseInputItem,
    function_tool,
)
from agents.items import TResponseOutputItem, TResponseStreamEvent  # noqa: E402
from agents.memory import SessionSettings  # noqa: E402
from agents.usage import deserialize_usage, serialize_usage  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402

__all__ = ["HoldfastRunner", "HoldfastSession", "durable_tool", "import_sessions"]

P = ParamSpec("P")
R = TypeVar("R")
Result = TypeVar("Result", RunResult, RunResultStreaming)

_current: ContextVar[Scope | None] = ContextVar("holdfast_openai_agents_run", default=None)
"""The place of the run that the code is in."""

_STEP: CallOptions = {"kind": "step"}
_FINAL = (
    openai.BadRequestError,
    openai.AuthenticationError,
    openai.PermissionDeniedError,
    openai.NotFoundError,
    openai.UnprocessableEntityError,
)
"""Errors of a model's call that come again: it is not tried again."""

_outputs: TypeAdapter[list[Any]] = TypeAdapter(list[TResponseOutputItem])
_events: TypeAdapter[Any] = TypeAdapter(TResponseStreamEvent)


class HoldfastRunner:
    """Runs agents of the OpenAI Agents SDK so that their calls are steps of the running task.

    `retry` is for requests to models. `tools` has options for tools by name, and under `"*"` for
    all others: the options of `@tool`, or `{"kind": "step"}` for one without an effect. A tool that
    is decorated with our `@tool` has its policy already; give it to the agent with `durable_tool`.
    """

    def __init__(
        self, *, retry: Retry | None = None, tools: Mapping[str, CallOptions] | None = None
    ) -> None:
        retry = retry or Retry(attempts=3)
        self._model: CallOptions = {
            "kind": "step",
            "retry": replace(retry, unless=(*retry.unless, *_FINAL)),
        }
        self._tools = {
            name: checked_options(f"tools[{name!r}]", given)
            for name, given in (tools or {}).items()
        }

    async def run(
        self,
        starting_agent: Agent[Any],
        input: str | list[TResponseInputItem] | RunState[Any],
        **options: Any,
    ) -> RunResult:
        """`Runner.run`, with its options. A tool that needs approval makes the task ask for it."""
        if not in_task():
            return await Runner.run(starting_agent, input, **options)
        course = _Course(self, starting_agent.name)
        agent, given = course.agent(starting_agent), course.options(options)
        with course.around():
            result = course.ended(await Runner.run(agent, input, **given))
            while result.interruptions:
                state = await self.approved(result)
                result = course.ended(await Runner.run(agent, state, **given))
        return result

    def run_streamed(
        self,
        starting_agent: Agent[Any],
        input: str | list[TResponseInputItem] | RunState[Any],
        **options: Any,
    ) -> RunResultStreaming:
        """`Runner.run_streamed`, with its options. A resumed run streams the same events again.

        For approvals, go on with `runner.run_streamed(agent, await runner.approved(result))`.
        """
        if not in_task():
            return Runner.run_streamed(starting_agent, input, **options)
        course = _Course(self, starting_agent.name)
        agent, given = course.agent(starting_agent), course.options(options)
        with course.around():
            return course.ended(Runner.run_streamed(agent, input, **given))

    async def approved(self, result: RunResult | RunResultStreaming) -> RunState[Any]:
        """The state of a run after people have said which of its calls may be made.

        The task asks, and waits as long as it takes: `hf.answer(id, True)`. The state of the run is
        kept in the log as the result of the step `run_state`: `RunState.from_string(agent, …)`.
        """
        state = result.to_state()
        scope = getattr(result, "_holdfast", None) or begin_run("approval")
        path = place_of(scope, "run_state")

        async def as_text() -> str:
            return state.to_string()

        await journaled(scope, path, "run_state", {}, as_text, _STEP)
        for item in result.interruptions:
            # Asked where the run stands, not in an asyncio task of the SDK.
            with standing_at(scope, f"approve_{item.call_id or item.name}"):
                question = f"May {item.agent.name} call {item.name}({item.arguments or ''})?"
                yes = await aask(question[:4000], bool)
            if yes:
                state.approve(item)
            else:
                state.reject(item)
        return state

    def options_for(self, tool: str) -> CallOptions:
        """How a call of a tool is journaled."""
        return self._tools.get(tool) or self._tools.get("*") or {"kind": "tool"}


def durable_tool(fn: Callable[P, R], **options: Any) -> FunctionTool:
    """A function that is decorated with our `@tool`, as a tool of an agent.

    The model does not see the parameter for the key. The options are those of `function_tool`.
    """
    made = function_tool(for_models(fn, ()), **options)
    setattr(made, _MARK, True)
    return made


_MARK = "holdfast_journals_itself"


class HoldfastSession:
    """The history of a conversation with an agent, as a session of Holdfast. It is a `Session` of
    the SDK: `runner.run(agent, "Hello", session=HoldfastSession(hf, "chat-1"))`.

    Nothing is deleted. An item that is popped, or a session that is cleared, is said so in the log,
    and `get_items` leaves it out. Inside a task each change happens once, however often the task is
    resumed.
    """

    session_settings: SessionSettings | None = None

    def __init__(
        self, hf: Holdfast, id: str, *, session_settings: SessionSettings | None = None
    ) -> None:
        self.session_id = id
        self.session_settings = session_settings
        self._hf = hf
        self._session = hf.session(id)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """The items, oldest first; with a `limit` the newest so many."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit

        async def count() -> int:
            found: int = await asyncio.to_thread(self._count)
            return found

        # A resumed task reads as much as it did: what was said since then is not for it.
        upto = await self._once("get_items", {}, count)
        items = await asyncio.to_thread(self._items, upto)
        return items if limit is None else items[-limit:] if limit > 0 else []

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items to the end."""
        added = [plain(item) for item in items]
        if not added:
            return

        async def add() -> None:
            await self._say([said_by_item(item) for item in added])

        await self._once("add_items", {"items": added}, add)

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the newest item away, and return it; None if there is none."""

        async def pop() -> Any:
            items = await asyncio.to_thread(self._items, None)
            if not items:
                return None
            await self._say([_control("pop", "(the last item was taken back)")])
            return items[-1]

        popped = await self._once("pop_item", {}, pop)
        return cast("TResponseInputItem | None", popped)

    async def clear_session(self) -> None:
        """Begin anew: from here on there are no items."""

        async def clear() -> None:
            await self._say([_control("clear", "(the conversation was cleared)")])

        await self._once("clear_session", {}, clear)

    async def _once(
        self, name: str, arguments: dict[str, Any], body: Callable[[], Awaitable[Any]]
    ) -> Any:
        scope = _current.get() or scope_var.get()
        if scope is None:
            return await body()
        name = call_name("session", name)
        return await journaled(scope, place_of(scope, name), name, arguments, body, _STEP)

    async def _say(self, messages: list[Message]) -> None:
        if in_task():
            await self._session.say(*messages)
        else:
            await asyncio.to_thread(self._session.say, *messages)

    def _count(self) -> int:
        return self._session.state.messages

    def _items(self, upto: int | None) -> list[TResponseInputItem]:
        items: list[Any] = []
        for message in self._session.messages(1, upto) if upto != 0 else ():
            told = message.meta.get(OPENAI_ITEM)
            if told == "pop":
                items[-1:] = []
            elif told == "clear":
                items.clear()
            elif isinstance(told, dict):
                items.append(told)
            else:  # said by somebody else, such as `session.say`
                items.append({"role": message.role, "content": message.text})
        return items


def _control(what: str, text: str) -> Message:
    return Message("system", text, meta={OPENAI_ITEM: what})


class _Course:
    """One run of an agent in a task: its place, and the agents as they are in it."""

    def __init__(self, runner: HoldfastRunner, name: str) -> None:
        self.runner = runner
        self.scope = begin_run(name)
        self.model = call_name(name, "model")
        self._agents: dict[int, tuple[Agent[Any], Agent[Any]]] = {}

    @contextmanager
    def around(self) -> Iterator[None]:
        """Let what the SDK does by itself stand in the place of the run."""
        token = _current.set(self.scope)
        try:
            with standing_at(self.scope, "sdk"):
                yield
        finally:
            _current.reset(token)

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        """The options of a run, with the models behind them journaled."""
        config = given.get("run_config") or RunConfig()
        if isinstance(config, dict):
            config = RunConfig(**config)
        config = dataclasses.replace(config)
        config.model_provider = _Provider(config.model_provider, self)
        if isinstance(config.model, Model):
            config.model = _Journaled(config.model, self)
        config.input_guardrails = [self._guarded(each) for each in config.input_guardrails or ()]
        config.output_guardrails = [self._guarded(each) for each in config.output_guardrails or ()]
        return {**given, "run_config": config}

    def ended(self, result: Result) -> Result:
        """A result, with what it takes to go on with it."""
        setattr(result, "_holdfast", self.scope)  # noqa: B010
        setattr(result, "_holdfast_agents", self._agents)  # noqa: B010
        return result

    def agent(self, agent: Agent[Any]) -> Agent[Any]:
        """An agent as it is in this run. Handoffs may lead back to it."""
        if id(agent) in self._agents:
            return self._agents[id(agent)][1]
        made: Any = copy(agent)
        self._agents[id(agent)] = (agent, made)
        self._agents[id(made)] = (agent, made)
        if isinstance(agent.model, Model):
            made.model = _Journaled(agent.model, self)
        made.input_guardrails = [self._guarded(each) for each in agent.input_guardrails]
        made.output_guardrails = [self._guarded(each) for each in agent.output_guardrails]
        made.handoffs = [self._handoff(each) for each in agent.handoffs]
        made.get_all_tools = partial(self._all_tools, agent)
        return cast("Agent[Any]", made)

    def _handoff(self, handoff: Agent[Any] | Handoff[Any, Any]) -> Any:
        if isinstance(handoff, Agent):
            return self.agent(handoff)
        invoke = handoff.on_invoke_handoff

        async def hand_over(context: Any, arguments: str) -> Agent[Any]:
            return self.agent(await invoke(context, arguments))

        made = copy(handoff)
        made.on_invoke_handoff = hand_over
        return made

    async def _all_tools(self, agent: Agent[Any], context: Any) -> list[Tool]:
        return [self._tool(each) for each in await agent.get_all_tools(context)]

    def _tool(self, tool: Tool) -> Tool:
        if not isinstance(tool, FunctionTool):
            return tool  # the provider runs it, inside the request to the model
        invoke, options = tool.on_invoke_tool, self.runner.options_for(tool.name)
        itself = getattr(tool, _MARK, False)

        async def invoked(context: Any, arguments: str) -> Any:
            label = str(getattr(context, "tool_call_id", "") or tool.name)
            if itself:
                with standing_at(self.scope, label):
                    return await invoke(context, arguments)

            async def body() -> Any:
                return _output_of(await invoke(context, arguments))

            path, name = place_of(self.scope, label), call_name(tool.name)
            asked = _parsed(arguments)
            # A check, and a person, say what the function returned.
            return _output_of(await journaled(self.scope, path, name, asked, body, options))

        made = copy(tool)
        made.on_invoke_tool = invoked
        return made

    def _guarded(self, guardrail: Any) -> Any:
        """A guardrail whose verdict is recorded: it may ask a model."""
        name, judge = call_name("guardrail", guardrail.get_name()), copy(guardrail).run

        async def judged(*given: Any) -> GuardrailFunctionOutput:
            async def body() -> Any:
                # Its own method takes the agent first for input, and the context for output.
                if isinstance(guardrail, InputGuardrail):
                    told = await judge(given[1], given[2], given[0])
                else:
                    told = await judge(given[0], given[1], given[2])
                return plain(dataclasses.asdict(told.output))

            path = place_of(self.scope, name)
            return GuardrailFunctionOutput(
                **await journaled(self.scope, path, name, {}, body, _STEP)
            )

        made = copy(guardrail)
        made.name = guardrail.get_name()
        made.guardrail_function = judged
        return made

    # The request to a model, as the log has it.

    def asked(self, model: Model, given: Sequence[Any], more: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a step that asks a model."""
        instructions, input, settings, tools, schema, handoffs, _ = given
        offered = {
            "instructions": instructions,
            "settings": plain(settings.to_json_dict()),
            "tools": [_told(each) for each in tools],
            "handoffs": [[each.tool_name, each.tool_description] for each in handoffs],
            "output": None if schema is None else schema.name(),
            **{name: plain(value) for name, value in more.items() if value is not None},
        }
        offered["settings"].pop("extra_headers", None)
        data = json.dumps(offered, sort_keys=True, default=str).encode()
        return {
            "model": str(getattr(model, "model", "") or type(model).__name__),
            "input": input if isinstance(input, str) else [plain(each) for each in input],
            "offered": kept_once(data, "request.json"),
        }


class _Provider(ModelProvider):
    def __init__(self, inner: ModelProvider, course: _Course) -> None:
        self._inner = inner
        self._course = course

    def get_model(self, model_name: str | None) -> Model:
        model = self._inner.get_model(model_name)
        return model if isinstance(model, _Journaled) else _Journaled(model, self._course)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Journaled(Model):
    """A model whose answers are recorded."""

    def __init__(self, inner: Model, course: _Course) -> None:
        self._inner = inner
        self._course = course

    async def get_response(self, *given: Any, **more: Any) -> ModelResponse:
        given, more = _in_order(given, more)
        course, asked = self._course, self._course.asked(self._inner, given, more)

        async def body() -> Any:
            response = await self._inner.get_response(*given, **more)
            return {
                "model": asked["model"],
                "usage": serialize_usage(response.usage),
                "output": [plain(each.model_dump(exclude_unset=True)) for each in response.output],
                "response_id": response.response_id,
                "request_id": response.request_id,
            }

        path = course.scope.next_path()
        told = await journaled(course.scope, path, course.model, asked, body, course.runner._model)
        return ModelResponse(
            output=_outputs.validate_python(told["output"]),
            usage=deserialize_usage(told["usage"]),
            response_id=told["response_id"],
            request_id=told["request_id"],
        )

    async def stream_response(
        self, *given: Any, **more: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        given, more = _in_order(given, more)
        course, asked = self._course, self._course.asked(self._inner, given, more)

        async def body() -> AsyncIterator[Any]:
            async for event in self._inner.stream_response(*given, **more):
                yield plain(event.model_dump(exclude_unset=True))

        parts = streamed(course.scope, course.model, asked, body, course.runner._model)
        async for part in parts:
            yield _events.validate_python(part)


_PARAMETERS = (
    *("system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs"),
    "tracing",
)


def _in_order(
    given: tuple[Any, ...], more: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a model by position, however the SDK gave them."""
    left = [more.pop(name) for name in _PARAMETERS[len(given) :]]
    return (*given, *left), more


def _told(tool: Tool) -> dict[str, Any]:
    if isinstance(tool, FunctionTool):
        return {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
        }
    return {"name": tool.name, "type": type(tool).__name__}


def _parsed(arguments: str) -> dict[str, Any]:
    """The arguments that a model wrote; it may be anything."""
    try:
        found = decode(arguments or "{}")
    except Illegible:
        found = None
    return found if isinstance(found, dict) else {"input": arguments}


def _output_of(output: Any) -> Any:
    """The result of a tool in the form in which the SDK gives it to the model."""
    if output is None or isinstance(output, str | int | float | bool):
        return output if isinstance(output, str) else str(output)
    listed = output if isinstance(output, list) else [output]
    if all(
        hasattr(each, "model_dump") or (isinstance(each, dict) and "type" in each)
        for each in listed
    ):
        return plain(output)
    return str(output)
