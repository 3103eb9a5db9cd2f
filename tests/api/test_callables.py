"""Any callable can be a step or a tool; and none is silently not durable."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import (
    BadInput,
    CodeChanged,
    Holdfast,
    NotDurable,
    Retry,
    TaskFailed,
    step,
    task,
    tool,
)
from holdfast.agent.tooling import Tools
from holdfast.log.messages import ToolCall
from tests.flavors import Crash

color: contextvars.ContextVar[str] = contextvars.ContextVar("color", default="none")
made: list[str] = []


class Api:
    """An object with settings of its own, which no log could hold."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.lock = threading.Lock()

    @step
    def get(self, path: str, times: int = 2) -> str:
        made.append(path)
        return f"{self.base}/{path}" * times

    @tool
    async def send(self, path: str) -> str:
        await asyncio.sleep(0)
        return f"{self.base}/{path}"

    @classmethod
    @step
    def under(cls, x: int) -> str:
        return f"{cls.__name__} {x}"

    @step
    @classmethod
    def over(cls, x: int) -> str:
        return f"{cls.__name__} {x}"

    @staticmethod
    @step
    def static_under(x: int) -> int:
        return x

    @step
    @staticmethod
    def static_over(x: int) -> int:
        return x


class Times:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: int) -> int:
        return x * self.n


class Later:
    async def __call__(self, x: int) -> int:
        return x + 1


def add(a: int, b: int) -> int:
    return a + b


def logged(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


@step
@logged
def stacked_under(x: int) -> int:
    return x


@logged
@step
def stacked_over(x: int) -> int:
    return x


add_three = step(functools.partial(add, 3))
times_four = step(name="times_four")(Times(4))
later = step(name="later")(Later())


def run_twice(hf: Holdfast, body: Any) -> Any:
    """What a task returns that crashed at its end, and was resumed."""
    crashes = [True]
    seen = []
    name = body.__name__

    if asyncio.iscoroutinefunction(body):

        @task(name=name)
        async def acrashing() -> None:
            seen.append(await body())
            if crashes.pop():
                raise Crash

        crashing: Any = acrashing
    else:

        @task(name=name)
        def crashing() -> None:
            seen.append(body())
            if crashes.pop():
                raise Crash

    with pytest.raises(Crash):
        hf.run(crashing, id=name)
    crashes.append(False)
    hf.run(crashing, id=name)
    assert seen[0] == seen[1]
    return seen[0]


def test_methods_and_other_callables_are_steps(hf):
    api = Api("http://a")

    def uses_all() -> list[Any]:
        return [
            api.get("x", 1), Api.under(1), api.over(2), api.static_under(3), Api.static_over(4),
            add_three(4), times_four(2), stacked_under(5), stacked_over(6),
        ]  # fmt: skip

    made.clear()
    found = run_twice(hf, uses_all)
    assert found == ["http://a/x", "Api 1", "Api 2", 3, 4, 7, 8, 5, 6]
    calls = hf.task("uses_all").calls
    assert [call.name for call in calls] == [
        "get", "under", "over", "static_under", "static_over", "add", "times_four",
        "stacked_under", "stacked_over",
    ]  # fmt: skip
    assert bytes(calls[0].args) == b'{"path":"x","times":1}'  # and nothing of the object
    assert made == ["x"]


def test_async_methods_and_objects_are_steps(hf):
    api = Api("http://a")

    async def awaits_all() -> list[Any]:
        return [await api.send("x"), await later(1)]

    assert run_twice(hf, awaits_all) == ["http://a/x", 2]


def test_outside_a_task_they_stay_what_they_were():
    assert Api("b").get("x", 1) == "b/x"
    assert (Api.under(1), add_three(1), times_four(1)) == ("Api 1", 4, 4)


def test_a_method_is_a_tool_of_a_model():
    tools = Tools([Api("c").get])
    assert list(tools.infos[0].parameters["properties"]) == ["path", "times"]
    assert tools.prepared(ToolCall("1", "get", '{"path":"x"}'))() == "c/xc/x"


def test_a_function_of_a_builtin_class_is_one_too(hf):
    shout, glue = step(name="shout")(str.upper), step(name="glue")("x".join)

    def shouts() -> list[str]:
        return [shout("a"), glue(["a", "b"])]

    assert run_twice(hf, shouts) == ["A", "axb"]


def test_what_can_not_be_one_is_refused_where_it_is_decorated():
    with pytest.raises(BadInput, match=r'has no name of its own: step\(name="…"\)'):
        step(Times(3))
    with pytest.raises(BadInput, match="get is a step already: one decorator is enough"):
        tool(Api.get)
    with pytest.raises(BadInput, match="@task can't be a method"):

        class Agent:
            @task
            def work(self) -> None: ...


# Context variables


@step
def paints() -> str:
    color.set("red")
    return color.get()


@step
async def apaints() -> str:
    color.set("blue")
    await asyncio.sleep(0)
    return color.get()


@step
def paints_parts() -> Any:
    for each in ("a", "b"):
        color.set(each)
        yield color.get()


def test_what_a_body_sets_in_a_context_variable_is_not_seen_by_the_task(hf):
    def paints_both() -> list[str]:
        return [paints(), *paints_parts(), color.get()]

    assert run_twice(hf, paints_both) == ["red", "a", "b", "none"]


def test_the_same_holds_for_async_bodies(hf):
    async def apaints_both() -> list[str]:
        return [await apaints(), color.get()]

    assert run_twice(hf, apaints_both) == ["blue", "none"]
    assert color.get() == "none"


def test_what_a_task_sets_in_a_context_variable_is_not_seen_by_its_caller(hf):
    @task
    def sets() -> None:
        color.set("grey")

    @task
    async def asets() -> None:
        color.set("grey")

    for setting in (sets, asets):
        hf.run(setting)
        assert color.get() == "none"


def test_a_body_sees_what_its_caller_set(hf):
    @step
    def looks() -> str:
        return color.get()

    def sets_before() -> str:
        color.set("green")
        try:
            return looks()
        finally:
            color.set("none")

    assert run_twice(hf, sets_before) == "green"


def test_an_async_body_that_is_cancelled_or_fails_ends_as_without_a_context(hf):
    @step(timeout_s=0.01)
    async def slow() -> None:
        await asyncio.sleep(30)

    @step
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    @task
    async def meets_both() -> list[str]:
        said = []
        for call in (slow, fails):
            try:
                await call()
            except Exception as error:
                said.append(str(error))
        return said

    late, failed = hf.run(meets_both, id="t")
    assert "did not end within" in late
    assert "ValueError: no" in failed


# Defaults


@step
def rent(days: int, insured: bool = True, *, extras: tuple[str, ...] = ()) -> int:
    return days


def test_a_default_that_is_given_is_the_same_call(hf):
    how = [lambda: rent(3), lambda: rent(3, True), lambda: rent(days=3, extras=(), insured=True)]

    @task
    def rents() -> int:
        how[0]()
        raise Crash

    for first in how:
        for then in how:
            id = f"t{how.index(first)}-{how.index(then)}"
            how[0], before = first, how[0]
            with pytest.raises(Crash):
                hf.run(rents, id=id)
            how[0] = then
            with pytest.raises(Crash):
                hf.run(rents, id=id)
            how[0] = before
    how[0] = lambda: rent(3, False)
    with pytest.raises(CodeChanged, match="arguments differ"):
        hf.run(rents, id="t0-0")


def test_a_task_that_is_started_with_its_default_is_the_same_task(hf):
    @task
    def waits(n: int, m: int = 2) -> int:
        return n * m

    assert hf.run(waits, 3, id="t") == hf.run(waits, 3, 2, id="t") == hf.run(waits, n=3, id="t")


# Never silently not durable


@step
async def fetch(x: int) -> int:
    return x


@task
def sync_task() -> int:
    fetch(1)  # type: ignore[unused-coroutine]
    return 3


@task
async def forgets() -> int:
    fetch(1)  # type: ignore[unused-coroutine]
    return 3


@pytest.mark.filterwarnings("ignore:coroutine 'fetch'")
@pytest.mark.parametrize(
    ("forgetful", "says"), [(sync_task, "sync_task is sync, and fetch is async"),
                            (forgets, r"write `await fetch\(…\)`")]
)  # fmt: skip
def test_a_call_that_nobody_awaits_is_told_by_name(hf, forgetful, says):
    with pytest.warns(NotDurable, match=rf"fetch \(step 1\) was called and never awaited.*{says}"):
        assert hf.run(forgetful) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotDurable)
        with pytest.raises(TaskFailed, match="never awaited"):
            hf.run(forgetful)


