"""A worker of Restate: serves the tasks of a store in this process, and registers them there."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config

from holdfast.core.spec import registry
from holdfast.engines.remote.host import Host, look_after
from holdfast.engines.restate.calls import Calls
from holdfast.engines.restate.service import Courses, workflows
from holdfast.errors import BadInput, EngineError

if TYPE_CHECKING:
    from holdfast.engines.restate.engine import Restate


# How the server reaches a worker: over HTTP/2, on a socket that workers of one machine share.


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


_AGAIN_S = 0.5
_WAITING = 64
"""How many tasks may wait at once for somebody else to let go of their logs."""
_REACHES_NOT = "META0003"
"""What the server says when it can't reach us."""


class RestateWorker:
    """Drives tasks until it is told to stop."""

    def __init__(
        self,
        engine: Restate,
        hf: Any,
        *,
        concurrency: int = 16,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if type(concurrency) is not int or concurrency < 1:
            raise BadInput(f"a worker's concurrency must be 1 or more, not {concurrency!r:.60}")
        self._engine = engine
        self._hf = hf
        self._concurrency = concurrency
        self._say: Callable[[str], None] = say if say is not None else lambda text: None
        self._stopping = threading.Event()
        self._trouble: BaseException | None = None

    def run(self) -> None:
        """Drive tasks until `stop` is called; then finish the calls in hand and return."""
        # Not on this thread: the SDK takes the signals of the main one.
        thread = threading.Thread(target=self._serve, name="holdfast restate")
        thread.start()
        try:
            thread.join()
        finally:
            self._stopping.set()
            thread.join()
        if self._trouble is not None:
            raise self._trouble

    def stop(self) -> None:
        """Take no more tasks."""
        self._stopping.set()

    def _serve(self) -> None:
        host = Host(self._hf._driving, self._engine.name)
        try:
            asyncio.run(self._served(host))
        except BaseException as error:
            self._trouble = error
        finally:
            host.close()

    async def _served(self, host: Host) -> None:
        engine = self._engine
        waiting = ThreadPoolExecutor(_WAITING, thread_name_prefix="holdfast restate")
        asyncio.get_running_loop().set_default_executor(waiting)
        calls = Calls(host, self._concurrency)
        courses = Courses(host, calls, engine)
        app = restate.app(workflows(courses, registry.tasks(), engine.prefix))
        listener = listening(*engine.listen)
        uri = engine.advertise or _url_of(listener.getsockname())
        gone = asyncio.Event()
        serving = asyncio.create_task(serve_until(app, listener, gone))
        try:
            working = asyncio.create_task(self._worked(uri))
            await asyncio.wait({serving, working}, return_when=asyncio.FIRST_COMPLETED)
            self._stopping.set()
            await working
        finally:
            # At once, also where a call is in hand: on the connection that it came by Restate
            # would ask for more. It asks another worker, who goes on when the end of the call is
            # in the log, and we have let go of that.
            host.is_ending.set()
            calls.close()
            gone.set()
            await serving
            await asyncio.to_thread(calls.finish)

    async def _worked(self, uri: str) -> None:
        """Register, and look after tasks until it is time to stop."""
        await asyncio.to_thread(self._register, uri)

        def serve(task: str) -> None:
            # The server came back empty, or somebody had it forget us.
            if task in registry.tasks():
                self._register(uri)

        looking = asyncio.create_task(look_after(self._hf.store, self._engine, self._say, serve))
        await asyncio.to_thread(self._stopping.wait)
        looking.cancel()
        self._say("finishing the steps in hand")

    def _register(self, uri: str) -> None:
        """Let the server know of us, as soon as it can be reached."""
        said = ""
        while not self._stopping.is_set():
            try:
                # The same address may serve other code than last time: it is to look again.
                reply = self._engine.admin.ask("POST", "/deployments", {"uri": uri, "force": True})
            except EngineError as error:
                why = str(error)
            else:
                if reply.status < 300:
                    self._say(f"drives tasks of {self._engine!r}, which reaches it at {uri}")
                    return
                why = f"Restate at {self._engine.admin.url} refuses {uri}: {reply.message}"
                if _REACHES_NOT in reply.message:
                    why += ". It has to reach this worker there: see Restate(listen=…, advertise=…)"
                elif reply.status < 500:
                    raise EngineError(f"{why}. Is that its admin API?")
            if why != said:
                said = why
                self._say(why)
            self._stopping.wait(_AGAIN_S)


def _url_of(address: Any) -> str:
    host, port = address[0], address[1]
    if host in ("0.0.0.0", "::"):
        raise BadInput(
            f"a worker that listens at all addresses ({host}) has to say which of them Restate is "
            f"to use: Restate(listen='{host}:{port}', advertise='http://HOST:{port}')"
        )
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
