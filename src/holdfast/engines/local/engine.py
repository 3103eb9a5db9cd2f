"""The local engine: this process, and every `holdfast worker` on the same store.

Local workers look for work by themselves, so there is nobody to be told of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core.state import FINISHED
from holdfast.engines.port import Driven, EngineWorker, Job
from holdfast.engines.routing import LOCAL
from holdfast.log.reading import read_state, stream_of
from holdfast.stores.port import Store


class Local:
    """The engine that a `Holdfast` has if it is given none: see `holdfast.engines.port`.

    >>> from holdfast import Holdfast
    >>> Holdfast("memory://").engine.name
    'local'
    """

    name = LOCAL

    def __init__(self, store: Store | None = None) -> None:
        self.store = store
        """Where its tasks are; a `Holdfast` that is given a `Local` says so."""

    def start(self, job: Job) -> None:
        """Nothing: workers see the task in the store."""

    def tell(self, job: Job, message: str) -> None:
        """Nothing: who holds the task, or takes hold of it next, looks into its inbox."""

    def cancel(self, job: Job) -> None:
        """Nothing: the same."""

    def query(self, job: Job) -> Driven | None:
        """Who is at work on a task; None if nobody is, or it is another engine's."""
        if self.store is None:
            return None
        stream = stream_of(job.id)
        state = read_state(self.store, stream)
        if state.seq == 0 or state.driver:
            return None
        if state.status in FINISHED:
            return Driven(job.id, "ended", LOCAL, started_at=state.created_at)
        holder = self.store.holder(stream)
        if holder is None:
            return None
        return Driven(job.id, "running", LOCAL, started_at=state.created_at, detail=holder)

    def stop(self, job: Job) -> None:
        """Nothing: who holds the task lets go of it when it is told."""

    def worker(
        self, hf: Any, *, concurrency: int = 16, say: Callable[[str], None] | None = None
    ) -> EngineWorker:
        """A `Worker`."""
        from holdfast.engines.local.worker import Worker

        return Worker(hf, concurrency=concurrency, say=say)

    def close(self) -> None:
        """Nothing: it holds nothing."""
