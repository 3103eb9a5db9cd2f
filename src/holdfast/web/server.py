"""The server: the table of all addresses, and how a request gets to its handler and back.

Stores are synchronous, so each handler runs in a thread; no more than a few at once, so that memory
stays bounded however many tabs are open. Errors are told in the words of the command line.
"""

from __future__ import annotations

import asyncio
import mimetypes
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any
from urllib.parse import parse_qsl, unquote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import holdfast
from holdfast import errors
from holdfast.api.async_forms import away
from holdfast.core.words import without_password
from holdfast.engines.routing import LOCAL
from holdfast.web import actions, fleet, needs, past, talks, task, tasks
from holdfast.web.asked import Download, Failing, Handler, PageRequest, Site, encoded
from holdfast.web.export import exported
from holdfast.web.guard import Asgi, Gate, WayIn
from holdfast.web.live import Readers

_AT_ONCE = 6
"""How many requests are worked on at the same time: each may hold a page of a log."""

_PAGES = ("tasks", "compare", "sessions", "missions", "fleet", "search")


def me(site: Site, asked: PageRequest) -> dict[str, Any]:
    """The caller, and what it may do here."""
    return {
        "user": asked.user,
        "read_only": site.read_only,
        "store": without_password(site.hf.store.url),
        "version": holdfast.__version__,
        "can_drive": bool(site.app),
        "app": site.app,
        "engine": getattr(site.hf.engine, "name", LOCAL),
        "inbox": None if asked.flag("quick") else needs.gathered(site).count,
        "now": fleet.now(),
    }


_TASK = "/api/tasks/{id}"

GETS: dict[str, Handler] = {
    "/api/me": me,
    "/api/inbox": needs.inbox,
    "/api/tasks": tasks.listed,
    "/api/tasks/count": tasks.counted,
    "/api/types": tasks.types,
    "/api/search": tasks.found_anywhere,
    "/api/compare": past.compare,
    "/api/effects": past.effects,
    "/api/fleet": fleet.fleet,
    "/api/figures": fleet.figures,
    "/api/sessions": talks.sessions,
    "/api/sessions/{id}": talks.session,
    "/api/sessions/{id}/messages": talks.messages,
    "/api/sessions/{id}/media": talks.media,
    "/api/missions": fleet.missions,
    "/api/missions/{id}": fleet.mission,
    _TASK: task.header,
    f"{_TASK}/calls": task.calls,
    f"{_TASK}/calls/{{path}}": task.call,
    f"{_TASK}/calls/{{path}}/saw": talks.saw_of,
    f"{_TASK}/timeline": task.timeline,
    f"{_TASK}/events": task.events,
    f"{_TASK}/events/{{seq}}": task.event,
    f"{_TASK}/search": task.found,
    f"{_TASK}/state": past.state,
    f"{_TASK}/why": task.why,
    f"{_TASK}/plan": task.plan,
    f"{_TASK}/files": past.files,
    f"{_TASK}/files/{{name}}": past.file,
    f"{_TASK}/files/{{name}}/diff": past.file_diff,
    f"{_TASK}/conversation": talks.conversation,
    f"{_TASK}/models": talks.models,
    f"{_TASK}/forks": tasks.forks,
    f"{_TASK}/rewind": past.rewind_preview,
    f"{_TASK}/value": task.value,
    f"{_TASK}/export": exported,
    f"{_TASK}/audit": talks.audit,
}
"""The addresses that read."""

POSTS: dict[str, Handler] = {
    **{
        f"{_TASK}/{name}": getattr(actions, name)
        for name in (
            *("answer", "approve", "resolve", "check", "retry", "resume", "pause", "cancel"),
            *("send", "fork", "rewind", "replay", "compensate"),
        )
    },
    "/api/bulk": actions.bulk,
    "/api/sessions/{id}/say": actions.say,
}
"""The addresses that act."""


