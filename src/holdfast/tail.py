"""Reading a log on from where one left off, each line checked against the line before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast import chain
from holdfast.errors import LogDamaged, TaskNotFound
from holdfast.events import AnyEvent
from holdfast.news import pause
from holdfast.reading import advance_checked, base_of, read_lines, read_on, stream_of
from holdfast.state import FINISHED, State

if TYPE_CHECKING:
    from holdfast.store import Store


class Tail:
    """The end of a task's log, as far as it was read.

    It holds no file open: the log may be replaced by a copy (when another process takes the task
    over) and is found again by its name.
    """

    def __init__(self, store: Store, task_id: str) -> None:
        self.state = State()
        self._store = store
        self._task_id = task_id
        self._stream = stream_of(task_id)
        self._total = chain.ROOT
        self._base = 0

    @property
    def finished(self) -> bool:
        """Whether the task had ended at the newest event read."""
        return self.state.status in FINISHED

    def read(self) -> Iterator[tuple[bytes, AnyEvent]]:
        """The lines that came since the last time, with their events."""
        try:
            for event, total, line in self._new():
                advance_checked(self.state, event, self._stream)
                self._total = total
                yield line, event
        except LogDamaged:
            if self.state.seq and next(self._store.read(self._stream), None) is None:
                raise _deleted(self._task_id) from None
            raise

    def _new(self) -> Iterator[tuple[AnyEvent, bytes, bytes]]:
        if self.state.seq:
            return read_on(self._store, self._stream, self.state.seq, self._total, self._base)
        self._base = base_of(self._store, self._stream)
        return read_lines(self._store, self._stream)


def follow(store: Store, task_id: str, after_seq: int, poll_s: float) -> Iterator[AnyEvent]:
    """The events of a task after `after_seq`, as they come, until the task has ended."""
    tail = Tail(store, task_id)
    while True:
        for _, event in tail.read():
            if event.seq > after_seq:
                yield event
        if after_seq and not tail.state.seq:  # whoever saw that event saw the task
            raise _deleted(task_id)
        if tail.finished:
            return
        pause(store, poll_s, lines=True)


def _deleted(task_id: str) -> TaskNotFound:
    return TaskNotFound(f"task {task_id!r} was deleted")
