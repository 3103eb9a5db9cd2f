"""The audit of a task: who did what, when, with what, and whether its log can be believed.

A log that is damaged is told up to the damage: nothing is mended, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from typing import Any, cast

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast.core.decoding import NONSENSE
from holdfast.core.events import AnyEvent, Claimed, Decided, Rewound, TaskCreated
from holdfast.core.kinds import id_of
from holdfast.core.state import FINISHED, State
from holdfast.core.words import checked_id
from holdfast.errors import HoldfastError, LogDamaged, StoreError
from holdfast.log import chain
from holdfast.log.reading import (
    advance_checked,
    all_lists,
    new_state,
    no_task,
    read_events,
    read_sums,
    stream_of,
)
from holdfast.log.values import Reader
from holdfast.log.verify import Damage, Head, Verified, verify
from holdfast.stores.listing import streams_of_tasks
from holdfast.stores.port import Store
from holdfast.views.audit.entries import how_claimed, tell
from holdfast.views.audit.entry import (
    Audit,
    AuditEntry,
    AuditStream,
    Claim,
    EntryChoice,
    SeenTask,
    Signatures,
    Verification,
    people_among,
)
from holdfast.views.task import TaskView, recent

__all__ = ["Audit", "AuditEntry", "Claim", "Verification", "audit"]


_VALUES = ("input", "output", "options")
EVERYTHING = EntryChoice()


def audit(store: Store, id: str, made_at: datetime, against: Iterable[Head] = ()) -> Audit:
    """The audit of a task. `against` are heads that were noted before, as for `verify`."""
    told = stream_audit(store, id, made_at, against)
    return replace(told.audit, entries=tuple(told.entries))


def stream_audit(
    store: Store,
    id: str,
    made_at: datetime,
    against: Iterable[Head] = (),
    wanted: EntryChoice = EVERYTHING,
) -> AuditStream:
    """The same with the entries that are wanted, each made as it is taken.

    The log is read three times: for what stands on top, to check it, and for the entries.
    """
    stream = stream_of(checked_id(id))
    read = _read(store, stream, wanted)
    noted = {head.stream: head for head in against}
    if not read.state.seq and not read.damage and stream not in noted:
        raise no_task(store, id)
    # Against where we got to: it is the log that we read that is found to be sound, and no other.
    head = noted.get(stream) or Head(id, read.state.seq, read.total)
    known, seq = _known(store, id, read), read.state.seq
    read.state = State()  # it may be large, and the log is read anew
    checked = verify(store, (id,), [head] if head.seq else [])
    verification = _verification(store, stream, read, seq, checked)
    made = Audit(id=id, store=store.url, made_at=made_at, verification=verification, **known)
    people = people_among(read.who, made.claims)
    return AuditStream(
        made, people, read.count, _entries(store, stream, read.upto, read.superseded, wanted)
    )


class _Read(Struct):
    """The sum of the events of a log, up to its end or to the damage."""

    state: State
    claims: list[Claim] = []
    upto: int = 0
    total: str = ""
    log: str = ""
    """The task whose events they are: first that whose past a fork shares, then the fork."""
    origin: str = ""
    is_held: bool = False
    damage: Damage | None = None
    count: int = 0
    """How many entries are wanted, and how many are not."""
    left_out: int = 0
    who: dict[str, int] = {}
    """In how many of those that are wanted somebody is named."""
    superseded: dict[str, str] = {}
    """By the path of a decision: that of the one that took its place."""


def _read(store: Store, stream: str, wanted: EntryChoice) -> _Read:
    state = new_state(store, stream)
    read, seen = _Read(state), SeenTask(state)
    try:
        for event, total in read_sums(store, stream):
            advance_checked(state, event, stream)
            fields = _take(read, event, seen)
            if fields is not None:
                _count(read, _entry(event, fields, state, None), wanted)
            read.upto, read.total = event.seq, total.decode()
    except LogDamaged as error:
        read.damage = Damage(id_of(stream), error.seq, error.what)
    except StoreError as error:
        read.damage = Damage(id_of(stream), 0, f"it can't be read: {error}")
    except NONSENSE as error:  # as `verify` has it: a plan or a number that makes no sense
        read.damage = Damage(id_of(stream), state.seq + 1, f"it makes no sense ({error!r})")
    return read


def _count(read: _Read, entry: AuditEntry, wanted: EntryChoice) -> None:
    if entry.event == "decided" and entry.of:
        read.superseded[entry.of[0]] = entry.path
    if wanted is EVERYTHING or wanted.has(entry):
        read.count += 1
        read.who[entry.who] = read.who.get(entry.who, 0) + 1
    else:
        read.left_out += 1


def _entries(
    store: Store, stream: str, upto: int, superseded: dict[str, str], wanted: EntryChoice
) -> Iterator[AuditEntry]:
    """The entries that are wanted, with the values in them, as far as the log was read."""
    state, reader = new_state(store, stream), None
    again, seen = _Read(state), SeenTask(state)
    for event in read_events(store, stream, upto):
        advance_checked(state, event, stream)
        if reader is None or isinstance(event, Rewound):  # whose state is another one
            reader = Reader(store, stream, state.lists, partial(all_lists, store, stream))
        fields = _take(again, event, seen)
        if fields is None:
            continue
        if fields["log"] == id_of(stream):
            fields["log"] = ""
        if isinstance(event, Decided):
            fields["superseded_by"] = superseded.get(event.path, "")
        if wanted is EVERYTHING or wanted.has(_entry(event, fields, state, None)):
            yield _entry(event, fields, state, reader)


def _take(read: _Read, event: AnyEvent, seen: SeenTask) -> dict[str, Any] | None:
    """The fields of the entry that an event makes; None if it makes none."""
    if isinstance(event, TaskCreated):  # of a fork it is the second one: nobody has held it yet
        seen.owner, seen.epoch, seen.released = "", 0, False
        read.log, read.is_held = event.id, False
        read.origin = event.fork.of if event.fork is not None else ""
    elif isinstance(event, Claimed):
        how, at = how_claimed(seen), event.at
        claim = Claim(event.epoch, event.owner, event.engine, event.seq, at, at, 0, how, read.log)
        read.claims.append(claim)
        read.is_held = True
    if read.is_held:
        last = read.claims[-1]
        read.claims[-1] = replace(last, last_at=event.at, events=last.events + 1)
    fields = tell(event, seen)
    if isinstance(event, Claimed):
        seen.owner, seen.epoch = event.owner, event.epoch
    return None if fields is None else {**fields, "log": read.log}


def _entry(
    event: AnyEvent, fields: dict[str, Any], state: State, reader: Reader | None
) -> AuditEntry:
    """An entry; without its values if there is no reader for them."""
    problems = []
    for name in _VALUES:
        if reader is not None and isinstance(value := fields.get(name), Raw):
            try:
                fields[name] = reader.plain(value)
            except (HoldfastError, *NONSENSE) as error:
                fields[name] = UNSET
                problems.append(f"{name}: it can't be read ({error})")
    return AuditEntry(
        seq=event.seq,
        at=event.at,
        event=str(event.__struct_config__.tag),
        epoch=state.epoch,
        problems=tuple(problems),
        **fields,
    )


def _known(store: Store, id: str, read: _Read) -> dict[str, Any]:
    """The fields of an audit that the log tells, but for its entries."""
    state = read.state
    return {
        "type": state.task,
        "status": state.status if state.seq else "",
        "user": state.user,
        "session": state.session,
        "labels": state.labels,
        "version": state.version,
        "parent": state.parent,
        "origin": read.origin,
        "created_at": state.created_at if state.seq else None,
        "updated_at": state.updated_at if state.seq else None,
        "claims": tuple(replace(c, log="") if c.log == id else c for c in read.claims),
        "open": tuple(_open(recent(TaskView(store, state), store))),
        "left_out": read.left_out,
        "forks": tuple(sorted(map(id_of, streams_of_tasks(store, {"origin": id})[0]))),
    }


def _open(view: TaskView) -> Iterator[str]:
    if view.status in FINISHED and not view.doubts:
        return
    for call in view.doubts:
        why = call.why or "no word of how it ended"
        yield f"call {call.path}, {call.name}, may or may not have happened: {why}"
    for call in view.questions:
        of = f" of call {call.approves}" if call.approves else ""
        yield f"{call.kind} {call.key}{of} waits for an answer: {call.why}"


def _verification(
    store: Store, stream: str, read: _Read, seq: int, checked: Verified
) -> Verification:
    damage = list(checked.damage)
    if read.damage is not None and not damage:
        damage.append(read.damage)
    return Verification(
        sound=not damage,
        events=checked.events,
        blobs=checked.blobs,
        damage=tuple(f"event {d.seq}: {d.what}" if d.seq else d.what for d in damage),
        signatures=_signatures(store, stream),
        head_seq=seq,
        head_sum=read.total,
    )


def _signatures(store: Store, stream: str) -> Signatures:
    layer: Any = store
    while layer is not None:
        # Asked, not looked up by its class: what encrypts may not even be installed.
        if (says := getattr(layer, "protects", None)) is not None:
            return cast("Signatures", says)
        layer = getattr(layer, "inner", None)
    try:
        first = next(iter(store.read(stream)), b"")
    except StoreError:
        return "none"
    return "not_checked" if chain.is_signed(first) else "none"