class Server:
    """The application, and what it needs while it runs."""

    def __init__(self, site: Site, entry: WayIn) -> None:
        self.site: Site = site
        self.entry: WayIn = entry
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._readers: Readers | None = None
        self._static = files("holdfast.web") / "static"

    @property
    def readers(self) -> Readers:
        """The readers that follow something; made on the event loop."""
        if self._readers is None:
            self._readers = Readers(self.site)
        return self._readers

    def app(self) -> Asgi:
        """The whole, behind its guard."""
        routes = [Route(path, self._get(handler)) for path, handler in GETS.items()]
        routes += [
            Route(path, self._post(handler), methods=["POST"]) for path, handler in POSTS.items()
        ]
        routes += [
            Route("/api/live", self._live),
            Route("/api/live/tasks/{id}", self._live),
            Route("/api/live/tasks/{id}/calls/{path}", self._live),
            Route("/api/{rest:path}", _nowhere, methods=["GET", "POST"]),
            Route("/static/{path:path}", self._asset),
            Route("/", self._page),
            *(Route(f"/{name}", self._page) for name in _PAGES),
            *(Route(f"/{name}/{{rest:path}}", self._page) for name in _PAGES),
        ]

        @asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            yield
            self.readers.closing.set()

        return Gate(Starlette(routes=routes, lifespan=lifespan), self.entry)

    def _get(self, handler: Handler) -> Any:
        async def answer(request: Request) -> Response:
            return await self._handled(handler, request, b"")

        return answer

    def _post(self, handler: Handler) -> Any:
        async def answer(request: Request) -> Response:
            try:
                body = await request.body()
            except ClientDisconnect:
                return failed(Failing(413, "too_large", "the request is too large"))
            return await self._handled(handler, request, body)

        return answer

    async def _handled(self, handler: Handler, request: Request, body: bytes) -> Response:
        try:
            async with self._slots:
                made = await away(_worked, handler, self.site, _asked(request, body))
        except Exception as error:
            return self._told(error)
        if isinstance(made, Download):
            return _download(made)
        return Response(made, media_type="application/json")

    def _told(self, error: Exception) -> Response:
        if isinstance(error, Failing):
            return failed(error)
        status, code = meaning_of(error)
        if code == "internal":
            message = f"unexpected {type(error).__name__}: this is a fault in Holdfast"
            return failed(Failing(status, code, message))
        data: dict[str, Any] = {"seq": error.seq} if isinstance(error, errors.LogDamaged) else {}
        return failed(Failing(status, code, self.site.hints.told(error), None, **data))

    async def _live(self, request: Request) -> Response:
        last, readers = request.headers.get("last-event-id", ""), self.readers
        follow, is_number = readers.tasks, last.isdecimal()
        if "path" in request.path_params:  # of a part: 3-1-7
            follow, is_number = readers.parts, last.replace("-", "").isdecimal()
        elif "id" in request.path_params:
            follow = readers.task
        try:
            events = await follow(_asked(request, b"", after=last if is_number else ""))
        except Exception as error:
            return self._told(error)
        return StreamingResponse(
            events, media_type="text/event-stream", headers={"x-accel-buffering": "no"}
        )

    async def _page(self, request: Request) -> Response:
        page = self._static / "index.html"
        if not page.is_file():
            text = "<!doctype html><title>Holdfast</title><p>The page is not built: make web.</p>"
            return Response(text, 503, media_type="text/html")
        return Response(page.read_bytes(), media_type="text/html")

    async def _asset(self, request: Request) -> Response:
        found = _asset(self._static, unquote(request.path_params["path"]))
        if found is None:
            return Response("there is no such file", 404, media_type="text/plain")
        kind = mimetypes.guess_type(found.name)[0] or "application/octet-stream"
        # Their names say which version they are, so they never change.
        kept = {"cache-control": "public, max-age=31536000, immutable"}
        return Response(found.read_bytes(), media_type=kind, headers=kept)


def _worked(handler: Handler, site: Site, asked: PageRequest) -> Download | bytes:
    made = handler(site, asked)
    return made if isinstance(made, Download) else encoded(made)


