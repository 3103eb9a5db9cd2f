"""Pydantic AI inside a task: `HoldfastDurability` makes an agent's calls steps of the task.

    agent = Agent("openai:gpt-5", name="support", capabilities=[HoldfastDurability()])

    @task
    async def support(question: str) -> str:
        return (await agent.run(question)).output

It is an engine for Pydantic AI's durable execution. A request to a model is a step. A call of a
tool, also of an MCP server's, is a tool of ours: its intent is on disk before it runs, and what is
in doubt after a crash is settled by its policy. Outside a task the agent is the plain agent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from datetime import datetime
from typing import Any, ClassVar, Literal, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from holdfast.api.waiting import now, uuid
from holdfast.core.scope import Scope, inside
from holdfast.core.spec import Retry, Spec
from holdfast.errors import BadInput, StepFailed, Stop, Unserializable
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
)
from holdfast.integrations.frameworks import need

need("pydantic_ai", pydantic_ai_slim=">=2.66,<3")

from pydantic_ai.agent import EventStreamHandler  # noqa: E402
from pydantic_ai.capabilities.abstract import WrapRunHandler  # noqa: E402
from pydantic_ai.durable_exec import (  # noqa: E402
    JSON_CODEC,
    BaseDurabilityCapability,
    CallableOperationBackend,
    DurabilityEngineSpec,
    DurableOperationBackend,
    DurableOperationId,
    JournalOperationNamer,
    ModelRequestId,
    RoleBasedOperationConfig,
    ToolsetCallToolId,
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import (  # noqa: E402
    ModelAPIError,
    ModelHTTPError,
    ModelRequestRejectedError,
    ModelRetry,
    UserError,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter  # noqa: E402
from pydantic_ai.models import Model, ModelRequestParameters  # noqa: E402
from pydantic_ai.run import AgentRunResult  # noqa: E402
from pydantic_ai.tools import AgentDepsT, RunContext, Tool, ToolDefinition  # noqa: E402
from pydantic_ai.toolsets import FunctionToolset  # noqa: E402
from pydantic_ai.toolsets.abstract import ToolsetTool  # noqa: E402
from pydantic_ai.toolsets.function import FunctionToolsetTool  # noqa: E402

__all__ = ["HoldfastDurability", "durable_tool"]

P = ParamSpec("P")
R = TypeVar("R")

_STEP: CallOptions = {"kind": "step"}
_TOOL: CallOptions = {"kind": "tool"}
_ITSELF: CallOptions = {"kind": "step"}
"""For a function that is decorated with `@tool`: its call is journaled without our help."""
_FINAL = (ModelRequestRejectedError, UserError, Unserializable)
"""Errors of a model's call that come again: it is not tried again."""
_ENVELOPES = {
    *("tool_return", "tool_content_result", "model_retry", "approval_required", "call_deferred"),
    *("validation_error", "tool_failed", "run_cancelled"),
}
"""How the results of tools are told apart from what they raise: by `kind`."""
_HTTP = re.compile(r"status_code: (\d+), model_name: (.*?), body: (.*)", re.DOTALL)

_UNTOLD = frozenset({"timestamp", "run_id", "conversation_id"})
"""The fields of a message that no model sees. A resumed run makes some of it anew."""


