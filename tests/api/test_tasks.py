"""The promises of a task, on real files."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr, model_serializer

import holdfast
from holdfast import (
    BadId,
    BadInput,
    CodeChanged,
    CodeMissing,
    Happened,
    Holdfast,
    HoldfastError,
    IdempotencyKey,
    InDoubt,
    NotATask,
    Retry,
    StepFailed,
    TaskFailed,
    TaskNotFound,
    TooLarge,
    Unserializable,
    WrongArguments,
    current,
    decide,
    note,
    step,
    task,
    tool,
)
from holdfast.core.events import Claimed, Parked, Started
from holdfast.engines.local.tasks import new_id
from holdfast.engines.run import Run
from holdfast.testing import Clock
from tests.flavors import Crash

START = Clock().now
pytestmark = pytest.mark.holdfast("{tmp_path}/w")

NOW = Retry(attempts=3, delay_s=0, jitter=0)


@dataclass
class Calls:
    """Counts what really ran, and dies where told."""

    seen: list[Any] = field(default_factory=list)
    die_at: int = 0

    def __call__(self, what: Any = None) -> int:
        self.seen.append(what)
        if self.die_at == len(self.seen):
            raise Crash
        return len(self.seen)


@pytest.fixture
def calls():
    return Calls()


# Running


def test_a_recorded_step_never_runs_again(hf, calls):
    @step
    def count(n: int) -> int:
        calls(n)
        return n * 10

    @task
    def three() -> list[int]:
        return [count(n) for n in range(3)]

    calls.die_at = 3
    with pytest.raises(Crash):
        hf.run(three, id="t")
    assert hf.task("t").status == "in_progress"
    assert hf.run(three, id="t") == [0, 10, 20]
    assert hf.run(three, id="t") == [0, 10, 20]
    assert calls.seen == [0, 1, 2, 2]


def test_outside_a_task_a_decorated_function_is_the_plain_function():
    @step(retry=NOW)
    def plain(x: object) -> object:
        return x

    @tool
    async def aplain(x: object) -> object:
        return x

    @task
    def whole(x: object) -> object:
        return plain(x)

    thing = object()
    assert plain(thing) is thing
    assert asyncio.run(aplain(thing)) is thing
    assert whole(thing) is thing
    assert plain.__name__ == "plain"
    assert plain.__annotations__ == {"x": "object", "return": "object"}


def test_the_same_id_with_other_arguments_or_another_function_is_refused(hf):
    @task
    def greet(name: str) -> str:
        return name

    @task
    def shout(name: str) -> str:
        return name.upper()

    hf.run(greet, "Ada", id="t")
    with pytest.raises(WrongArguments, match=r'greet\(\{"name":"Ada"\}\).*greet\(\{"name":"Bob"\}'):
        hf.run(greet, "Bob", id="t")
    with pytest.raises(WrongArguments, match="shout"):
        hf.run(shout, "Ada", id="t")
    assert hf.run(greet, name="Ada", id="t") == "Ada"


def test_a_task_without_an_id_gets_one_of_its_own(hf):
    @task
    def greet(name: str) -> str:
        return current().task_id

    one, two = hf.run(greet, "Ada"), hf.run(greet, "Ada")
    assert one != two
    assert one.startswith("greet-")


def test_ids_made_in_the_same_second_differ_for_tens_of_thousands_of_tasks():
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert len({new_id("plan", now) for _ in range(30_000)}) == 30_000


@pytest.mark.parametrize(
    "bad", ["", "a\nb", "a\0b", "\x1b[31mred", "x" * 256, "\ud800", 7, None, b"x", "a\u202eb"]
)
def test_an_id_that_cannot_name_a_task_is_refused_and_writes_nothing(hf, bad, tmp_path):
    @task
    def greet() -> str:
        return "hi"

    if bad is not None:
        with pytest.raises(BadId):
            hf.run(greet, id=bad)
    with pytest.raises(BadId):
        hf.task(bad)
    assert not list((tmp_path / "w").rglob("events.jsonl"))


@pytest.mark.parametrize(
    "hostile",
    ["../../etc/passwd", "/etc/passwd", ".", "..", "con", "a b", "Ünïcødé", "💥", "a:b", "~"],
)
def test_an_id_is_never_a_path(hf, hostile, tmp_path):
    @task
    def greet() -> str:
        return "hi"

    assert hf.run(greet, id=hostile) == "hi"
    assert hf.task(hostile).id == hostile
    assert [t.id for t in hf.tasks()] == [hostile]
    (log,) = tmp_path.rglob("events.jsonl")
    assert log.parent.parent == tmp_path / "w/tasks"


def test_what_is_not_a_task_is_refused_by_name(hf):
    @step
    def only_a_step() -> int:
        return 1

    with pytest.raises(NotATask, match="only_a_step is a step, not a task"):
        hf.run(only_a_step)
    with pytest.raises(NotATask, match="lambda"):
        hf.run(lambda: 1)


def test_an_unknown_task_is_not_found(hf):
    for ask in (hf.task, hf.resume, hf.retry):
        with pytest.raises(TaskNotFound, match="no task 'nobody'"):
            ask("nobody")


def test_a_task_whose_code_is_gone_says_what_is_missing(hf, calls):
    @task(name="was_here_yesterday")
    def gone() -> int:
        return calls()

    calls.die_at = 1
    with pytest.raises(Crash):
        hf.run(gone, id="t")
    from holdfast.core.spec import registry

    del registry._found["task", "was_here_yesterday"]
    with pytest.raises(CodeMissing, match=r"'was_here_yesterday'.*Import its module") as missing:
        hf.resume("t")
    assert "holdfast_alert" not in str(missing.value)  # it lists the user's tasks, not ours
    assert hf.task("t").status == "in_progress"


def test_two_functions_of_one_name_are_told_apart_or_refused(hf):
    def make(module: str):
        def twin() -> str:
            return module

        twin.__module__ = module
        return task(name="same_name")(twin)

    one, _ = make("a"), make("b")
    assert hf.run(one, id="t") == "a"
    with pytest.raises(CodeMissing, match=r"more than one task: a.*b"):
        hf.resume("t")


# Values


def test_first_run_and_replay_see_the_same_values(hf, calls):
    seen = []

    @step
    def pair() -> tuple[int, str]:
        return 1, "x"

    @step
    def untyped():
        return {"at": datetime(2026, 1, 1, tzinfo=UTC), "t": (1, 2), "s": {3}}

    @task
    def look() -> None:
        seen.append((pair(), untyped()))
        calls()

    calls.die_at = 1
    with pytest.raises(Crash):
        hf.run(look, id="t")
    hf.run(look, id="t")
    assert seen[0] == seen[1]
    assert seen[0][0] == (1, "x")
    assert seen[0][1]["t"] == (1, 2)


def test_a_step_cannot_change_its_callers_arguments(hf):
    @step
    def greedy(items: list[int]) -> int:
        items.append(99)
        return len(items)

    @task
    def caller() -> list[int]:
        mine = [1, 2]
        greedy(mine)
        return mine

    assert hf.run(caller) == [1, 2]


def test_an_unserializable_result_is_final_and_named_and_nothing_is_half_written(hf, calls):
    @step(retry=NOW)
    def connect():
        calls()
        return {"ok": [1, {"socket": threading.Lock()}]}

    @task
    def broken() -> None:
        connect()

    with pytest.raises(TaskFailed, match=r"connect \(step 1\) returned.*lock"):
        hf.run(broken, id="t")
    assert calls.seen == [None]
    failure = hf.task("t").failures[0].failure
    assert failure.type == "Unserializable"
    assert "ok" in failure.message
    assert "socket" in failure.message


def test_an_unserializable_argument_is_refused_before_anything_is_written(hf):
    @step
    def take(x) -> int:
        return 1

    @task
    def broken() -> str:
        try:
            take(threading.Lock())
        except Unserializable as error:
            return str(error)
        return ""

    assert "take" in hf.run(broken, id="t")
    assert hf.task("t").calls == ()


def test_an_argument_that_does_not_fit_its_annotation_is_refused(hf):
    @step
    def take(n: int) -> int:
        return n

    @task
    def broken() -> int:
        return take("seven")

    with pytest.raises(TaskFailed, match="take"):
        hf.run(broken, id="t")
    with pytest.raises(Unserializable):
        hf.run(task(name="typed")(lambda_like), "seven")


def lambda_like(n: int) -> int:
    return n


def test_a_result_above_the_limit_is_refused(tmp_path):
    @step
    def big() -> str:
        return "x" * 200_000

    @task
    def large() -> str:
        return big()

    with (
        Holdfast(tmp_path / "w", max_value_bytes=100_000) as hf,
        pytest.raises(TaskFailed, match=r"TooLarge.*200,002 bytes is above the limit"),
    ):
        hf.run(large, id="t")
    assert issubclass(TooLarge, Unserializable)


def test_a_value_that_looks_like_a_blob_reference_comes_back_as_it_was(hf):
    trick = {"$blob": "0" * 64, "size_bytes": 3}

    @step
    def forge() -> dict[str, Any]:
        return trick

    @step
    def forge_typed() -> dict[str, str | int]:
        return trick

    @task
    def look() -> list[Any]:
        return [forge(), forge_typed()]

    assert hf.run(look, id="t") == [trick, trick]
    assert hf.run(look, id="t") == [trick, trick]


# Failures and retries


def test_a_failed_step_raises_the_same_on_first_run_and_replay(hf, calls):
    seen = []

    @step(retry=NOW)
    def flaky(n: int) -> int:
        raise ConnectionError(f"no route {n}")

    @task
    def careful() -> str:
        try:
            flaky(7)
        except StepFailed as failed:
            seen.append((str(failed), failed.path, failed.name, failed.attempts, failed.failure))
            assert failed.__cause__ is None
        calls()
        return "done"

    calls.die_at = 1
    with pytest.raises(Crash):
        hf.run(careful, id="t")
    assert hf.run(careful, id="t") == "done"
    assert seen[0] == seen[1]
    assert seen[0][0] == "step 1, flaky, failed after 3 attempts: ConnectionError: no route 7"
    context = hf.task("t").failures
    assert [(f.path, f.name, f.attempt, f.input) for f in context] == [
        ("1", "flaky", n, {"n": 7}) for n in (1, 2, 3)
    ]
    assert "raise ConnectionError" in context[0].failure.traceback


def test_a_failed_task_stays_failed_until_it_is_retried_and_keeps_its_steps(hf, calls):
    broken = [True]

    @step
    def good() -> int:
        return calls("good")

    @step
    def bad() -> int:
        calls("bad")
        if broken[0]:
            raise ValueError("not today")
        return 2

    @task
    def both() -> int:
        return good() + bad()

    with pytest.raises(TaskFailed, match=r"StepFailed.*not today.*holdfast retry t"):
        hf.run(both, id="t")
    with pytest.raises(TaskFailed, match="not today"):
        hf.run(both, id="t")
    with pytest.raises(TaskFailed):
        hf.resume("t")
    broken[0] = False
    assert hf.retry("t") == 3
    assert calls.seen == ["good", "bad", "bad"]
    with pytest.raises(BadInput, match="nothing to retry"):
        hf.retry("t")


def test_retry_leaves_alone_a_failure_that_the_task_had_dealt_with(hf, calls):
    broken = [True]

    @step
    def first_choice() -> str:
        calls("first")
        raise ValueError("sold out")

    @step
    def second_choice() -> str:
        calls("second")
        if broken[0]:
            raise ValueError("closed")
        return "second"

    @task
    def choose() -> str:
        try:
            return first_choice()
        except StepFailed:
            return second_choice()

    with pytest.raises(TaskFailed):
        hf.run(choose, id="t")
    broken[0] = False
    assert hf.retry("t") == "second"
    assert calls.seen == ["first", "second", "second"]


def test_a_step_that_fails_after_its_inner_tool_does_not_repeat_the_tool(hf, calls):
    @tool
    def pay(amount: int) -> str:
        calls("pay")
        return f"paid {amount}"

    @step(retry=NOW)
    def buy() -> str:
        done = pay(5)
        if current().attempt < 3:
            raise ConnectionError("after paying")
        return done

    @task
    def shop() -> str:
        return buy()

    assert hf.run(shop, id="t") == "paid 5"
    assert calls.seen == ["pay"]
    assert [c.path for c in hf.task("t").calls] == ["1", "1.1"]


def test_an_inner_call_that_failed_is_tried_again_with_its_step(hf, calls):
    @step
    def inner() -> int:
        if calls("inner") < 3:
            raise ConnectionError("flaky")
        return 7

    @step(retry=NOW)
    def outer() -> int:
        return inner()

    @task
    def nested() -> int:
        return outer()

    assert hf.run(nested, id="t") == 7


def test_an_error_named_in_unless_is_final(hf, calls):
    @step(retry=Retry(attempts=5, delay_s=0, unless=(PermissionError,)))
    def forbidden() -> None:
        calls()
        raise PermissionError("no")

    @task
    def try_it() -> None:
        forbidden()

    with pytest.raises(TaskFailed):
        hf.run(try_it, id="t")
    assert len(calls.seen) == 1


def test_a_crash_in_a_backoff_waits_out_the_rest_and_the_count_goes_on(tmp_path, monkeypatch):
    clock, tries = Clock(skips=True), []

    @step(retry=Retry(attempts=3, delay_s=10, backoff=2, max_delay_s=100, jitter=0))
    def flaky() -> str:
        tries.append((current().attempt, (clock.now - START).total_seconds()))
        if len(tries) < 3:
            raise ConnectionError("again")
        return "ok"

    @task
    def patient() -> str:
        return flaky()

    def die(run: Run, seconds: float) -> None:
        clock.advance(3)
        raise Crash  # three seconds into a wait of ten

    with Holdfast(tmp_path / "w", clock=clock) as hf:
        with monkeypatch.context() as patched, pytest.raises(Crash):
            patched.setattr(Run, "wait", die)
            hf.run(patient, id="t")
        assert clock.now == START + timedelta(seconds=3)
        (retry,) = hf.task("t").retries
        assert retry.retry_at == START + timedelta(seconds=10)
        assert (retry.status, retry.failures) == ("backing_off", 1)
        assert hf.run(patient, id="t") == "ok"
    assert tries == [(1, 0), (2, 10), (3, 30)]


def test_a_step_that_takes_long_is_seen_to_run(hf, tmp_path):
    release = threading.Event()

    @step
    def long_thought() -> int:
        release.wait(60)
        return 1

    @task
    def thinker() -> int:
        return long_thought()

    thread = threading.Thread(target=hf.run, args=(thinker,), kwargs={"id": "t"})
    thread.start()
    with Holdfast(tmp_path / "w") as other:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with contextlib.suppress(TaskNotFound):
                if other.task("t").position.running == ("1",):
                    break
            time.sleep(0.01)
        assert other.task("t").position.running == ("1",)
        release.set()
        thread.join()
        assert other.task("t").position.committed == ("1",)


# Tools in doubt


def die_once(calls: Calls, at: int = 1) -> None:
    calls.die_at = at


def test_the_key_is_the_same_for_every_try_and_is_in_the_intent(hf, calls):
    keys = []

    @tool(retry=NOW)
    def send(to: str, *, key: IdempotencyKey) -> str:
        assert key == current().key
        keys.append(str(key))
        calls()
        if len(keys) == 2:
            raise ConnectionError
        return "sent"

    @task
    def mail() -> str:
        return send("ada")

    die_once(calls)
    with pytest.raises(Crash):
        hf.run(mail, id="t")
    (intent,) = (e for e in hf.task("t").events() if isinstance(e, Started))
    assert hf.run(mail, id="t") == "sent"
    assert set(keys) == {intent.key}
    task_id, path, name, digest = intent.key.split(":")
    assert (task_id, path, name) == ("t", "1", "send")
    assert len(digest) == 16


def test_in_doubt_retry_calls_again(hf, calls):
    @tool(in_doubt="retry")
    def send() -> int:
        return calls()

    @task
    def mail() -> int:
        return send()

    die_once(calls)
    with pytest.raises(Crash):
        hf.run(mail, id="t")
    assert hf.run(mail, id="t") == 2


@pytest.mark.parametrize("happened", [True, False])
def test_in_doubt_check_asks_the_outside_system(hf, calls, happened):
    asked = []

    def check(key: str) -> Happened[int] | None:
        asked.append(key)
        return Happened(70) if happened else None

    @tool(check=check)
    def send() -> int:
        return calls()

    @task
    def mail() -> int:
        return send()

    die_once(calls)
    with pytest.raises(Crash):
        hf.run(mail, id="t")
    assert hf.run(mail, id="t") == (70 if happened else 2)
    assert asked == [hf.task("t").calls[0].key]
    assert hf.task("t").calls[0].settled_by == ("check" if happened else "")
    assert hf.run(mail, id="t") == (70 if happened else 2)
    assert len(asked) == 1


def test_in_doubt_ask_stops_for_a_person_again_and_again(hf, calls):
    @tool
    def send(to: str) -> int:
        return calls()

    @task
    def mail() -> int:
        try:
            return send("ada")
        except Exception:  # what user code does: it must not swallow the stop
            return -1

    die_once(calls)
    with pytest.raises(Crash):
        hf.run(mail, id="t")
    for _ in range(3):
        with pytest.raises(InDoubt, match=r"(?s)call 1, send.*holdfast resolve t 1 --happened"):
            hf.run(mail, id="t")
    assert calls.seen == [None]
    view = hf.task("t")
    assert view.status == "awaiting_user"
    assert [d.path for d in view.doubts] == ["1"]
    events = view.seq
    with pytest.raises(InDoubt):
        hf.run(mail, id="t")
    # Only the claim of each try is new: the same doubt is not raised twice in the log.
    fresh = [e for e in hf.task("t").events() if e.seq > events]
    assert [type(e) for e in fresh] == [Claimed, Parked]


@pytest.mark.parametrize("happened", [True, False])
def test_a_person_settles_a_call_in_doubt(hf, calls, happened):
    @tool(name="send_to_be_settled")
    def send(to: str) -> int:
        return calls()

    @task
    def mail() -> int:
        return send("ada")

    die_once(calls)
    with pytest.raises(Crash):
        hf.run(mail, id="t")
    with pytest.raises(InDoubt):
        hf.run(mail, id="t")
    if happened:
        with pytest.raises(Unserializable, match="int"):
            hf.resolve("t", "1", happened=True, result="not a number")
        hf.resolve("t", "1", happened=True, result=70, because="saw it in the outbox")
    else:
        with pytest.raises(BadInput, match="has no result"):
            hf.resolve("t", "1", happened=False, result=3)
        hf.resolve("t", "1", happened=False)
    assert hf.run(mail, id="t") == (70 if happened else 2)
    with pytest.raises(BadInput, match="is not in doubt: it is completed"):
        hf.resolve("t", "1", happened=False)
    with pytest.raises(BadInput, match="has made no call 9"):
        hf.resolve("t", "9", happened=False)


def test_past_the_age_of_its_key_retry_turns_into_ask(tmp_path, calls):
    clock = Clock()

    @tool(key_ttl_s=3600)
    def send(*, key: IdempotencyKey = IdempotencyKey()) -> int:
        return calls()

    @task
    def mail() -> int:
        return send()

    with Holdfast(tmp_path / "w", clock=clock) as hf:
        die_once(calls)
        with pytest.raises(Crash):
            hf.run(mail, id="t")
        clock.advance(3601)
        with pytest.raises(InDoubt, match="older than the 3600 s"):
            hf.run(mail, id="t")
        clock.advance(-3000)
        with pytest.raises(InDoubt):  # once doubted, a person decides
            hf.run(mail, id="t")


def test_past_the_age_of_its_key_retry_turns_into_check_where_there_is_one(tmp_path, calls):
    clock = Clock()

    @tool(in_doubt="retry", check=lambda key: Happened(70), key_ttl_s=3600)
    def send() -> int:
        return calls()

    @task
    def mail() -> int:
        return send()

    with Holdfast(tmp_path / "w", clock=clock) as hf:
        for name, age_s, result in (("young", 3599, 2), ("old", 3601, 70)):
            die_once(calls)
            with pytest.raises(Crash):
                hf.run(mail, id=name)
            clock.advance(age_s)
            assert hf.run(mail, id=name) == result
            calls.seen.clear()


def test_within_the_age_of_its_key_retry_is_retry(tmp_path, calls):
    clock = Clock()

    @tool(in_doubt="retry", key_ttl_s=3600)
    def send() -> int:
        return calls()

    @task
    def mail() -> int:
        return send()

    with Holdfast(tmp_path / "w", clock=clock) as hf:
        die_once(calls)
        with pytest.raises(Crash):
            hf.run(mail, id="t")
        clock.advance(3599)
        assert hf.run(mail, id="t") == 2


def test_a_check_that_keeps_failing_ends_with_a_person(hf, calls):
    def check(key: str) -> None:
        raise ConnectionError("the calendar is down")

    @tool(check=check, retry=Retry(attempts=1, delay_s=0))
    def send() -> int:
        return calls()

    @task
    def mail() -> int:
        return send()

    die_once(calls)
    with pytest.raises(Crash):
        hf.run(mail, id="t")
    with pytest.raises(InDoubt, match="its check failed: ConnectionError: the calendar is down"):
        hf.run(mail, id="t")
    assert len(calls.seen) == 1


def test_a_check_that_answers_nonsense_is_not_believed(hf, calls):
    @tool(check=lambda key: True)
    def send() -> int:
        return calls()

    @task
    def mail() -> int:
        return send()

    die_once(calls)
    with pytest.raises(Crash):
        hf.run(mail, id="t")
    with pytest.raises(InDoubt, match=r"returns Happened\(result\) or None, not True"):
        hf.run(mail, id="t")


def test_a_lost_reply_is_found_by_the_check_before_it_is_called_a_failure(hf, calls):
    sent = []

    @tool(check=lambda key: Happened("sent") if sent else None)
    def send() -> str:
        sent.append(1)
        raise ConnectionResetError("the reply was lost")

    @task
    def mail() -> str:
        return send()

    assert hf.run(mail, id="t") == "sent"
    assert sent == [1]


@pytest.mark.parametrize(
    ("options", "policy"),
    [({}, "ask"), ({"check": lambda key: None}, "check"), ({"in_doubt": "retry"}, "retry")],
)
def test_the_policy_is_what_was_declared_or_the_careful_one(options, policy):
    @tool(**options)
    def plain() -> None: ...

    assert plain.holdfast_spec.in_doubt == policy

    @tool
    def takes_key(*, key: IdempotencyKey) -> None: ...

    assert takes_key.holdfast_spec.in_doubt == "retry"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"in_doubt": "check"}, "needs a check="),
        ({"in_doubt": "ask", "check": lambda key: None}, "implies in_doubt='check'"),
        ({"in_doubt": "retry", "check": lambda key: None}, "implies in_doubt='check'"),
        ({"timeout_s": 0}, "timeout_s=0 must be a number of seconds"),
        ({"key_ttl_s": -1}, "key_ttl_s=-1 must be a number of seconds"),
        ({"timeout_s": float("inf")}, "timeout_s=inf"),
        ({"retry": 3}, "must be a Retry"),
        ({"in_doubt": "Ask"}, "must be 'retry', 'check' or 'ask'"),
        ({"check": 5}, "must be a function of the key"),
        ({"check": lambda: None}, "takes nothing"),
        ({"undo": 3}, "must be a function of the result"),
        ({"name": "a:b"}, "can't name a tool"),
        ({"name": ""}, "can't name a tool"),
    ],
)
def test_tool_options_that_make_no_sense_are_refused_at_once(options, says):
    with pytest.raises(BadInput, match=says):

        @tool(**options)
        def bad() -> None: ...


@pytest.mark.parametrize("options", [{"attempts": 0}, {"delay_s": -1}, {"backoff": float("nan")}])
def test_a_retry_that_makes_no_sense_is_refused(options):
    with pytest.raises(BadInput):
        Retry(**options)


def test_a_step_with_a_key_parameter_is_told_to_be_a_tool():
    with pytest.raises(BadInput, match="decorate it with @tool"):

        @step
        def sneaky(*, key: IdempotencyKey) -> None: ...


# Timeouts


def test_a_sync_attempt_that_takes_too_long_is_given_up_and_journals_nothing_more(hf):
    release = threading.Event()
    after: list[Any] = []

    @step
    def inner() -> int:
        return 1

    @step(timeout_s=0.05, retry=NOW)
    def slow() -> str:
        if current().attempt < 2:
            release.wait(60)
            try:
                inner()
            except BaseException as stopped:
                after.append(stopped)
                raise
        return "quick"

    @task
    def hasty() -> str:
        return slow()

    assert hf.run(hasty, id="t") == "quick"
    events = hf.task("t").seq
    release.set()
    deadline = time.monotonic() + 5
    while not after and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "was given up" in str(after[0])
    assert hf.task("t").seq == events
    (failure,) = hf.task("t").failures
    assert failure.failure.timed_out
    assert "did not end within 0.05 s" in failure.failure.message


def test_an_async_attempt_that_takes_too_long_is_cancelled(hf):
    cancelled = []

    @step(timeout_s=0.05, retry=NOW)
    async def slow() -> str:
        if current().attempt < 2:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                cancelled.append(1)
                raise
        return "quick"

    @task
    async def hasty() -> str:
        return await slow()

    assert hf.run(hasty, id="t") == "quick"
    assert cancelled == [1]
    assert hf.task("t").failures[0].failure.timed_out


def test_a_timeout_of_a_tool_leaves_it_in_doubt(hf):
    @tool(timeout_s=0.05)
    def slow() -> None:
        time.sleep(0.2)

    @task
    def hasty() -> None:
        slow()

    with pytest.raises(InDoubt, match="may have had its effect"):
        hf.run(hasty, id="t")


def test_an_error_of_its_own_is_not_taken_for_a_timeout(hf):
    @tool(timeout_s=10)
    async def raises() -> None:
        raise TimeoutError("from the network library")

    @task
    async def hasty() -> None:
        await raises()

    with pytest.raises(TaskFailed, match="from the network library"):
        hf.run(hasty, id="t")
    assert not hf.task("t").failures[0].failure.timed_out


# Changed code


def crash_after_two(hf, calls):
    @step
    def first(x: int) -> int:
        return x

    @step
    def second(x: int) -> int:
        return x

    @task(name="changing")
    def old() -> int:
        first(1)
        second(2)
        raise Crash

    with pytest.raises(Crash):
        hf.run(old, id="t")
    return first, second


def test_another_step_in_its_place_is_noticed(hf, calls):
    first, second = crash_after_two(hf, calls)

    @task(name="changing")
    def new() -> int:
        return second(2) + first(1)

    before = hf.task("t").seq
    with pytest.raises(
        CodeChanged,
        match=r"task 't', step 1: the log holds first\(\{\"x\":1\}\), your code now calls "
        r"second\(\{\"x\":2\}\)",
    ):
        hf.run(new, id="t")
    assert [type(e) for e in hf.task("t").events() if e.seq > before] == [Claimed]
    assert hf.task("t").status == "in_progress"


def test_other_arguments_are_noticed(hf, calls):
    first, second = crash_after_two(hf, calls)

    @task(name="changing")
    def new() -> int:
        return first(1) + second(3)

    with pytest.raises(CodeChanged, match=r"step 2.*The arguments differ"):
        hf.run(new, id="t")


def test_a_removed_step_is_noticed(hf, calls):
    first, _ = crash_after_two(hf, calls)

    @task(name="changing")
    def new() -> int:
        return first(1)

    with pytest.raises(CodeChanged, match=r"step 2: the log holds second.*ends without that call"):
        hf.run(new, id="t")
    assert hf.task("t").status == "in_progress"


def test_a_swallowed_code_change_is_noticed_all_the_same(hf, calls):
    _, second = crash_after_two(hf, calls)

    @task(name="changing")
    def new() -> int:
        with contextlib.suppress(BaseException):
            second(2)
        return 7

    with pytest.raises(CodeChanged):
        hf.run(new, id="t")


def test_a_result_that_no_longer_fits_its_type_is_noticed(hf, calls):
    @step(name="typed")
    def was_int() -> int:
        return 1

    @task(name="retyped")
    def old() -> None:
        was_int()
        raise Crash

    with pytest.raises(Crash):
        hf.run(old, id="t")

    @step(name="typed")
    def is_str() -> str:
        return "x"

    @task(name="retyped")
    def new() -> None:
        is_str()

    with pytest.raises(CodeChanged, match=r"a result of typed\(\{\}\).*does not fit"):
        hf.run(new, id="t")


# Decisions, notes, the view


def test_a_recorded_decision_stands(hf, calls):
    answers = iter(["attic", "cellar"])
    seen = []

    @task
    def pick() -> None:
        seen.append(
            decide("room", next(answers), options=["attic", "cellar"], because="model says")
        )
        calls()

    calls.die_at = 1
    with pytest.raises(Crash):
        hf.run(pick, id="t")
    hf.run(pick, id="t")
    assert seen == ["attic", "attic"]
    (choice,) = hf.task("t").decisions
    assert (choice.name, choice.choice, choice.options) == ("room", "attic", ["attic", "cellar"])
    assert choice.because == "model says"


@dataclass
class Room:
    name: str
    tags: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "choice", [Room("attic", ("high",)), [Room("attic"), Room("cellar")], None, (1, "a"), {"a": 1}]
)
def test_a_decision_comes_back_as_it_was(hf, calls, choice):
    seen = []

    @task
    def pick() -> None:
        seen.append(decide("rooms", choice, options=[Room("attic")]))
        calls()

    calls.die_at = 1
    with pytest.raises(Crash):
        hf.run(pick, id="t")
    hf.run(pick, id="t")
    assert seen == [choice, choice]
    assert type(seen[1]) is type(choice)


def test_notes_are_written_once_and_shift_nothing(hf, calls):
    extra = [False]

    @step
    def one() -> int:
        return 1

    @task
    def noisy() -> None:
        if extra[0]:
            note("added later")
        note("same")
        note("same")
        one()
        calls()

    calls.die_at = 1
    with pytest.raises(Crash):
        hf.run(noisy, id="t")
    extra[0] = True
    hf.run(noisy, id="t")
    assert [n.text for n in hf.task("t").notes] == ["same", "same", "added later"]


class Parlour(BaseModel):
    name: str
    opened: date
    door: SecretStr = SecretStr("canary")


class Shy(Parlour):
    @model_serializer
    def refuses(self) -> dict[str, str]:
        raise ValueError("no")


def test_notes_and_options_show_models_as_their_fields(hf):
    room = Parlour(name="Elm", opened=date(2026, 11, 19))

    @task
    def noisy() -> None:
        note("found", room)
        note("in a list", [{"room": room}])
        note("refuses", Shy(name="Oak", opened=date(2026, 11, 19)))
        decide("room", "Elm", options=[room])

    hf.run(noisy, id="t")
    view = hf.task("t")
    found, listed, refuses = (n.data for n in view.notes)
    assert (found["name"], found["opened"]) == ("Elm", "2026-11-19")
    assert listed == [{"room": found}]
    assert refuses.startswith("Shy(name='Oak'")
    assert view.decisions[0].options == [found]
    assert "canary" not in str(view.notes)


def test_where_are_we_and_what_happened_to_get_here(hf, calls):
    @step
    def do(n: int) -> int:
        calls(n)
        return n

    @task
    def nine() -> None:
        current().plan([f"part {n}" for n in range(1, 10)])
        for n in range(1, 10):
            do(n)

    calls.die_at = 6
    with pytest.raises(Crash):
        hf.run(nine, id="t")
    position = hf.task("t").position
    assert str(position) == "step 6 of 9"
    assert position.committed == ("1", "2", "3", "4", "5")
    assert position.running == ("6",)
    assert position.pending == ("part 7", "part 8", "part 9")
    hf.run(nine, id="t")
    assert str(hf.task("t").position) == "step 9 of 9"
    assert hf.task("t").position.pending == ()


def test_tasks_are_listed_by_what_they_are(hf):
    @task
    def fine() -> int:
        return 1

    @task
    def broken() -> int:
        raise ValueError("no")

    hf.run(fine, id="a", user="ada", labels={"team": "x"})
    hf.run(fine, id="b", user="bob", session="s-1")
    with pytest.raises(TaskFailed):
        hf.run(broken, id="c", user="ada")
    assert [t.id for t in hf.tasks()] == ["a", "b", "c"]
    assert [t.id for t in hf.tasks(status="failed")] == ["c"]
    assert [t.id for t in hf.tasks(type="fine", user="ada")] == ["a"]
    assert [t.id for t in hf.tasks(session="s-1")] == ["b"]
    assert [t.id for t in hf.tasks(labels={"team": "x"})] == ["a"]


@pytest.mark.parametrize("what", [current, lambda: note("x"), lambda: decide("x", 1)])
def test_what_only_makes_sense_in_a_task_says_so(what):
    with pytest.raises(HoldfastError, match="outside a task"):
        what()


def test_a_task_may_have_parameters_with_the_names_of_options(hf):
    @task
    def rename(id: str, user: str = "", session: str = "", labels: str = "") -> list[str]:
        return [id, user, session, labels]

    told = hf.options(id="rename-1", user="ada", session="s-1", labels={"team": "x"})
    assert told.run(rename, id="boat", user="bob", session="two", labels="red") == [
        "boat", "bob", "two", "red",
    ]  # fmt: skip
    view = hf.task("rename-1")
    assert (view.user, view.state.session, view.state.labels) == ("ada", "s-1", {"team": "x"})
    assert hf.run(rename, "boat") == ["boat", "", "", ""]  # its own, by place
    for go in (hf.run, hf.start, lambda *args, **kwargs: asyncio.run(hf.arun(*args, **kwargs))):
        with pytest.raises(BadInput, match=r"hf.options\(id=…\).run\(rename, id=…\)"):
            go(rename, id="boat")
    assert len(hf.tasks()) == 2


def test_a_timeout_among_the_options_takes_the_place_of_that_of_the_task(hf):
    @task(timeout_s=60)
    def waits() -> None:
        holdfast.sleep(50)

    with pytest.raises(TaskFailed, match="TaskTimedOut"):
        hf.options(id="w-1", timeout_s=0.05).run(waits)
    assert hf.options(id="w-2").start(waits).view.state.timeout_s == 60
    with pytest.raises(BadInput, match="timeout_s=0 must be a number of seconds"):
        hf.options(timeout_s=0).start(waits)


def test_an_async_task_can_be_run_from_sync_code_and_a_sync_one_from_async_code(hf):
    @step
    async def adouble(x: int) -> int:
        return 2 * x

    @step
    def double(x: int) -> int:
        return 2 * x

    @task
    async def atask(x: int) -> int:
        return await adouble(x) + double(x)

    @task
    def stask(x: int) -> int:
        return double(x)

    assert hf.run(atask, 2, id="a") == 8
    assert asyncio.run(hf.arun(stask, 2, id="s")) == 4
    assert asyncio.run(hf.aresume("a")) == 8