def _asked(request: Request, body: bytes, **more: str) -> PageRequest:
    place = {name: _segment(value) for name, value in request.path_params.items()}
    text = request.scope["query_string"].decode("latin-1")
    try:
        query = parse_qsl(text, keep_blank_values=True, max_num_fields=200)
    except ValueError:
        query = []
    given = [(name, value) for name, value in more.items() if value]
    return PageRequest(place, [*given, *query], body, request.scope.get("holdfast.user", ""))


def _segment(text: str) -> str:
    """A part of an address. Browsers take `..` for a way up, so such an id is written `~..`."""
    found = unquote(text)
    return found[1:] if found in ("~.", "~..") else found


def _asset(folder: Traversable, path: str) -> Traversable | None:
    found = folder
    for part in path.split("/"):
        if not part or part.startswith(".") or "\\" in part or "\0" in part:
            return None
        found = found / part
    return found if found.is_file() else None


def _download(made: Download) -> Response:
    # Nothing that a log holds may be shown by the browser as a page.
    how = "inline" if made.inline else "attachment"
    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in made.name)
    headers = {
        "content-disposition": f'{how}; filename="{name[:150]}"',
        "content-security-policy": "default-src 'none'; sandbox",
    }
    return StreamingResponse(_threaded(made.pieces), media_type=made.media_type, headers=headers)


async def _threaded(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await away(next, pieces, None)) is not None:
        yield piece


async def _nowhere(request: Request) -> Response:
    return failed(Failing(404, "not_found", "there is nothing at this address"))


def failed(error: Failing) -> Response:
    """An error as the page gets it."""
    told: dict[str, Any] = {"code": error.code, "message": str(error), "command": error.command}
    if error.data:
        told["data"] = error.data
    headers = {"retry-after": "1"} if error.status == 429 else {}
    return Response(encoded({"error": told}), error.status, headers, "application/json")


_MEANT: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.TaskNotFound, 404, "not_found"),
    (errors.SessionNotFound, 404, "not_found"),
    (errors.CodeMissing, 409, "needs_code"),
    (errors.TooLarge, 413, "too_large"),
    (errors.AlreadyAnswered, 409, "refused"),
    (errors.BadInput, 400, "bad_input"),
    (errors.Unserializable, 400, "bad_input"),
    (errors.TaskBusy, 409, "busy"),
    (errors.LeaseLost, 409, "busy"),
    (errors.LogDamaged, 409, "damaged"),
    (errors.NewerFormat, 409, "damaged"),
    (errors.StoreError, 503, "store"),
    (errors.EngineError, 503, "store"),
    (errors.HoldfastError, 409, "refused"),
    (OSError, 503, "store"),
)


def meaning_of(error: Exception) -> tuple[int, str]:
    """The status and the code of an error; the first that fits counts.

    >>> meaning_of(errors.BadId("no")), meaning_of(KeyError("x"))
    ((400, 'bad_input'), (500, 'internal'))
    """
    for kind, status, code in _MEANT:
        if isinstance(error, kind):
            return status, code
    return 500, "internal"


def bound(host: str, port: int | None, preferred: Sequence[int] = (8321,)) -> socket.socket:
    """A socket to listen on: at the port that was asked for, or a usual one, or any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tried = [port] if port is not None else [*preferred, 0]
    for number in tried:
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host.strip("[]") or "127.0.0.1", number))
        except OSError as error:
            made.close()
            if number == tried[-1]:
                raise errors.BadInput(
                    f"can't listen on {host}:{number}: {error.strerror}"
                ) from None
            continue
        made.listen(128)
        return made
    raise errors.BadInput(f"can't listen on {host}")


def made_for(site: Site, entry: WayIn) -> uvicorn.Server:
    """The server of a site, until its `should_exit` is set or the process is asked to end."""
    config = uvicorn.Config(
        Server(site, entry).app(),
        http="h11",
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        limit_concurrency=200,
        timeout_keep_alive=20,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)
