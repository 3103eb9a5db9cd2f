"""How a process holds the tasks of a store: takes many, looks after them, and gives them back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from holdfast.core import events as e
from holdfast.core.events import dump_event
from holdfast.engines.holder import Heartbeat, Holding
from holdfast.errors import (
    Halt,
    HoldfastError,
    StorageFailed,
    Suspend,
    TaskBusy,
    TaskPaused,
    TaskReleased,
    TaskWaiting,
)
from holdfast.log.log import Log, open_log
from holdfast.log.reading import newest_event
from holdfast.log.states import load
from holdfast.log.store_calls import acquire_one, inbox_of, post_to
from holdfast.stores.memory import MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOTHING = Raw(b"null")


class Moody(MemoryStore):
    """Fails where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()

    def _meet(self, call: str) -> None:
        if call in self.broken:
            raise StorageFailed(f"{call}: the cable was pulled")

    def get_side(self, *given: Any, **named: Any) -> Any:
        self._meet("inbox")
        return super().get_side(*given, **named)

    def append(self, *given: Any) -> None:
        self._meet("append")
        super().append(*given)


@pytest.fixture
def store() -> Moody:
    return Moody()


def holding(store: MemoryStore, owner: str = "me") -> Holding:
    return Holding(store, owner, 60.0, lambda: NOW, 1_000_000)


@pytest.fixture
def held(store: Moody) -> Iterator[Holding]:
    made = holding(store)
    for id in ("a", "b", "c"):
        with made.hold(id) as log:
            log.append(e.TaskCreated(format=1, id=id, task="job", args=Raw(b"{}"), args_hash="h"))
    yield made
    made.close()


def holder_of(store: MemoryStore, stream: str) -> str | None:
    found = store.holder(stream)
    return None if found is None else found.name


def nothing(log: Log) -> None:
    """Begin with nothing."""


def message(text: str = "x") -> e.MessageSent:
    return e.MessageSent(name=text, value=NOTHING, by="ada")


def names(store: MemoryStore, id: str) -> list[str]:
    return [mail.name for mail in load(store, id).mail]


# Many at once


def test_of_many_that_are_taken_each_has_its_own_outcome(store, held):
    theirs = acquire_one(store, "tasks/b", "them", 60)
    begun: list[str] = []

    def begin(log: Log) -> None:
        if log.state.id == "c":
            raise KeyError("no such function")
        begun.append(log.state.id)

    post_to(store, "tasks/a", "m", dump_event(message()))
    post_to(store, "tasks/b", "m", dump_event(message()))
    a, b, c = held.take_many([(id, begin) for id in ("a", "b", "c")])
    assert isinstance(a, Log) and isinstance(b, TaskBusy) and isinstance(c, KeyError)
    assert begun == ["a"] and names(store, "a") == ["x"], "its messages came first"
    assert [holder_of(store, f"tasks/{id}") for id in ("a", "b", "c")] == ["me", "them", None]
    assert [post.stream for post in inbox_of(store, ["tasks/a", "tasks/b"])] == ["tasks/b"]
    held.release(a)
    store.release([theirs])
    assert holder_of(store, "tasks/a") is None


def test_a_store_that_fails_meanwhile_leaves_none_of_many_held(store, held):
    store.broken = {"inbox"}
    with pytest.raises(StorageFailed, match="inbox"):
        held.take_many([("a", nothing), ("b", nothing)])
    assert [holder_of(store, f"tasks/{id}") for id in ("a", "b")] == [None, None]
    theirs = [acquire_one(store, f"tasks/{id}", "them", 60) for id in ("a", "b")]
    assert all(
        isinstance(each, TaskBusy) for each in held.take_many([("a", nothing), ("b", nothing)])
    )
    store.release(theirs)


# One, while a block lasts


