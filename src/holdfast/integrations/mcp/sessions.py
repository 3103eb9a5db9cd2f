"""`DurableSessions`: sessions of streamable HTTP that outlive the server's process.

    sessions = DurableSessions(hf)
    app = sessions.app(server, host="127.0.0.1")

Clients of the protocol up to 2025-11-25 have a session with the server, and come back to a stream
that broke with the id of the last event that they saw (`Last-Event-ID`). The SDK keeps sessions in
memory: after a restart it answers 404. Here a session is a namespace of values: what began it, and
every event that its streams were sent. When a client names a session that this process does not
know, the handshake is made again with what is kept, and the client notices nothing. Each session
has events of its own, although the SDK numbers the streams of all sessions alike.

A call that was running when the server died is made again when its client comes back for the
answer, if nothing can happen twice: each call has a key, by which a durable tool finds the task
that is there. A tool that is neither durable nor said to be harmless is not called again: the
client is told that nobody knows what it did.

The revision 2026-07-28 has no sessions, and passes through untouched.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import anyio
import msgspec
from mcp.server import MCPServer
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.streamable_http_manager import RequestBodyLimitMiddleware
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.agent.values import Values
from holdfast.api.app import Holdfast
from holdfast.api.async_forms import away
from holdfast.core.decoding import Illegible, decode
from holdfast.errors import BadInput, Conflict, HoldsSecret
from holdfast.integrations.mcp.tasks import KEY, is_durable

_NAMESPACE = "mcp_sessions"
_ID = re.compile(r"[0-9a-f]{32}")
_SESSION, _LAST_EVENT, _VERSION = "mcp-session-id", "last-event-id", "mcp-protocol-version"
_STANDALONE = "_GET_stream"
"""The SDK's name for the stream that belongs to no request."""
_SWEEP_S = 60.0


class _Event(msgspec.Struct, omit_defaults=True):
    """The message sent to a stream, under the event's number."""

    stream: str
    message: Any = None
    """None for the first event of a stream, which only says that the stream is there."""
    request: str = ""
    """There: the request that the stream answers."""


class _Kept(msgspec.Struct):
    """A session in the list of all: what it takes to begin it again."""

    initialize: str
    owner: dict[str, str | None] | None
    seen: float


class _Session:
    """A session as this process knows it."""

    def __init__(self, id: str, events: Values[Any]) -> None:
        self.id = id
        self.events = events
        self.inner = ""
        """The name that the SDK has for it here; '' before its handshake was made in this
        process."""
        self.greets = False
        """Whether the handshake is being made again, which the client must not hear of."""
        self.running: set[str] = set()
        """The streams of requests that are being answered here."""
        self.reviving = anyio.Lock()
        self._next: int | None = None

    def add(self, event: _Event) -> str:
        """Keep an event durably; its id."""
        while True:
            if self._next is None:
                self._next = 1 + max((number for number, _ in self.all()), default=0)
            number, self._next = self._next, self._next + 1
            try:
                self.events.put(_key(number), event, expected=0)
            except Conflict:  # another server writes to it too
                self._next = None
            except HoldsSecret:
                told = "the message holds a secret, and is not kept"
                return self.add(_Event(event.stream, _dumped(_lost(event.message, told))))
            else:
                return str(number)

    def all(self) -> list[tuple[int, _Event]]:
        """Every event, in order."""
        return [(int(each.key), each.value) for each in self.events.entries()]


_session: ContextVar[_Session | None] = ContextVar("holdfast_mcp_session", default=None)
"""The session that a request belongs to. The SDK runs the work of a session in the context of the
request that began it."""
_raw: ContextVar[str] = ContextVar("holdfast_mcp_raw", default="")
"""The request that is handled, as it is to be made again."""


class _Events(EventStore):
    """The events of whichever session asks."""

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        session = _session.get()
        if session is None or session.greets:
            return "0"
        request = "" if message is not None else _raw.get()
        id = await away(session.add, _Event(stream_id, _dumped(message), request))
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            session.running.discard(stream_id)
        return id

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        session = _session.get()
        if session is None:
            return None
        stream, missed, _ = _missed(await away(session.all), last_event_id)
        for id, message in missed:
            await send_callback(EventMessage(jsonrpc_message_adapter.validate_python(message), id))
        return stream


