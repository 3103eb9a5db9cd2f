"""A list from before a checkpoint can be had by whoever goes on from it.

A log that is gone on with is read from its last checkpoint. Of the long lists from before it the
driver knows the names alone, and what is said of them since goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from holdfast import Holdfast, checkpoint, restore, step, task
from holdfast.core.events import ListGrew
from holdfast.core.lists import LISTED
from holdfast.log.log import Log, open_log
from holdfast.log.reading import own_events, stream_of, value_in
from holdfast.log.states import load

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/w.db")


def said(count: int) -> list[str]:
    return [f"message {n}: " + "words " * 60 for n in range(count)]


@step
def carried_model(messages: list[str]) -> list[str]:
    return [*messages, f"answer to {len(messages)}: " + "words " * 60]


class Stop(BaseException):
    """Stands for the end of the process."""


stops: set[int] = set()


@task
def carried_agent(turns: int) -> int:
    begin: dict[str, Any] = {"turn": 0, "messages": said(12)}
    state = restore(begin)
    for turn in range(state["turn"], turns):
        messages = carried_model(state["messages"])  # which are those from before the checkpoint
        if turn in stops:
            raise Stop
        longer = carried_model([*messages, "and one more " * 30])
        assert len(longer) == len(messages) + 2
        state = {"turn": turn + 1, "messages": messages}
        checkpoint(state)
    return len(state["messages"])


@contextmanager
def gone_on_with(hf: Holdfast, id: str) -> Iterator[Log]:
    log = open_log(hf.store, id, "next", 60.0, lambda: datetime.now(UTC))
    try:
        carried = [grew for grew in log.state.lists.values() if grew.items is UNSET]
        assert carried, "it was read from its beginning, so this shows nothing"
        yield log
    finally:
        log.close()


def values_of(hf: Holdfast, id: str) -> list[Raw]:
    """Every value in the log whose long lists stand elsewhere."""
    found: list[Any] = []
    for event in own_events(hf.store, stream_of(id)):
        given = (getattr(event, name, UNSET) for name in ("args", "result"))
        found += [value for value in given if isinstance(value, Raw)]
    return [value for value in found if bytes(value).startswith(LISTED)]


def stopped(hf: Holdfast, turn: int) -> None:
    stops.clear()
    stops.add(turn)
    with pytest.raises(Stop):
        hf.run(carried_agent, 4, id="t")
    stops.clear()


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_step_after_a_checkpoint_is_answered_by_its_record(hf, turn):
    stopped(hf, turn)
    assert hf.resume("t") == 12 + 4


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_whoever_drives_reads_every_value_as_those_who_only_read(hf, turn):
    stopped(hf, turn)
    state = load(hf.store, "t", missing_ok=True)
    values = values_of(hf, "t")
    assert len(values) > turn
    with gone_on_with(hf, "t") as log:
        for value in values:
            assert log.fetch(value) == value_in(hf.store, state, value)


def test_a_list_that_goes_on_from_one_before_the_checkpoint_is_had_before_it_is_written(hf):
    stopped(hf, 1)
    with gone_on_with(hf, "t") as log:
        before = load(hf.store, "t", missing_ok=True).lists
        value = values_of(hf, "t")[-1]
        items = msgspec.json.decode(log.fetch(value))
        items = items if isinstance(items, list) else items["messages"]
        longer = msgspec.json.encode([*items, "new " * 80])
        stowed = log.stow(longer)
        new = [grew for digest, grew in log.state.lists.items() if digest not in before]
        assert new
        assert all(isinstance(grew, ListGrew) for grew in new)
        assert log.fetch(stowed) == longer
