"""The contract of an engine by theme: a class of tests each, which `EngineContract` joins.

Here is what they share: a worker in a thread, and the ways to wait for what it does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import uuid4

import pytest

from holdfast.api.app import Holdfast
from holdfast.api.handle import Handle
from holdfast.core.state import Call

# So that a failing test of an engine shows what it found, as tests in a test module do.
_THEMES = ("calling", "ending", "families", "logs", "people", "starting")
pytest.register_assert_rewrite(*(f"{__name__}.{theme}" for theme in _THEMES))


T = TypeVar("T")

PATIENCE_S = 15.0
_POLL_S = 0.01

effects: Counter[str] = Counter()
"""The effects of tools on the outside world, and how often each happened. Each test has names of
its own."""


@contextmanager
def working(hf: Holdfast) -> Iterator[None]:
    """Run a worker of the engine in a thread, until the block ends."""
    worker = hf.engine.worker(hf, say=logging.getLogger("holdfast.testing").info)
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=run, name="a worker")
    thread.start()
    try:
        yield
    finally:
        worker.stop()
        thread.join()
    if trouble:
        raise trouble[0]


def new_id(fn: Callable[..., Any]) -> str:
    """An id that no other test has, also of another run on the same server."""
    return f"{fn.__name__}-{uuid4().hex[:8]}"


def begin(hf: Holdfast, fn: Callable[..., Any], *args: Any, **options: Any) -> Handle[Any]:
    """Leave a task to the worker."""
    return hf.start(fn, *args, id=new_id(fn), **options)


def result(hf: Holdfast, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of a task that is left to the worker."""
    return begin(hf, fn, *args, **options).result(PATIENCE_S)


def until(look: Callable[[], T]) -> T:
    """The result of a look, when it finds something."""
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > give_up_at:
            raise AssertionError(f"nothing came of it within {PATIENCE_S:g} s")
        time.sleep(_POLL_S)


def question(handle: Handle[Any]) -> Call:
    """The question that a task asks, when it does."""
    return until(lambda: handle.view.questions)[0]


def calls(handle: Handle[Any]) -> list[tuple[str, str, str]]:
    """The path, the name and the status of each call of a task."""
    return [(call.path, call.name, call.status) for call in handle.view.calls]
