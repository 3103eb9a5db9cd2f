"""The tasks that a task starts: made, looked at, driven and cancelled for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.core.events import Failure
from holdfast.core.journal import Raised, Returned
from holdfast.core.spec import Spec, registry
from holdfast.core.state import State
from holdfast.engines.control import cancel, end_of
from holdfast.engines.routing import driven_by, elsewhere
from holdfast.errors import BadInput, TaskBusy, TaskCancelled, TaskFailed
from holdfast.log.log import Log
from holdfast.log.reading import first_event, read_state, stream_of

if TYPE_CHECKING:
    from holdfast.engines.local.driving import Driving


# How the driving of a task begins: which one, and what is done to it first.


class Begin(Struct, frozen=True):
    """A task that is to be driven, and what is done to it first."""

    task_id: str
    spec: Spec
    begin: Callable[[Log], None]
    ends_with: Callable[[State], bool]
    """Whether the recorded end of a task is what the caller asked for."""
    args_hash: str = ""
    engine: str | None = None
    """What is to drive it; None for whatever its log says."""
    continues: bool = False
    """Whether it is let go on if it is paused."""
    reopens: bool = False
    """Whether one that has ended is opened again."""


class TaskOptions(Struct, frozen=True, kw_only=True):
    """What `run` and `start` are told about a task besides its arguments."""

    id: str | None = None
    user: str = ""
    session: str = ""
    labels: dict[str, str] | None = None
    parent: str = ""
    parent_path: str = ""
    engine: str = ""
    """The remote engine that is to drive it; '' for none."""


class Children:
    """The tasks that another one starts: see `holdfast.engines.run.Family`."""

    def __init__(self, driving: Driving) -> None:
        self._driving = driving
        self._store = driving.store

    def must_be_free(self, id: str, parent: str) -> None:
        found = first_event(self._store, stream_of(id))
        if found is not None and found.parent != parent:
            raise BadInput(
                f"task {id!r} exists, and is no child of {parent!r}: start it under another id"
            )

    def create(self, id: str, name: str, args: bytes, parent: State, path: str) -> None:
        spec = registry.task(name)
        given = TaskOptions(
            id=id,
            user=parent.user,
            session=parent.session,
            parent=parent.id,
            parent_path=path,
            engine=parent.driver,
        )
        child = self._driving.starting_with(spec, args, given)
        # Busy: somebody has it in hand already.
        with suppress(TaskBusy), self._driving.holding.hold(id) as log:
            child.begin(log)
            log.sync()

    def outcome(self, id: str) -> Returned | Raised | None:
        state = read_state(self._store, stream_of(id))
        if state.seq == 0:
            gone = f"its log is not in {self._store.url} any more"
            return Raised(Failure("ChildGone", f"task {id!r} was started, and {gone}"))
        return end_of(state)

    def drive(self, id: str) -> None:
        self._must_be_local(id)
        with suppress(TaskFailed, TaskCancelled):
            self._driving.drive(self._driving.taking(id, self._driving.spec_of(id)))

    async def adrive(self, id: str) -> None:
        self._must_be_local(id)
        with suppress(TaskFailed, TaskCancelled):
            await self._driving.adrive(self._driving.taking(id, self._driving.spec_of(id)))

    def _must_be_local(self, id: str) -> None:
        # Without taking hold of it: its engine would find it held, time and again.
        state = read_state(self._store, stream_of(id))
        if driven_by(state):
            raise elsewhere(state)

    def cancel(self, id: str, *, wait: bool) -> None:
        why = "its parent was cancelled"
        status = cancel(self._driving.holding, id, why, by="", wait=wait)
        if wait and status != "cancelled":
            self.drive(id)  # it has something to undo
