"""`DurableTasks`: the extension by which long calls are tasks of Holdfast; and `durable`.

The SDK checks the arguments of a call and calls the tool's function, which `durable` has replaced:
the replacement makes a task with these arguments, and raises `_Made`. The extension stands around
the call and turns that into the handle (`CreateTaskResult`). So a handle goes out when the task is
in the log, and not before. A worker drives the task: one in the server's own process (`lifespan`),
or others, wherever they run. `tasks/get` reads the log, and nothing else.

A client that does not know the extension gets the result itself, when it is there. If the task asks
a question meanwhile, such a client is asked by way of its call (`input_required`), and goes on by
making the call again.
"""

from __future__ import annotations

import functools
import hmac
import inspect
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.extension import Extension, MethodBinding, ToolBinding
from mcp.server.mcpserver.utilities.context_injection import find_context_parameter
from mcp.server.mcpserver.utilities.func_metadata import FuncMetadata, func_metadata
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    RequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import Field

from holdfast.api.app import Holdfast
from holdfast.api.tasks import task
from holdfast.core.spec import Spec, task_spec
from holdfast.core.state import FINISHED, Call
from holdfast.engines.follow import await_end, looks
from holdfast.engines.local.tasks import recorded_end
from holdfast.engines.loops import off_loop
from holdfast.engines.port import EngineWorker
from holdfast.errors import AlreadyAnswered, BadInput, Conflict, HoldfastError, TaskNotFound
from holdfast.integrations.mcp.asking import Declined, answer_to, key_of, request_of
from holdfast.log.reading import Tail
from holdfast.views.task import TaskView

P = ParamSpec("P")
R = TypeVar("R")

KEY = "holdfast/key"
"""In the `_meta` of a `tools/call`: calls of one tool with the same key are one task. A client that
did not hear the answer makes the call again with the same key, and nothing happens twice."""

EXTENSION = "io.modelcontextprotocol/tasks"
_TOOL, _TTL = "mcp.tool", "mcp.ttl_ms"
"""The labels of a task: the tool that was called, and how long a client may ask after it."""
_NAMESPACE = "holdfast_mcp"
_MARK = "holdfast_durable"
_VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)

_durables: WeakKeyDictionary[Holdfast, dict[str, _Durable]] = WeakKeyDictionary()


class _Durable(Struct, frozen=True):
    """A tool whose calls are tasks: its code, and how its result looks to a client."""

    fn: Callable[..., Any]
    spec: Spec
    metadata: FuncMetadata
    required: bool
    ttl_s: float | None


class _Request(Struct, frozen=True):
    """The caller of a tool, and how it called."""

    tasks: DurableTasks
    tool: str
    user: str
    key: str
    declares: bool


_request: ContextVar[_Request | None] = ContextVar("holdfast_mcp_request", default=None)


class _Made(MCPError):
    """The call of a tool has become a task. An error of MCP, because the SDK lets these pass."""

    def __init__(self, id: str) -> None:
        super().__init__(INTERNAL_ERROR, f"the call is task {id}")
        self.id = id


class _Asks(Exception):
    """The task waits for an answer."""


