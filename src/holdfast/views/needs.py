"""What tasks need from people: answers, approvals, and a word on calls in doubt.

The command line lists these and so does the page in the browser, so that both tell the same.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, get_args

from msgspec import Struct

from holdfast.core.kinds import TASK, id_of
from holdfast.core.plan import WORKED_OFF
from holdfast.core.state import FINISHED, Call, CallStatus, Status
from holdfast.engines.routing import driven_by
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import holder_of
from holdfast.stores.listing import Filters, query_of, walk
from holdfast.stores.port import Store
from holdfast.views.task import TaskView


class QuestionView(Struct, frozen=True):
    """A question that waits for its answer."""

    task: str
    id: str
    question: str
    expects: str
    asked_at: datetime
    until: datetime | None
    approves: str = ""
    """For an approval: the path of the call that may be made or not."""
    refused: str = ""
    """Why the last answer did not fit."""


class DoubtView(Struct, frozen=True):
    """A call that may or may not have happened."""

    task: str
    path: str
    tool: str
    key: str
    status: CallStatus
    waits_for_a_person: bool
    interrupted: bool
    """Whether it was running, in a task that can go on and that nobody is at work on."""
    at_work: str | None
    since: datetime
    why: str
    input: Any
    engine: str = ""
    """The remote engine that drives the task."""
    type: str = ""
    """The task function, or what the task is instead: a script, a step of one, a mission."""
    parent: str = ""


_OPEN = tuple(status for status in get_args(Status) if status not in FINISHED)


def is_worked_off(view: TaskView) -> bool:
    """Whether the work of a task is done in other tasks: a mission's items, a script's steps."""
    return view.type in WORKED_OFF


def at_work(store: Store, view: TaskView) -> str | None:
    """The driver at work on an unfinished task right now, as far as can be told.

    Of a mission or a script: who does an item or a step of it.
    """
    if view.status in FINISHED:
        return None
    holder = holder_of(store, stream_of(view.id))
    if holder is not None or not is_worked_off(view):
        return holder
    wanted: Filters = {"parent": view.id, "status": _OPEN}
    inner = walk(store, query_of(TASK, wanted, Filters, Status), {})
    found = ((stream, holder_of(store, stream)) for stream in inner)
    told = [f"{who} ({id_of(stream)})" for stream, who in found if who is not None]
    return ", ".join(told) or None


def questions_of(view: TaskView) -> list[QuestionView]:
    """The questions of a task that wait for an answer. An ended task waits for none."""
    if view.status in FINISHED:
        return []
    return [
        QuestionView(
            task=view.id,
            id=call.key,
            question=call.why,
            expects=call.expects,
            asked_at=call.at,
            until=call.until,
            approves=call.approves,
            refused=call.refused,
        )
        for call in view.questions
    ]


def doubts_of(store: Store, view: TaskView) -> list[DoubtView]:
    """The calls of a task that may or may not have happened."""
    holder = at_work(store, view)
    return [_doubt_view(view, call, holder) for call in view.doubts]


def _doubt_view(view: TaskView, call: Call, holder: str | None) -> DoubtView:
    ended = view.status in FINISHED  # then nobody can settle it any more
    return DoubtView(
        task=view.id,
        path=call.path,
        tool=call.name,
        key=call.key,
        status=call.status,
        waits_for_a_person=call.status == "in_doubt" and not ended,
        interrupted=call.status == "running" and holder is None and not ended,
        at_work=holder,
        since=call.attempts[-1].at if call.attempts else call.at,
        why=call.why,
        input=view.value(call.args),
        engine=driven_by(view.state),
        type=view.type,
        parent=view.state.parent,
    )
