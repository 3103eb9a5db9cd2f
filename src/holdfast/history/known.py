"""The answers that a task can give: the five layers, from its log alone.

Position, verbatim tool outputs, decisions and why, retry context, failure context. A view is made
from a state and never changes; ask again for a newer one. Values are shown as plain JSON data,
because reading a log runs and imports nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.codec.change import patched_state
from holdfast.codec.tags import readable
from holdfast.core.events import Failure, PlanItem
from holdfast.core.journal.task import to_settle, to_undo, undo_path
from holdfast.core.plan import WORKED_OFF, place_in
from holdfast.core.state import (
    FINISHED,
    UNDO,
    Attempt,
    Call,
    PlanVersion,
    Progress,
    State,
    Status,
    scope_of,
)
from holdfast.log.reading import all_lists, stream_of
from holdfast.log.values import Reader

if TYPE_CHECKING:
    from holdfast.stores.port import Store


# The data that a view of a task (`holdfast.views.task`) returns.


class Position(Struct, frozen=True):
    """Layer 1: where the task is. Steps are the calls that the task made, not those inside them.

    `step` is the one it is on (or the last one, when it is finished); `of` is known where the
    task said its plan. A task that says what becomes of the items of its plan is on an item of it,
    whatever calls it makes for that.
    """

    step: int
    of: int | None
    committed: tuple[str, ...]
    running: tuple[str, ...]
    pending: tuple[str, ...]
    by_plan: bool = False
    """Whether steps are the items of the plan; else they are the calls that the task made."""

    def __str__(self) -> str:
        return f"step {self.step} of {self.of}" if self.of else f"step {self.step}"


class Output(Struct, frozen=True):
    """Layer 2: what a call returned, verbatim, attached to the step that produced it."""

    path: str
    name: str
    kind: str
    input: Any
    output: Any
    key: str
    at: datetime | None


class Choice(Struct, frozen=True):
    """Layer 3: what was chosen, from what, and why."""

    path: str
    name: str
    choice: Any
    options: Any
    because: str
    at: datetime
    step: str = ""
    """The newest step that the task had begun when it chose, by its path; '' before the first."""
    supersedes: str = ""
    superseded_by: str = ""
    """The decision that it replaced, and the newest one that replaced it, by their paths."""


def chains(decisions: Iterable[Choice]) -> list[list[Choice]]:
    """Decisions grouped by subject: each follows those that it replaced."""
    known: dict[str, list[Choice]] = {}
    found = []
    for choice in decisions:
        chain = known.get(choice.supersedes)
        if chain is None:
            chain = []
            found.append(chain)
        chain.append(choice)
        known[choice.path] = chain
    return found


class RetryContext(Struct, frozen=True):
    """Layer 4: how often a call was tried, what went wrong, and when it is tried next."""

    path: str
    name: str
    status: str
    attempts: tuple[Attempt, ...]
    failures: int
    retry_at: datetime | None


class FailureContext(Struct, frozen=True):
    """Layer 5: one thing that broke, with all that was known. `path` is '' for the task itself."""

    path: str
    name: str
    attempt: int
    at: datetime
    input: Any
    failure: Failure


class Undone(Struct, frozen=True):
    """One tool call that can be undone, and the state of its undo."""

    path: str
    name: str
    status: str
    why: str


class NoteView(Struct, frozen=True):
    """Something the agent noted."""

    scope: str
    text: str
    data: Any
    at: datetime


class TaskState(Struct, frozen=True):
    """The record of a task: what it is, how far it is, what it learned and what came of it.

    It can be stored and sent as it is: values are plain JSON data. `stores.listing.TaskRecord` is
    the short form of it that stores index.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def weigh_it() -> int:
    ...     return 3
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(weigh_it, id="weigh_it-1")
    ...     hf.task("weigh_it-1").record().result
    3
    """

    id: str
    user: str
    type: str
    created_at: datetime
    status: Status
    plan: tuple[PlanItem, ...]
    observations: dict[str, Any]
    result: Any
    """The final output; None while there is none."""


class FactView(Struct, frozen=True):
    """A conclusion that the agent drew from the outside world.

    `as_of` is how old the oldest of that was, `sources` are the calls that asked for it.
    """

    path: str
    name: str
    value: Any
    as_of: datetime
    sources: tuple[str, ...]
    at: datetime


_ASIDE = ("decision", "fact", "reading", "approval", "limit")
"""Kinds of calls that are no steps: they have a name instead of a number."""


_UNDONE = {"completed": "undone", "failed": "could not be undone", "in_doubt": "in doubt"}


class Known:
    """The knowledge of a task after one event: five layers, with their values as plain data."""

    def __init__(self, store: Store, state: State, position: Position | None = None) -> None:
        self._store = store
        self.state = state
        self._position = position
        """Where the task is, if the state knows too few of its calls to tell."""
        stream = stream_of(state.id)
        values = partial(Reader, store, stream, state.lists, lambda: all_lists(store, stream))
        self._reader, self._stored = values(), values(tags=True)

    @property
    def id(self) -> str:
        """The task's id."""
        return self.state.id

    @property
    def type(self) -> str:
        """The name of the task's function."""
        return self.state.task

    @property
    def status(self) -> Status:
        """Where the task is in its life."""
        return self.state.status

    @property
    def seq(self) -> int:
        """The newest event this view knows."""
        return self.state.seq

    @property
    def user(self) -> str:
        """Whose task it is, or ''."""
        return self.state.user

    @property
    def created_at(self) -> datetime:
        """When the task was made."""
        return self.state.created_at

    @property
    def input(self) -> Any:
        """The arguments the task was started with."""
        return self.value(self.state.args)

    @property
    def result(self) -> Any:
        """The result of the task, or None."""
        return self.value(self.state.result)

    @property
    def failure(self) -> Failure | None:
        """Why the task failed, if it did."""
        return self.state.failure

    @property
    def plan(self) -> tuple[PlanItem, ...]:
        """The plan of the task, and how far it is."""
        return self.state.plan

    @property
    def plans(self) -> tuple[PlanVersion, ...]:
        """Every version of the plan, the newest last: as said, and after each item marked."""
        return tuple(self.state.plans)

    @property
    def observations(self) -> dict[str, Any]:
        """The observations of the task: the newest output of each step by its name, answers by the
        ids of their questions, and the data of notes by their texts.

        All that a step ever returned is in `outputs`.
        """
        found: list[tuple[datetime, str, Any]] = [
            (c.ended_at or c.at, c.key if c.kind == "question" else c.name, self.value(c.result))
            for c in self.calls
            if c.status == "completed" and c.kind not in (*_ASIDE, "sleep")
        ]
        found += [(note.at, note.text, note.data) for note in self.notes]
        found.sort(key=lambda each: each[0])
        return {key: value for _, key, value in found}

    def record(self) -> TaskState:
        """The task as one value, which can be stored and sent.

        >>> from holdfast import Holdfast, note, task
        >>> @task
        ... def weigh() -> int:
        ...     note("the scale", {"unit": "kg"})
        ...     return 3
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(weigh, id="weigh-1", user="ada")
        ...     record = hf.task("weigh-1").record()
        >>> record.user, record.status, record.observations, record.result
        ('ada', 'completed', {'the scale': {'unit': 'kg'}}, 3)
        """
        return TaskState(
            self.id,
            self.user,
            self.type,
            self.created_at,
            self.status,
            self.plan,
            self.observations,
            self.result,
        )

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every call, in the order they were first made."""
        return tuple(self.state.calls.values())

    @property
    def position(self) -> Position:
        """Layer 1: which step the task is on, which are committed, running and pending."""
        if self._position is not None:
            return self._position
        steps = [c for c in self.calls if self._is_step(c)]
        committed = tuple(c.path for c in steps if c.status == "completed")
        running = tuple(c.path for c in steps if c.status not in ("completed", "failed"))
        plan, is_over = self.state.plan, self.status in FINISHED
        place = place_in(plan, is_over=is_over, is_worked_off=self.type in WORKED_OFF)
        if place is not None:
            pending = tuple(item.text for item in plan if item.status == "pending")
            return Position(place, len(plan), committed, running, pending, by_plan=True)
        done = len(steps) - len(running)
        last = len(steps) if is_over or running else done + 1
        # A task that makes more calls than it planned is not measured by its plan.
        of = len(plan) if len(plan) >= len(steps) and plan else None
        step = min(max(last, 1), of) if of else max(last, 1)
        to_come = tuple(item.text for item in plan[len(steps) :])
        return Position(step, of, committed, running, to_come)

    def _is_step(self, call: Call) -> bool:
        scope = scope_of(call.path)
        if call.kind in _ASIDE or scope == UNDO:
            return False
        while scope and scope not in self.state.calls:  # a branch is no call
            scope = scope_of(scope)
        return not scope

    @property
    def outputs(self) -> tuple[Output, ...]:
        """Layer 2: what each call returned, verbatim."""
        return tuple(
            Output(
                c.path,
                c.name,
                c.kind,
                self.value(c.args),
                self.value(c.result),
                c.key,
                c.ended_at,
            )
            for c in self.calls
            if c.status == "completed" and c.kind not in _ASIDE
        )

    @property
    def decisions(self) -> tuple[Choice, ...]:
        """Layer 3: what the agent chose at each branch point, and why."""
        if not self.state.decisions:
            return ()
        superseded = {d.supersedes: d.path for d in self.state.decisions if d.supersedes}
        steps = self.steps_before()
        return tuple(
            Choice(
                d.path,
                d.name,
                self.value(d.choice),
                self.value(d.options),
                d.because,
                d.at,
                steps.get(d.path, ""),
                d.supersedes,
                superseded.get(d.path, ""),
            )
            for d in self.state.decisions
        )

    def steps_before(self) -> dict[str, str]:
        """The newest step before each decision, by their paths."""
        step, found = "", {}
        for call in self.calls:
            if call.kind == "decision":
                found[call.path] = step
            elif self._is_step(call):
                step = call.path
        return found

    @property
    def retries(self) -> tuple[RetryContext, ...]:
        """Layer 4: the calls that did not go through at the first try."""
        return tuple(
            RetryContext(c.path, c.name, c.status, c.attempts, _failed(c), c.retry_at)
            for c in self.calls
            if len(c.attempts) > 1 or _failed(c)
        )

    @property
    def failures(self) -> tuple[FailureContext, ...]:
        """Layer 5: everything that broke, in full."""
        found = [
            FailureContext(
                c.path, c.name, a.number, a.ended_at or a.at, self.value(c.args), a.failure
            )
            for c in self.calls
            for a in c.attempts
            if a.failure is not None
        ]
        if self.state.failure is not None:
            at = self.state.updated_at
            found.append(FailureContext("", self.type, 0, at, self.input, self.state.failure))
        return tuple(found)

    @property
    def doubts(self) -> tuple[Call, ...]:
        """The calls that may or may not have happened, as far as the log can tell."""
        return tuple(c for c in self.calls if _is_doubtful(c))

    @property
    def questions(self) -> tuple[Call, ...]:
        """The questions that wait for a person's answer."""
        return tuple(
            c
            for c in self.calls
            if c.kind in ("question", "approval") and c.status == "waiting" and self._asks(c)
        )

    def _asks(self, call: Call) -> bool:
        if self.state.cancelling:
            return call.approves.startswith(f"{UNDO}.")
        return self.status not in FINISHED

    @property
    def children(self) -> tuple[Call, ...]:
        """The calls by which the task started others; `child` is the id of each."""
        return tuple(c for c in self.calls if c.kind == "child")

    @property
    def progress(self) -> tuple[tuple[str, Progress], ...]:
        """How far the task, and each strand of it, last said it is."""
        return tuple(self.state.progress.items())

    @property
    def checkpoint(self) -> Any:
        """The newest checkpoint as plain data, or None."""
        return readable(self.stored_checkpoint)

    @property
    def stored_checkpoint(self) -> Any:
        """The same as the log writes it, with tags: a fork may be given it back."""
        state = self.state
        stored = self._stored.plain  # a change says where it is in the stored form
        if not isinstance(state.checkpoint, Raw):
            return None
        return patched_state(stored(state.checkpoint), map(stored, state.changes))

    @property
    def compensation(self) -> tuple[Undone, ...]:
        """The effects of the task that can be undone, the last first, and the state of each
        undo."""
        found = []
        for call in to_undo(self.state):
            undo = self.state.calls.get(undo_path(call.path))
            status = "left" if undo is None else _UNDONE.get(undo.status, "under way")
            failed = undo is not None and undo.failure is not None and status != "undone"
            why = undo.failure.summary() if failed and undo and undo.failure else ""
            found.append(Undone(call.path, call.name, status, why))
        for call in to_settle(self.state):
            found.append(Undone(call.path, call.name, "in doubt", call.why))
        return tuple(found)

    @property
    def notes(self) -> tuple[NoteView, ...]:
        """The notes of the agent."""
        return tuple(NoteView(n.scope, n.text, self.value(n.data), n.at) for n in self.state.notes)

    @property
    def facts(self) -> tuple[FactView, ...]:
        """The facts that the agent drew from the outside world, and as of when."""
        return tuple(
            FactView(f.path, f.name, self.value(f.value), f.as_of, f.sources, f.at)
            for f in self.state.facts
        )

    def value(self, raw: Raw | UnsetType) -> Any:
        """A value of the log as plain JSON data without tags, from its blob where it has one."""
        return None if raw is UNSET else self._reader.plain(raw)


def _failed(call: Call) -> int:
    # Not `call.failures`: that counts towards the limit, and starts anew when a task is retried.
    return sum(attempt.failure is not None for attempt in call.attempts)


def _is_doubtful(call: Call) -> bool:
    # A running tool call is in doubt once nobody runs it; a reader of a live task sees it as such.
    if call.kind != "tool":
        return False
    return call.status in ("in_doubt", "running") or (call.doubt and call.status != "completed")
