"""Tasks are started, paused, cancelled and answered from outside, while others drive them."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast import (
    AlreadyAnswered,
    BadInput,
    Holdfast,
    NotFinished,
    Retry,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    TaskPaused,
    Unanswered,
    Unserializable,
    Worker,
    WrongArguments,
    checkpoint,
    current,
    restore,
)
from holdfast.core.events import CancelRequested, TaskStopped
from holdfast.log.store_calls import inbox_of, post_to, streams_in
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Clock
from tests.flavors import Background, Crash, Flavor, eventually

Event = threading.Event
SLOW = Retry(attempts=3, delay_s=60, jitter=0)


@pytest.fixture(params=["sync", "async"])
def flavor(request):
    return Flavor(request.param)


@pytest.fixture(params=["files", "memory"])
def place(request, tmp_path):
    """Opens the same store again and again, as one process after the other would."""
    store = MemoryStore() if request.param == "memory" else tmp_path / "w"
    return lambda **options: Holdfast(store, **options)


@pytest.fixture
def files(tmp_path):
    return lambda **options: Holdfast(tmp_path / "w", **options)


class Work:
    """A step that can be held up, and counts."""

    def __init__(self, flavor: Flavor, **options) -> None:
        self.seen: list[int] = []
        self.began, self.go_on = Event(), Event()
        self.held_up = 1
        self.cancelled: list[int] = []

        async def work(n: int) -> int:
            self.seen.append(n)
            if n == self.held_up:
                self.began.set()
                try:
                    await flavor.wait(self.go_on)
                except asyncio.CancelledError:
                    self.cancelled.append(n)
                    raise
            return n

        self.step = flavor.step(work, **options)

    def under_way(self, hf: Holdfast, id: str = "t") -> None:
        """Wait until the step runs, and others can see that."""
        assert self.began.wait(60)
        eventually(lambda: is_seen(hf, id) and hf.task(id).calls)


def is_seen(hf: Holdfast, id: str) -> bool:
    return f"tasks/{id}" in streams_in(hf.store, "tasks/") and any(hf.store.read(f"tasks/{id}"))


def kinds_of(hf: Holdfast, id: str) -> list[str]:
    return [type(event).__name__ for event in hf.task(id).events()]


def statuses(hf: Holdfast, id: str) -> dict[str, str]:
    return {call.path: call.status for call in hf.task(id).calls}


# Start, and the handle


def test_a_started_task_waits_for_whoever_drives_it(flavor, place):
    @flavor.task
    async def greeting(name: str) -> str:
        return f"hi {name}"

    with place() as hf:
        handle = hf.start(greeting, "Ada", id="t", user="ada", labels={"team": "x"})
        assert (handle.id, handle.status, handle.view.state.user) == ("t", "pending", "ada")
    with place() as hf:
        again = hf.start(greeting, "Ada", id="t")
        assert kinds_of(hf, "t") == ["TaskCreated"]
        with pytest.raises(NotFinished, match=r"is pending: it did not end within 0.01 s"):
            again.result(timeout_s=0.01)
        with pytest.raises(WrongArguments, match="Bob"):
            hf.start(greeting, "Bob", id="t")
        assert hf.run(greeting, "Ada", id="t") == "hi Ada"
        assert again.result(timeout_s=0) == "hi Ada"
        assert hf.start(greeting, "Ada", id="t").status == "completed"
        assert [type(event).__name__ for event in again.events()] == kinds_of(hf, "t")


def test_starting_what_somebody_drives_right_now_is_that_task(flavor, files):
    work = Work(flavor)

    @flavor.task
    async def busy(n: int) -> int:
        return await work.step(n)

    with files() as hf:
        running = Background(hf.run, busy, 1, id="t")
        work.under_way(hf)
        handle = hf.start(busy, 1, id="t")
        assert handle.status == "in_progress"
        with pytest.raises(Exception, match=r"busy|driven|started"):
            hf.start(busy, 2, id="t")
        work.go_on.set()
        assert (running.result(), handle.result(timeout_s=60)) == (1, 1)
    assert work.seen == [1]


def test_a_handle_tells_how_the_task_ended(flavor, place):
    @flavor.task
    async def doomed_body() -> None:
        raise ValueError("no")

    with place() as hf:
        failed = hf.start(doomed_body, id="failed")
        stopped = hf.start(doomed_body, id="stopped")
        with pytest.raises(TaskFailed):
            hf.resume("failed")
        stopped.cancel("not needed")
        with pytest.raises(TaskFailed, match="ValueError: no"):
            failed.result(timeout_s=60)
        with pytest.raises(TaskCancelled, match="not needed"):
            asyncio.run(stopped.aresult(timeout_s=60))
        assert stopped.status == "cancelled"


# Pause


def test_a_pause_lets_the_step_in_hand_end_and_stops_before_the_next(flavor, place):
    work = Work(flavor)

    @flavor.task
    async def three_steps() -> list[int]:
        return [await work.step(n) for n in (1, 2, 3)]

    with place() as hf:
        running = Background(hf.run, three_steps, id="t")
        work.under_way(hf)
        hf.pause("t", because="lunch", by="ada")
        assert hf.task("t").status == "paused"
        with pytest.raises(BadInput, match="paused already"):
            hf.pause("t")
        work.go_on.set()
        with pytest.raises(TaskPaused, match="lunch"):
            running.result()
        assert statuses(hf, "t") == {"1": "completed"}
        assert work.cancelled == []
    with place() as hf:
        with pytest.raises(TaskPaused, match="lunch"):
            hf.run(three_steps, id="t")
        Worker(hf).run_until_idle()  # leaves what is paused alone
        assert hf.task("t").status == "paused"
        assert hf.resume("t") == [1, 2, 3]
    assert work.seen == [1, 2, 3]


def test_a_pause_before_the_start_while_waiting_and_when_finished(flavor, place):
    @flavor.task
    async def asking() -> str:
        return await flavor.ask("Well?", id="q")

    with place() as hf:
        hf.start(asking, id="t")
        hf.pause("t")
        with pytest.raises(TaskPaused):
            hf.run(asking, id="t")
        assert hf.task("t").calls == ()
        with pytest.raises(Unanswered):
            hf.resume("t")
        assert hf.task("t").status == "awaiting_user"
        hf.pause("t")
        assert hf.task("t").status == "paused"
        hf.answer("t", "yes")  # a paused task may be answered
        assert hf.task("t").status == "paused"
        with pytest.raises(TaskPaused):
            hf.run(asking, id="t")
        assert hf.resume("t") == "yes"
        for tell in (hf.pause, hf.unpause, hf.cancel):
            with pytest.raises(BadInput, match="is completed: it has ended"):
                tell("t")


def test_what_is_not_paused_can_not_be_unpaused(flavor, place):
    @flavor.task
    async def idle_body() -> str:
        return "done"

    with place() as hf:
        handle = hf.start(idle_body, id="t")
        with pytest.raises(BadInput, match="is not paused: it is pending"):
            hf.unpause("t")
        handle.pause("wait")
        hf.unpause("t", by="ada")
        with pytest.raises(BadInput, match="is not paused"):
            hf.unpause("t")
        Worker(hf).run_until_idle()
        assert handle.result(timeout_s=60) == "done"


@pytest.mark.parametrize("tell", ["pause", "unpause", "cancel", "compensate"])
def test_an_unknown_task_can_not_be_told_anything(place, tell):
    with place() as hf:
        with pytest.raises(TaskNotFound, match="nobody"):
            getattr(hf, tell)("nobody")
        assert list(streams_in(hf.store, "tasks/")) == []


@pytest.mark.parametrize("waits_in", ["sleep", "backoff"])
@pytest.mark.parametrize("told", ["pause", "cancel"])
def test_what_waits_in_this_process_stops_promptly(flavor, place, waits_in, told):
    @flavor.step(retry=SLOW)
    async def broken() -> None:
        raise ConnectionError("no route")

    @flavor.task
    async def waiting_long() -> None:
        await (flavor.sleep(3600) if waits_in == "sleep" else broken())

    ends = TaskPaused if told == "pause" else TaskCancelled
    with place() as hf:
        running = Background(hf.run, waiting_long, id="t")
        eventually(lambda: _is_waiting(hf, "t"))
        getattr(hf, told)("t")
        with pytest.raises(ends):
            running.result()
        before = hf.task("t").calls
        if told == "pause":
            assert {call.status for call in before} <= {"waiting", "backing_off"}
            running = Background(hf.resume, "t")
            eventually(lambda: hf.task("t").status == "in_progress")
            hf.cancel("t")
            with pytest.raises(TaskCancelled):
                running.result()
        assert hf.task("t").calls == before  # the same time to wake, the same attempt


@pytest.mark.parametrize("told", ["pause", "cancel"])
def test_a_step_that_is_tried_again_at_once_stops_between_its_attempts(
    request, flavor, files, told
):
    tried: list[int] = []

    @flavor.step(retry=Retry(attempts=200, delay_s=0, jitter=0))
    async def restless() -> None:
        tried.append(1)
        await flavor.wait(Event(), 0.01)

    @flavor.task
    async def restless_task() -> None:
        await restless()

    with files() as hf:
        running = Background(hf.run, restless_task, id="t")
        eventually(lambda: len(tried) > 10)
        getattr(hf, told)("t")
        with pytest.raises((TaskPaused, TaskCancelled)):
            running.result()
    assert len(tried) < 100


def _is_waiting(hf: Holdfast, id: str) -> bool:
    if not is_seen(hf, id):
        return False
    return any(c.status in ("waiting", "backing_off") for c in hf.task(id).calls)


def test_a_pause_during_the_last_step_is_kept_until_it_is_resumed(flavor, place):
    work = Work(flavor)

    @flavor.task
    async def last_step() -> int:
        try:
            return await work.step(1)
        except BaseException:
            return -1

    with place() as hf:
        running = Background(hf.run, last_step, id="t")
        work.under_way(hf)
        hf.pause("t")
        work.go_on.set()
        with pytest.raises(TaskPaused):
            running.result()
        assert hf.resume("t") == 1
    assert work.seen == [1]


def test_branches_come_to_the_end_of_their_steps_before_a_pause(flavor, place):
    gate, seen = Event(), []

    @flavor.step
    async def branch_step(n: int) -> int:
        seen.append(n)
        if n < 10:
            await flavor.wait(gate)
        return n

    @flavor.task
    async def branching() -> list[int]:
        async def strand(n: int) -> int:
            return await branch_step(n) + await branch_step(n + 10)

        return await flavor.gather(lambda: strand(1), lambda: strand(2), lambda: strand(3))

    with place() as hf:
        running = Background(hf.run, branching, id="t")
        eventually(lambda: len(seen) == 3 and is_seen(hf, "t"))
        hf.pause("t")
        gate.set()
        with pytest.raises(TaskPaused):
            running.result()
        assert set(statuses(hf, "t").values()) == {"completed"}
        assert sorted(seen) == [1, 2, 3]
        assert hf.resume("t") == [12, 14, 16]
    assert sorted(seen) == [1, 2, 3, 11, 12, 13]


def test_unpaused_before_it_had_stopped_a_worker_goes_on_with_it(flavor, place):
    work = Work(flavor)

    @flavor.task
    async def paused_shortly() -> list[int]:
        return [await work.step(n) for n in (1, 2)]

    with place() as hf:
        running = Background(hf.run, paused_shortly, id="t")
        work.under_way(hf)
        hf.pause("t")
        hf.unpause("t")
        work.go_on.set()
        try:
            assert running.result() == [1, 2]
        except TaskPaused:
            Worker(hf).run_until_idle()
        assert hf.task("t").status == "completed"
    assert work.seen == [1, 2]


# Cancel


def test_a_sync_step_in_hand_is_recorded_and_the_task_ends(place):
    flavor = Flavor("sync")
    work = Work(flavor)

    @flavor.task
    async def cancelled_body() -> list[int]:
        return [await work.step(n) for n in (1, 2)]

    with place() as hf:
        running = Background(hf.run, cancelled_body, id="t")
        work.under_way(hf)
        assert hf.cancel("t", because="too late", by="ada") == "in_progress"
        assert not running.done
        hf.cancel("t", because="again")  # twice is once
        work.go_on.set()
        with pytest.raises(TaskCancelled, match="too late"):
            running.result()
        assert (hf.task("t").status, statuses(hf, "t")) == ("cancelled", {"1": "completed"})
        assert kinds_of(hf, "t").count("CancelRequested") == 1
        for drive in (lambda: hf.run(cancelled_body, id="t"), lambda: hf.resume("t")):
            with pytest.raises(TaskCancelled, match="too late"):
                drive()
        with pytest.raises(BadInput, match="cancelled: it has ended"):
            hf.cancel("t")
        with pytest.raises(BadInput, match="nothing to retry"):
            hf.retry("t")
    assert work.seen == [1]


def test_a_running_async_step_is_cancelled(place):
    flavor = Flavor("async")
    work = Work(flavor)

    @flavor.task
    async def cancelled_amid() -> list[int]:
        return [await work.step(n) for n in (1, 2)]

    with place() as hf:
        running = Background(hf.run, cancelled_amid, id="t")
        work.under_way(hf)
        hf.cancel("t", because="too late")
        with pytest.raises(TaskCancelled, match="too late"):
            running.result()
        assert hf.task("t").status == "cancelled"
    assert (work.seen, work.cancelled) == ([1], [1])


@pytest.mark.parametrize(
    ("kind", "branches"),
    [
        *(("sync", how) for how in ("gather", "each")),
        *(("async", how) for how in ("gather", "each", "asyncio.gather", "TaskGroup")),
    ],
)
def test_branches_are_cancelled_with_their_task(place, kind, branches):
    flavor = Flavor(kind)
    gate, began, cancelled = Event(), [], []

    @flavor.step
    async def branch_work(n: int) -> int:
        began.append(n)
        try:
            await flavor.wait(gate)
        except asyncio.CancelledError:
            cancelled.append(n)
            raise
        return n

    @flavor.task
    async def branched() -> list[int]:
        if branches == "gather":
            return await flavor.gather(*(lambda n=n: branch_work(n) for n in (1, 2)))
        if branches == "each":
            return await flavor.each(branch_work, [1, 2, 3, 4], workers=2)
        if branches == "asyncio.gather":
            return await asyncio.gather(branch_work(1), branch_work(2))
        async with asyncio.TaskGroup() as group:
            made = [group.create_task(branch_work(n)) for n in (1, 2)]
        return [one.result() for one in made]

    with place() as hf:
        running = Background(hf.run, branched, id="t")
        eventually(lambda: len(began) == 2 and is_seen(hf, "t"))
        hf.cancel("t")
        if not flavor.is_async:
            gate.set()
        with pytest.raises(TaskCancelled):
            running.result()
        assert hf.task("t").status == "cancelled"
        ended = {"running"} if flavor.is_async else {"completed"}
        assert set(statuses(hf, "t").values()) == ended
    assert sorted(began) == [1, 2]
    assert sorted(cancelled) == ([1, 2] if flavor.is_async else [])


@pytest.mark.parametrize("how", ["to_thread", "each"])
def test_a_sync_step_in_a_thread_of_an_async_task_runs_to_its_end_and_is_recorded(files, how):
    flavor, sync = Flavor("async"), Flavor("sync")
    work = Work(sync)
    plain = work.step.plain

    @flavor.task
    async def threaded() -> list[int]:
        if how == "each":
            return await flavor.each(plain, [1])
        return [await asyncio.to_thread(plain, 1)]

    with files() as hf:
        running = Background(hf.run, threaded, id="t")
        work.under_way(hf)
        hf.cancel("t")
        threading.Timer(0.3, work.go_on.set).start()
        with pytest.raises(TaskCancelled):
            running.result()
        (call,) = hf.task("t").calls
        assert call.status == "completed"
        assert kinds_of(hf, "t")[-1] == "TaskStopped"


def test_what_waits_for_a_person_ends_at_once(flavor, place):
    @flavor.task
    async def asking_twice() -> str:
        return await flavor.ask("Well?")

    with place() as hf:
        with pytest.raises(Unanswered):
            hf.run(asking_twice, id="t")
        assert hf.cancel("t", because="nobody answers") == "cancelled"
        with pytest.raises(TaskCancelled, match="nobody answers"):
            hf.run(asking_twice, id="t")
        assert hf.task("t").status == "cancelled"


def test_a_question_of_a_task_that_has_ended_takes_no_answer(flavor, place):
    @flavor.task
    async def asking_in_vain() -> str:
        return await flavor.ask("Well?")

    with place() as hf:
        with pytest.raises(Unanswered):
            hf.run(asking_in_vain, id="t")
        hf.cancel("t")
        before = kinds_of(hf, "t")
        with pytest.raises((BadInput, AlreadyAnswered), match="cancelled"):
            hf.answer("t", "late")
        assert kinds_of(hf, "t") == before


def test_a_pending_and_a_paused_task_end_at_once(flavor, place):
    ran = []

    @flavor.task
    async def never_runs() -> None:
        ran.append(1)

    with place() as hf:
        hf.start(never_runs, id="pending")
        hf.start(never_runs, id="paused")
        hf.pause("paused")
        assert [hf.cancel(id) for id in ("pending", "paused")] == ["cancelled", "cancelled"]
        Worker(hf).run_until_idle()
        for id in ("pending", "paused"):
            with pytest.raises(TaskCancelled):
                hf.run(never_runs, id=id)
    assert ran == []


def test_a_task_that_crashed_ends_at_once_and_keeps_what_it_did(flavor, place):
    @flavor.step
    async def kept() -> str:
        return "kept"

    @flavor.task
    async def crashing() -> None:
        await kept()
        raise Crash

    with place() as hf, pytest.raises(Crash):
        hf.run(crashing, id="t")
    with place() as hf:
        assert hf.cancel("t") == "cancelled"
        assert statuses(hf, "t") == {"1": "completed"}


def test_a_paused_run_can_still_be_cancelled_before_it_stops(flavor, place):
    work = Work(flavor)

    @flavor.task
    async def both_told() -> None:
        await work.step(1)
        await work.step(2)

    with place() as hf:
        running = Background(hf.run, both_told, id="t")
        work.under_way(hf)
        hf.pause("t")
        hf.cancel("t")
        with pytest.raises(BadInput, match=r"being cancelled|it has ended"):
            hf.pause("t")
        work.go_on.set()
        with pytest.raises(TaskCancelled):
            running.result()
        assert hf.task("t").status == "cancelled"
    assert work.seen == [1]


@pytest.mark.parametrize("way", ["swallows", "returns", "raises"])
def test_a_body_that_catches_everything_is_cancelled_all_the_same(request, flavor, place, way):
    work = Work(flavor)

    @flavor.task
    async def stubborn() -> str:
        try:
            await work.step(1)
            await work.step(2)
        except BaseException as error:
            if way == "raises":
                raise ValueError("turned into another") from error
            if way == "swallows":
                for _ in range(3):
                    try:
                        await work.step(3)
                    except BaseException:
                        continue
        return "as if nothing had happened"

    async def drive(hf: Holdfast) -> int:
        with pytest.raises(TaskCancelled, match="enough"):
            await hf.arun(stubborn, id="t")
        current = asyncio.current_task()
        assert current is not None
        return current.cancelling()

    with place() as hf:
        running = Background(asyncio.run, drive(hf))
        work.under_way(hf)
        hf.cancel("t", because="enough")
        work.go_on.set()
        assert running.result() == 0  # the caller's own asyncio task was not cancelled
        assert hf.task("t").status == "cancelled"
    assert work.seen == [1]


def test_a_step_that_swallows_the_end_of_its_inner_step_has_no_result(flavor, place):
    work = Work(flavor)

    @flavor.step
    async def outer_step() -> str:
        try:
            await work.step(1)
            await work.step(2)
        except BaseException:
            return "made up"
        return "real"

    @flavor.task
    async def nested() -> str:
        return await outer_step()

    with place() as hf:
        running = Background(hf.run, nested, id="t")
        work.under_way(hf)
        hf.cancel("t")
        work.go_on.set()
        with pytest.raises(TaskCancelled):
            running.result()
        if not flavor.is_async:  # an async one that outlives its CancelledError has a result
            assert statuses(hf, "t")["1"] == "running"


def test_a_step_may_cancel_and_pause_its_own_task(flavor, files):
    with files() as hf:

        @flavor.step
        async def tells(what: str) -> str:
            getattr(hf, what)(current().task_id)
            return what

        @flavor.task
        async def tells_itself(what: str) -> list[str]:
            return [await tells(what), await tells("never")]

        with pytest.raises(TaskPaused):
            hf.run(tells_itself, "pause", id="paused")
        with pytest.raises(TaskCancelled):
            hf.run(tells_itself, "cancel", id="cancelled")
        assert hf.task("cancelled").status == "cancelled"
        assert statuses(hf, "paused") == {"1": "completed"}


def test_an_error_of_the_body_after_a_cancel_does_not_count(flavor, place):
    work = Work(flavor)

    @flavor.task
    async def failing_late() -> None:
        try:
            await work.step(1)
        finally:
            raise ValueError("in the cleanup")

    with place() as hf:
        running = Background(hf.run, failing_late, id="t")
        work.under_way(hf)
        hf.cancel("t")
        work.go_on.set()
        with pytest.raises(TaskCancelled):
            running.result()


def test_the_status_after_a_cancel_is_that_of_a_task_with_checkpoints_too(flavor, files):
    @flavor.task
    async def looping() -> int:
        n = restore(0)
        n = checkpoint(n + 1)
        if n == 1:
            raise Crash
        return n

    with files() as hf, pytest.raises(Crash):
        hf.run(looping, id="t")
    with files() as hf:
        status = hf.task("t").status
        assert (status, hf.cancel("t")) == ("in_progress", "cancelled")
        assert hf.task("t").status == "cancelled"


DRIVER = """
import sys
from pathlib import Path
from holdfast import Holdfast, TaskCancelled, TaskPaused, sleep, step, task

