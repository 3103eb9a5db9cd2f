"""A task that is rewound is what it was then; nothing is deleted, and a rewind can be rewound."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    BadInput,
    Holdfast,
    IdempotencyKey,
    TaskBusy,
    TaskFailed,
    ask,
    checkpoint,
    decide,
    note,
    restore,
    start,
    step,
    task,
    tool,
)
from holdfast.agent import session
from holdfast.workspace import files

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/w.db")

NO_KEY = IdempotencyKey("")
world: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def _new_world() -> None:
    world.clear()


def rewind_unbook(result: str, *, key: IdempotencyKey) -> None:
    world.append(("unbook", result))


@tool(undo=rewind_unbook)
def rewind_book(room: str, *, key: IdempotencyKey = NO_KEY) -> str:
    world.append(("book", room, str(key)))
    return f"booked {room}"


@tool
def rewind_mail(text: str) -> str:
    world.append(("mail", text))
    return f"sent {text}"


@step
def rewind_look(what: str) -> str:
    world.append(("look", what))
    return f"{what} {len(world)}"


@task
def rewind_trip() -> str:
    seen = rewind_look("rooms")
    files.write("seen.txt", seen)
    room = decide("room", seen, because="it is there")
    booked = rewind_book("attic")
    files.write("booked.txt", booked)
    note("booked")
    rewind_mail(room)
    return booked


def test_state_and_files_go_back_as_one_cut_and_the_rewind_too(hf: Holdfast):
    hf.run(rewind_trip, id="t")
    newest, before = hf.task("t"), hf.task("t").at(2)
    rewound = hf.rewind("t", to=2, because="the wrong room").task
    assert (rewound.status, rewound.state.because) == ("paused", "the wrong room")
    assert rewound.at(seq=rewound.seq).content == before.content
    assert [file.name for file in hf.files("t").list()] == ["seen.txt"]
    assert rewound.seq == newest.seq + 1, "nothing was deleted"
    again = hf.rewind("t", seq=newest.seq).task
    assert again.at(seq=again.seq).content == newest.at(seq=newest.seq).content
    assert (again.status, again.result) == ("completed", "booked attic")
    assert {file.name for file in hf.files("t").list()} == {"seen.txt", "booked.txt"}
    assert hf.verify().sound


def test_what_was_done_outside_is_listed_and_answers_for_the_same_call(hf: Holdfast):
    hf.run(rewind_trip, id="t")
    effects = hf.rewind("t", to=1).effects
    assert [(e.path, e.name, e.undo) for e in effects] == [
        ("3", "rewind_mail", "none"),
        ("2", "rewind_book", "possible"),
    ]
    assert hf.resume("t") == "booked attic"
    assert sum(each[0] == "book" for each in world) == 1, "it was booked already"
    mails = [each for each in world if each[0] == "mail"]
    assert len(mails) == 2, "its text is another one now"


def test_live_effects_after_a_rewind_have_new_keys(hf: Holdfast):
    hf.run(rewind_trip, id="t")
    hf.rewind("t", to=1, effects="live")
    hf.resume("t")
    keys = [each[2] for each in world if each[0] == "book"]
    assert len(keys) == 2 and keys[0].startswith("t:2:") and keys[1].startswith("t:2~1:")


def test_with_undo_what_can_be_undone_is_and_then_done_anew(hf: Holdfast):
    hf.run(rewind_trip, id="t")
    effects = hf.rewind("t", to=2, undo=True).effects
    assert [(e.name, e.undo) for e in effects] == [
        ("rewind_mail", "none"),
        ("rewind_book", "undone"),
    ]
    assert ("unbook", "booked attic") in world
    hf.resume("t")
    assert sum(each[0] == "book" for each in world) == 2
    assert hf.verify("t").sound


def test_the_conversation_goes_back_along(hf: Holdfast):
    @task
    def rewind_talk() -> int:
        session().say("first")
        rewind_look("x")
        session().say("second")
        return len(list(session().messages()))

    talk = hf.session("s", user="ada")
    talk.say("Hello")
    assert talk.run(rewind_talk, id="t") == 3
    newest = hf.task("t").seq
    hf.rewind("t", to=1, when="after")
    assert [m.text for m in hf.session("s").messages()] == ["Hello", "first"]
    hf.rewind("t", seq=newest)
    assert [m.text for m in hf.session("s").messages()] == ["Hello", "first", "second"]
    hf.rewind("t", to=1)
    assert hf.resume("t") == 3
    assert [m.text for m in hf.session("s").messages()] == ["Hello", "first", "second"]
    assert hf.verify().sound


def test_a_loop_with_checkpoints_goes_back(hf: Holdfast):
    @task
    def rewind_count(upto: int) -> list[str]:
        seen: list[str] = restore([])
        while len(seen) < upto:
            seen = checkpoint([*seen, rewind_look(str(len(seen)))])
        return seen

    first = hf.run(rewind_count, 4, id="t")
    with pytest.raises(BadInput, match=r"Its steps are 1, @1\.1, @2\.1, @3\.1"):
        hf.rewind("t", to=2)
    hf.rewind("t", to="@2.1")
    world.clear()
    again = hf.resume("t")
    assert again[:2] == first[:2] and again[2:] == ["2 1", "3 2"]
    assert hf.task("t").result == again
    hf.rewind("t", to="@1.1")
    hf.resume("t")
    assert len(hf.task("t").result) == 4


def test_children_that_are_started_anew_are_others(hf: Holdfast):
    @task
    def rewind_child(x: int) -> int:
        world.append(("child", x))
        return len(world)

    @task
    def rewind_parent() -> int:
        return start(rewind_child, 1).result()

    assert hf.run(rewind_parent, id="t") == 1
    effects = hf.rewind("t", to=1, effects="live").effects
    assert [(e.kind, e.child) for e in effects] == [("child", "t.1")]
    assert hf.resume("t") == 2
    assert {t.id for t in hf.tasks()} == {"t", "t.1", "t~1.1"}
    hf.rewind("t", to=1)
    assert hf.resume("t") in (1, 2), "what a child did is not done again, unless it was said so"
    assert len(world) == 2 and len(list(hf.tasks())) == 3


def test_where_a_task_can_not_be_put_back(hf: Holdfast):
    @task
    def rewind_itself() -> str:
        rewind_look("x")
        with pytest.raises(TaskBusy, match="pause it first"):
            hf.rewind("t", to=1)
        return ask("more?", str)

    with pytest.raises(Exception, match="more"):
        hf.run(rewind_itself, id="t")
    with pytest.raises(BadInput, match="events 1 to"):
        hf.rewind("t", seq=99)
    with pytest.raises(BadInput, match="not ended"):
        hf.rewind("t", to=2, when="after")
    with pytest.raises(BadInput, match="'reuse'"):
        hf.rewind("t", to=1, effects="no")  # type: ignore[arg-type]


def test_a_fork_of_a_task_that_was_put_back_has_the_past_that_counts(hf: Holdfast):
    hf.run(rewind_trip, id="t")
    hf.rewind("t", to=2)
    hf.resume("t")
    hf.fork("t", at=3, effects="reuse", new_id="f")
    assert hf.task("f").state.calls["2"].adopted == "reused"
    assert hf.resume("f") == "booked attic"
    hf.rewind("f", to=1)
    assert hf.task("f").state.id == "f"
    assert hf.resume("f") == "booked attic"
    assert hf.verify().sound


def test_what_was_done_before_several_rewinds_is_not_done_again(hf: Holdfast):
    hf.run(rewind_saga, id="t")
    hf.rewind("t", to=3)
    hf.rewind("t", to=1)
    assert hf.resume("t") == "booked attic"
    hf.rewind("t", to=1)
    assert hf.resume("t") == "booked attic"
    assert [each[0] for each in world] == ["book", "mail"]


broken: list[bool] = []


@step
def rewind_check() -> None:
    if broken:
        raise ValueError("full")


@task(compensate="failed")
def rewind_saga() -> str:
    booked = rewind_book("attic")
    rewind_check()
    rewind_mail("done")
    return booked


def test_what_is_taken_over_from_before_a_rewind_is_still_the_tasks_to_undo(hf: Holdfast):
    hf.run(rewind_saga, id="t")
    hf.rewind("t", to=1)
    hf.resume("t")
    effects = hf.rewind("t", to=1, undo=True).effects
    assert [(e.name, e.undo) for e in effects] == [
        ("rewind_mail", "none"),
        ("rewind_book", "undone"),
    ]
    hf.resume("t")
    assert [each[0] for each in world] == ["book", "mail", "unbook", "book"]
    hf.rewind("t", to=1)
    broken.append(True)
    try:
        with pytest.raises(TaskFailed, match="undone"):
            hf.resume("t")
    finally:
        broken.clear()
    assert [each[0] for each in world].count("unbook") == 2
    hf.rewind("t", to=1)
    hf.resume("t")
    assert [each[0] for each in world].count("book") == 3, "what was undone answers for nothing"
    assert hf.verify().sound


@task
def rewind_say() -> None:
    session().say("one")
    rewind_look("a")
    session().say("two")
    rewind_look("b")


def said(hf: Holdfast, id: str) -> list[str]:
    return [message.text for message in hf.session(id).messages()]


def test_right_after_a_rewind_the_conversation_is_that_of_then(hf: Holdfast):
    hf.session("s").run(rewind_say, id="t")
    rewound = hf.rewind("t", to=1).task
    assert [m["content"] for m in rewound.at(seq=rewound.seq).content["conversation"]] == ["one"]
    hf.fork("t", seq=rewound.seq, effects="live", new_id="f")
    assert said(hf, "s~f") == ["one"]


def test_a_fork_of_a_task_that_was_put_back_leaves_the_conversation_of_that_one_alone(hf: Holdfast):
    hf.session("s").run(rewind_say, id="t")
    hf.rewind("t", to=1)
    hf.resume("t")
    hf.session("s").say("three")
    hf.fork("t", at=2, effects="live", new_id="f")
    hf.resume("f")
    assert said(hf, "s") == ["one", "two", "three"]
    assert said(hf, "s~f") == ["one", "two"]


def test_a_fork_with_live_effects_that_is_put_back_is_answered_by_itself_only(hf: Holdfast):
    hf.run(rewind_saga, id="t")
    hf.fork("t", at=1, effects="live", new_id="f")
    hf.rewind("f", seq=hf.task("f").seq)
    hf.resume("f")
    assert [each[0] for each in world] == ["book", "mail", "book", "mail"]
    hf.rewind("f", to=1)
    hf.resume("f")
    assert len(world) == 4
