"""Keeping the readable files of a workspace in step while tasks are driven in it.

One thread of its own, which the store wakes when something was appended. It is never in the way of
a step: after it has written, it waits a moment, so that much is written at once; it works in small
pieces; and it rests for many times as long as it worked. The first event after a rest is written
without waiting, so a task that is killed as it begins has its files, too. Where many begin at once,
most of them wait: to make four files for each holds up their logs. The rest is written when the
workspace is closed.

Nothing that goes wrong here disturbs a task. A failure is told by `problem`, and the write is tried
again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from holdfast.core.state import FINISHED
from holdfast.errors import BadInput, HoldfastError, TaskBusy, TaskNotFound
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import facts_of_all
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed, safe_name
from holdfast.stores.groups import start_anew_in_children
from holdfast.stores.port import Facts, Store
from holdfast.views.task import view_task

if TYPE_CHECKING:
    from holdfast.workspace.projecting import Projected, Projection

EVERY_S = 0.5
_SHARE = 0.04
"""How much of the time it may work: it has to leave the interpreter to the tasks."""
_PIECE_S = 0.001
_MOST_EVENTS = 5000
_AT_ONCE = 8
"""How many tasks have their files written without waiting."""
_REMEMBERED = 1000
"""How many tasks are gone on with; another one is read from its beginning."""
_LAST_S = 2.0
"""How long the last time may take. Files that are not done by then are left as they were: true, but
old."""

_TASKS = "tasks/"


class Projector:
    """The files of all tasks that this process changes. Made by `projector_of`."""

    def __init__(self, store: Store, root: Path, *, every_s: float = EVERY_S) -> None:
        self._store = store
        self._root = root
        self.every_s = every_s
        self._disk = Disk()
        self.problem: str = ""
        """The obstacle in the way of the files, if there is one."""
        self.start_anew()
        start_anew_in_children(self)

    def start_anew(self) -> None:
        """Begin with nothing: also in a process that was forked, to which the thread is lost."""
        self.changed: set[str] = set()
        self._rested = True
        self._known: OrderedDict[str, Projection] = OrderedDict()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def hear(self, stream: str) -> None:
        """Something was appended to a stream, or it is gone. Returns at once."""
        if stream in self.changed or not stream.startswith(_TASKS):
            return
        self.changed.add(stream)
        self._wake.set()
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._closing.is_set():
                thread = threading.Thread(target=self._run, name="holdfast files", daemon=True)
                with suppress(RuntimeError):  # as the interpreter ends
                    thread.start()
                    self._thread = thread

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait()
            if self._closing.is_set():
                return
            self._wake.clear()
            worked_s = self._work()
            if self.changed:
                self._wake.set()
            self._closing.wait(self.every_s + worked_s / _SHARE)
            self._rested = not self._wake.is_set()

    def _work(self) -> float:
        """Write what is new, with pauses in which others have the interpreter; returns how long
        they did not. By the clock and not by the processor: on a busy machine it is kept from them
        for longer."""
        paused_s, began = 0.0, time.monotonic()
        at_once, self._rested = self._rested, False

        def breathe() -> None:
            nonlocal paused_s
            before = time.monotonic()
            self._closing.wait(_PIECE_S)
            paused_s += time.monotonic() - before

        self.write(most=_MOST_EVENTS, breathe=breathe, at_once=at_once)
        return time.monotonic() - began - paused_s

    def write(
        self,
        *,
        most: int | None = None,
        breathe: Callable[[], object] = lambda: None,
        until: float | None = None,
        at_once: bool = False,
    ) -> None:
        """Bring the files of every changed task up to date, as far as that goes now.

        `at_once` leaves the summary to the next time: it needs much that is not loaded yet, and a
        process that has just begun may fork, which must not meet an import half-way.
        """
        problem = ""
        for stream in islice(list(self.changed), _AT_ONCE if at_once else None):
            if until is not None and time.monotonic() > until:
                return
            if until is None and self._closing.is_set():
                return
            # Before the log is read: what comes after that is heard of again.
            self.changed.discard(stream)
            try:
                if not self._update(stream, most, breathe, at_once):
                    self.changed.add(stream)
            except TaskNotFound:
                self._known.pop(stream, None)
            except TaskBusy:
                self.changed.add(stream)
            except FileNotFoundError:  # it was deleted
                self._known.pop(stream, None)
            except OSError as error:
                self.changed.add(stream)
                problem = str(failed(f"can't write the files of {stream}", error))
            except HoldfastError as error:  # its log is damaged, or something stands in the way
                self._known.pop(stream, None)
                problem = str(error)
        self.problem = problem

    def _update(
        self, stream: str, most: int | None, breathe: Callable[[], object], at_once: bool
    ) -> bool:
        task_id = stream.removeprefix(_TASKS)
        known = self._known.pop(stream, None)
        # Here, because most processes that open a workspace drive nothing in it.
        from holdfast.workspace.projecting import Projection, task_folder
        from holdfast.workspace.replacement import place

        if known is None:
            where = partial(place, self._disk, self._root, "tasks", safe_name(task_id))
            known = Projection(self._store, task_id, where, self._disk)
        try:
            made = known.update(most=most, breathe=breathe)
        finally:
            self._known[stream] = known
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        folder = task_folder(self._root, task_id)
        if made.is_current:
            known.put_files(folder)
        # A file that was written while it waited would go on telling what is left to do.
        is_stale = known.finished or known.was_put_back
        is_over = is_stale and (folder / "SUMMARY.md").exists()
        if (known.waits or is_over) and made.is_current:
            if at_once:
                return False
            from holdfast.workspace.handoff import written  # seldom, and it needs much

            written(view_task(self._store, task_id), folder)
        if known.finished and made.is_current:
            del self._known[stream]
        return made.is_current

    def close(self) -> None:
        """Write what is left, unless that takes too long, and end."""
        self._closing.set()
        self._wake.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        until = time.monotonic() + _LAST_S
        while self.changed and time.monotonic() < until:
            before = len(self.changed)
            self.write(most=_MOST_EVENTS, until=until)
            if self.problem:
                return
            if len(self.changed) >= before:
                time.sleep(_PIECE_S)  # somebody else is at it


def projector_of(opened: Store, store: Store, *, must: bool, sealed: bool) -> Projector | None:
    """What keeps the files of a store in step, which was `opened`, and is read as `store`.

    None where they have no place, unless there `must` be some. Beside an encrypted log they would
    tell what it hides.
    """
    where = getattr(opened, "root", None)
    refused = ""
    if not isinstance(where, Path) or not hasattr(opened, "listener"):
        refused = f"{store.url} is no folder: keep them in one with `holdfast mirror DIR`"
    elif sealed:
        refused = (
            f"{store.url} is encrypted, and readable files in it would tell what it hides: keep "
            f"them elsewhere with `holdfast mirror --plain DIR`"
        )
    if refused and must:
        store.close()
        raise BadInput(f"projections=True: {refused}")
    if refused or not isinstance(where, Path):
        return None
    projector = Projector(store, where)
    setattr(opened, "listener", projector)  # noqa: B010  # the store knows nothing of us
    return projector


# Readable files of the tasks of any store, in a folder that is not the store's own.
#
#     DIR/tasks/<safe id>/status.md …
#
# A mirror looks at the store from time to time. A finished task does not change, so it is read
# once; of the others only what is new. Nothing in the folder is ever removed: a task that was
# deleted leaves its files there.


_MIRROR_TASKS, _MIRROR_EVENTS = 200, 20_000
"""The most that one round does; the rest is left to the next."""
_MIRRORED = 1024


class Round(Struct):
    """The outcome of one look at the store."""

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
        """The tasks that had ended when their files were last written, and what was known of
        them."""
        self._turn = 0

    def look(self) -> Round:
        """Bring the files in step with the logs, as far as one round goes."""
        found = Round([], {}, True)
        streams = list(self._open_streams())
        # Each round begins after the one before, so that no task waits for the same others.
        start = self._turn % len(streams) if streams else 0
        turn = streams[start:] + streams[:start]
        found.is_all = len(turn) <= _MIRROR_TASKS
        self._turn = start + _MIRROR_TASKS if not found.is_all else 0
        for stream, facts in turn[:_MIRROR_TASKS]:
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
        for stream, facts in facts_of_all(self._store, "tasks/"):
            if facts is None or self._ended.get(stream) != facts:
                yield stream, facts

    def _follow(self, stream: str, facts: Facts | None, found: Round) -> None:
        known = self._known.pop(stream, None) or self._projection(stream)
        try:
            made = known.update(most=_MIRROR_EVENTS)
        finally:
            self._known[stream] = known
            if len(self._known) > _MIRRORED:
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
        from holdfast.workspace.projecting import Projection
        from holdfast.workspace.replacement import place

        task_id = stream.removeprefix("tasks/")
        where = partial(place, self._disk, self._root, "tasks", safe_name(task_id), make=True)
        return Projection(self._store, task_id, where, self._disk)
