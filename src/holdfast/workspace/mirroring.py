"""Readable files of the tasks of any store, kept in step in a folder that is not the store's own.

    DIR/tasks/<safe id>/status.md …

A mirror looks at the store from time to time. What a finished task says does not change, so it is
read once; of the others only what is new. Nothing in the folder is ever removed: a task that was
deleted leaves its files there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from holdfast.core.state import FINISHED
from holdfast.errors import HoldfastError, TaskBusy, TaskNotFound
from holdfast.log.reading import stream_of
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed, safe_name
from holdfast.stores.port import Facts, Store
from holdfast.workspace.projecting import Projected, Projection
from holdfast.workspace.replacing import place

_MOST_TASKS, _MOST_EVENTS = 200, 20_000
"""What one round does at most; the rest is left to the next."""
_REMEMBERED = 1024


class Round(Struct):
    """What one look at the store came to."""

    changed: list[Projected]
    problems: dict[str, str]
    """By task: what stood in the way."""
    is_all: bool
    """Whether every file was in step with the log then."""
    edited: dict[str, list[str]] = {}
    """By task: the files that are left as somebody edited them, and so are no longer in step."""


class Mirror:
    """A folder that follows a store, or some of its tasks.

    >>> import tempfile
    >>> from holdfast import Holdfast, task
    >>> @task
    ... def mirrored() -> str:
    ...     return "hi"
    >>> with tempfile.TemporaryDirectory() as folder, Holdfast("memory://") as hf:
    ...     _ = hf.run(mirrored, id="mirrored-1")
    ...     mirror = Mirror(hf.store, Path(folder))
    ...     [[each.task for each in mirror.look().changed] for _ in range(2)]
    [['mirrored-1'], []]
    """

    def __init__(self, store: Store, root: Path, ids: Sequence[str] = ()) -> None:
        self._store = store
        self._root = root
        self._ids = tuple(ids)
        self._disk = Disk()
        self._known: OrderedDict[str, Projection] = OrderedDict()
        self._ended: dict[str, Facts] = {}
        """What was known of the tasks that had ended when their files were last written."""
        self._turn = 0

    def look(self) -> Round:
        """Bring the files in step with the logs, as far as one round goes."""
        found = Round([], {}, True)
        streams = list(self._open_streams())
        # Each round begins after the one before, so that no task waits for the same others.
        start = self._turn % len(streams) if streams else 0
        turn = streams[start:] + streams[:start]
        found.is_all = len(turn) <= _MOST_TASKS
        self._turn = start + _MOST_TASKS if not found.is_all else 0
        for stream, facts in turn[:_MOST_TASKS]:
            try:
                self._follow(stream, facts, found)
            except TaskNotFound:  # taken hold of and never begun, or deleted
                self._known.pop(stream, None)
            except TaskBusy:
                found.is_all = False
            except OSError as error:
                found.is_all = False
                found.problems[stream] = str(failed(f"can't write the files of {stream}", error))
            except HoldfastError as error:
                found.problems[stream] = str(error)
        return found

    def _open_streams(self) -> Iterator[tuple[str, Facts | None]]:
        if self._ids:
            yield from ((stream_of(id), None) for id in self._ids)
            return
        for stream, facts in self._store.facts("tasks/"):
            if facts is None or self._ended.get(stream) != facts:
                yield stream, facts

    def _follow(self, stream: str, facts: Facts | None, found: Round) -> None:
        known = self._known.pop(stream, None) or self._projection(stream)
        try:
            made = known.update(most=_MOST_EVENTS)
        finally:
            self._known[stream] = known
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        if any(outcome not in ("same", "edited") for outcome in made.files.values()):
            found.changed.append(made)
        if edited := [name for name, outcome in made.files.items() if outcome == "edited"]:
            found.edited[made.task] = edited
        found.is_all = found.is_all and made.is_current
        if facts is not None and facts.status in FINISHED and made.is_current:
            self._known.pop(stream, None)
            self._ended[stream] = facts

    def _projection(self, stream: str) -> Projection:
        task_id = stream.removeprefix("tasks/")
        where = partial(place, self._disk, self._root, "tasks", safe_name(task_id), make=True)
        return Projection(self._store, task_id, where, self._disk)
