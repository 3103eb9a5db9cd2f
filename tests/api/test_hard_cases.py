"""What user code can do to a run, and what must hold all the same."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
import time
from typing import Any

import pytest

from holdfast import (
    BadInput,
    CodeChanged,
    Conflict,
    EachFailed,
    Holdfast,
    HoldfastError,
    IdempotencyKey,
    InDoubt,
    LogDamaged,
    Retry,
    StepFailed,
    TaskFailed,
    Unanswered,
    Unserializable,
    ask,
    current,
    decide,
    each,
    gather,
    note,
    step,
    task,
    tool,
)
from holdfast.core.events import Planned
from holdfast.testing import Clock
from tests.api.test_waiting import Seat
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("{tmp_path}/w")

NOW = Retry(attempts=3, delay_s=0, jitter=0)


# A body that swallows the signal


def test_a_step_that_swallows_the_stop_is_not_recorded_as_done(hf):
    sent: list[str] = []
    swallow = [False]

    @tool
    def letter(to: str) -> str:
        sent.append(to)
        raise Crash

    @step
    def outer() -> list[str]:
        try:
            return [letter("a")]
        except BaseException:
            if not swallow[0]:
                raise
            return []

    @task
    def swallowing() -> list[str]:
        return outer()

    with pytest.raises(Crash):
        hf.run(swallowing, id="t")
    swallow[0] = True
    with pytest.raises(InDoubt):
        hf.run(swallowing, id="t")
    assert hf.task("t").calls[0].status == "running"
    assert hf.task("t").status == "awaiting_user"
    hf.resolve("t", "1.1", happened=True, result="sent")
    assert hf.run(swallowing, id="t") == ["sent"]
    assert sent == ["a"]


def test_an_async_step_that_swallows_the_stop_is_not_recorded_as_done(hf):
    swallow = [False]

    @tool
    async def aletter(to: str) -> str:
        await asyncio.sleep(0)
        raise Crash

    @step
    async def aouter() -> list[Any]:
        calls = aletter("a"), aletter("b")
        return list(await asyncio.gather(*calls, return_exceptions=swallow[0]))

    @task
    async def swallowing_async() -> list[Any]:
        return await aouter()

    with pytest.raises(Crash):
        hf.run(swallowing_async, id="t")
    swallow[0] = True
    with pytest.raises(InDoubt):
        hf.run(swallowing_async, id="t")
    assert hf.task("t").calls[0].status == "running"
    for path in ("1.1", "1.2"):
        hf.resolve("t", path, happened=True, result=path)
    assert hf.run(swallowing_async, id="t") == ["1.1", "1.2"]


# A timed-out attempt that lives on


def test_a_given_up_attempt_cannot_record_what_it_was_doing(hf):
    release, done = threading.Event(), threading.Event()

    @step
    def inner() -> str:
        if current().attempt == 1 and not release.is_set():
            release.wait(60)
            done.set()
            return "zombie"
        return "fresh"

    @step(timeout_s=0.1, retry=NOW)
    def outer() -> str:
        return inner()

    @task
    def hasty() -> str:
        return outer()

    def let_it_go() -> None:
        time.sleep(0.15)
        release.set()

    threading.Thread(target=let_it_go).start()
    assert hf.run(hasty, id="t") == "fresh"
    assert done.wait(60)
    time.sleep(0.05)
    results = [bytes(e.result) for e in hf.task("t").events() if getattr(e, "path", "") == "1.1"
               and hasattr(e, "result")]  # fmt: skip
    assert results == [b'"fresh"']
    assert hf.task("t").status == "completed"


# What is tried again, and what not


def test_a_failure_that_a_step_dealt_with_is_not_repeated_by_a_crash(hf):
    paid = []
    dead = [True]

    @tool
    def pay() -> None:
        paid.append(1)
        raise ValueError("declined")

    @step
    def outer() -> str:
        try:
            pay()
        except StepFailed:
            if dead[0]:
                raise Crash from None
        return "went without"

    @task
    def shop() -> str:
        return outer()

    with pytest.raises(Crash):
        hf.run(shop, id="t")
    dead[0] = False
    assert hf.run(shop, id="t") == "went without"
    assert paid == [1]


def test_each_attempt_gets_its_arguments_afresh(hf):
    @step(retry=NOW)
    def greedy(items: list[int]) -> list[int]:
        items.append(1)
        if current().attempt < 3:
            raise ConnectionError
        return items

    @task
    def caller() -> list[int]:
        return greedy([])

    assert hf.run(caller, id="t") == [1]


def test_retry_mends_a_call_beside_others_that_were_begun_before_it_failed(hf):
    broken = [True]

    @step
    async def bad() -> int:
        await asyncio.sleep(0.01)
        if broken[0]:
            raise ValueError("not yet")
        return 1

    @step
    async def good() -> int:
        return 2

    @task
    async def beside() -> list[int]:
        return list(await asyncio.gather(bad(), good()))

    with pytest.raises(TaskFailed):
        hf.run(beside, id="t")
    broken[0] = False
    assert hf.retry("t") == [1, 2]


# Time and keys


def test_the_age_of_a_key_counts_for_every_repeat_and_after_the_wait(tmp_path):
    clock, calls = Clock(skips=True), []

    @tool(key_ttl_s=3600, retry=Retry(attempts=3, delay_s=7200, max_delay_s=9000, jitter=0))
    def send(*, key: IdempotencyKey = IdempotencyKey()) -> None:
        calls.append(1)
        raise ConnectionResetError("the reply was lost")

    @task
    def mailing() -> None:
        send()

    with Holdfast(tmp_path / "w", clock=clock) as hf, pytest.raises(InDoubt, match="older than"):
        hf.run(mailing, id="t")
    assert calls == [1]


def test_an_async_timeout_turned_into_another_error_is_still_a_timeout(hf):
    sent = []

    @tool(timeout_s=0.02, retry=NOW)
    async def stubborn() -> None:
        sent.append(1)
        try:
            await asyncio.sleep(10)
        except BaseException:
            raise ConnectionError("closing") from None

    @task
    async def hasty_async() -> None:
        await stubborn()

    with pytest.raises(InDoubt):
        hf.run(hasty_async, id="t")
    assert sent == [1]


# Changed code


def test_a_tool_that_became_a_step_is_noticed(hf):
    sent = []

    def body() -> int:
        sent.append(1)
        if len(sent) == 1:
            raise Crash
        return 1

    first = tool(name="changed_kind")(body)

    @task(name="kind_changes")
    def old() -> int:
        return first()

    with pytest.raises(Crash):
        hf.run(old, id="t")
    second = step(name="changed_kind")(body)

    @task(name="kind_changes")
    def new() -> int:
        return second()

    with pytest.raises(CodeChanged, match="recorded as a tool, and is a step now"):
        hf.run(new, id="t")
    assert sent == [1]


def test_a_new_required_parameter_is_changed_code_not_a_failure(hf):
    @task(name="grows_a_parameter")
    def old(a: int) -> int:
        raise Crash

    with pytest.raises(Crash):
        hf.run(old, 1, id="t")

    @task(name="grows_a_parameter")
    def new(a: int, b: int) -> int:
        return a + b

    from holdfast.core.spec import registry

    registry._found["task", "grows_a_parameter"] = {"new": new.holdfast_spec}
    with pytest.raises(CodeChanged, match="missing a required argument: 'b'"):
        hf.resume("t")
    assert hf.task("t").status == "in_progress"


def test_a_decision_of_another_type_is_changed_code(hf):
    choices = iter([None, "attic"])

    @task
    def fickle_choice() -> None:
        decide("room", next(choices))
        raise Crash

    with pytest.raises(Crash):
        hf.run(fickle_choice, id="t")
    with pytest.raises(CodeChanged, match="the decision 'room'"):
        hf.run(fickle_choice, id="t")


def test_an_error_before_a_recorded_call_is_shown(hf):
    missing = [False]

    @step
    def one() -> int:
        return 1

    @task
    def needs_a_file() -> None:
        if missing[0]:
            raise FileNotFoundError("config.toml")
        one()
        raise Crash

    with pytest.raises(Crash):
        hf.run(needs_a_file, id="t")
    missing[0] = True
    with pytest.raises(CodeChanged, match=r"raises FileNotFoundError: config\.toml") as caught:
        hf.run(needs_a_file, id="t")
    assert isinstance(caught.value.__cause__, FileNotFoundError)


# Words that are no words


@pytest.mark.parametrize(
    "options",
    [
        {"user": None}, {"user": 7}, {"session": None}, {"labels": {"a": 1}}, {"labels": ["a"]},
        {"labels": {1: "a"}}, {"user": "\ud800"},
    ],
)  # fmt: skip
def test_metadata_of_the_wrong_type_is_refused_and_writes_nothing(hf, options):
    @task
    def plain_task() -> int:
        return 1

    with pytest.raises(BadInput):
        hf.run(plain_task, id="t", **options)
    assert hf.tasks() == []
    assert hf.run(plain_task, id="t") == 1


@pytest.mark.parametrize(
    "say",
    [
        lambda: note(5),  # type: ignore[arg-type]
        lambda: note("\ud800"),
        lambda: note("x" * 1_000_000),
        lambda: decide(5, 1),  # type: ignore[arg-type]
        lambda: decide("a", 1, because=None),  # type: ignore[arg-type]
        lambda: decide("a", 1, because="x" * 1_000_000),
        lambda: current().plan("abc"),
        lambda: current().plan(["x" * 1_000_000]),
    ],
)
def test_texts_that_cannot_be_recorded_are_refused_and_the_log_stays_readable(hf, say):
    @task(name="says_something")
    def says() -> str:
        try:
            say()
        except BadInput as refused:
            return str(refused)
        return "recorded"

    assert hf.run(says, id="t") != "recorded"
    assert hf.task("t").status == "completed"


def test_a_huge_failure_fits_the_log(hf):
    @step
    def shouts() -> None:
        raise ValueError("x" * 3_000_000)

    @task
    def shouting() -> None:
        shouts()

    with pytest.raises(TaskFailed):
        hf.run(shouting, id="t")
    failure = hf.task("t").failures[0].failure
    assert len(failure.message) < 20_000
    assert "characters left out" in failure.message


def test_replanning_on_a_resume_says_nothing_new(hf):
    dead = [True]

    @task
    def plans_twice() -> None:
        current().plan(["a"])
        current().plan(["a", "b"])
        if dead[0]:
            raise Crash

    with pytest.raises(Crash):
        hf.run(plans_twice, id="t")
    dead[0] = False
    hf.run(plans_twice, id="t")
    assert [e.items for e in hf.task("t").events() if isinstance(e, Planned)] == [
        ("a",),
        ("a", "b"),
    ]


# Settling by hand


def test_a_result_that_does_not_fit_can_be_settled_again(hf):
    sent = []

    @tool(name="settled_twice")
    def letter() -> int:
        sent.append(1)
        raise Crash

    @task
    def posting() -> int:
        return letter()

    with pytest.raises(Crash):
        hf.run(posting, id="t")
    with pytest.raises(InDoubt):
        hf.run(posting, id="t")
    from holdfast.core.spec import registry

    known = registry._found.pop(("call", "settled_twice"))  # as on a machine without the code
    hf.resolve("t", "1", happened=True, result="not a number", by="ada")
    with pytest.raises(BadInput, match=r"given by ada does not fit.*holdfast resolve t 1"):
        hf.run(posting, id="t")
    registry._found["call", "settled_twice"] = known
    hf.resolve("t", "1", happened=True, result=7)
    assert hf.run(posting, id="t") == 7
    with pytest.raises(BadInput):
        hf.resolve("t", "1", happened=True, result=8)


# Tasks that are finished, inside each other, in loops and threads


def test_a_finished_task_can_be_asked_by_many_at_once(hf, tmp_path):
    @task
    def finished() -> int:
        return 7

    hf.run(finished, id="t")
    found: list[Any] = []

    def ask_often() -> None:
        with Holdfast(tmp_path / "w") as mine:
            for _ in range(30):
                try:
                    found.append(mine.run(finished, id="t"))
                except HoldfastError as error:
                    found.append(error)

    threads = [threading.Thread(target=ask_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [7] * 120


def test_a_task_that_runs_a_waiting_task_waits_with_it(hf):
    @task
    def inner_asks() -> bool:
        return ask("Sure?", bool)

    @task
    def outer_waits() -> str:
        return f"inner said {hf.run(inner_asks, id='inner')}"

    with pytest.raises(Unanswered):
        hf.run(outer_waits, id="outer")
    assert hf.task("outer").status == "in_progress"
    hf.answer("inner", True)
    assert hf.run(outer_waits, id="outer") == "inner said True"


def test_running_an_async_task_inside_a_loop_says_what_to_do(hf):
    @task
    async def loops() -> int:
        return 1

    async def main() -> None:
        hf.run(loops, id="t")

    with pytest.raises(BadInput, match=r"use await hf\.arun"):
        asyncio.run(main())


def test_asyncio_branches_in_a_sync_task_are_refused_rather_than_mixed_up(hf):
    @step
    async def one(n: int) -> int:
        await asyncio.sleep(0.001)
        return n

    async def strand(n: int) -> int:
        return await one(n) + await one(n)

    async def side_by_side() -> list[int]:
        return list(await asyncio.gather(strand(1), strand(2)))

    @task
    def mixing() -> list[int]:
        return asyncio.run(side_by_side())

    @task
    def one_after_the_other() -> int:
        return asyncio.run(strand(1)) + asyncio.run(strand(2))

    with pytest.raises(HoldfastError, match="two asyncio tasks make calls in the same strand"):
        hf.run(mixing, id="t")
    assert hf.run(one_after_the_other, id="u") == 6


def test_frameworks_see_that_a_decorated_coroutine_function_is_one():
    @step
    async def astep() -> None: ...

    @task
    async def seen_as_async() -> None: ...

    # Before Python 3.12 only asyncio's own test can be told; after it, that one is deprecated.
    told = hasattr(inspect, "markcoroutinefunction")
    is_one = inspect.iscoroutinefunction if told else asyncio.iscoroutinefunction
    assert is_one(astep)
    assert is_one(seen_as_async)


class Nameless:
    def __call__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        (Nameless(), 'has no name of its own: step\\(name="…"\\)'),
        (Nameless, "decorates a function"),
        (7, "decorates a function"),
    ],
)
def test_what_cannot_be_a_step_is_refused_by_name(thing, says):
    with pytest.raises(BadInput, match=says):
        step(thing)


def test_a_damaged_log_does_not_hide_the_other_tasks(hf, tmp_path):
    @task
    def listed() -> int:
        return 1

    hf.run(listed, id="a")
    hf.run(listed, id="b")
    log = tmp_path / "w/tasks/a/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"listed", b"LISTED"))
    found = hf.tasks()
    assert [view.id for view in found] == ["b"]
    assert [type(error) for error in found.unreadable] == [LogDamaged]
    with pytest.raises(BadInput, match="is none of"):
        hf.tasks(status="nope")


@pytest.mark.parametrize("where", ["chain.seal", "advance"])
def test_an_interrupt_in_the_middle_of_an_append_stops_the_run_and_spoils_nothing(
    hf, monkeypatch, where
):
    """A signal handler may raise anywhere, and user code may catch that and go on."""
    import holdfast.log.log

    class Alarm(Exception):
        pass

    @step
    def quick(n: int) -> int:
        return n

    @task
    def counting() -> int:
        total = quick(0)
        real: Any = functools.reduce(getattr, where.split("."), holdfast.log.log)

        def ring(*args: object) -> object:
            monkeypatch.undo()
            real(*args)
            raise Alarm

        monkeypatch.setattr(f"holdfast.log.log.{where}", ring)
        with contextlib.suppress(Alarm):
            quick(1)
        return total + quick(2)

    with pytest.raises(Conflict, match="interrupted half-way"):
        hf.run(counting, id="t")
    assert hf.task("t").status == "in_progress"
    assert hf.tasks().unreadable == []


def test_a_branch_that_asks_inside_a_step_leaves_the_step_unfinished(hf):
    @step
    def inner() -> bool:
        return bool(ask("Sure?", bool))

    @task
    def asks_in_a_branch() -> list[bool]:
        return gather(inner, inner)

    with pytest.raises(Unanswered):
        hf.run(asks_in_a_branch, id="t")
    assert {q.path for q in hf.task("t").questions} == {"1.1.1.1", "1.2.1.1"}
    for question in hf.task("t").questions:
        hf.answer("t", True, question=question.key)
    assert hf.run(asks_in_a_branch, id="t") == [True, True]


def test_retry_runs_the_failed_items_of_an_each_again(hf):
    broken, ran = [True], []

    @step
    def halve(n: int) -> int:
        ran.append(n)
        if n == 3 and broken[0]:
            raise ValueError("odd")
        return n // 2

    @task
    def halves() -> list[int]:
        return each(halve, [2, 3, 4], workers=1)

    with pytest.raises(TaskFailed, match="1 of 3 items failed"):
        hf.run(halves, id="t")
    broken[0] = False
    assert hf.retry("t") == [1, 1, 2]
    assert ran == [2, 3, 4, 3]


def test_a_question_inside_a_tool_is_refused(hf):
    @tool
    def asking_tool() -> bool:
        return bool(ask("Sure?", bool))

    @task
    def asks_too_late() -> None:
        asking_tool()

    with pytest.raises(TaskFailed, match="ask before the tool is called"):
        hf.run(asks_too_late, id="t")


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan")])
def test_a_question_with_a_senseless_time_limit_is_refused(hf, timeout_s):
    @task(name="senseless_question")
    def senseless() -> None:
        ask("Sure?", bool, timeout_s=timeout_s)

    with pytest.raises(TaskFailed, match="BadInput"):
        hf.run(senseless, id="t")


def test_a_person_may_give_an_object_as_its_json(hf):
    @tool(name="returns_a_seat")
    def book() -> Seat:
        raise Crash

    @task
    def books_a_seat() -> int:
        return book().row

    with pytest.raises(Crash):
        hf.run(books_a_seat, id="t")
    with pytest.raises(InDoubt):
        hf.run(books_a_seat, id="t")
    with pytest.raises(Unserializable):
        hf.resolve("t", "1", happened=True, result={"column": 3})
    hf.resolve("t", "1", happened=True, result={"row": 3})
    assert hf.run(books_a_seat, id="t") == 3


def test_retry_leaves_alone_a_failed_branch_that_the_task_had_dealt_with(hf):
    broken, ran = [True], []

    @step
    def bad_branch() -> int:
        ran.append("branch")
        raise ValueError("no")

    @step
    def second_way() -> str:
        ran.append("second")
        if broken[0]:
            raise ValueError("not yet")
        return "second"

    @task
    def two_ways(use_each: bool) -> str:
        try:
            if use_each:
                return str(each(lambda _: bad_branch(), [1]))
            return str(gather(bad_branch, lambda: 1))
        except (StepFailed, EachFailed):
            return second_way()

    for use_each in (False, True):
        broken[0], ran[:] = True, []
        with pytest.raises(TaskFailed):
            hf.run(two_ways, use_each, id=f"t-{use_each}")
        broken[0] = False
        assert hf.retry(f"t-{use_each}") == "second"
        assert ran == ["branch", "second", "second"]


@pytest.mark.parametrize("use_each", [False, True])
def test_branches_that_were_removed_or_became_a_call_are_noticed(hf, use_each):
    version = ["branches"]

    @step
    def inner(n: int) -> int:
        return n

    @task(name=f"sheds_branches_{use_each}")
    def sheds() -> int:
        inner(0)
        if version[0] == "none":
            return 0
        if version[0] == "a call":
            return inner(1)
        each(inner, [1]) if use_each else gather(lambda: inner(1))
        raise Crash

    with pytest.raises(Crash):
        hf.run(sheds, id="t")
    version[0] = "none"
    with pytest.raises(CodeChanged, match="ends without that call"):
        hf.run(sheds, id="t")
    version[0] = "a call"
    with pytest.raises(CodeChanged, match="the log holds branches, your code now calls inner"):
        hf.run(sheds, id="t")


@pytest.mark.parametrize("use_each", [False, True])
def test_a_call_that_became_branches_is_noticed(hf, use_each):
    version = ["call"]

    @step
    def inner(n: int) -> int:
        return n

    @task(name=f"grows_branches_{use_each}")
    def grows() -> None:
        if version[0] == "call":
            inner(1)
            raise Crash
        each(inner, [1]) if use_each else gather(lambda: inner(1))

    with pytest.raises(Crash):
        hf.run(grows, id="t")
    version[0] = "branches"
    with pytest.raises(CodeChanged, match=r"the log holds inner.*makes branches with"):
        hf.run(grows, id="t")


def test_the_age_of_a_key_counts_after_a_retry_of_the_task_too(tmp_path):
    clock, calls = Clock(), []

    @tool(key_ttl_s=3600)
    def pay_late(*, key: IdempotencyKey = IdempotencyKey()) -> str:
        calls.append(1)
        raise ConnectionResetError("the reply was lost")

    @task
    def pays_late() -> str:
        return pay_late()

    with Holdfast(tmp_path / "w", clock=clock) as hf:
        with pytest.raises(TaskFailed):
            hf.run(pays_late, id="t")
        clock.advance(3 * 24 * 3600)
        with pytest.raises(InDoubt, match="older than"):
            hf.retry("t")
    assert calls == [1]


def test_questions_of_one_id_are_told_apart_by_their_paths(hf):
    @task
    def asks_alike() -> list[str]:
        return list(gather(lambda: ask("a?", id="same"), lambda: ask("b?", id="same")))

    with pytest.raises(Unanswered):
        hf.run(asks_alike, id="t")
    with pytest.raises(BadInput, match=r"2 questions 'same': say which by '1\.1\.1', '1\.2\.1'"):
        hf.answer("t", "x", question="same")
    hf.answer("t", "one", question="1.1.1")
    hf.answer("t", "two", question="same")
    assert hf.run(asks_alike, id="t") == ["one", "two"]


@pytest.mark.parametrize("change", ["fewer branches", "a shorter branch"])
def test_a_gather_that_makes_less_than_it_did_is_noticed(hf, change):
    version = ["old"]

    @step
    def inner(n: int) -> int:
        return n

    @task(name=f"gathers_less_{change.split()[0]}")
    def gathers() -> int:
        first = [lambda: inner(1), lambda: inner(2) + inner(3)]
        if version[0] == "fewer branches":
            first = first[:1]
        elif version[0] == "a shorter branch":
            first[1] = lambda: inner(2)
        gather(*first)
        if version[0] == "old":
            raise Crash
        return 1

    with pytest.raises(Crash):
        hf.run(gathers, id="t")
    version[0] = change
    with pytest.raises(CodeChanged, match=r"ends branch 1\.2 without that call"):
        hf.run(gathers, id="t")


def test_a_branch_that_swallows_its_question_does_not_complete_the_task(hf):
    def careless() -> bool:
        try:
            return bool(ask("Sure?", bool))
        except BaseException:
            return False

    @task
    def swallowed_in_a_branch(use_each: bool) -> list[object]:
        if use_each:
            return list(each(lambda _: careless(), [1]))
        return list(gather(careless, lambda: 1))

    for use_each in (False, True):
        with pytest.raises(Unanswered):
            hf.run(swallowed_in_a_branch, use_each, id=f"t-{use_each}")
        assert hf.task(f"t-{use_each}").status == "awaiting_user"


@pytest.mark.parametrize("use_async", [False, True])
def test_an_input_that_breaks_off_does_not_lose_the_questions_before_it(hf, use_async):
    def items():
        yield 1
        time.sleep(0.05)
        raise ValueError("the file ends here")

    name = f"breaks_off_{use_async}"
    if use_async:

        @step
        async def aquestion(n: int) -> bool:
            return bool(await ask("Sure?", bool))

        @task(name=name)
        async def breaks_off() -> str:
            try:
                return str(await each(aquestion, items()))
            except ValueError:
                return "gave up"
    else:

        @step
        def question(n: int) -> bool:
            return bool(ask("Sure?", bool))

        @task(name=name)
        def breaks_off() -> str:
            try:
                return str(each(question, items()))
            except ValueError:
                return "gave up"

    with pytest.raises(Unanswered):
        hf.run(breaks_off, id="t")
    hf.answer("t", True)
    assert hf.run(breaks_off, id="t") == "gave up"


def test_changed_code_in_one_branch_does_not_lose_the_result_of_another(hf):
    swap, paid, began = [False], [], threading.Event()

    @step
    def one(n: int) -> int:
        if swap[0]:
            began.wait(60)
        return n

    @tool
    def slow_pay() -> str:
        paid.append(1)
        began.set()
        time.sleep(0.1)
        return "paid"

    @task
    def two_branches() -> list[object]:
        first = gather(lambda: one(2 if swap[0] else 1))
        if not swap[0]:
            raise Crash
        return first

    @task(name="two_branches")
    def two_branches_later() -> list[object]:
        def changed() -> int:
            began.wait(60)
            return one(2)

        return gather(changed, slow_pay)

    with pytest.raises(Crash):
        hf.run(two_branches, id="t")
    swap[0] = True
    with pytest.raises(CodeChanged):
        hf.run(two_branches_later, id="t")
    (pay,) = (call for call in hf.task("t").calls if call.name == "slow_pay")
    assert pay.status == "completed"
    assert paid == [1]


def test_asyncio_tasks_one_after_the_other_in_one_loop_of_a_sync_task_are_refused(hf):
    @step
    async def one(n: int) -> int:
        return n

    async def strand(n: int) -> int:
        return await one(n)

    async def main() -> list[int]:
        return list(await asyncio.gather(strand(1), strand(2)))

    @task
    def mixing_quickly() -> list[int]:
        return asyncio.run(main())

    with pytest.raises(HoldfastError, match="two asyncio tasks"):
        hf.run(mixing_quickly, id="t")