class DurableSessions:
    """Keeps the sessions of a server's clients, and what their streams were sent, in a store.

    A session that nobody has used for `keep_s` seconds is deleted, and so is one that its client
    ends. Several processes may serve one store: whichever is asked goes on with the session.
    """

    def __init__(self, hf: Holdfast, *, keep_s: float = 24 * 3600.0) -> None:
        if not 1 <= keep_s <= 3.2e9:
            raise BadInput(f"DurableSessions(keep_s={keep_s!r:.60}) must be seconds, 1 or more")
        self.hf = hf
        self.keep_s = keep_s
        self._all: Values[_Kept] = hf.values(_NAMESPACE, of=_Kept)
        self._here: dict[str, _Session] = {}
        self._swept = float("-inf")

    def app(self, server: MCPServer[Any], **options: Any) -> Starlette:
        """`server.streamable_http_app(**options)`, with sessions that survive a restart."""
        for name in ("event_store", "stateless_http"):
            if options.get(name):
                raise BadInput(
                    f"DurableSessions.app({name}=…): it keeps sessions and events itself"
                )
        app = server.streamable_http_app(event_store=_Events(), **options)
        manager = server.session_manager
        door = _Door(self, server, manager.asgi_app)
        manager.asgi_app = RequestBodyLimitMiddleware(door, manager.max_request_body_size)
        return app

    def _new(self) -> _Session:
        return self._of(secrets.token_hex(16))

    def _of(self, id: str) -> _Session:
        return _Session(id, self.hf.values(f"{_NAMESPACE}/{id}", of=_Event))

    def _now(self) -> float:
        return self.hf._holding.clock().timestamp()

    def _keep(
        self, session: _Session, initialize: str, owner: dict[str, str | None] | None
    ) -> None:
        """Write a session down, before its client hears of it."""
        self._all.put(session.id, _Kept(initialize, owner, self._now()))
        self._here[session.id] = session
        self._sweep()

    def _found(self, id: str) -> _Kept | None:
        """The kept session; None if it is unknown, or was not used for too long."""
        kept = self._all.get(id) if _ID.fullmatch(id) else None
        if kept is None or kept.seen + self.keep_s < self._now():
            return None
        if self._now() - kept.seen > self.keep_s / 4:
            self._all.put(id, msgspec.structs.replace(kept, seen=self._now()))
        return kept

    def _end(self, id: str) -> None:
        self._here.pop(id, None)
        self._of(id).events.drop()
        self._all.delete(id)

    def _sweep(self) -> None:
        """Delete what nobody came back for."""
        now = self._now()
        if now - self._swept < _SWEEP_S:
            return
        self._swept = now
        for each in self._all.entries():
            if each.value.seen + self.keep_s < now:
                self._end(each.key)


