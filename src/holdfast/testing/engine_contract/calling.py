"""Steps and tools: made once, tried again as they say, and recorded as they ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast.api.app import Holdfast
from holdfast.api.steps import step, tool
from holdfast.api.tasks import current, task
from holdfast.core.events import AttemptFailed
from holdfast.core.spec import IdempotencyKey, Retry
from holdfast.errors import StepFailed, TaskFailed
from holdfast.testing.engine_contract import (
    PATIENCE_S,
    begin,
    calls,
    effects,
    new_id,
    result,
)

QUICK = Retry(attempts=3, delay_s=0.02, jitter=0)
_NO_KEY = IdempotencyKey()


@tool
def calling_key(name: str, *, key: IdempotencyKey = _NO_KEY) -> tuple[str, str]:
    return key, current().key


@tool(retry=QUICK)
def calling_flaky(name: str, failures: int, *, key: IdempotencyKey = _NO_KEY) -> str:
    effects[f"try {name} {key}"] += 1
    if current().attempt <= failures:
        raise ConnectionError(f"no route to {name}")
    return f"{name} at last"


@tool(retry=QUICK)
async def calling_aflaky(name: str, failures: int, *, key: IdempotencyKey = _NO_KEY) -> str:
    await asyncio.sleep(0)
    effects[f"try {name} {key}"] += 1
    if current().attempt <= failures:
        raise ConnectionError(f"no route to {name}")
    return f"{name} at last"


@step
def calling_exits(tag: str) -> None:
    effects[f"exit {tag}"] += 1
    raise SystemExit(2)


@step
async def calling_aexits(tag: str) -> None:
    effects[f"exit {tag}"] += 1
    raise SystemExit(2)


@task
def calling_ends_the_program(tag: str) -> None:
    calling_exits(tag)


@task
async def calling_aends_the_program(tag: str) -> None:
    await calling_aexits(tag)


@task
def calling_ends_by_itself(tag: str) -> None:
    effects[f"exit {tag}"] += 1
    raise SystemExit(2)


@step(timeout_s=0.05)
def calling_slow() -> None:
    threading.Event().wait(1.0)


@step(timeout_s=0.05)
async def calling_aslow() -> None:
    await asyncio.sleep(10.0)


@step
def calling_once(name: str) -> str:
    effects[f"once {name}"] += 1
    return name


@step
def calling_as_told(name: str) -> str:
    effects[f"told {name}"] += 1
    if effects[f"allow {name}"] == 0:
        raise PermissionError(f"{name} is not allowed yet")
    return f"{name} is allowed"


@step(retry=QUICK)
def calling_outer(name: str) -> str:
    inner = calling_once(name)
    if current().attempt < 2:
        raise ConnectionError("after the inner step")
    return f"{inner} in a step"


@step(retry=QUICK)
async def calling_aouter(name: str) -> str:
    inner = calling_once(name)
    await asyncio.sleep(0)
    if current().attempt < 2:
        raise ConnectionError("after the inner step")
    return f"{inner} in a step"


@step
def calling_words(text: str) -> Iterator[str]:
    effects[f"words {text}"] += 1
    yield from text.split()


@step
async def calling_awords(text: str) -> AsyncIterator[str]:
    effects[f"words {text}"] += 1
    for word in text.split():
        await asyncio.sleep(0)
        yield word


@task
def calling_keys() -> list[tuple[str, str]]:
    return [calling_key("a"), calling_key("a"), calling_key("b")]


@task
def calling_tries(name: str, failures: int) -> str:
    try:
        return calling_flaky(name, failures)
    except StepFailed as failed:
        return f"{failed.failure.type}: {failed.failure.message}"


@task
async def calling_atries(name: str, failures: int) -> str:
    try:
        return await calling_aflaky(name, failures)
    except StepFailed as failed:
        return f"{failed.failure.type}: {failed.failure.message}"


@task
def calling_times_out() -> bool:
    try:
        calling_slow()
    except StepFailed as failed:
        return failed.failure.timed_out
    return False


@task
async def calling_atimes_out() -> bool:
    try:
        await calling_aslow()
    except StepFailed as failed:
        return failed.failure.timed_out
    return False


@task
def calling_may_fail(name: str) -> list[str]:
    return [calling_once(name), calling_as_told(name)]


@task
async def calling_amay_fail(name: str) -> list[str]:
    return [calling_once(name), calling_as_told(name)]


@task
def calling_nested(name: str) -> str:
    return calling_outer(name)


@task
async def calling_anested(name: str) -> str:
    return await calling_aouter(name)


@task
def calling_streams(text: str) -> list[str]:
    first = next(iter(calling_words(text)))
    return [first, *calling_words(text)]


@task
async def calling_astreams(text: str) -> list[str]:
    return [word async for word in calling_awords(text)]


@step
def calling_tells(tag: str) -> Iterator[str]:
    yield "first"
    _await_go(tag)
    yield "last"


@step
async def calling_atells(tag: str) -> AsyncIterator[str]:
    yield "first"
    await asyncio.to_thread(_await_go, tag)
    yield "last"


def _await_go(tag: str) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not effects[f"go {tag}"]:
        if time.monotonic() > give_up_at:
            raise TimeoutError("nobody followed")
        time.sleep(0.01)


@task
def calling_followed(tag: str) -> list[str]:
    return list(calling_tells(tag))


@task
async def calling_afollowed(tag: str) -> list[str]:
    return [word async for word in calling_atells(tag)]


class Calling:
    """The calls of a task."""

    def test_a_tool_is_given_a_key_of_its_own_for_each_call(self, hf: Holdfast) -> None:
        keys = result(hf, calling_keys)
        assert all(given == current for given, current in keys)
        assert len({given for given, _ in keys}) == 3

    @pytest.mark.parametrize("fn", [calling_tries, calling_atries])
    def test_a_call_that_fails_is_tried_again_and_each_failure_is_in_the_log(
        self, hf: Holdfast, fn: Any
    ) -> None:
        handle = begin(hf, fn, "Oslo", 2)
        assert handle.result(PATIENCE_S) == "Oslo at last"
        failed = [event for event in handle.events() if isinstance(event, AttemptFailed)]
        assert [(event.attempt, event.failure.type) for event in failed] == [
            (1, "ConnectionError"),
            (2, "ConnectionError"),
        ]
        for event in failed:
            assert event.retry_at is not None
            assert 0.0 < (event.retry_at - event.at).total_seconds() < 1.0
        (call,) = handle.view.calls
        assert effects[f"try Oslo {call.key}"] == len(call.attempts) == 3

    @pytest.mark.parametrize("fn", [calling_tries, calling_atries])
    def test_a_call_that_fails_for_good_raises_in_the_task(self, hf: Holdfast, fn: Any) -> None:
        handle = begin(hf, fn, "Rome", 3)
        assert handle.result(PATIENCE_S) == "ConnectionError: no route to Rome"
        (call,) = handle.view.calls
        assert (call.status, len(call.attempts)) == ("failed", 3)

    @pytest.mark.parametrize("fn", [calling_times_out, calling_atimes_out])
    def test_a_call_that_takes_too_long_is_given_up(self, hf: Holdfast, fn: Any) -> None:
        assert result(hf, fn) is True

    @pytest.mark.parametrize(
        "fn", [calling_ends_the_program, calling_aends_the_program, calling_ends_by_itself]
    )
    def test_what_would_end_the_program_fails_the_task_and_ends_no_worker(
        self, hf: Holdfast, fn: Any
    ) -> None:
        tag = new_id(fn)
        with pytest.raises(TaskFailed, match="SystemExit: 2"):
            result(hf, fn, tag)
        assert effects[f"exit {tag}"] == 1
        assert len(result(hf, calling_keys)) == 3

    @pytest.mark.parametrize("fn", [calling_may_fail, calling_amay_fail])
    def test_a_failed_task_says_so_and_goes_on_when_it_is_tried_again(
        self, hf: Holdfast, fn: Any
    ) -> None:
        id = new_id(fn)
        with pytest.raises(TaskFailed, match="is not allowed yet"):
            hf.run(fn, id, id=id)
        with pytest.raises(TaskFailed, match="is not allowed yet"):
            hf.run(fn, id, id=id)
        with pytest.raises(TaskFailed, match="is not allowed yet"):
            hf.retry(id)
        effects[f"allow {id}"] += 1
        assert hf.retry(id) == [id, f"{id} is allowed"]
        assert (effects[f"once {id}"], effects[f"told {id}"]) == (1, 3)

    @pytest.mark.parametrize("fn", [calling_nested, calling_anested])
    def test_a_step_that_fails_after_a_call_in_it_does_not_repeat_that(
        self, hf: Holdfast, fn: Any
    ) -> None:
        name = new_id(fn)
        handle = begin(hf, fn, name)
        assert handle.result(PATIENCE_S) == f"{name} in a step"
        assert effects[f"once {name}"] == 1
        assert [path for path, *_ in calls(handle)] == ["1", "1.1"]

    @pytest.mark.parametrize("fn", [calling_followed, calling_afollowed])
    def test_a_stream_can_be_followed_while_it_runs(self, hf: Holdfast, fn: Any) -> None:
        tag = new_id(fn)
        handle = begin(hf, fn, tag)
        parts = hf.stream(handle.id, 1)
        first = next(parts)
        assert (first.number, first.value) == (1, "first")
        effects[f"go {tag}"] += 1
        assert [part.value for part in parts] == ["last"]
        assert handle.result(PATIENCE_S) == ["first", "last"]

    @pytest.mark.parametrize("fn", [calling_streams, calling_astreams])
    def test_a_stream_is_read_to_its_end_and_made_once(self, hf: Holdfast, fn: Any) -> None:
        text = f"{new_id(fn)} two three"
        expected = text.split()
        if fn is calling_streams:
            expected = [expected[0], *expected]
        handle = begin(hf, fn, text)
        assert handle.result(PATIENCE_S) == expected
        assert effects[f"words {text}"] == len(handle.view.calls)
