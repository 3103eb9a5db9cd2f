"""Tasks that start other tasks: linked, run once, and waited for across crashes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import (
    CodeChanged,
    Holdfast,
    InDoubt,
    StepFailed,
    StorageFailed,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskPaused,
    TaskWaiting,
    Unanswered,
    Worker,
    start,
)
from holdfast.engines.local.tasks import Children
from holdfast.errors import StoreError
from holdfast.log.log import Log
from holdfast.log.reading import read_state
from holdfast.log.store_calls import acquire_one
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Lease
from tests.flavors import Background, Crash, Flavor, eventually

Event = threading.Event


@pytest.fixture(params=["sync", "async"])
def flavor(request):
    return Flavor(request.param)


@pytest.fixture(params=["sync", "async"])
def other(request):
    """The flavor of the children."""
    return Flavor(request.param)


@pytest.fixture(params=["files", "memory"])
def place(request, tmp_path):
    store = MemoryStore() if request.param == "memory" else tmp_path / "w"
    return lambda **options: Holdfast(store, **options)


@pytest.fixture
def files(tmp_path):
    return lambda **options: Holdfast(tmp_path / "w", **options)


def kinds_of(hf: Holdfast, id: str) -> list[str]:
    return [type(event).__name__ for event in hf.task(id).events()]


def exists(hf: Holdfast, id: str) -> bool:
    return any(hf.store.read(f"tasks/{id}"))


def family(flavor: Flavor, child, count: int = 1, **options):
    """A parent that starts children and waits for them."""

    @flavor.task
    async def parent() -> list[Any]:
        children = [await flavor.start(child, n, **options) for n in range(1, count + 1)]
        return [await flavor.outcome(one) for one in children]

    return parent


def squares(flavor: Flavor, ran: list[int]):
    @flavor.step
    async def square_step(n: int) -> int:
        ran.append(n)
        return n * n

    @flavor.task
    async def square(n: int) -> int:
        return await square_step(n)

    return square


def test_a_parent_gets_what_its_children_return(flavor, other, place):
    ran: list[int] = []
    parent = family(flavor, squares(other, ran), 3)
    with place() as hf:
        assert hf.run(parent, id="p", user="ada", session="s") == [1, 4, 9]
        view = hf.task("p")
        assert [(c.child, c.status) for c in view.children] == [
            ("p.1", "completed"),
            ("p.2", "completed"),
            ("p.3", "completed"),
        ]
        child = hf.task("p.2").state
        assert (child.parent, child.parent_path, child.user) == ("p", "2", "ada")
        assert kinds_of(hf, "p").count("ChildEnded") == 3
    with place() as hf:
        assert hf.run(parent, id="p") == [1, 4, 9]
    assert ran == [1, 2, 3]


def test_a_child_that_fails_fails_the_call_that_waits_for_it(flavor, other, place):
    @other.task
    async def failing_child(n: int) -> int:
        raise ValueError(f"no {n}")

    @flavor.task
    async def careful_parent() -> str:
        child = await flavor.start(failing_child, 7)
        try:
            await flavor.outcome(child)
        except StepFailed as failed:
            return f"{failed.path} {failed.failure.summary()}"
        return "?"

    with place() as hf:
        for _ in range(2):
            assert hf.run(careful_parent, id="p") == "1 ValueError: no 7"
        assert hf.task("p.1").status == "failed"


def test_a_parent_whose_child_failed_can_be_retried_once_the_child_was(flavor, other, place):
    weather = ["storm"]

    @other.task
    async def sailing(n: int) -> str:
        if weather[0] == "storm":
            raise RuntimeError("stay in port")
        return "sailed"

    parent = family(flavor, sailing)
    with place() as hf:
        with pytest.raises(TaskFailed, match="stay in port"):
            hf.run(parent, id="p")
        weather[0] = "calm"
        assert hf.retry("p.1") == "sailed"
        assert hf.retry("p") == ["sailed"]


def test_a_parent_that_is_retried_does_not_take_a_failed_child_for_one_that_returned_none(
    flavor, other, place
):
    @other.task
    async def fails_again(n: int) -> None:
        raise RuntimeError("still broken")

    parent = family(flavor, fails_again)
    with place() as hf:
        with pytest.raises(TaskFailed, match="still broken"):
            hf.run(parent, id="p")
        with pytest.raises(TaskFailed, match="still broken"):
            hf.retry("p")


def test_a_parent_waits_with_a_child_that_asks(flavor, other, place):
    @other.task
    async def asking_child(n: int) -> str:
        return await other.ask("Well?", id="q")

    parent = family(flavor, asking_child)
    with place() as hf:
        with pytest.raises(Unanswered) as waiting:
            hf.run(parent, id="p")
        assert waiting.value.task_id == "p.1"
        assert hf.task("p.1").status == "awaiting_user"
    with place() as hf:
        hf.answer("p.1", "yes", question="q")
        assert hf.run(parent, id="p") == ["yes"]


class Refuses(MemoryStore):
    """A store that can't be reached, for one stream and one method."""

    stream = method = ""

    def _must_be_reachable(self, stream: str, method: str) -> None:
        if (stream, method) == (self.stream, self.method):
            raise StorageFailed(f"can't reach the store to {method} {stream}")

    def _take(self, stream: str, owner: str, lease_s: float) -> Lease:
        self._must_be_reachable(stream, "acquire")
        return super()._take(stream, owner, lease_s)

    def append(self, lease: Lease, *args: Any, **kwargs: Any) -> None:
        self._must_be_reachable(lease.stream, "append")
        super().append(lease, *args, **kwargs)

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        for lease in leases:
            self._must_be_reachable(lease.stream, "sync")
        return super().sync(leases)