def durable(
    hf: Holdfast, *, required: bool = False, ttl_s: float | None = None
) -> Callable[[Callable[P, R]], Callable[P, Awaitable[Any]]]:
    """Make the calls of a tool tasks of `hf`: `@server.tool()` above it, the function below.

    The function may be one that `@task` made, else it becomes a task of its own name. The server
    needs the extension `DurableTasks(hf)`. With `required` only clients that know about tasks may
    call the tool. A task that has not ended after `ttl_s` seconds fails, and nobody can ask after
    it by MCP any more; it stays in the store until the store's retention deletes it.

    Called outside of a server, it is `hf.arun` with the function.
    """
    if ttl_s is not None and not ttl_s > 0:
        raise BadInput(f"durable(ttl_s={ttl_s}): give a number of seconds above 0")

    def decorate(fn: Callable[P, R]) -> Callable[P, Awaitable[Any]]:
        if (context := find_context_parameter(fn)) is not None:
            raise BadInput(
                f"a durable tool has no Context, because it outlives the call: remove the "
                f"parameter {context!r}, and use ask() and progress() of Holdfast"
            )
        body: Any = fn if hasattr(fn, "holdfast_spec") else task(fn)
        spec = task_spec(body)
        found = _Durable(body, spec, func_metadata(body), required, ttl_s)
        _durables.setdefault(hf, {})[spec.name] = found

        @functools.wraps(fn)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            request = _request.get()
            if request is None:
                return await hf.options().arun(body, *args, **kwargs)
            raise _Made(await request.tasks._make(request, found, args, kwargs))

        # The SDK reads the annotations, whose names are those of the function's own module.
        signature = inspect.signature(fn, eval_str=True)
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = inspect.get_annotations(inspect.unwrap(fn), eval_str=True)
        del call.__wrapped__  # it is no task, but makes one
        call.__dict__.pop("holdfast_spec", None)
        call.__dict__[_MARK] = True
        return call

    return decorate


def is_durable(fn: object) -> bool:
    """Whether a tool's function makes tasks of its calls."""
    return getattr(fn, _MARK, False) is True


class GetTask(RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class UpdateTask(GetTask):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, Any] = Field(default_factory=dict)