def test_calls_that_somebody_awaits_are_not(hf):
    @task
    async def gathers() -> int:
        first = asyncio.ensure_future(fetch(1))
        cut_off = asyncio.ensure_future(fetch(5))
        cut_off.cancel()
        both = await asyncio.gather(fetch(2), fetch(3))
        return await first + sum(both)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert hf.run(gathers, id="t") == 6


def test_a_step_in_a_thread_of_somebody_else_is_told_by_name(hf):
    found: list[Any] = []

    @task
    def starts_a_thread() -> int:
        thread = threading.Thread(target=lambda: found.append(rent(3)), name="mine")
        thread.start()
        thread.join()
        return len(found)

    with pytest.warns(NotDurable, match=r"rent was called in the thread 'mine'.*'t' runs"):
        hf.run(starts_a_thread, id="t")
    assert found == [3]


def test_a_thread_that_was_there_before_the_task_is_nobodys_business(hf):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(rent, 1).result(60) == 1  # its thread is there now

        @task
        def lends_work_to_a_pool() -> int:
            return pool.submit(rent, 3).result(60)

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert hf.run(lends_work_to_a_pool, id="t") == 3


def test_a_thread_that_no_task_runs_beside_is_nobodys_business():
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(rent(3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thread.start()
        thread.join()
    assert found == [3]


@pytest.mark.parametrize(
    ("decorator", "options"),
    [
        (step, {"timeout_s": "5"}),
        (step, {"timeout_s": True}),
        (tool, {"key_ttl_s": "5"}),
        (Retry, {"attempts": "3"}),
        (Retry, {"delay_s": "1"}),
        (Retry, {"unless": [ValueError]}),
    ],
)
def test_an_option_of_another_type_is_refused_where_it_stands(decorator, options):
    with pytest.raises(BadInput, match=r"must be a (whole )?(number|tuple)"):
        decorator(**options)(len)