@pytest.mark.parametrize("method", ["acquire", "append", "sync"])
def test_a_store_that_fails_when_a_child_is_made_stops_the_parent_there(flavor, other, method):
    """The parent's code can't catch that, and nothing says that the child was made."""
    ran: list[int] = []
    child = squares(other, ran)

    @flavor.task
    async def careless() -> int:
        try:
            started = await flavor.start(child, 3)
        except Exception:
            return -1
        return await flavor.outcome(started)

    store = Refuses()
    store.stream, store.method = "tasks/p.1", method
    with Holdfast(store) as hf:
        for _ in range(2):
            with pytest.raises(StorageFailed, match=f"to {method} tasks/p.1"):
                hf.run(careless, id="p")
            assert hf.task("p").status == "in_progress"
            assert "ChildMade" not in kinds_of(hf, "p")
        store.stream = ""
        assert hf.run(careless, id="p") == 9
    assert ran == [3]


def test_children_have_the_ids_they_are_given_and_one_each(flavor, place):
    ran: list[int] = []
    square = squares(flavor, ran)
    with place() as hf:
        named = family(flavor, square, id="mine")
        assert hf.run(named, id="p") == [1]
        assert hf.task("p").children[0].child == "mine"
        assert hf.task("mine").state.parent == "p"

        with pytest.raises(TaskFailed, match="is no child of 'q'"):
            hf.run(named, id="q")
        hf.run(square, 5, id="taken")
        with pytest.raises(TaskFailed, match="is no child of"):
            hf.run(family(flavor, square, id="taken"), id="r")
        assert hf.task("r").children == ()
        with pytest.raises(TaskFailed, match=r"BadId|BadInput"):
            hf.run(family(flavor, square, id=""), id="s")
    assert ran == [1, 5]


def test_what_can_not_be_started_is_refused(flavor, place):
    @flavor.task
    async def starts_nonsense(what: str) -> None:
        if what == "no task":
            start(print)
        start(starts_nonsense, what, on_cancel="perhaps")  # type: ignore[call-overload]

    with place() as hf:
        with pytest.raises(TaskFailed, match="NotATask"):
            hf.run(starts_nonsense, "no task")
        with pytest.raises(TaskFailed, match="must be 'cancel' or 'leave'"):
            hf.run(starts_nonsense, "option")
    with pytest.raises(Exception, match="outside a task"):
        start(starts_nonsense, "x")