class _Door:
    """Stands before the SDK's handling of requests, behind its authorization."""

    def __init__(self, sessions: DurableSessions, server: MCPServer[Any], inner: ASGIApp) -> None:
        self.sessions = sessions
        self.server = server
        self.inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        version, id = headers.get(_VERSION), headers.get(_SESSION, "")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            await self.inner(scope, receive, send)
        elif id:
            await self._within(id, scope, receive, send)
        else:
            await self._begin(scope, receive, send)

    async def _begin(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A request without a session: an `initialize` gets one."""
        body = await _body(receive) if scope["method"] == "POST" else b""
        if _read(body).get("method") != "initialize":
            await self.inner(scope, _giving(body, receive), send)
            return
        session, owner = self.sessions._new(), _owner(scope)
        _session.set(session)

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                headers = MutableHeaders(scope=message)
                session.inner = headers.get(_SESSION, "")
                await away(self.sessions._keep, session, body.decode(), owner)
                headers[_SESSION] = session.id
            await send(message)

        await self.inner(scope, _giving(body, receive), named)

    async def _within(self, id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """A request of a session, which this process may not know yet, or not any more."""
        kept = await away(self.sessions._found, id)
        if kept is None or kept.owner != _owner(scope):
            await self.inner(scope, receive, send)  # which answers that there is no such session
            return
        session = self.sessions._here.setdefault(id, self.sessions._of(id))
        _session.set(session)
        body = await _body(receive) if scope["method"] == "POST" else b""
        for _ in range(2):
            await self._revive(session, kept, scope)
            known = session.inner
            if await self._handled(session, body, scope, receive, send):
                return
            if session.inner == known:  # the SDK has forgotten the session: it was idle
                session.inner = ""
                session.running.clear()
        await self.inner(scope, _giving(body, receive), send)

    async def _handled(
        self, session: _Session, body: bytes, scope: Scope, receive: Receive, send: Send
    ) -> bool:
        """Have a request handled; False if the SDK does not know the session."""
        last = Headers(scope=scope).get(_LAST_EVENT, "")
        if scope["method"] == "GET" and last:
            events = await away(session.all)
            stream, missed, request = _missed(events, last)
            if stream not in (None, _STANDALONE, *session.running) and not _answered(
                events, stream or ""
            ):
                return await self._again(
                    session, stream or "", request, missed, scope, receive, send
                )
        return await self._asked(session, _keyed(body), scope, receive, send)

    async def _asked(
        self,
        session: _Session,
        body: bytes,
        scope: Scope,
        receive: Receive,
        send: Send,
        before: bytes = b"",
    ) -> bool:
        """Hand a request to the SDK; `before` comes first in what it answers."""
        message = _read(body)
        stream = str(message["id"]) if "method" in message and "id" in message else ""
        if stream:
            session.running.add(stream)
            _raw.set(body.decode())
        unknown = False

        async def named(message: Message) -> None:
            nonlocal unknown
            if message["type"] == "http.response.start":
                unknown = message["status"] == 404
                if message["status"] >= 400:
                    session.running.discard(stream)
                elif scope["method"] == "DELETE":
                    await away(self.sessions._end, session.id)
                headers = MutableHeaders(scope=message)
                if _SESSION in headers:
                    headers[_SESSION] = session.id
            if unknown:
                return
            await send(message)
            if before and message["type"] == "http.response.start":
                await send({"type": "http.response.body", "body": before, "more_body": True})

        asked = {**scope, "headers": _with(scope, {_SESSION: session.inner})}
        if scope["method"] == "POST" and "content-length" in Headers(scope=scope):
            asked["headers"] = _with(asked, {"content-length": str(len(body))})
        await self.inner(asked, _giving(body, receive), named)
        return not unknown

    async def _again(
        self,
        session: _Session,
        stream: str,
        request: str,
        missed: list[tuple[str, Any]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> bool:
        """Make a request again that nobody answers any more, for the client that asks for it."""
        before = b"".join(_sse(id, message) for id, message in missed)
        if request and self._is_safe(_read(request.encode())):
            types = {"content-type": "application/json", "accept": _BOTH, _LAST_EVENT: ""}
            asked = {**scope, "method": "POST", "headers": _with(scope, types)}
            return await self._asked(session, request.encode(), asked, receive, send, before)
        told = "the server ended in the middle of this request: nobody knows what it did"
        lost = _lost({"id": _read(request.encode()).get("id", stream)}, told)
        id = await away(session.add, _Event(stream, _dumped(lost)))
        headers = [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-cache")]
        headers.append((_SESSION.encode(), session.id.encode()))
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": before + _sse(id, _dumped(lost))})
        return True

    def _is_safe(self, message: Mapping[str, Any]) -> bool:
        """Whether a request may be made twice."""
        if message.get("method") != "tools/call":
            return True
        tool = self.server._tool_manager.get_tool(str(message.get("params", {}).get("name", "")))
        if tool is None or is_durable(tool.fn):
            return True
        said = tool.annotations
        return said is not None and bool(said.read_only_hint or said.idempotent_hint)

    async def _revive(self, session: _Session, kept: _Kept, scope: Scope) -> None:
        """Make the handshake of a session again, if the SDK does not know it here."""
        async with session.reviving:
            if session.inner:
                return
            session.greets = True
            try:
                answer = await self._told(kept.initialize.encode(), "", scope)
                session.inner = answer.get(_SESSION, "")
                if session.inner:
                    await self._told(_INITIALIZED, session.inner, scope)
            finally:
                session.greets = False

    async def _told(self, body: bytes, inner: str, scope: Scope) -> Headers:
        """Tell the SDK something in the client's name; the headers of what it answers."""
        found = Headers()

        async def hear(message: Message) -> None:
            nonlocal found
            if message["type"] == "http.response.start":
                found = Headers(raw=message["headers"])

        told = {"content-type": "application/json", "accept": _BOTH, "content-length": ""}
        told |= {_SESSION: inner, _LAST_EVENT: ""}
        asked = {**scope, "method": "POST", "headers": _with(scope, told)}
        await self.inner(asked, _giving(body, anyio.sleep_forever), hear)
        return found


_BOTH = "application/json, text/event-stream"
_INITIALIZED = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}'