class DurableTasks(Extension):
    """The extension `io.modelcontextprotocol/tasks`, for the tasks of `hf`.

    `tools` are functions that `@task` made: each becomes a tool of the server, of the same name, as
    if decorated by `durable(hf)`. The tasks are driven in this process while `lifespan` lasts,
    `concurrency` of them at a time; with `work=False`, by workers elsewhere, which must have the
    code: `holdfast worker --app MODULE`. Clients are told to ask again after `poll_s` seconds.
    """

    identifier = EXTENSION

    def __init__(
        self,
        hf: Holdfast,
        tools: Sequence[Callable[..., Any]] = (),
        *,
        work: bool = True,
        concurrency: int = 16,
        poll_s: float = 1.0,
    ) -> None:
        if not 0.001 <= poll_s <= 86_400:
            raise BadInput(
                f"DurableTasks(poll_s={poll_s!r:.60}) must be seconds, from 0.001 to a day"
            )
        self.hf = hf
        self.poll_s = poll_s
        self._tools = [
            ToolBinding(durable(hf)(fn), kwargs={"name": task_spec(fn).name}) for fn in tools
        ]
        self._work, self._concurrency = work, concurrency
        self._entered = 0
        self._driver: tuple[EngineWorker, threading.Thread] | None = None
        self._secret = b""

    # The methods that the SDK asks of an extension

    def tools(self) -> Sequence[ToolBinding]:
        """The tasks that were named as tools."""
        return self._tools

    def methods(self) -> Sequence[MethodBinding]:
        """`tasks/get`, `tasks/update` and `tasks/cancel`."""
        return [
            MethodBinding("tasks/get", GetTask, self._get, _VERSIONS),
            MethodBinding("tasks/update", UpdateTask, self._update, _VERSIONS),
            MethodBinding("tasks/cancel", GetTask, self._cancel, _VERSIONS),
        ]

    async def intercept_tool_call(
        self,
        params: CallToolRequestParams,
        ctx: ServerRequestContext[Any, Any],
        call_next: CallNext,
    ) -> HandlerResult:
        """Let the tool be called; if it made a task, answer with its handle, or wait for it."""
        declares = _declares(ctx)
        if params.request_state is not None and (view := await self._begun(params)) is not None:
            await self._answer(view, params.input_responses or {}, _by(ctx))
            return await self._waited(view.id, ctx)
        key = (params.meta or {}).get(KEY, "")
        if not isinstance(key, str) or len(key) > _LONGEST_KEY:
            raise MCPError(INVALID_PARAMS, f"{KEY} must be a text of up to {_LONGEST_KEY}")
        request = _Request(self, params.name, _user(), key, declares)
        token = _request.set(request)
        try:
            return await call_next(ctx)
        except _Made as made:
            id = made.id
        finally:
            _request.reset(token)
        if declares:
            return {"resultType": "task", **self._seed(await self.hf.atask(id))}
        return await self._waited(id, ctx)

    # A worker beside the server

    @asynccontextmanager
    async def lifespan(self, server: Any = None) -> AsyncIterator[dict[str, Any]]:
        """While it lasts, tasks are driven here: `MCPServer(…, lifespan=tasks.lifespan)`.

        At its end the steps in hand are finished, and what is left goes on with the next server.
        """
        self._entered += 1
        if self._work and self._driver is None:
            worker = self.hf.engine.worker(self.hf, concurrency=self._concurrency)
            thread = threading.Thread(target=worker.run, name="holdfast mcp", daemon=True)
            thread.start()
            self._driver = worker, thread
        try:
            yield {}
        finally:
            self._entered -= 1
            if self._driver is not None and not self._entered:
                (worker, thread), self._driver = self._driver, None
                worker.stop()
                await off_loop(thread.join)

    # Making tasks

    async def _make(
        self, request: _Request, tool: _Durable, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> str:
        """Make the task of a call, durably; its id."""
        if tool.required and not request.declares:
            raise _undeclared()
        if self._work and self._driver is None:
            raise MCPError(
                INTERNAL_ERROR,
                "nobody drives tasks here: the server needs lifespan=tasks.lifespan, or its "
                "extension DurableTasks(hf, work=False) and workers elsewhere",
            )
        labels = {_TOOL: request.tool}
        if tool.ttl_s is not None:
            labels[_TTL] = str(max(1, round(1000 * tool.ttl_s)))
        id = await self._id(request)
        options = self.hf.options(id=id, user=request.user, labels=labels, timeout_s=tool.ttl_s)
        try:
            handle = await options.astart(tool.fn, *args, **kwargs)
        except BadInput as error:
            told = f"{KEY} {request.key!r:.100} belongs to a call with other arguments"
            raise MCPError(INVALID_PARAMS, told if request.key else str(error)) from error
        return handle.id

    async def _id(self, request: _Request) -> str:
        """An id that nobody can guess: any, or with a key the one that belongs to it."""
        if not request.key:
            return f"mcp-{secrets.token_hex(16)}"
        if not self._secret:
            self._secret = await off_loop(self._kept_secret)
        said = "\0".join((request.user, request.tool, request.key)).encode()
        return f"mcp-{hmac.new(self._secret, said, 'sha256').hexdigest()[:32]}"

    def _kept_secret(self) -> bytes:
        """The secret that the ids of keys are made with. All servers on the store share it."""
        kept = self.hf.values(_NAMESPACE, bytes)
        with suppress(Conflict):
            if (found := kept.get("secret")) is not None:
                return found
            kept.put("secret", secrets.token_bytes(32), expected=0)
        return kept.get("secret") or b""

    # Waiting with a client that does not know about tasks

    async def _waited(self, id: str, ctx: ServerRequestContext[Any, Any]) -> HandlerResult:
        while True:
            try:
                await await_end(looks(self.hf.store, id, self._must_not_ask))
            except _Asks:
                view = await self.hf.atask(id)
                requests = await off_loop(_requests, view)
                if not requests:
                    continue
                if not _can_ask(ctx):
                    return _error(f"task {id} waits for an answer: {view.questions[0].why}")
                return InputRequiredResult.model_validate(
                    {"inputRequests": requests, "requestState": id}
                )
            else:
                return self._result(await self.hf.atask(id))

    def _must_not_ask(self, tail: Tail) -> None:
        if TaskView(self.hf.store, tail.state).questions:
            raise _Asks

    async def _begun(self, params: CallToolRequestParams) -> TaskView | None:
        """The task of a call that is made again with answers; None if it is none of ours."""
        try:
            view = await self._find(str(params.request_state))
        except MCPError:
            return None
        return view if view.state.labels.get(_TOOL) == params.name else None

    # The methods

    async def _get(self, ctx: ServerRequestContext[Any, Any], params: GetTask) -> HandlerResult:
        view = await self._found(ctx, params)
        return await off_loop(self._detailed, view)

    async def _update(
        self, ctx: ServerRequestContext[Any, Any], params: UpdateTask
    ) -> HandlerResult:
        view = await self._found(ctx, params)
        await self._answer(view, params.input_responses, _by(ctx))
        return {"resultType": "complete"}

    async def _cancel(self, ctx: ServerRequestContext[Any, Any], params: GetTask) -> HandlerResult:
        view = await self._found(ctx, params)
        if view.status not in FINISHED:
            await self.hf.acancel(view.id, because="tasks/cancel", by=_by(ctx))
        return {"resultType": "complete"}

    async def _found(self, ctx: ServerRequestContext[Any, Any], params: GetTask) -> TaskView:
        if not _declares(ctx):
            raise _undeclared()
        _must_be_routed(ctx, params.task_id)
        return await self._find(params.task_id)

    async def _find(self, id: str) -> TaskView:
        """The task of that id, if it was made by a call of this user. Others are not known."""
        unknown = MCPError(INVALID_PARAMS, "task not found")
        try:
            view = await self.hf.atask(id)
        except (TaskNotFound, BadInput):
            raise unknown from None
        if _TOOL not in view.state.labels or view.user != _user():
            raise unknown
        expires = _expires_at(view)
        if expires is not None and self.hf._holding.clock() >= expires:
            raise MCPError(INVALID_PARAMS, "the task has expired")
        return view

    async def _answer(self, view: TaskView, responses: Mapping[str, Any], by: str) -> None:
        """Answer what is open; a response to anything else is ignored."""
        asked = {key_of(question): question for question in await off_loop(_questions, view)}
        for key, response in responses.items():
            if key not in asked:
                continue
            try:
                answer = answer_to(asked[key], _plain(response))
                with suppress(AlreadyAnswered):
                    await self.hf.aanswer(view.id, answer, question=asked[key].path, by=by)
            except Declined as declined:
                await self.hf.acancel(view.id, because=str(declined), by=by)
            except HoldfastError as error:
                raise MCPError(INVALID_PARAMS, f"{key}: {error}") from error

    # The look of a task

    def _seed(self, view: TaskView) -> dict[str, Any]:
        """A task as its handle tells it."""
        told = _message(view)
        ttl = view.state.labels.get(_TTL)
        return {
            "taskId": view.id,
            "status": _status(view),
            **({"statusMessage": told} if told else {}),
            "createdAt": view.created_at.isoformat(),
            "lastUpdatedAt": view.state.updated_at.isoformat(),
            "ttlMs": None if ttl is None else int(ttl),
            "pollIntervalMs": round(1000 * self.poll_s),
        }

    def _detailed(self, view: TaskView) -> dict[str, Any]:
        """A task as `tasks/get` tells it: with what it asks for, or how it ended."""
        seed = {"resultType": "complete", **self._seed(view)}
        requests = _requests(view)
        if requests:
            return {**seed, "status": "input_required", "inputRequests": requests}
        if seed["status"] == "completed":
            try:
                return {**seed, "result": _dumped(self._result(view))}
            except MCPError as error:
                failed = error.error.model_dump(mode="json", exclude_none=True)
                return {**seed, "status": "failed", "error": failed}
        return seed

    def _result(self, view: TaskView) -> CallToolResult:
        """The result of the call of the tool, as the SDK would have made it of what happened."""
        tool = view.state.labels.get(_TOOL, view.type)
        durable = _durables.get(self.hf, {}).get(view.type)
        if durable is None:
            raise MCPError(INTERNAL_ERROR, f"the server has no durable tool of type {view.type}")
        if view.status == "cancelled":
            return _error(f"the task was cancelled: {view.state.because}")
        if (failure := view.failure) is not None:
            if failure.type in _PROTOCOL_ERRORS and failure.module.startswith("mcp."):
                raise MCPError(INTERNAL_ERROR, failure.message)
            # As the SDK does it: an error that the tool's author raised on purpose is for the
            # model to read, and a crash tells it nothing.
            told = f": {failure.message}" if failure.type in _ANTICIPATED else ""
            return _error(f"Error executing tool {tool}{told}")
        result = durable.metadata.convert_result(
            recorded_end(self.hf.store, view.state, durable.spec)
        )
        if isinstance(result, InputRequiredResult):
            raise MCPError(
                INTERNAL_ERROR, f"{tool} is durable: it asks by ask(), not by its result"
            )
        return result


_LONGEST_KEY = 2000
_PROTOCOL_ERRORS = frozenset({"MCPError", "UrlElicitationRequiredError", "NoBackChannelError"})
_ANTICIPATED = frozenset({"ToolError", "ResourceError", "ResourceNotFoundError", "TimeUp"})


def _status(view: TaskView) -> str:
    if view.status in ("completed", "failed"):
        return "completed"  # an error of the tool is a result; `_detailed` tells the others apart
    return "cancelled" if view.status == "cancelled" else "working"


def _message(view: TaskView) -> str:
    """Where the task is, in words."""
    if view.status in FINISHED:
        return view.state.because[:500]
    if view.doubts and view.status == "awaiting_user":
        return "a call is in doubt, and waits for an operator"
    if view.status in ("paused", "stuck"):
        return f"{view.status}: {view.state.because}"[:500]
    said = [progress for _, progress in view.progress]
    if not said:
        return f"at {view.position}"
    last = max(said, key=lambda progress: progress.at)
    of = "" if last.total is None else f"/{last.total:g}"
    figures = "" if last.done is None else f" ({last.done:g}{of})"
    return f"{last.text}{figures}"[:500]


def _questions(view: TaskView) -> tuple[Call, ...]:
    return view.questions


def _requests(view: TaskView) -> dict[str, Any]:
    return {key_of(question): request_of(question) for question in view.questions}


def _expires_at(view: TaskView) -> datetime | None:
    ttl = view.state.labels.get(_TTL)
    return None if ttl is None else view.created_at + timedelta(milliseconds=int(ttl))


def _error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _dumped(result: CallToolResult) -> dict[str, Any]:
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def _plain(response: Any) -> Any:
    dump = getattr(response, "model_dump", None)
    return response if dump is None else dump(mode="json", by_alias=True)


# The caller, and what the request says


def _declares(ctx: ServerRequestContext[Any, Any]) -> bool:
    """Whether the client knows about tasks, as this very request says."""
    capabilities = ctx.session.client_capabilities
    known = None if capabilities is None else capabilities.extensions
    return EXTENSION in (known or {}) and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _can_ask(ctx: ServerRequestContext[Any, Any]) -> bool:
    capabilities = ctx.session.client_capabilities
    can = capabilities is not None and capabilities.elicitation is not None
    return can and ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def _undeclared() -> MCPError:
    return MCPError(
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        f"this needs a client that declares {EXTENSION}",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def _user() -> str:
    """The user that the server let in; '' where everybody may come."""
    token = get_access_token()
    return "" if token is None else "|".join(filter(None, principal_components(token)))


def _by(ctx: ServerRequestContext[Any, Any]) -> str:
    params = ctx.session.client_params
    name = "a client" if params is None else params.client_info.name
    return _user() or f"mcp: {name[:100]}"


def _must_be_routed(ctx: ServerRequestContext[Any, Any], id: str) -> None:
    """The header by which proxies route a request names the same task as the request."""
    headers = getattr(ctx.request, "headers", None)
    if headers is not None and decode_header_value(headers.get(MCP_NAME_HEADER)) != id:
        raise MCPError(HEADER_MISMATCH, f"the header {MCP_NAME_HEADER} does not name the task")
