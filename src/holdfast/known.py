"""What can be asked of a task: the five layers, from its log alone.

Position, verbatim tool outputs, decisions and why, retry context, failure context. A view is made
from a state and never changes; ask again for a newer one. Values are shown as plain JSON data,
because reading a log runs and imports nothing.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Raw, UnsetType

from holdfast.change import patched_state
from holdfast.events import Failure, PlanItem
from holdfast.journal.task import to_settle, to_undo, undo_path
from holdfast.plan import place_in
from holdfast.reading import all_lists, stream_of
from holdfast.seen import (
    Choice,
    FactView,
    FailureContext,
    NoteView,
    Output,
    Position,
    RetryContext,
    TaskState,
    Undone,
)
from holdfast.state import FINISHED, UNDO, Call, PlanVersion, Progress, State, Status, scope_of
from holdfast.values import Reader

if TYPE_CHECKING:
    from holdfast.store import Store

_ASIDE = ("decision", "fact", "reading", "approval")
"""Kinds of calls that stand beside the steps, under a name instead of a number."""


_UNDONE = {"completed": "undone", "failed": "could not be undone", "in_doubt": "in doubt"}


class Known:
    """What a task knew after one event: the five layers, with their values as plain data."""

    def __init__(self, store: Store, state: State) -> None:
        self._store = store
        self.state = state
        stream = stream_of(state.id)
        self._reader = Reader(store, stream, state.lists, lambda: all_lists(store, stream))

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
        """What the task returned, or None."""
        return self.value(self.state.result)

    @property
    def failure(self) -> Failure | None:
        """Why the task failed, if it did."""
        return self.state.failure

    @property
    def plan(self) -> tuple[PlanItem, ...]:
        """What the task intends to do, and what became of it."""
        return self.state.plan

    @property
    def plans(self) -> tuple[PlanVersion, ...]:
        """Every version of the plan, the newest last: as said, and after each item marked."""
        return tuple(self.state.plans)

    @property
    def observations(self) -> dict[str, Any]:
        """What the task learned: the newest output of each step by its name, answers by the ids
        of their questions, and the data of notes by their texts.

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
        steps = [c for c in self.calls if self._is_step(c)]
        committed = tuple(c.path for c in steps if c.status == "completed")
        running = tuple(c.path for c in steps if c.status not in ("completed", "failed"))
        plan, is_over = self.state.plan, self.status in FINISHED
        place = place_in(plan, is_over=is_over)
        if place is not None:
            pending = tuple(item.text for item in plan if item.status == "pending")
            return Position(place, len(plan), committed, running, pending)
        done = len(steps) - len(running)
        last = len(steps) if is_over or running else done + 1
        of = max(len(plan), len(steps)) if plan else None
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
        state = self.state
        if state.checkpoint is UNSET:
            return None
        return patched_state(self.value(state.checkpoint), map(self.value, state.changes))

    @property
    def compensation(self) -> tuple[Undone, ...]:
        """What can be undone of what the task did, the last first, and what became of it."""
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
        """What the agent noted."""
        return tuple(NoteView(n.scope, n.text, self.value(n.data), n.at) for n in self.state.notes)

    @property
    def facts(self) -> tuple[FactView, ...]:
        """What the agent made of what the outside world said, and as of when."""
        return tuple(
            FactView(f.path, f.name, self.value(f.value), f.as_of, f.sources, f.at)
            for f in self.state.facts
        )

    def value(self, raw: Raw | UnsetType) -> Any:
        """A value of the log as plain JSON data, from its blob where it has one."""
        return None if raw is UNSET else self._reader.plain(raw)


def _failed(call: Call) -> int:
    # Not `call.failures`: that counts towards the limit, and starts anew when a task is retried.
    return sum(attempt.failure is not None for attempt in call.attempts)


def _is_doubtful(call: Call) -> bool:
    # A running tool call is in doubt once nobody runs it; who asks of a live task sees it as such.
    if call.kind != "tool":
        return False
    return call.status in ("in_doubt", "running") or (call.doubt and call.status != "completed")
