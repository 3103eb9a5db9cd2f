"""Sessions of streamable HTTP go on after the server was killed, for clients of the SDK."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from mcp import Client, MCPError
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

from holdfast import BadInput, Holdfast
from holdfast.integrations.mcp import DurableSessions

ROOT = Path(__file__).parents[2]
BOTH = {"accept": "application/json, text/event-stream"}


class Killable:
    """A server whose socket stays when it is killed, so that the next one takes over."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.set_inheritable(True)
        self.url = f"http://127.0.0.1:{self.listening.getsockname()[1]}/mcp"
        self.world = folder / "world"
        self._words = [str(self.listening.fileno()), str(folder / "store"), str(self.world), *words]
        self.process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.integrations.mcp_kept", *self._words],
            cwd=ROOT, pass_fds=[self.listening.fileno()],
        )  # fmt: skip

    def restart(self) -> None:
        """Kill it, and start another."""
        self.process.kill()
        self.process.wait(60)
        self.process = self._started()

    async def restart_when(self, line: str) -> None:
        """Do so when it has done something to the world."""
        give_up = time.monotonic() + 120
        while line not in self.effects():
            assert time.monotonic() < give_up, f"{line!r} never happened"
            await asyncio.sleep(0.02)
        await asyncio.to_thread(self.restart)

    def effects(self) -> list[str]:
        return self.world.read_text().splitlines() if self.world.exists() else []


@contextmanager
def server_in(folder: Path, *words: str) -> Iterator[Killable]:
    server = Killable(folder, *words)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.wait(60)
        server.listening.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[Killable]:
    with server_in(tmp_path_factory.mktemp("mcp")) as started:
        yield started


async def called(server: Killable, tool: str, city: str, kill_at: str) -> str:
    async with Client(server.url, mode="legacy") as client:
        call = asyncio.ensure_future(client.call_tool(tool, {"city": city}))
        await server.restart_when(kill_at)
        try:
            result = await call
        except MCPError as error:
            return f"error: {error}"
        return str(result.content[0].text)  # type: ignore[union-attr]


def test_a_call_of_a_durable_tool_is_answered_after_the_server_was_killed(server):
    told = asyncio.run(called(server, "mcp_kept_plan", "Oslo", "booked Oslo"))
    assert told == "booked Oslo"
    assert server.effects().count("booked Oslo") == 1


def test_a_tool_that_may_have_had_an_effect_is_not_called_again(server):
    told = asyncio.run(called(server, "charge", "Bonn", "charged Bonn"))
    assert told.startswith("error: ") and "nobody knows what it did" in told
    assert server.effects().count("charged Bonn") == 1


def test_a_tool_that_only_reads_is_called_again(server):
    told = asyncio.run(called(server, "look", "Rome", "looked at Rome"))
    assert told == "Rome is fine"
    assert server.effects().count("looked at Rome") == 2


def test_a_session_goes_on_with_the_next_server(server):
    async def twice() -> tuple[float, float]:
        async with Client(server.url, mode="legacy") as client:
            first = await client.call_tool("since", {})
            await asyncio.to_thread(server.restart)
            second = await client.call_tool("since", {})
        return first.structured_content["result"], second.structured_content["result"]

    first, second = asyncio.run(twice())
    assert first < second


def test_without_it_the_session_is_lost_with_the_server(tmp_path):
    """The tests above would pass for no reason if the SDK did this by itself."""
    with server_in(tmp_path, "--bare") as bare:
        told = asyncio.run(called(bare, "mcp_kept_plan", "Oslo", "booked Oslo"))
        assert told.startswith("error: ")


# The same in this process, request by request


class Clock:
    now = datetime(2026, 11, 18, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


class Tokens:
    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id=token, scopes=[], expires_at=None)


def made(hf: Holdfast, **settings):
    """Another process's server on the same store, as far as a session can tell."""
    server = MCPServer("kept", log_level="CRITICAL", **settings)
    calls: list[str] = []

    @server.tool()
    def add(first: int, second: int) -> int:
        calls.append("add")
        return first + second

    sessions = DurableSessions(hf, keep_s=3600)
    return server, sessions, sessions.app(server, host="127.0.0.1")


