"""A fork is a task of its own that shares its past with another one, without a copy of it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from holdfast import (
    BadInput,
    CodeChanged,
    Holdfast,
    HoldfastError,
    IdempotencyKey,
    NotAnswered,
    TaskFailed,
    TaskNotFound,
    Unanswered,
    ask,
    checkpoint,
    decide,
    each,
    note,
    now,
    restore,
    start,
    step,
    task,
    tool,
    uuid,
)
from holdfast.history import comparison
from holdfast.log.store_calls import acquire_one

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/w.db")

NO_KEY = IdempotencyKey("")
world: list[tuple[Any, ...]] = []


@pytest.fixture(autouse=True)
def _new_world() -> None:
    world.clear()


@step
def fork_rooms(city: str) -> list[str]:
    world.append(("rooms", city))
    return [f"{city} attic", f"{city} suite"]


def unbook(result: str, *, key: IdempotencyKey) -> None:
    world.append(("unbook", result, key))


@tool(undo=unbook)
def fork_book(room: str, *, key: IdempotencyKey = NO_KEY) -> str:
    world.append(("book", room, key))
    return f"booked {room}"


@tool
def fork_mail(text: str, *, key: IdempotencyKey = NO_KEY) -> str:
    world.append(("mail", text, key))
    return "sent"


@task
def fork_trip(city: str) -> str:
    rooms = fork_rooms(city)
    note("looked", {"rooms": len(rooms)})
    room = decide("room", rooms[0], options=rooms, because="the first")
    booked = fork_book(room)
    fork_mail(f"{booked} {uuid()} {now().year}")
    return booked


def effects(kind: str) -> list[tuple[Any, ...]]:
    return [each for each in world if each[0] == kind]


def test_a_fork_shares_the_past_and_goes_its_own_way(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    fork = hf.fork("t", at=1, results={"1": ["Oslo cellar"]}, effects="live", new_id="f")
    assert (fork.status, fork.state.fork.of, world.count(("rooms", "Oslo"))) == ("pending", "t", 1)  # type: ignore[union-attr]
    assert hf.resume("f") == "booked Oslo cellar"
    assert world.count(("rooms", "Oslo")) == 1, "what is shared is not done again"
    assert hf.task("t").result == "booked Oslo attic", "the original stays as it is"
    assert [d.choice for d in hf.task("f").decisions] == ["Oslo cellar"]
    assert hf.verify().sound


def test_what_a_fork_does_has_keys_of_its_own(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=2, effects="live", new_id="f")
    hf.resume("f")
    keys = [key for _, _, key in effects("book")]
    assert len(set(keys)) == 2 and keys[1].startswith("f:2:")


def test_nothing_of_the_past_is_copied(tmp_path: Path):
    with Holdfast(tmp_path, projections=False) as hf:
        hf.run(fork_trip, "Oslo" * 1000, id="t")
        hf.fork("t", at=2, effects="live", new_id="f")
        size = sum(f.stat().st_size for f in (tmp_path / "tasks/f").rglob("*") if f.is_file())
        assert size < 6000, "the arguments, which the task begins with, and nothing else"
        assert hf.task("f").state.calls["1"].status == "completed"


def test_unique_ids_of_the_past_stay_and_later_ones_are_new(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=3, effects="live", new_id="before")
    hf.fork("t", at=3, when="after", effects="live", new_id="after")
    assert hf.resume("after") == "booked Oslo attic", "the mail was recorded with the old id"
    hf.resume("before")
    mails = [text for _, text, _ in effects("mail")]
    assert len(mails) == 2 and mails[0] != mails[1]


def test_tools_can_be_reused_where_they_are_the_same(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=2, effects="reuse", new_id="f")
    assert hf.resume("f") == "booked Oslo attic"
    assert len(effects("book")) == 1, "the same tool with the same arguments"
    assert len(effects("mail")) == 2, "its text is another one"
    adopted = hf.task("f").state.calls["2"]
    assert (adopted.adopted, adopted.adopted_of) == ("reused", ("t", "2"))


def test_one_call_of_the_original_answers_once(hf: Holdfast):
    @tool
    def fork_ping() -> int:
        world.append(("ping",))
        return len(world)

    @task
    def fork_pings(times: int) -> list[int]:
        return [fork_ping() for _ in range(times)]

    hf.run(fork_pings, 2, id="t")
    hf.fork("t", seq=2, input={"times": 3}, effects="reuse", new_id="f")
    assert hf.resume("f") == [1, 2, 3]


def test_without_effects_what_has_no_answer_stops_the_task(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=2, effects="stub", new_id="f")
    with pytest.raises(NotAnswered, match=r"step 3: fork_mail\(.*not recorded"):
        hf.resume("f")
    assert len(effects("mail")) == 1
    hf.fork("t", at=2, effects="stub", stubs={"fork_mail": "not really"}, new_id="g")
    assert hf.resume("g") == "booked Oslo attic"
    assert hf.task("g").state.calls["3"].adopted == "stub"
    assert len(effects("mail")) == len(effects("book")) == 1


def test_a_fork_that_fails_undoes_nothing_of_its_original(hf: Holdfast):
    @task(compensate="failed")
    def fork_careful(city: str) -> str:
        booked = fork_book(f"{city} attic")
        fork_rooms(city)
        if city:
            fork_mail("x" if len(effects("mail")) else "y")
            raise RuntimeError("no")
        return booked

    with pytest.raises(TaskFailed):
        hf.run(fork_careful, "Oslo", id="t")
    assert len(effects("unbook")) == 1
    world.clear()
    hf.fork("t", at=2, effects="live", new_id="f")
    with pytest.raises(TaskFailed):
        hf.resume("f")
    assert effects("unbook") == []


def test_other_arguments_for_steps_after_the_fork(hf: Holdfast):
    @step
    def fork_model(prompt: str, model: str = "small") -> str:
        world.append(("model", model))
        return f"{model}: {prompt}"

    @task
    def fork_chat() -> list[str]:
        return [fork_model("one"), fork_model("two")]

    hf.run(fork_chat, id="t")
    hf.fork("t", at=2, arguments={"fork_model": {"model": "large"}}, effects="live", new_id="f")
    assert hf.resume("f") == ["small: one", "large: two"]
    assert hf.run(fork_chat, id="f") == ["small: one", "large: two"]
    assert hf.task("f").outputs[1].input == {"prompt": "two", "model": "large"}


def test_another_input_that_does_not_fit_the_past_is_noticed(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=2, input={"city": "Rome"}, effects="live", new_id="f")
    with pytest.raises(CodeChanged, match="step 1"):
        hf.resume("f")
    hf.fork("t", at=1, input={"city": "Rome"}, effects="live", new_id="g")
    assert hf.resume("g") == "booked Rome attic"
    with pytest.raises(BadInput, match=r"fork_trip\(city=…\) can't be that"):
        hf.fork("t", at=1, input={"city": 3}, effects="live")


def test_other_code(hf: Holdfast):
    @task
    def fork_trip_two(city: str) -> str:
        return fork_rooms(city)[1]

    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=1, when="after", task=fork_trip_two, effects="live", new_id="f")
    assert hf.resume("f") == "Oslo suite"


def test_another_input_is_checked_by_the_code_that_is_to_get_it(hf: Holdfast):
    @task
    def fork_trip_three(city: str, number: int = 0) -> str:
        return fork_rooms(city)[number]

    hf.run(fork_trip, "Oslo", id="t")
    with pytest.raises(BadInput, match="number"):
        hf.fork("t", at=1, input={"number": 1}, effects="live")
    other: Any = {"task": fork_trip_three, "effects": "live"}
    with pytest.raises(BadInput, match=r"fork_trip_three\(number=…\) can't be that"):
        hf.fork("t", at=1, input={"number": "one"}, **other)
    hf.fork("t", at=1, input={"number": 1}, new_id="f", **other)
    assert hf.resume("f") == "Oslo suite"


def test_an_edited_state(hf: Holdfast):
    @task
    def fork_count(upto: int) -> list[int]:
        seen: list[int] = restore([])
        while len(seen) < upto:
            fork_rooms(str(len(seen)))
            seen = checkpoint([*seen, len(seen)])
        return seen

    hf.run(fork_count, 3, id="t")
    hf.fork("t", at="@2.1", state=[7, 7], effects="live", new_id="f")
    assert hf.resume("f") == [7, 7, 2]
    assert hf.task("t").result == [0, 1, 2]
    hf.run(fork_trip, "Oslo", id="u")
    with pytest.raises(BadInput, match="no checkpoint"):
        hf.fork("u", at=2, state=[1], effects="live")


def test_forks_of_forks(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=2, effects="live", new_id="f")
    hf.resume("f")
    hf.fork("f", at=3, effects="live", new_id="g")
    assert hf.task("g").state.fork.of == "f"  # type: ignore[union-attr]
    hf.fork("f", at=1, effects="live", new_id="h")
    assert hf.task("h").state.fork.of == "t", "the place lies in what they share"  # type: ignore[union-attr]
    assert hf.resume("g") == hf.resume("h") == "booked Oslo attic"
    assert hf.verify().sound
    assert hf.run(fork_trip, "Oslo", id="g") == "booked Oslo attic"


def test_where_a_fork_can_not_leave(hf: Holdfast):
    @step
    def fork_looking(city: str) -> list[str]:
        return fork_rooms(city)

    @task
    def fork_asking() -> str:
        rooms = each(fork_looking, ["a", "b"])
        return ask(f"{len(rooms)}?", str)

    with pytest.raises(Unanswered):
        hf.run(fork_asking, id="t")
    inside = next(c for c in hf.task("t").state.calls.values() if c.name == "fork_looking")
    with pytest.raises(BadInput, match="in the middle of"):
        hf.fork("t", seq=inside.seq, effects="live")
    with pytest.raises(BadInput, match="not ended"):
        hf.fork("t", at="2", when="after", effects="live")
    with pytest.raises(BadInput, match="events 1 to"):
        hf.fork("t", seq=10_000, effects="live")
    with pytest.raises(BadInput, match="has made no step '9'"):
        hf.fork("t", at=9, effects="live")
    with pytest.raises(BadInput, match="say where: a step or an event"):
        hf.fork("t", effects="live")
    with pytest.raises(BadInput, match="'live'"):
        hf.fork("t", at=2, effects="maybe")  # type: ignore[arg-type]
    with pytest.raises(TaskNotFound):
        hf.fork("nobody", at=2, effects="live")
    with pytest.raises(BadInput, match="exists already"):
        hf.fork("t", at=2, effects="live", new_id="t")
    assert [t.id for t in hf.tasks()] == ["t"]


def test_a_question_before_the_fork_keeps_its_answer_and_after_it_is_asked_anew(hf: Holdfast):
    @task
    def fork_two_questions() -> list[str]:
        return [ask("one?", str), ask("two?", str)]

    for answer in ("1", "2"):
        with pytest.raises(Unanswered):
            hf.run(fork_two_questions, id="t")
        hf.answer("t", answer)
    hf.resume("t")
    hf.fork("t", at=2, effects="live", new_id="f")
    with pytest.raises(Unanswered, match="two"):
        hf.resume("f")
    hf.answer("f", "other")
    assert hf.resume("f") == ["1", "other"]


class Quote(Struct):
    price: int
    note: str = ""


@step
def fork_quote(room: str, limit: Quote | None = None) -> Quote:
    return Quote(len(room), limit.note if limit else "")


@task
def fork_quotes(start: Quote) -> list[Quote]:
    return [start, fork_quote("attic"), fork_quote("cellar")]


@pytest.mark.parametrize("five", [Quote(5, "typed"), {"price": 5, "note": "typed"}])
def test_what_is_changed_has_the_types_of_the_code(five: Any):
    with Holdfast("memory://") as hf:
        hf.run(fork_quotes, Quote(1), id="t")
        hf.fork("t", at=1, results={"1": five}, effects="live", new_id="results")
        hf.fork("t", at=1, stubs={"fork_quote": five}, effects="live", new_id="stubs")
        hf.fork("t", at=1, input={"start": five}, effects="live", new_id="input")
        changed = {"fork_quote": {"limit": five}}
        hf.fork("t", at=2, arguments=changed, effects="live", new_id="arguments")
        typed = Quote(5, "typed")
        assert hf.resume("results") == [Quote(1), typed, Quote(6)]
        assert hf.resume("stubs") == [Quote(1), typed, typed]
        assert hf.resume("input") == [typed, Quote(5), Quote(6)]
        assert hf.resume("arguments") == [Quote(1), Quote(5), Quote(6, "typed")]
        for wrong in ({"results": {"1": "dear"}}, {"stubs": {"fork_quote": 7}}):
            with pytest.raises(BadInput, match="the result of fork_quote can't be that"):
                hf.fork("t", at=1, effects="live", **wrong)
        with pytest.raises(BadInput, match="has no argument 'colour'; it has room, limit"):
            hf.fork("t", at=1, arguments={"fork_quote": {"colour": 1}}, effects="live")


def test_a_fork_of_a_fork_is_answered_by_the_one_that_was_forked(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    hf.fork("t", at=1, results={"1": ["Bergen attic"]}, effects="live", new_id="f")
    hf.resume("f")
    hf.fork("f", at=1, when="after", effects="reuse", new_id="g")
    hf.resume("g")
    hf.fork("f", at=1, stubs={"fork_rooms": ["Bergen attic"]}, effects="reuse", new_id="h")
    fork = hf.task("h").state.fork
    assert fork is not None and (fork.of, fork.task) == ("t", "f"), "it shares what f shares"
    hf.resume("h")
    assert [each[1] for each in effects("book")] == ["Oslo attic", "Bergen attic"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"results": {"99": 1}},
        {"state": 1},
        {"results": {"1": ["x" * 2_000_000]}},
        {"stubs": {"fork_mail": "x" * 600_000}},
        {"labels": {"a": 1}},
    ],
)
def test_a_fork_that_can_not_be_made_leaves_nothing(wrong: Any, tmp_path: Path):
    with Holdfast(tmp_path / "w", max_value_bytes=1_000_000) as hf:
        hf.session("s").run(fork_trip, "Oslo", id="t")
        with pytest.raises(HoldfastError):
            hf.fork("t", at=2, effects="live", new_id="f", **wrong)
        assert [each.id for each in hf.tasks()] == ["t"]
        assert [each.id for each in hf.sessions().sessions] == ["s"]
        assert hf.fork("t", at=2, effects="live", new_id="f").status == "pending"


def test_an_experiment_with_a_mistake_in_it_runs_nothing(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    with pytest.raises(BadInput, match="'99'"):
        hf.experiment("t", {"a": {}, "b": {"results": {"99": 1}}}, at=2, effects="live")
    assert {each.status for each in hf.tasks() if each.id != "t"} == {"cancelled"}
    with pytest.raises(BadInput, match="at most 19"):
        hf.experiment("t", {f"{n}": {} for n in range(20)}, at=2, effects="live")
    assert len(list(hf.tasks())) == 2 and len(effects("book")) == 1


def test_a_name_that_no_step_has_is_refused(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    for wrong in ({"stubs": {"fork_mial": ""}}, {"arguments": {"fork_mial": {"text": ""}}}):
        with pytest.raises(BadInput, match="no step or tool 'fork_mial' is loaded"):
            hf.fork("t", at=2, effects="live", **wrong)


def test_where_a_worker_was_quicker_an_experiment_waits_for_it(hf: Holdfast):
    hf.run(fork_trip, "Oslo", id="t")
    id = hf.fork("t", at=2, effects="reuse").id
    lease = acquire_one(hf.store, f"tasks/{id}", "a worker", 60)
    waiting = threading.Thread(target=comparison._drive, args=(hf, id))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    hf.store.release([lease])
    waiting.join(30)
    assert hf.task(id).status == "completed"


@pytest.mark.parametrize(
    "wrong",
    [
        {"input": [1]},
        {"results": [1]},
        {"stubs": 5},
        {"arguments": {"fork_book": 5}},
        {"labels": "x"},
        {"results": {"1": object()}},
        {"results": {"1": [float("nan")]}},
    ],
)
def test_what_is_of_no_use_is_refused(wrong: Any):
    with Holdfast("memory://") as hf:
        hf.run(fork_trip, "Oslo", id="t")
        with pytest.raises(BadInput, match=r"must be a dict|can't be that"):
            hf.fork("t", at=2, effects="live", **wrong)
        for variants in ([1], {"a": 5}):
            with pytest.raises(BadInput, match="dict"):
                hf.experiment("t", variants, at=2, effects="live")  # type: ignore[arg-type]
        assert [each.id for each in hf.tasks()] == ["t"]


@task
def fork_child(text: str) -> str:
    return fork_mail(text)


@task
def fork_parent(text: str) -> str:
    fork_rooms("Oslo")
    return start(fork_child, text).result()


def test_what_a_child_does_is_not_done_in_a_fork_without_effects(hf: Holdfast):
    hf.run(fork_parent, "hello", id="t")
    hf.fork("t", at=2, effects="stub", new_id="f")
    assert hf.resume("f") == "sent"
    call = hf.task("f").state.calls["2"]
    assert (call.kind, call.adopted, call.child) == ("child", "reused", "t.2")
    hf.fork("t", at=1, input={"text": "other"}, effects="stub", new_id="g")
    with pytest.raises(NotAnswered, match="fork_child"):
        hf.resume("g")
    stubs = {"fork_child": "nothing"}
    hf.fork("t", at=1, input={"text": "other"}, effects="stub", stubs=stubs, new_id="h")
    assert hf.resume("h") == "nothing"
    assert len(effects("mail")) == 1
    assert {each.id for each in hf.tasks()} == {"t", "t.2", "f", "g", "h"}
    hf.fork("t", at=2, effects="live", new_id="i")
    assert hf.resume("i") == "sent" and len(effects("mail")) == 2