@step
def mark() -> None:
    Path(sys.argv[2]).touch()

@task
def far_away() -> None:
    mark()
    sleep(3600)

@task
async def far_away_async() -> None:
    mark()
    await sleep(3600)

# Without a message it would look into its inbox only now and then, by the time of its lease.
with Holdfast(sys.argv[1], lease_s=36_000) as hf:
    try:
        hf.run(far_away_async if sys.argv[3] == "async" else far_away, id="t")
    except (TaskCancelled, TaskPaused) as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("told", ["pause", "cancel"])
def test_another_process_is_told_at_once(flavor, files, tmp_path, told):
    ready = tmp_path / "ready"
    kind = "async" if flavor.is_async else "sync"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "w"), str(ready), kind],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with files() as hf:
            eventually(ready.exists)
            eventually(lambda: _is_waiting(hf, "t"))
            getattr(hf, told)("t", because="from afar")
            wanted = {"pause": "paused", "cancel": "cancelled"}[told]
            eventually(lambda: hf.task("t").status == wanted)
            out, _ = driver.communicate(timeout=60)
        assert out.strip() == {"pause": "TaskPaused", "cancel": "TaskCancelled"}[told]
    finally:
        driver.kill()
        driver.wait()


def test_a_message_for_a_holder_that_died_is_not_lost(flavor, files, tmp_path):
    ready = tmp_path / "ready"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path / "w"), str(ready), "sync"],
        stdout=subprocess.DEVNULL,
    )
    try:
        eventually(ready.exists)
        with files() as hf:
            eventually(lambda: _is_waiting(hf, "t"))
            # Left in the inbox as `tell` does it; the holder dies before it looks.
            driver.kill()
            driver.wait()
            post_to(
                hf.store,
                "tasks/t",
                "cancel",
                b'{"type":"cancel_requested","by":"ada","because":"left"}',
            )
            assert hf.cancel("t") == "cancelled"
            assert inbox_of(hf.store, ["tasks/t"]) == []
            events = list(hf.task("t").events())
            asked = [event for event in events if isinstance(event, CancelRequested)]
            assert [event.because for event in asked] == ["left"]
            assert isinstance(events[-1], TaskStopped)
    finally:
        driver.kill()
        driver.wait()


