"""A worker of Restate: serves the tasks of a store as workflows, and registers them there."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import restate
from hypercorn.asyncio import serve
from hypercorn.config import Config
from restate import TerminalError, Workflow, WorkflowContext, WorkflowSharedContext
from restate.exceptions import RetryableError
from restate.retry_policy import InvocationRetryPolicy
from restate.serde import JsonSerde
from restate.server_context import DisconnectedException

from holdfast.core.spec import registry
from holdfast.engines.port import Job
from holdfast.engines.remote.course import RunEnd, drive
from holdfast.engines.remote.host import Host, look_after
from holdfast.engines.restate.calls import Calls, trouble
from holdfast.engines.restate.carrier import END, ENDED, JSON, LEFT, MAIL, RestateCarrier
from holdfast.engines.restate.http import LOG, RUN, TELL, service_of
from holdfast.engines.routing import Taken, log_in
from holdfast.errors import BadInput, EngineConflict, EngineError, TaskBusy
from holdfast.log.reading import no_task

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
        # Data that still arrives for a closed stream ends its connection with an error.
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
            # Sending on a closed connection never returns.
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
"""How many tasks may wait at once for somebody else to release their logs."""
_REACHES_NOT = "META0003"
"""The words of the server when it can't reach us."""


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
        self.hindered: str = f"it has not reached {engine!r} yet"
        """Why it drives no tasks now; '' if it does."""

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
            # in the log, and we have released that.
            host.is_ending.set()
            calls.close()
            gone.set()
            # From Python 3.12 on, a server that closes waits for its connections, without end for
            # one of an invocation that was killed.
            await asyncio.wait({serving}, timeout=_GRACE_S + 1)
            serving.cancel()
            with suppress(asyncio.CancelledError):
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
                    self.hindered = ""
                    self._say(f"drives tasks of {self._engine!r}, which reaches it at {uri}")
                    return
                why = f"Restate at {self._engine.admin.url} refuses {uri}: {reply.message}"
                if _REACHES_NOT in reply.message:
                    why += ". It has to reach this worker there: see Restate(listen=…, advertise=…)"
                elif reply.status < 500:
                    raise EngineError(f"{why}. Is that its admin API?")
            self.hindered = why
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


# The workflows that Restate knows: one for each type of task, with four handlers.
#
# run     the course of a task, once for each key
# tell    a message was left for it
# ended   waits for its end, for the task that started it
# left    its run was killed, and the task goes on under another key


_logger = logging.getLogger("holdfast")

_AGAIN = InvocationRetryPolicy(
    initial_interval=timedelta(milliseconds=50),
    exponentiation_factor=2.0,
    max_interval=timedelta(seconds=2),
    max_attempts=1_000_000,  # a task is never given up: its worker, store or code comes back
    on_max_attempts="pause",
)
_INACTIVE = timedelta(seconds=20)
"""How long a task that waits stays in its worker; then Restate wakes it when something comes. A
server has some thousand tasks in their workers at once, and others have to wait for a place."""
_ABORT = timedelta(days=7)
"""How long a step may take beyond that, before Restate turns away from the worker that runs it."""
_TOLD = timedelta(minutes=1)
"""How long Restate knows that it was told of a message: one that stays in the inbox it hears of
again."""


