"""People may edit plan.md and mission.md: what they changed is recorded, and nothing is lost."""

from __future__ import annotations

import os
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    BadInput,
    Conflict,
    Holdfast,
    PlanItem,
    Redact,
    TaskFailed,
    ask,
    current,
    step,
    task,
)
from holdfast.core.events import MissionSet, Planned, PlanProgressed
from holdfast.core.fold import fold
from holdfast.core.plan import (
    STATUSES,
    circle_in,
    merged,
    merged_for_ours,
    numbered,
    ready,
    told_changes,
)
from holdfast.engines.mail import fitted
from holdfast.errors import TaskNotFound, TaskWaiting
from holdfast.workspace.checklist import parse, print_plan
from holdfast.workspace.edits import take_in, taken
from holdfast.workspace.pages import with_footer

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "face"
    made.mkdir()
    return made


@task
def edited_trip(items: list[str], marks: dict[str, str]) -> str:
    plan = current().plan(items)
    for id, status in marks.items():
        current().mark(id, status)  # type: ignore[arg-type]
    if ask("go on?", bool):
        plan = current().mark("1", "done")
    return ", ".join(item.text for item in plan)


def begun(hf, items=("look", "book", "pack"), id="trip-1", **marks):
    with pytest.raises(TaskWaiting):
        hf.run(edited_trip, list(items), marks, id=id)
    return id


def show(hf, id, folder):
    """Write plan.md as it is projected."""
    newest = hf.task(id).plans[-1]
    page = with_footer(print_plan(newest.items), newest.seq, newest.at)
    (folder / "plan.md").write_bytes(page)


def edit(folder, *pairs, file="plan.md"):
    text = (folder / file).read_text()
    for before, after in pairs:
        assert before in text
        text = text.replace(before, after)
    (folder / file).write_text(text)


def texts(hf, id):
    return [(item.id, item.text, item.status) for item in hf.task(id).plan]


def edits_of(hf, id):
    return [e for e in hf.task(id).events() if isinstance(e, Planned) and e.by]


def test_an_edited_plan_becomes_one_event_with_its_diff(hf, folder):
    id = begun(hf)
    show(hf, id, folder)
    edit(folder, ("2. book", "2. book a room"), ("- [ ] 3. pack\n", "- [ ] pack light\n"))
    change, *more = take_in(hf, id, folder, by="ada")
    assert not more
    assert not change.problem
    assert change.changes == (
        "removed 3, which was pending: 'pack'",
        "2 is now 'book a room'; it was 'book'",
        "added 4: 'pack light'",
    )
    assert texts(hf, id) == [
        ("1", "look", "pending"),
        ("2", "book a room", "pending"),
        ("4", "pack light", "pending"),
    ]
    event, *more = edits_of(hf, id)
    assert not more
    assert event.by == "ada"
    assert event.diff == change.diff
    assert [line for line in event.diff.splitlines() if line[0] in "+-"] == [
        "--- a/plan.md\tevent 3",
        "+++ b/plan.md",
        "-- [ ] 2. book",
        "-- [ ] 3. pack",
        "+- [ ] 2. book a room",
        "+- [ ] pack light",
    ]

    again = take_in(hf, id, folder)
    assert [(c.changes, c.problem) for c in again] == [((), "")]
    assert len(edits_of(hf, id)) == 1
    data = (folder / "plan.md").read_bytes()
    assert taken(again) == {"plan.md": data}


def test_a_file_that_is_untouched_or_only_old_or_not_there_is_no_edit(hf, folder):
    id = begun(hf)
    assert take_in(hf, id, folder) == []
    show(hf, id, folder)
    hf.answer(id, True)
    hf.resume(id)
    assert hf.task(id).plan[0].status == "done"
    assert take_in(hf, id, folder) == []
    assert not edits_of(hf, id)


def test_another_line_ending_is_no_edit_and_words_around_the_list_are_kept_in_the_log(hf, folder):
    id = begun(hf)
    show(hf, id, folder)
    page = (folder / "plan.md").read_bytes()
    (folder / "plan.md").write_bytes(b"\xef\xbb\xbf" + page.replace(b"\n", b"\r\n"))
    assert [(c.changes, c.problem) for c in take_in(hf, id, folder)] == [((), "")]
    assert not edits_of(hf, id)
    (folder / "plan.md").write_bytes(page.replace(b"# Plan\n", b"# Plan\n\nMind the budget!\n"))
    (change,) = take_in(hf, id, folder)
    assert change.changes == ("the words around the list",)
    assert "+Mind the budget!" in edits_of(hf, id)[0].diff


