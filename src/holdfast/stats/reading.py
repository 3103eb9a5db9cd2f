"""The stats of the tasks in a store that match: one log after the other, each read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Raw

from holdfast.errors import StoreError
from holdfast.kinds import id_of
from holdfast.listing import streams_of_tasks
from holdfast.reading import advance_checked, base_of, read_events
from holdfast.state import State
from holdfast.stats.measuring import Measuring
from holdfast.stats.totals import Stats, Totals
from holdfast.stats.usage import Spent, checked_prices, spent, usage_in, whole_result
from holdfast.store import Store
from holdfast.usage import Prices

Progress = Callable[[int, int, str], None]
"""Told how many tasks were read, of how many, and which one comes next."""


def stats(store: Store, filters: Mapping[str, Any], prices: Any, progress: Progress) -> Stats:
    """Where time, tokens, money and retries went in the tasks that match."""
    known, totals = checked_prices(prices), Totals()
    streams, failed = streams_of_tasks(store, filters)
    unreadable = {str(error): None for error in failed}
    for number, stream in enumerate(streams):
        progress(number, len(streams), id_of(stream))
        try:
            _count(store, stream, known, totals)
        except StoreError as error:
            unreadable[str(error)] = None
    return totals.stats(unreadable)


def _count(store: Store, stream: str, prices: Mapping[str, Prices], totals: Totals) -> None:
    models: dict[str, Spent] = {}

    def usage(result: Raw) -> Spent | None:
        used = usage_in(whole_result(store, result))
        if used is None:
            return None
        found = spent(used, prices)
        models.setdefault(used.model, Spent()).add(found)
        return found

    task, state = Measuring(usage), State()
    shared = base_of(store, stream)  # what a fork shares was spent once, by its original
    for event in read_events(store, stream):
        advance_checked(state, event, stream)
        if event.seq > shared:
            task.take(event)
    if state.seq:  # else it was deleted meanwhile
        totals.add(state.task, state.status, task, models)
