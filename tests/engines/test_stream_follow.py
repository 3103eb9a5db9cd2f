"""A step that streams can be followed from anywhere, and come back to: live, and after its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    HoldfastError,
    Redact,
    Retry,
    StepFailed,
    StreamBroken,
    StreamPart,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    checkpoint,
    restore,
    step,
    task,
)
from holdfast.log.parts import PAGE_BYTES, page_names
from holdfast.log.waypoints import EVERY
from holdfast.stores.memory import MemoryStore
from tests.flavors import BOUND_S, Crash
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

KEY = b"k" * 32
go: dict[int, threading.Event] = {}
"""Before each part the step waits for the event of its number, if there is one."""
die_at: set[int] = set()


@pytest.fixture(autouse=True)
def fresh():
    go.clear()
    die_at.clear()
    yield
    for event in go.values():
        event.set()


@pytest.fixture(params=["memory", "files", "sqlite", "postgres", "sealed"])
def opened(request, tmp_path) -> Callable[[], Holdfast]:
    """Opens the same store once more, as another process would."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: Holdfast(store)
    if request.param == "sealed":
        return lambda: Holdfast(tmp_path / "s", sync=False, key=KEY, sign_key=KEY)
    url = {"files": str(tmp_path / "w"), "sqlite": f"sqlite:///{tmp_path}/a.db"}.get(request.param)
    return lambda: Holdfast(url or request.getfixturevalue("postgres_url"), sync=False)


@pytest.fixture
def local(tmp_path) -> Callable[[], Holdfast]:
    """The same where the store makes no difference."""
    return lambda: Holdfast(tmp_path / "w", sync=False)


def _wait_before(k: int) -> None:
    if k in go and not go[k].wait(BOUND_S):
        raise TimeoutError(f"nobody let part {k} go")
    if k in die_at:
        die_at.discard(k)
        raise Crash


@step
def words(n: int) -> Iterator[str]:
    for k in range(1, n + 1):
        _wait_before(k)
        yield f"word {k}"


@step
async def awords(n: int) -> AsyncIterator[str]:
    for k in range(1, n + 1):
        await asyncio.to_thread(_wait_before, k)
        yield f"word {k}"


@step
def one() -> int:
    return 1


@task(name="reading_aloud")
def reading(n: int) -> int:
    return len(list(words(n)))


@task(name="areading_aloud")
async def areading(n: int) -> int:
    return len([word async for word in awords(n)])


class Driven:
    """A task that is driven in a thread, by an object of its own."""

    def __init__(self, opened: Callable[[], Holdfast], fn: Any, *args: Any) -> None:
        self._given = (opened, fn, args)
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._drive)
        with opened() as hf:
            hf.start(fn, *args, id="t")
        self._thread.start()

    def _drive(self) -> None:
        opened, fn, args = self._given
        try:
            with opened() as hf:
                hf.run(fn, *args, id="t")
        except BaseException as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(BOUND_S)
        assert not self._thread.is_alive()


def told(parts: Any) -> list[tuple[int, Any]]:
    return [(part.number, part.value) for part in parts]


def numbered(n: int, first: int = 1) -> list[tuple[int, str]]:
    return [(k, f"word {k}") for k in range(first, n + 1)]


@pytest.mark.parametrize("agent", [reading, areading])
def test_parts_are_told_while_the_step_runs_and_the_reader_can_come_back(opened, agent):
    go[4] = threading.Event()
    driven = Driven(opened, agent, 6)
    with opened() as hf:
        first = list(islice(hf.stream("t", 1), 3))
        assert told(first) == numbered(3)
        again = hf.stream("t", 1, after=first[1].id)
        assert told([next(again)]) == [(3, "word 3")]
        go[4].set()
        assert told(again) == numbered(6, 4)
        assert told(hf.stream("t", 1, after=2)) == numbered(6, 3)
    driven.join()


@pytest.mark.parametrize("agent", [reading, areading])
def test_on_an_event_loop_the_same_is_told(opened, agent):
    go[4] = threading.Event()
    driven = Driven(opened, agent, 6)

    async def follow() -> list[StreamPart]:
        got = []
        with opened() as hf:
            async for part in hf.stream("t", 1):
                got.append(part)
                if part.number == 3:
                    go[4].set()
        return got

    assert told(asyncio.run(follow())) == numbered(6)
    driven.join()


def test_a_step_is_named_by_its_path_or_its_name_and_may_be_made_later(opened):
    @task(name="later")
    def later() -> int:
        return one() + len(list(words(2)))

    go[1] = threading.Event()
    with opened() as hf:
        hf.start(later, id="t")
        coming = hf.stream("t", "words")
        driven = threading.Thread(target=lambda: hf.resume("t"))
        driven.start()
        go[1].set()
        assert told(coming) == numbered(2)
        assert told(hf.stream("t", "2")) == told(hf.stream("t", 2)) == numbered(2)
        driven.join(BOUND_S)


def test_of_several_calls_of_one_name_the_newest_is_followed(local):
    @task(name="twice_streamed")
    def twice() -> int:
        return len([*words(1), *words(3)])

    with local() as hf:
        hf.run(twice, id="t")
        assert told(hf.stream("t", "words")) == numbered(3)
        assert told(hf.stream("t", 1)) == numbered(1)


