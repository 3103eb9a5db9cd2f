"""Keeping the readable files of a workspace in step while tasks are driven in it.

One thread of its own, which the store wakes when something was appended. It is never in the way of
a step: it waits a moment, so that much is written once; it works in small pieces; and it rests for
many times as long as it worked. What is left is written when the workspace is closed.

Nothing that goes wrong here disturbs a task. What did is told by `problem`, and tried again.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from holdfast.errors import BadInput, HoldfastError, TaskBusy, TaskNotFound
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.folder import failed, safe_name
from holdfast.stores.groups import start_anew_in_children
from holdfast.stores.port import Store
from holdfast.views.task import view_task
from holdfast.workspace.projecting import Projection, task_folder
from holdfast.workspace.replacing import place

EVERY_S = 0.5
_SHARE = 0.04
"""How much of the time it may work: it has to leave the interpreter to the tasks."""
_PIECE_S = 0.001
_MOST_EVENTS = 5000
_REMEMBERED = 1000
"""How many tasks are gone on with; another one is read from its beginning."""
_LAST_S = 2.0
"""How long the last time may take. What is not done by then is left as it was: true, but old."""

_TASKS = "tasks/"


class Projector:
    """The files of all tasks that this process changes. Made by `projector_of`."""

    def __init__(self, store: Store, root: Path, *, every_s: float = EVERY_S) -> None:
        self._store = store
        self._root = root
        self.every_s = every_s
        self._disk = Disk()
        self.problem = ""
        """What stands in the way of the files, if anything does."""
        self.start_anew()
        start_anew_in_children(self)

    def start_anew(self) -> None:
        """Begin with nothing: also in a process that was forked, to which the thread is lost."""
        self._changed: set[str] = set()
        self._known: OrderedDict[str, Projection] = OrderedDict()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def hear(self, stream: str) -> None:
        """Something was appended to a stream, or it is gone. Returns at once."""
        if stream in self._changed or not stream.startswith(_TASKS):
            return
        self._changed.add(stream)
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
            if self._closing.wait(self.every_s):
                return
            self._wake.clear()
            worked_s = self._work()
            if self._changed:
                self._wake.set()
            self._closing.wait(worked_s / _SHARE)

    def _work(self) -> float:
        """Write what is new, with pauses in which others have the interpreter; returns how long
        they did not. By the clock and not by the processor: on a busy machine it is kept from them
        for longer."""
        paused_s, began = 0.0, time.monotonic()

        def breathe() -> None:
            nonlocal paused_s
            before = time.monotonic()
            self._closing.wait(_PIECE_S)
            paused_s += time.monotonic() - before

        self.write(most=_MOST_EVENTS, breathe=breathe)
        return time.monotonic() - began - paused_s

    def write(
        self,
        *,
        most: int | None = None,
        breathe: Callable[[], object] = lambda: None,
        until: float | None = None,
    ) -> None:
        """Bring the files of every changed task up to date, as far as that goes now."""
        problem = ""
        for stream in list(self._changed):
            if until is not None and time.monotonic() > until:
                return
            if until is None and self._closing.is_set():
                return
            # Before the log is read: what comes after that is heard of again.
            self._changed.discard(stream)
            try:
                if not self._update(stream, most, breathe):
                    self._changed.add(stream)
            except TaskNotFound:
                self._known.pop(stream, None)
            except TaskBusy:
                self._changed.add(stream)
            except FileNotFoundError:  # it was deleted
                self._known.pop(stream, None)
            except OSError as error:
                self._changed.add(stream)
                problem = str(failed(f"can't write the files of {stream}", error))
            except HoldfastError as error:  # its log is damaged, or something stands in the way
                self._known.pop(stream, None)
                problem = str(error)
        self.problem = problem

    def _update(self, stream: str, most: int | None, breathe: Callable[[], object]) -> bool:
        task_id = stream.removeprefix(_TASKS)
        known = self._known.pop(stream, None)
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
        # One that was written while it waited would go on telling what is left to do.
        is_stale = known.finished or known.was_put_back
        is_over = is_stale and (folder / "SUMMARY.md").exists()
        if (known.waits or is_over) and made.is_current:
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
        while self._changed and time.monotonic() < until:
            before = len(self._changed)
            self.write(most=_MOST_EVENTS, until=until)
            if self.problem:
                return
            if len(self._changed) >= before:
                time.sleep(_PIECE_S)  # somebody else is at it


def projector_of(opened: Store, store: Store, *, must: bool, sealed: bool) -> Projector | None:
    """What keeps the files of a store in step, which was `opened`, and is read as `store`.

    None where they have no place, unless there `must` be some. Beside an encrypted log they would
    tell what it hides.
    """
    where = getattr(opened, "root", None)
    refused = ""
    if not isinstance(where, Path) or not hasattr(opened, "heard"):
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
    setattr(opened, "heard", projector.hear)  # noqa: B010  # the store knows nothing of us
    return projector
