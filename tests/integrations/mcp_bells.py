"""An MCP server for tests of its client's side: on stdin and stdout, or with a port over HTTP.

Each call is written to a file, with its idempotency key, before anything else happens.

    python -m tests.integrations.mcp_bells FILE [PORT]
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

server = MCPServer("bells")


def noted(ctx: Context[Any, Any], name: str, what: str) -> int:
    """Write a call down; how often it was made so far."""
    meta: Any = ctx.request_context.meta or {}
    line = {"name": name, "what": what, "key": meta.get("holdfast/key", "")}
    path = Path(sys.argv[1])
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return sum(json.loads(each)["name"] == name for each in path.read_text().splitlines())


@server.tool()
def ring(who: str, ctx: Context[Any, Any], times: int = 1) -> str:
    """Ring a bell for somebody."""
    noted(ctx, "ring", who)
    return f"rang {times} times for {who}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def bells(ctx: Context[Any, Any]) -> list[str]:
    """The bells that there are."""
    noted(ctx, "bells", "")
    return ["big", "small"]


@server.tool()
def fail(why: str, ctx: Context[Any, Any]) -> str:
    """Fail."""
    noted(ctx, "fail", why)
    raise ToolError(why)


def _dies_once(ctx: Context[Any, Any], name: str) -> str:
    if noted(ctx, name, "") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "done at last"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True, destructive_hint=False))
def die_once(ctx: Context[Any, Any]) -> str:
    """End the server the first time, after the effect; may be repeated."""
    return _dies_once(ctx, "die_once")


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
def die_once_for_good(ctx: Context[Any, Any]) -> str:
    """The same, and may not be repeated."""
    return _dies_once(ctx, "die_once_for_good")


@server.tool(annotations=ToolAnnotations(destructive_hint=True))
async def ring_last(ctx: Context[Any, Any]) -> str:
    """Ring while the server shuts down: calls under way go on, and no more are taken."""
    noted(ctx, "ring_last", "")
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(600)
    return "never"


@server.tool()
def hang(ctx: Context[Any, Any]) -> str:
    """Take too long."""
    noted(ctx, "hang", "")
    time.sleep(600)
    return "never"


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def picture() -> list[Any]:
    """A picture of a bell."""
    return ["a bell", Image(data=b"\x89PNG", format="png")]


if __name__ == "__main__":
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run()