# The time of a whole task


def test_a_task_that_sleeps_past_its_time_fails(flavor, place):
    @flavor.task(timeout_s=0.6)
    async def slow_sleeper() -> None:
        await flavor.sleep(3600)

    with place() as hf:
        began = time.monotonic()
        with pytest.raises(TaskFailed, match="TaskTimedOut: the task did not end by"):
            hf.run(slow_sleeper, id="t")
        assert time.monotonic() - began < 60
        assert hf.task("t").failure.timed_out


def test_a_task_past_its_time_cancels_its_async_step_and_waits_for_its_sync_one(flavor, place):
    work, clock = Work(flavor), Clock()

    @flavor.task(timeout_s=10)
    async def slow_stepper() -> None:
        await work.step(1)
        await work.step(2)

    with place(clock=clock) as hf:
        running = Background(hf.run, slow_stepper, id="t")
        work.under_way(hf)
        clock.advance(11)
        if not flavor.is_async:
            assert not running.done
            work.go_on.set()
        with pytest.raises(TaskFailed, match="TaskTimedOut"):
            running.result()
        assert work.cancelled == ([1] if flavor.is_async else [])
        expected = "running" if flavor.is_async else "completed"
        assert statuses(hf, "t") == {"1": expected}


def test_the_deadline_is_absolute_and_a_crash_does_not_move_it(flavor, files):
    clock, ran = Clock(), []

    @flavor.step
    async def tick_step(n: int) -> int:
        ran.append(n)
        return n

    @flavor.task(timeout_s=100)
    async def crashing_late() -> int:
        await tick_step(1)
        if len(ran) == 1:
            clock.advance(60)
            raise Crash
        return await tick_step(2)

    with files(clock=clock) as hf, pytest.raises(Crash):
        hf.run(crashing_late, id="t")
    clock.advance(60)
    with files(clock=clock) as hf:
        with pytest.raises(TaskFailed, match="2026-01-01 00:01:40"):
            hf.run(crashing_late, id="t")
        assert ran == [1]
        clock.advance(1000)
        ran.append(0)
        assert hf.retry("t") == 2  # a retry gives it its whole time anew
    assert ran == [1, 0, 2]


