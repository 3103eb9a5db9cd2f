"""A log that is held open: what it says of itself, and that a failure ends it for good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

import pytest
from msgspec import Raw

from holdfast.core.events import (
    NEWEST_FORMAT,
    Carried,
    Checkpointed,
    Claimed,
    Completed,
    Noted,
    PauseRequested,
    Started,
    TaskCreated,
)
from holdfast.errors import (
    BadInput,
    Conflict,
    LeaseLost,
    LogDamaged,
    StorageFailed,
    StoreError,
    TaskBusy,
)
from holdfast.log.log import MAX_LINE_BYTES, Log, open_log
from holdfast.log.store_calls import acquire_one
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Facts, Lease

CREATED = TaskCreated(format=NEWEST_FORMAT, id="t", task="job", args=Raw(b"{}"), args_hash="")
CLAIMED = Claimed(format=NEWEST_FORMAT, epoch=1, owner="me")


def noted(text: str) -> Noted:
    return Noted(scope="", mark=text, text=text[:100])


class Recording(MemoryStore):
    """Notes what it is told, and fails while it has an error to raise."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Facts | None] = []
        self.syncs = 0
        self.error: Exception | None = None

    def append(
        self, lease: Lease, expected_seq: int, lines: Sequence[bytes], facts: Facts | None = None
    ) -> None:
        if self.error is not None:
            raise self.error
        super().append(lease, expected_seq, lines, facts)
        self.told.append(facts)

    def sync(self, leases: Sequence[Lease]) -> Sequence[StoreError | None]:
        self.syncs += 1
        if self.error is not None:
            raise self.error
        return super().sync(leases)

    def is_free(self) -> bool:
        try:
            self.release([acquire_one(self, "tasks/t", "another", 60)])
        except TaskBusy:
            return False
        return True


class Ticking:
    """Each look at it is a second later."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def store() -> Recording:
    return Recording()


def opened(store: Recording) -> Log:
    return open_log(store, "t", "me", 60, Ticking())


@pytest.fixture
def log(store: Recording) -> Log:
    """With two events, which are durable."""
    made = opened(store)
    made.append(CREATED)
    made.append(CLAIMED)
    made.sync()
    return made


def test_it_knows_how_far_it_is_written_and_how_far_it_is_safe(store, log):
    assert (log.state.seq, log.flushed, log.synced) == (2, 2, 2)
    assert not log.has_to_be_synced()
    assert log.append(noted("a")) is True
    assert (log.state.seq, log.flushed, log.synced) == (3, 2, 2)
    assert log.has_to_be_synced()
    log.flush()
    assert (log.flushed, log.synced) == (3, 2)
    assert log.has_to_be_synced(), "written is not safe"
    log.sync()
    assert (log.flushed, log.synced) == (3, 3)
    assert not log.has_to_be_synced()
    log.was_synced(1, None)
    assert log.synced == 3, "of two syncs at once the first may be told of last"
    log.close()
    again = opened(store)
    assert (again.state.seq, again.flushed, again.synced) == (3, 3, 3)
    assert again.state == log.state


def test_what_was_appended_is_written_once(store, log):
    log.append(noted("a"))
    log.append(noted("b"))
    log.flush()
    log.flush()
    log.sync()
    log.close()
    assert len(list(store.read("tasks/t"))) == 4
    assert len(store.told) == 2, "nothing is written that is not there"


@pytest.mark.parametrize("at", ["flush", "sync"])
@pytest.mark.parametrize("error", [StorageFailed("the disk failed"), LeaseLost("taken over")])
def test_after_a_failure_nothing_more_is_written_for_nobody_knows_what_is(store, log, at, error):
    log.append(noted("a"))
    if at == "sync":
        log.flush()
    store.error = error
    with pytest.raises(type(error)):
        getattr(log, at)()
    store.error = None
    assert log.is_broken and not log.has_to_be_synced()
    before = list(store.read("tasks/t"))
    for act in (lambda: log.append(noted("b")), log.flush, log.sync):
        with pytest.raises(type(error), match=str(error)):
            act()
    assert list(store.read("tasks/t")) == before and log.synced == 2
    log.close()
    assert store.is_free()


def test_a_sound_log_is_not_broken(log):
    assert not log.is_broken


class Writing(Recording):
    """Lets another thread do something while it writes, and waits for it for a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] | None = None
        self.threads: list[Thread] = []

    def append(self, *args: Any, **named: Any) -> None:
        if self.meanwhile is not None:
            thread = Thread(target=self.meanwhile)
            self.threads.append(thread)
            thread.start()
            thread.join(0.05)
        super().append(*args, **named)


@pytest.fixture
def writing() -> Writing:
    return Writing()


def test_a_log_that_another_thread_writes_is_sound_and_has_to_be_synced(writing):
    log = opened(writing)
    seen: list[tuple[bool, bool]] = []
    writing.meanwhile = lambda: seen.append((log.is_broken, log.has_to_be_synced()))
    log.append(CREATED)
    log.flush()
    writing.threads[0].join()
    assert seen == [(False, True)]