def _key(number: int) -> str:
    return f"{number:012}"


def _missed(
    events: list[tuple[int, _Event]], last: str
) -> tuple[str | None, list[tuple[str, Any]], str]:
    """The stream of the event that a client saw last, what came after it, and the request that the
    stream answers."""
    seen = int(last) if last.isdecimal() and len(last) < 12 else -1
    stream = next((event.stream for number, event in events if number == seen), None)
    here = [(number, event) for number, event in events if event.stream == stream]
    after = [(str(n), e.message) for n, e in here if n > seen and e.message is not None]
    return stream, after, next((event.request for _, event in reversed(here) if event.request), "")


def _answered(events: list[tuple[int, _Event]], stream: str) -> bool:
    messages = [event.message or {} for _, event in events if event.stream == stream]
    return any("result" in message or "error" in message for message in messages)


def _keyed(body: bytes) -> bytes:
    """A request as it is handed on, and made again: a call has a key, if it came without one."""
    message = _read(body)
    params = message.get("params")
    if message.get("method") != "tools/call" or not isinstance(params, dict):
        return body
    meta = params.get("_meta")
    known = meta if isinstance(meta, dict) else {}
    params["_meta"] = {KEY: f"session/{secrets.token_hex(16)}", **known}
    return json.dumps(message).encode()


def _lost(message: Any, told: str) -> JSONRPCError:
    id = message.get("id") if isinstance(message, dict) else None
    return JSONRPCError(
        jsonrpc="2.0", id=id, error=ErrorData(code=INTERNAL_ERROR, message=told)
    )  # fmt: skip


def _dumped(message: Any) -> Any:
    if message is None:
        return None
    return message.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _sse(id: str, message: Any) -> bytes:
    data = json.dumps(message)
    return f"id: {id}\r\nevent: message\r\ndata: {data}\r\n\r\n".encode()


def _read(body: bytes) -> dict[str, Any]:
    """A message, as far as it is one; the SDK answers everything else."""
    try:
        found = decode(body) if body else None
    except Illegible:
        return {}
    return found if isinstance(found, dict) else {}


def _owner(scope: Scope) -> dict[str, str | None] | None:
    user = scope.get("user")
    if not isinstance(user, AuthenticatedUser):
        return None
    found = authorization_context(user)
    return {"client": found["client_id"], "issuer": found["issuer"], "subject": found["subject"]}


def _with(scope: Scope, changed: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers of a request with others in their place; '' leaves one out."""
    names = {name.encode() for name in changed}
    kept = [(name, value) for name, value in scope["headers"] if name not in names]
    return kept + [(name.encode(), value.encode()) for name, value in changed.items() if value]


async def _body(receive: Receive) -> bytes:
    """The body of a request. The server around us has made sure that it is not too long."""
    found: bytes = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return found
        found += message.get("body", b"")
        if not message.get("more_body", False):
            return found


def _giving(body: bytes, receive: Callable[[], Any]) -> Receive:
    """A `receive` that gives a body that was read before, and then what really comes."""
    given = False

    async def give() -> Message:
        nonlocal given
        if given:
            message: Message = await receive()
            return message
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give