class HoldfastDurability(BaseDurabilityCapability[AgentDepsT]):
    """Makes the calls of a Pydantic AI agent steps of the Holdfast task that runs it.

    `retry` is for requests to models, `tool_options` for tools that say nothing of their own. A
    tool says it with `metadata={"holdfast": {"in_doubt": "retry"}}`: the options of `@tool`, or
    `{"kind": "step"}` for one without an effect. A tool that is decorated with our `@tool` has its
    policy already; give it to the agent with `durable_tool`.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="task",
        codec=JSON_CODEC,
        serialization_failure=lambda error: Unserializable(str(error)),
        wrapped_toolset_kinds=frozenset({"function", "mcp", "dynamic"}),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-in-durable-unit",
            "dynamic": "enter-never",
        },
        tool_config_key="holdfast",
        cancellation_error_types=(Stop,),
    )

    def __init__(
        self,
        *,
        models: Mapping[str, Model] | None = None,
        event_stream_handler: EventStreamHandler[AgentDepsT] | None = None,
        name: str | None = None,
        retry: Retry | None = None,
        tool_options: CallOptions | None = None,
    ) -> None:
        super().__init__(models=models, event_stream_handler=event_stream_handler, name=name)
        self._retry = retry or Retry(attempts=3)
        self._tool_options = checked_options("tool_options", tool_options or _TOOL)

    @property
    def in_durable_context(self) -> bool:
        return in_task()

    def get_default_run_id(self) -> str | None:
        if not in_task():
            return None
        scope = begin_run(self.name)
        run_id = str(uuid())
        _runs.setdefault(scope.run, {})[run_id] = scope
        return run_id

    def get_default_conversation_id(self, run_id: str) -> str | None:
        return conversation_id_from_run_id(run_id) if in_task() else None

    async def get_run_start_time(self, run_id: str) -> datetime | None:
        return now() if in_task() else None

    def get_durable_operation_backend(self) -> DurableOperationBackend[CallOptions]:
        retry = replace(self._retry, unless=(*self._retry.unless, *_FINAL))
        return _Backend(
            namer=JournalOperationNamer(self.name),
            config=RoleBasedOperationConfig[CallOptions](
                model={"kind": "step", "retry": retry},
                event=_STEP,
                capability=_STEP,
                tool=_STEP,
                resolve_tool=self._options_of,
            ),
        )

    async def wrap_run(
        self, ctx: RunContext[AgentDepsT], *, handler: WrapRunHandler
    ) -> AgentRunResult[Any]:
        if not in_task():
            return await handler()
        token = _current.set(_scope_of(ctx, self.name))
        try:
            return await handler()
        finally:
            _current.reset(token)

    def _options_of(
        self, id: DurableOperationId, tool: object | None, name: str
    ) -> CallOptions | Literal[False]:
        """How a call of a tool is journaled; False if the function that it calls journals itself.

        A list of tools, and a look at the arguments, have no effect: they are steps.
        """
        if not isinstance(tool, ToolsetTool):
            return _STEP
        told = (tool.tool_def.metadata or {}).get("holdfast")
        if told is False:
            return False
        if isinstance(_function_of(tool, name), Spec):
            if told is not None:
                raise BadInput(
                    f"tool {name!r} is decorated with @tool, and its metadata has options for "
                    f"Holdfast as well: keep one of them"
                )
            return _ITSELF
        if not isinstance(id, ToolsetCallToolId):
            return _STEP
        own = {} if told is None else checked_options(f"tool {name!r}", told)
        return cast("CallOptions", {**self._tool_options, **own})


def durable_tool(fn: Callable[P, R], **options: Any) -> Tool[Any]:
    """A function that is decorated with our `@tool`, as a tool of an agent.

    The model does not see the parameter for the key. `ModelRetry` reaches the model, and is not
    retried before that. The options are those of Pydantic AI's `Tool`.
    """
    return Tool(for_models(fn, (ModelRetry,)), **{"takes_ctx": False, **options})


class _Backend(CallableOperationBackend[CallOptions]):
    """Runs each durable operation of an agent as a call of the running task."""

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: CallOptions,
    ) -> object:
        ctx = next((each for each in cache_key if isinstance(each, RunContext)), None)
        scope = _scope_of(ctx, name)
        if isinstance(operation_id, ModelRequestId):
            model = operation_id.model_name
            asked = _asked(model, cache_key)
            path = scope.next_path()
            try:
                return await journaled(scope, path, call_name(name), asked, _telling(body), config)
            except StepFailed as failed:
                raise _as_raised(failed, model) from failed
        if not isinstance(operation_id, ToolsetCallToolId):
            # Its place and name say what it is: a list of tools, an event, work of a capability.
            path = place_of(scope, call_name(name))
            return await journaled(scope, path, call_name(name), {}, body, config)
        tool, arguments = cast("tuple[str, dict[str, Any]]", cache_key[:2])
        label = (ctx.tool_call_id if ctx is not None else None) or tool
        if config is _ITSELF:
            with standing_at(scope, label):
                return await body()
        path = place_of(scope, label)

        async def own() -> object:
            return _own(await body())

        asked = plain(arguments)
        return _enveloped(await journaled(scope, path, call_name(tool), asked, own, config))


# The runs of agents, and where the calls of each stand.


_runs: WeakKeyDictionary[Any, dict[str, Scope]] = WeakKeyDictionary()
"""For each run of a task, its runs of agents by their ids."""
_current: ContextVar[Scope | None] = ContextVar("holdfast_pydantic_ai_run", default=None)


def _scope_of(ctx: RunContext[Any] | None, name: str) -> Scope:
    """Where the calls of an agent's run stand."""
    if ctx is None or ctx.run_id is None:
        found = _current.get()
        return found if found is not None else begin_run(name)
    around = inside(f"a run of {name}")
    known = _runs.setdefault(around.run, {})
    if ctx.run_id not in known:
        # Its caller chose the id, and so it is the same each time.
        known[ctx.run_id] = Scope(around.run, f"{call_name(name)}-{call_name(ctx.run_id)}~1")
        known[ctx.run_id].is_async = True
    return known[ctx.run_id]


