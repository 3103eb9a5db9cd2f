"""Async forms: methods that may wait for a disk or a database, called from an event loop.

`off_the_loop` makes the async form of a method: a coroutine function with the same parameters that
calls the method in a thread. So no method is written twice, and type checkers see both. The async
form of `answer` is `aanswer`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

S = TypeVar("S")
S_contra = TypeVar("S_contra", contravariant=True)
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class AsyncForm(Protocol[S_contra, P, R_co]):
    """The type of an async form, for type checkers: a method with the parameters of the other."""

    @overload
    def __get__(
        self, instance: None, owner: Any
    ) -> Callable[Concatenate[S_contra, P], Coroutine[Any, Any, R_co]]: ...
    @overload
    def __get__(self, instance: S_contra, owner: Any) -> Callable[P, Coroutine[Any, Any, R_co]]: ...


async def away(work: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Do a piece of work in a thread, off the event loop."""
    from holdfast.engines.loops import call_pool, off_loop  # asyncio is slow to import

    return await off_loop(functools.partial(work, *args, **kwargs), pool=call_pool())


def off_the_loop(
    method: Callable[Concatenate[S, P], R], *, is_long: bool = False
) -> AsyncForm[S, P, R]:
    """The async form of a method. With `is_long` each call has a thread of its own, so that it
    holds up no other; a caller that is cancelled meanwhile waits for it.

    >>> import asyncio
    >>> class Door:
    ...     def knock(self, times: int) -> str:
    ...         return "knock " * times
    ...
    ...     aknock = off_the_loop(knock)
    >>> asyncio.run(Door().aknock(2))
    'knock knock '
    """

    @functools.wraps(method)
    async def form(*args: Any, **kwargs: Any) -> R:
        if is_long:
            from holdfast.engines.loops import in_own_thread

            return await in_own_thread(functools.partial(method, *args, **kwargs))
        return await away(method, *args, **kwargs)

    name = method.__name__
    form.__name__ = f"a{name}"
    form.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.a{name}".lstrip(".")
    form.__doc__ = f"`{name}` for async code: it runs in a thread, off the event loop."
    return cast("AsyncForm[S, P, R]", form)
