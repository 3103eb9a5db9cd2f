"""One way to a state, and how often the store is read on it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from holdfast import Holdfast, checkpoint, note, restore, step, task
from holdfast.core import state
from holdfast.core.events import Stepped
from holdfast.core.fold import fold
from holdfast.core.state import Packed, State
from holdfast.errors import LogDamaged, TaskNotFound
from holdfast.log import reading
from holdfast.log.log import open_log
from holdfast.log.reading import (
    read_events,
    read_state,
    since_checkpoint,
    stream_of,
)
from holdfast.log.states import load, load_any, load_newest, load_sound, sum_at, whole
from holdfast.log.store_calls import acquire_one
from holdfast.stores.memory import MemoryStore
from holdfast.views.task import MANY, recent, view_newest
from tests.random_logs import STREAM, Story


class Counting:
    """A real store that counts the lines which are read of it, forwards and back."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, *given: Any, **named: Any) -> Iterator[bytes]:
        for line in self._inner.read(*given, **named):
            self.lines += 1
            yield line


@step
def loads_weigh(n: int) -> int:
    return n


@task
def loads_plain(steps: int) -> int:
    return sum(loads_weigh(n) for n in range(steps))


@task
def loads_looping(rounds: int) -> int:
    done = restore(0)
    while done < rounds:
        loads_weigh(done)
        done += 1
        checkpoint(done)
    return done


def resumed(hf: Holdfast, id: str) -> tuple[Counting, int]:
    """A log that is opened to go on with it: what was read for that, and how long it is."""
    length = sum(1 for _ in hf.store.read(stream_of(id)))
    counting = Counting(hf.store)
    open_log(counting, id, "test", 30.0, lambda: datetime.now(UTC)).close()
    return counting, length


def test_without_a_checkpoint_a_resume_reads_the_log_once(hf):
    hf.run(loads_plain, 80, id="plain")
    counting, length = resumed(hf, "plain")
    assert length > 80 and counting.lines == length


def test_a_fork_and_a_rewound_task_read_each_log_once(hf):
    hf.run(loads_plain, 10, id="first")
    hf.fork("first", at=5, effects="live", new_id="second")
    shared = load(hf.store, "second").fork.seq
    counting, length = resumed(hf, "second")
    # The first line of the original says whether that is a fork itself.
    assert counting.lines == length + shared
    hf.rewind("first", to=5, effects="live")
    counting, length = resumed(hf, "first")
    assert counting.lines == length


def test_after_a_checkpoint_a_resume_reads_what_came_since_and_the_first_line(hf):
    hf.run(loads_looping, 400, id="looping")
    counting, length = resumed(hf, "looping")
    assert length > 800 and counting.lines < length / 2


def test_the_newest_state_and_any_earlier_one_are_had_by_one_function(hf):
    hf.run(loads_plain, 3, id="some")
    newest = load(hf.store, "some")
    assert newest.status == "completed" and load_any(hf.store, stream_of("some")) == newest
    for event in read_events(hf.store, stream_of("some")):
        assert load(hf.store, "some", event.seq).seq == event.seq
    counting = Counting(hf.store)
    load(counting, "some")
    assert counting.lines == newest.seq


def test_a_task_that_is_not_there_is_an_error_unless_that_is_said_to_be_fine(hf):
    with pytest.raises(TaskNotFound, match="no task 'nobody' in "):
        load(hf.store, "nobody")
    assert load(hf.store, "nobody", missing_ok=True).seq == 0
    with pytest.raises(TaskNotFound, match="no task 'nobody' in "):
        load_sound(hf.store, "nobody")


@task
def loads_noted() -> None:
    note("one")
    note("two")


def test_of_a_damaged_log_the_sound_part_can_be_had(tmp_path):
    with Holdfast(tmp_path / "ws") as hf:
        hf.run(loads_noted, id="noted")
    path = tmp_path / "ws" / "tasks" / "noted" / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"two"', b'"owt"'))
    with Holdfast(tmp_path / "ws") as hf:
        with pytest.raises(LogDamaged):
            load(hf.store, "noted")
        assert [note.text for note in load_sound(hf.store, "noted").notes] == ["one"]


def test_the_sum_of_an_event_is_that_of_its_line_also_in_what_a_fork_shares(hf):
    hf.run(loads_plain, 3, id="whole")
    hf.fork("whole", at=2, effects="live", new_id="part")
    lines = list(hf.store.read(stream_of("whole")))
    assert sum_at(hf.store, "part", 3) == sum_at(hf.store, "whole", 3) == lines[2][-18:-2].decode()


