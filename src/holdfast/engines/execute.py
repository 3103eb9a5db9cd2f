"""Make one call of a task, knowing only names: the unit of work of a remote engine.

A cluster that delivers it twice, or again after a worker died between the effect and its report,
gets the recorded result: the call is looked up, and made only if it is not there.
"""

from __future__ import annotations

from holdfast.engines import local
from holdfast.engines.execution import Run
from holdfast.errors import Halt, StepFailed, Suspend
from holdfast.fold import Call
from holdfast.log import Clock, open_log
from holdfast.spec import registry
from holdfast.store import Store


def execute(
    store: Store,
    task_id: str,
    path: str,
    name: str,
    args: bytes,
    *,
    owner: str,
    lease_s: float,
    clock: Clock,
) -> Call:
    """The record of the call at `path`, made now if it had not ended yet.

    `name` is that of a step or tool this process has imported, `args` its encoded arguments.
    """
    spec = registry.call(name)
    log = open_log(store, task_id, owner, lease_s, clock)
    try:
        run = Run(log, task_id)
        if spec.is_async:
            import asyncio

            from holdfast.engines import aio

            asyncio.run(aio.call_at(run, path, spec, args))
        else:
            local.call_at(run, path, spec, args)
    except StepFailed:
        pass  # a failure is a recorded end like any other
    except Suspend as signal:
        raise signal.waiting from None
    except Halt as signal:
        raise signal.error from None
    finally:
        log.close()
    return log.state.calls[path]
