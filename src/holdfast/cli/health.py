"""Whether logs are what was written: every line, its place, and the blobs it names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Literal

from msgspec import Struct

from holdfast.errors import LogDamaged, NewerFormat, StoreError
from holdfast.events import AnyEvent
from holdfast.fold import advance
from holdfast.reading import read_events, stream_of
from holdfast.state import State
from holdfast.store import Store
from holdfast.verify import Blobs

Level = Literal["damage", "warning", "note"]

RESTORE = (
    "Keep the file as it is, and restore the log from a backup. "
    "What came before the damage can be read with `holdfast log`."
)


class Finding(Struct, frozen=True):
    """Something that is not as it should be, and what to do about it."""

    level: Level
    where: str
    what: str
    todo: str


def unreadable(where: str, why: str) -> Finding:
    """For what can't be opened. It counts as damage: nobody knows whether it is intact."""
    todo = "Run this as the user who owns it, or see to its permissions, then look again."
    return Finding("damage", where, f"it can't be checked: {why}", todo)


def about_to_start(where: str) -> Finding:
    """For a place without events, in which none were ever recorded."""
    what = "there is no event in it: a task that was about to start"
    return Finding("note", where, what, "Nothing: it does no harm.")


class Logs:
    """Checks logs one by one, and remembers what they hold."""

    def __init__(self, store: Store) -> None:
        self.tasks = 0
        self.events = 0
        self._store = store
        self._blobs = Blobs(store)

    @property
    def blobs(self) -> Collection[str]:
        """The blobs that logs name."""
        return self._blobs.problems

    def check(self, task_id: str) -> Iterator[Finding]:
        """What is wrong with the log of a task."""
        stream, state = stream_of(task_id), State()
        self.tasks += 1
        try:
            for event in read_events(self._store, stream):
                self.events += 1
                yield from self._blobs_of(stream, event)
                advance(state, event)
        except NewerFormat as error:
            yield Finding("warning", stream, str(error), "Use the Holdfast that wrote it.")
        except LogDamaged as error:
            yield Finding("damage", stream, _what(error), RESTORE)
        except StoreError as error:
            yield unreadable(stream, str(error))
        except (LookupError, TypeError, ValueError) as error:
            what = f"event {state.seq + 1} does not follow from those before it ({error!r})"
            yield Finding("damage", stream, what, RESTORE)
        else:
            yield from _whose(stream, task_id, state)

    def _blobs_of(self, stream: str, event: AnyEvent) -> Iterator[Finding]:
        for problem in self._blobs.check(event):
            what = f"event {event.seq}: {problem}"
            yield Finding("damage", stream, what, "Restore the blob from a backup.")


def _whose(stream: str, task_id: str, state: State) -> Iterator[Finding]:
    if not state.seq:
        yield about_to_start(stream)
    elif state.id != task_id:
        what = f"it is the log of the task {state.id!r}"
        yield Finding("damage", stream, what, "Was the folder renamed or copied? Name it back.")


def _what(error: StoreError) -> str:
    # The advice in the message is to run doctor, which is what was done.
    what = str(error).partition(" Restore the log")[0]
    return what.partition(": ")[2] if isinstance(error, LogDamaged) else what
