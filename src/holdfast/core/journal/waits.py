"""The flows of what a task waits for: times, people, and other tasks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from msgspec import Raw
from msgspec.structs import replace

from holdfast.core.events import (
    AnswerRefused,
    ChildEnded,
    ChildMade,
    ChildStarted,
    MessageAwaited,
    MessageExpired,
    MessageRefused,
    OnCancel,
    QuestionAnswered,
    QuestionAsked,
    QuestionExpired,
    TimerSet,
    Woke,
)
from holdfast.core.journal.calls import recorded
from holdfast.core.journal.requests import (
    Append,
    Asked,
    Await,
    DriveChild,
    Flow,
    Look,
    LookAtChild,
    MayStart,
    Now,
    Park,
    Returned,
    Sleep,
    StartChild,
    awaiting_message,
    unanswered,
)
from holdfast.core.state import Call

Misfit = Callable[[Call], str]
"""Says why a value from outside does not fit what the code expects; '' if it does."""


def sleep(asked: Asked, record: Call | None, seconds: float) -> Flow:
    """Wait for a while that outlives the process: until an absolute time, which is recorded."""
    if record is None:
        now = yield Now()
        until = now + timedelta(seconds=seconds)
        record = yield Append(
            TimerSet(
                path=asked.path,
                name=asked.spec.name,
                args=asked.args,
                args_hash=asked.args_hash,
                until=until,
            ),
            True,
        )
    if record.status == "waiting" and record.until is not None:
        yield Sleep(record.until)
        # Not synced: if it is lost, the time has still come.
        record = yield Append(Woke(path=asked.path), False)
    return record


def ask(
    asked: Asked,
    record: Call | None,
    question: QuestionAsked,
    wait_s: float | None,
    misfit: Misfit,
) -> Flow:
    """Put a question to a person, once; go on when it is answered or its time is up.

    `misfit` says what is wrong with an answer, if anything: it was given where the code that asks
    may not have been at hand.
    """
    if record is None:
        if wait_s is not None:
            now = yield Now()
            question = replace(question, until=now + timedelta(seconds=wait_s))
        record = yield Append(question, True)
    if record.status == "completed" and (why := misfit(record)):
        record = yield Append(AnswerRefused(path=asked.path, why=why), True)
    while record.status == "waiting":
        now = yield Now()
        if record.until is None or now < record.until:
            yield Park(unanswered(asked.task_id, record))
            record = yield Look(asked.path)
        elif isinstance(record.default, Raw):
            by = "its default, when its time was up"
            answered = QuestionAnswered(path=asked.path, answer=record.default, by=by)
            record = yield Append(answered, True, while_waiting=True)
        else:
            record = yield Append(QuestionExpired(path=asked.path), True, while_waiting=True)
        if record.status == "completed" and (why := misfit(record)):
            record = yield Append(AnswerRefused(path=asked.path, why=why), True)
    return record


def receive(
    asked: Asked, record: Call | None, awaited: MessageAwaited, wait_s: float | None, misfit: Misfit
) -> Flow:
    """Wait for a message of a name; go on when one has come that fits, or the time is up.

    A message that does not fit is refused, which is recorded, and the call waits for the next one.
    """
    if record is None:
        if wait_s is not None:
            now = yield Now()
            awaited = replace(awaited, until=now + timedelta(seconds=wait_s))
        record = yield Append(awaited, True)
    while True:
        yield Await(awaiting_message(asked.task_id, record))
        record = yield Look(asked.path)
        if record.status == "waiting":
            now = yield Now()
            if record.until is not None and now >= record.until:
                expired = MessageExpired(path=asked.path)
                record = yield Append(expired, True, while_waiting=True)
        if record.status == "completed" and (why := misfit(record)):
            record = yield Append(MessageRefused(path=asked.path, why=why), True)
        if record.status != "waiting":
            return record


def start_child(
    asked: Asked, record: Call | None, id: str, args: bytes, on_cancel: OnCancel
) -> Flow:
    """Start another task, once. The intent is recorded first: a process that cancels this one
    then knows of it."""
    if record is None:
        yield MayStart(id)
        started = ChildStarted(
            path=asked.path,
            id=id,
            name=asked.spec.name,
            args=asked.args,
            args_hash=asked.args_hash,
            on_cancel=on_cancel,
        )
        record = yield from recorded(started)
    if record.status == "running":
        yield StartChild(id, asked.spec.name, args, asked.path)
        # Not synced: if it is lost, it is found to be there the next time.
        record = yield Append(ChildMade(path=asked.path), False)
    return record


def await_child(path: str) -> Flow:
    """Go on when a task that this one started has ended."""
    while True:
        # The child's driver may also tell us its end.
        record: Call = yield Look(path)
        if record.status != "waiting":
            return record
        outcome = yield LookAtChild(record.child)
        if outcome is None:
            yield DriveChild(record.child)
        elif isinstance(outcome, Returned):
            yield Append(ChildEnded(path=path, result=outcome.raw), True, while_waiting=True)
        else:
            ended = ChildEnded(path=path, failure=outcome.failure)
            yield Append(ended, True, while_waiting=True)
