"""An audit from a log: every event that can be read, and on top whether they can be believed.

A log that is damaged is told up to the damage: nothing is mended, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, cast

from msgspec import UNSET, Raw, Struct
from msgspec.structs import replace

from holdfast.core.decoding import NONSENSE
from holdfast.core.events import AnyEvent, Claimed, Rewound, TaskCreated
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
    read_sums,
    stream_of,
)
from holdfast.log.values import Reader
from holdfast.log.verify import Damage, Head, Verified, verify
from holdfast.stores.listing import streams_of_tasks
from holdfast.stores.port import Store
from holdfast.views.audit.entries import how_claimed, tell
from holdfast.views.audit.entry import Audit, AuditEntry, Claim, SeenTask, Signatures, Verification
from holdfast.views.task import TaskView

_VALUES = ("input", "output", "options")


def audit(store: Store, id: str, made_at: datetime, against: Iterable[Head] = ()) -> Audit:
    """The audit of a task. `against` are heads that were noted before, as for `verify`."""
    stream = stream_of(checked_id(id))
    read = _read(store, stream)
    noted = {head.stream: head for head in against}
    if not read.state.seq and not read.damage and stream not in noted:
        raise no_task(store, id)
    # Against where we got to: it is the log that we read that is found to be sound, and no other.
    head = noted.get(stream) or Head(id, read.state.seq, read.total)
    checked = verify(store, (id,), [head] if head.seq else [])
    return _made(store, id, read, made_at, _verification(store, stream, read, checked))


class _Read(Struct):
    """The events read of a log, up to its end or to the damage."""

    state: State
    entries: list[AuditEntry] = []
    claims: list[Claim] = []
    total: str = ""
    log: str = ""
    """The task whose events they are: first that whose past a fork shares, then the fork."""
    origin: str = ""
    is_held: bool = False
    damage: Damage | None = None


def _read(store: Store, stream: str) -> _Read:
    state = new_state(store, stream)
    read, seen, reader = _Read(state), SeenTask(state), None
    try:
        for event, total in read_sums(store, stream):
            advance_checked(state, event, stream)
            if reader is None or isinstance(event, Rewound):  # whose state is another one
                reader = Reader(store, stream, state.lists, lambda: all_lists(store, stream))
            _take(read, event, seen, reader)
            read.total = total.decode()
    except LogDamaged as error:
        read.damage = Damage(id_of(stream), error.seq, error.what)
    except StoreError as error:
        read.damage = Damage(id_of(stream), 0, f"it can't be read: {error}")
    except NONSENSE as error:  # as `verify` has it: a plan or a number that makes no sense
        read.damage = Damage(id_of(stream), state.seq + 1, f"it makes no sense ({error!r})")
    return read


def _take(read: _Read, event: AnyEvent, seen: SeenTask, reader: Reader) -> None:
    state = read.state
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
    if fields is not None:
        read.entries.append(_entry(event, {**fields, "log": read.log}, state, reader))


def _entry(event: AnyEvent, fields: dict[str, Any], state: State, reader: Reader) -> AuditEntry:
    problems = []
    for name in _VALUES:
        if isinstance(value := fields.get(name), Raw):
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


def _made(store: Store, id: str, read: _Read, made_at: datetime, checked: Verification) -> Audit:
    state = read.state
    return Audit(
        id=id,
        store=store.url,
        made_at=made_at,
        verification=checked,
        type=state.task,
        status=state.status if state.seq else "",
        user=state.user,
        session=state.session,
        labels=state.labels,
        version=state.version,
        parent=state.parent,
        origin=read.origin,
        created_at=state.created_at if state.seq else None,
        updated_at=state.updated_at if state.seq else None,
        claims=tuple(replace(c, log="") if c.log == id else c for c in read.claims),
        open=tuple(_open(TaskView(store, state))),
        entries=tuple(_superseded(id, read.entries)),
        forks=tuple(sorted(map(id_of, streams_of_tasks(store, {"origin": id})[0]))),
    )


def _superseded(id: str, entries: list[AuditEntry]) -> Iterator[AuditEntry]:
    """The entries; decisions with the one that took their place, and none with a log of its own."""
    by = {e.of[0]: e.path for e in entries if e.event == "decided" and e.of}
    for entry in entries:
        changes: dict[str, str] = {"log": ""} if entry.log == id else {}
        if entry.event == "decided" and (newer := by.get(entry.path)):
            changes["superseded_by"] = newer
        yield replace(entry, **changes) if changes else entry


def _open(view: TaskView) -> Iterator[str]:
    if view.status in FINISHED and not view.doubts:
        return
    for call in view.doubts:
        why = call.why or "no word of how it ended"
        yield f"call {call.path}, {call.name}, may or may not have happened: {why}"
    for call in view.questions:
        of = f" of call {call.approves}" if call.approves else ""
        yield f"{call.kind} {call.key}{of} waits for an answer: {call.why}"


def _verification(store: Store, stream: str, read: _Read, checked: Verified) -> Verification:
    damage = list(checked.damage)
    if read.damage is not None and not damage:
        damage.append(read.damage)
    return Verification(
        sound=not damage,
        events=checked.events,
        blobs=checked.blobs,
        damage=tuple(f"event {d.seq}: {d.what}" if d.seq else d.what for d in damage),
        signatures=_signatures(store, stream),
        head_seq=read.state.seq,
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
