"""The view of a task: what it knows, what it knew, what comes next, and what it needs of people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.events import AnyEvent
from holdfast.core.fold.waits import perhaps_open
from holdfast.core.kinds import TASK, id_of
from holdfast.core.plan import WORKED_OFF
from holdfast.core.state import FINISHED, Call, CallStatus, Status
from holdfast.core.words import html_table
from holdfast.engines.control import next_name
from holdfast.engines.follow import Follow
from holdfast.engines.routing import driven_by
from holdfast.errors import BadInput, StoreError, TaskNotFound
from holdfast.history.known import Known, Position
from holdfast.history.snapshots import Snapshot, Tag, snapshot_of, tags
from holdfast.log.places import When
from holdfast.log.reading import read_events, stream_of
from holdfast.log.states import load, load_newest
from holdfast.log.store_calls import holder_of, inbox_of
from holdfast.stores.listing import Filters, query_of, walk
from holdfast.stores.port import Store


class TaskView(Known):
    """A task as its log tells it, up to the event `seq`. The result of `hf.task(id)`.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def look(city: str) -> list[str]:
    ...     return [f"{city} Inn"]
    >>> @task
    ... def plan(city: str) -> str:
    ...     return look(city)[0]
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(plan, "Oslo", id="plan-1")
    ...     view = hf.task("plan-1")
    >>> view.status, str(view.position), view.outputs[0].output, view.result
    ('completed', 'step 1', ['Oslo Inn'], 'Oslo Inn')
    """

    def __repr__(self) -> str:
        return f"TaskView({self.id!r}, {self.type}, {self.status}, {self.position}, seq {self.seq})"

    def _repr_html_(self) -> str:
        """The task as notebooks show it."""
        rows: list[tuple[str, Any]] = [
            ("task", self.id),
            ("type", self.type),
            ("status", self.status),
            ("position", self.position),
        ]
        rows += [("user", self.user)] if self.user else []
        rows += [("asks", call.why) for call in self.questions]
        if self.status == "completed":
            rows.append(("result", repr(self.result)))
        rows += [("failure", self.failure.summary())] if self.failure else []
        return html_table(rows)

    def at(
        self, step: str | int | None = None, when: When | None = None, *, seq: int | None = None
    ) -> Snapshot:
        """The state of the task before a step (or `after` it), or after the event `seq`.

        >>> from holdfast import Holdfast, decide, step, task
        >>> @step
        ... def weigh_parcel() -> int:
        ...     return 3
        >>> @task
        ... def send_parcel() -> str:
        ...     return decide("carrier", "post" if weigh_parcel() < 5 else "van")
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(send_parcel, id="parcel-1")
        ...     snapshot = hf.task("parcel-1").at(1, "after")
        ...     snapshot.content["calls"]["1"]["output"], snapshot.content["decisions"]
        (3, [])
        """
        return snapshot_of(self._store, self.state, step, when, seq)

    def snapshots(self) -> Iterator[Tag]:
        """Which snapshots there are: before and after each call, with how it ended.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def blink() -> None: ...
        >>> @task
        ... def blink_twice() -> None:
        ...     blink(), blink()
        >>> with Holdfast("memory://") as hf:
        ...     hf.run(blink_twice, id="blink-1")
        ...     [f"{tag.when} {tag.path}" for tag in hf.task("blink-1").snapshots()]
        ['before 1', 'after 1', 'before 2', 'after 2']
        """
        return tags(self.state)

    @property
    def questions(self) -> tuple[Call, ...]:
        """The questions that wait for a person's answer. An answer that is on its way counts."""
        waiting = super().questions
        if not waiting:
            return ()
        coming = {post.name for post in inbox_of(self._store, [stream_of(self.id)])}
        return tuple(c for c in waiting if next_name(f"answer-{c.path}", self.state) not in coming)

    def events(self) -> Iterator[AnyEvent]:
        """The log itself up to this view, checked as it is read."""
        return takewhile(
            lambda event: event.seq <= self.seq, read_events(self._store, stream_of(self.id))
        )

    def follow(self, *, after: int | None = None, poll_s: float = 0.1) -> Follow:
        """The events that come after this view, or after the event `after`, as they come, until
        the task has ended. On an event loop: `async for event in view.follow()`.

        >>> from holdfast import Holdfast, step, task
        >>> @task
        ... def idle() -> None: ...
        >>> with Holdfast("memory://") as hf:
        ...     view = hf.start(idle, id="idle-1").view
        ...     hf.resume("idle-1")
        ...     [type(event).__name__ for event in view.follow()]
        ['Claimed', 'TaskCompleted']
        """
        return Follow(self._store, self.id, self.seq if after is None else after, poll_s)


