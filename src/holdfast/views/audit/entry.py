"""The parts of an audit: entries, the claims they were written under, and the verification."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.core.events import Failure
from holdfast.core.state import UNDO, Call, State
from holdfast.errors import BadInput

Signatures = Literal["checked", "encrypted", "not_checked", "none"]
"""Whether who changed a line would be found out: it is signed and that was checked; it opened with
the key of an encrypted store; it is signed and no key was given; it is not signed."""


class AuditEntry(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One thing that happened in a task. Each field is what the log says; one that the log says
    nothing of is left out.

    >>> from datetime import UTC
    >>> AuditEntry(seq=7, at=datetime(2026, 5, 1, tzinfo=UTC), event="started", what="called").what
    'called'
    """

    seq: int
    """The number of the event in the log."""
    at: datetime
    event: str
    """The type of the event, as in the log."""
    what: str
    """The kind of event, in a word or two: always the same ones."""
    who: str = ""
    """The doer: the person who is named, else the process that drove the task; '' if the log
    does not say."""
    epoch: int = 0
    """The claim under which it was written; 0 before the first."""
    path: str = ""
    """The call it is about."""
    name: str = ""
    """Of the step, tool, decision, fact, child or file."""
    kind: str = ""
    """Of the call: `step`, `tool`, `question`, …"""
    attempt: int = 0
    input: Any = UNSET
    output: Any = UNSET
    options: Any = UNSET
    """Of a decision: what there was to choose from."""
    text: str = ""
    """The text: a question, a note, a reason of the machinery."""
    because: str = ""
    """The reason that was given."""
    verdict: str = ""
    """Of a doubt that was settled: `happened` or `did_not_happen`."""
    failure: Failure | None = None
    key: str = ""
    """The idempotency key of a tool, or the id of a question."""
    of: tuple[str, ...] = ()
    """The other calls it is about: what is approved, undone, superseded, or made use of."""
    task: str = ""
    """Another task that it is about: a child, a parent, whose past it shares, or whose call
    answered."""
    log: str = ""
    """The task in whose log the event stands, if it is not this one: what a fork shares."""
    how: str = ""
    """Of a call that was not made: where its outcome is from. Of a fork or a rewind: what becomes
    of the tools that are called after it."""
    to: int = 0
    """Of a fork or a rewind: the event that it goes on from."""
    until: datetime | None = None
    """When it is tried again, wakes up, or is given up; as of when a fact is."""
    duration_s: float | None = None
    """How long the call, or the attempt of it, had taken."""
    approved_by: str = ""
    approved_at: datetime | None = None
    superseded_by: str = ""
    """Of a decision that no longer counts: the path of the one that took its place."""
    problems: tuple[str, ...] = ()
    """The parts that could not be shown, and why."""


class Claim(Struct, frozen=True, omit_defaults=True):
    """One stretch of work on the task: who held it, on which engine, from when to when."""

    epoch: int
    owner: str
    engine: str
    seq: int
    at: datetime
    last_at: datetime
    """When the last event was written under it."""
    events: int
    how: str = ""
    """How it came to be: the first one, after the one before released it, or over its head."""
    log: str = ""
    """The task that was held, if it is not this one: what a fork shares."""


class Verification(Struct, frozen=True):
    """Whether the log is what was written, as far as that can be told. See `hf.verify`."""

    sound: bool
    events: int
    """How many were checked."""
    blobs: int
    damage: tuple[str, ...]
    signatures: Signatures
    head_seq: int
    """The last event that this report tells of, and its sum: keep them, and a log that was cut or
    written anew can be told from this one."""
    head_sum: str


