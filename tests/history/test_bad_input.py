"""What can't be forked, opened or compared says so, and what can still be had is."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    IdempotencyKey,
    InDoubt,
    LogDamaged,
    NotAnswered,
    TaskCancelled,
    TaskNotFound,
    Unanswered,
    ask,
    each,
    step,
    task,
    tool,
)
from holdfast.core.events import Started
from holdfast.log.store_calls import acquire_one, sync_one

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/w.db")

NO_KEY = IdempotencyKey("")


@step
def bad_step(number: int) -> int:
    return number


def bad_unsend(result: str) -> None:
    raise RuntimeError("it can't be taken back")


@tool(in_doubt="ask", undo=bad_unsend)
def bad_send(text: str) -> str:
    return text


@task
def bad_doubtful() -> str:
    bad_step(1)
    bad_send("hello")
    return ask("Go on?", str)


def interrupted(hf: Holdfast) -> None:
    """A task that died between the intent and the result of step 2."""
    with pytest.raises(Unanswered):
        hf.run(bad_doubtful, id="whole")
    lines = list(hf.store.read("tasks/whole"))
    upto = next(
        seq
        for seq, event in enumerate(hf.task("whole").events(), 1)
        if isinstance(event, Started) and event.path == "2"
    )
    lease = acquire_one(hf.store, "copies/whole", "a test", 30)
    hf.store.append(lease, 0, lines[:upto])
    sync_one(hf.store, lease)
    whole = acquire_one(hf.store, "tasks/whole", "a test", 30)
    hf.store.delete(whole)
    hf.store.rename(lease, "tasks/whole")


def test_a_place_in_doubt_is_refused_and_the_one_before_it_is_taken():
    with Holdfast("memory://") as hf:
        interrupted(hf)
        with pytest.raises(InDoubt):
            hf.resume("whole")
        newest = hf.task("whole").seq
        with pytest.raises(BadInput, match=r"2 bad_send \(in_doubt\).*holdfast resolve"):
            hf.fork("whole", seq=newest, effects="live")
        with pytest.raises(BadInput, match="has not ended"):
            hf.fork("whole", at=2, when="after", effects="live")
        with pytest.raises(BadInput, match="holdfast resolve"):
            hf.rewind("whole", seq=newest)
        assert hf.fork("whole", at=2, effects="live").status == "pending"


def test_what_may_have_been_done_is_not_done_again_before_it_is_settled():
    with Holdfast("memory://") as hf:
        interrupted(hf)
        fork = hf.fork("whole", at=2, effects="reuse").id
        with pytest.raises(NotAnswered, match="step 2 of task 'whole' happened"):
            hf.resume(fork)
        with pytest.raises(BadInput, match="holdfast resolve whole 2"):
            hf.rewind("whole", to=1)
        hf.resolve("whole", "2", happened=True, result="by hand")
        assert [e.status for e in hf.rewind("whole", to=1).effects] == ["completed"]
        for id in (fork, "whole"):
            with pytest.raises(Unanswered):
                hf.resume(id)
            call = hf.task(id).state.calls["2"]
            assert (call.adopted, call.key[:7]) == ("reused", "whole:2")


def test_inside_of_an_undo_nothing_leaves():
    with Holdfast("memory://") as hf:
        with pytest.raises(Unanswered):
            hf.run(bad_doubtful, id="t")
        hf.cancel("t")
        with pytest.raises(TaskCancelled):
            hf.resume("t")
        undo = hf.task("t").state.calls["undo.2"]
        for place in ({"at": "undo.2"}, {"seq": undo.seq}):
            with pytest.raises(BadInput, match="undoing what it had done"):
                hf.fork("t", effects="live", **place)
        assert hf.fork("t", at=2, effects="stub").status == "pending"


def test_inside_of_a_step_and_between_branches_nothing_leaves():
    @step
    def bad_outer() -> list[int]:
        return [bad_step(1), bad_step(2)]

    @step
    def bad_around(n: int) -> int:
        return bad_step(n)

    @task
    def bad_branches() -> list[int]:
        each(bad_around, [1, 2, 3])
        return bad_outer()

    with Holdfast("memory://") as hf:
        hf.run(bad_branches, id="t")
        with pytest.raises(BadInput, match=r"in the middle of 2 bad_outer"):
            hf.fork("t", at="2.2", effects="live")
        branch = next(c for c in hf.task("t").state.calls if c == "1.1")
        with pytest.raises(BadInput, match="in the middle of"):
            hf.fork("t", seq=hf.task("t").state.calls[branch].seq, effects="live")


def test_a_decision_is_no_place_to_stop_at():
    from holdfast import decide

    @task
    def bad_decider() -> str:
        return decide("way", "left")

    with Holdfast("memory://") as hf:
        hf.run(bad_decider, id="t")
        with pytest.raises(BadInput, match="is a decision, and no place to stop at"):
            hf.snapshot("t", "way?1")


def test_before_the_damage_everything_still_opens(tmp_path: Path):
    @task
    def bad_long() -> list[int]:
        return [bad_step(number) for number in range(6)]

    with Holdfast(tmp_path, projections=False) as hf:
        hf.run(bad_long, id="t")
        before = hf.task("t").at(3).content
        damaged = hf.task("t").state.calls["5"].seq
    log = tmp_path / "tasks" / "t" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    lines[damaged - 1] = lines[damaged - 1].replace(b"bad_step", b"bad_stop")
    log.write_bytes(b"".join(lines))
    with Holdfast(tmp_path, projections=False) as hf:
        with pytest.raises(LogDamaged, match=f"event {damaged}"):
            hf.task("t")
        assert hf.snapshot("t", 3).content == before
        assert hf.snapshot("t").seq == damaged - 1, "its end is where the damage begins"
        with pytest.raises(BadInput, match="has made no step '5'"):
            hf.snapshot("t", 5)
        with pytest.raises(LogDamaged):
            hf.rewind("t", to=2)
        fork = hf.fork("t", at=4, effects="live", new_id="saved")
        assert hf.resume(fork.id) == [0, 1, 2, 3, 4, 5], "what was good can be gone on from"
    assert log.read_bytes() == b"".join(lines), "and nothing was written to the damaged log"


def test_a_task_that_runs_can_be_forked_and_looked_at(tmp_path: Path):
    begun, go_on = threading.Event(), threading.Event()

    @step
    def bad_slow() -> int:
        begun.set()
        go_on.wait(60)
        return 1

    @task
    def bad_running() -> list[int]:
        return [bad_step(1), bad_slow(), bad_step(2)]

    with Holdfast(tmp_path) as hf, Holdfast(tmp_path) as other:
        runner = threading.Thread(target=hf.run, args=(bad_running,), kwargs={"id": "t"})
        runner.start()
        assert begun.wait(60)
        try:
            assert other.snapshot("t", 1, "after").content["calls"]["1"]["output"] == 1
            fork = other.fork("t", at=1, when="after", stubs={"bad_slow": 7}, effects="live")
            assert other.resume(fork.id) == [1, 7, 2]
        finally:
            go_on.set()
            runner.join()
        assert hf.compare("t", fork.id).alignments[0].first.path == "2"  # type: ignore[union-attr]


def test_tasks_that_have_nothing_in_common_can_be_compared_all_the_same():
    @task
    def bad_other(name: str) -> str:
        return name

    with Holdfast("memory://") as hf:
        hf.run(bad_other, "a", id="a")
        with pytest.raises(Unanswered):
            hf.run(bad_doubtful, id="b")
        found = hf.compare("a", "b")
        assert found.types == ("bad_other", "bad_doubtful") and not found.is_same
        with pytest.raises(BadInput, match="two tasks or more"):
            hf.compare("a")
        with pytest.raises(TaskNotFound):
            hf.compare("a", "nobody")


def test_an_original_that_is_gone_is_named(tmp_path: Path):
    import shutil

    @task
    def bad_short() -> int:
        return bad_step(1)

    with Holdfast(tmp_path, projections=False) as hf:
        hf.run(bad_short, id="t")
        hf.fork("t", at=1, effects="live", new_id="f")
    shutil.rmtree(tmp_path / "tasks" / "t")
    with Holdfast(tmp_path, projections=False) as hf:
        with pytest.raises(
            LogDamaged, match="shares its past with tasks/t up to event 2, and that is missing"
        ):
            hf.task("f")
        assert [damage.task for damage in hf.verify().damage] == ["f"]


@task
def bad_plain() -> int:
    return bad_step(1)


@pytest.mark.parametrize("way", ["fork", "rewind"])
def test_a_place_is_a_step_or_an_event_and_before_or_after(way):
    with Holdfast("memory://") as hf:
        hf.run(bad_plain, id="t")

        def go(step=None, **given):
            if way == "fork":
                hf.fork("t", at=step, effects="live", **given)
            else:
                hf.rewind("t", to=step, **given)

        with pytest.raises(BadInput, match="'before' or 'after'"):
            go(1, when="between")
        with pytest.raises(BadInput, match="either a step or an event"):
            go(1, seq=2)
        with pytest.raises(BadInput, match="say where: a step or an event"):
            go()
        for wrong in ({"step": "no such step"}, {"seq": 10_000}, {"seq": -1}, {"seq": 0}):
            with pytest.raises(BadInput):
                go(**wrong)
