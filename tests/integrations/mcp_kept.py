"""A server of MCP on a socket that it inherits, for tests that kill it: sessions are kept.

python -m tests.integrations.mcp_kept FD STORE WORLD [--bare]
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from pathlib import Path

import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ToolAnnotations

from holdfast import Holdfast, IdempotencyKey, sleep, task, tool
from holdfast.integrations.mcp import DurableSessions, DurableTasks

WORLD = Path(sys.argv[3]) if len(sys.argv) > 3 else Path("/nonexistent")
SLOW_S = 1.5


def noted(what: str) -> None:
    with WORLD.open("a") as file:
        file.write(f"{what}\n")


@tool
def book(city: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
    # The world knows a repeat by its key: a server may be killed before it has recorded this.
    known = WORLD.with_suffix(".keys")
    if not known.exists() or key not in known.read_text().splitlines():
        with known.open("a") as keys:
            keys.write(f"{key}\n")
        noted(f"booked {city}")
    return f"booked {city}"


@task(name="mcp_kept_plan")
def plan(city: str) -> str:
    """Book in a city."""
    done = book(city)
    sleep(SLOW_S)
    return done


def serve(fd: int, folder: str) -> None:
    hf = Holdfast(folder)
    tasks = DurableTasks(hf, [plan])
    server = MCPServer("kept", extensions=[tasks], lifespan=tasks.lifespan, log_level="CRITICAL")

    @server.tool()
    async def charge(city: str, ctx: Context) -> str:
        """Charge a card, and take a while for it: no durable tool."""
        noted(f"charged {city}")
        await ctx.report_progress(1, 2, "charged")
        await asyncio.sleep(SLOW_S)
        return f"charged {city}"

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    async def look(city: str) -> str:
        """Look something up, and take a while for it."""
        noted(f"looked at {city}")
        await asyncio.sleep(SLOW_S)
        return f"{city} is fine"

    @server.tool()
    def since() -> float:
        """When this process began."""
        return BEGAN

    if "--bare" in sys.argv:
        app = server.streamable_http_app(host="127.0.0.1", retry_interval=50)
    else:
        app = DurableSessions(hf).app(server, host="127.0.0.1", retry_interval=50)
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    asyncio.run(uvicorn.Server(config).serve(sockets=[socket.socket(fileno=fd)]))


BEGAN = time.time()

if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2])