def test_progress_since_the_file_was_written_stays_unless_that_very_mark_was_changed(hf, folder):
    id = begun(hf)
    show(hf, id, folder)
    with hf._holding.hold(id) as log:
        log.append(PlanProgressed(id="1", status="done"))
        log.append(PlanProgressed(id="2", status="doing"))
    edit(folder, ("3. pack", "3. pack light"), ("[ ] 2.", "[-] 2."))
    take_in(hf, id, folder)
    assert texts(hf, id) == [
        ("1", "look", "done"),
        ("2", "book", "skipped"),
        ("3", "pack light", "pending"),
    ]


def test_items_that_the_task_added_meanwhile_stay_and_get_no_number_twice(hf, folder):
    id = begun(hf)
    show(hf, id, folder)
    plan = (*hf.task(id).plan, PlanItem("tell Ada", "4", after=("3",)))
    with hf._holding.hold(id) as log:
        log.append(Planned(items=plan))
    edit(folder, ("- [ ] 1. look\n", "- [ ] 4. get a map\n- [ ] 1. look (after: 4)\n"))
    take_in(hf, id, folder)
    plan = hf.task(id).plan
    assert [(i.id, i.text, i.after) for i in plan] == [
        ("5", "get a map", ()),
        ("1", "look", ("5",)),
        ("2", "book", ()),
        ("3", "pack", ()),
        ("4", "tell Ada", ("3",)),
    ]


def test_a_removed_item_that_was_done_stays_in_the_history(hf, folder):
    id = begun(hf, **{"1": "done"})
    show(hf, id, folder)
    edit(folder, ("- [x] 1. look\n", ""))
    (change,) = take_in(hf, id, folder)
    assert change.changes == ("removed 1, which was done: 'look'",)
    assert [item.text for item in hf.task(id).plan] == ["book", "pack"]
    assert any(
        item.text == "look" and item.status == "done" for item in hf.task(id).plans[-2].items
    )


def test_what_came_after_a_removed_item_that_was_done_may_be_begun(hf, folder):
    id = begun(hf, **{"1": "done"})
    show(hf, id, folder)
    edit(folder, ("- [x] 1. look\n", ""), ("2. book", "2. book (after: 1)"))
    (change,) = take_in(hf, id, folder)
    assert not change.problem
    assert [(item.text, item.after) for item in hf.task(id).plan] == [("book", ()), ("pack", ())]


def test_a_conflict_names_the_item_and_both_versions_and_changes_nothing(hf, folder):
    id = begun(hf)
    show(hf, id, folder)
    with hf._holding.hold(id) as log:
        log.append(Planned(items=("look", "book a hotel", "pack")))
    edit(folder, ("2. book", "2. book a boat"), ("3. pack", "3. pack light"))
    page = (folder / "plan.md").read_bytes()
    (change,) = take_in(hf, id, folder)
    assert "item '2' is 'book a boat' in one and 'book a hotel' in another" in change.problem
    assert "copy your version aside" in change.problem
    assert (folder / "plan.md").read_bytes() == page
    assert [item.text for item in hf.task(id).plan] == ["look", "book a hotel", "pack"]
    assert taken([change]) == {}


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        (b"", "plan.md: there is no checklist"),
        (b"Let's do it tomorrow.\n", "plan.md: there is no checklist"),
        (b"- [ ] 1. a (after: 2)\n- [ ] 2. b (after: 1)\n", "plan.md: line 1: items wait for"),
        (b"- [ ] 1. a\n- [ ] \xff\n", "plan.md: line 2 is not UTF-8"),
        (b"- [ ] " + b"a" * 1_000_001, "plan.md: it is longer than 1,000,000 bytes"),
    ],
)
def test_what_is_no_plan_is_told_and_the_task_goes_on_by_the_old_one(hf, folder, page, problem):
    id = begun(hf)
    before = texts(hf, id)
    (folder / "plan.md").write_bytes(page)
    (change,) = take_in(hf, id, folder)
    assert change.problem.startswith(problem)
    assert (folder / "plan.md").read_bytes() == page
    assert texts(hf, id) == before


