"""What a call that waits asks for, request by request: what is recorded, and what has to be
durable before the task goes on."""

from __future__ import annotations

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast.core import events as e
from holdfast.core.journal import waits
from holdfast.core.journal.requests import (
    Append,
    Asked,
    Await,
    DriveChild,
    Look,
    LookAtChild,
    MayStart,
    Now,
    Park,
    Raised,
    Returned,
    Sleep,
    StartChild,
)
from holdfast.core.state import Call

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=60)
ARGS = Raw(b"{}")
ASKED = Asked("t", "6", cast(Any, SimpleNamespace(name="look")), ARGS, "h", "k")


def record(kind: str, status: str, **more: Any) -> Call:
    return Call("6", "look", kind, status, NOW, **more)  # type: ignore[arg-type]


class Told:
    """A flow, answered as a driver would: what it asks for, and what it comes to."""

    def __init__(self, flow: Generator[Any, Any, Any], *answers: Any) -> None:
        self.asked: list[Any] = []
        self.result: Any = None
        left = list(answers)
        try:
            request = next(flow)
            while True:
                self.asked.append(request)
                if not left:
                    flow.close()
                    return
                request = flow.send(left.pop(0))
        except StopIteration as ended:
            self.result = ended.value
        assert not left, "it did not ask for all of that"

    @property
    def kinds(self) -> list[type]:
        return [type(request) for request in self.asked]

    def appended(self) -> list[tuple[Any, bool, bool]]:
        return [(r.event, r.sync, r.while_waiting) for r in self.asked if isinstance(r, Append)]


def fits(_: Call) -> str:
    return ""


def misfits(_: Call) -> str:
    return "no number"


def test_a_sleep_is_a_time_that_is_durable_before_it_is_waited_for():
    waiting, woke = record("sleep", "waiting", until=LATER), record("sleep", "completed")
    told = Told(waits.sleep(ASKED, None, 60), NOW, waiting, None, woke)
    assert told.kinds == [Now, Append, Sleep, Append] and told.result is woke
    timer = e.TimerSet(path="6", name="look", args=ARGS, args_hash="h", until=LATER)
    assert told.appended() == [(timer, True, False), (e.Woke(path="6"), False, False)]
    assert told.asked[2] == Sleep(LATER)
    again = Told(waits.sleep(ASKED, waiting, 60), None, woke)
    assert again.kinds == [Sleep, Append] and again.result is woke
    assert Told(waits.sleep(ASKED, woke, 60)).result is woke


QUESTION = e.QuestionAsked(path="6", id="q", question="?", args_hash="h", expects="x")
ANSWERED = record("question", "completed", result=Raw(b"1"), settled_by="ann")
REFUSED = e.AnswerRefused(path="6", why="no number")


def open_question(**more: Any) -> Call:
    return record("question", "waiting", key="q", why="?", **more)


def test_a_question_is_put_once_and_stops_the_task_until_it_is_answered():
    told = Told(waits.ask(ASKED, None, QUESTION, None, fits), open_question(), NOW)
    assert told.kinds == [Append, Now, Park] and told.appended() == [(QUESTION, True, False)]
    timed = Told(waits.ask(ASKED, None, QUESTION, 60, fits), NOW, open_question(until=LATER), NOW)
    assert timed.kinds == [Now, Append, Now, Park]
    assert timed.appended() == [(replace(QUESTION, until=LATER), True, False)]
    again = Told(waits.ask(ASKED, open_question(), QUESTION, None, fits), NOW, None, ANSWERED)
    assert again.kinds == [Now, Park, Look] and again.result is ANSWERED
    assert Told(waits.ask(ASKED, ANSWERED, QUESTION, None, fits)).kinds == []


def test_an_answer_that_does_not_fit_is_refused_durably_and_asked_for_again():
    told = Told(waits.ask(ASKED, ANSWERED, QUESTION, None, misfits), open_question(), NOW)
    assert told.kinds == [Append, Now, Park] and told.appended() == [(REFUSED, True, False)]
    late = Told(waits.ask(ASKED, open_question(), QUESTION, None, misfits), *(NOW, None, ANSWERED))
    assert late.kinds == [Now, Park, Look, Append] and late.appended() == [(REFUSED, True, False)]


