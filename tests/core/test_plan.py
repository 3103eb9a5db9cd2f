"""Plans and decisions: said once, revised, marked, and read back as they were."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    BadInput,
    Holdfast,
    PlanItem,
    Redact,
    TaskFailed,
    checkpoint,
    current,
    decide,
    gather,
    note,
    restore,
    step,
    task,
)
from holdfast.core.events import Planned, PlanProgressed
from holdfast.core.plan import STATUSES, marked, numbered, ready, recorded, revised
from tests.flavors import Crash

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w")

Loose: Any = PlanItem
"""For fields of the wrong type."""


def statuses(plan):
    return {item.id: item.status for item in plan}


# What decides: plain functions


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ("abc", "not 'abc'"),
        (7, "not 7"),
        (["a", 7], "item 2 of the plan must be a text or a PlanItem, not 7"),
        ([PlanItem("a", id="x"), PlanItem("b", id="x")], "items 1 and 2 .* the same id 'x'"),
        ([PlanItem("a", id="2"), "b"], "items 1 and 2 .* the same id '2'"),
        (
            ["a", PlanItem("b", after=("nine",))],
            "item '2' .* comes after 'nine', .*: it has '1', '2'",
        ),
        ([PlanItem("a", after=("1",))], "wait for each other: '1' before '1'"),
        (
            [PlanItem("a", id="a", after=("b",)), PlanItem("b", id="b", after=("a",))],
            "wait for each other: 'a' before 'b' before 'a'|'b' before 'a' before 'b'",
        ),
        ([Loose("a", status="ready")], "'ready' is none of pending, doing, done, failed"),
        ([Loose("a", after="bc")], "after='bc' must be ids"),
        ([Loose(7)], "must be texts"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_name(items, told):
    with pytest.raises(BadInput, match=told):
        revised((), items)


def test_an_unknown_item_or_status_is_named_with_what_there_is():
    plan = revised((), ["a", "b"])
    with pytest.raises(BadInput, match="no item '3': it has '1', '2'"):
        marked(plan, "3", "done")
    with pytest.raises(BadInput, match="status='finished' is none of pending"):
        marked(plan, "1", "finished")
    with pytest.raises(BadInput, match=r"there is none: say it with current\(\).plan"):
        marked((), "1", "done")


def test_items_that_stay_keep_their_status_by_id_or_else_by_text():
    plan = revised((), ["a", PlanItem("b", id="b"), "a", "c"])
    for id, status in {"1": "done", "b": "failed", "3": "skipped"}.items():
        plan = marked(plan, id, status)
    again = revised(
        plan, ["c", PlanItem("b, mended", id="b"), "a", "a", PlanItem("a", status="doing")]
    )
    assert [(item.id, item.status) for item in again] == [
        ("1", "pending"),
        ("b", "failed"),
        ("3", "done"),
        ("4", "skipped"),
        ("5", "doing"),
    ]


def test_a_long_chain_of_items_is_checked_in_no_time():
    chain = [PlanItem(str(n), after=(str(n - 1),) if n > 1 else ()) for n in range(1, 20_000)]
    assert [item.id for item in ready(revised((), chain))] == ["1"]


@st.composite
def plans(draw):
    count = draw(st.integers(0, 8))
    ids = [draw(st.sampled_from(["", f"id {n}"])) for n in range(count)]
    known = [id or str(n) for n, id in enumerate(ids, 1)]
    return [
        PlanItem(
            draw(st.text('ab é✓\n"', max_size=4)),
            id,
            draw(st.sampled_from(STATUSES)),
            tuple(draw(st.lists(st.sampled_from(known[:n]), max_size=3)) if n else ()),
        )
        for n, id in enumerate(ids)
    ]


@given(plans())
def test_what_is_recorded_of_a_plan_is_the_plan(items):
    plan = revised((), items)
    assert numbered(recorded(plan)) == plan
    assert revised(plan, plan) == plan


@given(plans())
def test_ready_items_are_pending_and_wait_for_nothing(items):
    plan = revised((), items)
    by_id = {item.id: item for item in plan}
    for item in plan:
        waits = [id for id in item.after if by_id[id].status not in ("done", "skipped")]
        assert (item in ready(plan)) == (item.status == "pending" and not waits)


@given(plans())
def test_who_does_what_is_ready_comes_to_the_end(items):
    plan = revised((), [PlanItem(item.text, item.id, after=item.after) for item in items])
    while todo := ready(plan):
        plan = marked(plan, todo[0].id, "done")
    assert all(item.status == "done" for item in plan)


# In a task


def test_texts_stay_texts_in_the_log_and_the_rest_is_written_as_it_is_said(hf):
    @task(name="plan_said")
    def body() -> None:
        current().plan(["a", PlanItem("b", id="b", after=("1",))])
        current().plan(("a", "b"))

    hf.run(body, id="t")
    said = [event.items for event in hf.task("t").events() if isinstance(event, Planned)]
    assert said == [("a", PlanItem("b", id="b", after=("1",))), ("a", "b")]


def test_a_plan_is_followed_through_a_crash_at_every_place(hf):
    """The loop goes by what plan() and mark() return: a replay has to see the same each time."""
    alive = [0]
    made: list[str] = []

    @step(name="plan_do")
    def do(what: str) -> str:
        made.append(what)
        return what

    def tick() -> None:
        alive[0] -= 1
        if alive[0] == 0:
            raise Crash

    @task(name="plan_followed")
    def body() -> list[str]:
        done = []
        plan = current().plan(["a", PlanItem("b", after=("1",)), PlanItem("c", after=("2",))])
        while todo := ready(plan):
            tick()
            current().mark(todo[0].id, "doing")
            done.append(do(todo[0].text))
            plan = current().mark(todo[0].id, "done")
            tick()
            if todo[0].text == "b":
                plan = current().plan([*plan, PlanItem("d", after=("1", "3"))])
        return done

    for number in range(1, 10):
        alive[0] = number
        made.clear()
        id = f"t{number}"
        try:
            hf.run(body, id=id)
        except Crash:
            hf.run(body, id=id)
        assert made == ["a", "b", "c", "d"]
        view = hf.task(id)
        assert view.result == made
        assert set(statuses(view.plan).values()) == {"done"}
        kinds = [e for e in view.events() if isinstance(e, Planned | PlanProgressed)]
        assert len(kinds) == 2 + 2 * 4


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_the_plan_outlives_a_checkpoint_with_what_became_of_it(hf, dies_at):
    places = [0]

    def place() -> None:
        places[0] += 1
        if places[0] == dies_at:
            raise Crash

    @task(name="plan_checkpointed")
    def body() -> list[str]:
        turn = restore(0)
        if turn == 0:
            current().plan(["a", "b", "c"])
            current().mark("1", "done")
            turn = checkpoint(1)
            place()
        if turn == 1:
            current().mark("3", "skipped")
            turn = checkpoint(2)
            place()
        plan = current().mark("2", "done", because="it worked")
        place()
        return [item.status for item in plan]

    with pytest.raises(Crash):
        hf.run(body, id="t")
    assert hf.run(body, id="t") == ["done", "done", "skipped"]
    assert len([e for e in hf.task("t").events() if isinstance(e, PlanProgressed)]) == 3


def test_an_item_that_is_only_planned_later_is_unknown_on_a_replay_too(hf):
    seen: list[str] = []
    alive = [True]

    @task(name="plan_marks_early")
    def body() -> None:
        current().plan(["a"])
        try:
            current().mark("2", "done")
        except BadInput:
            seen.append("refused")
        current().plan(["a", "b"])
        if alive[0]:
            raise Crash

    with pytest.raises(Crash):
        hf.run(body, id="t")
    alive[0] = False
    hf.run(body, id="t")
    assert seen == ["refused", "refused"]
    assert statuses(hf.task("t").plan) == {"1": "pending", "2": "pending"}


def test_a_plan_that_is_refused_leaves_the_one_before(hf):
    @task(name="plan_refused")
    def body() -> str:
        current().plan(["a"])
        for wrong in (["x" * 1_000_000], [PlanItem("b", after=("7",))]):
            with pytest.raises(BadInput):
                current().plan(wrong)
        return current().mark("1", "done")[0].text

    assert hf.run(body, id="t") == "a"
    assert [item.text for item in hf.task("t").plan] == ["a"]


def test_branches_mark_one_plan_together(hf):
    meet = threading.Barrier(3)

    @task(name="plan_branches")
    def body() -> None:
        current().plan(["a", "b", "c"])

        def branch(id: str) -> None:
            meet.wait()
            current().mark(id, "done")

        gather(*(lambda id=id: branch(id) for id in "123"))

    hf.run(body, id="t")
    assert set(statuses(hf.task("t").plan).values()) == {"done"}


def test_every_version_of_the_plan_is_kept_with_its_time(hf):
    @task(name="plan_versions")
    def body() -> None:
        current().plan(["a"])
        current().mark("1", "skipped", because="no need")
        current().plan(["a", "b"])

    hf.run(body, id="t")
    view = hf.task("t")
    told = [(v.marked, v.because, statuses(v.items)) for v in view.plans]
    assert told == [
        ("", "", {"1": "pending"}),
        ("1", "no need", {"1": "skipped"}),
        ("", "", {"1": "skipped", "2": "pending"}),
    ]
    times = [version.at for version in view.plans]
    assert times == sorted(times) and view.plan == view.plans[-1].items


def test_step_six_of_nine_comes_from_the_items_once_they_are_marked(hf):
    places: list[str] = []

    @step(name="plan_part")
    def part() -> None: ...

    @task(name="plan_position")
    def body() -> None:
        current().plan([f"part {n}" for n in range(1, 10)])
        for n in range(1, 7):
            current().mark(str(n), "doing")
            part()
            part()
            places.append(str(hf.task("t").position))
            current().mark(str(n), "done")
        raise ValueError("no more")

    with pytest.raises(TaskFailed):
        hf.run(body, id="t")
    assert places == [f"step {n} of 9" for n in range(1, 7)]
    position = hf.task("t").position
    assert str(position) == "step 6 of 9"
    assert position.pending == ("part 7", "part 8", "part 9")


def test_the_position_between_two_items_is_the_next_that_is_ready(hf):
    @task(name="plan_between")
    def body() -> list[str]:
        places = []
        current().plan(["a", PlanItem("b", after=("3",)), "c"])
        for id in ("1", "3", "2"):
            current().mark(id, "done")
            places.append(str(hf.task("t").position))
        return places

    assert hf.run(body, id="t") == ["step 3 of 3", "step 2 of 3", "step 3 of 3"]


def test_secrets_are_blotted_out_of_items_and_reasons(tmp_path):
    @task(name="plan_secret")
    def body() -> str:
        plan = current().plan(["use acme-77", PlanItem("then acme-78", id="then")])
        current().mark("then", "failed", because="acme-79 expired")
        return plan[0].text

    with Holdfast(tmp_path, redact=Redact(patterns=[r"acme-\d+"])) as hf:
        assert hf.run(body, id="t") == "use •••"
    assert b"acme-7" not in (tmp_path / "tasks/t/events.jsonl").read_bytes()


def test_a_changed_plan_is_no_changed_code(hf):
    alive = [True]

    @task(name="plan_rehearsed")
    def body() -> None:
        if not alive[0]:
            current().plan(["new"])
            current().mark("1", "done")
        note("there")
        if alive[0]:
            raise Crash

    with pytest.raises(Crash):
        hf.run(body, id="t")
    alive[0] = False
    assert hf.check("t").fits
    hf.run(body, id="t")
    assert statuses(hf.task("t").plan) == {"1": "done"}


# Decisions


def test_a_decision_that_supersedes_another_says_so_both_ways(hf):
    @task(name="supersedes")
    def body() -> str:
        decide("room", "inn")
        decide("room", "attic", supersedes="room")
        return decide("bed", "sofa", supersedes="room?1")

    assert hf.run(body, id="t") == "sofa"
    links = [(d.path, d.supersedes, d.superseded_by) for d in hf.task("t").decisions]
    assert links == [("room?1", "", "bed?1"), ("room?2", "room?1", ""), ("bed?1", "room?1", "")]


@pytest.mark.parametrize("when", ["run", "resumed"])
def test_a_decision_from_before_a_checkpoint_can_be_superseded(hf, when):
    alive = [when == "resumed"]

    @task(name="supersedes_old")
    def body() -> str:
        if restore(0) == 0:
            decide("room", "inn")
            checkpoint(1)
        if alive[0]:
            raise Crash
        return decide("room", "attic", supersedes="room")

    if alive[0]:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        alive[0] = False
    assert hf.run(body, id="t") == "attic"
    assert hf.task("t").decisions[-1].supersedes == "room?1"


def test_superseding_what_was_never_decided_stops_the_run_and_can_be_mended(hf):
    wrong = [True]

    @task(name="supersedes_nothing")
    def body() -> str:
        decide("room", "inn")
        try:
            return decide("bed", "sofa", supersedes="rom" if wrong[0] else "room")
        except Exception:
            return "caught"

    with pytest.raises(BadInput, match=r"'t'.*supersedes='rom'.*no decision of that name"):
        hf.run(body, id="t")
    wrong[0] = False
    assert hf.run(body, id="t") == "sofa"


# The record


def test_the_record_of_a_task_has_what_it_learned(hf):
    @step(name="record_look")
    def look(n: int) -> list[int]:
        return [n]

    @task(name="record_of")
    def body() -> str:
        current().plan(["look"])
        look(1)
        look(2)
        note("a view", {"of": "the sea"})
        current().mark("1", "done")
        return "seen"

    hf.run(body, id="t", user="ada")
    view = hf.task("t")
    record = view.record()
    assert (record.id, record.user, record.type, record.status) == (
        "t",
        "ada",
        "record_of",
        "completed",
    )
    assert record.created_at == view.state.created_at
    assert record.plan == (PlanItem("look", "1", "done"),)
    assert record.observations == {"record_look": [2], "a view": {"of": "the sea"}}
    assert record.result == "seen"
