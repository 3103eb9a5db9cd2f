"""What is seen of a task: the data that a view (`holdfast.views`) gives out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Struct

from holdfast.events import Failure, PlanItem
from holdfast.state import Attempt, Status


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
    """The decision whose place it took, and the newest that took its own, by their paths."""


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
    """One tool call that can be undone, and what became of that."""

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

    It can be stored and sent as it is: values are plain JSON data. What `holdfast.listing` calls a
    `TaskRecord` is the short form of it that stores index.
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
    """Something the agent made of what the outside world said.

    `as_of` is how old the oldest of that was, `sources` are the calls that asked for it.
    """

    path: str
    name: str
    value: Any
    as_of: datetime
    sources: tuple[str, ...]
    at: datetime
