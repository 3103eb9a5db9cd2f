"""The log of a task is the same, whichever engine drives it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import msgspec
import pytest

from holdfast.agent import external, fact
from holdfast.api.app import Holdfast
from holdfast.api.branches import each, gather
from holdfast.api.checkpoints import checkpoint, restore
from holdfast.api.handle import Handle
from holdfast.api.steps import decide, step, tool
from holdfast.api.tasks import current, note, patched, start, task
from holdfast.api.waiting import aask, ask, now, random, sleep, uuid
from holdfast.core.events import (
    AnyEvent,
    ChildEnded,
    Claimed,
    DriverDied,
    Moved,
    Parked,
    Progressed,
    parts_of,
)
from holdfast.core.spec import IdempotencyKey, Retry
from holdfast.errors import StepFailed, TaskCancelled
from holdfast.testing.engine_contract import (
    PATIENCE_S,
    new_id,
    question,
    until,
    working,
)
from holdfast.workspace import files

# The differences between two logs of the same task, besides who drove it, and when.
#
# Calls of a body come one after the other, and so do the events of each call. Those of branches,
# and of other tasks, may come in any order: they are compared by their place.


_WHO_DROVE_IT = (Claimed, DriverDied, Parked, Moved)
_AS_IT_CAME = {
    *("seq", "at", "until", "retry_at", "as_of", "base_seq"),  # when
    *("owner", "engine", "epoch", "driver", "driven_since", "taken_at"),  # who
    *("post", "posts"),  # by which way
    "traceback",  # through which code
}
_TIMES = ("now",)


def differences(one: Iterable[AnyEvent], other: Iterable[AnyEvent]) -> list[str]:
    """The first difference between one log and the other, in words; nothing if they say the same.

    >>> from holdfast import Holdfast, note, task
    >>> @task
    ... def compared(text: str) -> None:
    ...     note(text)
    >>> with Holdfast("memory://") as hf, Holdfast("memory://") as other:
    ...     _ = hf.run(compared, "one", id="c-1"), other.run(compared, "one", id="c-1")
    ...     _ = hf.run(compared, "two", id="c-2")
    ...     same = differences(hf.task("c-1").events(), other.task("c-1").events())
    ...     not_same = differences(hf.task("c-1").events(), hf.task("c-2").events())
    >>> same, bool(not_same)
    ([], True)
    """
    return list(_differences(_by_place(one), _by_place(other)))


def _differences(one: dict[str, list[str]], other: dict[str, list[str]]) -> Iterator[str]:
    for place in sorted(one.keys() | other.keys()):
        first, second = one.get(place, []), other.get(place, [])
        for n in range(max(len(first), len(second))):
            pair = [forms[n] if n < len(forms) else "nothing" for forms in (first, second)]
            if pair[0] != pair[1]:
                yield f"{place}, event {n + 1}:\n  {pair[0]}\n  {pair[1]}"
                break


def _by_place(events: Iterable[AnyEvent]) -> dict[str, list[str]]:
    """The events at each place of a task, in order."""
    said: dict[str, list[str]] = defaultdict(list)
    for event in chain.from_iterable(map(parts_of, events)):
        if isinstance(event, _WHO_DROVE_IT) or _is_progress_of_each(event):
            continue
        place = _place(event)
        said[f"at {place or 'the body'}"].append(_form(event))
        if "." not in place and not isinstance(event, ChildEnded):
            said["in the body, in order"].append(f"{type(event).__name__} {place}")
    return said


def _is_progress_of_each(event: AnyEvent) -> bool:
    """Whether `each` said how far it is: it does so now and then."""
    return isinstance(event, Progressed) and event.text.startswith("each(")


def _place(event: AnyEvent) -> str:
    for name in ("path", "scope", "mark"):
        place = getattr(event, name, "")
        if place:
            return str(place)
    return ""


def _form(event: AnyEvent) -> str:
    """All that an event says, but for when, by whom and by which way."""
    plain = msgspec.json.decode(msgspec.json.encode(event))
    if plain.get("name") in _TIMES:
        plain.pop("value", None)
    said = {key: _without(value) for key, value in plain.items() if key not in _AS_IT_CAME}
    return msgspec.json.encode(said, order="sorted").decode()


def _without(value: Any) -> Any:
    if isinstance(value, dict):
        left_out = {*_AS_IT_CAME, "version"}  # of a file: the event that wrote it
        return {key: _without(each) for key, each in value.items() if key not in left_out}
    if isinstance(value, list):
        return [_without(each) for each in value]
    return value


# Tasks that use as much as they can, to see whether their logs are the same everywhere.


async_files: Any = files
"""In an async task each call is awaited, which their types don't say."""

