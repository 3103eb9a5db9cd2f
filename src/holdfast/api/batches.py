"""Batches: many small starts become one task, which is run with the list of them.

A batch collects items until it has `max`, or until its first one has waited for `wait_s`. Then its
task is started: by whoever added the last item, or by a worker when the time has come.

The number of the batch that collects is a value in the namespace `holdfast.batches`; the items of
each batch are values in a namespace of its own, with one value that says how many there are and
whether it is closed. Items and count change in one event, and a closed batch takes no more. So an
item that was acknowledged is in exactly one task, whoever crashes. The task is named after the
batch, so it is started once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from math import inf
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.api.async_forms import off_the_loop
from holdfast.core.decoding import decode, decoder
from holdfast.core.queues import KEY, LANES, Queue
from holdfast.core.spec import Spec, registry, task_spec
from holdfast.core.words import must_be_texts
from holdfast.engines.holder import Holding
from holdfast.engines.local.desk import waiting_page
from holdfast.engines.local.tasks import TaskOptions
from holdfast.engines.queues import (
    QueueLog,
    declare_queue,
    declared_queue,
    declared_queues,
    pause_queue,
)
from holdfast.errors import BadInput, CodeMissing, TaskBusy, WrongArguments
from holdfast.log.namespaces import Namespace, OtherVersion, namespace_of
from holdfast.log.states import load

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast


NAMESPACE, ITEMS = "holdfast.batches", "holdfast.batch."
BATCH = "batch"
"""The label of every task that a batch started."""
LONGEST_NAME = 200
MOST_ITEMS = 10_000
_OPEN, _ITEM = "batch", "item/"
_SOON_S = 0.005


class KeptBatch(Struct, frozen=True, omit_defaults=True):
    """How items are collected: as it is kept in the store."""

    name: str
    task: str
    max: int
    wait_s: float
    number: int = 1
    """The batch that collects now."""
    user: str = ""
    queue: str = ""
    key: str = ""
    priority: int = 0


class Collected(Struct, frozen=True, omit_defaults=True):
    """The contents of one batch."""

    items: int
    due: datetime
    closed: bool = False


class BatchInfo(Struct, frozen=True):
    """A batch as it is now: what it has collected, and when its task starts at the latest."""

    name: str
    task: str
    max: int
    wait_s: float
    waiting: int
    starts_at: datetime | None


_load_batch, _load_collected = decoder(KeptBatch), decoder(Collected)


class BatchHandle:
    """A batch: add items, look at what it has. Made by `hf.batch(…)`."""

    def __init__(self, hf: Holdfast, spec: Spec, batch: KeptBatch) -> None:
        self.name: str = batch.name
        self._hf, self._spec, self._batch = hf, spec, batch

    def __repr__(self) -> str:
        return f"BatchHandle({self.name!r})"

    def add(self, item: Any) -> str:
        """Leave an item to the next task; returns the id that the task has, or will have.

        When this returns, the item is durable.
        """
        raw = _dumped(self._spec, item)
        while True:
            batch = _kept(self._hf, self._batch)
            id = task_id(batch)
            found = _add(self._hf, batch, raw)
            if found is None:
                if not close(self._hf, batch, self._spec):
                    time.sleep(_SOON_S)
                continue
            if found.closed:
                close(self._hf, batch, self._spec)
            return id

    def flush(self) -> str:
        """Start the task of what was collected now; returns its id, '' if there is nothing."""
        batch = _kept(self._hf, self._batch)
        return task_id(batch) if close(self._hf, batch, self._spec) else ""

    def info(self) -> BatchInfo:
        """The items that it has collected, and when its task starts at the latest."""
        return _info(self._hf, _kept(self._hf, self._batch))

    aadd: Final = off_the_loop(add)
    aflush: Final = off_the_loop(flush)
    ainfo: Final = off_the_loop(info)


def open_batch(
    hf: Holdfast, fn: Any, name: str, most: int, wait_s: float, given: dict[str, Any]
) -> BatchHandle:
    """Declare a batch; one of that name goes on with the new options."""
    spec = task_spec(fn)
    called = name or spec.name
    must_be_texts("a batch", name=called, user=given["user"])
    if not 1 <= len(called) <= LONGEST_NAME or not called.isprintable():
        raise BadInput(f"a batch: name={called!a:.60} must be 1 to {LONGEST_NAME} characters")
    if type(most) is not int or not 1 <= most <= MOST_ITEMS:
        raise BadInput(f"batch {called!r}: max={most!r:.60} must be 1 to {MOST_ITEMS:,}")
    seconds: Any = wait_s
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds < inf:
        raise BadInput(f"batch {called!r}: wait_s={wait_s!r:.60} must be seconds, 0 or more")
    if hf._going.driver and given["queue"]:
        raise BadInput(
            f"batch {called!r}: queue= is kept by local workers, and {hf.engine.name} drives the "
            f"tasks of this Holdfast"
        )
    return BatchHandle(hf, spec, KeptBatch(called, spec.name, most, float(wait_s), **given))


def all_batches(hf: Holdfast) -> list[BatchInfo]:
    """Every batch that ever had an item, by name."""
    values = _values(hf, NAMESPACE)
    return [_info(hf, _load_batch(values.bytes_of(kept))) for kept in values.find_all()]


def start_due(hf: Holdfast, now: datetime, say: Callable[[str], None]) -> list[str]:
    """Start the tasks of the batches whose time has come; returns their ids. `say` is told why one
    can't be started here."""
    values, started = _values(hf, NAMESPACE), list[str]()
    for kept in values.find_all():
        batch = _load_batch(values.bytes_of(kept))
        found = _collected(hf, batch)
        if found is None or not (found.closed or found.due <= now or found.items >= batch.max):
            continue
        try:
            if close(hf, batch, registry.task(batch.task)):
                started.append(task_id(batch))
        except (CodeMissing, BadInput) as error:
            say(f"batch {batch.name}: left to others: {error}")
    return started