class Audit(Struct, frozen=True, kw_only=True):
    """Who did what in a task, when and with what, and whether its log can be believed.

    The result of `hf.audit(id)`.
    """

    id: str
    store: str
    made_at: datetime
    verification: Verification
    type: str = ""
    status: str = ""
    user: str = ""
    session: str = ""
    labels: Mapping[str, str] = {}
    version: int = 0
    parent: str = ""
    origin: str = ""
    """The task whose past it shares, if it is a fork."""
    created_at: datetime | None = None
    updated_at: datetime | None = None
    forks: tuple[str, ...] = ()
    """The tasks that share its past, by their ids."""
    claims: tuple[Claim, ...] = ()
    open: tuple[str, ...] = ()
    """The doubts and questions that nobody has settled yet."""
    entries: tuple[AuditEntry, ...] = ()
    left_out: int = 0
    """How many entries are not in it, because others were asked for."""

    @property
    def people(self) -> dict[str, int]:
        """Who took part without driving the task, and in how many entries: those who are named,
        and no process, check or agent."""
        return people_among(Counter(entry.who for entry in self.entries), self.claims)

    def only(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        call: str | None = None,
        event: int | None = None,
    ) -> Audit:
        """The same with the entries of a time (`until` is not included), of one call (of those
        inside it too, and of its approval and its undoing), or of one event.

        >>> from holdfast import Holdfast, step, task
        >>> @step
        ... def audited_look(city: str) -> int:
        ...     return 2
        >>> @task
        ... def audited_trip(city: str) -> int:
        ...     return audited_look(city)
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(audited_trip, "Oslo", id="audited-1")
        ...     [entry.what for entry in hf.audit("audited-1").only(call="1").entries]
        ['called']
        """
        kept = tuple(filter(EntryChoice(since, until, call, event).has, self.entries))
        left_out = self.left_out + len(self.entries) - len(kept)
        return replace(self, entries=kept, left_out=left_out)


class EntryChoice(Struct, frozen=True):
    """Which entries are asked for: see `Audit.only`."""

    since: datetime | None = None
    until: datetime | None = None
    call: str | None = None
    event: int | None = None

    def __post_init__(self) -> None:
        for name, time in (("since", self.since), ("until", self.until)):
            if time is not None and time.tzinfo is None:
                raise BadInput(f"{name}={time!r:.60} must be a datetime with a time zone")

    def has(self, entry: AuditEntry) -> bool:
        """Whether an entry is among them."""
        return (
            (self.since is None or entry.at >= self.since)
            and (self.until is None or entry.at < self.until)
            and (self.call is None or _is_about(entry, self.call))
            and (self.event is None or entry.seq == self.event)
        )


class AuditStream(Struct, frozen=True):
    """An audit whose entries are read as they are taken, once: for a log that may be long."""

    audit: Audit
    """All of it but the entries."""
    people: dict[str, int]
    count: int
    entries: Iterable[AuditEntry]


def stream_of_audit(audit: Audit) -> AuditStream:
    """An audit that was read already, as one."""
    head = replace(audit, entries=())
    return AuditStream(head, audit.people, len(audit.entries), audit.entries)


def people_among(names: Mapping[str, int], claims: Iterable[Claim]) -> dict[str, int]:
    """Those who are people, and no process, check or agent."""
    owners = {"", "check", "agent", *(claim.owner for claim in claims)}
    return {
        name: count
        for name, count in names.items()
        if name not in owners and not _PROCESS.fullmatch(name)
    }


_PROCESS = re.compile(r"(hand, )?\S+ process \d+")
"""What stands in a log where nobody was named: the process that wrote it."""


def _is_about(entry: AuditEntry, call: str) -> bool:
    inside = (f"{call}.", f"{call}#")
    return any(path == call or path.startswith(inside) for path in (entry.path, *entry.of))


# The knowledge of a task when an event came: for the code that tells of the event.


Fields = dict[str, Any]
"""Of an `AuditEntry`, with values as the log has them."""

Tell = Callable[[Any, "SeenTask"], Fields]


class SeenTask(Struct):
    """The knowledge when an event came: the state after it, and the rest of that before."""

    state: State
    owner: str = ""
    epoch: int = 0
    released: bool = False
    """Whether its holder had released it, or it had ended."""
    approved: dict[str, tuple[str, datetime]] = {}
    """By the path of a call: who approved it, and when."""

    def call(self, path: str) -> Call | None:
        """The call of a path; a part of it, such as its approval, has its own."""
        return self.state.calls.get(path)

    def by(self, who: str) -> str:
        """Who is named, else the process that drives the task, if one does: what is written to a
        task that was released, such as a mission, is not by its last driver."""
        return who or ("" if self.state.parked else self.state.owner)

    def about(self, path: str) -> Fields:
        """The record of a call."""
        call = self.call(path)
        known = {"name": call.name, "kind": call.kind} if call is not None else {}
        return {"path": path, **known, "of": _undoes(path)}


def _undoes(path: str) -> tuple[str, ...]:
    scope, _, call = path.partition(".")
    return (call.replace("/", "."),) if scope == UNDO and call else ()