def test_the_newest_state_of_a_long_log_is_had_without_reading_all_of_it(hf: Holdfast) -> None:
    hf.run(loads_plain, 1100, id="long")
    counting: Any = Counting(hf.store)
    newest = load_newest(counting, "long")
    assert counting.lines < 400
    whole = load(hf.store, "long")
    assert (newest.seq, newest.status, newest.result) == (whole.seq, whole.status, whole.result)
    assert newest.calls == whole.calls
    with pytest.raises(TaskNotFound):
        load_newest(hf.store, "none")


def test_a_view_of_the_newest_calls_knows_where_the_task_is(hf: Holdfast) -> None:
    hf.run(loads_plain, MANY + 10, id="very-long")
    view = view_newest(hf.store, "very-long")
    few = recent(view, hf.store, 5)
    assert [call.path for call in few.calls][-5:] == [str(MANY + n) for n in range(6, 11)]
    assert len(few.calls) < MANY
    assert str(few.position) == str(view.position) == f"step {MANY + 10}"
    assert recent(hf.task("very-long"), hf.store, MANY + 10).calls == view.calls


# Logs that are long. Here a few events are many.


@pytest.fixture
def soon_many(monkeypatch):
    for name, few in (
        ("_MANY_CALLS", 4),
        ("_SETTLE_EVERY", 3),
        ("_NEWEST_CALLS", 2),
        ("_MOST_HELD", 5),
    ):
        monkeypatch.setattr(reading, name, few)


def must_be_the_same(found: State, expected: State) -> None:
    """The states are equal, and so is the order in them; only the trail may be shorter."""
    assert list(found.calls) == list(expected.calls)
    for there in (found.calls, expected.calls):
        assert [call.path for call in reversed(there.values())] == list(reversed(there))
        assert list(reversed(there.items())) == list(there.items())[::-1]
    one, other = (replace(each, trail=[]) for each in (whole(found), whole(expected)))
    assert one == other
    assert msgspec.json.encode(one) == msgspec.json.encode(other)


@pytest.mark.parametrize("seed", range(6))
def test_the_calls_of_a_long_log_are_those_of_its_events(seed, soon_many):
    story = Story(seed)
    for length in (30, 120, 300):
        story.go_on(length)
        store = MemoryStore()
        store.append(acquire_one(store, STREAM, "me", 60), 0, story.lines())
        must_be_the_same(read_state(store, STREAM), fold(story.events))


def test_a_long_task_that_was_rewound_is_resumed_as_its_log_says(hf, soon_many):
    hf.run(loads_plain, 40, id="long")
    hf.rewind("long", to=20, effects="live")
    assert [*hf.task("long").state.calls] == [str(n) for n in range(1, 20)]
    assert hf.resume("long") == sum(range(40))
    hf.rewind("long", to=9, effects="live")
    assert hf.resume("long") == sum(range(40))
    events = list(read_events(hf.store, stream_of("long")))
    must_be_the_same(hf.task("long").state, fold(events))
    assert sum(isinstance(event, Stepped) for event in events) == 40 + 21 + 32


def test_a_long_log_is_read_for_a_resume_like_a_short_one(hf, monkeypatch):
    hf.run(loads_plain, 40, id="plain")
    hf.fork("plain", at=9, effects="live", new_id="fork")
    hf.run(loads_looping, 400, id="looping")
    for id in ("plain", "fork", "looping"):
        expected = list(since_checkpoint(hf.store, stream_of(id)))
        counting = Counting(hf.store)
        monkeypatch.setattr(reading, "_MOST_HELD", 5)
        assert list(since_checkpoint(counting, stream_of(id))) == expected
        monkeypatch.undo()
        assert counting.lines <= 2 * len(expected) + 2


def test_the_threads_of_a_long_task_may_look_at_its_calls_at_once(hf, soon_many, monkeypatch):
    monkeypatch.setattr(state, "_PACK", 2)
    hf.run(loads_plain, 40, id="long")
    calls = read_state(hf.store, stream_of("long")).calls
    assert isinstance(calls, Packed) and calls["1"].path == "1"
    # A dict that another thread looks through must not change under it.
    looked_into = calls._unpacked
    before = dict(looked_into)
    assert [call.path for call in calls.values()] == list(calls)
    assert looked_into == before