def task_id(batch: KeptBatch) -> str:
    """The id of the task of the batch that collects now."""
    return f"{batch.name}@batch-{batch.number}"


def close(hf: Holdfast, batch: KeptBatch, spec: Spec) -> bool:
    """Take no more items into a batch, and start its task; False if it has none, or somebody else
    is at it just now."""
    values = _items(hf, batch)
    while True:
        kept = values.find([_OPEN]).get(_OPEN)
        if kept is None:
            return False
        found = _load_collected(values.bytes_of(kept))
        if found.closed:
            break
        with suppress(OtherVersion):
            values.put(
                {_OPEN: msgspec.json.encode(replace(found, closed=True))}, expected=kept.version
            )
            break
    items = [decode(values.bytes_of(each), Raw) for each in values.find_all(_ITEM)]
    if items:  # else they were deleted after the task was started
        args, kwargs = spec.signature.load(_arguments(spec, items))
        given = TaskOptions(
            id=task_id(batch), user=batch.user, labels={BATCH: batch.name},
            engine=hf._going.driver, queue=batch.queue, key=batch.key, priority=batch.priority,
        )  # fmt: skip
        try:
            hf._going.start(spec, args, kwargs, given)
        except (TaskBusy, WrongArguments) as error:
            state = load(hf.store, task_id(batch), missing_ok=True)
            if not state.seq:
                return False
            if state.labels.get(BATCH) != batch.name:
                raise BadInput(
                    f"batch {batch.name!r}: its items wait, because another task has the id "
                    f"{state.id!r}: delete that task ({error})"
                ) from error
    _turn(hf, batch)
    if items:
        values.delete([each.key for each in values.find_all(_ITEM)])
    if batch.number > 2:  # that it is closed stays known to those who are a step behind
        _items(hf, replace(batch, number=batch.number - 2)).drop()
    return True


def _turn(hf: Holdfast, batch: KeptBatch) -> None:
    """Have the next batch collect, unless it does so already."""
    values = _values(hf, NAMESPACE)
    while True:
        kept = values.find([batch.name]).get(batch.name)
        now = batch if kept is None else _load_batch(values.bytes_of(kept))
        if now.number > batch.number:
            return
        following = msgspec.json.encode(replace(now, number=batch.number + 1))
        with suppress(OtherVersion):
            values.put({batch.name: following}, expected=0 if kept is None else kept.version)
            return


def _add(hf: Holdfast, batch: KeptBatch, raw: bytes) -> Collected | None:
    """Put an item into a batch; None if it is closed."""
    values = _items(hf, batch)
    while True:
        kept = values.find([_OPEN]).get(_OPEN)
        if kept is None:
            due = hf._holding.clock() + timedelta(seconds=batch.wait_s)
            found = Collected(0, due)
        else:
            found = _load_collected(values.bytes_of(kept))
        if found.closed:
            return None
        count = found.items + 1
        more = replace(found, items=count, closed=count >= batch.max)
        changes = {_OPEN: msgspec.json.encode(more), f"{_ITEM}{more.items:06}": raw}
        try:
            values.put(changes, expected=0 if kept is None else kept.version)
        except OtherVersion:
            continue
        if kept is None and not _collects(hf, batch, values):
            return None
        return more


def _collects(hf: Holdfast, batch: KeptBatch, values: Namespace) -> bool:
    """Whether the first item of a batch is in one that counts: a process that was frozen before it
    put the item there may have begun one anew that was done with and forgotten."""
    if _kept(hf, batch).number <= batch.number:
        return True
    kept = values.find([_OPEN]).get(_OPEN)
    if kept is None or _load_collected(values.bytes_of(kept)).closed:
        return True
    values.put({_OPEN: msgspec.json.encode(Collected(0, hf._holding.clock(), closed=True))})
    values.delete([each.key for each in values.find_all(_ITEM)])
    return False


