"""A frozen driver, taken over and thawed: the bodies of its task run no more.

A process drives a task, is stopped (SIGSTOP) and stays so for longer than its lease. Another drives
the task to its end. Then the first is let go on (SIGCONT), in the middle of whatever it was doing.
It must begin no body after that. One case is left, and is counted apart: a strand that had looked
at its lease and was frozen before the body's first line. Its body runs; what it does is never
recorded.

Half of the rounds freeze it at random, in a long task. The others freeze it at one boundary of a
short task that has every kind of body: before or after an append, a flush, a sync, the look at
the lease, or the beginning of a body.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
from msgspec import Raw, Struct

from holdfast import Holdfast, TaskFailed
from holdfast.core.events import AnyEvent, Claimed, Completed, Settled
from holdfast.engines.clocks import Tenure
from holdfast.log.log import Log
from holdfast.stores.port import Store
from holdfast.views.task import view_task
from tests.freezing import freeze, wait_until_stopped
from tests.torture import thaw_tasks
from tests.torture.process import Process, Tell
from tests.torture.promises import patiently

LEASE_S = 0.15
_STEPS = 60
_BOUNDARIES = ((Log, "append"), (Log, "flush"), (Log, "sync"), (Tenure, "is_sure"))
"""The methods before and after which a driver is frozen."""

Opened = Callable[[], Store]


class Thaw(Struct):
    """What came of one."""

    bodies: int
    """Begun by both."""
    late: int
    """Begun by the one that was taken over, after that."""
    overtaken: int
    """Of which the strand was frozen between its look at the lease and the body."""
    broken: list[str]


def at_random(
    open_store: Opened, seed: str, is_free: Callable[[], bool] = lambda: True, bug: str = ""
) -> Iterator[Thaw]:
    """Freeze a driver at any moment, again and again."""
    chance, number = Random(seed), 0
    while True:
        id = f"{seed.replace(' ', '-')}-{number}"
        number += 1
        name = chance.choice(("long", "along"))
        first = Process(_driver(open_store, id, name, LEASE_S, bug))
        enough = chance.randint(2, _STEPS // 2)
        first.hear_until(lambda: len(first.marks) >= enough)  # noqa: B023

        def work_on() -> None:
            first.hear(0.0)  # noqa: B023
            time.sleep(chance.random() * 0.004)

        freeze(first.pid, is_free, work_on)
        yield _taken_over(open_store, id, name, first, chance)


def at_boundaries(
    open_store: Opened, seed: str, is_free: Callable[[], bool] = lambda: True, bug: str = ""
) -> Iterator[Thaw]:
    """Freeze a driver at each boundary of a task, in some order."""
    chance, number = Random(seed), 0
    while True:
        every = [
            (name, at) for name in ("short", "ashort") for at in range(_count(open_store, name))
        ]
        chance.shuffle(every)
        for name, at in every:
            id = f"{seed.replace(' ', '-')}-{number}"
            number += 1
            _begin(open_store, id, name)
            first = Process(_driver(open_store, id, name, LEASE_S, bug, freeze_at=at))
            if wait_until_stopped(first.pid) and is_free():
                yield _taken_over(open_store, id, name, first, chance)
            else:
                first.kill()  # it came to its end, or holds the lock of the database


def _count(open_store: Opened, name: str) -> int:
    """How many boundaries there are, to the next ten: threads pass some in another order."""
    id = f"count-{name}-{os.urandom(3).hex()}"
    _begin(open_store, id, name)
    whole = Process(_driver(open_store, id, name, 30.0))
    whole.end()
    (passed,) = [int(mark[1]) for mark in whole.marks if mark[0] == "passed"]
    return passed


def _begin(open_store: Opened, id: str, name: str) -> None:
    """Leave a task with a call in doubt: whoever goes on has to ask its check."""
    dead = Process(_driver(open_store, id, name, 30.0, dies_in="pay"))
    dead.end()


def _driver(
    open_store: Opened,
    id: str,
    name: str,
    lease_s: float,
    bug: str = "",
    *,
    freeze_at: int = -1,
    dies_in: str = "",
) -> Callable[[Tell], None]:
    """What a process does that drives a task."""

    def main(tell: Tell) -> None:
        thaw_tasks.dies_in = dies_in
        count = _instrument(bug, freeze_at)
        lock = threading.Lock()

        def say(body: str, began: float, checked: float) -> None:
            count()
            with lock:
                tell(["body", body, str(began), str(checked)])

        thaw_tasks.say = say
        with Holdfast(open_store(), lease_s=lease_s) as hf:
            try:
                patiently(lambda: _drive(hf, id, name))
            except TaskFailed:
                tell(["ended"])
        tell(["passed", count() - 1])

    return main


def _drive(hf: Holdfast, id: str, name: str) -> None:
    fn: Any = getattr(thaw_tasks, name)
    args = (id, _STEPS) if "long" in name else ()
    if name.startswith("a"):
        asyncio.run(hf.arun(fn, *args, id=id))
    else:
        hf.run(fn, *args, id=id)


def _instrument(bug: str, freeze_at: int) -> Callable[[], int]:
    """Have the process of a driver count its boundaries, and stop itself at one."""
    passed = [0]

    def count() -> int:
        if threading.current_thread().name != "holdfast heartbeat":
            passed[0] += 1
            if passed[0] - 1 == freeze_at:
                os.kill(os.getpid(), signal.SIGSTOP)
        return passed[0]

    for owner, name in _BOUNDARIES:
        setattr(owner, name, _counted(getattr(owner, name), count, name, bug))
    return count


def _counted(method: Any, count: Callable[[], int], name: str, bug: str) -> Any:
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        count()
        answer = True if bug and name == "is_sure" else method(self, *args, **kwargs)
        if name == "is_sure" and answer:
            # In a build that does not look, it is as if nobody had.
            thaw_tasks.checked_at.set(float("inf") if bug else time.clock_gettime(thaw_tasks.clock))
        count()
        return answer

    return counted


def _taken_over(open_store: Opened, id: str, name: str, first: Process, chance: Random) -> Thaw:
    """Let another go on with the task of a process that is stopped, and then the first too."""
    stopped_at = time.clock_gettime(thaw_tasks.clock)
    first.hear_so_far()
    time.sleep(LEASE_S + 0.02)
    second = Process(_driver(open_store, id, name, 30.0))
    if chance.random() < 0.5:
        second.hear_until(lambda: len(second.marks) > 0)
    else:
        second.end()
    first.send(signal.SIGCONT)
    first.end()
    if second.is_open:
        second.end()
    return _judged(open_store, id, stopped_at, first, second)


def _judged(
    open_store: Opened, id: str, stopped_at: float, first: Process, second: Process
) -> Thaw:
    theirs = sum(mark[0] == "body" for mark in second.marks)
    bodies = [mark for mark in first.marks if mark[0] == "body"]
    late = [mark for mark in bodies if float(mark[2]) > stopped_at]
    # A busy machine may let the first go on before the second has begun: it is the holder then.
    taken_at = min((float(m[2]) for m in second.marks if m[0] == "body"), default=float("inf"))
    looked_before = [mark for mark in late if float(mark[3]) < max(stopped_at, taken_at)]
    found = [
        f"{id}: the body of {mark[1]} was begun after its task was taken over"
        for mark in late
        if mark not in looked_before
    ]
    if not any(mark[0] == "ended" for mark in second.marks):
        found.append(f"{id}: who took over could not go on: {second.last_words}")
    store = open_store()
    try:
        events = list(view_task(store, id).events())
    finally:
        store.close()
    *_, newest = (event for event in events if isinstance(event, Claimed))
    if newest.owner.endswith(f" {second.pid}"):  # else the task had ended when it was frozen
        found += _recorded(id, events[newest.seq :], second.pid)
        if not first.last_words.startswith("LeaseLost"):
            found.append(f"{id}: who was taken over heard {first.last_words!r}")
    return Thaw(len(bodies) + theirs, len(late), len(looked_before), found)


def _recorded(id: str, events: Sequence[AnyEvent], pid: int) -> Iterator[str]:
    """What a log holds, since it was taken over, that was not done by who took over."""
    for event in events:
        if isinstance(event, Completed | Settled) and isinstance(event.result, Raw):
            by = msgspec.json.decode(event.result)
            if by != pid and not isinstance(by, list):
                yield f"{id}: event {event.seq} is of process {by}, which was taken over"
