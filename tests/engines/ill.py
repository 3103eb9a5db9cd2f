"""Small tasks for tests of what goes wrong around an engine; a full disk, code that is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from holdfast import StorageFailed, ask, step, task
from holdfast.core.spec import registry
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Lease

made: list[str] = []
"""What steps have made, in this process."""
go_on = threading.Event()
"""What a slow step waits for."""

HOSTILE = ["../../etc/passwd", "a/b c?d#e%f&g", "Zürich 東京 ✨", "n" * 255, "' or 1=1 --", "__x"]


def begin_anew() -> None:
    made.clear()
    go_on.clear()


@step
def ill_step(name: str) -> str:
    made.append(name)
    return f"hi {name}"


@task
def ill_greet(name: str) -> str:
    return ill_step(name)


@task
def ill_ask(name: str) -> str:
    ill_step(name)
    return f"{name}: {ask('Go on?', bool, id='go')}"


@step
def ill_slow(name: str) -> str:
    made.append(name)
    go_on.wait(30)
    return name


@task
def ill_wait(name: str) -> str:
    ill_slow(name)
    return ill_step(f"{name} after")


@step
def ill_large(size: int) -> str:
    return "x" * size


@step(name="holdfast/settle")
def ill_settle(name: str) -> str:
    made.append(name)
    return name


@task(name="tell/✨")
def ill_name(name: str) -> str:
    return ill_settle(name)


def define(version: int) -> Any:
    """A version of a task, which is the one that this process has from now on."""

    @task(name="ill_versioned", version=version)
    def versioned(name: str) -> str:
        return f"{ill_step(name)} {ask('Go on?', bool, id='go')} {version}"

    return versioned


@contextmanager
def without(name: str) -> Iterator[None]:
    """While it lasts, the code has no task of that name."""
    known = registry._found.pop(("task", name))
    try:
        yield
    finally:
        registry._found["task", name] = known


class Full(MemoryStore):
    """A disk that is full for a while."""

    is_full = False

    def append(self, lease: Lease, expected_seq: int, lines: Any, facts: Any = None) -> None:
        if self.is_full:
            raise StorageFailed("no space left on the device")
        super().append(lease, expected_seq, lines, facts)
