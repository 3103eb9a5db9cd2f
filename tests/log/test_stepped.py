"""The start of a plain step and its result in one line, or in two: the state is the same, whatever
comes in between, and whichever write fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from holdfast import Holdfast, Retry, StepFailed, each, gather, note, step, task, tool
from holdfast.core import events as e
from holdfast.core.events import AnyEvent, dump_event, load_event
from holdfast.core.fold import fold
from holdfast.core.scope import scope_var
from holdfast.core.state import State
from holdfast.errors import StorageFailed, StoreError
from holdfast.log import chain
from holdfast.log.log import Log, open_log
from holdfast.log.reading import read_events, read_state, stream_of
from holdfast.stores.memory import MemoryStore
from tests.random_logs import AT, Story

STREAM = stream_of("t-1")


def shown(state: State) -> bytes:
    """Every field of a state, its trail and the order of its calls included."""
    return msgspec.json.encode([state, list(state.calls), list(state.last)])


class Failing(MemoryStore):
    """Refuses to be written to once so many writes were made."""

    def __init__(self, writes: int, *, syncs: bool = False) -> None:
        super().__init__()
        self.left, self.syncs = writes, syncs

    def append(self, *given: Any) -> None:
        self.left -= 1
        if self.left < 0 and not self.syncs:
            raise StorageFailed("no room")
        super().append(*given)

    def sync(self, leases: Any) -> Any:
        if self.left < 0:
            return [StorageFailed("it can't be synced")]
        return super().sync(leases)


class Telling(Story):
    """A story that is told to a log, as it goes. The log is flushed whenever it pleases."""

    def __init__(self, seed: int, log: Log) -> None:
        self.log, self.time = log, AT
        log.clock = lambda: self.time
        self.seen = {shown(State())}
        super().__init__(seed)

    def add(self, event: AnyEvent) -> None:
        random = self.random
        back = random.random() < 0.02
        self.time += timedelta(seconds=-9 if back else random.choice((0, 1)))
        clean = msgspec.structs.replace(event, seq=0, at=e.NEVER)
        self.log.append(clean)
        self.state = self.log.state
        self.events.append(event)  # for the numbers in names
        self.seen.add(shown(self.state))
        if random.random() < 0.3:
            self.log.flush(leave_new=random.random() < 0.7)
        if random.random() < 0.1:
            self.log.sync()

    def _to_step(self) -> AnyEvent | None:
        started = e.Started(path=self.path(), name="look", args=self.value(), args_hash="a")
        self.add(started)
        if self.random.random() < 0.2:
            return None
        if self.random.random() < 0.2:
            self.add(e.Noted(scope=started.path, text="meanwhile", mark=f"n-{len(self.events)}"))
        return e.Completed(path=started.path, result=self.value())

    def _to_rewind(self) -> None:
        """Not told here: a rewind needs the numbers of what it leaves."""

    _to_fork = _to_rewind
    _to_copy_a_result = _to_rewind


def telling(seed: int, store: MemoryStore, count: int = 120) -> Telling:
    told = Telling(seed, open_log(store, "t-1", "me", 60.0, lambda: AT))
    told.go_on(count)
    return told


@pytest.mark.parametrize("seed", range(30))
def test_a_state_in_memory_is_the_one_that_its_lines_come_to(seed):
    store = MemoryStore()
    told = telling(seed, store)
    told.log.sync()
    assert shown(read_state(store, STREAM)) == shown(told.log.state)
    types = {type(event) for event in read_events(store, STREAM)}
    assert {e.Stepped, e.Started, e.Completed} <= types


@pytest.mark.parametrize("syncs", [False, True])
@pytest.mark.parametrize("writes", range(1, 40, 3))
def test_whichever_write_fails_the_lines_come_to_a_state_that_there_was(writes, syncs):
    store = Failing(writes, syncs=syncs)
    log = open_log(store, "t-1", "me", 60.0, lambda: AT)
    told = Telling(writes, log)
    with pytest.raises(StoreError):
        told.go_on(500)
    assert log.is_broken
    assert shown(read_state(store, STREAM)) in told.seen
    with pytest.raises(StoreError):
        log.append(e.Patched(mark="more"))


def begun(log: Log) -> None:
    log.append(e.TaskCreated(format=1, id="t-1", task="job", args=Raw(b"{}"), args_hash="h"))
    log.append(e.Started(path="1", name="look", args=Raw(b"{}"), args_hash="a"))


def types_in(store: MemoryStore) -> list[str]:
    return [msgspec.json.decode(line)["type"] for line in store.read(STREAM)]


DONE = e.Completed(path="1", result=Raw(b"1"))


def meant(log: Log, how: str) -> None:
    match how:
        case "nothing":
            pass
        case "a first beat":
            log.flush(leave_new=True)
        case "two beats":
            log.flush(leave_new=True)
            log.flush(leave_new=True)
        case "a flush":
            log.flush()
        case "a sync":
            log.sync()
        case "a note":
            log.append(e.Noted(scope="1", text="so", mark="m"))
        case "a call inside":
            log.append(e.Started(path="1.1", name="in", args=Raw(b"{}"), args_hash="a"))
        case "a clock set back":
            log.clock = lambda: AT - timedelta(seconds=1)


@pytest.mark.parametrize(
    "how",
    ["nothing", "a first beat", "two beats", "a flush", "a sync", "a note", "a call inside",
     "a clock set back"],
)  # fmt: skip
def test_only_a_step_that_nothing_came_into_is_one_line(how):
    store = MemoryStore()
    log = open_log(store, "t-1", "me", 60.0, lambda: AT)
    begun(log)
    meant(log, how)
    log.append(DONE)
    log.sync()
    is_one = how in ("nothing", "a first beat")
    assert ("stepped" in types_in(store)) == is_one
    assert ("started" in types_in(store)) == (not is_one)
    state = read_state(store, STREAM)
    assert shown(state) == shown(log.state)
    call = state.calls["1"]
    assert (call.status, bytes(call.result)) == ("completed", b"1")
    assert (call.seq, call.ended_seq) == ((2, 2) if is_one else (2, call.ended_seq))


@pytest.mark.parametrize(
    "given",
    [{"kind": "tool", "key": "k"}, {"kind": "tool"}, {"external": True}, {"undo": True},
     {"invalidates": ("look",)}, {"attempt": 2}],
)  # fmt: skip
def test_what_is_no_plain_step_keeps_its_start(given):
    store = MemoryStore()
    log = open_log(store, "t-1", "me", 60.0, lambda: AT)
    log.append(e.TaskCreated(format=1, id="t-1", task="job", args=Raw(b"{}"), args_hash="h"))
    start = {"path": "1", "name": "look", "args": Raw(b"{}"), "args_hash": "a", **given}
    log.append(e.Started(**start))
    log.append(DONE)
    log.sync()
    assert types_in(store) == ["task_created", "started", "completed"]
    assert shown(read_state(store, STREAM)) == shown(log.state)


def test_one_event_comes_to_the_call_that_two_would():
    one = e.Stepped(
        seq=2, at=AT + timedelta(seconds=3), path="1.2.1", began=AT + timedelta(seconds=1),
        name="look", args=Raw(b'{"a":1}'), args_hash="h", result=Raw(b"[]"),
    )  # fmt: skip
    first = e.TaskCreated(
        seq=1, at=AT, format=1, id="t-1", task="job", args=Raw(b"{}"), args_hash="h"
    )
    states = []
    for events in ((one,), e.parts_of(one)):
        total, lines = chain.ROOT, []
        for event in (first, *events):
            line, total = chain.seal(total, dump_event(event))
            lines.append(load_event(line))
        state = fold(lines)
        state.trail = []
        states.append(shown(state))
    assert states[0] == states[1]


# Whole tasks, whose logs are flushed at random moments, and which compare when they close.


def beat() -> None:
    """What a heartbeat does, at some moment of a step or between two."""
    scope = scope_var.get()
    if scope is not None:
        RANDOM.choice((lambda: None, lambda: scope.run.log.flush(leave_new=True),
                       scope.run.log.flush))()  # fmt: skip


RANDOM = Random(0)


@step
def stepped_add(a: int, b: int) -> int:
    beat()
    return a + b


@step
def stepped_more(n: int) -> int:
    beat()
    return n + 1


@step(retry=Retry(attempts=2, delay_s=0))
def stepped_flaky(n: int) -> int:
    beat()
    if RANDOM.random() < 0.3:
        raise OSError("not now")
    return stepped_add(n, 1) if RANDOM.random() < 0.5 else n


@tool
def stepped_send(n: int) -> int:
    beat()
    return n


@step
async def stepped_later(n: int) -> list[int]:
    await asyncio.sleep(0)
    beat()
    return [n] * RANDOM.choice((1, 40, 400))


COMPARED: list[int] = []


def story(n: int, random: Random) -> None:
    """Chosen by `random`, so that a replay goes the same way."""
    for number in range(n):
        beat()
        match random.randrange(6):
            case 0:
                with suppress(StepFailed):
                    stepped_flaky(number)
            case 1:
                stepped_send(number)
            case 2:
                note(f"n {number}")
            case 3:
                compare()
            case _:
                stepped_add(number, 1)
    compare()


def compare() -> None:
    """Hold the state in memory against the one that its lines come to, byte for byte."""
    scope = scope_var.get()
    assert scope is not None
    run = scope.run
    if run.answers is not None:
        return
    run.log.sync()
    again = read_state(run.log.store, STREAM)
    assert [*run.log.state.trail] == [*again.trail]
    assert shown(run.log.state) == shown(again)
    COMPARED.append(again.seq)


@task
def stepped_sync(n: int) -> None:
    random = Random(n)
    story(n, random)
    each(stepped_more, range(4), workers=2)
    story(n, random)


@task
async def stepped_async(n: int) -> None:
    random = Random(n)
    for _ in range(3):
        await gather(*(stepped_later(number) for number in range(random.randrange(1, 4))))
        story(n // 3, random)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("fn", [stepped_sync, stepped_async])
def test_a_task_that_is_flushed_at_any_moment_has_the_state_of_its_lines(fn, seed):
    RANDOM.seed(seed)
    COMPARED.clear()
    with Holdfast("memory://") as hf:
        if fn is stepped_sync:
            hf.run(fn, 6 + seed, id="t-1")
        else:
            asyncio.run(hf.arun(fn, 6 + seed, id="t-1"))
        kinds = {type(event) for event in read_events(hf.store, STREAM)}
        assert e.Stepped in kinds
        assert hf.verify().sound
        assert hf.replay("t-1").same
    assert COMPARED
