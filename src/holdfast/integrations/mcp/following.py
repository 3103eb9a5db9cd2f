"""`TaskFollower`: the client's side of tasks, for the SDK's `Client`.

    async with Client("http://localhost:8000/mcp", extensions=[TaskFollower()]) as client:
        result = await client.call_tool("plan_trip", {"city": "Oslo"})

A call that the server turns into a task is followed until the task has ended: `call_tool` returns
what the tool returned. A client that may die meanwhile keeps the task's id (`on_task`) and takes
the task up again with `follow`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Literal

import anyio
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolResult,
    ElicitRequest,
    ErrorData,
    Request,
    RequestParams,
    Result,
)
from pydantic import ConfigDict

EXTENSION = "io.modelcontextprotocol/tasks"
_SHORTEST_S, _LONGEST_S = 0.05, 60.0


class FollowedTask(Result):
    """A task as a server tells it: the handle of one, or what `tasks/get` says."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    result_type: Literal["task"] = "task"
    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str = ""
    last_updated_at: str = ""
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None


class _Task(FollowedTask):
    result_type: Literal["complete"] = "complete"  # type: ignore[assignment]
    input_requests: dict[str, dict[str, Any]] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class _Params(RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _TaskRequest(Request[_Params, str]):
    name_param: ClassVar[str | None] = "taskId"
    method: str
    params: _Params


class _Done(Result):
    model_config = ConfigDict(extra="ignore")


Answer = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Given the key of a question and its request, the response: `{"action": "accept", …}`."""


class TaskFollower(ClientExtension):
    """Follows tasks until they have ended.

    `answer` is asked when a task needs input: it gets the key of the question and the request (its
    `params` have a `message` and a `requestedSchema`), and returns the response. Without it, the
    client's own callback for elicitation is asked. `on_task` is told of each task as soon as its
    handle is there. `poll_s` is how often to ask, if not as often as the server says.
    """

    identifier = EXTENSION

    def __init__(
        self,
        answer: Answer | None = None,
        *,
        on_task: Callable[[FollowedTask], object] | None = None,
        poll_s: float | None = None,
    ) -> None:
        self._answer = answer
        self._on_task = on_task
        self._poll_s = poll_s

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """The handle of a task, in the place of a tool's result."""
        return [ResultClaim(result_type="task", model=FollowedTask, resolve=self._resolve)]

    async def _resolve(self, made: FollowedTask, ctx: ClaimContext) -> CallToolResult:
        if self._on_task is not None:
            told = self._on_task(made)
            if inspect.isawaitable(told):
                await told
        return await self.follow(ctx.session, made.task_id)

    async def follow(self, session: ClientSession, task_id: str) -> CallToolResult:
        """Follow a task until it has ended: what the tool returned, or an `MCPError`."""
        answered: set[str] = set()
        while True:
            found = await _ask(session, "tasks/get", _Params(task_id=task_id), _Task)
            if found.status == "completed":
                return CallToolResult.model_validate(found.result or {})
            if found.status == "failed":
                error = found.error or {}
                code, message = error.get("code"), str(error.get("message", "the task failed"))
                raise MCPError(code if isinstance(code, int) else INTERNAL_ERROR, message)
            if found.status == "cancelled":
                raise MCPError(INTERNAL_ERROR, f"the task {task_id} was cancelled")
            for key, request in (found.input_requests or {}).items():
                if key not in answered:
                    response = {key: await self._respond(session, key, request)}
                    params = _Params(task_id=task_id, input_responses=response)
                    await _ask(session, "tasks/update", params, _Done)
                    answered.add(key)
            await anyio.sleep(self._pause(found))

    async def cancel(self, session: ClientSession, task_id: str) -> None:
        """Ask for a task to end. The server decides when, and undoes what it did."""
        await _ask(session, "tasks/cancel", _Params(task_id=task_id), _Done)

    async def _respond(self, session: ClientSession, key: str, request: dict[str, Any]) -> Any:
        if self._answer is not None:
            return await self._answer(key, request)
        asked = ElicitRequest.model_validate(request)
        context = ClientRequestContext(session=session, request_id=key)
        given = await session.dispatch_input_request(context, asked)
        if isinstance(given, ErrorData):
            raise MCPError(given.code, f"nobody answers {key}: {given.message}")
        return given.model_dump(mode="json", by_alias=True, exclude_none=True)

    def _pause(self, found: FollowedTask) -> float:
        if self._poll_s is not None:
            return self._poll_s
        said = 1.0 if found.poll_interval_ms is None else found.poll_interval_ms / 1000
        return min(max(said, _SHORTEST_S), _LONGEST_S)


async def _ask(session: ClientSession, method: str, params: _Params, kind: type[Any]) -> Any:
    return await session.send_request(_TaskRequest(method=method, params=params), kind)