def test_a_clock_set_back_gives_a_task_more_time_never_less(flavor, files):
    clock = Clock()

    @flavor.task(timeout_s=100)
    async def back_in_time() -> str:
        if clock.now.year == 2026:
            clock.advance(-10_000_000)
            raise Crash
        return "in time"

    with files(clock=clock) as hf, pytest.raises(Crash):
        hf.run(back_in_time, id="t")
    with files(clock=clock) as hf:
        assert hf.run(back_in_time, id="t") == "in time"


def test_a_task_nobody_took_up_in_time_fails_without_running(flavor, files):
    clock, ran = Clock(), []

    @flavor.step
    async def too_late() -> None:
        ran.append(1)

    @flavor.task(timeout_s=10)
    async def forgotten() -> None:
        await too_late()

    with files(clock=clock) as hf:
        handle = hf.start(forgotten, id="t")
        clock.advance(11)
        Worker(hf).run_until_idle()
        with pytest.raises(TaskFailed, match="TaskTimedOut"):
            handle.result(timeout_s=60)
    assert ran == []


def test_a_question_does_not_hold_up_the_end_of_a_tasks_time(flavor, files):
    clock = Clock()

    @flavor.task(timeout_s=10)
    async def asks_too_long() -> str:
        return await flavor.ask("Well?")

    with files(clock=clock) as hf:
        with pytest.raises(Unanswered):
            hf.run(asks_too_long, id="t")
        clock.advance(11)
        Worker(hf).run_until_idle()
        assert hf.task("t").status == "failed"


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_makes_no_sense_is_refused(bad):
    with pytest.raises(BadInput, match="timeout_s"):
        Flavor("sync").task(timeout_s=bad)(_nothing)


