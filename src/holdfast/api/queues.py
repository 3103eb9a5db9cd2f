"""`QueueHandle`: a queue from its users' side. `core.queues` says what the queue itself is."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from msgspec import Struct

from holdfast.api.async_forms import off_the_loop
from holdfast.core.queues import KEY, LANES, Queue
from holdfast.engines.holder import Holding
from holdfast.engines.local.desk import waiting_page
from holdfast.engines.queues import (
    QueueLog,
    declare_queue,
    declared_queue,
    declared_queues,
    pause_queue,
)

MOST_COUNTED = 1000


class Running(Struct, frozen=True):
    """A task that has a place in a queue."""

    task: str
    key: str
    since: datetime


class QueueInfo(Struct, frozen=True):
    """A queue as it is now."""

    name: str
    queue: Queue
    paused: bool
    by: str
    because: str
    running: int
    waiting: int
    """How many tasks wait; `MOST_COUNTED` stands for that many or more."""
    oldest_at: datetime | None
    """When the task was made that was made first, of those counted."""
    places: tuple[Running, ...]
    waiting_by_key: dict[str, int]


class QueueHandle:
    """A queue that was declared: look at it, pause it, let it go on. Made by `hf.queue(…)`."""

    def __init__(self, holding: Holding, name: str) -> None:
        self.name = name
        self._holding = holding

    def __repr__(self) -> str:
        return f"QueueHandle({self.name!r})"

    def pause(self, *, because: str = "", by: str = "") -> None:
        """Start no more of its tasks, until `resume`. Those under way go on."""
        pause_queue(self._holding, self.name, paused=True, by=by, because=because)

    def resume(self, *, by: str = "") -> None:
        """Start its tasks again."""
        pause_queue(self._holding, self.name, paused=False, by=by)

    def info(self) -> QueueInfo:
        """How it is now: its limits, what has a place, and what waits."""
        declared = declared_queue(self._holding, self.name)
        held = QueueLog(self._holding, self.name).look().held
        first, end = declared.number * LANES, (declared.number + 1) * LANES
        found = waiting_page(self._holding.store, first, end, MOST_COUNTED)
        waiting = [
            (facts.labels.get(KEY, ""), facts.created_at)
            for stream, facts in found
            if stream.removeprefix("tasks/") not in held
        ]
        by_key: dict[str, int] = {}
        for key, _ in waiting:
            by_key[key] = by_key.get(key, 0) + 1
        return QueueInfo(
            name=self.name,
            queue=declared.queue,
            paused=declared.paused,
            by=declared.by,
            because=declared.because,
            running=len(held),
            waiting=len(waiting),
            oldest_at=min((at for _, at in waiting), default=None),
            places=tuple(Running(p.task, p.key, p.at) for p in held.values()),
            waiting_by_key=by_key,
        )

    apause: Final = off_the_loop(pause)
    aresume: Final = off_the_loop(resume)
    ainfo: Final = off_the_loop(info)


def open_queue(holding: Holding, queue: Queue | str) -> QueueHandle:
    """Declare a queue, or find the one of that name."""
    if isinstance(queue, str):
        return QueueHandle(holding, declared_queue(holding, queue).queue.name)
    return QueueHandle(holding, declare_queue(holding, queue).queue.name)


def all_queues(holding: Holding) -> list[QueueHandle]:
    """Every queue that was declared."""
    return [QueueHandle(holding, name) for name in sorted(declared_queues(holding))]