class Asking:
    """One client, and what it says to an app."""

    def __init__(self, app, token: str = "") -> None:
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1:1"
        )
        self.headers = BOTH | ({"authorization": f"Bearer {token}"} if token else {})

    async def post(self, message, session: str = ""):
        headers = self.headers | ({"mcp-session-id": session} if session else {})
        return await self.http.post("/mcp", json=message, headers=headers)

    async def begin(self) -> str:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        answer = await self.post(message)
        assert answer.status_code == 200, answer.text
        return answer.headers["mcp-session-id"]

    async def add(self, session: str, id: int = 1):
        params = {"name": "add", "arguments": {"first": 1, "second": 2}}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        return await self.post(message, session)


@pytest.fixture
def hf():
    with Holdfast("memory://", clock=Clock()) as opened:
        yield opened


def test_another_process_goes_on_with_a_session(hf):
    async def story():
        first, _, app = made(hf)
        async with first.session_manager.run():
            session = await Asking(app).begin()
        second, _, app = made(hf)
        async with second.session_manager.run():
            answer = await Asking(app).add(session)
            assert answer.status_code == 200 and '"result":3' in answer.text.replace(" ", "")
            assert answer.headers["mcp-session-id"] == session
            unknown = await Asking(app).add("f" * 32)
            hostile = await Asking(app).add("../../etc")
            assert unknown.status_code == hostile.status_code == 404

    asyncio.run(story())


def test_an_ended_and_a_forgotten_session_are_not_known_any_more(hf):
    async def story():
        server, _, app = made(hf)
        async with server.session_manager.run():
            asking = Asking(app)
            ended, forgotten = await asking.begin(), await asking.begin()
            assert (await asking.add(ended)).status_code == 200
            headers = asking.headers | {"mcp-session-id": ended}
            assert (await asking.http.delete("/mcp", headers=headers)).status_code == 200
            assert (await asking.add(ended)).status_code == 404
            assert hf.values("mcp_sessions").keys() == [forgotten]
            Clock.now += timedelta(hours=1, seconds=1)
            assert (await asking.add(forgotten)).status_code == 404
            fresh = await asking.begin()
            assert hf.values("mcp_sessions").keys() == [fresh]
            assert hf.values(f"mcp_sessions/{forgotten}").keys() == []

    asyncio.run(story())


def test_a_session_belongs_to_the_user_who_began_it(hf):
    settings = {
        "token_verifier": Tokens(),
        "auth": AuthSettings(
            issuer_url="http://127.0.0.1:1", resource_server_url="http://127.0.0.1:1/mcp",
            validate_token_resource=False,
        ),
    }  # fmt: skip

    async def story():
        first, _, app = made(hf, **settings)
        async with first.session_manager.run():
            session = await Asking(app, "ada").begin()
        second, _, app = made(hf, **settings)
        async with second.session_manager.run():
            assert (await Asking(app, "eve").add(session)).status_code == 404
            assert (await Asking(app).add(session)).status_code == 401
            assert (await Asking(app, "ada").add(session)).status_code == 200
            assert (await Asking(app, "eve").add(session)).status_code == 404

    asyncio.run(story())


def test_sessions_do_not_hear_what_others_were_sent(hf):
    """The SDK numbers the streams of all sessions alike."""

    async def story():
        server, _, app = made(hf)
        async with server.session_manager.run():
            asking = Asking(app)
            first, second = await asking.begin(), await asking.begin()
            assert (await asking.add(first)).status_code == 200
        mine = hf.values(f"mcp_sessions/{first}").entries()
        assert any(each.value["stream"] == "1" for each in mine)
        others = hf.values(f"mcp_sessions/{second}").entries()
        assert not any(each.value["stream"] == "1" for each in others)

    asyncio.run(story())


def test_what_it_does_itself_is_not_taken_from_others(hf):
    server = MCPServer("kept")
    with pytest.raises(BadInput, match="event_store"):
        DurableSessions(hf).app(server, event_store=object())
    with pytest.raises(BadInput, match="stateless_http"):
        DurableSessions(hf).app(server, stateless_http=True)
    with pytest.raises(BadInput, match="keep_s"):
        DurableSessions(hf, keep_s=0)
