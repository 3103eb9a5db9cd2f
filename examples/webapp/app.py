"""The web app: it starts orders, lists them, answers their questions and streams their progress.

The server drives nothing: a worker does (`python -m examples.webapp worker`). So it holds no state,
and may be killed, restarted, or run many times over. It calls the async forms of Holdfast
(`hf.astart`, `hf.apage`, …), which wait in a thread: the event loop stays free.

| request | does |
|---|---|
| `POST /orders` | starts an order; the header `Idempotency-Key` makes it one order |
| `GET /orders?status=…&cursor=…` | a page of orders, the newest first |
| `GET /orders/ID` | how far it is, what it asks, its receipt |
| `GET /orders/ID/events` | its events, as they come (SSE; `Last-Event-ID` goes on after one) |
| `GET /orders/ID/note` | the note to the customer, as it is written (SSE, likewise) |
| `POST /orders/ID/answers/QUESTION` | answers a question: the body is the answer, as JSON |
| `POST /orders/ID/messages/NAME` | sends it a message: the body is the message, as JSON |
| `POST /orders/ID/cancel` | cancels it |
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from examples.webapp.orders import fulfil, write_note
from holdfast import (
    AlreadyAnswered,
    BadId,
    BadInput,
    Holdfast,
    HoldfastError,
    StreamBroken,
    TaskNotFound,
    Unserializable,
    WrongArguments,
)

PAGE = (Path(__file__).parent / "page.html").read_text()
STATUS = {
    TaskNotFound: 404,
    AlreadyAnswered: 409,
    WrongArguments: 409,
    Unserializable: 422,
    BadId: 400,
    BadInput: 400,
}
"""What an error of Holdfast is to a client. Its message says what to do."""


def make_app(url: str) -> Starlette:
    """The app, for a store by its URL: `sqlite:///orders.db`, `postgresql://…` or a folder."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.hf = await run_in_threadpool(Holdfast, url)
        try:
            yield
        finally:
            await app.state.hf.aclose()

    routes = [
        Route("/", page),
        Route("/orders", start, methods=["POST"]),
        Route("/orders", orders),
        Route("/orders/{id}", order),
        Route("/orders/{id}/events", events),
        Route("/orders/{id}/note", note),
        Route("/orders/{id}/answers/{question}", answer, methods=["POST"]),
        Route("/orders/{id}/messages/{name}", message, methods=["POST"]),
        Route("/orders/{id}/cancel", cancel, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HoldfastError: in_words})


async def in_words(request: Request, error: Exception) -> Response:
    """An error of Holdfast as a response."""
    status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 503)
    return JSONResponse({"error": str(error)}, status)


async def page(request: Request) -> Response:
    """The page in the browser: a form, and the orders as they go on."""
    return HTMLResponse(PAGE)


async def start(request: Request) -> Response:
    """Start an order. It is on disk when the client is told so."""
    id = request.headers.get("Idempotency-Key")
    handle = await hf_of(request).options(id=id).astart(fulfil, await body_of(request))
    return JSONResponse({"id": handle.id}, 202)


async def orders(request: Request) -> Response:
    """A page of orders, by an index: no log is read for it."""
    query = request.query_params
    found = await hf_of(request).apage(
        limit=20, cursor=query.get("cursor"), type=fulfil.__name__, status=query.get("status")
    )
    listed = [{"id": each.id, "status": each.status} for each in found.tasks]
    return JSONResponse({"orders": listed, "next": found.next})


async def order(request: Request) -> Response:
    """One order, as its log tells it."""
    return JSONResponse(await run_in_threadpool(shown, hf_of(request), request.path_params["id"]))


def shown(hf: Holdfast, id: str) -> dict[str, Any]:
    """How far an order is. In a thread, because a view reads the store when it is looked at."""
    view = hf.task(id)
    return {
        "id": view.id,
        "status": view.status,
        "position": str(view.position),
        "asks": [{"id": call.key, "question": call.why} for call in view.questions],
        "receipt": view.result,
    }


async def events(request: Request) -> Response:
    """The events of an order by SSE. A browser that was cut off comes back with the id of the last
    event it saw, and goes on after it: it misses none and sees none twice."""
    hf, id = hf_of(request), request.path_params["id"]
    seen = request.headers.get("Last-Event-ID") or request.query_params.get("after") or "0"
    if not seen.isdecimal():
        raise HTTPException(400, "Last-Event-ID is the number of an event")
    await hf.atask(id)  # 404 where there is none: a stream has no status once it has begun

    async def stream() -> AsyncIterator[bytes]:
        async for event in hf.follow(id, after=int(seen)):
            data = msgspec.json.encode(event)
            yield b"id: %d\nevent: event\ndata: %s\n\n" % (event.seq, data)
        yield b"event: end\ndata: null\n\n"

    return sse(stream())


async def note(request: Request) -> Response:
    """The note to the customer by SSE, while it is written and after. If the worker dies meanwhile,
    the next one writes it anew: `anew` tells the browser to forget what it has."""
    hf, id = hf_of(request), request.path_params["id"]
    parts = hf.stream(id, write_note.__name__, after=request.headers.get("Last-Event-ID") or 0)
    await hf.atask(id)

    async def stream() -> AsyncIterator[bytes]:
        with suppress(StreamBroken, BadInput):  # the order ended without it
            async for part in parts:
                kind = b"anew" if part.begins_anew else b"part"
                data = msgspec.json.encode(part.value)
                yield b"id: %s\nevent: %s\ndata: %s\n\n" % (part.id.encode(), kind, data)
        yield b"event: end\ndata: null\n\n"

    return sse(stream())


def sse(stream: AsyncIterator[bytes]) -> Response:
    """A response of server-sent events."""
    return StreamingResponse(
        stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"}
    )


async def answer(request: Request) -> Response:
    """Answer a question of an order. A worker goes on with it."""
    where = request.path_params
    await hf_of(request).aanswer(where["id"], await body_of(request), question=where["question"])
    return JSONResponse({"answered": where["question"]})


async def message(request: Request) -> Response:
    """Send a message to an order."""
    where, once = request.path_params, request.headers.get("Idempotency-Key", "")
    value = await body_of(request)
    is_new = await hf_of(request).asend(where["id"], where["name"], value, id=once)
    return JSONResponse({"sent": is_new})


async def cancel(request: Request) -> Response:
    """Cancel an order: it stops at its next step."""
    status = await hf_of(request).acancel(request.path_params["id"], because="the customer asked")
    return JSONResponse({"status": status})


def hf_of(request: Request) -> Holdfast:
    """The store of this server."""
    hf: Holdfast = request.app.state.hf
    return hf


async def body_of(request: Request) -> Any:
    """The body of a request, which is JSON."""
    try:
        return json.loads(await request.body())
    except ValueError as error:
        raise HTTPException(400, f"the body is not JSON: {error}") from None
