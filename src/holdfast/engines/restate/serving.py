"""How the server reaches a worker: over HTTP/2, on a socket that workers of one machine share."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from hypercorn.asyncio import serve
from hypercorn.config import Config

from holdfast.errors import EngineError

_STREAMS = 1000
_GRACE_S = 1.0


def listening(host: str, port: int) -> socket.socket:
    """A socket that several processes may listen at: when one dies, another is connected to."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "SO_REUSEPORT"):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise EngineError(
            f"a worker of Restate can't listen at {host}:{port} ({error}): say where it can, "
            f"Restate(listen='host:port')"
        ) from error
    return listener


async def serve_until(app: Any, listener: socket.socket, stop: asyncio.Event) -> None:
    """Serve an application until the event is set."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: _say_unless(stop, loop, context))
    config = Config()
    config.bind = [f"fd://{listener.detach()}"]
    config.graceful_timeout = _GRACE_S
    config.h2_max_concurrent_streams = _STREAMS
    config.accesslog = config.errorlog = None
    try:
        await serve(_stoppable(app, stop), config, shutdown_trigger=stop.wait, mode="asgi")
    except Exception:
        # What still comes in for a stream that was closed ends its connection with an error.
        if not stop.is_set():
            raise


def _say_unless(stop: asyncio.Event, loop: asyncio.AbstractEventLoop, context: Any) -> None:
    if not stop.is_set():
        loop.default_exception_handler(context)


def _stoppable(app: Any, stop: asyncio.Event) -> Any:
    """Disconnect what is open when the event is set: an invocation that waits would never end."""

    async def stoppable(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await app(scope, receive, send)
            return
        receivers: set[asyncio.Task[Any]] = set()
        disconnected: set[asyncio.Task[Any]] = set()

        def disconnect(_: Any) -> None:
            if stop.is_set():
                for receiver in receivers:
                    disconnected.add(receiver)
                    receiver.cancel()

        # No task for each piece that comes in: there are some for every step.
        async def receive_or_stop() -> Any:
            this = asyncio.current_task()
            if stop.is_set() or this is None:
                return {"type": "http.disconnect"}
            receivers.add(this)
            try:
                return await receive()
            except asyncio.CancelledError:
                # By us, once. By the server too, or later: then it has closed the connection.
                if this not in disconnected or this.uncancel():
                    raise
                disconnected.discard(this)
                return {"type": "http.disconnect"}
            finally:
                receivers.discard(this)

        async def send_or_stop(message: Any) -> None:
            # What the server of a closed connection is given to send it waits for, for ever.
            if not stop.is_set():
                await send(message)

        stopped = asyncio.ensure_future(stop.wait())
        stopped.add_done_callback(disconnect)
        try:
            await app(scope, receive_or_stop, send_or_stop)
        finally:
            stopped.cancel()

    return stoppable
