"""Tools of MCP servers as tools of ours: journaled, with a key, and with a policy for doubt.

    server = MCPTools("http://127.0.0.1:8000/mcp")             # or StdioServerParameters(…)
    agent = Orchestrator("support", model, [*server, my_own_tool])

The connection is made by the official client, in a thread of its own with an event loop, so that
sync and async agents, and the workers of engines, use it alike. It is made when it is first needed,
and again after it broke.

A call is made with its idempotency key in `_meta`, under `holdfast/key`. The words of a server
about a tool decide what becomes of a call in doubt: one that only reads (`readOnlyHint`) or may be
made twice (`idempotentHint`) is made again, any other waits for a person. The same holds for a
server that is gone in the middle of a call, and for an answer that does not come in time: nobody
knows whether the tool did its work. A server that could not be reached did nothing, and is tried
again. Calls that share a connection lose it together, so then all of them are in doubt.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from holdfast.agent.model import ToolInfo
from holdfast.agent.model_calls import SENDABLE
from holdfast.api.steps import ToolOptions, tool, wrapped
from holdfast.core.decoding import decode
from holdfast.core.spec import Doubt, IdempotencyKey, Retry
from holdfast.errors import BadInput, HoldfastError, ReplyLost
from holdfast.integrations.frameworks import need
from holdfast.log.messages import Media, Text

need("mcp", mcp=">=2.3,<3")

from mcp import Client, MCPError, StdioServerParameters  # noqa: E402
from mcp.types import CallToolResult, Tool  # noqa: E402

__all__ = ["KEY", "MCPPart", "MCPResult", "MCPServerAway", "MCPToolFailed", "MCPTools"]

KEY = "holdfast/key"
"""Where the idempotency key of a call stands in its `_meta`."""

_CLOSED, _TIMED_OUT = -32000, -32001
"""The codes of an `MCPError` that the client made itself."""

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_NO_KEY = IdempotencyKey()
_GRACE_S, _CONNECT_S = 5.0, 60.0

MCPTarget = str | StdioServerParameters | Callable[[], Any]
"""The URL of a server, the command of one, or a function that makes what `mcp.Client` takes."""


class MCPServerAway(HoldfastError):
    """An MCP server can't be reached, and so nothing was done. The call is tried again.

    >>> issubclass(MCPServerAway, HoldfastError)
    True
    """


class MCPToolFailed(HoldfastError):
    """An MCP server answered that a call failed. The message is the server's.

    >>> str(MCPToolFailed("there is no such file"))
    'there is no such file'
    """


class MCPPart(Struct, frozen=True):
    """A part of a result that is no text: a picture, a sound, a file, or where to find one."""

    type: str
    media_type: str = ""
    name: str = ""
    uri: str = ""
    data: str = ""
    """Its bytes in base64, if the server sent them."""
    text: str = ""

    @property
    def is_picture(self) -> bool:
        """Whether it is a picture of a kind that models take."""
        return self.type == "image" and bool(self.data) and self.media_type in _PICTURES

    def __str__(self) -> str:
        words = [each for each in (self.name, self.uri, self.media_type) if each]
        return f"({self.type}{': ' * bool(words)}{', '.join(words)})"


class MCPResult(Struct, frozen=True):
    """The result of a tool of an MCP server: its text, and all else that the server gave.

    >>> MCPResult("7", '{"result":7}').structured
    {'result': 7}
    """

    text: str = ""
    structured_json: str = ""
    parts: tuple[MCPPart, ...] = ()

    @property
    def structured(self) -> Any:
        """The structured content, if the server gave some."""
        return decode(self.structured_json) if self.structured_json else None

    def for_model(self) -> str:
        """The result as a model reads it: pictures and files by what they are."""
        said = (part.text or str(part) for part in self.parts)
        return "\n".join(each for each in (self.text, *said) if each) or "done"

    def parts_for_model(self) -> tuple[Text | Media, ...]:
        """The result with its pictures, which a model is shown; nothing if it has none."""
        if not any(part.is_picture for part in self.parts):
            return ()
        parts: list[Text | Media] = [Text(self.text)] if self.text else []
        for part in self.parts:
            if part.is_picture:
                data = b64decode(part.data)
                parts.append(Media(kind="image", media_type=part.media_type, data=data))
            else:
                parts.append(Text(part.text or str(part)))
        return tuple(parts)


class MCPTools:
    """The tools of one MCP server: iterate over it to get them.

    `options` are those of `@tool`, by the server's name of a tool, for what its annotations don't
    say or say wrongly. With `trusted=False` the annotations count for nothing.
    `approve_destructive` asks a person before each call of a tool that is not said to be harmless.
    `prefix` comes before the names, where two servers have tools of the same name; `only` leaves
    the other tools out.
    """

    def __init__(
        self,
        server: MCPTarget,
        *,
        prefix: str = "",
        only: Iterable[str] | None = None,
        timeout_s: float = 60.0,
        trusted: bool = True,
        approve_destructive: bool = False,
        options: Mapping[str, ToolOptions] | None = None,
        retry: Retry | None = None,
    ) -> None:
        if not 0 < timeout_s < float("inf"):
            raise BadInput(f"MCPTools(timeout_s={timeout_s!r:.40}) must be a number above 0")
        self._line = _Line(server, timeout_s)
        self._prefix = prefix
        self._only = None if only is None else frozenset(only)
        self._trusted = trusted
        self._approves = approve_destructive
        self._options = dict(options or {})
        self._retry = retry or Retry(attempts=3, delay_s=0.5)
        self._tools: list[Callable[..., MCPResult]] | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Callable[..., MCPResult]]:
        return iter(self.tools)

    def __enter__(self) -> MCPTools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def tools(self) -> list[Callable[..., MCPResult]]:
        """The tools that the server has; it is asked once."""
        with self._lock:
            if self._tools is None:
                found = list(filter(self._has, self._line.list_tools()))
                self._must_have_all(found)
                self._tools = [self._made(each) for each in found]
            return self._tools

    def close(self) -> None:
        """End the connection. A later call makes a new one."""
        self._line.close()

    def _has(self, tool: Tool) -> bool:
        return self._only is None or tool.name in self._only

    def _must_have_all(self, found: list[Tool]) -> None:
        named = {each.name for each in found}
        for what, wanted in (("only", self._only or ()), ("options", self._options)):
            if missing := sorted(set(wanted) - named):
                known = ", ".join(sorted(named)) or "none"
                raise BadInput(
                    f"MCPTools({what}=…): there is no tool {missing[0]!r}; found {known}"
                )

    def _made(self, listed: Tool) -> Callable[..., MCPResult]:
        """A tool of ours that calls one of the server's."""
        line, name = self._line, listed.name
        called = f"{self._prefix}{name}"
        if not SENDABLE.fullmatch(called):
            called = "".join(c if c.isalnum() or c in "_-" else "_" for c in called)[:64]

        def call(arguments: dict[str, Any], *, key: IdempotencyKey = _NO_KEY) -> MCPResult:
            return line.call(name, arguments, str(key))

        def record(arguments: dict[str, Any], *, key: IdempotencyKey = _NO_KEY) -> Any:
            return to_builtins(call(arguments, key=key))

        record.__name__ = record.__qualname__ = called
        record.__doc__ = listed.description or listed.title or ""
        options: dict[str, Any] = {**self._policy(listed), **self._options.get(name, {})}
        spec = tool(**{**options, "name": called})(record).holdfast_spec
        made = wrapped(replace(spec, answer=lambda _, told: _as_result(told)), outside=call)
        # A model is told the schema that the server gave, and fills that in.
        made.holdfast_info = ToolInfo(called, record.__doc__, dict(listed.input_schema))
        return made  # type: ignore[no-any-return]

    def _policy(self, listed: Tool) -> ToolOptions:
        hints = listed.annotations if self._trusted else None
        reads = bool(hints and hints.read_only_hint)
        repeats = reads or bool(hints and hints.idempotent_hint)
        harms = not reads and not (hints and hints.destructive_hint is False)
        doubt: Doubt = "retry" if repeats else "ask"
        never = (*self._retry.unless, MCPToolFailed)
        return {
            "in_doubt": doubt,
            "approve": harms and self._approves,
            "retry": Retry(
                attempts=self._retry.attempts,
                delay_s=self._retry.delay_s,
                backoff=self._retry.backoff,
                max_delay_s=self._retry.max_delay_s,
                jitter=self._retry.jitter,
                unless=never,
            ),
        }