def test_no_link_and_no_pipe_is_followed(hf, folder):
    id = begun(hf)
    (folder / "secret").write_text("- [ ] 1. secret\n")
    (folder / "plan.md").symlink_to(folder / "secret")
    os.mkdir(folder / "mission.md")
    assert ["can't be read" in change.problem for change in take_in(hf, id, folder)] == [True, True]


def test_a_file_without_our_last_line_can_not_undo_what_is_done(hf, folder):
    id = begun(hf, **{"1": "done", "2": "failed"})
    (folder / "plan.md").write_text("- [ ] look\n- [x] book\n- [ ] pack\n- [ ] fly\n")
    take_in(hf, id, folder)
    assert texts(hf, id) == [
        ("1", "look", "done"),
        ("2", "book", "done"),
        ("3", "pack", "pending"),
        ("4", "fly", "pending"),
    ]


def test_what_is_written_below_our_last_line_counts_and_so_does_that_line(hf, folder):
    id = begun(hf)
    show(hf, id, folder)
    with hf._holding.hold(id) as log:
        log.append(PlanProgressed(id="1", status="done"))
    with (folder / "plan.md").open("a") as file:
        file.write("- [ ] fly\n")
    take_in(hf, id, folder)
    assert texts(hf, id)[0] == ("1", "look", "done")
    assert texts(hf, id)[-1] == ("4", "fly", "pending")


def test_a_task_that_is_over_is_not_changed_any_more_but_a_failed_one_is(hf, folder):
    @task
    def over_with(fails: bool) -> None:
        current().plan(["look"])
        if fails:
            raise ValueError("rain")

    (folder / "plan.md").write_text("- [ ] 1. look twice\n")
    hf.run(over_with, False, id="over-1")
    assert "is completed" in take_in(hf, "over-1", folder)[0].problem
    with pytest.raises(TaskFailed):
        hf.run(over_with, True, id="over-2")
    assert not take_in(hf, "over-2", folder)[0].problem
    assert hf.task("over-2").plan[0].text == "look twice"


def test_a_mission_is_taken_in_with_its_diff_and_two_who_change_it_are_told(hf, folder):
    id = begun(hf)
    (folder / "mission.md").write_text("Go to Oslo.\n")
    (change,) = take_in(hf, id, folder, by="ada")
    view = hf.task(id)
    assert view.value(view.state.mission) == "Go to Oslo.\n"
    (event,) = [e for e in view.events() if isinstance(e, MissionSet)]
    assert (event.by, event.diff) == ("ada", change.diff)
    assert "+Go to Oslo." in event.diff

    page = with_footer("Go to Oslo.\n", event.seq, event.at)
    (folder / "mission.md").write_bytes(page.replace(b"Oslo", b"Bergen"))
    with hf._holding.hold(id) as log:
        log.append(MissionSet(text=msgspec.Raw(b'"Go to Rome.\\n"')))
    (change,) = take_in(hf, id, folder)
    assert "It says 'Go to Bergen.', the log 'Go to Rome.'" in change.problem
    (folder / "mission.md").write_text("\n \n")
    assert "it is empty" in take_in(hf, id, folder)[0].problem


def test_a_secret_that_somebody_wrote_into_a_file_is_told_and_kept_out_of_the_log(folder):
    key = "sk-proj-a1B2c3D4e5F6g7H8a1B2c3D4e5F6g7H8"
    with Holdfast("memory://", redact=Redact(refuse=True)) as hf:
        id = begun(hf)
        (folder / "plan.md").write_text(f"- [ ] 1. use {key}\n")
        (folder / "mission.md").write_text(f"Use {key}.\n")
        changes = take_in(hf, id, folder)
        assert ["looks like a secret" in change.problem for change in changes] == [True, True]
        assert key.encode() not in b"".join(hf.store.read(f"tasks/{id}"))


# While the task runs


