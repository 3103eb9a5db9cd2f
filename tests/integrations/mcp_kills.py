"""Kills a server of MCP at every boundary while the SDK's client waits for a call of its tool.

    python -m tests.integrations.mcp_kills [--every N] [--agent | --session | --inspector ERA]

Boundaries are: before and after each write of the log, after each sync, on either side of the
effect, and on either side of each request. A new server takes the place of the one that was
killed, on the same socket. The client makes its call again with the same key until it has a
handle, and then asks after the task. It must get the one result, and the world must have seen one
effect. With `--agent` the client is a task too, and is killed at its own boundaries as well. With
`--session` the client knows no tasks: it has a session of the protocol of 2025, and waits for the
answer to its one call, which `DurableSessions` has to bring over the restart. With `--inspector
ERA` it is the inspector of the protocol, a program of npm, in the `legacy` or the `modern` era.
Where it ends with an error it is run again with the same key, as a person would.
The last line that it prints is JSON; it exits with 1 if anything was violated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx2
import uvicorn
from mcp import Client, MCPError
from mcp.server import MCPServer

from holdfast import Happened, Holdfast, IdempotencyKey, ask, step, task, tool
from holdfast.engines.holder import Heartbeat
from holdfast.integrations.mcp import KEY, DurableSessions, DurableTasks, TaskFollower
from holdfast.stores.files.store import FileStore
from holdfast.testing import crash
from holdfast.testing.crash import CrashDisk, boundary

MOST_S = 120.0
PLAN, BOOKING = "mcp_kills_plan", "mcp_kills_booking"
INSPECTOR = (
    Path(__file__).parents[1]
    / "protocol/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
)
ROOT = Path(os.environ.get("MCP_KILLS", "/nonexistent"))


# The server, and what it does to the world


def world() -> Path:
    return ROOT / "world"


def effects() -> list[str]:
    return world().read_text().splitlines() if world().exists() else []


def was_booked(key: str) -> Happened[str] | None:
    return Happened("booked") if key in effects() else None


@tool(check=was_booked)
def book(city: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
    boundary("before an effect")
    with world().open("a") as file:
        file.write(f"{key}\n")
    boundary("after an effect")
    return "booked"


@step
def look(city: str) -> str:
    return f"{city} Inn"


@task(name=PLAN)
def plan(city: str) -> str:
    room = look(city)
    if not ask(f"Book {room}?", bool):
        return "left"
    return f"{book(room)} {room}"


@task(name=BOOKING)
def booking(city: str) -> str:
    return f"{book(city)} {look(city)}"


class Boundaries:
    """A boundary on either side of each request."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        boundary("before a request")
        await self.app(scope, receive, send)
        boundary("after a request")


def serve(listening: socket.socket, folder: Path, kill_at: int) -> None:
    Heartbeat.flushes = False
    crash._left = kill_at
    hf = Holdfast(FileStore(folder, disk=CrashDisk()))
    tasks = DurableTasks(hf, [plan, booking], poll_s=0.05)
    server = MCPServer("kills", extensions=[tasks], lifespan=tasks.lifespan, log_level="CRITICAL")
    app = Boundaries(DurableSessions(hf).app(server, host="127.0.0.1", retry_interval=50))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    signal.signal(signal.SIGTERM, lambda *_: setattr(running, "should_exit", True))
    asyncio.run(running.serve(sockets=[listening]))
    (ROOT / "trail").write_text(json.dumps(crash._trail))


# The client


async def agree(key: str, request: dict[str, Any]) -> dict[str, Any]:
    return {"action": "accept", "content": {"answer": True}}


async def call(url: str, key: str) -> str:
    """Call the tool until its result is there, whatever becomes of the server meanwhile."""
    handles: list[str] = []
    meta: Any = {KEY: key}
    following = TaskFollower(agree, on_task=lambda made: handles.append(made.task_id), poll_s=0.05)
    give_up = time.monotonic() + MOST_S
    while True:
        try:
            async with Client(url, extensions=[following]) as client:
                if handles:
                    result = await following.follow(client.session, handles[0])
                else:
                    result = await client.call_tool(PLAN, {"city": "Oslo"}, meta=meta)
                return str(result.content[0].text)  # type: ignore[union-attr]
        except (MCPError, httpx2.HTTPError, OSError, anyio.ClosedResourceError, ExceptionGroup):
            if time.monotonic() > give_up:
                raise
            await asyncio.sleep(0.02)


async def call_in_session(url: str, key: str) -> str:
    """The same by a client that knows no tasks: it counts how often it has to call."""
    meta: Any = {KEY: key}
    give_up = time.monotonic() + MOST_S
    while True:
        called = False
        try:
            async with Client(url, mode="legacy") as client:
                called = True
                result = await client.call_tool(BOOKING, {"city": "Oslo"}, meta=meta)
                return str(result.content[0].text)  # type: ignore[union-attr]
        except (MCPError, httpx2.HTTPError, OSError, anyio.ClosedResourceError, ExceptionGroup):
            if time.monotonic() > give_up:
                raise
            if called:
                calls_again()
            await asyncio.sleep(0.02)