async def _nothing() -> None: ...


# Answers while somebody drives the task


class Asking:
    """A task with two branches: one asks, one is busy meanwhile."""

    def __init__(self, flavor: Flavor) -> None:
        self.work = work = Work(flavor)

        @flavor.task
        async def asking_aside() -> list[Any]:
            async def asks() -> bool:
                return await flavor.ask("Go on?", bool, id="go")

            return await flavor.gather(asks, lambda: work.step(1))

        self.task = asking_aside

    def begin(self, hf: Holdfast) -> Background:
        running = Background(hf.run, self.task, id="t")
        self.work.under_way(hf)
        eventually(lambda: hf.task("t").questions)
        return running


def test_an_answer_comes_while_another_branch_is_at_work(flavor, place):
    asking = Asking(flavor)
    with place() as hf:
        running = asking.begin(hf)
        for bad in (BadInput, Unserializable):
            with pytest.raises(bad):
                hf.answer("t", "certainly", question="no" if bad is BadInput else "go")
        hf.answer("t", True, question="go", by="ada")
        assert hf.task("t").questions == ()
        with pytest.raises(AlreadyAnswered, match="true by ada"):
            hf.answer("t", False, question="go")
        asking.work.go_on.set()
        try:
            assert running.result() == [True, 1]
        except Unanswered:
            assert hf.run(asking.task, id="t") == [True, 1]
    assert asking.work.seen == [1]


