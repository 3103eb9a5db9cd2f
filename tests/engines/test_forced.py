"""A task is taken from an engine that is gone, or that can not go on with it; what is left of it
there, and comes back, does nothing more."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    TaskCancelled,
    Unanswered,
    Worker,
    ask,
    checkpoint,
    restore,
    start,
    step,
    task,
)
from holdfast.core.events import Moved
from holdfast.engines.routing import Taken, job_for, must_not_be_taken
from holdfast.errors import DrivenElsewhere, EngineError
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import acquire_one
from tests.engines.serve import engine_of
from tests.engines.test_live_moves import where
from tests.engines.toy import Toy
from tests.engines.working import driving, until

made: list[str] = []


@step
def forced_step(name: str) -> str:
    made.append(name)
    return name


@task
def forced(name: str) -> str:
    forced_step(f"{name} 1")
    one = ask("One?", bool, id="one")
    forced_step(f"{name} 2")
    two = ask("Two?", bool, id="two")
    forced_step(f"{name} 3")
    return f"{one} {two}"


@task
def forced_failing() -> str:
    made.append("try")
    if made.count("try") < 2:
        raise ValueError("not yet")
    return "at last"


@task
def forced_looping(turns: int) -> int:
    done = restore(0)
    while done < turns:
        ask("On?", bool, id=f"go-{done}")
        done = checkpoint(done + 1)
    return done


@task
def forced_steps(count: int) -> int:
    return sum(len(forced_slow(str(number))) for number in range(count))


@step
def forced_slow(name: str) -> str:
    time.sleep(0.05)
    made.append(name)
    return "x"


@task
def forced_parent(name: str) -> str:
    return start(forced, name).result()


class Code:
    """What is deployed: the next version of `forced_changing` does something else."""

    is_new = False


@task
def forced_changing(name: str) -> bool:
    forced_step("something else" if Code.is_new else f"{name} 1")
    return ask("One?", bool, id="one")


@pytest.fixture(autouse=True)
def _anew() -> None:
    made.clear()


def moves(hf: Holdfast, id: str) -> list[tuple[str, bool]]:
    events = hf.task(id).events()
    return [(event.engine, event.forced) for event in events if isinstance(event, Moved)]


def asked(hf: Holdfast, id: str, question: str) -> bool:
    calls = hf.task(id).state.calls.values()
    return any(call.key == question and call.status == "waiting" for call in calls)


def test_a_task_and_its_children_are_taken_from_an_engine_that_is_gone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as there:
        here = Holdfast(there.store)
        parent = there.start(forced_parent, "Ada", id="p-1")
        with toy.serve(there):
            until(lambda: there.tasks(status="awaiting_user"))
        child = "p-1.1"
        toy.is_down = True
        here.answer(child, True)  # which nobody brings in
        with pytest.raises(
            EngineError, match=r"take it: holdfast move p-1\.1 --engine local --force"
        ):
            here.move("p-1", "local", timeout_s=0.1)
        with caplog.at_level(logging.WARNING, "holdfast"):
            assert there.move("p-1", "local", by="ada", force=True) == (child, "p-1")
        assert "taken from toy, which was not told" in caplog.text
        assert moves(here, "p-1") == moves(here, child) == [("", True)]
        with pytest.raises(Unanswered):
            here.resume(child)
        here.answer(child, False)
        assert here.resume("p-1") == parent.result() == "True False"
        assert made == ["Ada 1", "Ada 2", "Ada 3"]
        assert here.verify("p-1").sound


def test_an_engine_that_can_be_reached_is_told_to_end_what_it_has() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced, "Ada", id="t-1")
        assert list(toy.jobs) == ["t-1"]
        hf.move("t-1", "local", force=True)
        assert not toy.jobs


def test_a_task_begins_anew_on_the_engine_that_has_it() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced, "Ada", id="a-1")
        before = toy.jobs["a-1"]
        assert hf.move("a-1") == ()
        assert hf.move("a-1", force=True) == ("a-1",)
        assert toy.jobs["a-1"] == job_for(hf.task("a-1").state) != before


def test_a_task_goes_from_one_cluster_of_an_engine_to_another() -> None:
    one, other = Toy(), Toy()
    with Holdfast("memory://", engine=one) as hf:
        hf.start(forced, "Ada", id="c-1")
        assert hf.move("c-1", other, force=True) == ("c-1",)
        assert (list(one.jobs), list(other.jobs)) == ([], ["c-1"])


def test_to_go_to_another_cluster_of_its_engine_a_task_has_to_be_taken() -> None:
    with Holdfast("memory://", engine=Toy()) as hf:
        hf.start(forced, "Ada", id="c-2")
        other = Toy()
        with pytest.raises(BadInput, match=r"the log does not say of which one: .* use force"):
            hf.move("c-2", other)
        assert not other.jobs


def test_a_wish_to_move_that_nobody_heard_does_not_undo_a_forced_move() -> None:
    gone, beta = Toy("gone"), Toy("beta")
    with Holdfast("memory://", engine=gone) as hf:
        hf.start(forced, "Ada", id="w-1")
        gone.is_down = True
        with pytest.raises(EngineError, match="no worker of gone has heard of it"):
            hf.move("w-1", "local", timeout_s=0.01)
        hf.move("w-1", beta, force=True)
        with beta.serve(hf):
            until(lambda: asked(hf, "w-1", "one"))
        assert moves(hf, "w-1") == [("beta", True)]


def test_a_child_is_taken_once() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced_parent, "Ada", id="p-2")
        with toy.serve(hf):
            until(lambda: hf.tasks(status="awaiting_user"))
        assert hf.move("p-2", force=True) == ("p-2.1", "p-2")
        assert moves(hf, "p-2") == moves(hf, "p-2.1") == [("toy", True)]


def test_nothing_is_taken_of_a_family_of_which_somebody_has_one_in_hand() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced_parent, "Ada", id="p-3")
        with toy.serve(hf):
            until(lambda: hf.tasks(status="awaiting_user"))
        held = acquire_one(hf.store, stream_of("p-3"), "a worker of toy", 60.0)
        with pytest.raises(EngineError, match="task 'p-3' can't be taken from toy"):
            hf.move("p-3", "local", force=True, timeout_s=0.1)
        assert moves(hf, "p-3.1") == []
        hf.store.release([held])


def test_a_failed_task_is_taken_and_tried_again_elsewhere() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as there:
        here = Holdfast(there.store)
        there.start(forced_failing, id="f-1")
        with toy.serve(there):
            until(lambda: here.task("f-1").status == "failed")
        with pytest.raises(DrivenElsewhere, match="holdfast move f-1 --engine local --force"):
            here.retry("f-1")
        with pytest.raises(BadInput, match="'f-1' is failed"):
            here.move("f-1", "local")
        assert here.move("f-1", "local", force=True) == ("f-1",)
        assert here.task("f-1").status == "failed"
        assert here.retry("f-1") == "at last"


@pytest.mark.parametrize("put_back", [False, True])
def test_that_a_task_was_taken_is_known_after_a_checkpoint_and_a_rewind(put_back: bool) -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as there:
        here = Holdfast(there.store)
        there.start(forced_looping, 3, id="l-1")
        with toy.serve(there):
            until(lambda: asked(here, "l-1", "go-0"))
        here.move("l-1", "local", force=True)
        taken_at = here.task("l-1").seq
        here.answer("l-1", True)
        with pytest.raises(Unanswered):
            here.resume("l-1")
        if put_back:
            here.rewind("l-1", to=1, when="before")
        state = here.task("l-1").state
        assert state.checkpoints == (0 if put_back else 1)
        assert state.taken_at == taken_at
        with pytest.raises(Taken):
            must_not_be_taken(state, "toy", 1)


def test_one_that_is_driven_here_is_moved_as_ever() -> None:
    toy = Toy()
    with Holdfast("memory://") as hf:
        hf.start(forced, "Ada", id="o-1")
        assert hf.move("o-1", "local", force=True) == ()
        assert hf.move("o-1", toy, force=True) == ("o-1",)
        assert moves(hf, "o-1") == [("toy", False)]


def test_one_that_is_at_work_here_is_moved_as_ever() -> None:
    with Holdfast("memory://") as hf, driving(Worker(hf)):
        hf.start(forced_steps, 200, id="o-2")
        until(lambda: made)
        assert hf.move("o-2", Toy(), force=True, timeout_s=5) == ("o-2",)
        assert moves(hf, "o-2") == [("toy", False)]
        assert len(made) < 200


def test_a_task_that_a_worker_is_at_work_on_is_not_taken() -> None:
    toy = Toy()
    with Holdfast("memory://", engine=toy) as hf:
        hf.start(forced, "Ada", id="h-1")
        held = acquire_one(hf.store, stream_of("h-1"), "a worker of toy", 60.0)
        with pytest.raises(EngineError, match=r"while a worker has it in hand \(a worker of toy"):
            hf.move("h-1", "local", force=True, timeout_s=0.1)
        assert moves(hf, "h-1") == []
        hf.store.release([held])
        hf.move("h-1", "local", force=True)
        with pytest.raises(Unanswered):
            Holdfast(hf.store).resume("h-1")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_what_an_engine_has_left_of_a_task_does_nothing_and_the_task_can_come_back(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = request.getfixturevalue(engine)
    remote = engine_of(*where(engine, server))
    store, id = f"sqlite:///{tmp_path}/store.db", f"left-on-{engine}"
    refused = f"was taken from {engine} by force"
    said: list[str] = []
    with Holdfast(store) as here, Holdfast(store, engine=remote) as there:
        with driving(remote.worker(there)):
            there.start(forced, "Ada", id=id)
            until(lambda: asked(here, id, "one"))
            before = job_for(here.task(id).state)
        here.move(id, "local", force=True)  # by somebody who has no engine to tell
        here.answer(id, True)
        with pytest.raises(Unanswered):
            here.resume(id)
        with driving(remote.worker(there, say=said.append)):
            seq = here.task(id).seq
            remote.tell(before, "something")  # so that its old run looks into the log
            until(lambda: refused in f"{said} {caplog.text}")
            time.sleep(1.0)
            assert here.task(id).seq == seq
            assert there.move(id) == (id,)
            there.answer(id, False)
            assert there.resume(id) == "True False"
        assert moves(here, id) == [("", True), (engine, False)]
        assert made == ["Ada 1", "Ada 2", "Ada 3"]
        assert here.verify(id).sound


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_a_task_whose_code_no_longer_fits_is_taken_and_ended(
    engine: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = request.getfixturevalue(engine)
    remote = engine_of(*where(engine, server))
    id = f"unfit-on-{engine}"
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=remote) as there:
        with driving(remote.worker(there)):
            there.start(forced_changing, "Ada", id=id)
            until(lambda: asked(there, id, "one"))
        monkeypatch.setattr(Code, "is_new", True)
        with driving(remote.worker(there)):
            job = job_for(there.task(id).state)
            there.answer(id, True)
            time.sleep(1.5)
            assert there.cancel(id) == "awaiting_user"  # nobody can hear it
            there.move(id, "local", force=True)
            known = remote.query(job)
            assert known is not None and known.status != "running"
            with pytest.raises(TaskCancelled):
                Holdfast(there.store).resume(id)
        assert made == ["Ada 1"]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_a_run_that_comes_back_late_writes_nothing_and_is_ended(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """After a checkpoint, a failure and a retry, and one more move, it is still an old one."""
    server = request.getfixturevalue(engine)
    remote = engine_of(*where(engine, server))
    store, id = f"sqlite:///{tmp_path}/store.db", f"late-on-{engine}"
    with Holdfast(store) as here, Holdfast(store, engine=remote) as there:
        with driving(remote.worker(there)):
            there.start(forced_looping, 2, id=id)
            until(lambda: asked(here, id, "go-0"))
            before = job_for(here.task(id).state)
        here.move(id, "local", force=True)
        here.answer(id, True)
        with pytest.raises(Unanswered):
            here.resume(id)
        assert here.move(id, Toy()) == (id,)
        seq = here.task(id).seq
        with driving(remote.worker(there)):
            remote.tell(before, "something")
            until(lambda: (known := remote.query(before)) is None or known.status != "running")
            assert here.task(id).seq == seq
        assert here.task(id).state.driver == "toy"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_a_family_begins_anew_while_its_worker_runs_and_others_go_on(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(engine)
    remote = engine_of(*where(engine, server))
    id, other = f"family-on-{engine}", f"other-on-{engine}"
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=remote) as there:
        with driving(remote.worker(there)):
            parent = there.start(forced_parent, "Ada", id=id)
            until(lambda: len(there.tasks(status="awaiting_user")) == 1)
            there.start(forced, "Bob", id=other)
            until(lambda: asked(there, other, "one"))
            assert there.move(id, force=True) == (f"{id}.1", id)
            there.answer(other, True)  # which would not be heard by a worker that spins
            until(lambda: asked(there, other, "two"))
            there.answer(f"{id}.1", True)
            until(lambda: asked(there, f"{id}.1", "two"))
            there.answer(f"{id}.1", True)
            assert parent.result(30) == "True True"
        assert sorted(made) == ["Ada 1", "Ada 2", "Ada 3", "Bob 1", "Bob 2"]


@pytest.mark.timeout(120)
def test_a_parent_waits_on_for_a_child_whose_run_somebody_ended(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = engine_of(*where("temporal", request.getfixturevalue("temporal")))
    store = f"sqlite:///{tmp_path}/store.db"
    with Holdfast(store, engine=remote) as there, driving(remote.worker(there)):
        parent = there.start(forced_parent, "Ada", id="bereft")
        until(lambda: there.tasks(status="awaiting_user"))
        remote.stop(job_for(there.task("bereft.1").state))
        time.sleep(0.5)
        there.start(forced, "Bob", id="bystander")  # nothing moves in a worker that spins
        until(lambda: asked(there, "bystander", "one"))
        for question in ("one", "two"):
            there.answer("bereft.1", True, question=question)
            with suppress(Unanswered):
                there.resume("bereft.1")
        assert parent.result(30) == "True True"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_a_task_that_is_moved_between_two_steps_goes_on_here_by_itself(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = engine_of(*where(engine, request.getfixturevalue(engine)))
    store, id = f"sqlite:///{tmp_path}/store.db", f"half-way-on-{engine}"
    with Holdfast(store) as here, Holdfast(store, engine=remote) as there:
        with driving(remote.worker(there)), driving(Worker(here)):
            there.start(forced_steps, 40, id=id)
            until(lambda: len(made) > 3)
            assert there.move(id, "local") == (id,)
            until(lambda: here.task(id).status == "completed")
        assert made == [str(number) for number in range(40)]


def test_a_start_that_comes_too_late_leaves_the_newer_run_alone(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = engine_of(*where("temporal", request.getfixturevalue("temporal")))
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=remote) as there:
        there.start(forced, "Ada", id="too-late")
        old = job_for(there.task("too-late").state)
        there.move("too-late", force=True)
        new = job_for(there.task("too-late").state)
        remote.start(old)
        known = remote.query(new)
        assert known is not None and known.status == "running"


def test_two_who_start_a_task_again_at_once_start_it_once(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    remote = engine_of(*where("temporal", request.getfixturevalue("temporal")))
    with Holdfast(f"sqlite:///{tmp_path}/store.db", engine=remote) as there:
        there.start(forced, "Ada", id="twice")  # nobody is there who would end this run
        here = Holdfast(there.store)
        here.move("twice", "local", force=True)
        here.move("twice", Toy("temporal"))
        job = job_for(there.task("twice").state)
        with ThreadPoolExecutor(2) as threads:
            for started in [threads.submit(remote.start, job) for _ in range(2)]:
                started.result()
        known = remote.query(job)
        assert known is not None and known.status == "running"
