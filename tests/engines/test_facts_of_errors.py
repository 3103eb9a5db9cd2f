"""What an exception says of itself becomes a fact, whatever it is; and what a flow may ask for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from holdfast import BadInput, Redact, StorageFailed, TaskFailed, step, task
from holdfast.core import events as e
from holdfast.core.journal import Append, Now
from holdfast.core.journal.calls import is_usable
from holdfast.core.limits import BUSY_S
from holdfast.core.plan import numbered
from holdfast.core.state import Call, PlanVersion, State
from holdfast.engines import async_driver, sync_driver
from holdfast.engines.execution import conclude, failure_of, refused_s, retry_after_s, to_append
from holdfast.engines.mail import fitted
from holdfast.engines.run import plain

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Mute(Exception):
    def __str__(self) -> str:
        raise KeyError("no words")


class Touchy(Exception):
    """Each of its attributes raises an exception."""

    @property
    def retry_after_s(self) -> float:
        raise RuntimeError

    @property
    def response(self) -> Any:
        raise RuntimeError


class Asking(Exception):
    def __init__(self, **said: Any) -> None:
        vars(self).update(said)


def test_an_exception_is_recorded_whatever_it_is():
    found = failure_of(Mute(), Redact())
    assert found.message == "(its message can't be shown: KeyError)"
    assert (found.type, found.module, found.timed_out) == ("Mute", __name__, False)
    found = failure_of(ValueError("half \ud800 of it"), Redact(), timed_out=True)
    assert found.message == "half \\ud800 of it" and found.timed_out
    assert "\\ud800" in found.traceback
    msgspec.json.encode(found)
    hidden = failure_of(ValueError("the word is sesame-1234"), Redact(), also=["sesame-1234"])
    assert "sesame" not in hidden.message + hidden.traceback


@pytest.mark.parametrize(
    ("asked", "waits_s"),
    [
        (2, 2.0),
        (0.5, 0.5),
        (1e12, 1e9),
        (0, 0.0),
        (-3, 0.0),
        (True, 0.0),
        ("2", 0.0),
        (None, 0.0),
        (Decimal(2), 0.0),
    ],
)
def test_an_exception_asks_for_a_wait_by_a_positive_number(asked, waits_s):
    assert retry_after_s(Asking(retry_after_s=asked)) == waits_s
    assert type(retry_after_s(Asking(retry_after_s=asked))) is float
    assert retry_after_s(Exception()) == retry_after_s(Touchy()) == 0.0


def response(**said: Any) -> SimpleNamespace:
    return SimpleNamespace(**said)


@pytest.mark.parametrize(
    ("said", "waits_s"),
    [
        ({}, 0.0),
        ({"status": 500}, 0.0),
        ({"status": 429}, BUSY_S),
        ({"status_code": 429}, BUSY_S),
        ({"code": 429}, BUSY_S),
        ({"code": "429"}, 0.0),
        ({"response": response(status=429)}, BUSY_S),
        ({"response": response(status_code=429)}, BUSY_S),
        ({"response": response(status_code=503), "code": 429}, BUSY_S),
        ({"status": 429, "retry_after_s": 3}, 3.0),
        ({"status": 500, "retry_after_s": 3}, 3.0),
        ({"response": response(status=429, headers={"retry-after": " 7 "})}, 7.0),
        ({"response": response(status=503, headers={"retry-after": "7"})}, 7.0),
        ({"response": response(status=429, headers={"retry-after": "7"}), "retry_after_s": 2}, 2.0),
        ({"response": response(status=429, headers={"retry-after": "soon"})}, BUSY_S),
        ({"response": response(status=429, headers={"retry-after": 7})}, BUSY_S),
        ({"response": response(status=429, headers={"retry-after": "0"})}, BUSY_S),
        ({"response": response(status=429, headers={})}, BUSY_S),
        ({"response": response(status=429, headers=None)}, BUSY_S),
    ],
)
def test_a_provider_that_refuses_everybody_says_so_in_one_of_these_places(said, waits_s):
    assert refused_s(Asking(**said)) == waits_s
    assert refused_s(Touchy()) == 0.0


@step
def facts_raise(errors: list[str]) -> None:
    made: list[Exception] = [
        StorageFailed("the disk is away") if each == "store" else ValueError(each)
        for each in errors
    ]
    raise made[0] if len(made) == 1 else ExceptionGroup("some", [ExceptionGroup("of", made)])


@task
def facts_task(errors: list[str]) -> None:
    facts_raise(errors)


@pytest.mark.parametrize("errors", [["store"], ["x", "store"], ["store", "x"]])
def test_a_store_that_fails_is_no_failure_of_the_code_that_met_it(hf, errors):
    with pytest.raises(StorageFailed, match="the disk is away"):
        hf.run(facts_task, errors, id="t")
    assert hf.task("t").status == "in_progress"
    with pytest.raises(TaskFailed):
        hf.run(facts_task, ["x", "y"], id="u")


# What a read saw may be used again.


def seen(**changed: Any) -> Call:
    call = Call("1", "look", "step", "completed", AT, as_of=AT, reads=("rooms",), seq=5)
    return msgspec.structs.replace(call, **changed)


@pytest.mark.parametrize(
    ("call", "state", "age_s", "usable"),
    [
        (seen(), {}, 10, True),
        (seen(), {}, 10.001, False),
        (seen(), {}, 0, True),
        (seen(as_of=None), {}, 1, False),
        (seen(), {"updated_at": AT + timedelta(seconds=1)}, 1, True),
        (seen(), {"updated_at": AT + timedelta(seconds=1.001)}, 1, False),
        (seen(), {"invalidated": {"rooms": 5}}, 1, True),
        (seen(), {"invalidated": {"rooms": 6}}, 1, False),
        (seen(), {"invalidated": {"": 6}}, 1, False),
        (seen(), {"invalidated": {"": 5, "cars": 9}}, 1, True),
        (seen(reads=()), {"invalidated": {"rooms": 6}}, 1, True),
        (seen(), {"writers": {"2": ("cars",)}}, 1, True),
        (seen(), {"writers": {"2": ("cars",), "3": ("cars", "rooms")}}, 1, False),
        (seen(reads=("cars", "rooms")), {"writers": {"3": ("rooms",)}}, 1, False),
    ],
)
def test_what_was_seen_may_be_used_while_nothing_speaks_against_it(call, state, age_s, usable):
    known = msgspec.structs.replace(State(updated_at=AT), **state)
    assert is_usable(call, known, 10.0, AT + timedelta(seconds=age_s)) is usable


# A plan that was changed from outside.


def plan_of(*texts: str) -> State:
    state, items = State(seq=9), numbered(texts)
    state.plans = [PlanVersion(2, AT, numbered(("look", "book"))), PlanVersion(4, AT, items)]
    state.plan = items
    return state


@pytest.mark.parametrize(
    ("base_seq", "items", "merged"),
    [
        (4, ("new",), ("new",)),
        (7, ("new",), ("new",)),
        (2, ("look", "book it"), ("look around", "book it")),
        (3, ("look", "book it"), ("look around", "book it")),
        (2, ("look", "book", "pack"), ("look around", "book", "pack")),
        (2, ("look up", "book"), None),
        (1, ("new",), None),
    ],
)
def test_a_plan_is_merged_with_what_was_planned_since_it_was_looked_at(base_seq, items, merged):
    state = plan_of("look around", "book")
    found = fitted(state, e.Planned(items=items, base_seq=base_seq))
    assert merged == (None if found is None else tuple(x.text for x in numbered(found.items)))
    if found is not None:
        assert found.base_seq == (base_seq if base_seq >= 4 else 9)


# What may be recorded, and what a flow may ask for.


class Thing:
    def __repr__(self) -> str:
        return "a thing"


def test_options_and_data_are_shown_as_well_as_can_be():
    assert plain({"a": (1, 2)}) == b'{"a":{"$tuple":[1,2]}}'
    assert plain([Thing(), 1]) == b'["a thing",1]'
    deep: Any = Thing()
    for _ in range(500):
        deep = [deep]
    for value in (deep, {"deep": deep}):
        with pytest.raises(BadInput, match="nested too deep to be recorded"):
            plain(value)
    for wrong in ([Thing(), "\ud800"], "\ud800"):
        with pytest.raises(BadInput, match="can't be recorded"):
            plain(wrong)


def test_an_event_is_appended_only_while_its_call_waits_if_the_flow_says_so():
    event = e.Noted(scope="", mark="m", text="x")
    assert to_append(Append(event, False), "1") is event
    made = to_append(Append(lambda state: event, False, while_waiting=True), "1")
    same = to_append(Append(event, False, while_waiting=True), "1")
    for status, expected in (("waiting", event), ("running", None), ("completed", None)):
        state = State(calls={"1": seen(status=status)})
        assert made(state) is same(state) is expected


def test_a_flow_that_asks_for_what_nobody_can_do_is_a_bug_and_says_so():
    run: Any = SimpleNamespace()
    with pytest.raises(TypeError, match="a flow ended with"):
        conclude(run, SimpleNamespace(), Raw(b"1"))
    with pytest.raises(TypeError, match="nothing to run or to check"):
        sync_driver.nothing()
    with pytest.raises(TypeError, match="a flow asks for"):
        sync_driver._carry_out_for_many(Now(), run, "1")


def test_neither_has_an_async_flow_anything_to_run():
    with pytest.raises(TypeError, match="nothing to run or to check"):
        asyncio.run(async_driver.nothing())
