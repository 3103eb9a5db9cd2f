"""Limits around calls, in a store: who may go now, what a call really took, and who is at it.

A limit is what the code says (`core.limits.Limit`); its state is a log of its own, shared by every
process of the store and changed under a lease for a moment. A place of `concurrency` belongs to a
call. If the process that has it dies, the next call that is refused finds that the task's lease is
held by nobody, or by another process, and frees the place.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from inspect import signature
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from holdfast.core.decoding import Illegible, decode, decoder
from holdfast.core.events import PlacesChanged
from holdfast.core.journal import Admit, Leave, Returned
from holdfast.core.limits import ROOM, Limit, Limited, Wish, admit, is_on_time, leave
from holdfast.core.queues import QueuePlaces, checked_queue_name
from holdfast.core.usage import may_tell, used_in
from holdfast.engines.queues import QueueLog
from holdfast.errors import BadInput, HoldfastError
from holdfast.log.namespaces import namespace_of
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import holder_of, streams_in

if TYPE_CHECKING:
    from holdfast.engines.execution import Body
    from holdfast.engines.run import Run
    from holdfast.stores.port import Store

NAMESPACE, SET = "holdfast.limits", "holdfast.limits.set"
"""Where limits are kept: those of the code, for people who look, and those that people have set."""
_LOOK_EVERY_S = 1.0
_LEASE_S = 5.0
"""Of the log: a change takes milliseconds, and whoever died in one holds up all others."""
_PATIENCE_S = 30.0
_LONGEST_KEY = 100

_load_limit = decoder(Limit)


class _Room(Struct):
    """What the log of a limit is kept with."""

    store: Store
    owner: str
    clock: Callable[[], datetime]
    lease_s: float = _LEASE_S


class Admitted(Struct):
    """A call that its limit let in."""

    log: QueueLog
    limit: Limit
    wish: Wish


_logs: WeakKeyDictionary[Store, dict[str, QueueLog]] = WeakKeyDictionary()
_declared: WeakKeyDictionary[Store, dict[str, Limit]] = WeakKeyDictionary()
_set: WeakKeyDictionary[Store, tuple[float, dict[str, Limit]]] = WeakKeyDictionary()
"""The limits that people have set, and until when those are new enough."""


# What drivers ask.


def weigh(body: Body) -> None:
    """Note what a call is expected to take, and whom it shares its limit with."""
    limited, asked = body.spec.limit, body.asked
    if limited is None:
        return
    args, kwargs = body.given or body.decoded()
    try:
        asked.weight = _called(limited.tokens, args, kwargs)
        asked.limit_key = _key_of(body, limited, args, kwargs)
    except HoldfastError:
        raise
    except Exception as error:
        raise BadInput(
            f"{asked.spec.name} (step {asked.path}): the limit {limited.limit.name!r} can't weigh "
            f"this call: {type(error).__name__}: {error}"
        ) from error
    if type(asked.weight) is not int or asked.weight < 0:
        raise BadInput(
            f"{asked.spec.name} (step {asked.path}): tokens of the limit {limited.limit.name!r} "
            f"must be a whole number, 0 or more, not {asked.weight!r:.60}"
        )


def _called(given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return given(*args, **kwargs) if callable(given) else given


def _key_of(body: Body, limited: Limited, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    given: Any = limited.key
    if callable(given):
        given = given(*args, **kwargs)
    elif given:
        bound = signature(body.spec.fn).bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments[given]
    key = str(given)
    if len(key) > _LONGEST_KEY or not key.isprintable():
        raise ValueError(f"its key is {key!a:.60}, and must be a text of up to {_LONGEST_KEY}")
    return key


def answer(run: Run, request: Admit | Leave) -> datetime | None:
    """Carry out what a flow asks for. It reads and writes the store."""
    try:
        if isinstance(request, Admit):
            return _admit(run, request)
        _leave(run, request)
        return None
    except HoldfastError as error:
        run.halt(error)


def give_back(run: Run, path: str) -> None:
    """Give the place of a call back that was stopped in the middle of it."""
    _end(run, path, None, 0.0)


def _admit(run: Run, request: Admit) -> datetime | None:
    asked, limited = request.asked, request.asked.spec.limit
    if limited is None:
        return None
    store, clock, owner = run.log.store, run.log.clock, run.log.lease.owner
    _declare(store, limited.limit, owner, clock)
    limit = _in_force(store, limited.limit, owner, clock)
    log = _log_of(store, _name(limit.name, asked.limit_key), owner, clock)
    until_s: float | None = None
    wish = Wish(f"{run.task_id}:{asked.path}", run.task_id, owner, asked.weight)

    def make(state: QueuePlaces) -> PlacesChanged | None:
        nonlocal until_s, wish
        now = clock()
        wish = msgspec.structs.replace(
            wish,
            waited_s=0.0 if request.since is None else (now - request.since).total_seconds(),
            is_its_turn=request.until is not None
            and is_on_time(request.until.timestamp(), now.timestamp()),
            chance=random.random(),
        )
        changed, until_s = admit(state, limit, wish, now, now.timestamp())
        return changed

    log.write(make, patience_s=_PATIENCE_S)
    if until_s is not None and limit.concurrency is not None and _free_dead(log, store):
        log.write(make, patience_s=_PATIENCE_S)
    if until_s is not None:
        return datetime.fromtimestamp(until_s, UTC)
    run.admitted[asked.path] = Admitted(log, limit, wish)
    return None


def _leave(run: Run, request: Leave) -> None:
    outcome, used = request.outcome, None
    refused_s = 0.0
    if isinstance(outcome, Returned):
        if may_tell(outcome.raw):
            with suppress(Illegible):
                told = used_in(decode(run.log.fetch(outcome.raw)))
                used = None if told is None else told.usage.tokens
    else:
        refused_s = outcome.refused_s
        used = 0 if refused_s else None
    _end(run, request.asked.path, used, refused_s)


def _end(run: Run, path: str, used: int | None, refused_s: float) -> None:
    has = run.admitted.pop(path, None)
    if has is None:
        return

    def make(state: QueuePlaces) -> PlacesChanged | None:
        now_s = run.log.clock().timestamp()
        return leave(state, has.limit, has.wish, used, refused_s, now_s)

    # The work of the call is more than its place: that comes back without us.
    with suppress(HoldfastError, OSError):
        if make(has.log.look()) is not None:
            has.log.write(make, patience_s=_PATIENCE_S)


def _free_dead(log: QueueLog, store: Store) -> bool:
    """Free the places of calls that no process makes any more."""
    held = list(log.look().held.values())
    gone = [p for p in held if holder_of(store, stream_of(p.key)) != p.by]
    if not gone:
        return False

    def make(state: QueuePlaces) -> PlacesChanged | None:
        freed = tuple(p.task for p in gone if state.held.get(p.task) == p)
        if not freed:
            return None
        return PlacesChanged(freed=freed, turn=state.turn, ready_at=state.ready_at)

    return log.write(make, patience_s=_PATIENCE_S)


# Where they are kept.


def _name(name: str, key: str) -> str:
    return f"{name}:{key}" if key else name


def _log_of(store: Store, name: str, owner: str, clock: Callable[[], datetime]) -> QueueLog:
    logs = _logs.setdefault(store, {})
    if name not in logs:
        logs[name] = QueueLog(_Room(store, owner, clock), name, ROOM)
    return logs[name]


def _declare(store: Store, limit: Limit, owner: str, clock: Callable[[], datetime]) -> None:
    """Note what a limit is, for people who look at the store."""
    known = _declared.setdefault(store, {})
    if known.get(limit.name) == limit:
        return
    values = namespace_of(store, NAMESPACE, owner, clock)
    kept = values.find([limit.name]).get(limit.name)
    if kept is None or _load_limit(values.bytes_of(kept)) != limit:
        values.put({limit.name: msgspec.json.encode(limit)})
    known[limit.name] = limit


def _in_force(store: Store, limit: Limit, owner: str, clock: Callable[[], datetime]) -> Limit:
    """The limit that people have set in place of one of the code, or that one."""
    until, found = _set.get(store, (0.0, {}))
    if time.monotonic() >= until:
        found = limits_set(store, owner, clock)
        _set[store] = time.monotonic() + _LOOK_EVERY_S, found
    return found.get(limit.name, limit)


def limits_set(store: Store, owner: str, clock: Callable[[], datetime]) -> dict[str, Limit]:
    """The limits that people have set, by name."""
    values = namespace_of(store, SET, owner, clock)
    return {kept.key: _load_limit(values.bytes_of(kept)) for kept in values.find_all()}


def set_limit(
    store: Store, limit: Limit | str, owner: str, clock: Callable[[], datetime]
) -> Limit | None:
    """Have a limit hold in place of the code's; by its name, that of the code again. Returns the
    one that holds now, None for one that no call was made under."""
    values = namespace_of(store, SET, owner, clock)
    if isinstance(limit, Limit):
        values.put({limit.name: msgspec.json.encode(limit)})
    else:
        values.delete([checked_queue_name(limit)])
    _set.pop(store, None)
    if isinstance(limit, Limit):
        return limit
    of_code = namespace_of(store, NAMESPACE, owner, clock)
    kept = of_code.find([limit]).get(limit)
    return None if kept is None else _load_limit(of_code.bytes_of(kept))


class LimitInfo(Struct, frozen=True):
    """A limit as it is now, for the calls of one key."""

    name: str
    limit: Limit
    key: str = ""
    held: int = 0
    """How many calls are made now, if it limits that."""
    paused_until: datetime | None = None
    """Until when a provider asked everybody to wait."""
    ready_at: datetime | None = None
    """When the next call may begin that does not wait yet; None for now."""
    is_set: bool = False
    """Whether `limit` was set by people, and holds in place of what the code says."""


def all_limits(store: Store, owner: str, clock: Callable[[], datetime]) -> Iterator[LimitInfo]:
    """The limits that calls in this store were made under."""
    values = namespace_of(store, NAMESPACE, owner, clock)
    changed = limits_set(store, owner, clock)
    found = [_load_limit(values.bytes_of(kept)) for kept in values.find_all()]
    limits = [changed.get(limit.name, limit) for limit in found]
    rooms = {s.removeprefix(f"{ROOM}/").rpartition("/")[0] for s in streams_in(store, f"{ROOM}/")}
    for limit in limits:
        keys = {room.removeprefix(limit.name).removeprefix(":") for room in rooms
                if room == limit.name or room.startswith(f"{limit.name}:")}  # fmt: skip
        for key in sorted(keys):
            state = _log_of(store, _name(limit.name, key), owner, clock).look()
            now_s = clock().timestamp()
            ready_s = max(
                [state.ready_at, state.key_ready.get("line", 0.0)]
                + [p.allowed_at(state.key_ready.get(n, 0.0), 1) for n, p in limit.rates.items()]
            )
            yield LimitInfo(
                limit.name, limit, key, len(state.held),
                _time(state.ready_at, now_s), _time(ready_s, now_s), limit.name in changed,
            )  # fmt: skip


def _time(at_s: float, now_s: float) -> datetime | None:
    return datetime.fromtimestamp(at_s, UTC) if at_s > now_s else None