@pytest.mark.parametrize(("now", "is_up"), [(LATER - timedelta(seconds=1), False), (LATER, True)])
def test_a_question_whose_time_is_up_is_answered_by_its_default_or_expires(now, is_up):
    failed = record("question", "failed")
    told = Told(waits.ask(ASKED, open_question(until=LATER), QUESTION, 60, fits), now, failed)
    assert told.kinds == ([Now, Append] if is_up else [Now, Park, Look])
    if is_up:
        assert told.appended() == [(e.QuestionExpired(path="6"), True, True)]
        assert told.result is failed
    default = open_question(until=LATER, default=Raw(b"7"))
    told = Told(waits.ask(ASKED, default, QUESTION, 60, fits), LATER, ANSWERED)
    by = "its default, when its time was up"
    answer = e.QuestionAnswered(path="6", answer=Raw(b"7"), by=by)
    assert told.appended() == [(answer, True, True)] and told.result is ANSWERED


AWAITED = e.MessageAwaited(path="6", name="x", args_hash="h", expects="x")
TAKEN = record("message", "completed", key="x", result=Raw(b"1"))


def no_message(**more: Any) -> Call:
    return record("message", "waiting", key="x", **more)


def test_a_message_is_waited_for_and_one_that_does_not_fit_is_refused_durably():
    flow = waits.receive(ASKED, None, AWAITED, None, fits)
    told = Told(flow, no_message(), None, TAKEN)
    assert told.kinds == [Append, Await, Look] and told.result is TAKEN
    assert told.appended() == [(AWAITED, True, False)]
    timed = Told(waits.receive(ASKED, None, AWAITED, 60, fits), NOW, no_message(until=LATER))
    assert timed.appended() == [(replace(AWAITED, until=LATER), True, False)]
    refused = Told(
        waits.receive(ASKED, no_message(), AWAITED, None, misfits), *(None, TAKEN, no_message())
    )
    assert refused.kinds == [Await, Look, Append, Await]
    assert refused.appended() == [(e.MessageRefused(path="6", why="no number"), True, False)]


@pytest.mark.parametrize(
    ("until", "now", "is_up"),
    [(LATER, LATER - timedelta(seconds=1), False), (LATER, LATER, True), (None, LATER, False)],
)
def test_a_message_that_does_not_come_in_time_is_waited_for_no_more(until, now, is_up):
    failed, waiting = record("message", "failed"), no_message(until=until)
    flow = waits.receive(ASKED, waiting, AWAITED, 60, fits)
    told = Told(flow, None, waiting, now, *([failed] if is_up else []))
    assert told.kinds == [Await, Look, Now, *([Append] if is_up else [Await])]
    if is_up:
        assert told.appended() == [(e.MessageExpired(path="6"), True, True)]
        assert told.result is failed


def child(status: str) -> Call:
    return record("child", status, child="c")


def test_a_child_is_recorded_before_it_is_made_and_that_it_was_made_may_be_lost():
    made = child("waiting")
    flow = waits.start_child(ASKED, None, "c", b"{}", "cancel")
    told = Told(flow, None, child("running"), None, made)
    assert told.kinds == [MayStart, Append, StartChild, Append] and told.result is made
    started = e.ChildStarted(
        path="6", id="c", name="look", args=ARGS, args_hash="h", on_cancel="cancel"
    )
    assert told.appended() == [(started, True, False), (e.ChildMade(path="6"), False, False)]
    assert told.asked[0] == MayStart("c") and told.asked[2] == StartChild("c", "look", b"{}", "6")
    again = Told(waits.start_child(ASKED, child("running"), "c", b"{}", "cancel"), None, made)
    assert again.kinds == [StartChild, Append]
    assert Told(waits.start_child(ASKED, made, "c", b"{}", "cancel")).kinds == []


def test_the_end_of_a_child_is_recorded_durably_unless_it_is_known():
    ended, waiting = child("completed"), child("waiting")
    assert Told(waits.await_child("6"), ended).result is ended
    driven = Told(waits.await_child("6"), waiting, None, None, ended)
    assert driven.kinds == [Look, LookAtChild, DriveChild, Look] and driven.result is ended
    result = Returned(Raw(b"7"), 7)
    told = Told(waits.await_child("6"), waiting, result, None, ended)
    assert told.appended() == [(e.ChildEnded(path="6", result=Raw(b"7")), True, True)]
    failure = e.Failure("E", "m")
    told = Told(waits.await_child("6"), waiting, Raised(failure), None, ended)
    assert told.appended() == [(e.ChildEnded(path="6", failure=failure), True, True)]
