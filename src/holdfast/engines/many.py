"""Many leases and logs of one store at once.

A store that can serves them together (`ManyAtOnce`); of another one each is asked by itself, a few
at a time, in threads. What is returned is, for each in order, the result or what went wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from holdfast.errors import LeaseLost, StoreError
from holdfast.log import Log
from holdfast.store import Lease, ManyAtOnce, Store

T = TypeVar("T")
R = TypeVar("R")

_THREADS = 16


def acquire_many(
    store: Store, streams: Sequence[str], owner: str, lease_s: float
) -> Sequence[Lease | BaseException]:
    """Take the leases of many streams."""
    if isinstance(store, ManyAtOnce):
        return store.acquire_many(streams, owner, lease_s)
    return _each(partial(store.acquire, owner=owner, lease_s=lease_s), streams)


def sync_together(logs: Sequence[Log]) -> Sequence[BaseException | None]:
    """`sync` for logs of one store, each of which was flushed."""
    store = logs[0].store
    once = list(dict.fromkeys(logs))  # branches of one task wait for the same log
    leases, upto = [log.lease for log in once], [log.flushed for log in once]
    if isinstance(store, ManyAtOnce):
        outcomes: Sequence[BaseException | None] = store.sync_many(leases)
    else:
        outcomes = _each(store.sync, leases)
    for log, seq, error in zip(once, upto, outcomes, strict=True):
        log.was_synced(seq, error)
    by_log = dict(zip(once, outcomes, strict=True))
    return [by_log[log] for log in logs]


def close_together(store: Store, logs: Sequence[Log]) -> Sequence[BaseException | None]:
    """`close` for logs of one store."""
    failures: dict[Log, BaseException] = {}
    unsynced = []
    for log in logs:
        try:
            if log.has_to_be_synced():
                log.flush()
                unsynced.append(log)
        except StoreError as error:
            failures[log] = error
    if unsynced:
        for log, outcome in zip(unsynced, sync_together(unsynced), strict=True):
            if outcome is not None:
                failures[log] = outcome
    leases = [log.lease for log in logs]
    if isinstance(store, ManyAtOnce):
        store.release_many(leases)
    else:
        for log, released in zip(logs, _each(store.release, leases), strict=True):
            if released is not None:
                failures.setdefault(log, released)
    # What was acknowledged is safe; the rest belongs to who has the lease now.
    return [None if isinstance(e := failures.get(log), LeaseLost) else e for log in logs]


def _each(ask: Callable[[T], R], items: Sequence[T]) -> list[R | BaseException]:
    def outcome(item: T) -> R | BaseException:
        try:
            return ask(item)
        except Exception as error:
            return error

    if len(items) == 1:
        return [outcome(items[0])]
    from concurrent.futures import ThreadPoolExecutor  # slow to import, and rarely needed

    with ThreadPoolExecutor(min(_THREADS, len(items)), "holdfast store") as pool:
        return list(pool.map(outcome, items))