def test_a_sync_that_fails_while_another_thread_writes_is_not_forgotten(writing):
    log = opened(writing)
    log.append(CREATED)
    log.flush()
    writing.meanwhile = lambda: log.was_synced(1, StorageFailed("the disk failed"))
    log.append(CLAIMED)
    log.flush()
    writing.threads[0].join()
    with pytest.raises(StorageFailed, match="the disk failed"):
        log.sync()
    assert log.synced == 0


def test_a_refused_log_writes_no_more_and_says_the_first_reason(log):
    log.refuse(LeaseLost("first"))
    log.refuse(LeaseLost("second"))
    assert log.is_broken
    with pytest.raises(LeaseLost, match="first"):
        log.append(noted("a"))


def test_what_is_left_out_is_never_written(store, log):
    log.append(noted("a"))
    log.abandon()
    with pytest.raises(Conflict, match="left out"):
        log.append(noted("b"))
    log.close()
    assert len(list(store.read("tasks/t"))) == 2


def test_what_was_appended_is_safe_when_it_is_closed(store, log):
    log.append(noted("a"))
    log.close()
    assert len(list(store.read("tasks/t"))) == 3 and log.synced == 3
    assert store.is_free()


def test_closing_what_was_taken_over_is_no_failure(store, log):
    log.append(noted("a"))
    store.error = LeaseLost("taken over")
    log.close()


def test_closing_on_a_disk_that_fails_says_so_and_gives_the_task_back(store, log):
    log.append(noted("a"))
    store.error = StorageFailed("the disk failed")
    with pytest.raises(StorageFailed):
        log.close()
    store.error = None
    assert store.is_free()


def test_closing_without_news_costs_no_sync(store, log):
    before = store.syncs
    log.close()
    assert store.syncs == before


def test_a_log_that_can_not_be_read_is_given_back(store, log):
    log.close()
    store._streams["tasks/t"][1] = b"nonsense"
    with pytest.raises(LogDamaged):
        opened(store)
    assert store.is_free()


def test_the_store_is_told_how_a_task_stands_only_when_that_changed(store, log):
    first = store.told[0]
    assert first is not None and first.status == "in_progress"
    log.append(noted("a"))
    log.flush()
    assert store.told[1:] == [None], "that time has passed is no news"
    log.append(Started(path="1", name="step"))
    log.append(Completed(path="1", result=Raw(b"1")))
    log.flush()
    assert store.told[2:] == [None]
    log.append(PauseRequested(by="ada"))
    log.flush()
    last = store.told[3]
    assert last is not None and last.status == "paused" and last.updated_at > first.updated_at


def test_an_event_of_the_state_is_made_at_its_turn_or_not_at_all(store, log):
    seen = []
    assert log.append(lambda state: seen.append(state.seq)) is False
    assert log.append(lambda state: noted(str(state.seq))) is True
    assert seen == [2] and [note.text for note in log.state.notes] == ["2"]
    assert log.state.seq == 3


def test_an_event_that_can_not_be_read_again_is_refused_and_leaves_no_trace(store, log):
    with pytest.raises(BadInput, match="too long to be recorded"):
        log.append(Noted(scope="", mark="", text="x" * MAX_LINE_BYTES))
    with pytest.raises(BadInput, match="can't be recorded"):
        log.append(Claimed(format=NEWEST_FORMAT, epoch="1", owner="me"))
    with pytest.raises(BadInput, match="can't be recorded"):
        log.append(Noted(scope="", mark="", text="\ud800"))
    assert log.append(noted("a"))
    log.close()
    assert opened(store).state.seq == 3


def test_the_longest_line_is_as_long_as_it_may_be(store, log):
    log.append(Noted(scope="", mark="", text=""))
    log.sync()
    line = list(store.read("tasks/t"))[-1]
    room = MAX_LINE_BYTES - len(line) + len(b',"sum":"0123456789abcdef"')
    assert log.append(Noted(scope="", mark="", text="x" * room))
    with pytest.raises(BadInput, match="too long to be recorded"):
        log.append(Noted(scope="", mark="", text="x" * (room + 1)))


def test_it_knows_how_much_there_is_to_read_since_the_last_whole_checkpoint(store, log):
    def lines() -> int:
        return sum(map(len, store.read("tasks/t")))

    assert log.bytes_since_checkpoint == lines()
    log.append(Checkpointed(number=1, state=Raw(b"1"), carried=Carried(status="in_progress")))
    assert log.bytes_since_checkpoint == 0
    log.sync()
    before = lines()
    log.append(Checkpointed(number=2, change=Raw(b"2")))
    log.append(noted("a"))
    log.sync()
    assert log.bytes_since_checkpoint == lines() - before
    log.close()
    first, _, *since = store.read("tasks/t")
    assert opened(store).bytes_since_checkpoint == sum(map(len, (first, *since)))


def test_it_knows_its_newest_word_besides_starts_and_results(log):
    assert log.newest_word == 2
    log.append(Started(path="1", name="step"))
    log.append(Completed(path="1", result=Raw(b"1")))
    assert log.newest_word == 2
    log.append(noted("a"))
    assert log.newest_word == 5
