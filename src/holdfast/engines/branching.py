"""How an asyncio task that is made inside a scope gets a scope of its own.

See `holdfast.scope` for why. It is done by a task factory on the running loop, because that is the
one place that learns of every asyncio task as it is made, and before it runs.
"""

from __future__ import annotations

import asyncio
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from holdfast.errors import Signal
from holdfast.scope import Scope, scope_var


def branch_asyncio_tasks() -> None:
    """See to it that each asyncio task made inside a scope gets a scope of its own."""
    loop = asyncio.get_running_loop()
    factory = loop.get_task_factory()
    if not isinstance(factory, _Branching):
        loop.set_task_factory(_Branching(factory))


class _Branching:
    """A task factory that branches the scope, on top of whichever factory was there."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner or _plain_task

    def __call__(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Any,
        *,
        context: Context | None = None,
        **options: Any,
    ) -> Any:
        context = context if context is not None else copy_context()
        scope = context.get(scope_var)
        if scope is not None and scope.fresh:
            scope.fresh = False
        elif scope is not None:
            name = getattr(coro, "__name__", type(coro).__name__)
            scope = scope.branch(name)
            context.run(scope_var.set, scope)
        made = self._inner(loop, coro, context=context, **options)
        if scope is not None:
            scope.run.branches.add(made)
            made.add_done_callback(partial(_ended, scope))
        return made


def _ended(scope: Scope, branch: asyncio.Task[Any]) -> None:
    scope.run.branches.discard(branch)
    if branch.cancelled():
        scope.run.cut_off.add(scope.path)
    elif isinstance(getattr(branch, "_exception", None), Signal):
        branch.exception()  # asyncio would say that nobody asked for it, and nobody has to


def _plain_task(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> Any:
    return asyncio.Task(coro, loop=loop, **options)
