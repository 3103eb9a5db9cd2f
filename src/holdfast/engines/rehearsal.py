"""Rehearsing a task: does the code still fit the log? Nothing is called, and nothing is written.

The task's function runs from its top, and recorded calls answer from the log. Where the log ends,
or a call was not finished, the rehearsal ends too; where the code asks for something else than the
log holds, it says what. Only steps and tools are kept from running: code that stands between them
in the function does run, as it does on every resume.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from holdfast.codec.secret import provider
from holdfast.core.journal import Raised, Returned, Stopped
from holdfast.core.scope import Scope
from holdfast.core.spec import Spec
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import older_code
from holdfast.engines.here import REHEARSING
from holdfast.engines.holder import Holding
from holdfast.engines.run import Run
from holdfast.errors import CodeChanged, Halt, HoldfastError, Suspend
from holdfast.log.log import Appended, Log
from holdfast.log.reading import stream_of
from holdfast.stores.port import Lease


class Rehearsal(Struct, frozen=True):
    """The findings of a rehearsal."""

    task_id: str
    fits: bool
    path: str = ""
    """Where the code first differs from the log."""
    recorded: str = ""
    asked: str = ""
    why: str = ""


class _Reading(Log):
    """A log that is only read. An event that would be written ends the rehearsal, or is left
    out."""

    def append(self, event: Appended, strand: Scope | None = None) -> bool:
        raise HoldfastError("a rehearsal is about to write to the log")

    def sync(self) -> None: ...

    def flush(self, *, leave_new: bool = False) -> None: ...

    def stow(self, value: bytes) -> Raw:
        return Raw(b"null")


def rehearse(holding: Holding, task_id: str, spec: Spec) -> Rehearsal:
    """Find out whether the code of a task fits its log."""
    token = provider.set(holding.secrets)
    try:
        return _rehearsed(holding, task_id, spec)
    finally:
        provider.reset(token)


def _rehearsed(holding: Holding, task_id: str, spec: Spec) -> Rehearsal:
    log = _Reading(holding.store, Lease(stream_of(task_id), "", 0), holding.clock)
    log.redact = holding.redact
    log.load()
    state = log.state
    if max(state.version, state.checkpoint_version) > spec.version:
        return _diverged(task_id, older_code(state, spec))
    if state.ending:  # its function runs no more
        return Rehearsal(task_id, True)
    run = Run(log, task_id, REHEARSING)
    run.recorded = state.calls
    try:
        outcome = _in_loop(run, spec) if spec.is_async else local.run_function(run, spec)
        if isinstance(outcome, Raised) and state.status != "failed":
            why = f"its function raises {outcome.failure.summary()}"
            return Rehearsal(task_id, False, asked=why, why=f"task {task_id!r}: {why}")
    except Suspend:
        pass
    except Halt as halt:
        return _diverged(task_id, halt.error)
    except HoldfastError as error:
        return _diverged(task_id, error)
    return Rehearsal(task_id, True)


def _in_loop(run: Run, spec: Spec) -> Returned | Raised | Stopped:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor
    from contextvars import copy_context

    from holdfast.engines import async_driver as aio
    from holdfast.engines.loops import Alarm

    async def rehearsed() -> Returned | Raised | Stopped:
        return await aio.run_function(run, spec, Alarm(run))

    # In a thread of its own: a loop may run in this one.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, rehearsed()).result()


def _diverged(task_id: str, error: HoldfastError) -> Rehearsal:
    if isinstance(error, CodeChanged):
        return Rehearsal(task_id, False, error.path, error.recorded, error.asked, str(error))
    return Rehearsal(task_id, False, "", "", "", str(error))
