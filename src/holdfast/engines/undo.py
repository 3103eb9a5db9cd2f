"""Compensation: what a task did is undone, the last first.

Each undo is a call of a tool like any other: it has an intent, a key, retries and an in-doubt
policy of its own, and a crash in the middle goes on where it was. Calls in doubt are settled
first, because only what happened can be undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.codec import is_whole
from holdfast.core.journal import Asked, Flow, settle
from holdfast.core.journal.task import is_open, to_settle, to_undo, undo_path
from holdfast.core.kinds import id_of
from holdfast.core.scope import Scope, scope_var
from holdfast.core.spec import Spec, registry
from holdfast.core.state import UNDO, Call
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import Body, look_up
from holdfast.engines.functions import undo_of
from holdfast.engines.run import Run
from holdfast.errors import CodeChanged, HoldfastError, StepFailed
from holdfast.log.states import load


class _Work(Struct):
    """One thing to do: find out about a call, or undo it."""

    call: Call
    spec: Spec
    data: bytes
    path: str = ""
    """Of the call that undoes it; '' if it is to be settled."""


def undo_all(run: Run, chosen: Callable[[Call], bool] | None = None) -> None:
    """Undo everything that can be undone, in this thread; or only what is chosen."""
    token = scope_var.set(begin(run))
    try:
        for work in _work(run, chosen or _everything):
            with suppress(StepFailed):  # what could not be undone, and why, is in the log
                _do(run, work)
    finally:
        scope_var.reset(token)


async def aundo_all(run: Run) -> None:
    """Undo everything that can be undone, on the running loop."""
    from holdfast.engines.loops import in_own_thread

    token = scope_var.set(begin(run))
    try:
        for work in _work(run):
            with suppress(StepFailed):
                if work.spec.is_async:
                    await _ado(run, work)
                else:
                    await in_own_thread(_do, run, work)
    finally:
        scope_var.reset(token)


def settle_all(run: Run) -> None:
    """Find out about the calls in doubt, for a remote engine; the undos are calls of their own."""
    token = scope_var.set(begin(run))
    try:
        for work in _settlings(run):
            with suppress(StepFailed):
                _do(run, work)
    finally:
        scope_var.reset(token)


def undos(run: Run) -> Iterator[tuple[Asked, Call | None, bytes]]:
    """The calls that undo what the task did: as asked for, their records, their arguments."""
    for work in _undos(run):
        yield *look_up(run, work.path, work.spec, work.data), work.data


def begin(run: Run) -> Scope:
    """Forget what stopped the task, and know everything that it did."""
    run.begin_to_end()
    if run.log.state.checkpoints:
        know_every_call(run)
    return Scope(run, UNDO)


def know_every_call(run: Run) -> None:
    """Read also what came before the newest checkpoint, where it matters."""
    run.log.flush()
    everything = load(run.log.store, id_of(run.log.lease.stream), missing_ok=True)
    run.log.state.calls = everything.calls
    run.log.state.last = everything.last
    run.log.state.inner = everything.inner


def _everything(call: Call) -> bool:
    return True


def _work(run: Run, chosen: Callable[[Call], bool] = _everything) -> Iterator[_Work]:
    yield from _settlings(run, chosen)
    yield from _undos(run, chosen)


def _settlings(run: Run, chosen: Callable[[Call], bool] = _everything) -> Iterator[_Work]:
    log = run.log
    for call in filter(chosen, to_settle(log.state)):
        if _is_settled(run, call):
            continue
        raw = call.args if isinstance(call.args, Raw) else Raw(b"{}")
        yield _Work(call, _spec(run, call), log.fetch(raw))


def _undos(run: Run, chosen: Callable[[Call], bool] = _everything) -> Iterator[_Work]:
    log = run.log
    for call in filter(chosen, to_undo(log.state)):
        spec = undo_of(_spec(run, call))
        raw = call.result if isinstance(call.result, Raw) else Raw(b"null")
        data = b'{"result":%b}' % log.fetch(raw)
        yield _Work(call, spec, data, undo_path(call.path))


def _is_settled(run: Run, call: Call) -> bool:
    """Whether it is known already if a call happened."""
    events = () if run.answers is None else run.answers.settle(call.path)
    for event in events:
        run.append(event)
    return bool(events) and not is_open(run.log.state.calls[call.path])


def _spec(run: Run, call: Call) -> Spec:
    try:
        spec = registry.call(call.name)
    except HoldfastError as error:
        run.halt(error)
    if spec.undo is None:
        recorded, asked = f"{call.name}, which could be undone", "has no undo for it"
        why = "Give it back its @tool(undo=…) to go on"
        run.halt(CodeChanged(run.task_id, call.path, recorded, asked, why))
    return spec


def _do(run: Run, work: _Work) -> None:
    if work.spec.is_async:  # of a sync task, which has no loop of its own
        import asyncio

        asyncio.run(_ado(run, work))
    elif work.path:
        local.call_at(run, work.path, work.spec, work.data)
    else:
        flow, body = _settling(run, work)
        once, check = partial(local.run_body, body), partial(local.run_check, body)
        local.drive(flow, run, work.call.path, once, check)


async def _ado(run: Run, work: _Work) -> None:
    from holdfast.engines import async_driver as aio

    if work.path:
        await aio.call_at(run, work.path, work.spec, work.data)
        return
    flow, body = _settling(run, work)
    once, check = partial(aio.run_body, body), partial(aio.run_check, body)
    await aio.drive(flow, run, work.call.path, once, check)


def _settling(run: Run, work: _Work) -> tuple[Flow, Body]:
    call, spec, whole = work.call, work.spec, is_whole(work.data)
    if not whole and spec.in_doubt == "retry":  # it can't be made again without its secrets
        spec = replace(spec, in_doubt="ask" if spec.check is None else "check")
    asked = Asked(run.task_id, call.path, spec, Raw(work.data), call.args_hash, call.key)
    body = Body(run, asked, spec, work.data)
    if whole:
        body.must_fit()
    return settle(asked, call), body
