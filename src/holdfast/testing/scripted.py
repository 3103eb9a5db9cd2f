"""A model server that says what a script says: for tests without a key, and without a network.

It speaks the formats of OpenAI's chat completions and responses and of Anthropic's messages over
real HTTP, streaming or not, so what is tested is the real client. As a real provider does, it
refuses a conversation in which a call has no result, and what else they refuse that a model's own
reply can bring about. It can also fail in the ways that they do.

A value that it makes up, such as the id of a reply, depends on the request alone. So an agent that
was killed and asks again gets the very same.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.model import Reply, ToolInfo
from holdfast.errors import BadInput
from holdfast.log.messages import Message, assistant, is_valid
from holdfast.testing import scripted_wire as wire

# The faults that providers refuse, beyond calls and results that do not pair.
#
# Each rule is one that an agent runs into by what a model says: a provider that takes the request
# now refuses the next one, which has the reply in it. So a scripted model refuses it as well.


Json = dict[str, Any]

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def why_refused(format: str, data: Json) -> str:
    """The objection of a provider to a request; nothing if it would take it."""
    rules = _of_anthropic if format == "anthropic" else _of_openai
    return next(rules(data), "")


def _of_openai(data: Json) -> Iterator[str]:
    functions = [tool.get("function", tool) for tool in data.get("tools") or ()]
    for message in _objects(data.get("messages")):
        functions += [call.get("function", {}) for call in message.get("tool_calls") or ()]
    items = _objects(data.get("input"))
    functions += [item for item in items if item.get("type") == "function_call"]
    yield from _names(function["name"] for function in functions if "name" in function)


def _of_anthropic(data: Json) -> Iterator[str]:
    blocks: list[Json] = []
    for message in data["messages"]:
        content = message["content"]
        blocks += [{"type": "text", "text": content}] if isinstance(content, str) else content
    if any(block["type"] == "text" and not block["text"].strip() for block in blocks):
        yield "text content blocks must contain non-whitespace text"
    calls = [block for block in blocks if block["type"] == "tool_use"]
    if calls and not data.get("tools"):
        yield "requests which include tool_use blocks must define tools"
    ids = [call["id"] for call in calls]
    if len(set(ids)) < len(ids):
        yield "tool_use ids must be unique"
    yield from _names(named["name"] for named in [*calls, *(data.get("tools") or ())])


def _names(names: Iterator[str]) -> Iterator[str]:
    for name in names:
        if not _NAME.fullmatch(name):
            yield f"the name of a tool does not match '^[a-zA-Z0-9_-]{{1,64}}$': {name!r:.80}"


def _objects(data: Any) -> list[Json]:
    return [each for each in data if isinstance(each, dict)] if isinstance(data, list) else []


class Seen(Struct, frozen=True):
    """A request as the script sees it. `count` is its number, from 1; `data` all that was sent."""

    format: str
    messages: list[Message]
    tools: tuple[ToolInfo, ...]
    data: dict[str, Any]
    count: int
    headers: dict[str, str]


class Fault(Struct, frozen=True):
    """An HTTP error instead of a reply, such as `Fault(429, retry_after_s=2)`."""

    status: int = 500
    retry_after_s: float | None = None
    message: str = "as the script says"


class Cut(Struct, frozen=True):
    """A connection that breaks: before anything is said, or halfway through a reply."""

    reply: Reply | Message | str | None = None


class Malformed(Struct, frozen=True):
    """An answer that is no reply at all, or one written by hand."""

    text: str = "<html>Bad gateway</html>"
    content_type: str = "text/html"


class Slow(Struct, frozen=True):
    """A reply that takes its time."""

    reply: Reply | Message | str
    delay_s: float = 60.0


class Headed(Struct, frozen=True):
    """An answer with headers of its own, such as those that tell what is left of a limit."""

    answer: Reply | Message | str | Fault | Cut | Malformed | Slow
    headers: dict[str, str]


Answer = Reply | Message | str | Fault | Cut | Malformed | Slow | Headed
Script = Callable[[Seen], Answer] | Sequence[Answer]


class ScriptedModel:
    """A server on this machine whose replies are a script: a function of what was asked, or a list.

    It has a port of its own, unless you give it one: then an agent that was killed finds it where
    it was.

    >>> from holdfast.agent.adapters import OpenAIChat
    >>> from holdfast.log.messages import user
    >>> from holdfast.agent.model import Request
    >>> from openai import OpenAI
    >>> with ScriptedModel(["Hello!"]) as server:
    ...     with OpenAI(api_key="any", base_url=server.url) as client:
    ...         OpenAIChat(client, "any")(Request((user("Hi"),))).message.text
    ...     [seen.messages[0].text for seen in server.requests]
    'Hello!'
    ['Hi']
    """

    def __init__(self, script: Script, *, port: int = 0) -> None:
        self._script = script
        self._port = port
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.requests: list[Seen] = []
        """Every request so far."""

    def __enter__(self) -> ScriptedModel:
        self._process = os.getpid()
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.scripted = self
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="scripted-model", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if os.getpid() == self._process:  # in a fork of it, nobody serves
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The `base_url` for a client."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, format: str, data: dict[str, Any], headers: dict[str, str]) -> Answer:
        """The answer of the script to a request."""
        try:
            messages, tools = wire.asked(format, data)
        except (BadInput, KeyError, TypeError, AttributeError) as error:
            return Fault(400, message=f"not a request: {error!r}")
        with self._lock:
            seen = Seen(format, messages, tools, data, len(self.requests) + 1, headers)
            self.requests.append(seen)
        if not is_valid(messages):
            return Fault(400, message="calls and results don't pair")
        if refused := why_refused(format, data):
            return Fault(400, message=refused)
        try:
            if callable(self._script):
                return self._script(seen)
            return self._script[seen.count - 1]
        except IndexError:
            return Fault(400, message=f"the script ends before request {seen.count}")
        except Exception as error:
            return Fault(400, message=f"the script raised {error!r}")

    def wait(self, seconds: float) -> None:
        """Take time, but no longer than the server lives."""
        self._closing.wait(seconds)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    scripted: ScriptedModel

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is nothing to tell anybody."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes: the second waited for an ack
    server: _Server

    def do_POST(self) -> None:
        self._headers: dict[str, str] = {}
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        format = wire.PATHS.get(self.path.split("?")[0].removeprefix("/v1"))
        if format is None:
            self._send(404, wire.error("openai_chat", 404, f"no such path: {self.path}"))
            return
        data = json.loads(body)
        headers = {name.lower(): value for name, value in self.headers.items()}
        answer = self.server.scripted.answer(format, data, headers)
        if isinstance(answer, Headed):
            self._headers, answer = answer.headers, answer.answer
        if isinstance(answer, Slow):
            self.server.scripted.wait(answer.delay_s)
            answer = answer.reply
        match answer:
            case Fault():
                after = {} if answer.retry_after_s is None else _retry_after(answer.retry_after_s)
                refused = wire.error(format, answer.status, answer.message)
                self._send(answer.status, refused, after)
            case Malformed():
                self._send(200, answer.text, {"content-type": answer.content_type})
            case Cut(reply=None):
                self._hang_up()
            case Cut(reply=cut) if cut is not None:
                self._reply(format, data, _made(cut, data), is_cut=True)
            case Reply() | Message() | str():
                self._reply(format, data, _made(answer, data))
            case _:
                refused = wire.error(format, 400, f"the script gave {answer!r:.80}")
                self._send(400, refused)

    def _reply(self, format: str, data: Any, reply: Reply, *, is_cut: bool = False) -> None:
        if not data.get("stream"):
            self._send(200, wire.whole(format, reply), is_cut=is_cut)
            return
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        lines = [wire.line(event) for event in wire.events(format, reply, data)]
        for line in lines[: len(lines) // 2] if is_cut else lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        if is_cut:
            self._hang_up()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _send(
        self,
        status: int,
        body: dict[str, Any] | str,
        headers: dict[str, str] | None = None,
        *,
        is_cut: bool = False,
    ) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "text/html" if isinstance(body, str) else "application/json"
        sizes = {"content-type": kind, "content-length": str(len(data))}
        self._head(status, sizes | (headers or {}))
        self.wfile.write(data[: len(data) // 2] if is_cut else data)
        if is_cut:
            self._hang_up()

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        usual = {"server": self.version_string(), "date": self.date_time_string()}
        for name, value in (usual | headers | self._headers).items():
            self.send_header(name, value)
        self.end_headers()

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are kept, not printed."""


def _retry_after(seconds: float) -> dict[str, str]:
    return {"retry-after-ms": f"{seconds * 1000:g}", "retry-after": f"{seconds:g}"}


def _made(said: Reply | Message | str, data: dict[str, Any]) -> Reply:
    """A whole reply; what it leaves open depends on what was asked, and on nothing else."""
    if isinstance(said, str):
        said = assistant(said)
    if isinstance(said, Message):
        said = Reply(said, stop="tool_calls" if said.calls else "end")
    if said.stop == "end" and said.message.calls:
        said = replace(said, stop="tool_calls")
    plain = {key: value for key, value in data.items() if not key.startswith("stream")}
    digest = sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
    model = said.model or str(data.get("model", ""))
    return replace(said, id=said.id or f"reply-{digest[:12]}", model=model)
