"""Reading a log on from where one left off, each line checked against the line before it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast import chain
from holdfast.errors import LogDamaged, TaskNotFound
from holdfast.events import FORMAT, AnyEvent, Claimed, TaskCreated, load_event
from holdfast.news import pause
from holdfast.reading import advance_checked, read_events, stream_of
from holdfast.state import FINISHED, State
from holdfast.store import Store

_SAYS_FORMAT = (TaskCreated, Claimed)


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

    @property
    def finished(self) -> bool:
        """Whether the task had ended at the newest event read."""
        return self.state.status in FINISHED

    def read(self) -> Iterator[tuple[bytes, AnyEvent]]:
        """The lines that came since the last time, with their events."""
        lines = self._store.read(self._stream, max(self.state.seq - 1, 0))
        if self.state.seq:
            self._must_be_ours(next(lines, None))
        for line in lines:
            event, total = self._checked(line)
            advance_checked(self.state, event, self._stream)
            self._total = total
            yield line, event

    def _must_be_ours(self, line: bytes | None) -> None:
        if line is None:
            raise TaskNotFound(f"task {self._task_id!r} was deleted")
        if chain.sum_of(line) != self._total:
            raise LogDamaged(self._stream, self.state.seq, "it is not the event it was before")

    def _checked(self, line: bytes) -> tuple[AnyEvent, bytes]:
        seq = self.state.seq + 1
        try:
            event: AnyEvent = load_event(line)
            total = chain.check(self._total, line) if event.seq == seq else None
            ours = not isinstance(event, _SAYS_FORMAT) or event.format <= FORMAT
            if total is not None and ours:
                return event, total
        except (msgspec.MsgspecError, UnicodeDecodeError):
            pass
        # The one place that words what can be wrong with a line reads from the start.
        for _ in read_events(self._store, self._stream):
            pass
        raise LogDamaged(self._stream, seq, "it changed while it was being read")


def follow(store: Store, task_id: str, after_seq: int, poll_s: float) -> Iterator[AnyEvent]:
    """The events of a task after `after_seq`, as they come, until the task has ended."""
    tail = Tail(store, task_id)
    while True:
        for _, event in tail.read():
            if event.seq > after_seq:
                yield event
        if tail.finished:
            return
        pause(store, poll_s, lines=True)