def test_a_worker_wakes_a_task_that_was_answered_while_it_was_driven(flavor, place):
    asking = Asking(flavor)
    with place() as hf:
        running = asking.begin(hf)
        hf.answer("t", True)
        asking.work.go_on.set()
        try:
            running.result()
        except Unanswered:
            Worker(hf).run_until_idle()
        assert hf.task("t").status == "completed"


def test_a_question_still_open_does_not_hold_up_other_branches_after_a_crash(flavor, place):
    crash, done = [True], []

    @flavor.step
    async def beside(n: int) -> int:
        if n == 2 and crash:
            crash.pop()
            raise Crash
        done.append(n)
        return n

    @flavor.task
    async def asks_beside() -> list:
        async def asks() -> str:
            return await flavor.ask("Well?", id="q")

        async def works() -> int:
            return await beside(1) + await beside(2)

        return await flavor.gather(asks, works)

    with place() as hf, pytest.raises((Crash, Unanswered)):  # whichever of the branches is heard
        hf.run(asks_beside, id="t")
    with place() as hf:
        with pytest.raises(Unanswered):
            hf.run(asks_beside, id="t")
        assert done == [1, 2]
        hf.answer("t", "yes")
        assert hf.run(asks_beside, id="t") == ["yes", 3]


def test_a_worker_goes_on_with_a_branch_whose_time_has_come_beside_an_open_question(flavor, place):
    done = []

    @flavor.step
    async def after_the_sleep() -> None:
        done.append(1)

    @flavor.task
    async def sleeps_beside() -> None:
        async def asks() -> str:
            return await flavor.ask("Well?")

        async def works() -> None:
            await flavor.sleep(1.2)
            await after_the_sleep()

        await flavor.gather(asks, works)

    with place() as hf:
        hf.start(sleeps_beside, id="t")
        worker = Worker(hf, poll_s=0.02, patience_s=0.5)
        working = Background(worker.run)
        try:
            eventually(lambda: done)
            eventually(lambda: worker.active == ())
            assert len(kinds_of(hf, "t")) < 15
        finally:
            worker.stop()
            working.result()
        assert hf.task("t").status == "awaiting_user"