def test_a_child_that_is_gone_is_a_failure_that_says_so(flavor, place):
    gone = Event()

    @flavor.task
    async def lost_child() -> str:
        return "never"

    @flavor.task
    async def looking_parent() -> str:
        child = await flavor.start(lost_child)
        if not gone.is_set():
            raise Crash
        try:
            return await flavor.outcome(child)
        except StepFailed as failed:
            return failed.failure.type

    with place() as hf:
        with pytest.raises(Crash):
            hf.run(looking_parent, id="p")
        hf.store.delete(acquire_one(hf.store, "tasks/p.1", "somebody", 10))
        gone.set()
        assert hf.run(looking_parent, id="p") == "ChildGone"
        assert "not in" in hf.task("p").children[0].failure.message


def test_a_child_that_somebody_took_hold_of_and_never_made_is_made(flavor, place, monkeypatch):
    """A process that makes a child takes hold of its name first, and may die before it writes."""
    monkeypatch.setattr("holdfast.engines.local.tasks._MADE_S", 0.0)
    parent = family(flavor, squares(flavor, []))
    with place() as hf:
        lease = acquire_one(hf.store, "tasks/p.1", "somebody who died", 60)
        with pytest.raises(TaskBusy, match="somebody who died"):
            hf.run(parent, id="p")
        assert "ChildMade" not in kinds_of(hf, "p"), "a name is no log"
        hf.store.release([lease])
        assert hf.run(parent, id="p") == [1]


def test_side_by_side_children_run_at_the_same_time(flavor, place):
    met: list[int] = []

    @flavor.step
    async def meet(n: int) -> int:
        met.append(n)
        both = Event()

        def both_when_met() -> None:
            eventually(lambda: len(met) == 2)
            both.set()

        threading.Thread(target=both_when_met).start()
        await flavor.wait(both)
        return n

    @flavor.task
    async def meeting(n: int) -> int:
        return await meet(n)

    @flavor.task
    async def host() -> list[int]:
        children = [await flavor.start(meeting, n) for n in (1, 2)]

        async def wait_for(child) -> int:
            return await flavor.outcome(child)

        return await flavor.gather(*(lambda c=c: wait_for(c) for c in children))

    with place() as hf:
        assert hf.run(host, id="p") == [1, 2]
    assert sorted(met) == [1, 2]


def test_children_are_awaited_with_plain_asyncio(place):
    flavor = Flavor("async")
    ran: list[int] = []
    square = squares(flavor, ran)

    @flavor.task
    async def plain_host() -> list[int]:
        return await asyncio.gather(*(start(square, n) for n in (1, 2, 3)))

    with place() as hf:
        assert hf.run(plain_host, id="p") == [1, 4, 9]
        assert hf.run(plain_host, id="p") == [1, 4, 9]
        assert sorted(c.child for c in hf.task("p").children) == ["p.1", "p.2", "p.3"]
    assert sorted(ran) == [1, 2, 3]


def test_one_child_may_be_awaited_twice_at_once(place):
    flavor = Flavor("async")
    ran: list[int] = []
    square = squares(flavor, ran)

    @flavor.task
    async def eager_host() -> list[int]:
        child = start(square, 3)

        async def wait_for() -> int:
            return await child

        return list(await asyncio.gather(wait_for(), wait_for()))

    with place() as hf:
        assert hf.run(eager_host, id="p") == [9, 9]
    assert ran == [3]


@pytest.mark.parametrize("how", ["gather", "asyncio.gather"])
def test_a_sibling_that_asks_does_not_cut_short_a_tool_of_another(place, how):
    flavor = Flavor("async")
    asked, sent = Event(), []

    @flavor.tool
    async def slow_letter() -> str:
        await flavor.wait(asked)
        await asyncio.sleep(0.1)
        sent.append(1)
        return "sent"

    @flavor.task
    async def asks_first() -> str:
        asked.set()
        return await flavor.ask("Well?")

    @flavor.task
    async def sends() -> str:
        return await slow_letter()

    @flavor.task
    async def two_children() -> list[str]:
        children = start(sends, id="sender"), start(asks_first, id="asker")
        if how == "gather":
            return await flavor.gather(*(lambda c=c: c for c in children))
        return await asyncio.gather(*children)

    with place() as hf:
        with pytest.raises((Unanswered, InDoubt)):
            hf.run(two_children, id="p")
        sender, asker = ("sender", "asker")
        assert [c.status for c in hf.task(sender).calls] == ["completed"]
        hf.answer(asker, "yes")
        assert hf.run(two_children, id="p") == ["sent", "yes"]
    assert sent == [1]