def test_a_running_task_goes_on_by_the_edited_plan_and_so_does_its_replay(hf, folder):
    """It is held by a thread of its own, so the edit goes by way of the inbox."""
    reached, go_on = threading.Event(), threading.Event()
    seen: list[list[str]] = []
    ran: list[str] = []

    @step
    def do_item(text: str) -> str:
        ran.append(text)
        if text == "look":
            reached.set()
            assert go_on.wait(60)
        return text

    @task
    def by_the_plan() -> list[str]:
        plan = current().plan(["look", "book"])
        done = []
        while todo := ready(plan):
            done.append(do_item(todo[0].text))
            plan = current().mark(todo[0].id, "done")
            seen.append([item.text for item in plan])
        ask("fine?", bool)
        return done

    def drive():
        with pytest.raises(TaskWaiting):
            hf.run(by_the_plan, id="by-1")

    thread = threading.Thread(target=drive)
    thread.start()
    assert reached.wait(60)
    show(hf, "by-1", folder)
    edit(folder, ("2. book", "2. book a boat"), ("- [ ] 1. look\n", "- [ ] 1. look\n- [ ] fly\n"))
    (change,) = take_in(hf, "by-1", folder)
    assert not change.problem
    go_on.set()
    thread.join()
    assert ran == ["look", "fly", "book a boat"]
    first = list(seen)
    seen.clear()
    hf.answer("by-1", True)
    assert hf.resume("by-1") == ["look", "fly", "book a boat"]
    assert seen == first
    assert ran == ["look", "fly", "book a boat"]


def test_a_plan_that_the_code_says_anew_keeps_what_was_edited(hf, folder):
    @task
    def replans() -> list[str]:
        plan = current().plan(["look", "book"])
        if len(hf.task("re-1").plans) == 1:
            show(hf, "re-1", folder)
            edit(
                folder,
                ("1. look", "1. look around"),
                ("- [ ] 2. book\n", "- [ ] 2. book\n- [ ] fly\n"),
            )
            take_in(hf, "re-1", folder)
        plan = current().plan([*plan, PlanItem("tell Ada", "tell", after=("2",))])
        return [item.text for item in plan]

    assert hf.run(replans, id="re-1") == ["look around", "book", "tell Ada", "fly"]


def test_an_item_that_was_removed_while_it_was_done_is_no_error(hf, folder):
    @task
    def removed_under_way() -> list[str]:
        current().plan(["look", "book"])
        current().mark("1", "doing")
        if len(hf.task("rem-1").plans) == 2:
            show(hf, "rem-1", folder)
            edit(folder, ("- [~] 1. look\n", ""))
            take_in(hf, "rem-1", folder)
        return [item.text for item in current().mark("1", "done")]

    assert hf.run(removed_under_way, id="rem-1") == ["book"]


def test_a_task_that_marks_its_items_while_people_edit_loses_nothing(hf, folder):
    items = [f"item {n}" for n in range(1, 31)]
    begun_to = threading.Event()

    @task
    def busy_with_marks() -> None:
        current().plan(items)
        begun_to.set()
        for n in range(1, 31):
            current().mark(str(n), "doing")
            current().mark(str(n), "done")

    thread = threading.Thread(target=lambda: hf.run(busy_with_marks, id="busy-1"))
    thread.start()
    assert begun_to.wait(60)
    added = []
    while thread.is_alive():
        show(hf, "busy-1", folder)
        with (folder / "plan.md").open("a") as file:
            file.write(f"- [ ] extra {len(added)}\n")
        (change,) = take_in(hf, "busy-1", folder)
        if not change.problem:
            added.append(f"extra {len(added)}")
        assert change.problem == "" or "is completed" in change.problem
    thread.join()
    plan = hf.task("busy-1").plan
    assert [item.status for item in plan if item.text in items] == ["done"] * 30
    assert [item.text for item in plan if item.text not in items] == added


def test_a_message_about_a_plan_is_fitted_to_what_the_plan_is_by_now():
    state = fold(
        [
            Planned(seq=1, items=("look", "book")),
            PlanProgressed(seq=2, id="1", status="done"),
        ]
    )
    said = Planned(items=("look", "book a boat", "fly"), base_seq=1, by="ada")
    fitting = fitted(state, said)
    assert isinstance(fitting, Planned)
    assert [(i.text, i.status) for i in numbered(fitting.items)] == [
        ("look", "done"),
        ("book a boat", "pending"),
        ("fly", "pending"),
    ]
    assert fitted(state, Planned(items=("look",), base_seq=0)) is None
    rival = fold([Planned(seq=3, items=("look", "book a hotel"))], state)
    assert fitted(rival, said) is None


