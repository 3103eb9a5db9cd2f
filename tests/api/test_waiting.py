"""Waiting is state: for time and for people, across the end of the process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import (
    AlreadyAnswered,
    BadInput,
    CodeChanged,
    Holdfast,
    Retry,
    StepFailed,
    TaskFailed,
    Unanswered,
    Unserializable,
    aask,
    ask,
    each,
    now,
    random,
    receive,
    sleep,
    step,
    task,
    uuid,
)
from holdfast.core.events import AnswerRefused, MessageRefused
from holdfast.core.spec import is_async
from holdfast.engines import async_driver as aio
from holdfast.engines import loops as alarm
from holdfast.engines.run import Run
from holdfast.testing import Clock
from tests.flavors import Crash

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def hf(tmp_path, clock):
    with Holdfast(tmp_path / "w", clock=clock) as opened:
        yield opened


refuses: list[str] = []


@dataclass
class Trip:
    city: str

    def __post_init__(self) -> None:
        if refuses:
            raise ValueError(refuses[0])


@pytest.fixture
def mind() -> Iterator[list[str]]:
    """What the class of the answers has against each of them, all of a sudden."""
    yield refuses
    refuses.clear()


@step
def book_trip(city: str) -> str:
    return f"booked {city}"


@task
def asks_and_books() -> str:
    trip = ask("Where to?", Trip)
    booked = book_trip(trip.city)
    if not refuses:
        raise Crash
    return booked


@task
def asks_and_books_each() -> str:
    trip = ask("Where to?", Trip)
    (booked,) = each(book_trip, [trip.city])
    if not refuses:
        raise Crash
    return booked


@task
async def asks_and_books_async() -> str:
    trip = await aask("Where to?", Trip)
    booked = book_trip(trip.city)
    if not refuses:
        raise Crash
    return booked


@task
def receives_and_books() -> str:
    trip = receive("trip", Trip)
    booked = book_trip(trip.city)
    if not refuses:
        raise Crash
    return booked


@task
def asks_alone() -> str:
    trip = ask("Where to?", Trip)
    if not refuses:
        raise Crash
    return trip.city


def begun(hf: Holdfast, of: Any) -> None:
    """The task has its value, and crashed after what it did with it."""
    hf.start(of, id="t")
    if of is receives_and_books:
        hf.send("t", "trip", {"city": "Oslo"})
    else:
        with pytest.raises(Unanswered):
            hf.resume("t")
        hf.answer("t", {"city": "Oslo"})
    with pytest.raises(Crash):
        hf.resume("t")


GO_ON = [asks_and_books, asks_and_books_each, asks_and_books_async, receives_and_books]


@pytest.mark.parametrize("of", GO_ON)
def test_an_answer_that_the_task_went_on_with_is_not_asked_for_again(hf, mind, of):
    begun(hf, of)
    mind.append("no trips any more")
    with pytest.raises(CodeChanged, match="no trips any more"):
        hf.resume("t")
    view = hf.task("t")
    assert not view.questions
    assert not [e for e in view.events() if isinstance(e, AnswerRefused | MessageRefused)]


def test_an_answer_that_nothing_came_of_is_judged_by_the_code_that_takes_it(hf, mind):
    begun(hf, asks_alone)
    mind.append("no trips any more")
    with pytest.raises(Unanswered, match="no trips any more"):
        hf.resume("t")


@pytest.mark.parametrize("waits", [ask, receive])
def test_a_default_that_does_not_fit_is_refused_at_once_and_by_name(hf, waits):
    @task
    def would_wait() -> None:
        waits("where", Trip, timeout_s=60, default=None)

    expected = rf"{waits.__name__}\(\): its default None is no Trip; .* expect Trip \| None"
    with pytest.raises(TaskFailed, match=expected):
        hf.run(would_wait)


def test_a_crash_in_a_sleep_waits_out_only_the_rest(hf, clock, monkeypatch):
    def die(run: Run, seconds: float) -> None:
        clock.advance(20)
        raise Crash

    @task
    def napping() -> str:
        sleep(50)
        return "awake"

    with monkeypatch.context() as patched, pytest.raises(Crash):
        patched.setattr(Run, "wait", die)
        hf.run(napping, id="t")
    assert clock.now == START + timedelta(seconds=20)
    (nap,) = hf.task("t").calls
    assert (nap.kind, nap.status, nap.until) == ("sleep", "waiting", START + timedelta(seconds=50))
    clock.skips = True
    assert hf.run(napping, id="t") == "awake"
    assert clock.now == START + timedelta(seconds=50)
    assert hf.run(napping, id="t") == "awake"
    assert clock.now == START + timedelta(seconds=50)


class SetBack:
    """A clock that is set back by an hour when somebody begins to wait."""

    def __init__(self, monkeypatch) -> None:
        self.behind = timedelta()
        wait, nap = Run.wait, alarm.nap

        def wait_by(run: Run, seconds: float) -> None:
            self.behind = timedelta(hours=1)
            wait(run, seconds)

        async def nap_by(run: Run, seconds: float) -> None:
            self.behind = timedelta(hours=1)
            await nap(run, seconds)

        monkeypatch.setattr(Run, "wait", wait_by)
        monkeypatch.setattr(aio, "nap", nap_by)

    def __call__(self) -> datetime:
        return datetime.now(UTC) - self.behind


tries: list[int] = []


@step(retry=Retry(attempts=2, delay_s=0.2, jitter=0))
def fails_once() -> None:
    tries.append(1)
    if len(tries) % 2:
        raise ConnectionError("again")


@task
def waits_by_turns() -> str:
    sleep(0.2)
    fails_once()
    return "awake"


@task
async def awaits_by_turns() -> str:
    await sleep(0.2)
    await asyncio.to_thread(fails_once)
    return "awake"


@task(timeout_s=0.2)
def too_long() -> None:
    sleep(60)


@task(timeout_s=0.2)
async def atoo_long() -> None:
    await sleep(60)


def driven(hf: Holdfast, fn) -> str:
    return asyncio.run(hf.arun(fn, id="t")) if is_async(fn) else hf.run(fn, id="t")


@pytest.mark.timeout(30)
@pytest.mark.parametrize("fn", [waits_by_turns, awaits_by_turns])
def test_a_clock_set_back_makes_no_wait_longer_while_the_process_lives(tmp_path, monkeypatch, fn):
    began = time.monotonic()
    with Holdfast(tmp_path / "w", clock=SetBack(monkeypatch)) as hf:
        assert driven(hf, fn) == "awake"
    assert time.monotonic() - began > 0.3


@pytest.mark.timeout(30)
@pytest.mark.parametrize("fn", [too_long, atoo_long])
def test_nor_does_it_put_off_the_time_by_which_a_task_has_to_end(tmp_path, monkeypatch, fn):
    with (
        Holdfast(tmp_path / "w", clock=SetBack(monkeypatch)) as hf,
        pytest.raises(TaskFailed, match="did not end by"),
    ):
        driven(hf, fn)


@pytest.mark.parametrize("bad", [-1, float("nan"), float("inf")])
def test_a_sleep_that_makes_no_sense_is_refused(hf, bad):
    @task
    def odd() -> None:
        sleep(bad)

    with pytest.raises(TaskFailed, match="BadInput"):
        hf.run(odd, id="t")


def test_sleeps_in_branches_run_side_by_side(tmp_path):
    @step
    async def one(n: int) -> int:
        return n

    async def strand(n: int) -> int:
        await sleep(0.2)
        return await one(n)

    @task
    async def side_by_side() -> list[int]:
        return list(await asyncio.gather(*(strand(n) for n in range(20))))

    with Holdfast(tmp_path / "w2") as hf:
        began = datetime.now(UTC)
        assert hf.run(side_by_side, id="t") == list(range(20))
        assert datetime.now(UTC) - began < timedelta(seconds=3)


def test_now_uuid_and_random_are_the_same_on_every_replay_and_differ_from_each_other(hf, clock):
    seen = []
    dead = [True]

    @task
    def curious() -> None:
        first = (now(), uuid(), random())
        clock.advance(7)
        seen.append((*first, now(), uuid(), random()))
        if dead[0]:
            raise Crash

    with pytest.raises(Crash):
        hf.run(curious, id="t")
    dead[0] = False
    clock.advance(1000)
    hf.run(curious, id="t")
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 6
    assert all(0 <= n < 1 for n in (seen[0][2], seen[0][5]))
    assert seen[0][1].version == 4
    hf.run(curious, id="another")
    assert seen[2][1] != seen[0][1]
    assert seen[2][2] != seen[0][2]


def test_adding_one_call_does_not_shift_the_ids_of_another(hf):
    seen = []
    extra = [False]

    @step
    def work() -> int:
        return 1

    @task
    def grows() -> None:
        if extra[0]:
            random()
            now()
        seen.append(uuid())
        work()
        if not extra[0]:
            raise Crash

    with pytest.raises(Crash):
        hf.run(grows, id="t")
    extra[0] = True
    hf.run(grows, id="t")
    assert seen[0] == seen[1]


@dataclass
class Seat:
    row: int
    window: bool = False


@pytest.mark.parametrize("use_async", [False, True])
def test_a_question_waits_for_its_answer_across_processes(hf, tmp_path, use_async):
    if use_async:

        @task(name=f"asking_{use_async}")
        async def asking() -> str:
            return "booked" if await aask("Book it?", bool, id="book") else "left it"
    else:

        @task(name=f"asking_{use_async}")
        def asking() -> str:
            return "booked" if ask("Book it?", bool, id="book") else "left it"

    for _ in range(2):
        with pytest.raises(Unanswered, match=r"(?s)Book it\?.*holdfast answer t book JSON"):
            hf.run(asking, id="t")
    assert hf.task("t").status == "awaiting_user"
    (question,) = hf.task("t").questions
    assert (question.key, question.expects, question.why) == ("book", "bool", "Book it?")
    with Holdfast(tmp_path / "w") as other:
        other.answer("t", True, question="book", by="ada")
    assert hf.task("t").status == "in_progress"
    assert hf.run(asking, id="t") == "booked"
    with pytest.raises(AlreadyAnswered, match=r"answered with true by ada at 2026"):
        hf.answer("t", False, question="book")
    assert hf.run(asking, id="t") == "booked"


def test_an_answer_of_the_wrong_type_or_to_the_wrong_question_is_refused(hf):
    @task
    def asks_for_a_number() -> int:
        return ask("How many?", int)

    with pytest.raises(Unanswered):
        hf.run(asks_for_a_number, id="t")
    for wrong in ("two", 2.5, None, True, [1]):
        with pytest.raises(Unserializable, match=r"^task 't', question '1': expected int, got "):
            hf.answer("t", wrong)
    with pytest.raises(BadInput, match="no question 'nope'"):
        hf.answer("t", 2, question="nope")
    hf.answer("t", 2, question="1")
    assert hf.run(asks_for_a_number, id="t") == 2
    with pytest.raises(AlreadyAnswered, match="waits for no answer: it was answered with 2"):
        hf.answer("t", 3)


def test_a_task_that_asks_nothing_takes_no_answer(hf):
    @task
    def silent() -> int:
        return 1

    hf.run(silent, id="t")
    with pytest.raises(BadInput, match="has asked nothing"):
        hf.answer("t", 1)


def test_a_question_past_its_time_takes_its_default_or_fails(hf, clock):
    @task
    def with_default() -> bool:
        return ask("Sure?", bool, timeout_s=60, default=False)

    @task
    def without_default() -> str:
        try:
            return str(ask("Sure?", bool, timeout_s=60))
        except StepFailed as failed:
            return failed.failure.type

    for asking in (with_default, without_default):
        with pytest.raises(Unanswered, match="by 2026-01-01"):
            hf.run(asking, id=asking.__name__)
    clock.advance(61)
    assert hf.run(with_default, id="with_default") is False
    assert hf.run(without_default, id="without_default") == "NoAnswer"
    with pytest.raises(AlreadyAnswered, match="its default"):
        hf.answer("with_default", True)
    with pytest.raises(AlreadyAnswered, match="its time was up"):
        hf.answer("without_default", True)


def test_several_questions_are_told_apart(hf):
    @task
    async def asks_two() -> list[str]:
        return list(await asyncio.gather(aask("First?", id="a"), aask("Second?", id="b")))

    with pytest.raises(Unanswered):
        hf.run(asks_two, id="t")
    assert {q.key for q in hf.task("t").questions} == {"a", "b"}
    with pytest.raises(BadInput, match="2 questions: say which one: 'a', 'b'"):
        hf.answer("t", "x")
    hf.answer("t", "two", question="b")
    assert hf.task("t").status == "awaiting_user"
    with pytest.raises(Unanswered, match="First"):
        hf.run(asks_two, id="t")
    hf.answer("t", "one")
    assert hf.run(asks_two, id="t") == ["one", "two"]


def test_an_answer_may_be_an_object(hf):
    @task
    def asks_for_a_seat() -> str:
        seat = ask("Where?", Seat)
        return f"{seat.row} {seat.window}"

    with pytest.raises(Unanswered, match="Seat"):
        hf.run(asks_for_a_seat, id="t")
    # Where the code is not at hand an answer is taken, and refused by the code that asked.
    hf.answer("t", {"column": 3})
    with pytest.raises(Unanswered, match="Seat"):
        hf.run(asks_for_a_seat, id="t")
    assert hf.task("t").status == "awaiting_user"
    hf.answer("t", {"row": 3, "window": True})
    assert hf.run(asks_for_a_seat, id="t") == "3 True"