def calls_again() -> None:
    with (ROOT / "again").open("a") as file:
        file.write("again\n")


def inspect(era: str, url: str) -> str:
    """The same by the inspector, in a process of its own."""
    node = shutil.which("node")
    assert node is not None, "the inspector of the protocol needs Node.js"
    command = [node, str(INSPECTOR), "--cli", url, "--protocol-era", era]
    command += ["--connect-timeout", "60000", "--method", "tools/call", "--tool-name", BOOKING]
    command += ["--tool-arg", "city=Oslo", "--tool-metadata", f"{KEY}=the-call"]
    environment = os.environ | {"MCP_CATALOG_PATH": str(ROOT / "catalog.json")}
    give_up = time.monotonic() + MOST_S
    while True:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=MOST_S, check=False
        )
        if done.returncode == 0:
            return str(json.loads(done.stdout)["structuredContent"]["result"])
        if time.monotonic() > give_up:
            raise AssertionError(done.stdout + done.stderr)
        calls_again()


@tool(in_doubt="retry")
async def call_server(url: str, *, key: IdempotencyKey = IdempotencyKey()) -> str:
    """The same as a tool of an agent: the key of the call is the key of the task at the server."""
    boundary("before an effect")
    done = await call(url, key)
    boundary("after an effect")
    return done


@task(name="mcp_kills_agent")
async def agent(url: str) -> str:
    return await call_server(url)


def be_client(url: str, folder: Path, kill_at: int) -> str:
    return asyncio.run(call(url, "the-call"))


def be_session(url: str, folder: Path, kill_at: int) -> str:
    return asyncio.run(call_in_session(url, "the-call"))


def be_inspector(era: str, url: str, folder: Path, kill_at: int) -> str:
    return inspect(era, url)


def be_agent(url: str, folder: Path, kill_at: int) -> str:
    Heartbeat.flushes = False
    crash._left = kill_at
    with Holdfast(FileStore(folder / "agent", disk=CrashDisk())) as hf:
        return hf.run(agent, url, id="agent-1")


# The trial: processes forked from this one, which has no threads


def forked(work: Callable[[], Any], answer: Path) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            answer.write_text(json.dumps(work()))
            code = 0
        except BaseException:
            answer.with_suffix(".error").write_text(traceback.format_exc())
        finally:
            os._exit(code)
    return pid


def trial(client: Callable[[str, Path, int], str], kill_server: int, kill_client: int) -> str:
    """What is wrong after one run in which each was killed once; '' if nothing."""
    shutil.rmtree(ROOT, ignore_errors=True)
    ROOT.mkdir()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"

        def new_server(kill_at: int) -> int:
            return forked(lambda: serve(listening, ROOT / "store", kill_at), ROOT / "server")

        def new_client(kill_at: int) -> int:
            return forked(lambda: client(url, ROOT, kill_at), ROOT / "client")

        serving, calling, problem = new_server(kill_server), new_client(kill_client), ""
        while True:
            pid, status = os.wait()
            if pid == serving:
                if not os.WIFSIGNALED(status):
                    problem = f"the server ended by itself: {said('server')}"
                    break
                serving = new_server(sys.maxsize)
            elif not os.WIFSIGNALED(status):
                break
            else:
                calling = new_client(sys.maxsize)
        for child, ended in ((serving, pid == serving), (calling, pid == calling)):
            if not ended:
                os.kill(child, signal.SIGTERM)
                os.waitpid(child, 0)
    if problem or not (ROOT / "client").exists():
        return problem or f"the client failed: {said('client')}"
    result, done = json.loads((ROOT / "client").read_text()), effects()
    if result != "booked Oslo Inn" or len(done) != 1:
        return f"result {result!r}, {len(done)} effects"
    return ""


def said(who: str) -> str:
    error = ROOT / f"{who}.error"
    return error.read_text() if error.exists() else "nothing"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--agent", action="store_true")
    parser.add_argument("--session", action="store_true")
    parser.add_argument("--inspector", choices=["legacy", "modern"])
    given = parser.parse_args()
    client = be_agent if given.agent else be_session if given.session else be_client
    if given.inspector:
        client = partial(be_inspector, given.inspector)
    wrong = trial(client, sys.maxsize, sys.maxsize)
    points = len(json.loads((ROOT / "trail").read_text())) if not wrong else 0
    tried, at_once, found = 0, 0, [f"undisturbed: {wrong}"] if wrong else []
    for point in range(1, points + 1, given.every):
        tried += 1
        if wrong := trial(client, point, 1 + point % 12 if given.agent else sys.maxsize):
            found.append(f"killed at boundary {point}: {wrong}")
        at_once += not (ROOT / "again").exists()
    report = {"boundaries": points, "tried": tried, "at_once": at_once, "violations": found}
    print(json.dumps(report))
    return 1 if found or not tried else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="holdfast-mcp-") as made:
        ROOT = Path(made) / "trial"
        sys.exit(main())