def test_an_answer_that_was_refused_can_be_given_again_while_another_branch_works(flavor, files):
    work = Work(flavor)

    @flavor.task
    async def asks_for_a_class() -> list:
        async def asks() -> str:
            return str(await flavor.ask("When?", datetime, id="when"))

        return await flavor.gather(asks, lambda: work.step(1))

    with files() as hf:
        running = Background(hf.run, asks_for_a_class, id="t")
        work.under_way(hf)
        eventually(lambda: hf.task("t").questions)
        hf.answer("t", "some day")  # only the code that asks can tell that it does not fit
        # The branch that asks is parked: it learns of the answer when the task is run again.
        work.go_on.set()
        with pytest.raises(Unanswered):
            running.result()
        work.go_on.clear()
        work.began.clear()
        with pytest.raises(Unanswered):
            hf.run(asks_for_a_class, id="t")
        assert hf.task("t").status == "awaiting_user"
        hold = Background(_hold, hf, "t", work)
        work.under_way(hf)
        hf.answer("t", "2026-01-01T00:00:00Z")
        assert hf.task("t").questions == ()
        work.go_on.set()
        hold.result()
        assert hf.run(asks_for_a_class, id="t") == ["2026-01-01 00:00:00+00:00", 1]


def _hold(hf: Holdfast, id: str, work: Work) -> None:
    with hf._holding.hold(id):
        work.began.set()
        work.go_on.wait(60)


