"""Others can watch a task while it runs: its events as they come, and how far it says it is."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    HoldfastError,
    LogDamaged,
    NotFinished,
    Retry,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    Worker,
    ask,
    current,
    each,
    gather,
    note,
    progress,
    sleep,
    start,
    step,
    task,
)
from holdfast.core.events import Progressed
from holdfast.core.spec import registry
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import acquire_one, post_to
from holdfast.log.waypoints import EVERY
from holdfast.stores.memory import MemoryStore
from tests.flavors import Crash

gate = threading.Event()


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    # What this module defines is all there is, and what a test defines ends with it.
    found = registry._found.items()
    ours = {k: {w: s for w, s in v.items() if w.startswith(f"{__name__}.")} for k, v in found}
    monkeypatch.setattr(registry, "_found", ours)
    gate.clear()
    yield
    gate.set()


@pytest.fixture(params=["memory", "files"])
def opened(request, tmp_path) -> Callable[[], Holdfast]:
    """Opens the same store once more, as another process would."""
    if request.param == "files":
        return lambda: Holdfast(tmp_path / "w", sync=False)
    store = MemoryStore()
    return lambda: Holdfast(store)


@pytest.fixture
def hf(opened) -> Iterator[Holdfast]:
    with opened() as hf:
        yield hf


@step
def wait_for_it(n: int) -> int:
    if not gate.wait(60):
        raise TimeoutError("nobody opened the gate")
    return n


@step
def one(n: int) -> int:
    return n


@task
def two_steps() -> int:
    progress("begun", done=0, total=2)
    one(1)
    progress("waiting", done=1, total=2)
    wait_for_it(2)
    progress("done", done=2, total=2)
    return 3


def in_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def eventually(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    give_up_at = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
    return found


def kinds(events: Any) -> list[str]:
    return [type(event).__name__ for event in events]


# Following


def test_events_come_while_the_task_runs_and_end_with_it(opened):
    with opened() as hf, opened() as other:
        view = hf.start(two_steps, id="t").view
        following = other.task("t").follow(poll_s=0.01)
        driver, ended = in_thread(lambda: hf.resume("t"))
        seen = []
        for event in following:
            seen.append(event)
            if isinstance(event, Progressed) and event.text == "waiting":
                break
        assert not ended
        gate.set()
        seen += list(following)
        driver.join(60)
        assert ended == [3]
        log = list(hf.task("t").events())
        assert [event.seq for event in seen] == list(range(2, len(log) + 1))
        assert seen == log[view.seq :]
        assert kinds(seen)[-1] == "TaskCompleted"


def test_a_running_step_is_seen_to_run(opened):
    with opened() as hf, opened() as other:
        hf.start(two_steps, id="t")
        driver, _ = in_thread(lambda: hf.resume("t"))
        for event in other.task("t").follow(poll_s=0.01):
            if getattr(event, "name", "") == "wait_for_it":
                break
        gate.set()
        driver.join(60)


def test_following_a_finished_task_gives_what_came_after_the_view(hf):
    gate.set()
    before = hf.start(two_steps, id="t").view
    hf.resume("t")
    assert kinds(before.follow())[0] == "Claimed"
    assert list(hf.task("t").follow()) == []


def test_a_task_that_fails_or_is_cancelled_ends_its_following(hf):
    @task
    def failing_while_followed() -> None:
        one(1)
        raise ValueError("broken")

    view = hf.start(failing_while_followed, id="f").view
    with pytest.raises(TaskFailed):
        hf.resume("f")
    assert kinds(view.follow())[-1] == "TaskErrored"
    view = hf.start(two_steps, id="c").view
    hf.cancel("c")
    assert kinds(view.follow())[-1] == "TaskStopped"


def test_a_crash_and_another_driver_are_followed_through(opened):
    dead = [True]

    @task
    def dying() -> int:
        one(1)
        if dead[0]:
            raise Crash
        return one(2)

    with opened() as watcher:
        with opened() as hf:
            hf.start(dying, id="t")
        view = watcher.task("t")  # not in the thread, which may begin when the task has ended
        follower, seen = in_thread(lambda: kinds(view.follow(poll_s=0.01)))
        with pytest.raises(Crash), opened() as hf:
            hf.resume("t")
        dead[0] = False
        with opened() as hf:
            hf.resume("t")
        follower.join(60)
        assert seen[0].count("Claimed") == 2
        assert seen[0][-1] == "TaskCompleted"


def test_a_task_that_is_deleted_while_it_is_followed_says_so(hf):
    view = hf.start(two_steps, id="t").view
    follower, ended = in_thread(lambda: list(view.follow(poll_s=0.01)))
    delete(hf, "t")
    follower.join(60)
    assert isinstance(ended[0], TaskNotFound)


def test_so_does_one_that_was_deleted_before_it_is_followed(hf):
    view = hf.start(two_steps, id="t").view
    delete(hf, "t")
    follower, ended = in_thread(lambda: list(view.follow(poll_s=0.01)))
    follower.join(10)
    assert isinstance(ended[0], TaskNotFound)


class DeletedAtARead(MemoryStore):
    """Deletes the task right before the read with a given number."""

    reads = 0

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        self.reads -= 1
        if self.reads == 0:
            self.delete(acquire_one(self, "tasks/t", "me", 60))
        return super().read(stream, after_seq, backwards=backwards)


@pytest.mark.parametrize("at", range(1, 13))
def test_so_does_one_that_is_deleted_before_any_read_of_its_follower(at):
    store = DeletedAtARead()
    with Holdfast(store) as hf:
        view = hf.start(two_steps, id="t").view
        store.reads = at
        follower, ended = in_thread(lambda: list(view.follow(poll_s=0.01)))
        follower.join(60)
        assert isinstance(ended[0], TaskNotFound)


def delete(hf: Holdfast, task_id: str) -> None:
    hf.store.delete(acquire_one(hf.store, f"tasks/{task_id}", "me", 60))


def test_damage_that_comes_while_a_task_is_followed_is_reported(tmp_path):
    with Holdfast(tmp_path / "w", sync=False) as hf:
        view = hf.start(two_steps, id="t").view
        log = tmp_path / "w/tasks/t/events.jsonl"
        log.write_bytes(log.read_bytes() + b'{"type":"claimed","seq":2,"sum":"00"}\n')
        with pytest.raises(LogDamaged, match="event 2"):
            list(view.follow(poll_s=0.01))


def test_a_torn_tail_is_waited_for_not_reported(tmp_path):
    gate.set()
    with Holdfast(tmp_path / "w", sync=False) as hf:
        hf.run(two_steps, id="t")
    log = tmp_path / "w/tasks/t/events.jsonl"
    data = log.read_bytes()
    log.write_bytes(data[: len(data) - 40])
    with Holdfast(tmp_path / "w", sync=False) as hf:
        view = hf.task("t")
        follower, seen = in_thread(lambda: kinds(view.follow(poll_s=0.01)))
        time.sleep(0.05)
        assert not seen
        with log.open("ab") as file:
            file.write(data[len(data) - 40 :])
        follower.join(60)
        assert seen == [["TaskCompleted"]]


# The handle


def test_a_handle_tells_every_event_from_the_first_on(hf):
    gate.set()
    handle = hf.start(two_steps, id="t")
    worker, _ = in_thread(Worker(hf, poll_s=0.02).run_until_idle)
    events = list(handle.events())
    worker.join(60)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert kinds(events)[0] == "TaskCreated"
    assert kinds(events)[-1] == "TaskCompleted"
    assert handle.result(timeout_s=60) == 3
    assert handle.status == "completed"


def test_a_handle_waits_for_the_result_and_not_for_ever(hf):
    handle = hf.start(two_steps, id="t")
    with pytest.raises(NotFinished, match="is a worker running"):
        handle.result(timeout_s=0.02)
    driver, _ = in_thread(lambda: hf.resume("t"))
    eventually(lambda: handle.status == "in_progress")
    with pytest.raises(NotFinished) as late:
        handle.result(timeout_s=0.02)
    assert isinstance(late.value, TimeoutError)
    gate.set()
    assert handle.result(timeout_s=60) == 3
    driver.join(60)


def test_a_handle_raises_what_the_task_ended_with(hf):
    @task
    def doomed() -> None:
        raise ValueError("doomed from the start")

    handle = hf.start(doomed, id="d")
    Worker(hf).run_until_idle()
    with pytest.raises(TaskFailed, match="doomed from the start"):
        handle.result(timeout_s=60)
    handle = hf.start(two_steps, id="t")
    handle.cancel(because="changed my mind")
    with pytest.raises(TaskCancelled, match="changed my mind"):
        handle.result(timeout_s=60)


# Progress


def said(hf: Holdfast, id: str = "t") -> list[tuple[str, str]]:
    return [(e.scope, e.text) for e in hf.task(id).events() if isinstance(e, Progressed)]


def test_progress_is_said_once_however_often_a_task_is_resumed(opened):
    dead = [True]

    @task
    def chatty() -> int:
        for n in range(3):
            progress(f"before {n}", done=n, total=3)
            one(n)
            progress(f"after {n}")
            if n == 1 and dead[0]:
                raise Crash
        return 3

    for _ in range(2):
        with pytest.raises(Crash), opened() as hf:
            hf.run(chatty, id="t")
    dead[0] = False
    with opened() as hf:
        hf.run(chatty, id="t")
        texts = [text for _, text in said(hf)]
        assert texts == [f"{when} {n}" for n in range(3) for when in ("before", "after")]
        ((_, last),) = hf.task("t").progress
        assert (last.text, last.done) == ("after 2", None)


def test_progress_of_steps_attempts_and_branches_is_told_apart(hf):
    tries = []

    @step(retry=Retry(attempts=2, delay_s=0, jitter=0))
    def unsteady() -> int:
        progress(f"try {current().attempt}")
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("once more")
        return 1

    @step
    def item(n: int) -> int:
        progress(f"item {n}", done=n)
        return n

    @task
    def many_strands() -> int:
        progress("begun")
        unsteady()
        gather(lambda: progress("left"), lambda: progress("right"))
        each(item, [1, 2, 3])
        return 1

    hf.run(many_strands, id="t")
    scopes = dict(hf.task("t").progress)
    assert {progress.text for progress in scopes.values()} == {
        "begun", "try 1", "try 2", "left", "right", "item 1", "item 2", "item 3",
    }  # fmt: skip
    assert len(scopes) == 8
    assert all(text for _, text in said(hf))


def test_progress_outside_a_task_or_of_no_text_is_refused(hf):
    with pytest.raises(HoldfastError, match="outside a task"):
        progress("nobody hears it")

    @task
    def mumbling() -> None:
        progress(3)  # type: ignore[arg-type]

    with pytest.raises(TaskFailed, match="BadInput"):
        hf.run(mumbling, id="t")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "half", b"1"])
def test_progress_that_is_no_number_leaves_the_log_readable(hf, bad):
    @task(name="odd_progress")
    def odd_progress() -> int:
        try:
            progress("odd", done=bad)
        except HoldfastError:
            one(1)
        return 1

    assert hf.run(odd_progress, id="t") == 1
    assert hf.task("t").status == "completed"
    assert kinds(hf.task("t").events())[-1] == "TaskCompleted"


# From an event loop


def test_an_event_loop_follows_a_task_and_goes_on_meanwhile(opened):
    async def main() -> tuple[list[int], int]:
        seen, beats = [], 0
        with opened() as hf, opened() as other:
            await hf.astart(two_steps, id="t")
            driver, _ = in_thread(lambda: hf.resume("t"))

            async def beat() -> None:
                nonlocal beats
                while True:
                    await asyncio.sleep(0)
                    beats += 1

            beating = asyncio.create_task(beat())
            async for event in other.follow("t", after=1, poll_s=0.01):
                seen.append(event.seq)
                if isinstance(event, Progressed) and event.text == "waiting":
                    beats = 0
                    asyncio.get_running_loop().call_later(0.05, gate.set)
            beating.cancel()
            driver.join(60)
            assert seen == [event.seq for event in other.task("t").events()][1:]
            return seen, beats

    seen, beats = asyncio.run(main())
    assert seen[0] == 2
    assert beats > 10  # the loop turned while the follower waited


def test_a_follower_comes_back_after_any_event(hf):
    gate.set()
    handle = hf.start(two_steps, id="t")
    hf.resume("t")
    log = list(handle.view.events())
    for after in range(len(log) + 1):
        assert list(hf.follow("t", after=after)) == log[after:]
        assert list(hf.task("t").follow(after=after)) == log[after:]
        assert list(hf.handle("t").events(after=after)) == log[after:]


@task
def many_notes(count: int) -> int:
    for number in range(count):
        note(f"note {number}")
    return count


class Counting(MemoryStore):
    """Counts the lines of logs that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.lines = 0

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        for line in super().read(stream, after_seq, backwards=backwards):
            self.lines += 1
            yield line


