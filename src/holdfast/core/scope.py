"""Where in the call tree the code is: the scope, and how branches get theirs.

A scope numbers the calls made in one strand of code: the task's body, the inside of a step, one
branch. It travels in a context variable, so plain functions know the task they run in.

Plain asyncio makes branches without telling anyone: `gather` and `TaskGroup` wrap coroutines in
asyncio tasks that copy the context, and would all count on with the same scope, in whatever order
they happen to run. So each asyncio task made inside a scope is given a scope of its own as it is
made, named after its coroutine and counted among those of the same name: `fetch~2.1` is the first
call in the second `fetch`. Neither depends on who runs first, nor on asyncio tasks that a library
makes for itself in between.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct

from holdfast.errors import Halt, HoldfastError

if TYPE_CHECKING:
    from collections.abc import Container
    from threading import Thread

    from holdfast.core.state import Call


class Scope(Struct, eq=False):
    """One strand of code inside a task, and the numbers it has given out."""

    run: Any
    path: str
    call: Call | None = None
    parent: Scope | None = None
    is_async: bool = False
    calls: int = 0
    said: int = 0
    named: dict[str, int] | None = None
    closed: bool = False
    fresh: bool = False
    branch_of: str = ""
    owner: Any = None

    def next_path(self) -> str:
        """The path of the next call of this strand."""
        self.calls += 1
        return f"{self.path}.{self.calls}" if self.path else str(self.calls)

    def coming_path(self) -> str:
        """The path that the next call will get."""
        return f"{self.path}.{self.calls + 1}" if self.path else str(self.calls + 1)

    def named_path(self, name: str, mark: str) -> str:
        """A path by name and count, for what must not shift the numbers of the calls."""
        label = re.sub(r"\W+", "_", name) + mark
        if self.named is None:
            self.named = {}
        number = self.named[label] = self.named.get(label, 0) + 1
        return f"{self.path}.{label}{number}" if self.path else f"{label}{number}"

    def branch(self, name: str) -> Scope:
        """A scope for a strand that now splits off."""
        path = self.named_path(name, "~")
        return Scope(self.run, path, self.call, self, is_async=self.is_async)

    def strand(self, path: str) -> Scope:
        """A scope for a branch that has its path already, to be used by the next asyncio task."""
        made = Scope(self.run, path, self.call, self, is_async=self.is_async)
        made.fresh = True
        made.branch_of = path
        return made

    def is_in_branch(self) -> bool:
        """Whether this strand is one of several that `gather` or `each` waits for."""
        this: Scope | None = self
        while this is not None:
            if this.branch_of:
                return True
            this = this.parent
        return False

    def close(self) -> None:
        """Give this strand up: its attempt timed out."""
        self.closed = self.run.has_given_up = True

    def is_closed(self) -> bool:
        """Whether this strand, or one it split off from, was given up."""
        this: Scope | None = self
        while this is not None:
            if this.closed:
                return True
            this = this.parent
        return False


def given_up(strand: Scope) -> Halt:
    """The signal for a strand whose attempt timed out, and which goes on in its thread."""
    return Halt(HoldfastError(f"the attempt at step {strand.path} was given up: it timed out"))


scope_var: ContextVar[Scope | None] = ContextVar("holdfast_scope", default=None)


class RunningTask(NamedTuple):
    """A run of a task in this process."""

    task_id: str
    thread: Thread
    """The thread it runs in."""
    before: Container[Thread]
    """The threads that were there before it began, so that none of them was started by it."""


running: dict[Any, RunningTask] = {}
"""The runs of tasks in this process."""


def inside(what: str) -> Scope:
    """The scope that the code runs in, or an error: `what` only makes sense in a task."""
    scope = scope_var.get()
    if scope is None:
        raise HoldfastError(f"{what} was called outside a task: run the task with hf.run(…)")
    return scope