_NO_KEY = IdempotencyKey()
_QUICK = Retry(attempts=2, delay_s=0.01, jitter=0)


def _unbook(booked: str, *, key: str) -> None: ...


@tool(undo=_unbook, retry=_QUICK)
def logs_book(what: str, *, key: IdempotencyKey = _NO_KEY) -> str:
    if current().attempt == 1:
        raise ConnectionError(f"no route to {what}")
    return f"booked {what}"


@tool(undo=_unbook, retry=_QUICK)
async def logs_abook(what: str, *, key: IdempotencyKey = _NO_KEY) -> str:
    await asyncio.sleep(0)
    if current().attempt == 1:
        raise ConnectionError(f"no route to {what}")
    return f"booked {what}"


@tool(approve=True)
def logs_pay(amount: int) -> int:
    return amount


@step(retry=_QUICK)
def logs_fails() -> None:
    raise ValueError("never")


@step
def logs_inner(number: int) -> int:
    return number + 1


@step
def logs_outer(number: int) -> int:
    note("inside")
    return logs_inner(number) + logs_inner(number)


@step
def logs_words() -> Iterator[str]:
    yield from ("a", "conger", "eel")


@step
async def logs_awords() -> AsyncIterator[str]:
    for word in ("a", "conger", "eel"):
        yield word


@external(ttl_s=3600)
def logs_weather(city: str) -> str:
    return f"rain in {city}"


@task(version=1)
def logs_loop(rounds: int) -> list[int]:
    seen = restore(list[int]())
    while len(seen) < rounds:
        seen = checkpoint([*seen, logs_inner(len(seen))])
    return seen


@task(compensate="failed")
def logs_in_vain() -> None:
    logs_book("in vain")
    logs_fails()


@task
def logs_everything(guests: int) -> dict[str, Any]:
    current().plan(["go", "come back"])
    seen: dict[str, Any] = {"id": str(uuid()), "chance": random()}
    begun = now()
    seen["room"] = decide("room", "attic", options=["attic", "cellar"], because="it has a desk")
    seen["booked"] = logs_book("a room")
    try:
        logs_fails()
    except StepFailed as failed:
        seen["failed"] = failed.failure.message
    seen["outer"] = logs_outer(guests)
    seen["each"] = list(each(logs_inner, range(guests), workers=2))
    seen["both"] = gather(lambda: logs_book("one"), lambda: [logs_inner(1), logs_inner(2)])
    note("half-way", data={"guests": guests})
    current().mark("1", "done")
    sleep(0.01)
    seen["add"] = ask("Anything to add?", timeout_s=0.02, default="no")
    seen["why"] = ask("Sure?", bool, id="sure")
    seen["paid"] = logs_pay(70)
    loop = start(logs_loop, 3)
    try:
        start(logs_in_vain).result()
    except StepFailed as failed:
        seen["in vain"] = failed.failure.type
    seen["loop"] = loop.result()
    seen["weather"] = [logs_weather("Oslo"), logs_weather("Oslo")]
    seen["fact"] = fact("weather", "wet", of=[logs_weather.reading("Oslo")])
    files.write("report.md", "# The sea\n")
    seen["text"] = files.read_text("report.md")
    seen["words"] = list(logs_words())
    seen["new"] = patched("new-way")
    seen["last"] = ask("Done?", bool, id="done")
    return {**seen, "later": now() >= begun}


