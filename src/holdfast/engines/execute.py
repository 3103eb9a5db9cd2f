"""Make one call of a task, knowing only names: the unit of work of a remote engine.

A cluster that delivers it twice, or again after a worker died between the effect and its report,
gets the recorded result: the call is looked up, and made only if it is not there. The task is held
while the call is made, so of two deliveries at once the second is told `TaskBusy`.
"""

from __future__ import annotations

from holdfast.codec import is_whole
from holdfast.engines import local
from holdfast.engines.here import OneCall
from holdfast.engines.holding import Holding
from holdfast.engines.run import Run
from holdfast.errors import BadInput, StepFailed, TaskNotFound
from holdfast.secret import provider
from holdfast.spec import registry
from holdfast.state import Call


def execute(holding: Holding, task_id: str, path: str, name: str, args: bytes) -> Call:
    """The record of the call at `path`, made now if it had not ended yet.

    `name` is that of a step or tool this process has imported, `args` its encoded arguments.
    """
    spec = registry.call(name)
    with holding.hold(task_id) as log:
        if log.state.seq == 0:
            raise TaskNotFound(f"no task {task_id!r} in {log.store.url}")
        run = Run(log, task_id, OneCall())
        record = log.state.calls.get(path)
        if not is_whole(args) and (record is None or record.status not in ("completed", "failed")):
            raise _left_out(task_id, path, name)
        token = provider.set(holding.secrets)
        try:
            if spec.is_async:
                import asyncio

                from holdfast.engines import aio

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