def test_signals_leave_a_block_as_the_errors_they_carry_and_the_task_is_released(store, held):
    waiting = TaskWaiting("a", "it waits for Ada\nand more", None)
    with pytest.raises(TaskWaiting) as caught, held.hold("a"):
        raise Suspend(waiting)
    assert caught.value is waiting and holder_of(store, "tasks/a") is None
    parked = newest_event(store, "tasks/a")
    assert isinstance(parked, e.Parked) and (parked.why, parked.until) == ("it waits for Ada", None)
    halted = HoldfastError("the code changed")
    with pytest.raises(HoldfastError) as stopped, held.hold("b"):
        raise Halt(halted)
    assert stopped.value is halted and holder_of(store, "tasks/b") is None
    assert isinstance(newest_event(store, "tasks/b"), e.TaskCreated), "nobody waits"


LATER = [NOW + timedelta(hours=2), None, NOW + timedelta(hours=1)]


@pytest.mark.parametrize(
    ("waiting", "waits", "told", "until"),
    [
        (TaskWaiting("a", "x"), [], 0, None),
        (TaskWaiting("a", "x"), LATER, 0, NOW + timedelta(hours=1)),
        (TaskPaused("a", "x"), [None], 0, None),
        (TaskReleased("a", "x"), LATER, 0, NOW),
        (TaskWaiting("a", "x"), LATER, 1, NOW),
    ],
)
def test_a_task_that_waits_says_until_when_nobody_needs_to_look(
    held, store, waiting, waits, told, until
):
    with pytest.raises(TaskWaiting), held.hold("a") as log:
        log.waits[:] = waits
        log.messages += told
        raise Suspend(waiting)
    parked = newest_event(store, "tasks/a")
    assert isinstance(parked, e.Parked) and parked.until == until


@pytest.mark.parametrize(
    "event",
    [e.TaskCompleted(result=NOTHING), e.Moved(engine="temporal", by="ada")],
    ids=["ended", "moved"],
)
def test_a_task_that_nobody_here_goes_on_with_does_not_wait(held, store, event):
    with pytest.raises(TaskWaiting), held.hold("a") as log:
        log.append(event)
        raise Suspend(TaskWaiting("a", "x"))
    assert type(newest_event(store, "tasks/a")) is type(event)


def test_a_store_that_fails_when_a_task_is_released_does_not_hide_why_it_waits(held, store):
    with pytest.raises(TaskWaiting), held.hold("a"):
        store.broken = {"inbox"}
        raise Suspend(TaskWaiting("a", "x"))


# Telling a task


def telling(text: str) -> Callable[..., Any]:
    return lambda state, stow: message(text)


def test_a_task_is_told_at_once_or_by_its_inbox_and_of_each_message_once(held, store):
    assert held.tell("a", "m-1", telling("one"))
    assert names(store, "a") == ["one"] and not list(inbox_of(store, ["tasks/a"]))
    other = holding(store, "other")
    with other.hold("a"):
        assert held.tell("a", "m-2", telling("two"))
        assert held.tell("a", "m-2", telling("again")), "one of that name was taken"
    assert names(store, "a") == ["one", "two"]
    assert load(store, "a").posts == ("m-2",)
    other.close()


def test_a_message_that_came_too_late_for_its_holder_is_taken_in_when_it_leaves(held, store):
    other = holding(store, "other")
    with other.hold("a"):
        post_to(store, "tasks/a", "m-1", dump_event(message("late")))
    other.close()
    assert names(store, "a") == ["late"] and holder_of(store, "tasks/a") is None


@pytest.mark.parametrize("hears", [True, False])
def test_a_task_that_an_engine_drives_is_told_by_way_of_it(held, store, hears):
    told: list[str] = []

    def poke(state: Any, name: str) -> bool:
        told.append(f"{state.id} {name}")
        if hears:
            for post in inbox_of(store, ["tasks/a"]):
                store.drop_side(post.stream, "inbox", post.name)
        return hears

    with held.hold("a") as log:
        log.append(e.Moved(engine="temporal", by="ada"))
    held.poke = poke
    assert held.tell("a", "m-1", telling("one"), wait=False) is not hears
    assert told == ["a m-1"]
    assert [post.name for post in inbox_of(store, ["tasks/a"])] == ([] if hears else ["m-1"])
    held.poke = None
    assert held.tell("a", "m-2", telling("two"), wait=True), "its workers see to it"


