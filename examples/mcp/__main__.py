"""A server on http://127.0.0.1:8000/mcp; another port and store: `python -m examples.mcp 8001 DIR`.

Its tools are those that the public conformance suite of the protocol asks for, so that the suite
runs against it. Kill it in the middle of a call, start it again, and ask for the task by its id.
"""

from __future__ import annotations

import sys
from typing import Annotated

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.shared.exceptions import MCPError
from mcp.types import ToolAnnotations
from pydantic import BaseModel

from holdfast import Holdfast, ask, gather, progress, sleep, step, task, tool
from holdfast.integrations.mcp import DurableSessions, DurableTasks, durable

hf = Holdfast(sys.argv[2] if len(sys.argv) > 2 else "memory://")


class Confirmation(BaseModel):
    """What a person says to a deletion."""

    confirm: bool


@tool
def delete_file(filename: str) -> str:
    """Delete a file: here, only in words."""
    return f"deleted {filename}"


@step
def compute(label: str) -> str:
    """Compute something."""
    return f"computed {label}"


@task
def multi_input() -> str:
    """Ask two things at once."""
    first, second = gather(
        lambda: ask("Who are you?", Confirmation, id="first"),
        lambda: ask("Who else?", Confirmation, id="second"),
    )
    return f"{first.confirm} and {second.confirm}"


tasks = DurableTasks(hf, [multi_input], poll_s=0.2)
server = MCPServer(
    "holdfast-example", extensions=[tasks], lifespan=tasks.lifespan, log_level="WARNING"
)


@server.tool()
def greet(name: str) -> str:
    """Greet somebody, at once."""
    return f"Hello, {name}!"


@server.tool()
@durable(hf, ttl_s=3600)
def slow_compute(seconds: float, label: str = "") -> str:
    """Compute for a while."""
    progress(f"computes {label}")
    sleep(seconds)
    return compute(label)


@server.tool()
@durable(hf, required=True)
def failing_job() -> str:
    """Fail, and say why."""
    raise ToolError("the job failed, as it always does")


@server.tool()
@durable(hf)
def protocol_error_job() -> str:
    """Fail in a way that is no result of a tool."""
    raise MCPError(-32603, "the job broke the protocol")


class Name(BaseModel):
    """Who somebody is."""

    name: str


def who_asks() -> Elicit[Name]:
    """Ask before there is a task: the SDK does so by way of the call."""
    return Elicit("What is your name?", Name)


@server.tool()
@durable(hf, required=True)
def test_tool_with_task(name: Annotated[Name, Resolve(who_asks)]) -> str:
    """Ask for a name first, and then work for it."""
    return compute(name.name)


@server.tool()
@durable(hf)
def confirm_delete(filename: str) -> str:
    """Delete a file, if a person agrees."""
    if not ask(f"Delete {filename}?", Confirmation).confirm:
        return "left it"
    return delete_file(filename)


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def test_reconnection(ctx: Context) -> str:
    """Close the stream in the middle of the call: the client comes back for the answer."""
    await ctx.close_sse_stream()
    return "it was sent after the stream had broken"


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    app = DurableSessions(hf).app(server, host="127.0.0.1", retry_interval=100)
    with hf:
        uvicorn.run(app, port=port, log_level="warning")