# Crashes


@pytest.mark.parametrize("agent", [reading, areading])
def test_after_a_crash_the_reader_learns_that_the_step_began_anew(opened, agent):
    go[5] = threading.Event()
    die_at.add(5)
    driven = Driven(opened, agent, 6)
    with opened() as hf:
        follower = hf.stream("t", 1)
        first = list(islice(follower, 4))
        assert {part.attempt for part in first} == {1}
        go[5].set()
        driven.join()
        assert isinstance(driven.error, Crash)
        with opened() as other:
            other.run(agent, 6, id="t")
        rest = list(follower)
        assert rest[0].begins_anew
        assert told(rest[1:]) == numbered(6)
        assert {part.attempt for part in rest} == {2}
        # So does one that comes back only now, and one that had it all of the second attempt is
        # told nothing.
        for after in (first[0].id, first[3].id):
            back = list(hf.stream("t", 1, after=after))
            assert [part.number for part in back] == [0, 1, 2, 3, 4, 5, 6]
        assert told(hf.stream("t", 1, after=rest[3].id)) == numbered(6, 4)
        assert told(hf.stream("t", 1, after=rest[-1].id)) == []


def test_a_reader_that_has_more_than_the_whole_is_told_it_all_anew(local):
    with local() as hf:
        hf.run(reading, 2, id="t")
        assert told(hf.stream("t", 1, after=3)) == [(0, None), *numbered(2)]


def test_an_attempt_that_yields_nothing_after_one_that_did_ends_with_nothing(local):
    left = [3]

    @step(name="fewer_and_fewer")
    def fewer() -> Iterator[int]:
        yield from range(left[0])
        if left[0]:
            go[1].wait(BOUND_S)
            raise Crash

    @task(name="ends_with_nothing")
    def agent() -> int:
        return len(list(fewer()))

    go[1] = threading.Event()
    driven = Driven(local, agent)
    with local() as hf:
        follower = hf.stream("t", "fewer_and_fewer")
        assert [part.value for part in islice(follower, 3)] == [0, 1, 2]
        left[0] = 0
        go[1].set()
        driven.join()
        with local() as other:
            other.run(agent, id="t")
        assert [part.begins_anew for part in follower] == [True]


@pytest.mark.parametrize("how", ["dropped", "torn", "of another writer"])
def test_whatever_becomes_of_what_is_kept_beside_the_log_the_whole_is_told(opened, how):
    go[4] = threading.Event()
    driven = Driven(opened, reading, 6)
    with opened() as hf:
        follower = hf.stream("t", 1)
        assert told(islice(follower, 3)) == numbered(3)
        (name,) = page_names(hf.store, "tasks/t")
        if how == "dropped":
            hf.store.drop_side("tasks/t", "derived", name)
        elif how == "torn":
            hf.store.put_side("tasks/t", "derived", name, b'{"path":"1","att')
        else:
            (post,) = hf.store.get_side(["tasks/t"], "derived", [name])
            lied = post.data.replace(b"word 2", b"WORD 2").replace(b'"epoch":', b'"epoch":9')
            hf.store.put_side("tasks/t", "derived", name, lied)
        go[4].set()
        seen = told(follower)
        ended = seen[seen.index((0, None)) + 1 :] if (0, None) in seen else [*numbered(3), *seen]
        assert ended == numbered(6)
    driven.join()


def test_when_the_step_has_ended_nothing_is_left_beside_the_log(opened):
    go[4] = threading.Event()
    driven = Driven(opened, reading, 6)
    with opened() as hf:
        list(islice(hf.stream("t", 1), 3))
        assert page_names(hf.store, "tasks/t")
        go[4].set()
        driven.join()  # it closes its store
        assert not page_names(hf.store, "tasks/t")
        assert hf.verify("t").sound


def test_what_a_killed_writer_left_goes_when_the_next_one_streams(local):
    go[4] = threading.Event()
    die_at.add(4)
    driven = Driven(local, reading, 6)
    with local() as hf:
        list(islice(hf.stream("t", 1), 3))
        (left,) = page_names(hf.store, "tasks/t")
        (post,) = hf.store.get_side(["tasks/t"], "derived", [left])
        go[4].set()
        driven.join()
        hf.store.put_side("tasks/t", "derived", left, post.data)  # a kill drops nothing
        go[4].clear()
        again = threading.Thread(target=lambda: hf.resume("t"))
        again.start()
        while page_names(hf.store, "tasks/t") in ([left], []):  # until it is that of the next one
            assert again.is_alive()
        go[4].set()
        again.join(BOUND_S)


# Long ones


