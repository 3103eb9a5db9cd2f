"""Queues: who goes first, how many at once, how fast, and what becomes of places."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import BadInput, Holdfast, Queue, Rate, TaskBusy, Worker, receive, task
from holdfast.core.events import PlacesChanged, QueuePlace
from holdfast.core.queues import Allowance, QueuePlaces, line_time, ticket_for
from holdfast.engines import queues
from holdfast.engines.local.desk import Desk
from holdfast.engines.queues import QueueLog
from holdfast.log.store_calls import streams_in
from holdfast.testing import Clock
from holdfast.views.metrics import standing

AT = datetime(2026, 1, 1, tzinfo=UTC)
order: list[str] = []


@task(name="queue_note")
def note_down(word: str) -> str:
    order.append(word)
    return word


@task(name="queue_waits")
def waits_for_word() -> str:
    return receive("word", str)


@task(name="queue_fails")
def fails() -> None:
    raise RuntimeError("no")


@pytest.fixture(autouse=True)
def _nothing_yet():
    order.clear()


pytestmark = pytest.mark.holdfast(
    "memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/q.db", projections=False
)


def one_at_a_time(hf: Holdfast) -> list[str]:
    Worker(hf, concurrency=1).run_until_idle()
    return order


def test_a_higher_priority_goes_first_and_else_the_order_of_starting(hf):
    hf.queue(Queue("q", concurrency=1))
    for word, priority in (("a", 0), ("b", 0), ("late", -1), ("c", 0), ("urgent", 5)):
        hf.options(queue="q", priority=priority).start(note_down, word)
    assert one_at_a_time(hf) == ["urgent", "a", "b", "c", "late"]


def test_a_task_that_has_waited_long_enough_goes_before_a_higher_priority():
    queue = Queue("q", ageing_s=60)
    old = line_time(ticket_for(queue, 0, "", 0), AT)
    young = line_time(ticket_for(queue, 0, "", 5), AT + timedelta(seconds=299))
    younger = line_time(ticket_for(queue, 0, "", 5), AT + timedelta(seconds=301))
    assert young < old < younger


def test_keys_take_turns_so_that_one_of_many_tasks_holds_up_nobody(hf):
    hf.queue(Queue("q", concurrency=1))
    for n in range(12):
        hf.options(queue="q", key="many").start(note_down, f"many {n}")
    hf.options(queue="q", key="few").start(note_down, "few")
    one_at_a_time(hf)
    assert order.index("few") <= 1
    assert [word for word in order if word != "few"] == [f"many {n}" for n in range(12)]


def test_the_limit_of_a_key_leaves_room_for_others():
    queue = Queue("q", concurrency=4, key_concurrency=2)
    held = {f"t{n}": QueuePlace(f"t{n}", "ada") for n in range(2)}
    allowance = Allowance(queue, QueuePlaces(held=held, by_key={"ada": 2}), 0.0, 100)
    assert allowance.left == 2 and not allowance.allows("ada") and allowance.allows("bob")
    allowance.spend("bob")
    allowance.spend("bob")
    assert allowance.left == 0 and not allowance.allows("eve")


@pytest.mark.parametrize("rate", [Rate(100), Rate(7, per_s=60), Rate(5, burst=5), Rate(0.5)])
def test_a_rate_lets_no_span_of_time_see_more_than_its_share(rate):
    """However irregularly somebody looks; and one who looks often gets all of it."""
    state, starts, now = QueuePlaces(), list[float](), 1000.0
    for tick in range(4000):
        now += rate.spacing_s * (0.2 if tick % 97 else 9.0)
        allowance = Allowance(Queue("q", rate=rate), state, now, 1000)
        while allowance.allows(""):
            allowance.spend("")
            starts.append(now)
        state.ready_at = allowance.ready_at
    for periods in (1, 3, 10):
        span = periods * rate.per_s
        most = max(sum(at <= other < at + span for other in starts) for at in starts[::7])
        assert most <= periods * rate.count + rate.at_once
    assert len(starts) > 0.7 * (now - 1000.0) / rate.spacing_s


@pytest.mark.parametrize("rate", [Rate(8), Rate(2, per_s=60), Rate(100)])
def test_looks_that_come_a_little_late_cost_a_rate_nothing(rate):
    state, started, now = QueuePlaces(), 0, 1000.0
    for tick in range(1000):
        allowance = Allowance(Queue("q", rate=rate), state, now, 1000)
        while allowance.allows(""):
            allowance.spend("")
            started += 1
        state.ready_at = allowance.ready_at
        due = Allowance(Queue("q", rate=rate), state, now, 1000).waits_until
        now = max(now, due or now) + min(0.2, rate.spacing_s) * (0.1, 0.3, 0.45)[tick % 3]
    assert started == pytest.approx((now - 1000.0) / rate.spacing_s, rel=0.01, abs=rate.at_once)


def test_a_rate_is_kept_and_waited_for():
    clock = Clock(skips=True)
    with Holdfast("memory://", clock=clock) as hf:
        hf.queue(Queue("q", rate=Rate(1, per_s=10)))
        for n in range(4):
            hf.options(queue="q", id=f"t{n}").start(note_down, str(n))
        Worker(hf).run_until_idle()
        at = sorted(hf.task(f"t{n}").state.updated_at for n in range(4))
        assert all(b - a >= timedelta(seconds=9.9) for a, b in itertools.pairwise(at))


def test_a_task_that_waits_for_somebody_has_no_place_meanwhile(hf):
    hf.queue(Queue("q", concurrency=1))
    waiting = hf.options(queue="q").start(waits_for_word)
    other = hf.options(queue="q").start(note_down, "b")
    worker = Worker(hf, patience_s=0)
    worker.run_until_idle()
    assert other.result(60) == "b" and waiting.status == "in_progress"
    assert hf.queue("q").info().running == 0
    hf.send(waiting.id, "word", "now")
    worker.run_until_idle()
    assert waiting.result(60) == "now"
    kinds = [type(event).__name__ for event in hf.task(waiting.id).state.trail]
    assert kinds.count("Queued") == 1 and kinds.count("Claimed") == 2


def test_a_paused_queue_starts_nothing_and_goes_on_when_it_is_resumed(hf):
    queue = hf.queue(Queue("q"))
    queue.pause(because="rain")
    handle = hf.options(queue="q").start(note_down, "a")
    Worker(hf).run_until_idle()
    assert handle.status == "pending" and queue.info().paused and queue.info().waiting == 1
    metric = next(iter(standing(hf.store, datetime.now(UTC))))
    assert metric.name == "holdfast_queue_tasks"
    assert metric.values == {(("queue", "q"), ("status", "pending")): 1}
    queue.resume()
    Worker(hf).run_until_idle()
    assert handle.result(60) == "a"


def test_a_delayed_task_starts_not_before_its_time_in_a_queue_or_in_none():
    clock = Clock(skips=True)
    with Holdfast("memory://", clock=clock) as hf:
        hf.queue(Queue("q"))
        began = clock.now
        handles = [
            hf.options(delay_s=60).start(note_down, "alone"),
            hf.options(queue="q", at=began + timedelta(seconds=90)).start(note_down, "queued"),
        ]
        Worker(hf).run_until_idle()
        ended = [hf.task(handle.id).state.updated_at - began for handle in handles]
        assert ended[0] >= timedelta(seconds=60) and ended[1] >= timedelta(seconds=90)
        assert order == ["alone", "queued"]


def test_a_failed_task_gives_its_place_back_and_a_retry_waits_for_one(hf):
    hf.queue(Queue("q", concurrency=1))
    handle = hf.options(queue="q").start(fails)
    Worker(hf).run_until_idle()
    assert handle.status == "failed" and hf.queue("q").info().running == 0
    hf.retry(handle.id, worker=True)
    Worker(hf).run_until_idle()
    assert handle.status == "failed" and hf.task(handle.id).state.claims == 2


def test_of_a_singleton_the_first_or_the_newest_counts(hf):
    hf.queue(Queue("first", singleton="first"))
    hf.queue(Queue("newest", singleton="newest"))
    a, b = (hf.options(queue="first", key="k").start(note_down, "a") for _ in range(2))
    assert a.id == b.id
    c = hf.options(queue="newest", key="k").start(note_down, "c")
    d = hf.options(queue="newest", key="k").start(note_down, "d")
    other = hf.options(queue="newest", key="other").start(note_down, "e")
    assert (c.status, d.status, other.status) == ("cancelled", "pending", "pending")
    Worker(hf).run_until_idle()
    assert sorted(order) == ["a", "d", "e"]
    assert hf.options(queue="first", key="k").start(note_down, "f").id != a.id


def test_a_debounced_task_starts_when_nothing_newer_has_come_for_a_while():
    clock = Clock(skips=True)
    with Holdfast("memory://", clock=clock) as hf:
        hf.queue(Queue("q", debounce_s=30))
        for word in ("a", "b", "c"):
            hf.options(queue="q", key="k").start(note_down, word)
            clock.advance(10)
        Worker(hf).run_until_idle()
        assert order == ["c"]


def test_what_has_waited_for_too_long_never_starts():
    clock = Clock(skips=True)
    with Holdfast("memory://", clock=clock) as hf:
        queue = hf.queue(Queue("q", expires_s=60))
        queue.pause()
        late = hf.options(queue="q").start(note_down, "late")
        clock.advance(61)
        early = hf.options(queue="q").start(note_down, "early")
        queue.resume()
        Worker(hf).run_until_idle()
        assert (late.status, early.status, order) == ("cancelled", "completed", ["early"])
        assert "longer than 60 s" in hf.task(late.id).state.because


def test_a_fork_of_a_queued_task_is_in_no_queue(hf):
    hf.queue(Queue("q", concurrency=1))
    handle = hf.options(queue="q", key="k", labels={"kind": "x"}).start(note_down, "a")
    Worker(hf).run_until_idle()
    fork = hf.fork(handle.id, seq=1, effects="live")
    assert fork.state.ticket is None and fork.state.labels == {"kind": "x"}
    assert hf.queue("q").info().waiting == 0
    assert hf.resume(fork.id) == "a"


def test_a_queued_task_is_driven_by_workers_only(hf):
    hf.queue(Queue("q"))
    handle = hf.options(queue="q", id="t").start(note_down, "a")
    with pytest.raises(BadInput, match="only a worker drives it"):
        hf.resume("t")
    with pytest.raises(BadInput, match=r"use hf.options\(…\).start"):
        hf.options(queue="q").run(note_down, "b")
    assert order == [] and handle.status == "pending"


def test_what_can_not_be_is_refused_with_what_to_do(hf):
    with pytest.raises(BadInput, match=r"no queue 'nowhere'.*declare it by hf.queue"):
        hf.options(queue="nowhere").start(note_down, "a")
    for given in ({"key": "k"}, {"priority": 3}):
        with pytest.raises(BadInput, match="give queue="):
            hf.options(**given)
    with pytest.raises(BadInput, match="with its time zone"):
        hf.options(at=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(BadInput, match="without at="):
        hf.options(at=AT, delay_s=1)
    for wrong in ({"concurrency": 0}, {"rate": 5}, {"singleton": "last"}, {"expires_s": -1}):
        with pytest.raises(BadInput, match="queue 'q'"):
            Queue("q", **wrong)
    with pytest.raises(BadInput, match="above 0"):
        Rate(0)


def test_new_limits_count_from_the_next_look_on_and_tasks_stay(hf):
    hf.queue(Queue("q", concurrency=1)).pause()
    hf.options(queue="q").start(note_down, "a")
    assert hf.queue(Queue("q", concurrency=5)).info().paused
    info = hf.queue("q").info()
    assert (info.queue.concurrency, info.waiting) == (5, 1)


def test_the_log_of_places_is_begun_anew_and_nothing_is_forgotten(hf, monkeypatch):
    monkeypatch.setattr(queues, "_LONGEST_LOG", 5)
    hf.queue(Queue("q"))
    other = QueueLog(hf._holding, "q")
    for n in range(20):
        log = QueueLog(hf._holding, "q") if n % 7 == 0 else other

        def take(state, n=n):
            return PlacesChanged(taken=(QueuePlace(f"t{n}"),), turn=n)

        assert log.write(take)
    assert set(other.look().held) == {f"t{n}" for n in range(20)}
    assert QueueLog(hf._holding, "q").look().turn == 19
    assert 1 <= len(streams_in(hf.store, "queues/q/")) <= 2


def test_who_was_frozen_while_he_changed_places_changes_nothing_and_may_try_again(tmp_path):
    url = f"sqlite:///{tmp_path}/q.db"
    with Holdfast(url, lease_s=0.05) as hf, Holdfast(url, lease_s=0.05) as there:
        hf.queue(Queue("q"))
        mine, other = QueueLog(hf._holding, "q"), QueueLog(there._holding, "q")

        def take(id):
            return lambda state: PlacesChanged(taken=(QueuePlace(id),), turn=0)

        def take_late(state):
            assert other.write(take("b"), patience_s=60)  # when the lease of this one has ended
            return take("a")(state)

        assert mine.write(take("c"))
        with pytest.raises(TaskBusy, match="by another worker"):
            mine.write(take_late)
        assert mine.write(take("d"))
        assert set(other.look().held) == {"b", "c", "d"}


@pytest.mark.parametrize(
    ("queue", "events"),
    [(Queue("q", rate=Rate(9)), 1), (Queue("q"), 2), (Queue("q", rate=Rate(9), concurrency=9), 2)],
)
def test_places_that_nobody_waits_for_are_given_back_with_the_next_grant(queue, events):
    with Holdfast("memory://", clock=Clock()) as hf:
        hf.queue(queue)
        desk = Desk(hf._holding, lambda text: None)
        for n in range(2):
            hf.options(queue="q", id=f"t-{n}").start(note_down, "a")
            hf._holding.clock.advance(1)
            ((id, _),) = desk.take(1, lambda id, facts: True)
            desk.ended(id)
            if n == 0:
                before = hf.queue("q").info().running
                desk.take(0, lambda id, facts: True)
                assert before - hf.queue("q").info().running == events - 1
        assert hf.queue("q").info().running == 1
        desk.close()
        assert hf.queue("q").info().running == 0


def test_one_look_is_for_what_comes_in_a_moment():
    """Once the rate is used up; a small one lets them start one by one."""
    assert [Rate(100, burst=40).together, Rate(1000).together, Rate(10).together] == [10, 25, 1]
    state = QueuePlaces(ready_at=1000.0 + 40 / 100)
    allowance = Allowance(Queue("q", rate=Rate(100, burst=40)), state, 1000.0, 50)
    assert (allowance.left, allowance.waits_until) == (0, 1000.1)
    assert Allowance(Queue("q", rate=Rate(100, burst=40)), state, 1000.1, 50).left == 10


def test_the_place_of_a_worker_that_died_before_it_began_comes_back_after_a_lease(tmp_path):
    clock = Clock(skips=True)
    with Holdfast("memory://", clock=clock, lease_s=10) as hf:
        hf.queue(Queue("q", concurrency=1))
        handle = hf.options(queue="q").start(note_down, "a")
        dead = Desk(hf._holding, lambda text: None)
        assert [id for id, _ in dead.take(5, lambda id, facts: True)] == [handle.id]
        worker = Worker(hf)
        worker.run_until_idle()
        assert handle.status == "pending"
        clock.advance(11)
        worker._desk._next_check = time.monotonic()
        worker.run_until_idle()
        assert handle.result(60) == "a"
        # The dead one wakes up: it has neither the place nor anything to do.
        dead.ended(handle.id)
        dead.close()
        assert hf.queue("q").info().running == 0


def test_a_place_is_asked_about_a_moment_after_it_is_as_old_as_a_lease(tmp_path):
    clock = Clock()
    with Holdfast("memory://", clock=clock, lease_s=10) as hf:
        hf.queue(Queue("q"))
        for n in range(3):  # of a worker that is frozen, each a second after the other
            hf.options(queue="q", id=f"t-{n}").start(note_down, "a")
            (_,) = Desk(hf._holding, lambda text: None).take(5, lambda id, facts: True)
            clock.advance(1)
        desk, lost = Desk(hf._holding, lambda text: None), []
        for _ in range(150):  # a tenth of a second of both clocks
            desk._next_check -= 0.1
            desk.take(0, lambda id, facts: True)
            lost.append(hf.queue("q").info().running)
            clock.advance(0.1)
        # They are 3, 2 and 1 s old at first, and freed when 10 s old, or at most 0.6 s after that.
        assert [n for n, left in enumerate(lost, 1) if left < lost[n - 2]] == pytest.approx(
            [73, 83, 93], abs=4
        )


def test_statistics_of_fairness_and_priority(hf):
    """Three tenants with 60, 6 and 6 tasks: the small ones are done after a third of the time."""
    hf.queue(Queue("q", concurrency=2))
    for n in range(60):
        hf.options(queue="q", key="large").start(note_down, f"large {n}")
    for n in range(6):
        for key in ("small", "tiny"):
            hf.options(queue="q", key=key, priority=n).start(note_down, f"{key} {n}")
    Worker(hf, concurrency=2).run_until_idle()
    first = Counter(word.split()[0] for word in order[:20])
    assert first["small"] >= 5 and first["tiny"] >= 5
    # Within a key the most urgent first.
    numbers = [int(word.split()[1]) for word in order if word.startswith("small")]
    assert sum(a > b for a, b in itertools.pairwise(numbers)) >= 4


def test_a_copied_task_waits_until_its_queue_is_declared_there_and_keeps_to_its_limits():
    with Holdfast("memory://") as hf, Holdfast("memory://") as there:
        for name in ("first", "jobs"):
            hf.queue(Queue(name, concurrency=1))
        ids = [hf.options(queue="jobs").start(note_down, str(n)).id for n in range(3)]
        there.queue(Queue("elsewhere"))  # it has the number that "first" has here
        hf.copy_to(there, ids, paused=True)
        for id in ids:
            there.unpause(id)
        assert one_at_a_time(there) == []
        there.queue(Queue("jobs", concurrency=2))
        assert sorted(one_at_a_time(there)) == ["0", "1", "2"]
        assert there.queue("jobs").info().running == 0
        whole = there.copy_to(hf, dry_run=True)
        assert [each.id for each in whole.refused if "holdfast.queues" in each.id]