class Courses:
    """The courses of tasks, as Restate runs them."""

    def __init__(self, host: Host, calls: Calls, engine: Restate) -> None:
        self._host = host
        self._calls = calls
        self._engine = engine
        self._said: dict[str, str] = {}

    async def run(self, ctx: WorkflowContext, asked: dict[str, Any]) -> dict[str, Any]:
        """Drive a task to its end."""
        id = str(asked["id"])
        job = Job(id, str(asked["task"]), int(asked["seq"]), str(asked.get("log", "")))
        try:
            found = await asyncio.to_thread(self._log_of, id)
            _must_be_the_same(id, found, job.log)
            await self._host.hub.taken(id, job.seq)
            ctx.set(LOG, found, JsonSerde())
            end = await self._driven(ctx, job)
        except (RetryableError, DisconnectedException):
            raise
        except Taken as error:
            self._say_once(id, str(error))
            with suppress(EngineError):
                await asyncio.to_thread(self._engine.end, ctx.request().id, "kill")
            raise trouble(id, error) from error
        except TaskBusy as error:  # with whom it was before, who finishes a step
            self._say_once(id, "another worker has it in hand")
            raise trouble(id, error) from error
        except Exception as error:
            self._say_once(id, str(error))
            raise trouble(id, error) from error
        if end.how == "ended" and end.status != "completed":
            # Shown as failed; why is in the log.
            raise TerminalError(f"{end.status}: see `holdfast show`", _CODES.get(end.status, 500))
        return {"how": end.how, "status": end.status}

    async def _driven(self, ctx: WorkflowContext, job: Job) -> RunEnd:
        carrier = RestateCarrier(ctx, self._host, self._calls, job, self._engine)
        seq = await carrier.begin()
        while True:
            await carrier.hold()
            end = await drive(self._host, carrier, job.id, seq)
            if end.how != "again" or carrier.is_full():
                # First of all: from the moment on when the task has a new run nobody waits here.
                await carrier.end(end.how)
                if end.how == "again":
                    await carrier.renew()
                return end
            seq = await carrier.go_on_at(end.seq)

    def _say_once(self, id: str, text: str) -> None:
        """Say why a task can't go on; Restate asks again every second or two."""
        if self._said.get(id) != text:
            self._said[id] = text
            _logger.warning("task %r can't go on: %s", id, text)

    def _log_of(self, id: str) -> str:
        # Without taking hold of it, which would be written to a log that may be another's.
        store = self._host.holding.store
        log = log_in(store, id)
        if not log:
            raise no_task(store, id)
        return log

    async def tell(self, ctx: WorkflowSharedContext, said: dict[str, Any]) -> None:
        """Put a message where the task looks for its next one."""

        async def now() -> str:
            return self._host.holding.clock().isoformat()

        at = await ctx.run_typed("now", now, JSON)  # recorded: tried again, it must say the same
        taken: Any = ctx.get(MAIL, JsonSerde())
        number = await taken or 1
        while True:
            promise: Any = ctx.promise(f"{MAIL}-{number}", JsonSerde())
            if await promise.peek() is None:
                try:
                    await promise.resolve({"name": said["name"], "at": at})
                    return
                except TerminalError:
                    pass  # another was quicker
            number += 1

    async def ended(self, ctx: WorkflowSharedContext, said: Any) -> Any:
        """Wait for the end of a task."""
        return await ctx.promise(END, JsonSerde()).value()

    async def left(self, ctx: WorkflowSharedContext, said: Any) -> None:
        """Answer who waits for the end of a run that was killed: the task goes on in another."""
        promise: Any = ctx.promise(END, JsonSerde())
        if await promise.peek() is None:
            with suppress(TerminalError):  # it ended after all
                await promise.resolve({"how": "again"})


def _must_be_the_same(id: str, found: str, log: str) -> None:
    if log and log != found:
        raise EngineConflict(
            f"task {id!r} of this worker's store is not the one that Restate was given, but "
            f"another with the same id: workers of two stores serve its type of task here. "
            f"Give the stores prefixes of their own (Restate(prefix=…))"
        )


_CODES = {"cancelled": 409}


def workflows(courses: Courses, tasks: Iterable[str], prefix: str) -> list[Workflow]:
    """The workflow of each type of task."""
    made: dict[str, tuple[str, Workflow]] = {}
    for task in sorted(tasks):
        name = service_of(task, prefix)
        if name in made:
            raise BadInput(
                f"the tasks {made[name][0]!r} and {task!r} would both be called {name!r} at "
                f"Restate: rename one of them (@task(name=…))"
            )
        made[name] = (task, _workflow(courses, name))
    return [workflow for _, workflow in made.values()]


def _workflow(courses: Courses, name: str) -> Workflow:
    workflow = Workflow(
        name,
        invocation_retry_policy=_AGAIN,
        inactivity_timeout=_INACTIVE,
        abort_timeout=_ABORT,
        idempotency_retention=_TOLD,
    )
    serde: Any = {"input_serde": JsonSerde(), "output_serde": JsonSerde()}

    @workflow.main(name=RUN, **serde)
    async def run(ctx: WorkflowContext, job: dict[str, Any]) -> dict[str, Any]:
        return await courses.run(ctx, job)

    @workflow.handler(name=TELL, **serde)
    async def tell(ctx: WorkflowSharedContext, said: dict[str, Any]) -> None:
        await courses.tell(ctx, said)

    @workflow.handler(name=ENDED, **serde)
    async def ended(ctx: WorkflowSharedContext, said: Any) -> Any:
        return await courses.ended(ctx, said)

    @workflow.handler(name=LEFT, **serde)
    async def left(ctx: WorkflowSharedContext, said: Any) -> None:
        await courses.left(ctx, said)

    return workflow