def test_a_stream_of_many_pages_is_told_whole_at_any_place(local):
    count = 3 * PAGE_BYTES // 100

    @step(name="at_length")
    def at_length() -> Iterator[str]:
        for k in range(1, count + 1):
            if k % 200 == 0:
                go[k].wait(BOUND_S)
            yield f"{k:0100}"

    @task(name="goes_on_at_length")
    def agent() -> int:
        return len(list(at_length()))

    go.update({k: threading.Event() for k in range(200, count + 1, 200)})
    driven = Driven(local, agent)
    with local() as hf:
        follower, live = hf.stream("t", "at_length", poll_s=0.01), list[StreamPart]()
        for k, event in go.items():
            live += islice(follower, k - 1 - len(live))  # so there is a page for it
            if k == 400:
                assert len(page_names(hf.store, "tasks/t")) == 2
                assert next(hf.stream("t", 1, after=live[300].id)).number == 302
            event.set()
        driven.join()
        assert [part.number for part in [*live, *follower]] == list(range(1, count + 1))


def test_a_stream_far_down_a_long_log_and_before_a_checkpoint_is_found(local):
    @task(name="with_checkpoints")
    def agent() -> int:
        done = restore(0)
        for n in range(done, 3):
            list(words(2 + n))
            checkpoint(n + 1)
        return 3

    @task(name="long_before")
    def long_before() -> int:
        for _ in range(EVERY):
            one()
        return len(list(words(3)))

    with local() as hf:
        hf.run(agent, id="t")
        assert told(hf.stream("t", "1")) == numbered(2)
        assert told(hf.stream("t", "@1.1")) == numbered(3)
        assert told(hf.stream("t", "words")) == numbered(4)
        hf.run(long_before, id="long")
        assert told(hf.stream("long", "words", after=1)) == numbered(3, 2)
        assert hf.snapshot("long", seq=EVERY + 1).seq == EVERY + 1


def test_a_task_that_was_rewound_streams_anew(local):
    with local() as hf:
        hf.run(reading, 3, id="t")
        last = list(hf.stream("t", 1))[-1]
        hf.rewind("t", to=1)
        hf.resume("t")
        assert told(hf.stream("t", 1, after=last.id)) == [(0, None), *numbered(3)]


# Ends that are none


@step(retry=Retry(attempts=2, delay_s=0.001))
def failing(parts: int) -> Iterator[int]:
    yield from range(parts)
    raise ValueError("no more")


@task
def fails(parts: int) -> int:
    return len(list(failing(parts)))


@pytest.mark.parametrize("parts", [0, 2])
@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_step_that_failed_tells_its_parts_and_raises(local, parts, kind):
    async def aread(stream: Any, got: list[Any]) -> None:
        async for part in stream:
            got.append(part.value)

    got: list[Any] = []
    with local() as hf:
        with pytest.raises(TaskFailed):
            hf.run(fails, parts, id="t")
        with pytest.raises(StepFailed, match="no more"):
            if kind == "sync":
                got.extend(part.value for part in _kept(hf.stream("t", 1), got))
            else:
                asyncio.run(aread(hf.stream("t", 1), got))
    assert got == list(range(parts))


def _kept(parts: Any, got: list[Any]) -> Iterator[Any]:
    for part in parts:
        got.append(part.value)
    yield from ()


def test_a_task_that_ends_in_mid_stream_breaks_the_stream(local):
    go[3] = threading.Event()
    driven = Driven(local, areading, 4)
    with local() as hf:
        follower = hf.stream("t", 1)
        assert told(islice(follower, 2)) == numbered(2)
        hf.cancel("t")
        with pytest.raises(StreamBroken, match=r"is cancelled.*awords"):
            list(follower)
    go[3].set()
    driven.join()
    assert isinstance(driven.error, TaskCancelled)


@pytest.mark.parametrize(
    ("given", "after", "error"),
    [
        (("t", 2), 0, "never made the call '2'"),
        (("t", "wrods"), 0, "never made the call"),
        (("nobody", 1), 0, "no task 'nobody'"),
        (("t", 1), -1, "after=-1 must be"),
        (("t", 1), "x-1", "must be how many parts"),
        (("t", 1), True, "must be how many parts"),
        (("t", 1), None, "must be how many parts"),
        (("plain", 1), 0, "step 1, one, does not stream"),
    ],
)
def test_what_makes_no_sense_is_refused(local, given, after, error):
    @task(name="plainly")
    def plainly() -> int:
        return one()

    with local() as hf:
        hf.run(reading, 1, id="t")
        hf.run(plainly, id="plain")
        with pytest.raises((BadInput, TaskNotFound), match=error):
            list(hf.stream(*given, after=after))


def test_what_must_not_be_in_the_log_is_not_beside_it_either(tmp_path):
    go[1] = threading.Event()

    @step(name="leaks")
    def leaks() -> Iterator[str]:
        yield "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
        go[1].wait(BOUND_S)

    @task(name="leaking")
    def leaking() -> int:
        return len(list(leaks()))

    def opened() -> Holdfast:
        return Holdfast(tmp_path / "w", sync=False, redact=Redact(refuse=True))

    driven = Driven(opened, leaking)
    with opened() as hf:
        while "1" not in hf.task("t").state.calls:
            pass
        found = hf.stream("t", 1)
        assert list(found._news()) == []
        go[1].set()
        with pytest.raises(HoldfastError):
            list(found)
    driven.join()
    assert not any(
        b"sk-proj" in path.read_bytes() for path in (tmp_path / "w").rglob("*") if path.is_file()
    )