def view_task(store: Store, task_id: str) -> TaskView:
    """The task of that id, or `TaskNotFound`. All of its log is read, and checked."""
    return TaskView(store, load(store, task_id))


def view_newest(store: Store, task_id: str) -> TaskView:
    """The same by the nearest waypoint: quick for a long log, and good as long as the store is
    open."""
    return TaskView(store, load_newest(store, task_id))


MANY = 2000
"""Of a task with more calls than this, not all are looked at where a few will do."""


def recent(view: TaskView, store: Store, most: int = 0) -> TaskView:
    """The same with the newest calls, at least so many, and those that may not have ended, if it
    made very many."""
    state = view.state
    if len(state.calls) <= MANY:
        return view
    newest = dict.fromkeys(islice(reversed(state.calls), most))
    kept = {call.path: call for call in perhaps_open(state.calls) if call.path not in newest}
    kept |= {path: state.calls[path] for path in reversed(newest)}
    return TaskView(store, replace(state, calls=kept), position_of(view))


def position_of(view: TaskView) -> Position:
    """Where the task is. Of very many calls only the paths are looked at."""
    state = view.state
    if len(state.calls) <= MANY:
        return view.position
    # A step has a number; what stands beside the steps has a name.
    steps = sum(1 for path in state.calls if path.isdigit())
    running = tuple(
        call.path
        for call in perhaps_open(state.calls)
        if call.status not in ("completed", "failed") and call.path.isdigit()
    )
    over = state.status in FINISHED or running
    pending = tuple(item.text for item in state.plan if item.status == "pending")
    of = len(state.plan) if len(state.plan) >= steps and state.plan else None
    return Position(max(steps if over else steps + 1, 1), of, (), running, pending)


_MOST_SHOWN = 100


class Tasks(list[TaskView]):
    """A list of tasks, and the errors of those that could not be read."""

    def __init__(self) -> None:
        super().__init__()
        self.unreadable: list[StoreError] = []

    def _repr_html_(self) -> str:
        """The tasks as notebooks show them."""
        rows: list[tuple[Any, ...]] = [
            (view.id, view.type, view.status, view.position, view.user)
            for view in self[:_MOST_SHOWN]
        ]
        rows += [("…", f"{len(self)} in all", "", "", "")] if len(self) > _MOST_SHOWN else []
        rows += [("unreadable", error, "", "", "") for error in self.unreadable]
        return html_table(rows, ("id", "type", "status", "position", "user"))


def list_tasks(store: Store, filters: Mapping[str, Any], limit: int | None = None) -> Tasks:
    """The views of the tasks that match, oldest first; of the newest so many, if limited."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise BadInput(f"limit={limit!a:.60} must be 1 or more")
    query = query_of(TASK, filters, Filters, Status)
    tasks, failed = Tasks(), dict[str, StoreError]()
    for stream in walk(store, query, failed):
        try:
            view = view_task(store, id_of(stream))
        except TaskNotFound:  # it was deleted meanwhile
            continue
        except StoreError as error:
            failed[str(error)] = error
            continue
        if not query.status or view.status in query.status:  # it may have gone on meanwhile
            tasks.append(view)
        if len(tasks) == limit:
            break
    tasks.unreadable = list(failed.values())
    tasks.sort(key=lambda view: (view.state.created_at, view.id))
    return tasks


# The needs of tasks from people: answers, approvals, and a word on calls in doubt.
#
# The command line lists these and so does the page in the browser, so that both tell the same.


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