class _Line:
    """A server, and the connection to it while there is one: one in each process."""

    def __init__(self, server: MCPTarget, timeout_s: float) -> None:
        self._server = server
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: _Connection | None = None

    def list_tools(self) -> list[Tool]:
        return self._connected().ask(_all_tools, self._timeout_s)  # type: ignore[no-any-return]

    def call(self, name: str, arguments: dict[str, Any], key: str) -> MCPResult:
        meta: Any = {KEY: key} if key else None

        async def ask(client: Client) -> CallToolResult:
            return await client.call_tool(
                name, arguments, read_timeout_seconds=self._timeout_s, meta=meta
            )

        # The client waits for the answer only; sending may hang as well.
        return _result(self._connected().ask(ask, self._timeout_s + _GRACE_S, name))

    def _connected(self) -> _Connection:
        with self._lock:
            known = self._connection
            if known is None or known.process != os.getpid() or not known.is_open():
                if known is not None and known.process == os.getpid():
                    known.close(wait=False)
                self._connection = known = None
                # A server that has yet to start may take longer than a call.
                within_s = max(self._timeout_s, _CONNECT_S)
                self._connection = known = _Connection(self._server, within_s)
            return known

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._connection.process == os.getpid():
                self._connection.close()
            self._connection = None


async def _all_tools(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if not cursor:
            return found


class _Connection:
    """A client in a thread of its own, from its beginning to its end: the client's tasks have to
    be begun and ended by one."""

    def __init__(self, server: MCPTarget, timeout_s: float) -> None:
        self.process = os.getpid()
        self._server = server
        self._client: Client | None = None
        self._why: BaseException | None = None
        self._open: Future[None] = Future()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._unanswered = 0
        """How many calls have no answer yet, or have lost it with the connection."""
        self._leaving = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast mcp", daemon=True)
        self._thread.start()
        try:
            self._open.result(timeout_s)
        except TimeoutError:
            self.close(wait=False)
            raise MCPServerAway(f"{self._name()} did not answer within {timeout_s:g} s") from None

    def _name(self) -> str:
        server = self._server
        if isinstance(server, StdioServerParameters):
            return f"the MCP server {server.command!r}"
        return f"the MCP server {server}" if isinstance(server, str) else "the MCP server"

    def is_open(self) -> bool:
        """Whether it can be used. A server that ended by itself closed it; only the inside of the
        client knows that before a call does."""
        if self._client is None or self._ended.is_set() or not self._thread.is_alive():
            return False
        dispatcher = getattr(self._client.session, "_dispatcher", None)
        return not getattr(dispatcher, "_closed", False)

    def ask(self, what: Callable[[Client], Any], timeout_s: float, name: str = "") -> Any:
        """Have the client do something. `ReplyLost` if nobody knows whether the server did."""
        doing = asyncio.run_coroutine_threadsafe(self._asked(what), self._loop)
        whose = f"{self._name()}, {name}" if name else self._name()
        try:
            return doing.result(timeout_s)
        except MCPError as error:
            if error.code == _TIMED_OUT:
                raise ReplyLost(f"{whose}: it did not answer in time") from error
            if error.code == _CLOSED:
                raise self._lost(whose) from error
            raise MCPToolFailed(f"{whose}: {error}") from error
        except TimeoutError:
            doing.cancel()
            self.close(wait=False)
            raise ReplyLost(f"{whose}: it did not answer within {timeout_s:g} s") from None
        except _Gone as error:
            raise self._lost(whose) from error
        except _Unsent as error:
            raise MCPServerAway(f"{whose}: the connection had ended before the call") from error

    def _lost(self, whose: str) -> HoldfastError:
        self.close(wait=False)
        # One call that is refused ends the connection under all the others, and those may have
        # reached the server. So it counts only for a call that was alone.
        if self._why is not None and _never_connected(self._why) and self._unanswered == 1:
            return MCPServerAway(f"{whose}: it can't be reached")
        return ReplyLost(f"{whose}: the connection ended before the answer came")

    async def _asked(self, what: Callable[[Client], Any]) -> Any:
        if self._client is None or self._ended.is_set():
            raise _Unsent
        self._unanswered += 1
        doing = asyncio.ensure_future(what(self._client))
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({doing, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done() or doing.cancelled():
                raise _Gone
            error = doing.exception()
            if not isinstance(error, MCPError) or error.code != _CLOSED:
                self._unanswered -= 1
            return doing.result()
        finally:
            doing.cancel()
            ending.cancel()

    def close(self, *, wait: bool = True) -> None:
        with suppress(RuntimeError):  # the loop may have ended
            self._loop.call_soon_threadsafe(self._leaving.set)
        if wait:
            self._thread.join(_GRACE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
            # Calls that wait for an answer are told that there won't be one.
            left = asyncio.all_tasks(self._loop)
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=_GRACE_S))
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server: Any = self._server
        try:
            made = server() if callable(server) else server
            async with Client(made) as client:
                self._client = client
                self._open.set_result(None)
                await self._leaving.wait()
        except BaseException as error:
            self._why = error
            if not self._open.done():
                away = MCPServerAway(f"{self._name()} can't be reached: {_innermost(error)!r:.300}")
                away.__cause__ = error
                self._open.set_exception(away)
        finally:
            self._ended.set()


class _Gone(Exception):
    """The connection ended under a call."""


class _Unsent(Exception):
    """The connection had ended before the call."""


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _never_connected(error: BaseException) -> bool:
    """Whether a request never left: the server did not listen."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_never_connected, error.exceptions))
    return isinstance(error, ConnectionRefusedError) or type(error).__name__ == "ConnectError"


def _result(answer: CallToolResult) -> MCPResult:
    text = "\n".join(part.text for part in answer.content if part.type == "text")
    if answer.is_error:
        raise MCPToolFailed(text or "the server does not say why")
    structured = answer.structured_content
    return MCPResult(
        text,
        "" if structured is None else json.dumps(structured),
        tuple(_part(part) for part in answer.content if part.type != "text"),
    )


def _as_result(told: Any) -> MCPResult:
    """A result from the log. A check, and a person, may say only what the tool returned."""
    if told is None or isinstance(told, str):
        return MCPResult(told or "")
    if isinstance(told, dict) and told and told.keys() <= {*MCPResult.__struct_fields__}:
        with suppress(ValidationError):
            return convert(told, MCPResult)
    said = json.dumps(told)
    return MCPResult(said, said)


def _part(given: Any) -> MCPPart:
    """A picture, a sound, a link or a file: all have their fields under the same names."""
    inner = getattr(given, "resource", given)  # of a file that came along

    def said(name: str) -> str:
        return str(getattr(inner, name, None) or "")

    return MCPPart(
        type=str(given.type),
        media_type=said("mime_type"),
        name=said("name"),
        uri=said("uri"),
        data=said("data") or said("blob"),
        text=said("text"),
    )
