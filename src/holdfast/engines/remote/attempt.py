"""One call, made for a remote engine: looked up, and made if it has not ended.

An engine that delivers it twice, or again after a worker died between the effect and its report,
gets the recorded end: the log says what happened, and not the engine.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from holdfast.codec import is_whole
from holdfast.codec.secret import provider
from holdfast.core.spec import Spec, registry
from holdfast.core.state import FINISHED, UNDO, Call, State
from holdfast.engines import sync_driver as local
from holdfast.engines import undo
from holdfast.engines.here import OneCall
from holdfast.engines.holder import Holding
from holdfast.engines.remote.carrier import Waits
from holdfast.engines.remote.host import Host, RelativesOfCall
from holdfast.engines.run import Run
from holdfast.errors import BadInput, Halt, StepFailed, Suspend, TaskReleased
from holdfast.log.log import Log
from holdfast.log.places import ended_at_seq
from holdfast.log.reading import no_task

_STUCK = timedelta(minutes=1)
"""After how long a call of a task that was set aside looks whether the task may go on."""


def attempt(host: Host, task_id: str, path: str, spec: Spec, data: bytes) -> Waits | None:
    """Make the call at a path, as far as it goes now; None if it has ended."""

    def make(run: Run) -> None:
        if run.log.state.status in FINISHED:
            return  # an engine that lost what it knew may ask for what was long done
        if _lies_behind(run.log.state, path):
            undo.know_every_call(run)
        record = run.log.state.calls.get(path)
        if record is not None and record.status in ("completed", "failed"):
            return
        if spec.is_async:
            host.run_async(_amake(run, path, spec, data))
        elif spec.streams:
            from holdfast.engines.streams import stream_at

            for _ in stream_at(run, path, spec, data):
                pass
        else:
            local.call_at(run, path, spec, data)

    return _attempted(host, task_id, make, path)


def settle(host: Host, task_id: str) -> Waits | None:
    """Find out about the calls of a task that are in doubt, before it is undone."""
    return _attempted(host, task_id, undo.settle_all)


async def _amake(run: Run, path: str, spec: Spec, data: bytes) -> Any:
    from holdfast.engines import async_driver as aio
    from holdfast.engines.streams import stream_at

    # A loop runs here for many tasks: what the provider says is of this one alone.
    if spec.streams:
        async for _ in stream_at(run, path, spec, data):
            pass
        return None
    return await aio.call_at(run, path, spec, data)


def _attempted(
    host: Host, task_id: str, make: Callable[[Run], None], path: str = ""
) -> Waits | None:
    body = host.bodies.get(task_id)
    since = body.driver.begun(body).seq if body is not None else None
    with host.hub.hold(task_id, since) as log:
        if log.state.status == "stuck":
            return Waits(log.kept_seq, log.clock() + _STUCK)
        family = RelativesOfCall(host)
        run = Run(log, task_id, OneCall(), family=family, patience_s=0.0, attends=False)
        host.driver.prepare(run)
        # From here on everything is news: it may come before we can say that the call waits.
        newest = log.kept_seq
        inside = body.inner if body is not None else {run}
        inside.add(run)
        token = provider.set(host.holding.secrets)
        try:
            make(run)
        except StepFailed:
            pass  # a failure is a recorded end like any other
        except Suspend as signal:
            log.sync()
            # A call that was only told to stop waits for nothing: it is made again, if at all.
            released = isinstance(signal.waiting, TaskReleased)
            until = log.clock() if released else signal.waiting.until
            return Waits(newest, until)
        except Halt as signal:
            raise signal.error from signal.__cause__
        finally:
            provider.reset(token)
            inside.discard(run)
            run.is_over = True
        if not _is_kept(log, path):
            log.sync()
        return None


def _is_kept(log: Log, path: str) -> bool:
    """Whether the end of a call is durable: then nobody waits here for what others do meanwhile."""
    record = log.state.calls.get(path)
    return record is not None and 0 < ended_at_seq(record) <= log.synced


def _lies_behind(state: State, path: str) -> bool:
    """Whether a call is older than the newest checkpoint: a log that is read from there on does not
    know that it was made.

    >>> _lies_behind(State(checkpoints=2), "@1.3"), _lies_behind(State(checkpoints=2), "@2.1")
    (True, False)
    """
    place = path.partition(".")[0]
    if place == UNDO or path in state.calls:
        return False
    return (int(place[1:]) if place.startswith("@") else 0) < state.checkpoints


# Make one call of a task, knowing only names: the unit of work of a remote engine.
#
# A cluster that delivers it twice, or again after a worker died between the effect and its report,
# gets the recorded result: the call is looked up, and made only if it is not there. The task is
# held while the call is made, so of two deliveries at once the second is told `TaskBusy`.


def execute(holding: Holding, task_id: str, path: str, name: str, args: bytes) -> Call:
    """The record of the call at `path`, made now if it had not ended yet.

    `name` is that of a step or tool this process has imported, `args` its encoded arguments.
    """
    spec = registry.call(name)
    with holding.hold(task_id) as log:
        if log.state.seq == 0:
            raise no_task(log.store, task_id)
        run = Run(log, task_id, OneCall())
        record = log.state.calls.get(path)
        if not is_whole(args) and (record is None or record.status not in ("completed", "failed")):
            raise _left_out(task_id, path, name)
        token = provider.set(holding.secrets)
        try:
            if spec.is_async:
                import asyncio

                from holdfast.engines import async_driver as aio

                asyncio.run(aio.call_at(run, path, spec, args))
            else:
                local.call_at(run, path, spec, args)
        except StepFailed:
            pass  # a failure is a recorded end like any other
        finally:
            provider.reset(token)
        return log.state.calls[path]


def _left_out(task_id: str, path: str, name: str) -> BadInput:
    return BadInput(
        f"task {task_id!r}, call {path}: {name} can't be made from here, as one of its arguments "
        f"is secret and was left out. Pass it as Secret.named(…), which is looked up where the "
        f"call is made (Holdfast(secrets=…), or the environment)"
    )