# Crashes


@pytest.mark.parametrize("at", range(1, 14))
def test_a_crash_between_any_two_events_runs_the_child_once(flavor, files, monkeypatch, at):
    """Dies before the append of the n-th event of parent and child together."""
    ran: list[int] = []
    square = squares(flavor, ran)
    parent = family(flavor, square)
    append, count = Log.append, [0]

    def dying(log: Log, event, *args) -> None:
        # What the heartbeat appends is a thread's own: the process would die as a whole.
        count[0] += threading.current_thread().name != "holdfast heartbeat"
        if count[0] == at:
            count[0] += 1
            raise Crash
        append(log, event, *args)
        log.flush()

    monkeypatch.setattr(Log, "append", dying)
    with files() as hf, contextlib.suppress(Crash):
        assert hf.run(parent, id="p") == [1]
    with files() as hf:
        assert hf.run(parent, id="p") == [1]
        assert kinds_of(hf, "p").count("ChildStarted") == 1
        assert kinds_of(hf, "p").count("ChildEnded") == 1
        assert kinds_of(hf, "p.1").count("TaskCompleted") == 1
        assert [t.id for t in hf.tasks()] == ["p", "p.1"]
    assert len(ran) <= 2
    assert set(ran) == {1}


# Being told to stop


class Slow:
    """A child with a step that can be held up."""

    def __init__(self, flavor: Flavor) -> None:
        self.began, self.go_on = Event(), Event()
        self.seen: list[int] = []

        @flavor.step
        async def slow_step(n: int) -> int:
            self.seen.append(n)
            self.began.set()
            await flavor.wait(self.go_on)
            return n

        @flavor.task
        async def slow_child(n: int) -> int:
            return await slow_step(n) + await slow_step(n + 10)

        self.task = slow_child


@pytest.mark.parametrize("on_cancel", ["cancel", "leave"])
def test_children_are_cancelled_with_their_parent_or_left(flavor, other, place, on_cancel):
    slow = Slow(other)
    parent = family(flavor, slow.task, on_cancel=on_cancel)
    with place() as hf:
        running = Background(hf.run, parent, id="p")
        assert slow.began.wait(60)
        eventually(lambda: exists(hf, "p"))
        hf.cancel("p", because="enough")
        slow.go_on.set()
        with pytest.raises(TaskCancelled, match="enough"):
            running.result()
        eventually(lambda: hf.store.holder("tasks/p.1") is None)
        if on_cancel == "cancel":
            eventually(lambda: hf.task("p.1").status == "cancelled")
            assert "its parent was cancelled" in hf.task("p.1").state.because
        else:
            assert hf.task("p.1").status == "in_progress"
            assert hf.resume("p.1") == 12
        assert hf.task("p").status == "cancelled"


def test_children_nobody_drives_are_cancelled_with_their_parent(flavor, place):
    @flavor.task
    async def idle_child(n: int) -> None: ...

    @flavor.task
    async def crashing_parent() -> None:
        await flavor.start(idle_child, 1)
        await flavor.start(idle_child, 2, on_cancel="leave")
        raise Crash

    with place() as hf:
        with pytest.raises(Crash):
            hf.run(crashing_parent, id="p")
        assert hf.cancel("p") == "in_progress"  # there is something to do first
        with pytest.raises(TaskCancelled):
            hf.resume("p")
        assert [hf.task(id).status for id in ("p.1", "p.2")] == ["cancelled", "pending"]