# The merge itself


@st.composite
def changed_plans(draw, base):
    """Somebody's version of a plan: items removed, reworded, marked, moved, added."""
    items = []
    for item in base:
        what = draw(st.sampled_from(["same"] * 4 + ["gone", "reworded", "marked"]))
        if what == "gone":
            continue
        if what == "reworded":
            item = msgspec.structs.replace(item, text=draw(st.text(max_size=4)))
        if what == "marked":
            item = msgspec.structs.replace(item, status=draw(st.sampled_from(STATUSES)))
        items.append(item)
    if draw(st.booleans()):
        items = list(draw(st.permutations(items)))
    for text in draw(st.lists(st.text(max_size=4), max_size=3)):
        place = draw(st.integers(0, len(items)))
        items.insert(place, PlanItem(text, f"new{draw(st.integers(1, 3))}-{len(items)}"))
    known = {item.id for item in items}
    return tuple(
        msgspec.structs.replace(item, after=tuple(id for id in item.after if id in known))
        for item in items
    )


@st.composite
def three_plans(draw):
    count = draw(st.integers(1, 6))
    items = []
    for n in range(1, count + 1):
        after = draw(st.lists(st.integers(1, n - 1), unique=True, max_size=2)) if n > 1 else []
        items.append(PlanItem(f"item {n}", str(n), after=tuple(map(str, after))))
    base = tuple(items)
    return base, draw(changed_plans(base)), draw(changed_plans(base))


@given(three_plans())
def test_whatever_two_do_to_a_plan_nothing_is_lost(plans):
    base, ours, theirs = plans
    try:
        plan = merged(base, ours, theirs)
    except Conflict as error:
        assert "item" in str(error)
        plan = merged_for_ours(base, ours, theirs)
    was = {item.id: item for item in base}
    now = {item.id: item for item in plan}
    assert len(now) == len(plan)
    assert not circle_in(plan)
    for side, other in ((ours, theirs), (theirs, ours)):
        of_other = {item.id: item for item in other}
        for item in side:
            if item.id not in was:  # what was added is there, under this id or another
                assert any(kept.text == item.text for kept in plan)
            elif item.id in of_other and item.text != was[item.id].text:
                assert now[item.id].text in (item.text, of_other[item.id].text)
    for id, item in now.items():
        mine, yours = ({i.id: i for i in side}.get(id) for side in (ours, theirs))
        if id in was and mine and yours and mine.text == yours.text == was[id].text:
            assert item.text == was[id].text
        assert set(item.after) <= set(now)


@given(three_plans())
def test_who_changed_nothing_changes_nothing_and_the_same_change_twice_is_one(plans):
    base, ours, theirs = plans
    assert merged(base, ours, base) == ours
    assert set(merged(base, base, theirs)) == set(theirs)
    assert merged(base, theirs, theirs) == theirs
    assert list(told_changes(ours, ours)) == []


@given(three_plans())
def test_an_edit_of_a_printed_plan_is_that_plan_when_nobody_else_changed_it(plans):
    base, _, theirs = plans
    if theirs:
        assert set(merged(base, base, parse(print_plan(theirs), base))) == set(theirs)


def test_items_that_wait_for_each_other_only_together_are_a_conflict():
    base = numbered(["a", "b"])
    ours = (PlanItem("a", "1", after=("2",)), base[1])
    theirs = (base[0], PlanItem("b", "2", after=("1",)))
    with pytest.raises(Conflict, match="together, items wait for each other"):
        merged(base, ours, theirs)
    assert merged_for_ours(base, ours, theirs) == ours


def test_take_in_says_what_is_wrong_with_what_it_was_given(hf, folder):
    with pytest.raises(TaskNotFound, match="no task 'nobody'"):
        take_in(hf, "nobody", folder)
    with pytest.raises(BadInput, match="by="):
        take_in(hf, begun(hf), folder, by=7)