def moved(store: MemoryStore, engine: str, after_s: float = 0) -> None:
    """Move a task, and look at none of its messages."""
    log = open_log(store, "a", "mover", 60, lambda: NOW)
    time.sleep(after_s)
    log.append(e.Moved(engine=engine, by="ada"))
    log.close()


def test_a_task_that_was_moved_here_meanwhile_is_told_here(held, store):
    moved(store, "temporal")

    def poke(state: Any, name: str) -> bool:
        moved(store, "")
        return False

    held.poke = poke
    assert held.tell("a", "m-1", telling("one"))
    assert names(store, "a") == ["one"] and not list(inbox_of(store, ["tasks/a"]))


def test_a_task_that_was_moved_away_meanwhile_is_told_by_its_engine(held, store):
    told: list[str] = []
    held.poke = lambda state, name: bool(told.append(f"{state.driver} {name}"))
    mover = threading.Thread(target=moved, args=(store, "temporal", 0.3))
    mover.start()
    while holder_of(store, "tasks/a") != "mover":
        time.sleep(0.01)
    assert held.tell("a", "m-1", telling("one")), "it is safe in the inbox"
    mover.join()
    assert told == ["temporal m-1"] and names(store, "a") == []


def test_a_message_whose_holder_dies_is_taken_in_by_who_left_it(held, store):
    theirs = acquire_one(store, "tasks/a", "them", 60)
    dying = threading.Timer(0.3, store.release, [[theirs]])
    dying.start()
    assert held.tell("a", "m-1", telling("one"))
    dying.join()
    assert names(store, "a") == ["one"] and not list(inbox_of(store, ["tasks/a"]))


# The heartbeat


@pytest.fixture
def still(monkeypatch) -> None:
    """A heartbeat that beats when it is told to."""
    monkeypatch.setattr(Heartbeat, "_beat", lambda self: self._closing.wait(60))


@pytest.mark.usefixtures("still")
def test_messages_are_brought_to_those_who_are_looked_after_and_no_others(held, store):
    (a, b) = (
        log for log in held.take_many([("a", nothing), ("b", nothing)]) if isinstance(log, Log)
    )
    heard: list[Any] = []

    class Attended:
        def hear(self, event: Any) -> None:
            heard.append(event.name)

        def tick(self) -> None:
            heard.append("tick")

    a.attended = Attended()
    for stream in ("tasks/a", "tasks/b", "tasks/c"):
        post_to(store, stream, "m", dump_event(message(stream)))
    beat = held._heartbeat
    beat.remove(b)
    beat._attend([a, b])
    assert heard == ["tasks/a", "tick"]
    assert [post.stream for post in inbox_of(store, ["tasks/a", "tasks/b", "tasks/c"])] == [
        "tasks/b",
        "tasks/c",
    ]
    store.broken = {"inbox"}
    beat._attend([a])
    beat._attend([])
    assert heard == ["tasks/a", "tick"], "a store that can't be reached may be the next time"
    store.broken = set()
    held.release_many([(a, None), (b, None)])


@pytest.mark.usefixtures("still")
def test_a_log_that_broke_is_looked_after_no_more_and_the_others_are(held, store):
    logs = [log for log in held.take_many([("a", nothing), ("b", nothing)]) if isinstance(log, Log)]
    post_to(store, "tasks/a", "m", dump_event(message()))
    store.broken = {"append"}
    held._heartbeat._attend(logs)
    assert held._heartbeat._logs == {logs[1]} and logs[0].is_broken
    store.broken = set()
    held.release_many([(log, None) for log in logs])


def test_the_heartbeat_drops_a_log_that_it_can_not_write_to(held, store):
    (a,) = (log for log in held.take_many([("a", nothing)]) if isinstance(log, Log))
    dropped = threading.Event()
    remove = held._heartbeat.remove
    held._heartbeat.remove = lambda log: (remove(log), dropped.set())[0]
    store.broken = {"append"}
    a.append(e.Noted(scope="", mark="m", text="x"))
    assert dropped.wait(30) and a.is_broken
    assert held._heartbeat._logs == set()
    store.broken = set()
