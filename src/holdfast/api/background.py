"""The work of a worker beside driving tasks: it starts what is scheduled, looks for alerts, and
deletes what has grown old.

One thread of its own. Nothing that goes wrong here disturbs a task: it is said, and tried again.
The clean-up is the same as `hf.gc`, which works under a lease, so one worker at a time does it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.api.schedules import Scheduler
from holdfast.engines.weather import FAULTS
from holdfast.errors import HoldfastError, TaskBusy

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast

SCHEDULES_EVERY_S = 1.0
LOOK_EVERY_S = 5.0
CLEAN_EVERY_S = 3600.0


class Background:
    """Runs the upkeep of a store in a thread, while it is entered. Made by `hf.beside()`."""

    def __init__(
        self, hf: Holdfast, say: Callable[[str], None], *, clean_every_s: float = CLEAN_EVERY_S
    ) -> None:
        self._hf, self._say = hf, say
        self._clean_every_s = clean_every_s
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._problem = ""
        self.cleaned: int = 0
        """How often this process has cleaned up."""

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="holdfast upkeep", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        # Workers that are started together don't all clean up at once.
        clean_at = time.monotonic() + random.uniform(0, min(60.0, self._clean_every_s))
        scheduler = Scheduler(self._hf, self._say)
        watch_at = time.monotonic()
        while not self._closing.is_set():
            self._try(scheduler.look)
            if self._hf.hooks and time.monotonic() >= watch_at:
                self._try(self._hf.watch)
                watch_at = time.monotonic() + LOOK_EVERY_S
            if self._hf.retention is not None and time.monotonic() >= clean_at:
                self._try(self._clean)
                clean_at = time.monotonic() + self._clean_every_s
            self._closing.wait(min(SCHEDULES_EVERY_S, LOOK_EVERY_S, self._clean_every_s))

    def _clean(self) -> None:
        swept = self._hf.gc(self._hf.retention)
        self.cleaned += 1
        if swept.tasks or swept.sessions:
            many = "1 task" if len(swept.tasks) == 1 else f"{len(swept.tasks)} tasks"
            self._say(f"upkeep: deleted {many}, as the retention says")

    def _try(self, act: Callable[[], object]) -> None:
        try:
            act()
            self._problem = ""
        except TaskBusy:
            pass  # somebody else is at it
        except (HoldfastError, OSError) as error:
            # A store that is away is so in many words: refused, shutting down, starting up.
            problem = "away" if isinstance(error, FAULTS) else str(error)
            if problem != self._problem:
                self._problem = problem
                self._say(f"upkeep: {error}")