def test_a_child_that_is_cancelled_alone_is_a_failure_to_its_parent(flavor, other, place):
    slow = Slow(other)

    @flavor.task
    async def surviving_parent() -> str:
        child = await flavor.start(slow.task, 1)
        try:
            return str(await flavor.outcome(child))
        except StepFailed as failed:
            return failed.failure.type

    with place() as hf:
        running = Background(hf.run, surviving_parent, id="p")
        assert slow.began.wait(60)
        eventually(lambda: exists(hf, "p.1"))
        hf.cancel("p.1")
        slow.go_on.set()
        assert running.result() == "TaskCancelled"
        assert (hf.task("p").status, hf.task("p.1").status) == ("completed", "cancelled")


def test_a_parent_that_is_paused_lets_go_of_its_child_too(flavor, other, place):
    slow = Slow(other)
    parent = family(flavor, slow.task)
    with place() as hf:
        running = Background(hf.run, parent, id="p")
        assert slow.began.wait(60)
        eventually(lambda: exists(hf, "p"))
        hf.pause("p")
        slow.go_on.set()
        with pytest.raises(TaskPaused) as paused:
            running.result()
        assert paused.value.task_id == "p"
        assert [c.status for c in hf.task("p.1").calls] == ["completed"]
        assert hf.resume("p") == [12]
    assert slow.seen == [1, 11]


def test_a_paused_child_stays_paused_when_its_parent_is_run(flavor, other, place):
    slow = Slow(other)
    parent = family(flavor, slow.task)
    with place() as hf:
        running = Background(hf.run, parent, id="p")
        assert slow.began.wait(60)
        eventually(lambda: exists(hf, "p.1"))
        hf.pause("p.1", because="hold on")
        slow.go_on.set()
        with pytest.raises(TaskPaused, match=r"p\.1"):
            running.result()
        with pytest.raises(TaskPaused, match="hold on"):
            hf.run(parent, id="p")
        assert hf.task("p.1").status == "paused"


def test_a_child_whose_code_changed_stops_its_parent_with_that_error(flavor, place):
    crash = [True]

    @flavor.step
    async def first_way(n: int) -> int:
        return n

    @flavor.task
    async def changing_child(n: int) -> int:
        if crash[0]:
            await first_way(n)
            raise Crash
        return await first_way(n + 1)

    parent = family(flavor, changing_child)
    with place() as hf:
        with pytest.raises(Crash):
            hf.run(parent, id="p")
        crash[0] = False
        running = Background(hf.run, parent, id="p")
        try:
            with pytest.raises(CodeChanged, match=r"p\.1"):
                running.result(1)
        finally:
            if not running.done:
                hf.cancel("p")
                with pytest.raises(TaskCancelled):
                    running.result()


def test_a_cancel_while_the_childs_lease_is_taken_leaves_the_child_to_others(files, monkeypatch):
    flavor = Flavor("async")
    taking, taken, creations = Event(), Event(), []

    @flavor.task
    async def late_child() -> str:
        return "ran"

    @flavor.task
    async def hasty_parent() -> str:
        child = await flavor.start(late_child, on_cancel="leave")
        return await flavor.outcome(child)

    with files() as hf:
        acquire = type(hf.store).acquire

        def slowly(store, streams, owner, lease_s):
            if "tasks/p.1" in streams:
                creations.append(1)
                if len(creations) == 2:  # the first made its log, this one is to drive it
                    taking.set()
                    assert taken.wait(60)
            return acquire(store, streams, owner, lease_s)

        monkeypatch.setattr(type(hf.store), "acquire", slowly)
        running = Background(hf.run, hasty_parent, id="p")
        assert taking.wait(60)
        eventually(lambda: exists(hf, "p"))
        told = Background(hf.cancel, "p")
        eventually(lambda: told.done)
        threading.Timer(0.2, taken.set).start()
        with pytest.raises(TaskCancelled):
            running.result()
        time.sleep(0.3)
        assert hf.store.holder("tasks/p.1") is None
        assert hf.resume("p.1") == "ran"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_child_that_ends_while_its_parent_looks_ends_once(flavor, files, monkeypatch):
    ran: list[int] = []
    square = squares(flavor, ran)
    outcome = Children.outcome

    def look(family: Children, id: str):
        found = outcome(family, id)
        if found is None and read_state(family._store, "tasks/p").seq:
            # Another process drives it to its end just now, and tells the parent of it.
            with Holdfast(family._store.url) as elsewhere:
                assert elsewhere.resume(id) == 1
            found = outcome(family, id)
        return found

    monkeypatch.setattr(Children, "outcome", look)
    with files() as hf:
        assert hf.run(family(flavor, square), id="p") == [1]
        assert kinds_of(hf, "p").count("ChildEnded") == 1
    assert ran == [1]


