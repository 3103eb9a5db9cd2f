"""Limits around steps and tools: shared by all, recorded, weighed, settled, and given back."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import ClassVar

import pytest

from holdfast import BadInput, Holdfast, Limit, Retry, Worker, gather, step, task, tool
from holdfast.agent import Reply, Usage, assistant
from holdfast.core.events import Parked, Stepped, TimerSet
from holdfast.core.limits import Wish, admit, leave
from holdfast.core.queues import QueuePlaces, advance
from holdfast.engines import limits
from holdfast.testing import Clock
from holdfast.views.metrics import standing

NOW = 1_800_000_000.0
AT = datetime.fromtimestamp(NOW, UTC)
made: list[tuple[int, datetime]] = []
clock = Clock()

slow = Limit("slow", per_minute=6)
tokens = Limit("tokens", tokens_per_minute=1000)
single = Limit("single", concurrency=1)
shop = Limit("shop", per_minute=1)


@step(limit=slow)
def look(n: int) -> int:
    made.append((n, clock.now))
    return n


@task(name="limits_looks")
def looks(n: int) -> int:
    return look(n)


@step(limit=slow)
async def alook(n: int) -> int:
    made.append((n, clock.now))
    return n


@task(name="limits_alooks")
async def alooks(n: int) -> int:
    return sum(await asyncio.gather(alook(n), alook(n + 1)))


@step(limit=slow)
def stream(n: int) -> Iterator[int]:
    made.append((n, clock.now))
    yield n


@task(name="limits_streams")
def streams(n: int) -> list[int]:
    return list(stream(n))


@step(limit=tokens.of(tokens=lambda n, used: n))
def think(n: int, used: int) -> Reply:
    made.append((n, clock.now))
    return Reply(assistant("hm"), Usage(used, 0))


@task(name="limits_thinks")
def thinks(n: int, used: int) -> None:
    think(n, used)


@tool(limit=shop.of(key="customer"), in_doubt="retry")
def sell(customer: str) -> str:
    made.append((0, clock.now))
    return customer


@task(name="limits_sells")
def sells(customer: str) -> str:
    return sell(customer)


@pytest.fixture(autouse=True)
def _nothing_yet():
    global clock
    made.clear()
    clock = Clock(skips=True)


def opened(url: str = "memory://") -> Holdfast:
    return Holdfast(url, clock=clock)


# What is decided.


def chosen(limit: Limit, arrivals: list[tuple[float, int]], jitter: float = 0.0) -> list[float]:
    """When calls that arrive at these times begin, if each comes again when it is told to."""
    state, starts = QueuePlaces(), list[float]()
    waiting: list[tuple[float, int, int, float | None]] = [
        (at, number, weight, None) for number, (at, weight) in enumerate(arrivals)
    ]
    while waiting:
        at, number, weight, told = waiting.pop(waiting.index(min(waiting, key=lambda w: w[:2])))
        wish = Wish(f"c{number}", "t", "me", weight, is_its_turn=told is not None, chance=0.5)
        changed, until = admit(state, limit, wish, AT, at)
        if changed is not None:
            advance(state, changed)
        if until is None:
            starts.append(at)
        else:
            assert until > at
            waiting.append((until + jitter, number, weight, until))
    return starts


@pytest.mark.parametrize("count", [3, 60, 500])
def test_no_minute_sees_more_than_its_share_and_those_that_wait_get_all_of_it(count):
    starts = chosen(Limit("l", per_minute=count), [(NOW + n / 50, 0) for n in range(3 * count)])
    most = max(sum(at <= other < at + 60 for other in starts) for at in starts)
    assert 0.9 * count <= most <= count
    assert starts[-1] - starts[0] < 3.4 * 60


def test_those_that_wait_go_in_the_order_in_which_they_came_and_are_asked_once():
    asked, real = list[str](), admit
    limit, state = Limit("l", per_minute=60), QueuePlaces()

    def ask(n: int, at: float, is_its_turn: bool) -> float | None:
        asked.append(f"c{n}")
        wish = Wish(f"c{n}", "t", "me", 0, is_its_turn=is_its_turn)
        changed, until = real(state, limit, wish, AT, at)
        assert changed is not None
        advance(state, changed)
        return until

    told = {n: ask(n, NOW, False) for n in range(50)}
    waits = [at for n in range(1, 50) if (at := told[n]) is not None]
    assert waits == sorted(waits) and len(set(waits)) == len(waits) == 47
    assert all(b - a == pytest.approx(60 / 58, abs=1e-3) for a, b in itertools.pairwise(waits))
    for n, at in told.items():
        if at is not None:
            assert ask(n, at, True) is None


def test_one_that_comes_late_does_not_bring_a_crowd():
    """After an outage all that waited come at once: they are spread anew."""
    limit, state, told = Limit("l", per_minute=60), QueuePlaces(), list[float]()
    for n in range(200):
        wish = Wish(f"c{n}", "t", "me", 0)  # not on time
        changed, until = admit(state, limit, wish, AT, NOW)
        assert changed is not None
        advance(state, changed)
        told += [] if until is None else [until]
    assert len(set(told)) == len(told) >= 196


def test_a_call_is_weighed_before_it_is_made_and_settled_after_it():
    limit, state = Limit("l", tokens_per_minute=6000), QueuePlaces()  # 300 at once
    wish = Wish("a", "t", "me", 300)
    changed, until = admit(state, limit, wish, AT, NOW)
    assert until is None and changed is not None
    advance(state, changed)
    full = state.key_ready["tokens"]
    changed = leave(state, limit, wish, 30, 0.0, NOW)
    assert changed is not None
    advance(state, changed)
    assert full - NOW == pytest.approx(10 * (state.key_ready["tokens"] - NOW), rel=1e-3)
    assert leave(state, limit, wish, 300, 0.0, NOW) is None, "what was expected came true"


def test_a_call_that_is_larger_than_what_may_come_at_once_goes_alone():
    starts = chosen(Limit("l", tokens_per_minute=6000), [(NOW, 3000), (NOW, 3000), (NOW, 10)])
    assert [round(at - NOW) for at in sorted(starts)][:2] == [0, 32]


# What tasks see.


def test_all_tasks_of_a_store_share_a_limit_and_their_waits_are_in_the_log():
    with opened() as hf:
        handles = [hf.start(looks, n) for n in range(8)]
        Worker(hf, patience_s=0).run_until_idle()
        assert sorted(handle.result(60) for handle in handles) == list(range(8))
        at = sorted(when for _, when in made)
        assert all(b - a >= timedelta(seconds=9.99) for a, b in itertools.pairwise(at))
        last = max(handles, key=lambda handle: hf.task(handle.id).state.updated_at)
        state = hf.task(last.id).state
        wait = state.calls["1!limit"]
        assert (wait.kind, wait.name, wait.approves) == ("limit", "slow", "1")
        assert wait.status == "completed" and state.calls["1"].result is not None
        kinds = [type(event) for event in state.trail]
        assert kinds.index(TimerSet) < kinds.index(Stepped), "it waits before its intent"
        assert kinds.count(TimerSet) == 1, "it is told once when to come"


def test_a_task_that_waits_for_a_limit_is_released_and_says_what_for():
    with opened() as hf:
        first, second = hf.start(looks, 1), hf.start(looks, 2)
        still = Clock(clock.now)
        hf._holding.clock = still  # nothing goes on by itself
        Worker(hf, patience_s=0).run_until_idle()
        assert {first.status, second.status} == {"completed", "in_progress"}
        waiting = first if first.status == "in_progress" else second
        state = hf.task(waiting.id).state
        (released,) = (event for event in hf.task(waiting.id).events() if isinstance(event, Parked))
        assert "waits for the limit 'slow', to call look" in released.why and state.parked


def test_a_crash_while_a_call_waits_leaves_nothing_in_doubt_and_no_second_turn():
    with opened() as hf:
        hf.run(sells, "ada")
        handle = hf.start(sells, "ada")
        hf._holding.clock = Clock(clock.now)
        Worker(hf, patience_s=0).run_until_idle()
        waiting = hf.task(handle.id).state
        assert "1" not in waiting.calls and waiting.status == "in_progress"
        until = waiting.calls["1!limit"].until
        hf._holding.clock = clock
        Worker(hf, patience_s=0).run_until_idle()
        assert handle.result(60) == "ada"
        assert until is not None and hf.task(handle.id).state.calls["1"].at >= until


def test_a_task_that_waits_goes_along_to_another_store_and_the_limit_begins_anew_there(tmp_path):
    with opened() as hf, opened() as copy, opened() as restored:
        handles = [hf.start(looks, n) for n in range(3)]
        hf._holding.clock = Clock(clock.now)
        Worker(hf, patience_s=0).run_until_idle()
        waits = {
            h.id: hf.task(h.id).state.calls["1!limit"].until
            for h in handles
            if h.status != "completed"
        }
        assert len(waits) == 2
        hf.copy_to(copy, paused=True)
        hf.archive_to(tmp_path / "all.archive")
        restored.restore_from(tmp_path / "all.archive")
        for there in (copy, restored):
            assert there.limits() == [], "nobody has called there"
            for id, until in waits.items():
                assert there.task(id).state.calls["1!limit"].until == until
                there.unpause(id)
            made.clear()
            Worker(there, patience_s=0).run_until_idle()
            assert {there.task(id).status for id in waits} == {"completed"} and len(made) == 2
            assert abs(made[1][1] - made[0][1]) >= timedelta(seconds=9.99)
            assert [each.name for each in there.limits()] == ["slow"]


def test_what_people_set_holds_in_place_of_the_code_for_all_until_it_is_unset(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(limits, "_LOOK_EVERY_S", 0.0)
    url = f"sqlite:///{tmp_path}/l.db"
    with opened(url) as hf, opened(url) as operator:

        def gap_s() -> float:
            made.clear()
            for n in range(2):
                hf.run(looks, n)
            return (made[1][1] - made[0][1]).total_seconds()

        assert gap_s() == pytest.approx(10, abs=0.5)
        assert operator.set_limit(Limit("slow", per_minute=2)) == Limit("slow", per_minute=2)
        assert gap_s() == pytest.approx(30, abs=0.5)
        assert [(each.limit.per_minute, each.is_set) for each in hf.limits()] == [(2, True)]
        assert operator.set_limit("slow") == slow
        assert gap_s() == pytest.approx(10, abs=0.5)
        assert [(each.limit, each.is_set) for each in hf.limits()] == [(slow, False)]
        with pytest.raises(BadInput, match="takes a Limit"):
            hf.set_limit(7)


@pytest.mark.parametrize("kind", [alooks, streams])
def test_async_calls_and_streams_keep_to_it(kind):
    with opened() as hf:
        handles = [hf.start(kind, n) for n in range(3)]
        Worker(hf, patience_s=0).run_until_idle()
        for handle in handles:
            handle.result(60)
        at = sorted(when for _, when in made)
        assert len(at) == (6 if kind is alooks else 3)
        assert all(b - a >= timedelta(seconds=9.99) for a, b in itertools.pairwise(at))


def test_a_key_has_the_limit_for_itself():
    with opened() as hf:
        for customer in ("ada", "bob", "ada"):
            hf.run(sells, customer)
        (a, b, again) = (when for _, when in made)
        assert b - a < timedelta(seconds=1) and again - a >= timedelta(seconds=59.9)
        assert [each.key for each in hf.limits() if each.name == "shop"] == ["ada", "bob"]


def test_tokens_that_were_not_used_are_there_for_others():
    with opened() as hf:  # 50 at once, 1,000 a minute
        hf.run(thinks, 500, 10)
        hf.run(thinks, 500, 10)
        assert made[1][1] - made[0][1] < timedelta(seconds=2), "only 10 were used"
        hf.run(thinks, 500, 500)
        hf.run(thinks, 10, 10)
        assert made[3][1] - made[2][1] > timedelta(seconds=20), "all 500 were used"


def test_a_provider_that_refuses_is_left_alone_by_everybody():
    class TooMany(Exception):
        status_code = 429
        retry_after_s = 120.0

    api, asked = Limit("api", per_minute=6000), list[datetime]()

    @step(limit=api, retry=Retry(attempts=2, delay_s=0, jitter=0), name="limits_ask")
    def ask(n: int) -> int:
        asked.append(clock.now)
        if len(asked) == 1:
            raise TooMany
        return n

    @task(name="limits_asks")
    def asks(n: int) -> int:
        return ask(n)

    with opened() as hf:
        one = hf.start(asks, 1)
        hf._holding.clock = Clock(clock.now)
        Worker(hf, patience_s=0).run_until_idle()
        (info,) = hf.limits()
        assert info.paused_until is not None
        assert info.paused_until - clock.now > timedelta(seconds=110)
        text = {metric.name: metric.values for metric in standing(hf.store, datetime.now(UTC))}
        assert set(text["holdfast_limit_paused_seconds"]) == {(("limit", "api"), ("key", ""))}
        hf._holding.clock = clock
        two = hf.start(asks, 2)
        Worker(hf, patience_s=0).run_until_idle()
        assert (one.result(60), two.result(60)) == (1, 2)
        assert all(at - asked[0] >= timedelta(seconds=119.9) for at in asked[1:])


def test_a_refusal_without_a_time_pauses_for_a_while_and_other_failures_do_not():
    class Refused(Exception):
        class response:  # as that of an HTTP client
            status_code = 429
            headers: ClassVar = {"retry-after": "7"}

    class Plain(Exception):
        status_code = 500

    class Silent(Exception):
        status = 429

    from holdfast.engines.execution import refused_s

    assert [refused_s(kind()) for kind in (Refused, Plain, Silent)] == [7.0, 0.0, 5.0]


# Places.


inside = most = 0
lock = threading.Lock()


@tool(limit=single, in_doubt="retry")
def browse(n: int) -> int:
    global inside, most
    with lock:
        inside += 1
        most = max(most, inside)
    threading.Event().wait(0.02)
    with lock:
        inside -= 1
    return n


@task(name="limits_browses")
def browses(n: int) -> int:
    return sum(gather(lambda: browse(n), lambda: browse(n)))


@pytest.mark.parametrize("kind", ["memory", "files", "sqlite"])
def test_at_most_so_many_calls_are_made_at_once(kind, tmp_path):
    global most
    most = 0
    url = {"memory": "memory://", "files": tmp_path / "w", "sqlite": f"sqlite:///{tmp_path}/l.db"}
    with Holdfast(url[kind], projections=False) as hf:
        handles = [hf.start(browses, n) for n in range(4)]
        worker = Worker(hf)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            assert [handle.result(120) for handle in handles] == [0, 2, 4, 6]
        finally:
            worker.stop()
            thread.join()
        assert most == 1
        (info,) = hf.limits()
        assert info.held == 0


def test_a_place_comes_back_when_a_call_fails_and_when_it_is_stopped_in_the_middle():
    door = Limit("door", concurrency=1)

    class Stopped(BaseException): ...

    @step(limit=door, name="limits_enter")
    def enter(how: str) -> str:
        if how == "fails":
            raise ValueError(how)
        if how == "ends":
            raise KeyboardInterrupt
        return how

    @task(name="limits_enters")
    def enters(how: str) -> str:
        return enter(how)

    with opened() as hf:
        with pytest.raises(Exception, match="fails"):
            hf.run(enters, "fails")
        assert [each.held for each in hf.limits()] == [0]
        with pytest.raises(KeyboardInterrupt):
            hf.run(enters, "ends")
        assert [each.held for each in hf.limits()] == [0]
        assert hf.run(enters, "works") == "works"


def test_the_place_of_a_process_that_died_goes_to_the_next_one_that_asks(monkeypatch):
    door = Limit("door", concurrency=1)

    @step(limit=door, name="limits_pass")
    def go_in(n: int) -> int:
        if n == 0:
            raise KeyboardInterrupt  # it is killed, and gives nothing back
        return n

    @task(name="limits_passes")
    def passes(n: int) -> int:
        return go_in(n)

    with opened() as hf:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(limits, "give_back", lambda run, path: None)
            hf.run(passes, 0, id="dead")
        assert [each.held for each in hf.limits()] == [1]
        assert hf.run(passes, 1) == 1
        assert [each.held for each in hf.limits()] == [0]


def test_a_fork_waits_for_its_own_turn_and_takes_nobodys():
    with opened() as hf:
        hf.run(sells, "ada", id="a")
        fork = hf.fork("a", seq=1, effects="live")
        assert hf.resume(fork.id) == "ada"
        assert made[1][1] - made[0][1] >= timedelta(seconds=59.9)
        later = hf.fork("a", seq=hf.task("a").seq, effects="live")  # its call is recorded
        assert hf.task(later.id).state.calls["1"].status == "completed"
        assert len(made) == 2


# What can't be.


@pytest.mark.parametrize(
    "given", [{}, {"per_minute": 0}, {"per_minute": True}, {"concurrency": 0}, {"per_second": "1"}]
)
def test_a_limit_that_makes_no_sense_is_refused(given):
    with pytest.raises(BadInput, match="limit 'l'"):
        Limit("l", **given)


def test_what_a_decorator_is_given_is_checked():
    with pytest.raises(BadInput, match=r"limit=5 must be a Limit"):
        step(limit=5)(lambda: None)
    with pytest.raises(BadInput, match="tokens=-1"):
        slow.of(tokens=-1)

    def by_nobody(n: int) -> int:
        return n

    with pytest.raises(BadInput, match=r"limit=… names 'who', and it has no such parameter"):
        step(limit=slow.of(key="who"))(by_nobody)


def test_a_weigher_that_fails_says_which_limit_and_call():
    @step(limit=slow.of(tokens=lambda n: n / 0), name="limits_broken")
    def broken(n: int) -> int:
        return n

    @task(name="limits_breaks")
    def breaks() -> int:
        return broken(1)

    with opened() as hf, pytest.raises(Exception, match=r"the limit 'slow' can't weigh this call"):
        hf.run(breaks)
