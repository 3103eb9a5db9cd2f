"""The fold comes to what it always came to, event by event."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

from holdfast.core import events as e
from holdfast.core.events import AnyEvent, load_event
from holdfast.core.fold import _APPLY, advance, apply, fold
from holdfast.core.fold.waits import taker_of
from holdfast.core.journal import Raised, Stopped
from holdfast.core.journal.task import _ending
from holdfast.core.state import State
from tests.core.fold_stories import RECORDED, shown_state, told


class Line(msgspec.Struct):
    event: msgspec.Raw
    changed: dict[str, Any]


def stories() -> list[list[Line]]:
    found: list[list[Line]] = []
    for text in RECORDED.read_bytes().splitlines():
        line = msgspec.json.decode(text, type=Line)
        if msgspec.json.decode(line.event)["seq"] == 1:
            found.append([])
        found[-1].append(line)
    return found


STORIES = stories()


def events_of(story: list[Line]) -> list[AnyEvent]:
    return [load_event(bytes(line.event)) for line in story]


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_each_event_changes_what_it_always_changed(story):
    events = events_of(story)
    for line, now in zip(story, told(events), strict=True):
        assert msgspec.to_builtins(now["changed"]) == line.changed, bytes(line.event)


def test_every_kind_of_event_is_in_a_story():
    kinds = {type(event) for story in STORIES for event in events_of(story)}
    assert kinds == _APPLY.keys()
    of_tasks = get_args(e.TaskEvent | e.WorkspaceEvent | e.HistoryEvent)
    assert kinds == set(of_tasks)


def test_the_taker_of_a_message_is_the_call_that_ended_by_it():
    taken = 0
    for story in STORIES:
        events = events_of(story)
        state = fold(events)
        calls = [call for call in state.calls.values() if call.kind == "message"]
        takers = {call.ended_seq: call.path for call in calls if call.status == "completed"}
        for event in events:
            assert taker_of(state, event.seq) == takers.get(event.seq, "")
            taken += isinstance(event, e.MessageSent) and event.seq in takers
    assert taken > 10


@pytest.mark.parametrize("story", STORIES, ids=range(len(STORIES)))
def test_a_state_that_is_folded_on_is_left_as_it_was(story):
    events = events_of(story)
    whole = shown_state(fold(events))
    assert whole["seq"] == len(events)
    for middle in range(0, len(events), 20):
        before = fold(events[:middle])
        shown = shown_state(before)
        assert shown_state(fold(events[middle:], before)) == whole
        assert shown_state(before) == shown
        one_more = events[middle]
        assert shown_state(apply(before, one_more)) == shown_state(fold([one_more], before))
    assert shown_state(fold((), State())) == shown_state(State())


GROWN = (e.ListGrew(digest="a", length=4, base=""), e.ListGrew(digest="b", length=6, base="a"))
BEGUN = (e.Started(path="1", name="look"), e.Completed(path="1", result=msgspec.Raw(b"1")))
CHILD = (
    e.ChildStarted(path="1", id="c", name="help", args=msgspec.Raw(b"{}"), args_hash="h"),
    e.ChildEnded(path="1", result=msgspec.Raw(b"1")),
)


@pytest.mark.parametrize(
    ("before", "event"),
    [
        (BEGUN, e.Rewound(to=3, number=1, epoch=1)),
        (GROWN, e.ListGrew(digest="c", length=4, base="a")),
        (GROWN, e.ListGrew(digest="c", length=3, base="a")),
        (GROWN, e.ListGrew(digest="c", length=6)),
        (GROWN, e.ListGrew(digest="a", length=5, base="")),
        (BEGUN, BEGUN[1]),
        (BEGUN, e.Failed(path="1")),
        (BEGUN, e.AttemptFailed(path="1", attempt=1, failure=e.Failure("E", "m"))),
        (BEGUN, e.Completed(path="2", result=msgspec.Raw(b"1"))),
        (CHILD, e.ChildMade(path="1")),
        (CHILD, CHILD[1]),
    ],
)
def test_an_event_that_makes_no_sense_after_those_before_it_is_refused(before, event):
    placed = [msgspec.structs.replace(each, seq=seq) for seq, each in enumerate(before, 1)]
    state = fold(placed)
    with pytest.raises((LookupError, ValueError)):
        advance(state, msgspec.structs.replace(event, seq=len(placed) + 1))


def test_lists_that_grow_on_make_sense():
    state = fold(GROWN)
    advance(state, e.ListGrew(digest="c", length=7))
    assert (state.lists["c"].base, list(state.lists)) == ("b", ["a", "b", "c"])
    advance(state, e.ListGrew(digest="a", length=4, base=""))
    assert list(state.lists) == ["b", "c", "a"]


def test_the_files_of_a_task_are_those_that_a_checkpoint_carries_unless_they_are_elsewhere():
    kept = [e.FileKept(seq=1, name=name, file=msgspec.Raw(b"1")) for name in ("a", "b")]
    state = fold(kept)
    one = msgspec.Raw(msgspec.json.encode([state.files["a"]]))
    here = e.Checkpointed(seq=3, number=1, state=one, carried=e.Carried(files=one))
    assert list(fold([here], state).files) == ["a"]
    beside = e.Carried(files=msgspec.Raw(b'{"$blob":"x"}'))
    elsewhere = e.Checkpointed(seq=3, number=1, state=one, carried=beside)
    assert list(fold([elsewhere], state).files) == ["a", "b"]


WRITES = (
    e.Started(path="1", name="pay", kind="tool", key="k", invalidates=("look",)),
    e.Doubted(path="1", why="lost"),
)


@pytest.mark.parametrize(
    ("verdict", "by", "status", "invalidated"),
    [
        ("happened", "check", "completed", {"look": 3}),
        ("happened", "ann", "completed", {"look": 3}),
        ("did not happen", "ann", "retrying", {}),
        ("did not happen", "check", "retrying", {}),
    ],
)
def test_a_doubt_that_is_settled_speaks_against_reads_only_if_it_happened(
    verdict, by, status, invalidated
):
    placed = [msgspec.structs.replace(each, seq=seq) for seq, each in enumerate(WRITES, 1)]
    state = fold(placed)
    assert state.status == "awaiting_user" and state.writers == {"1": ("look",)}
    result = msgspec.Raw(b"1")
    advance(state, e.Settled(seq=3, path="1", verdict=verdict, by=by, result=result))
    assert (state.calls["1"].status, state.invalidated) == (status, invalidated)
    assert state.writers == ({} if invalidated else {"1": ("look",)})
    assert state.status == "in_progress" and not state.calls["1"].doubt


@pytest.mark.parametrize(
    ("ending", "left"),
    [
        (e.Completed(path="1", result=msgspec.Raw(b"1")), {"2": 4}),
        (e.Failed(path="1"), {"2": 4}),
        (e.Completed(path="2", result=msgspec.Raw(b"1")), {"1": 3}),
        (e.Failed(path="2"), {"1": 3}),
        (e.Noted(scope="", mark="m", text="x"), {"": 2, "1": 3, "2": 4}),
        (e.TaskContinued(by="ada"), {}),
        (e.TaskRetried(by="ada"), {}),
    ],
)
def test_a_call_that_ends_takes_the_deaths_at_it_and_before_it_along(ending, left):
    begun = [
        e.Started(path="1", name="send", kind="tool"),
        e.Started(path="2", name="send", kind="tool"),
        *(e.AttemptFailed(path=p, attempt=1, failure=e.Failure("E", "m")) for p in "12"),
        e.DriverDied(owner="w", deaths=2),
        e.DriverDied(owner="w", path="1", deaths=3),
        e.DriverDied(owner="w", path="2", deaths=4),
    ]
    state = fold([msgspec.structs.replace(each, seq=seq) for seq, each in enumerate(begun, 1)])
    assert state.deaths == {"": 2, "1": 3, "2": 4}
    advance(state, msgspec.structs.replace(ending, seq=len(begun) + 1))
    assert state.deaths == left


def test_a_driver_that_died_beside_other_calls_counts_at_each_of_them():
    begun = [
        *(e.Started(path=p, name="send", kind="tool") for p in "123"),
        e.DriverDied(owner="w", deaths=2),
        e.DriverDied(owner="w", path="1", deaths=3, beside=("2",)),
        e.DriverDied(owner="w", path="2", deaths=4, beside=("1", "3")),
    ]
    state = fold([msgspec.structs.replace(each, seq=seq) for seq, each in enumerate(begun, 1)])
    assert state.deaths == {"": 2, "1": 4, "2": 4, "3": 3}


def test_the_items_that_failed_of_a_batch_are_tried_again_and_no_others():
    """Of `each`, the items know nothing of each other: only what came after all of them counts."""
    failure = e.Failure("E", "m")

    def failing(path: str) -> list[AnyEvent]:
        return [
            e.Started(path=path, name="look", kind="tool"),
            e.AttemptFailed(path=path, attempt=1, failure=failure),
            e.Failed(path=path),
        ]

    def retried(*more: AnyEvent) -> dict[str, str]:
        begun = [
            e.Started(path="2.1", name="look", kind="tool"),
            e.Completed(path="2.1", result=msgspec.Raw(b"1")),
            *failing("2.2"),
            *failing("3.1"),
            *failing("2.3"),
            *more,
            e.TaskErrored(failure=failure, causes=("2.*",)),
            e.TaskRetried(by="ada"),
        ]
        placed = [msgspec.structs.replace(each, seq=seq) for seq, each in enumerate(begun, 1)]
        return {path: call.status for path, call in fold(placed).calls.items()}

    assert retried() == {"2.1": "completed", "2.2": "retrying", "3.1": "failed", "2.3": "retrying"}
    after = e.Started(path="4", name="look", kind="tool")
    assert retried(after) == {
        "2.1": "completed", "2.2": "failed", "3.1": "failed", "2.3": "failed", "4": "running",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (State(ending="cancelled", because="enough"), Stopped("enough")),
        (
            State(ending="failed", failure=e.Failure("E", "m"), causes=("1",)),
            Raised(e.Failure("E", "m"), causes=("1",)),
        ),
        (State(ending="failed"), Raised(e.Failure("Unknown", ""))),
    ],
)
def test_a_task_whose_end_has_begun_ends_as_its_log_says(state, outcome):
    assert _ending(state) == outcome