# In a worker


def test_a_worker_lets_go_of_a_parent_while_its_child_runs(flavor, other, place):
    slow = Slow(other)
    parent = family(flavor, slow.task)
    with place() as hf:
        handle = hf.start(parent, id="p")
        worker = Worker(hf, poll_s=0.02)
        working = Background(worker.run)
        assert slow.began.wait(60)
        eventually(lambda: worker.active == ("p.1",))
        assert hf.store.holder("tasks/p") is None
        assert hf.task("p").state.parked
        slow.go_on.set()
        assert handle.result(timeout_s=60) == [12]
        worker.stop()
        working.result()
    assert slow.seen == [1, 11]


def test_one_place_in_a_worker_is_enough_for_a_family(flavor, other, place):
    ran: list[int] = []
    parent = family(flavor, squares(other, ran), 3)
    with place() as hf:
        handle = hf.start(parent, id="p")
        Worker(hf, concurrency=1, poll_s=0.02).run_until_idle()
        assert handle.result(timeout_s=60) == [1, 4, 9]
    assert ran == [1, 2, 3]


def test_a_child_that_ends_before_its_parent_was_parked_wakes_it(flavor, files, monkeypatch):
    ran: list[int] = []
    square = squares(flavor, ran)
    outcome, looked = Children.outcome, []

    def look(family: Children, id: str):
        found = outcome(family, id)
        if not looked:
            looked.append(id)
            with Holdfast(family._store.url) as elsewhere:  # it ends after the parent has looked
                assert elsewhere.resume(id) == 1
        return found

    monkeypatch.setattr(Children, "outcome", look)
    with files() as hf:
        parent = family(flavor, square)
        hf.start(parent, id="p")
        with contextlib.suppress(TaskWaiting):  # as a worker drives it, which takes up nothing else
            hf._driving.drive(hf._driving.taking("p", parent.holdfast_spec), 1.0)
        Worker(hf, poll_s=0.02).run_until_idle()
        assert hf.task("p").status == "completed"
    assert ran == [1]


def test_a_child_cancelled_before_anybody_drove_it_wakes_its_parent(flavor, files):
    @flavor.task
    async def never_driven(n: int) -> None: ...

    parent = family(flavor, never_driven)
    with files() as hf:
        hf.start(parent, id="p")
        taking = hf._driving.taking("p", parent.holdfast_spec)
        with pytest.raises(TaskWaiting, match="waits for its child"):
            hf._driving.drive(taking, 1.0)  # as a worker would, which takes up nothing else
        assert hf.cancel("p.1") == "cancelled"
        Worker(hf).run_until_idle()
        assert hf.task("p").status == "failed"


def test_a_child_that_asks_in_a_worker_is_answered_and_its_parent_goes_on(flavor, other, place):
    @other.task
    async def asks_worker(n: int) -> str:
        return await other.ask("Well?", id="q")

    with place() as hf:
        handle = hf.start(family(flavor, asks_worker), id="p")
        worker = Worker(hf, poll_s=0.02)
        working = Background(worker.run)
        eventually(lambda: exists(hf, "p.1") and hf.task("p.1").status == "awaiting_user")
        eventually(lambda: worker.active == ())
        hf.answer("p.1", "yes")
        assert handle.result(timeout_s=60) == ["yes"]
        worker.stop()
        working.result()