# The request to a model, as the log has it.


def _asked(model: str, cache_key: tuple[object, ...]) -> dict[str, Any]:
    _, messages, settings, parameters, *_ = cache_key
    told = ModelMessagesTypeAdapter.dump_python(cast("list[ModelMessage]", messages), mode="json")
    rest = _offered(cast("ModelRequestParameters", parameters))
    rest["settings"] = plain({k: v for k, v in (settings or {}).items() if k != "extra_headers"})  # type: ignore[attr-defined]
    data = json.dumps(rest, sort_keys=True).encode()
    return {
        "model": model,
        "messages": [_seen(message) for message in told],
        "offered": kept_once(data, "request.json"),
    }


def _seen(message: Any) -> Any:
    """A message without what no model sees."""
    if isinstance(message, list):
        return [_seen(part) for part in message]
    if not isinstance(message, dict):
        return message
    left = {key: value for key, value in message.items() if key not in _UNTOLD}
    return left | ({"parts": _seen(left["parts"])} if "parts" in left else {})


def _offered(parameters: ModelRequestParameters) -> dict[str, Any]:
    """The tools and the ways to answer that a model is given."""
    instructions = parameters.instruction_parts or []
    return {
        "tools": [_tool(each) for each in parameters.function_tools],
        "output_tools": [_tool(each) for each in parameters.output_tools],
        "native_tools": [plain(each) for each in parameters.native_tools],
        "output_mode": parameters.output_mode,
        "allow_text_output": parameters.allow_text_output,
        "instructions": [part.content for part in instructions],
    }


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters_json_schema,
    }


# Errors and answers, between the two.


def _telling(body: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
    """The body, which tells the journal how long a provider asks to wait."""

    async def run() -> object:
        try:
            return await body()
        except ModelAPIError as error:
            if error.retry_after:
                setattr(error, "retry_after_s", error.retry_after)  # noqa: B010
            raise

    return run


def _as_raised(failed: StepFailed, model: str) -> Exception:
    """The error of a model as Pydantic AI raises it, so that its fallbacks go on working. It is
    made of what the log has, and is the same on a replay."""
    failure = failed.failure
    if (found := _HTTP.match(failure.message)) is not None:
        return ModelHTTPError(int(found[1]), found[2], found[3])
    if failure.module == ModelAPIError.__module__:
        return ModelAPIError(model, failure.message)
    return failed


def _enveloped(result: object) -> object:
    """The result of a tool in the form in which Pydantic AI wants it back."""
    return result if _is_enveloped(result) else {"kind": "tool_return", "result": result}


def _own(enveloped: object) -> object:
    """The result of a tool as the log has it: what the function returned, as a check and a person
    would say it, or how it ended otherwise. Older logs have all of them in their envelopes."""
    if isinstance(enveloped, dict) and enveloped.keys() == {"kind", "result"}:
        result = enveloped["result"]
        return result if _enveloped(result) == enveloped else enveloped
    return enveloped


def _is_enveloped(result: object) -> bool:
    return isinstance(result, dict) and result.get("kind") in _ENVELOPES


def _function_of(tool: ToolsetTool[Any], name: str) -> Spec | None:
    """The facts that Holdfast has about the function that a tool calls, if it is decorated."""
    if not isinstance(tool, FunctionToolsetTool) or not isinstance(tool.toolset, FunctionToolset):
        return None
    held = tool.toolset.tools.get(tool.original_name or name)
    spec = getattr(held.function, "holdfast_spec", None) if held is not None else None
    return spec if isinstance(spec, Spec) and spec.kind != "task" else None
