"""Snapshots: what a task knew at a place in its past.

Every call has one before it and one after it. They are not stored: a log says what happened, and
the fold of its events up to a place is what was known there. The `content` of a snapshot is the
agent's knowledge as plain data, without times and counts. So you can compare two snapshots, of one
task or of two, and a replay with its original.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from holdfast.core.conversation import Conversation, advance
from holdfast.core.decoding import damage_in, decode
from holdfast.core.state import FINISHED, Call, State
from holdfast.engines.origins import said_by, sessions_of
from holdfast.history.differences import Diff, diff
from holdfast.history.known import Known
from holdfast.log.artifacts import Artifact, opened
from holdfast.log.places import PastPlace, When, ended_at_seq, place_of
from holdfast.log.reading import session_stream
from holdfast.log.states import load
from holdfast.log.values import fetch
from holdfast.stores.port import Store

_LONGEST_TEXT = 256 * 1024
"""The size up to which a file is compared word by word."""
_canonical = msgspec.json.Encoder(order="sorted").encode


class Tag(Struct, frozen=True):
    """Which snapshot: of which call, when, and how that call ended.

    `outcome` is '' before a call.
    """

    seq: int
    path: str
    name: str
    when: Literal["before", "after"]
    at: datetime
    outcome: str = ""


class Snapshot:
    """The knowledge of a task after the event `seq`. `hf.task(id).at(6, "before")` returns one.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def look_up_room(city: str) -> str:
    ...     return f"{city} Inn"
    >>> @task
    ... def find_room(city: str) -> str:
    ...     return look_up_room(city)
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(find_room, "Oslo", id="find-1")
    ...     before, after = hf.task("find-1").at(1), hf.task("find-1").at(1, "after")
    ...     list(before.content["calls"]), after.content["calls"]["1"]["output"]
    ([], 'Oslo Inn')
    """

    def __init__(self, store: Store, state: State, place: PastPlace) -> None:
        self._store = store
        self.view: Known = Known(store, state)
        """The task as it was then."""
        self.place = place

    @property
    def id(self) -> str:
        """The task, or the original of the fork that shares this past."""
        return self.view.id

    @property
    def seq(self) -> int:
        """The newest event it knows."""
        return self.view.seq

    @property
    def at(self) -> datetime:
        """When that event was recorded."""
        return self.view.state.updated_at

    @property
    def status(self) -> str:
        """Where the task was in its life."""
        return self.view.status

    @cached_property
    def content(self) -> dict[str, Any]:
        """Everything that was known, as plain data: the same for the same knowledge."""
        view, state = self.view, self.view.state
        content: dict[str, Any] = {
            "task": view.type,
            "input": view.input,
            "mission": view.value(state.mission),
            "plan": [msgspec.to_builtins(item) for item in view.plan],
            "calls": {path: shown_call(view, call) for path, call in state.calls.items()},
            "decisions": [
                {"name": d.name, "choice": d.choice, "options": d.options, "because": d.because}
                for d in view.decisions
            ],
            "notes": [{"text": n.text, "data": n.data} for n in view.notes],
            "facts": [{"name": f.name, "value": f.value} for f in view.facts],
            "state": view.checkpoint,
            "conversation": list(conversation_at(self._store, state)),
            "files": {name: view.value(kept.file) for name, kept in sorted(state.files.items())},
            "result": view.result,
            "failure": None if view.failure is None else view.failure.summary(),
            "ended": view.status if view.status in FINISHED else "",
        }
        return content

    def comparable(self) -> dict[str, Any]:
        """The content, with the text of the files that are texts and not too long."""
        files = {
            name: kept if (text := self._text(kept)) is None else {**kept, "text": text}
            for name, kept in self.content["files"].items()
        }
        return self.content | {"files": files}

    def _text(self, kept: Any) -> str | None:
        try:
            artifact = msgspec.convert(kept, Artifact)
            if artifact.size_bytes > _LONGEST_TEXT:
                return None
            with opened(self._store, artifact) as file:
                return file.read().decode()
        except (UnicodeDecodeError, msgspec.ValidationError):
            return None

    def diff(self, other: Snapshot) -> Diff:
        """The changes that lead from this snapshot to another one, of this task or of any.

        >>> from holdfast import Holdfast, note, step, task
        >>> @step
        ... def tide_at(hour: int) -> str:
        ...     return "high"
        >>> @task
        ... def sail_when() -> None:
        ...     note("tide", tide_at(6))
        >>> with Holdfast("memory://") as hf:
        ...     hf.run(sail_when, id="sail-9")
        ...     task = hf.task("sail-9")
        ...     made = task.at(1, "after").diff(task.at(seq=task.seq))
        >>> [(change.what, change.where) for change in made.changes]
        [('added', ('notes', 0)), ('changed', ('ended',))]
        """
        return diff(self.comparable(), other.comparable())

    def to_json(self) -> bytes:
        """The content as canonical JSON: equal bytes for equal content."""
        return _canonical(self.content)


def snapshot_of(
    store: Store, state: State, step: str | int | None, when: When | None, seq: int | None
) -> Snapshot:
    """The snapshot of a task at a place. `state` is the newest one of the task."""
    place = place_of(state, step, when, seq)
    return Snapshot(store, load(store, state.id, place.seq), place)


def shown_call(view: Known, call: Call) -> dict[str, Any]:
    """A call as a snapshot shows it."""
    shown: dict[str, Any] = {"name": call.name, "kind": call.kind, "status": call.status}
    if call.args is not UNSET:
        shown["input"] = view.value(call.args)
    if call.why and call.kind in ("question", "approval"):
        shown["question"] = call.why
    if call.failure is not None and call.status == "failed":
        shown["failure"] = call.failure.summary()
    elif call.result is not UNSET:
        shown["output"] = view.value(call.result)
    if call.child:
        shown["child"] = call.child
    return shown


def conversation_at(store: Store, state: State) -> Iterator[dict[str, Any]]:
    """The messages in the session of a task at the time of its newest event."""
    for session in sessions_of(store, state):
        with damage_in(session_stream(session)):
            said = Conversation()
            for event, _ in said_by(store, session, state):
                advance(said, event)
            turns = [decode(fetch(store, turn.messages, {}, dict)) for turn in said.turns]
        yield from itertools.chain.from_iterable(turns)
        return


def tags(state: State) -> Iterator[Tag]:
    """The snapshots that a task has: one before and one after each of its calls, in order."""
    found: list[Tag] = []
    for call in state.calls.values():
        if not call.seq:  # what stands beside the steps is no place to stop at
            continue
        found.append(Tag(call.seq - 1, call.path, call.name, "before", call.at))
        if ended := ended_at_seq(call):
            at = call.ended_at or call.at
            found.append(Tag(ended, call.path, call.name, "after", at, call.status))
    return iter(sorted(found, key=lambda tag: (tag.seq, tag.when == "before")))
