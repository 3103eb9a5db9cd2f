"""Replay: the code of a task runs over its log, nothing happens, and what changed is told."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    BadInput,
    CodeMissing,
    Happened,
    Holdfast,
    IdempotencyKey,
    Retry,
    StepFailed,
    TaskCancelled,
    TaskFailed,
    TaskNotFound,
    TaskWaiting,
    Unanswered,
    ask,
    checkpoint,
    current,
    decide,
    each,
    gather,
    note,
    now,
    restore,
    sleep,
    start,
    step,
    task,
    tool,
    uuid,
)
from holdfast.agent import session
from holdfast.core.events import Planned
from holdfast.history.replay import REAL
from holdfast.log.store_calls import streams_in
from holdfast.testing import Clock, replay_recorded
from holdfast.workspace import files
from holdfast.workspace.handoff import here
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("memory://")

EFFECTS: list[str] = []
CODE = {"is": "as recorded"}
"""Which version of the code runs."""


@pytest.fixture(autouse=True)
def fresh():
    EFFECTS.clear()
    CODE["is"] = "as recorded"


def changed(how: str) -> bool:
    return CODE["is"] == how


@step
def rp_rooms(city: str) -> list[str]:
    EFFECTS.append("rooms")
    return [f"{city} attic", f"{city} cellar"]


@step
def rp_price(room: str) -> int:
    EFFECTS.append("price")
    note("asked for the price")
    return 70 + rp_tax(room)


@step
def rp_tax(room: str) -> int:
    EFFECTS.append("tax")
    return len(room)


@tool
def rp_book(room: str, price: int) -> str:
    EFFECTS.append("book")
    return f"booked {room} for {price}"


@task
def rp_trip(city: str) -> str:
    current().plan(["look", "book"] if not changed("plan") else ["look", "pay"])
    rooms = rp_rooms(city)
    if not changed("note gone"):
        note("there are rooms" if not changed("note") else "there are some rooms")
    room = decide("room", rooms[0 if not changed("decision") else 1], options=rooms)
    if not changed("file gone"):
        files.write("rooms.txt", "\n".join(rooms))
    price = rp_price(room)
    if changed("call more"):
        rp_tax("suite")
    booked = "not booked"
    if not changed("call gone"):
        booked = rp_book(room, price if not changed("arguments") else price + 1)
    if changed("raise"):
        raise ValueError("no luck")
    return booked if not changed("result") else booked.upper()


def recorded(hf: Holdfast, id: str = "trip") -> Holdfast:
    hf.run(rp_trip, "Oslo", id=id)
    EFFECTS.clear()
    return hf


@task
def rp_open() -> Any:
    return {"sizes": {3}, "span": (1, 2)}


def test_the_result_of_a_replay_is_plain_as_that_of_a_view_is(hf):
    hf.run(rp_open, id="t")
    assert hf.replay("t").result == hf.task("t").result == {"sizes": [3], "span": [1, 2]}


def test_the_same_code_does_the_same_and_nothing_happens(hf):
    before = list(recorded(hf).store.read("tasks/trip"))
    found = hf.replay("trip")
    assert found.same
    assert (found.outcome, found.recorded) == ("completed", "completed")
    assert found.result == hf.task("trip").result
    assert (found.answered, found.snapshots, found.differing) == (3, 9, ())
    assert found.summary() == "the same: completed, as recorded"
    assert EFFECTS == []
    assert list(hf.store.read("tasks/trip")) == before


@pytest.mark.parametrize(
    ("how", "path", "words"),
    [
        ("decision", "2", 'the log holds rp_price({"room":"Oslo attic"}), the code calls rp_price'),
        ("arguments", "3", "the code calls rp_book("),
        ("call more", "3", "the log holds rp_book("),
        ("call gone", "3", "the code ends without that call"),
        ("raise", "", "the code raises ValueError: no luck"),
        ("result", "", 'the log holds returns "booked Oslo attic for 80"'),
    ],
)
def test_code_that_does_something_else_is_told_at_the_first_divergence(hf, how, path, words):
    recorded(hf)
    CODE["is"] = how
    found = hf.replay("trip")
    assert not found.same
    assert found.divergence is not None
    assert found.divergence.path == path
    assert words in str(found.divergence)
    assert found.summary().startswith("diverges at")
    assert EFFECTS == []


@pytest.mark.parametrize("how", ["note", "note gone", "plan", "file gone"])
def test_what_the_code_says_otherwise_shows_in_the_snapshots(hf, how):
    recorded(hf)
    CODE["is"] = how
    found = hf.replay("trip")
    assert found.divergence is None  # it calls the same
    assert not found.same
    first = found.differing[0]
    assert (first.path, first.when) == (("1", "before") if how == "plan" else ("2", "before"))
    assert found.differing[-1].path == ""  # at its end
    # Before that nothing differs, and a replay from after it takes what was said as it was.
    assert hf.replay("trip", to=1).same == (how != "plan")
    assert hf.replay("trip", start=3).same == (how != "note")


def test_a_call_that_is_not_recorded_stops_it_by_name_and_arguments(hf):
    @task
    def rp_more() -> None:
        rp_rooms("Oslo")
        gather(lambda: rp_tax("a"), *([lambda: rp_tax("b")] * changed("more")))

    hf.run(rp_more, id="more")
    CODE["is"] = "more"
    found = hf.replay("more")
    assert found.outcome == "stopped"
    assert found.stopped_at == 'step 2.2.1, rp_tax({"room":"b"})'
    assert found.divergence is not None
    assert str(found.divergence) == (
        'at step 2.2.1: the log holds no such call, the code calls rp_tax({"room":"b"})'
    )
    assert hf.replay("more", stubs={"rp_tax": 3}).outcome == "completed"


# Stubs


def test_a_stub_answers_with_a_value_with_what_a_function_returns_or_for_real(hf):
    recorded(hf)
    fixed = hf.replay("trip", stubs={"rp_price": 9, "rp_book": lambda room, price: f"{price}!"})
    assert (fixed.result, fixed.stubbed) == ("9!", ("2", "3"))
    assert EFFECTS == []
    real = hf.replay("trip", stubs={"rp_price": REAL})
    assert real.same
    assert EFFECTS == ["price"]  # and what it calls is answered by the log
    assert hf.replay("trip", stubs={"rp_tax": 11, "rp_price": REAL}).divergence is not None


def test_a_stub_may_fail_and_the_task_sees_it(hf):
    def fails(**_: Any) -> int:
        raise ConnectionError("down")

    found = recorded(hf).replay("trip", stubs={"rp_price": lambda room: fails()})
    assert found.outcome == "failed"
    assert found.divergence is not None
    assert "raises StepFailed" in found.divergence.asked
    assert "ConnectionError: down" in found.failure


def test_a_stub_has_to_fit(hf):
    recorded(hf)
    with pytest.raises(BadInput, match="must be a dict"):
        hf.replay("trip", stubs=["rp_price"])
    with pytest.raises(BadInput, match="'rp_nobody', but neither the log nor the code"):
        hf.replay("trip", stubs={"rp_nobody": 1})
    with pytest.raises(BadInput, match="the stub for rp_price gives what does not fit"):
        hf.replay("trip", stubs={"rp_price": "dear"})
    found = hf.replay("trip", stubs={"rp_price": lambda room: "dear"})
    assert found.divergence is not None
    assert "the stub for rp_price gives what does not fit" in found.divergence.asked

    async def later(room: str) -> int:
        return 1

    found = hf.replay("trip", stubs={"rp_price": later})
    assert found.divergence is not None
    assert "is async: give a plain function" in found.divergence.asked


def test_questions_and_children_can_be_stubbed_but_not_be_made_for_real(hf):
    @task
    def rp_asks() -> list[Any]:
        sleep(0 if not changed("nap") else 3600)
        return [ask("Well?", int), start(rp_child, 3).result()]

    with suppress(Unanswered):
        hf.run(rp_asks, id="asks")
    found = hf.replay("asks", stubs={"ask": 5, "rp_child": lambda number: number + 1})
    assert (found.same, found.result) == (True, [5, 4])  # the log ends before that
    CODE["is"] = "nap"
    assert hf.replay("asks", stubs={"ask": 5, "rp_child": 1, "sleep": None}).result == [5, 1]
    assert EFFECTS == []
    for name in ("rp_child", "ask", "sleep", "nobody"):
        with pytest.raises(BadInput, match="can't be called for real"):
            hf.replay("asks", stubs={name: REAL})


# Places


def test_it_stops_at_a_call(hf):
    found = recorded(hf).replay("trip", to=3)
    assert found.same
    assert (found.outcome, found.answered) == ("stopped", 2)
    assert found.stopped_at.startswith('step 3, rp_book({"room":"Oslo attic"')


def test_places_that_are_not_there_are_refused(hf):
    recorded(hf)
    with pytest.raises(BadInput, match=r"has made no step '9'\. Its steps are 1, room\?1, 2, 3"):
        hf.replay("trip", to=9)
    with pytest.raises(BadInput, match="has made no step '9'"):
        hf.replay("trip", start=9)
    with pytest.raises(BadInput, match=r"step 2.1 was made by the body of step 2, rp_price, which"):
        hf.replay("trip", to="2.1")
    with pytest.raises(BadInput, match="step 1 comes before step 3"):
        hf.replay("trip", start=3, to=1)
    with pytest.raises(TaskNotFound):
        hf.replay("nobody")
    assert hf.replay("trip", to="2.1", stubs={"rp_price": REAL}).stopped_at.startswith("step 2.1,")
    assert EFFECTS == ["price"]


def test_it_starts_with_what_was_known_before_a_step_inside_of_others_too(hf):
    recorded(hf)
    for start_at in ("1", "2", "2.1", "3"):
        assert hf.replay("trip", start=start_at).same, start_at


# Ways a task can have gone


@step(retry=Retry(attempts=2, delay_s=0))
def rp_flaky() -> str:
    EFFECTS.append("flaky")
    if len(EFFECTS) < 4:
        raise ConnectionError("not yet")
    return "at last"


@task
def rp_tried_again() -> str:
    note("begins")
    try:
        return rp_flaky()
    except StepFailed:
        note("failed, and says so")
        raise


def test_a_task_that_failed_and_was_tried_again_lives_twice(hf):
    with suppress(TaskFailed):
        hf.run(rp_tried_again, id="again")
    failed = hf.replay("again")
    assert failed.same
    assert (failed.outcome, failed.failure.split(":")[0]) == (
        "failed",
        "StepFailed",
    )
    hf.retry("again")
    done = len(EFFECTS)
    found = hf.replay("again")
    assert found.same
    assert (found.outcome, found.result) == ("completed", "at last")
    assert len(EFFECTS) == done


def rp_take_back(result: str, *, key: str) -> None:
    EFFECTS.append(f"undone {result}")


@tool(undo=rp_take_back)
def rp_give(what: str) -> str:
    EFFECTS.append(what)
    return what


@task(compensate="always")
def rp_in_vain(asks: bool) -> None:
    rp_give("one")
    gather(lambda: rp_give("two"), lambda: note("in a branch"))
    if asks:
        ask("Go on?", bool)
    raise RuntimeError("in vain")


@task
def rp_left_undone() -> None:
    rp_give("three")
    raise RuntimeError("in vain")


def test_what_was_undone_is_not_undone_again(hf):
    with suppress(TaskFailed):
        hf.run(rp_in_vain, False, id="vain")
    with suppress(TaskFailed):
        hf.run(rp_left_undone, id="left")
    with suppress(TaskFailed):
        hf.compensate("left")
    with suppress(TaskWaiting):
        hf.run(rp_in_vain, True, id="stopped")
    hf.cancel("stopped", because="it rains")
    with suppress(TaskCancelled):
        hf.resume("stopped")
    done = list(EFFECTS)
    assert sum(each.startswith("undone") for each in done) == 5
    assert hf.task("stopped").status == "cancelled"
    for id in ("vain", "left", "stopped"):
        for place in (None, *hf.task(id).state.calls):
            found = hf.replay(id, start=place)
            assert found.same, (id, place, found.summary())
            assert found.outcome == found.recorded == hf.task(id).status
    assert done == EFFECTS


@task(timeout_s=60)
def rp_late() -> str:
    rp_rooms("Oslo")
    note("now it waits")
    return str(ask("Go on?", str))


@pytest.mark.parametrize("seconds", [60, 120])
def test_a_task_whose_time_was_up_ends_so_again(seconds):
    clock = Clock()
    with Holdfast("memory://", clock=clock) as hf:
        with suppress(TaskWaiting):
            hf.run(rp_late, id="late")
        waits = hf.replay("late")
        assert (waits.same, waits.outcome, waits.recorded) == (True, "open", "open")
        assert waits.stopped_at.startswith("step 2, ask(")
        clock.now += timedelta(seconds=seconds)
        with suppress(TaskFailed):
            hf.resume("late")
        assert hf.task("late").status == "failed"
        found = hf.replay("late")
        assert found.same, found.summary()
        assert "did not end by" in found.failure


CHECKED: list[str] = []


def rp_check(key: str) -> Happened[str] | None:
    CHECKED.append(key)
    return None


@tool(check=rp_check)
def rp_crashes(*, key: IdempotencyKey = IdempotencyKey()) -> str:
    EFFECTS.append("crash")
    raise Crash


@task
def rp_doubtful() -> str:
    rp_rooms("Oslo")
    return rp_crashes()


def test_a_call_in_doubt_is_neither_made_nor_asked_about(hf):
    with suppress(Crash):
        hf.run(rp_doubtful, id="doubt")
    found = hf.replay("doubt")
    assert (found.same, found.outcome) == (True, "open")
    assert found.stopped_at == "step 2, rp_crashes({})"
    assert found.summary() == "the same: as far as its log goes"
    assert EFFECTS == ["rooms", "crash"]
    assert CHECKED == []


def test_a_task_that_is_running_right_now_is_replayed_as_far_as_its_log_goes(hf):
    @task
    def rp_running() -> str:
        rp_rooms("Oslo")
        return rp_looks("running")

    @step
    def rp_looks(id: str) -> str:
        found = hf.replay(id)
        return f"{found.same} {found.outcome} {found.stopped_at}"

    assert hf.run(rp_running, id="running") == 'True open step 2, rp_looks({"id":"running"})'


@task
def rp_child(number: int) -> int:
    EFFECTS.append("child")
    return number * number


@task
def rp_parent() -> list[Any]:
    began = now()
    first, second = start(rp_child, 2), start(rp_child, 3)
    sleep(0.001)
    return [second.result(), first.result(), str(uuid()), now() > began]


def test_children_times_and_ids_are_as_they_were(hf):
    result = hf.run(rp_parent, id="parent")
    done = list(EFFECTS)
    found = hf.replay("parent")
    assert found.same, found.summary()
    assert found.result == result
    assert done == EFFECTS
    assert found.id == "parent"


@task
def rp_loops(upto: int) -> list[str]:
    said = restore(list[str]())
    while len(said) < upto:
        note(f"turn {len(said)}")
        turn = rp_rooms(f"city {len(said)}")[0]
        said = checkpoint([*said, turn.upper() if changed("state") else turn])
    return said


def test_checkpoints_are_made_anew_and_compared(hf):
    hf.run(rp_loops, 4, id="loop")
    for place in (None, "@1.1", "@3.1"):
        assert hf.replay("loop", start=place).same, place
    CODE["is"] = "state"
    found = hf.replay("loop")
    assert [tag.path for tag in found.differing][:2] == ["@1.1", "@1.1"]
    assert found.divergence is not None  # and its result is another one


def test_long_lists_and_large_values_are_found_again(hf):
    @step
    def rp_grown(items: list[str]) -> list[str]:
        return [*items, "x" * 500]

    @step
    def rp_large() -> str:
        return "y" * 200_000

    @task
    def rp_growing() -> int:
        items: list[str] = []
        for _ in range(30):
            items = rp_grown(items)
        note("grown", items)
        decide("items", items, options=[items])
        return len(items) + len(rp_large())

    hf.run(rp_growing, id="grown")
    for place in (None, "7", "31"):
        assert hf.replay("grown", start=place).same, place
    stubbed = hf.replay("grown", stubs={"rp_grown": lambda items: [*items, "z"]})
    assert stubbed.result == 200_030


HAPPENED: list[str] = []


@tool(check=lambda key: Happened("found") if key in HAPPENED else None)
def rp_dies(*, key: IdempotencyKey = IdempotencyKey()) -> str:
    EFFECTS.append("dies")
    HAPPENED.append(key)
    if len(HAPPENED) == 1:
        raise Crash
    return "made"


@tool(approve=True)
def rp_approved(what: str) -> str:
    EFFECTS.append(what)
    return what


@step
def rp_odd(number: int) -> int:
    if number % 2 and "odd" not in EFFECTS:
        raise ValueError("odd")
    return number


@task
def rp_everything() -> list[Any]:
    current().plan(["begin", "end"])
    found = rp_dies()
    answer = ask("Well?", str, default="nothing", timeout_s=0.001)
    try:
        rp_approved("yes")
        rp_approved("no")
    except StepFailed as failed:
        note(f"not approved: {failed.failure.type}")
    current().mark("1", "done")
    return [found, answer, *each(rp_odd, range(4))]


def go_on(hf: Holdfast, id: str) -> None:
    for _ in range(9):
        try:
            hf.resume(id)
            return
        except Unanswered as asked:
            if asked.question == "Well?":  # its time is up at once, and nobody answers
                continue
            hf.answer(id, "yes" in asked.question, question=asked.id, by="ada")
        except TaskFailed:
            EFFECTS.append("odd")
            hf.retry(id)
            return


def test_a_crash_a_default_an_approval_a_pause_and_a_second_try(hf):
    HAPPENED.clear()
    with suppress(Crash):
        hf.run(rp_everything, id="all")
    hf.pause("all", because="lunch")
    assert hf.replay("all").same
    go_on(hf, "all")
    view = hf.task("all")
    assert view.result == ["found", "nothing", 0, 1, 2, 3]
    assert [n.text for n in view.notes] == ["not approved: NotApproved"]
    done = list(EFFECTS)
    for place in (None, *(call.path for call in view.calls if call.seq)):
        found = hf.replay("all", start=place)
        assert found.same, (place, found.summary())
        assert found.result == view.result
    assert done == EFFECTS


def test_a_plan_that_somebody_edited_meanwhile_is_found_as_it_was(tmp_path):
    @task
    def rp_planned() -> str:
        current().plan(["one", "two"])
        rp_rooms("Oslo")
        answer = ask("Go on?", str)
        current().mark("1", "done")
        return str(answer)

    with Holdfast(tmp_path / "w") as hf:
        with suppress(Unanswered):
            hf.run(rp_planned, id="planned")
        with hf._holding.hold("planned") as log:
            log.append(Planned(items=("one", "two", "three"), by="ada"))
        hf.answer("planned", "yes")
        hf.resume("planned")
        assert [item.text for item in hf.task("planned").plan] == ["one", "two", "three"]
        for place in (None, "1", "2"):
            assert hf.replay("planned", start=place).same


# Forks, rewinds, branches


def test_a_fork_is_replayed_with_what_it_changed(hf):
    recorded(hf)
    fork = hf.fork("trip", at=2, results={"2": 5}, effects="live", new_id="trip-2")
    assert hf.resume(fork.id) == "booked Oslo attic for 5"
    EFFECTS.clear()
    for place in (None, "1", "3"):
        found = hf.replay("trip-2", start=place)
        assert found.same, found.summary()
        assert found.result == "booked Oslo attic for 5"
    CODE["is"] = "result"
    assert not hf.replay("trip-2").same
    assert EFFECTS == []


def test_a_task_that_was_put_back_is_replayed_from_there(hf):
    recorded(hf)
    hf.rewind("trip", to=2)
    open_ = hf.replay("trip")
    assert (open_.same, open_.outcome) == (True, "open")
    hf.resume("trip")
    EFFECTS.clear()
    for place in (None, "1", "3"):
        assert hf.replay("trip", start=place).same
    CODE["is"] = "result"
    assert not hf.replay("trip").same
    assert EFFECTS == []


def test_a_fork_is_replayed_from_an_archive_of_its_own_and_so_is_what_waits(hf, tmp_path):
    recorded(hf)
    hf.resume(hf.fork("trip", at=2, results={"2": 5}, effects="live", new_id="trip-2").id)
    with suppress(TaskWaiting):
        hf.session("chat").run(rp_late, id="late")
    forked, waits = hf.archive_to(tmp_path / "a.hfa", "trip-2"), hf.archive_to(tmp_path, "late")
    found = replay_recorded(forked.path, "trip-2")
    assert (found.same, found.result) == (True, "booked Oslo attic for 5")
    found = replay_recorded(waits.path, "late")
    assert (found.same, found.outcome) == (True, "open")
    CODE["is"] = "result"
    assert not replay_recorded(forked.path, "trip-2").same


async def rp_visit(city: str, pause_s: float) -> str:
    rooms = await rp_arooms(city)
    await asyncio.sleep(pause_s)
    note(f"saw {city}" if not changed("note") else f"visited {city}")
    return decide("room", rooms[0])


@step
async def rp_arooms(city: str) -> list[str]:
    await asyncio.sleep(0)
    EFFECTS.append(city)
    return [f"{city} attic"]


@task
async def rp_abroad() -> list[str]:
    visits = [rp_visit("Oslo", 0.02), rp_visit("Rome", 0.01), rp_visit("Lima", 0)]
    return [*await asyncio.gather(*visits), *await rp_arooms("Nice")]


def test_branches_that_interleave_are_put_in_the_recorded_order(hf):
    hf.run(rp_abroad, id="abroad")
    done = list(EFFECTS)
    assert [n.text for n in hf.task("abroad").notes] == ["saw Lima", "saw Rome", "saw Oslo"]
    for place in (None, *hf.task("abroad").state.calls):
        if "?" not in str(place):
            assert hf.replay("abroad", start=place).same, place
    CODE["is"] = "note"
    assert not hf.replay("abroad").same
    assert done == EFFECTS


def test_an_async_task_is_replayed_from_inside_of_a_loop_too(hf):
    async def replayed() -> None:
        await hf.arun(rp_abroad, id="abroad")
        assert hf.replay("abroad").same
        found = hf.replay("abroad", to="rp_visit~2.1")
        assert found.stopped_at == 'step rp_visit~2.1, rp_arooms({"city":"Rome"})'

    asyncio.run(replayed())


# What must not happen


@task
def rp_talks() -> str:
    session().say("hello" if not changed("words") else "good morning")
    rp_rooms("Oslo")
    session().say("bye")
    return "said"


def test_nothing_is_said_in_a_session_again(hf):
    hf.session("chat").run(rp_talks, id="talk")
    before = {name: list(hf.store.read(name)) for name in streams_in(hf.store, "")}
    assert hf.replay("talk").same
    CODE["is"] = "words"
    found = hf.replay("talk")
    assert found.divergence is not None
    assert 'says [{"role":"user","content":"good morning"}]' in found.divergence.asked
    assert {name: list(hf.store.read(name)) for name in streams_in(hf.store, "")} == before


def test_code_that_is_gone_is_named(hf):
    def rp_gone() -> None: ...

    from holdfast.core.spec import registry

    hf.run(task(rp_gone), id="gone")
    registry._found.pop(("task", "rp_gone"))
    with pytest.raises(CodeMissing, match="the log names a task 'rp_gone'"):
        hf.replay("gone")


def test_what_comes_before_damage_is_replayed(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        recorded(hf)
        log = tmp_path / "w" / "tasks" / "trip" / "events.jsonl"
        lines = log.read_bytes().splitlines(keepends=True)
        (at,) = [n for n, line in enumerate(lines) if b'"started"' in line and b"rp_book" in line]
        lines[at] = lines[at].replace(b"rp_book", b"rp_buck")
        log.write_bytes(b"".join(lines))
        found = hf.replay("trip")
        assert found.same
        assert (found.outcome, found.recorded) == ("open", "open")
        assert found.stopped_at.startswith("step 3, rp_book(")
        assert f"event {at + 1} is damaged" in found.note
        assert hf.replay("trip", start=2, to=2).same
        with pytest.raises(BadInput, match="has made no step '3'"):
            hf.replay("trip", to=3)
        assert log.read_bytes() == b"".join(lines)
    assert EFFECTS == []


@pytest.mark.parametrize("url", ["sqlite", "encrypted", "signed"])
def test_every_kind_of_store_is_left_as_it_is(url, tmp_path):
    from holdfast import Keys

    options: dict[str, Any] = {
        "sqlite": {},
        "encrypted": {"key": Keys.new()},
        "signed": {"sign_key": Keys.new()},
    }[url]
    place = f"sqlite:///{tmp_path}/w.db" if url == "sqlite" else str(tmp_path / "w")
    with Holdfast(place, **options) as hf:
        recorded(hf)
        head = hf.task("trip").seq
        assert hf.replay("trip").same
        assert hf.task("trip").seq == head
        assert hf.verify().sound


# What the code says elsewhere, and what it leaves out


@tool
async def rp_fetched(x: int) -> int:
    EFFECTS.append("fetched")
    return x


@task
def rp_talker(n: int) -> str:
    chat = session()

    def says(what: str, say: Any) -> Any:
        """What is said before the call, or after it."""
        moved.append((what, say)) if changed(f"{what} moved") else say()

    moved: list[Any] = []
    says("note", lambda: note("rooms"))
    says("decision", lambda: decide("room", n))
    says("plan", lambda: current().plan(["look", "book"]))
    says("file", lambda: files.write("rooms.txt", "attic"))
    says("message", lambda: chat.say("hello"))
    says("reading", files.list)
    says("time", now)
    rp_book("attic", n)
    for _, say in moved:
        say()
    rp_book("cellar", n)
    return "booked"


SAID = ["note", "decision", "plan", "file", "message", "reading", "time"]


@pytest.mark.parametrize("what", SAID)
def test_what_is_said_before_a_call_is_not_the_same_after_it(hf, what):
    hf.run(rp_talker, 1, id="talk", session="chat")
    assert hf.replay("talk").same
    CODE["is"] = f"{what} moved"
    found = hf.replay("talk")
    assert not found.same
    assert found.divergence is None
    assert (found.differing[0].path, found.differing[0].when) == ("1", "before")
    assert found.result == "booked"


@task
async def rp_fetching(n: int) -> str:
    async def fetch(x: int) -> None:
        await rp_fetched(x)
        if not changed("a call less"):
            await rp_fetched(x + 10)

    branches = n - 1 if changed("a branch less") else n
    await asyncio.gather(*(fetch(x) for x in range(branches)))
    return "fetched"


@pytest.mark.parametrize(
    ("how", "path"), [("a call less", "fetch~1.2"), ("a branch less", "fetch~3.1")]
)
def test_a_call_that_a_branch_of_asyncio_no_longer_makes_is_missed(hf, how, path):
    hf.run(rp_fetching, 3, id="fetching")
    assert hf.replay("fetching").same
    CODE["is"] = how
    found = hf.replay("fetching")
    assert found.divergence is not None
    assert found.divergence.path == path
    assert found.divergence.asked == "ends without that call"


FETCHED = asyncio.Event()


@step
async def rp_refused() -> None:
    await FETCHED.wait()
    raise ValueError("refused")


@task
async def rp_first_failure(n: int) -> str:
    async def fetch(x: int) -> None:
        for number in range(x):
            await rp_fetched(number)
            note(f"fetched {number}")
        FETCHED.set()
        await asyncio.sleep(3600)

    fetching = asyncio.create_task(fetch(n))
    try:
        await rp_refused()
    except StepFailed:
        fetching.cancel()
    return "given up"


def test_how_far_a_branch_came_that_was_cancelled_is_not_for_the_code_to_say(hf):
    assert hf.run(rp_first_failure, 3, id="first") == "given up"
    found = hf.replay("first")
    assert found.same, found.summary()


@task
def rp_added(n: int) -> str:
    if changed("a note more"):
        note("more")
    rp_book("attic", n)
    return ask("And now?")


def test_what_was_added_before_a_call_while_the_task_waited_is_as_recorded(hf):
    with suppress(TaskWaiting):
        hf.run(rp_added, 1, id="added")
    CODE["is"] = "a note more"
    hf.answer("added", "home")
    assert hf.resume("added") == "home"
    found = hf.replay("added")
    assert found.same, found.summary()


@task
def rp_hands_over(folder: str) -> list[str]:
    rp_book("attic", 1)
    return [path.name for path in here(folder)]


def test_what_a_task_hands_over_of_itself_is_not_written_again(hf, tmp_path):
    hf.run(rp_hands_over, str(tmp_path), id="hands")
    for path in tmp_path.iterdir():
        path.unlink()
    assert hf.replay("hands").same
    assert list(tmp_path.iterdir()) == []


@task
def rp_exits(n: int) -> int:
    rp_book("attic", n)
    if changed("exit"):
        raise SystemExit(0)
    return n


def test_code_that_ends_the_process_does_not_end_who_replays_it(hf):
    hf.run(rp_exits, 1, id="exits")
    CODE["is"] = "exit"
    found = hf.replay("exits")
    assert found.divergence is not None
    assert found.divergence.asked == "raises SystemExit: 0"


@task
def rp_mended(n: int) -> str:
    booked = rp_book("attic", n)
    if changed("mended"):
        return booked + rp_book("cellar", n)
    if changed("otherwise"):
        return booked.upper() + rp_book("cellar", n)
    raise ValueError("no luck")


def test_a_task_that_was_mended_and_tried_again_does_what_it_did(hf):
    with suppress(TaskFailed):
        hf.run(rp_mended, 1, id="mended")
    CODE["is"] = "mended"
    hf.retry("mended")
    EFFECTS.clear()
    found = hf.replay("mended")
    assert found.same, found.summary()
    assert (found.outcome, found.answered, len(found.mended)) == ("completed", 2, 1)
    assert found.mended[0].path == "2"
    CODE["is"] = "otherwise"
    assert not hf.replay("mended").same
    CODE["is"] = "as recorded"  # it fails as it did, and then once more, which it did not
    assert not hf.replay("mended").same
    assert EFFECTS == []
