"""Each way in which a log does not hold together is told apart, with its log and its event."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from holdfast import LogDamaged, TaskNotFound, step, task
from holdfast.core import events as e
from holdfast.core.events import AnyEvent, Fork, dump_event
from holdfast.log import chain
from holdfast.log.reading import (
    Tail,
    base_of,
    first_event,
    fork_of,
    lineage,
    must_have_its_past,
    own_events,
    own_lines,
    read_events,
    read_on,
    read_state,
    read_sums,
    since_checkpoint,
    value_in,
)
from holdfast.log.states import (
    facts_in,
    lines_of,
    load,
    load_any,
    load_newest,
    load_sound,
    read_facts,
    sum_at,
)
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.log.values import INLINE_BYTES
from holdfast.log.verify import Head, heads, verify
from holdfast.stores.memory import MemoryStore
from tests.thorough import some

AT = datetime(2026, 1, 1, tzinfo=UTC)


def created(id: str, fork: Fork | None = None) -> e.TaskCreated:
    return e.TaskCreated(format=1, id=id, task="job", args=Raw(b"{}"), args_hash="h", fork=fork)


def noted(text: str) -> e.Noted:
    return e.Noted(scope="", mark=text, text=text)


def lines(events: Sequence[AnyEvent], numbers: Sequence[int] = ()) -> list[bytes]:
    total, made = chain.ROOT, []
    for seq, event in zip(numbers or range(1, len(events) + 1), events, strict=False):
        placed = replace(event, seq=seq, at=AT + timedelta(seconds=seq))
        line, total = chain.seal(total, dump_event(placed))
        made.append(line)
    return made


def put(store: MemoryStore, stream: str, made: Sequence[bytes]) -> None:
    lease = acquire_one(store, stream, "me", 60)
    store.append(lease, 0, list(made))
    sync_one(store, lease)


def sum_of(store: MemoryStore, id: str, seq: int) -> str:
    return sum_at(store, id, seq)


@pytest.fixture
def store() -> MemoryStore:
    """A task of four events, and a fork of it that shares three and has two of its own."""
    made = MemoryStore()
    put(made, "tasks/a", lines([created("a"), noted("one"), noted("two"), noted("three")]))
    fork = Fork(of="a", seq=3, sum=sum_at(made, "a", 3))
    put(made, "tasks/b", lines([created("b", fork), noted("other")]))
    return made


def texts(store: MemoryStore, id: str, upto: int | None = None) -> list[str]:
    return [note.text for note in read_state(store, f"tasks/{id}", upto).notes]


def test_a_fork_is_read_with_the_past_that_it_shares_to_any_event(store):
    assert texts(store, "b") == ["one", "two", "other"]
    expected = [[], ["one"], ["one", "two"], ["one", "two"], ["one", "two", "other"]]
    for upto, found in enumerate(expected, 1):
        assert texts(store, "b", upto) == found
        assert read_state(store, "tasks/b", upto).seq == upto
        assert load(store, "b", upto).seq == upto
        assert [note.text for note in load(store, "b", upto).notes] == found
        assert sum_at(store, "b", upto) == list(read_sums(store, "tasks/b"))[upto - 1][1].decode()
    assert read_state(store, "tasks/b", 0).seq == 0
    assert [event.seq for event in own_events(store, "tasks/b")] == [1, 2]
    assert [event.seq for event, _, _ in own_lines(store, "tasks/b", 3, 9)] == [4, 5]
    assert [event.seq for event, _, _ in own_lines(store, "tasks/b", 3, 4)] == [4]
    assert list(own_lines(store, "tasks/b", 3, 3)) == list(own_lines(store, "tasks/b", 3, 1)) == []
    assert (base_of(store, "tasks/a"), base_of(store, "tasks/b")) == (0, 3)
    assert base_of(store, "tasks/gone") == 0 and fork_of(store, "tasks/gone") is None
    assert lineage(store, "tasks/b") == ["tasks/a", "tasks/b"]
    assert lineage(store, "tasks/a") == ["tasks/a"]
    assert must_have_its_past(store, "tasks/b") is None
    assert lines_of(load_any(store, "tasks/b")) == 2 and lines_of(load_any(store, "tasks/a")) == 4


def test_a_log_that_shares_its_past_with_itself_is_damaged_and_read_to_an_end(store):
    def fork(of: str) -> Fork:
        return Fork(of=of, seq=1, sum="0" * 16)

    for one, other in (("x", "y"), ("y", "x"), ("self", "self")):
        put(store, f"tasks/{one}", lines([created(one, fork(other)), noted("?")]))
    for id, by in (("x", "y"), ("y", "x"), ("self", "self")):
        with pytest.raises(LogDamaged, match="goes back to itself, by way of tasks/"):
            list(read_events(store, f"tasks/{id}"))
        assert set(lineage(store, f"tasks/{id}")) == {f"tasks/{id}", f"tasks/{by}"}
        assert len(lineage(store, f"tasks/{id}")) == len({id, by})
    found = verify(store)
    assert {damage.task for damage in found.damage} == {"x", "y", "self"}
    assert all("goes back to itself" in damage.what for damage in found.damage)


def test_a_past_that_is_missing_cut_or_another_is_told_apart(store):
    del store._streams["tasks/a"][2:]
    with pytest.raises(LogDamaged, match="up to event 3, and that ends with event 2") as caught:
        list(read_events(store, "tasks/b"))
    assert (caught.value.stream, caught.value.seq) == ("tasks/b", 3)
    assert texts(store, "b", 2) == ["one"], "what is left can be read"
    assert must_have_its_past(store, "tasks/b") is None
    put(other := MemoryStore(), "tasks/a", lines([created("a"), *map(noted, ("one", "2", "3"))]))
    store._streams["tasks/a"] = other._streams["tasks/a"]
    with pytest.raises(LogDamaged, match="whose event 3 is another than it was") as caught:
        list(read_events(store, "tasks/b"))
    assert (caught.value.stream, caught.value.seq) == ("tasks/b", 4)
    with pytest.raises(LogDamaged, match="whose event 3 is another than it was"):
        list(read_events(store, "tasks/b", 3))
    assert len(list(read_events(store, "tasks/b", 2))) == 2, "nobody looks at event 3"
    del store._streams["tasks/a"]
    with pytest.raises(LogDamaged, match="up to event 3, and that is missing") as caught:
        list(read_events(store, "tasks/b"))
    assert (caught.value.stream, caught.value.seq) == ("tasks/b", 1)
    with pytest.raises(LogDamaged, match="shares its past with tasks/a, which is missing"):
        must_have_its_past(store, "tasks/b")


@pytest.mark.parametrize(
    ("events", "numbers", "seq", "what"),
    [
        ([created("t"), noted("x")], (1, 3), 2, "it says it is event 3"),
        ([created("t")], (2,), 1, "it says it is event 2"),
        ([created("t"), created("t")], (), 2, "a log begins only once"),
        ([noted("x")], (), 1, "a log begins with the making of its task"),
        ([created("other")], (), 1, "it is the log of task 'other', copied or moved here"),
        ([e.SessionBegan(format=1, id="t")], (), 1, "a log begins with the making of its task"),
    ],
)
def test_lines_with_right_sums_that_make_no_log_are_named(events, numbers, seq, what):
    store = MemoryStore()
    put(store, "tasks/t", lines(events, numbers))
    with pytest.raises(LogDamaged) as caught:
        list(read_events(store, "tasks/t"))
    assert (caught.value.stream, caught.value.seq, caught.value.what) == ("tasks/t", seq, what)


@pytest.mark.parametrize(
    ("stream", "what"),
    [("sessions/s", "session"), ("memories/s", "memory"), ("queues/s", "queue"), ("x/s", "task")],
)
def test_a_log_begins_as_those_of_its_kind_do(stream, what):
    store = MemoryStore()
    put(store, stream, lines([noted("x")]))
    with pytest.raises(LogDamaged, match=f"a log begins with the making of its {what}"):
        list(own_events(store, stream))


def test_reading_on_needs_the_event_that_was_read_last(store):
    total = sum_at(store, "a", 2).encode()
    assert [event.seq for event, _, _ in read_on(store, "tasks/a", 2, total)] == [3, 4]
    assert [event.seq for event, _, _ in read_on(store, "tasks/a", 0, chain.ROOT)] == [1, 2, 3, 4]
    forks = sum_at(store, "b", 4).encode()
    assert [event.seq for event, _, _ in read_on(store, "tasks/b", 4, forks, 3)] == [5]
    for seq, wrong in ((3, total), (2, chain.ROOT), (9, total)):
        with pytest.raises(LogDamaged, match="another one than when it was read before") as caught:
            list(read_on(store, "tasks/a", seq, wrong))
        assert caught.value.seq == seq


def test_the_first_event_is_had_of_a_task_alone(store):
    assert first_event(store, "tasks/b").id == "b" and first_event(store, "tasks/gone") is None
    put(store, "sessions/s", lines([e.SessionBegan(format=1, id="s")]))
    assert first_event(store, "sessions/s") is None


def test_a_tail_gives_what_came_since_and_says_when_the_task_is_gone(store):
    tail = Tail(store, "b")
    assert [event.seq for _, event in tail.read()] == [1, 2, 3, 4, 5]
    assert list(tail.read()) == [] and not tail.finished
    half = Tail(store, "b")
    half.begin(read_state(store, "tasks/b", 4), sum_at(store, "b", 4).encode())
    assert [event.seq for event in half.events(after=0)] == [5]
    again = Tail(store, "b")
    assert [event.seq for event in again.events(after=3)] == [4, 5]
    del store._streams["tasks/b"]
    for each in (tail, half):
        with pytest.raises(TaskNotFound, match="task 'b' was deleted"):
            list(each.read())
    with pytest.raises(TaskNotFound, match="task 'b' was deleted"):
        list(Tail(store, "b").events(after=2))
    assert list(Tail(store, "b").events(after=0)) == [], "it may come yet"


def test_a_tail_says_that_a_log_was_replaced_not_that_it_was_deleted(store):
    tail = Tail(store, "a")
    assert len(list(tail.read())) == 4
    del store._streams["tasks/a"][3:]
    with pytest.raises(LogDamaged, match="another one than when it was read before"):
        list(tail.read())


def test_a_tail_that_began_late_reads_a_rewind_as_the_whole_log_does(store):
    rewound = e.Rewound(to=2, number=1, epoch=0)
    events = [created("r"), noted("one"), noted("two"), rewound, noted("again")]
    put(store, "tasks/r", lines(events))
    for begin in range(1, 5):
        tail = Tail(store, "r")
        tail.begin(read_state(store, "tasks/r", begin), sum_at(store, "r", begin).encode())
        assert [event.seq for _, event in tail.read()] == list(range(begin + 1, 6))
        assert [note.text for note in tail.state.notes] == ["one", "again"]


def test_of_a_log_that_is_damaged_at_its_end_the_sound_part_is_had_or_the_damage_named(store):
    right = store._streams["tasks/a"]
    last, _ = chain.seal(chain.sum_of(right[2]), b'{"no":"number"}')
    for wrong in (last, b"{", b"", right[3].replace(b'"seq":4', b'"seq":9')):
        store._streams["tasks/a"] = [*right[:3], wrong]
        with pytest.raises(LogDamaged) as caught:
            load_newest(store, "a")
        assert (caught.value.stream, caught.value.seq) == ("tasks/a", 4)
        assert load_sound(store, "a").seq == 3
    assert load_sound(store, "b").seq == 5, "what it shares is sound"
    store._streams["tasks/a"] = [b"{", *right[1:]]
    with pytest.raises(LogDamaged) as caught:
        load_sound(store, "a")
    assert (caught.value.stream, caught.value.seq) == ("tasks/a", 1)
    with pytest.raises(LogDamaged) as caught:
        load_sound(store, "b")
    assert caught.value.stream == "tasks/a", "the damage is in what it shares"
    with pytest.raises(TaskNotFound):
        load_newest(store, "gone")


def test_the_number_of_a_last_line_that_lies_is_found_out(store):
    right = store._streams["tasks/a"]
    for number in (2, 0, 9):
        body = msgspec.json.encode(msgspec.json.decode(right[3]) | {"seq": number})
        end = body[: body.rindex(b',"sum"')] + b"}"
        store._streams["tasks/a"] = [*right[:3], chain.seal(chain.sum_of(right[2]), end)[0]]
        found = verify(store, ["a"]).damage
        assert [(each.seq, each.what) for each in found] == [(4, f"it says it is event {number}")]
        if number != 2:  # an earlier event, which is there, is taken for the newest
            with pytest.raises(LogDamaged, match=f"it says it is event {number}"):
                load_newest(store, "a")


def test_the_facts_of_a_log_are_those_it_comes_to_and_the_store_remembers_them(store):
    assert read_facts(store, "tasks/gone") is None
    facts = read_facts(store, "tasks/b")
    assert facts is not None and facts == facts_in(load_any(store, "tasks/b"))
    memory = [e.MemoryBegan(format=1, id="m"), e.Remembered(id="m-1", text="tea")]
    put(store, "memories/m", lines(memory))
    kept = facts_in(load_any(store, "memories/m"))
    assert (kept.status, kept.created_at) == ("open", AT + timedelta(seconds=1))
    assert kept.updated_at == AT + timedelta(seconds=2)


# What a head says, and what a log has to have for its long lists.


def test_heads_are_those_of_the_tasks_that_were_asked_for_or_of_all(store):
    assert heads(store, ["b"]) == [Head("b", 5, sum_at(store, "b", 5))]
    assert [head.task for head in heads(store)] == ["a", "b"]
    with pytest.raises(TaskNotFound, match="no task 'gone'"):
        heads(store, ["gone"])
    unreadable: list[Exception] = []
    with pytest.raises(TaskNotFound, match="no task 'gone'"):
        heads(store, ["a", "gone"], unreadable)
    assert not unreadable


def test_a_last_line_that_makes_no_sense_is_no_head(store):
    store._streams["tasks/a"][3] = b'{"seq":"four"}'
    with pytest.raises(LogDamaged, match="so it is no head to go by"):
        heads(store)
    unreadable: list[Exception] = []
    assert [head.task for head in heads(store, (), unreadable)] == ["b"]
    assert ["tasks/a" in str(error) for error in unreadable] == [True]
    with pytest.raises(TaskNotFound, match="no task 'gone'"):
        verify(store, ["gone"])
    assert verify(store, ["b"]).tasks == 1


LISTED = Raw(b'{"$lists":[[["args",0],8,"' + b"d" * 32 + b'"]],"value":{"args":[null]}}')


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([replace(noted("x"), data=LISTED)], "it names a list that is not in its log"),
        ([replace(noted("x"), data=Raw(b"1e999"))], "it has a value that makes no sense"),
        (
            [e.ListGrew(digest="d" * 32, length=9, base="f" * 32, items=Raw(b"[1]"))],
            "it goes on from a list that is not in its log (ffff",
        ),
        (
            [
                e.ListGrew(
                    digest="d", length=1, base="", items=Raw(b"[null]"), copied=(((0,), "7", 3),)
                )
            ],
            "it has items of the call 7, whose result is not in its log",
        ),
        (
            [replace(noted("x"), data=Raw(b'{"$blob":"zz","size_bytes":1}'))],
            "it has a value in a blob, and 'zz' names no blob",
        ),
    ],
)  # fmt: skip
def test_what_a_log_names_and_has_not_is_damage_at_the_event_that_names_it(store, events, what):
    put(store, "tasks/t", lines([created("t"), noted("well"), *events]))
    (found,) = verify(store, ["t"]).damage
    assert (found.task, found.seq) == ("t", 3)
    assert found.what.startswith(what)


def test_a_list_that_is_in_its_log_is_sound_and_one_of_another_log_is_not(store):
    grew = e.ListGrew(digest="d" * 32, length=8, base="", items=Raw(b"[1,2,3,4,5,6,7,8]"))
    names = replace(noted("x"), data=LISTED)
    put(store, "tasks/has", lines([created("has"), grew, names]))
    put(store, "tasks/has-not", lines([created("has-not"), names]))
    (found,) = verify(store).damage
    assert (found.task, found.seq) == ("has-not", 2)


@pytest.mark.parametrize(
    ("blob", "what"),
    [(b"[1,", "holds none ("), (None, "blobs/"), (b"[1]", None)],
)
def test_a_value_in_a_blob_has_to_be_there_and_make_sense(store, blob, what):
    digest = store.put_blob(blob or b"[2]")
    if blob is None:
        store.delete_blob(digest, 0)
    value = Raw(b'{"$blob":"%b","size_bytes":3}' % digest.encode())
    for id in ("t", "u"):
        put(store, f"tasks/{id}", lines([created(id), replace(noted("x"), data=value)]))
    found = verify(store).damage
    assert [damage.task for damage in found] == (["t", "u"] if what else [])
    assert all(digest in damage.what and str(what) in damage.what for damage in found)


def test_what_is_read_since_a_checkpoint_is_checked_line_by_line(store):
    found = [event.seq for event, _, _ in since_checkpoint(store, "tasks/b")]
    assert found == [1, 2, 3, 4, 5], "a fork is read whole"
    store._streams["tasks/a"][1] = store._streams["tasks/a"][1].replace(b"one", b"ONE")
    for id in ("a", "b"):
        with pytest.raises(LogDamaged) as caught:
            list(since_checkpoint(store, f"tasks/{id}"))
        assert (caught.value.stream, caught.value.seq) == ("tasks/a", 2)


# What a long list refers to, where it is as long as a line may be.


@step
def reading_text() -> str:
    return "r" * 300


@step
def reading_length(items: list[Any]) -> int:
    return len(items)


@task
def reading_lists(filler: int) -> int:
    return reading_length([reading_text(), "x" * filler, *range(8)])


@pytest.mark.parametrize(("beyond", "copied"), [(0, True), (1, False)])
def test_a_list_refers_to_results_as_long_as_it_fits_into_its_line(hf, beyond, copied):
    rest = len(msgspec.json.encode([None, "", *range(8)]))
    hf.run(reading_lists, INLINE_BYTES - rest + beyond, id="t")
    (grew,) = (x for x in read_events(hf.store, "tasks/t") if isinstance(x, e.ListGrew))
    assert bool(grew.copied) is copied
    assert bytes(grew.items).startswith(b"[null" if copied else b'{"$blob"')
    state = load(hf.store, "t")
    (args,) = (call.args for call in state.calls.values() if call.name == "reading_length")
    items = msgspec.json.decode(value_in(hf.store, state, args))["items"]
    assert len(items) == 10 and items[0] == "r" * 300
    assert hf.verify().sound


# Lines cut out of a log whose sums were made anew: whatever a reader misses then, `verify` names.


GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("format-1*/events.jsonl"))


def without(made: list[bytes], place: int) -> list[bytes]:
    """A log without one of its lines, with numbers and sums as if that had never been there."""
    total, left = chain.ROOT, []
    for seq, line in enumerate([*made[:place], *made[place + 1 :]], 1):
        body = line[: line.rindex(b',"sum"')] + b"}"
        numbered = re.sub(rb'"seq":\d+', b'"seq":%d' % seq, body, count=1)
        sealed, total = chain.seal(total, numbered)
        left.append(sealed)
    return left


def read_everything(store: MemoryStore, id: str) -> None:
    state = load(store, id)
    for call in state.calls.values():
        for value in (call.args, call.result):
            if isinstance(value, Raw):
                value_in(store, state, value)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.parent.name)
def test_what_a_reader_misses_in_a_log_without_a_line_is_named_by_verify(golden):
    whole, missed, nth = golden.read_bytes().splitlines(), 0, 5
    id = msgspec.json.decode(whole[0])["id"]
    for place in some(range(1, len(whole)), nth):
        store = MemoryStore()
        for blob in golden.parent.glob("blobs/*/*"):
            store.put_blob(blob.read_bytes())
        put(store, f"tasks/{id}", without(whole, place))
        damage = verify(store).damage
        try:
            read_everything(store, id)
        except LogDamaged:
            missed += 1
            assert [each.task for each in damage] == [id], f"without line {place + 1}"
    if golden.parent.name == "format-1-lists":
        assert missed > len(whole) / nth / 4, "most of its values go on from others"
