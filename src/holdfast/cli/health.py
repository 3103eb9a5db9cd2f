"""Whether logs are what was written: every line, its place, and the blobs it names."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Literal

from msgspec import Struct

from holdfast.errors import LogDamaged, NewerFormat, StoreError
from holdfast.events import AnyEvent
from holdfast.folding import Folded, empty, follow
from holdfast.kinds import KINDS, id_of, kind_of
from holdfast.patrol import differs
from holdfast.reading import base_of, read_events
from holdfast.store import Facts, Store
from holdfast.verify import Blobs, what_in

Level = Literal["damage", "warning", "note"]

RESTORE = (
    "Keep the file as it is, and restore the log from a backup. "
    "What came before the damage can be read with `holdfast log`."
)
CORRECT = (
    "A worker corrects it as soon as it comes to compare the two. "
    "In a folder you can delete index.jsonl: it is made anew from the logs."
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
    what = "there is no event in it: somebody was about to begin it"
    return Finding("note", where, what, "Nothing: it does no harm.")


class Logs:
    """Checks logs one by one, and remembers what they hold."""

    def __init__(self, store: Store) -> None:
        self.counts = {kind.plural: 0 for kind in KINDS} | {"events": 0}
        """How many logs there are of each kind, and events in them."""
        self._store = store
        self._blobs = Blobs(store)
        self._told: dict[str, dict[str, Facts | None]] = {}

    @property
    def blobs(self) -> Collection[str]:
        """The blobs that logs name."""
        return self._blobs.problems

    def check(self, stream: str) -> Iterator[Finding]:
        """What is wrong with a log."""
        state, told = empty(stream), self._told_of(stream)
        self.counts[kind_of(stream).plural] += 1
        try:
            base = base_of(self._store, stream)
            for event in read_events(self._store, stream):
                self.counts["events"] += event.seq > base
                yield from self._blobs_of(stream, event)
                follow(state, event, stream)
        except NewerFormat as error:
            yield Finding("warning", stream, str(error), "Use the Holdfast that wrote it.")
        except LogDamaged as error:
            yield Finding("damage", stream, _what(stream, error), RESTORE)
        except StoreError as error:
            yield unreadable(stream, str(error))
        else:
            yield from _whose(stream, state)
            yield from self._told_wrongly(stream, told, state)

    def _told_wrongly(self, stream: str, told: Facts | None, state: Folded) -> Iterator[Finding]:
        with suppress(StoreError):  # it was deleted meanwhile
            if told is not None and (wrong := differs(self._store, stream, told, state)):
                what = f"lists and workers are told something else than its log says: {wrong}"
                yield Finding("warning", stream, what, CORRECT)

    def _told_of(self, stream: str) -> Facts | None:
        """What the store tells of a log without reading it; asked at once for all of a kind."""
        prefix = kind_of(stream).prefix
        if prefix not in self._told:
            self._told[prefix] = {}
            with suppress(StoreError):  # whoever reads the log is told
                self._told[prefix] = dict(self._store.facts(prefix))
        return self._told[prefix].get(stream)

    def _blobs_of(self, stream: str, event: AnyEvent) -> Iterator[Finding]:
        for problem in self._blobs.check(event):
            what = f"event {event.seq}: {problem}"
            yield Finding("damage", stream, what, "Restore the blob from a backup.")


def _whose(stream: str, state: Folded) -> Iterator[Finding]:
    if not state.seq:
        yield about_to_start(stream)
    elif state.id != id_of(stream):
        what = f"it is the log of the {kind_of(stream).name} {state.id!r}"
        yield Finding("damage", stream, what, "Was the folder renamed or copied? Name it back.")


def _what(stream: str, error: LogDamaged) -> str:
    if error.stream != stream:
        return f"event {error.seq}: {what_in(stream, error)}"
    # The advice in the message is to run doctor, which is what was done.
    return str(error).partition(" Restore the log")[0].partition(": ")[2]