def test_a_follower_does_not_read_what_comes_before_the_event_it_saw():
    store = Counting()
    with Holdfast(store) as hf:
        hf.run(many_notes, 3 * EVERY, id="t")
        last = hf.task("t").seq
        for after in (last, last - 1, last - 10, 2 * EVERY + 5):
            store.lines = 0
            assert [e.seq for e in hf.follow("t", after=after)] == [*range(after + 1, last + 1)]
            assert store.lines < EVERY + (last - after) + 20


def test_a_follower_that_came_back_goes_on_across_a_rewind(hf):
    gate.set()
    hf.run(two_steps, id="t")
    last = hf.task("t").seq
    hf.rewind("t", to=1)
    following = hf.follow("t", after=last)
    assert kinds([next(following)]) == ["Rewound"]
    assert hf.resume("t") == 3
    newest = hf.task("t").seq
    assert [e.seq for e in following] == [*range(last + 2, newest + 1)]
    fork = hf.fork("t", at=2, effects="stub").id
    shared = [event.seq for event in hf.task(fork).events()]
    hf.resume(fork)
    whole = [event.seq for event in hf.task(fork).events()]
    for after in (1, shared[-1] - 1, shared[-1], whole[-1] - 1):
        assert [e.seq for e in hf.follow(fork, after=after)] == whole[after:]