def _kept(hf: Holdfast, batch: KeptBatch) -> KeptBatch:
    """The batch as it collects now, with the options that the code gives it."""
    values = _values(hf, NAMESPACE)
    while True:
        kept = values.find([batch.name]).get(batch.name)
        there = None if kept is None else _load_batch(values.bytes_of(kept))
        wanted = batch if there is None else replace(batch, number=there.number)
        if there == wanted:
            return wanted
        with suppress(OtherVersion):
            version = 0 if kept is None else kept.version
            values.put({batch.name: msgspec.json.encode(wanted)}, expected=version)
            return wanted


def _collected(hf: Holdfast, batch: KeptBatch) -> Collected | None:
    values = _items(hf, batch)
    kept = values.find([_OPEN]).get(_OPEN)
    return None if kept is None else _load_collected(values.bytes_of(kept))


def _info(hf: Holdfast, batch: KeptBatch) -> BatchInfo:
    found = _collected(hf, batch)
    return BatchInfo(
        batch.name, batch.task, batch.max, batch.wait_s,
        0 if found is None else found.items, None if found is None else found.due,
    )  # fmt: skip


def _items(hf: Holdfast, batch: KeptBatch) -> Namespace:
    return _values(hf, f"{ITEMS}{batch.name}/{batch.number}")


def _values(hf: Holdfast, name: str) -> Namespace:
    holding = hf._holding
    return namespace_of(holding.store, name, holding.owner, holding.clock)


# The task of a batch is called with a list.


def _dumped(spec: Spec, item: Any) -> bytes:
    """An item as it is stored, checked by what the task takes a list of."""
    try:
        data = spec.signature.dump(([item],), {})
        spec.signature.load(data)
    except TypeError as error:
        raise BadInput(f"the task of a batch takes one list: {spec.name}: {error}") from None
    listed: dict[str, list[Raw]] = decode(data, dict[str, list[Raw]])
    (items,) = (listed[name] for name in spec.signature.names[:1])
    (only,) = items
    return bytes(only)


def _arguments(spec: Spec, items: list[Raw]) -> bytes:
    return msgspec.json.encode({spec.signature.names[0]: items})


# `QueueHandle`: a queue from its users' side. `core.queues` says what the queue itself is.

MOST_COUNTED = 1000


class Running(Struct, frozen=True):
    """A task that has a place in a queue."""

    task: str
    key: str
    since: datetime


class QueueInfo(Struct, frozen=True):
    """A queue as it is now."""

    name: str
    queue: Queue
    paused: bool
    by: str
    because: str
    running: int
    waiting: int
    """How many tasks wait; `MOST_COUNTED` stands for that many or more."""
    oldest_at: datetime | None
    """When the task was made that was made first, of those counted."""
    places: tuple[Running, ...]
    waiting_by_key: dict[str, int]


class QueueHandle:
    """A queue that was declared: look at it, pause it, let it go on. Made by `hf.queue(…)`."""

    def __init__(self, holding: Holding, name: str) -> None:
        self.name = name
        self._holding = holding

    def __repr__(self) -> str:
        return f"QueueHandle({self.name!r})"

    def pause(self, *, because: str = "", by: str = "") -> None:
        """Start no more of its tasks, until `resume`. Those under way go on."""
        pause_queue(self._holding, self.name, paused=True, by=by, because=because)

    def resume(self, *, by: str = "") -> None:
        """Start its tasks again."""
        pause_queue(self._holding, self.name, paused=False, by=by)

    def info(self) -> QueueInfo:
        """How it is now: its limits, what has a place, and what waits."""
        declared = declared_queue(self._holding, self.name)
        held = QueueLog(self._holding, self.name).look().held
        first, end = declared.number * LANES, (declared.number + 1) * LANES
        found = waiting_page(self._holding.store, first, end, MOST_COUNTED)
        waiting = [
            (facts.labels.get(KEY, ""), facts.created_at)
            for stream, facts in found
            if stream.removeprefix("tasks/") not in held
        ]
        by_key: dict[str, int] = {}
        for key, _ in waiting:
            by_key[key] = by_key.get(key, 0) + 1
        return QueueInfo(
            name=self.name,
            queue=declared.queue,
            paused=declared.paused,
            by=declared.by,
            because=declared.because,
            running=len(held),
            waiting=len(waiting),
            oldest_at=min((at for _, at in waiting), default=None),
            places=tuple(Running(p.task, p.key, p.at) for p in held.values()),
            waiting_by_key=by_key,
        )

    apause: Final = off_the_loop(pause)
    aresume: Final = off_the_loop(resume)
    ainfo: Final = off_the_loop(info)


def open_queue(holding: Holding, queue: Queue | str) -> QueueHandle:
    """Declare a queue, or find the one of that name."""
    if isinstance(queue, str):
        return QueueHandle(holding, declared_queue(holding, queue).queue.name)
    return QueueHandle(holding, declare_queue(holding, queue).queue.name)


def all_queues(holding: Holding) -> list[QueueHandle]:
    """Every queue that was declared."""
    return [QueueHandle(holding, name) for name in sorted(declared_queues(holding))]