@dataclass
class Seat:
    row: int


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (datetime, datetime(2026, 1, 1, tzinfo=UTC)),
        (Decimal, Decimal("1.5")),
        (Seat, Seat(3)),
        (Seat, {"row": 3}),
        pytest.param(
            tuple[int, str],
            (1, "a"),
        ),
    ],
    ids=str,
)
def test_an_answer_of_exactly_the_type_that_was_asked_for_is_taken(flavor, files, kind, answer):
    @flavor.task
    async def asks_for_its_type() -> bool:
        found = await flavor.ask("What?", kind)
        return found == (Seat(3) if kind is Seat else answer)

    with files() as hf:
        with pytest.raises(Unanswered):
            hf.run(asks_for_its_type, id="t")
        hf.answer("t", answer)
        assert hf.run(asks_for_its_type, id="t")


def test_an_answer_after_the_deadline_is_refused(flavor, files):
    clock = Clock()

    @flavor.task
    async def asks_in_time() -> str:
        return await flavor.ask("Well?", timeout_s=10, default="never mind")

    with files(clock=clock) as hf:
        with pytest.raises(Unanswered):
            hf.run(asks_in_time, id="t")
        clock.advance(11)
        with pytest.raises((BadInput, AlreadyAnswered), match="time"):
            hf.answer("t", "late")
        assert hf.run(asks_in_time, id="t") == "never mind"


def test_a_question_nobody_answered_is_asked_anew_when_the_task_is_retried(flavor, files):
    clock = Clock()

    @flavor.task
    async def asks_again() -> str:
        return await flavor.ask("Well?", timeout_s=10)

    with files(clock=clock) as hf:
        with pytest.raises(Unanswered):
            hf.run(asks_again, id="t")
        clock.advance(11)
        with pytest.raises(TaskFailed, match="NoAnswer"):
            hf.run(asks_again, id="t")
        with pytest.raises(Unanswered):
            hf.retry("t")
        hf.answer("t", "yes")
        assert hf.run(asks_again, id="t") == "yes"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_heartbeat_outlives_a_task_that_is_let_go_of_while_it_is_told_something(files):
    """The heartbeat looks at who attends a log, who may leave at any moment."""

    class Fickle:
        """A log's `attended` that is there when looked at, and gone when used."""

        def __init__(self) -> None:
            self.looks = 0

        def __get__(self, log, kind=None):
            self.looks += 1
            return self if self.looks % 2 else None

        def __set__(self, log, value):
            pass

        def tick(self):
            pass

    with files() as hf:
        heartbeat = hf._holding._heartbeat
        with hf._holding.hold("t") as log:
            fickle = type("Fickle", (type(log),), {"attended": Fickle()})
            log.__class__ = fickle
            eventually(lambda: fickle.__dict__["attended"].looks > 4)
            assert heartbeat._thread.is_alive()