def test_a_view_shows_no_event_past_its_own(hf):
    gate.set()
    view = hf.start(two_steps, id="t").view
    hf.resume("t")
    assert [event.seq for event in view.events()] == [1]
    assert kinds(hf.task("t").events())[-1] == "TaskCompleted"


def test_the_handle_of_a_task_that_exists(hf):
    gate.set()
    hf.start(two_steps, id="t")
    assert hf.handle("t").status == "pending"
    hf.resume("t")
    assert hf.handle("t").result() == 3
    with pytest.raises(TaskNotFound, match="no task 'nobody'"):
        hf.handle("nobody")


def test_an_answer_on_its_way_leaves_no_question_open(opened):
    @task
    def asking() -> list[Any]:
        return list(
            gather(lambda: ask("A?", bool), lambda: ask("B?", bool), lambda: wait_for_it(1))
        )

    with opened() as hf, opened() as other:
        hf.start(asking, id="a")
        driver, _ = in_thread(lambda: hf.resume("a"))
        eventually(lambda: len(other.task("a").questions) == 2)
        hold = other.task("a")
        path = hold.questions[0].path
        # As `answer` leaves it for the process that holds the task, before that has looked.
        post_to(other.store, stream_of("a"), f"answer-{path}-1", b"{}")
        assert [call.path for call in hold.questions] != [path]
        assert len(hold.questions) == 1
        gate.set()
        hf.cancel("a")
        driver.join(60)


# A task that did not end in time


def test_not_finished_says_what_the_task_waits_for(hf):
    @task
    def asks_once() -> bool:
        return ask("Sure?", bool, id="sure")

    @task
    def naps() -> None:
        sleep(3600)

    @task
    def has_a_child() -> None:
        start(naps, id="napping").result()

    def said(id: str) -> str:
        with pytest.raises(NotFinished) as error:
            hf.handle(id).result(timeout_s=0.01)
        return str(error.value)

    hf.start(asks_once, id="asks")
    assert said("asks").endswith("did not end within 0.01 s (is a worker running?)")
    hf.start(has_a_child, id="parent")
    Worker(hf, patience_s=0.01).run_until_idle()
    assert "asks (bool): Sure?" in said("asks")
    assert "it waits for task 'napping'" in said("parent")
    assert "it sleeps until" in said("napping")
    hf.pause("napping", because="lunch")
    assert "paused (lunch)" in said("napping")