@task
async def logs_aeverything(guests: int) -> dict[str, Any]:
    async def two() -> list[int]:
        return [logs_inner(1), logs_inner(2)]

    current().plan(["go", "come back"])
    seen: dict[str, Any] = {"id": str(uuid()), "chance": random()}
    begun = now()
    seen["room"] = decide("room", "attic", options=["attic", "cellar"], because="it has a desk")
    seen["booked"] = await logs_abook("a room")
    try:
        logs_fails()
    except StepFailed as failed:
        seen["failed"] = failed.failure.message
    seen["outer"] = logs_outer(guests)
    seen["each"] = list(await each(logs_abook, [f"guest {n}" for n in range(guests)], workers=2))
    seen["both"] = await gather(logs_abook("one"), two())
    seen["plain"] = await asyncio.gather(logs_abook("two"), two())
    note("half-way", data={"guests": guests})
    current().mark("1", "done")
    await sleep(0.01)
    seen["add"] = await aask("Anything to add?", timeout_s=0.02, default="no")
    seen["why"] = await aask("Sure?", bool, id="sure")
    seen["paid"] = logs_pay(70)
    loop = await start(logs_loop, 3).started()
    try:
        await start(logs_in_vain)
    except StepFailed as failed:
        seen["in vain"] = failed.failure.type
    seen["loop"] = await loop
    await async_files.write("report.md", "# The sea\n")
    seen["text"] = await async_files.read_text("report.md")
    seen["words"] = [word async for word in logs_awords()]
    seen["new"] = patched("new-way")
    seen["last"] = await aask("Done?", bool, id="done")
    return {**seen, "later": now() >= begun}


@task
def logs_cancelled() -> None:
    logs_book("a room")
    logs_book("a flight")
    ask("Go on?", bool)


BOTH = pytest.mark.parametrize("fn", [logs_everything, logs_aeverything])


class Logs:
    """The same events."""

    @BOTH
    def test_the_log_is_the_same_as_that_of_the_same_task_driven_here(
        self, hf: Holdfast, fn: Any
    ) -> None:
        id = new_id(fn)
        _drive(hf, fn, id, 3)
        with Holdfast("memory://") as here, working(here):
            _drive(here, fn, id, 3)
            ids = sorted(view.id for view in here.tasks())
            family = [view.id for view in hf.tasks() if view.id.partition(".")[0] == id]
            assert sorted(family) == ids
            for each in ids:
                found = differences(hf.task(each).events(), here.task(each).events())
                assert not found, "\n".join(found)

    def test_the_log_of_a_task_that_was_cancelled_is_the_same_too(self, hf: Holdfast) -> None:
        id = new_id(logs_cancelled)
        with Holdfast("memory://") as here, working(here):
            for one in (hf, here):
                handle = one.start(logs_cancelled, id=id)
                question(handle)
                one.cancel(id, because="it rains", by="ada")
                with pytest.raises(TaskCancelled):
                    handle.result(PATIENCE_S)
            found = differences(hf.task(id).events(), here.task(id).events())
        assert not found, "\n".join(found)

    def test_logs_that_say_something_else_are_told_apart(self, hf: Holdfast) -> None:
        id = new_id(logs_everything)
        _drive(hf, logs_everything, id, 3)
        with Holdfast("memory://") as here, working(here):
            _drive(here, logs_everything, id, 4)
            found = differences(hf.task(id).events(), here.task(id).events())
        assert found
        events = list(hf.task(id).events())
        assert differences(events, events) == []
        assert differences(events, events[:-1])
        assert differences(events, [*events[:-2], events[-1]])


def _drive(hf: Holdfast, fn: Any, id: str, guests: int) -> None:
    handle = hf.start(fn, guests, id=id)
    for key in ("sure", "approve", "done"):
        asked = until(partial(_asked, handle, key))
        hf.answer(id, True, question=asked, by="ada")
    handle.result(PATIENCE_S)


def _asked(handle: Handle[Any], key: str) -> str:
    """The id of an open question, known by its beginning."""
    return next((c.key for c in handle.view.questions if c.key.startswith(key)), "")
