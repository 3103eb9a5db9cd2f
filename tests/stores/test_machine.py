"""Every store against the memory store, in random stories; and broken ones, which must be caught.

`HOLDFAST_EXAMPLES=2000 make test ARGS="tests/stores/test_machine.py"` tells more of them.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import Phase, settings
from msgspec.structs import replace

from holdfast.errors import HoldfastError, LeaseLost, StorageFailed
from holdfast.log.store_calls import acquire_one
from holdfast.stores.memory import MemoryStore
from holdfast.testing import StoreMachine, StoreProcesses, run_store_machine
from holdfast.testing.machine.model import NOW
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH

__all__ = ["postgres_server", "postgres_url"]

STORIES = settings(max_examples=int(os.environ.get("HOLDFAST_EXAMPLES", "10")))

pytestmark = pytest.mark.timeout(300 + STORIES.max_examples * 2)


def check(url: str) -> None:
    with StoreProcesses("holdfast.stores:open_store", url) as processes:
        run_store_machine(processes.open, processes.kill, settings=STORIES)


def test_files(tmp_path):
    check(str(tmp_path / "workspace"))


def test_sqlite(tmp_path):
    check(f"sqlite:///{tmp_path}/tasks.db")


def test_postgres(postgres_url):
    check(postgres_url)


def in_this_process(kind: type[MemoryStore], crash=MemoryStore.close, **given) -> None:
    """Tell stories about a kind of memory store, in which a process is but an object."""
    place = kind()
    run_store_machine(lambda: kind(beside=place), crash, **given)


def test_memory():
    in_this_process(MemoryStore, settings=STORIES)


# Stores that do what the rules allow, though the memory store does not


class Forgetful(MemoryStore):
    """In a crash it loses some of what was not synced, and all facts."""

    def __init__(self, beside=None):
        super().__init__(beside)
        if beside is None:
            self.synced: dict[str, int] = {}

    def sync(self, leases):
        outcomes = super().sync(leases)
        for lease, error in zip(leases, outcomes, strict=True):
            if error is None:
                self.synced[lease.stream] = len(self._streams.get(lease.stream, ()))
        return outcomes

    def delete(self, lease):
        super().delete(lease)
        self.synced.pop(lease.stream, None)

    def crash(self):
        held = {stream for stream, (lease, *_) in self._held.items() if lease in self._mine}
        for stream in held & self._streams.keys():
            lines = self._streams[stream]
            del lines[random.Random(len(lines)).randint(self.synced.get(stream, 0), len(lines)) :]
            if not lines:
                del self._streams[stream]
        self._facts.clear()
        self.close()


def test_a_store_that_loses_what_was_not_synced_is_right():
    in_this_process(Forgetful, Forgetful.crash, settings=STORIES)


class Slow(MemoryStore):
    """It does not notice that a holder died: the lease has to run out."""

    def crash(self):
        self._mine.clear()


def test_a_store_that_does_not_notice_a_death_is_right_if_it_says_so():
    in_this_process(Slow, Slow.crash, notices_death=False, settings=STORIES)


class Lenient(MemoryStore):
    """It takes what a stale writer appends, keeps it to itself, and says so at the sync."""

    def append(self, lease, expected_seq, lines, facts=None):
        with suppress(LeaseLost):
            super().append(lease, expected_seq, lines, facts)


def test_a_store_that_refuses_a_stale_writer_at_the_sync_is_right():
    in_this_process(Lenient, settings=STORIES)


# Broken stores


class LosesASyncedLine(Forgetful):
    def crash(self):
        for stream in self.synced:
            self.synced[stream] = max(0, self.synced[stream] - 1)
        super().crash()


class LosesALineInTheMiddle(Forgetful):
    def crash(self):
        for lease in self._mine:
            del self._streams.get(lease.stream, [])[-2:-1]
        self.close()


class LosesALineWhenItIsClosed(MemoryStore):
    def close(self):
        for lease in self._mine:
            del self._streams.get(lease.stream, [])[-1:]
        super().close()


class TakesAStaleEpoch(MemoryStore):
    def _must_hold(self, lease):
        if lease.stream not in self._held:
            super()._must_hold(lease)


class AcknowledgesAStaleWriter(Lenient):
    def sync(self, leases):
        return [None] * len(leases)


class TakesAnyPlace(MemoryStore):
    def append(self, lease, expected_seq, lines, facts=None):
        super().append(lease, len(list(self.read(lease.stream))), lines, facts)


class HandsOutTwice(MemoryStore):
    def _take(self, stream, owner, lease_s):
        self._held.pop(stream, None)
        return super()._take(stream, owner, lease_s)


class NeverTakesOver(MemoryStore):
    def _take(self, stream, owner, lease_s):
        return super()._take(stream, owner, 600)


class LetsAnybodyRelease(MemoryStore):
    def _release(self, lease):
        self._mine.discard(lease)
        self._held.pop(lease.stream, None)


class RenewsALostLease(MemoryStore):
    def renew(self, lease):
        pass


class DeletesTheWrongStream(MemoryStore):
    def delete(self, lease):
        super().delete(lease)
        for stream in [name for name in self._streams if name.startswith(lease.stream)]:
            del self._streams[stream]


class DeletesForAnybody(MemoryStore):
    def delete(self, lease):
        self._held[lease.stream] = (lease, 0.0, 0.0)
        super().delete(lease)


class LeavesTheInbox(MemoryStore):
    def delete(self, lease):
        posts = dict(self._posts)
        super().delete(lease)
        self._posts.update(posts)


class LosesMessages(MemoryStore):
    def close(self):
        super().close()
        self._posts.clear()


class TakesAMessageTwice(MemoryStore):
    def put_side(self, stream, kind, name, data):
        super().put_side(stream, kind, name, data)
        return True


class RemembersTooMuch(MemoryStore):
    def remember(self, stream, facts, seq):
        if stream in self._streams:
            self._facts[stream] = facts


class HidesWhatIsDue(MemoryStore):
    def find(self, query):
        page = super().find(query)
        found = [each for each in page.found if each[1].wake_at != query.due_by]
        return replace(page, found=found) if query.due_by else page


class ListsByTheWrongPrefix(MemoryStore):
    def find(self, query):
        return super().find(replace(query, prefix=query.prefix[:-1]))


class ForgetsTheEpoch(MemoryStore):
    def release(self, leases):
        super().release(leases)
        for lease in leases:
            self._epochs.pop(lease.stream, None)


class LosesBlobs(MemoryStore):
    def close(self):
        super().close()
        self._blobs.clear()


class FailsAfterATakeover(MemoryStore):
    def append(self, lease, expected_seq, lines, facts=None):
        if lease.epoch > 2:
            raise StorageFailed("broken")
        super().append(lease, expected_seq, lines, facts)


def in_a_row(*rules: tuple[Any, ...]) -> Callable[[StoreMachine], None]:
    """A story that is told as it stands: the name of each rule, and what it is given."""

    def tell(machine: StoreMachine) -> None:
        for name, *given in rules:
            getattr(machine, name)(*given)

    return tell


WORK, LOOK, TAKEOVER = ("work", 0, "a", 2, (NOW,)), ("look", 1, 0, 0), ("freeze", 0, 1, "a", 1, 0)
LONGER = (("work", 0, "a/b", 1, None), ("work", 0, "A \u00e9_%'", 3, None))
POST, CLOSE = ("post", 1, "a", "m"), ("close", 0)

# The shortest stories in which each is caught. Chance finds them as well, some of them late.
BROKEN = {
    LosesASyncedLine: in_a_row(WORK, *LONGER, ("crash", 0), LOOK),
    LosesALineInTheMiddle: in_a_row(WORK, ("crash", 0), LOOK),
    LosesALineWhenItIsClosed: in_a_row(WORK, CLOSE, LOOK),
    TakesAStaleEpoch: in_a_row(TAKEOVER),
    AcknowledgesAStaleWriter: in_a_row(TAKEOVER),
    TakesAnyPlace: in_a_row(WORK, ("append", 0, 1, 1, None, False)),
    HandsOutTwice: in_a_row(WORK, ("acquire", 1, "a", True)),
    NeverTakesOver: in_a_row(TAKEOVER),
    LetsAnybodyRelease: in_a_row(TAKEOVER, ("release", 1), ("acquire", 2, "a", True)),
    RenewsALostLease: in_a_row(TAKEOVER, ("renew", 1)),
    DeletesTheWrongStream: in_a_row(WORK, *LONGER, ("delete", 2), LOOK),
    DeletesForAnybody: in_a_row(TAKEOVER, ("delete", 1)),
    LeavesTheInbox: in_a_row(WORK, POST, ("delete", 0), LOOK),
    LosesMessages: in_a_row(WORK, POST, CLOSE, LOOK),
    TakesAMessageTwice: in_a_row(WORK, POST, POST),
    RemembersTooMuch: in_a_row(WORK, ("remember", 0, "a", 1, False), LOOK),
    HidesWhatIsDue: in_a_row(WORK, LOOK),
    ListsByTheWrongPrefix: in_a_row(WORK, LOOK),
    ForgetsTheEpoch: in_a_row(WORK, ("release", 0), ("acquire", 1, "a", True)),
    LosesBlobs: in_a_row(("put_blob", 0, b"x"), CLOSE, LOOK),
    FailsAfterATakeover: in_a_row(WORK, CLOSE, WORK, CLOSE, WORK),
}
RARE = {
    LosesASyncedLine, DeletesTheWrongStream, LeavesTheInbox, RemembersTooMuch, HidesWhatIsDue,
}  # fmt: skip


def crash_of(kind: type[MemoryStore]) -> Callable[[Any], None]:
    return getattr(kind, "crash", kind.close)


def tell(kind: type[MemoryStore], story: Callable[[StoreMachine], None]) -> None:
    place = kind()
    parts = {
        "open_store": staticmethod(lambda: kind(beside=place)),
        "crash_store": staticmethod(crash_of(kind)),
        "notices_death": True,
    }
    machine = type("Told", (StoreMachine,), parts)()
    try:
        story(machine)
    finally:
        machine.teardown()


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_store_is_caught(kind):
    for sound in (MemoryStore, Forgetful):
        tell(sound, BROKEN[kind])
    with pytest.raises((AssertionError, HoldfastError)):
        tell(kind, BROKEN[kind])


@pytest.mark.parametrize("kind", [kind for kind in BROKEN if THOROUGH or kind not in RARE])
def test_a_broken_store_is_caught_by_chance(kind):
    # Found within thirty stories or so; the rare ones within some hundred.
    hunt = settings(
        max_examples=5000, phases=[Phase.generate], database=None, report_multiple_bugs=False
    )
    with pytest.raises((AssertionError, HoldfastError)):
        in_this_process(kind, crash_of(kind), settings=hunt)


def test_a_store_that_does_not_notice_a_death_is_caught_if_it_says_it_does(monkeypatch):
    monkeypatch.setattr(StoreMachine, "notice_s", 0.1)
    with pytest.raises(AssertionError, match="TaskBusy"):
        tell(Slow, in_a_row(WORK, ("crash", 0), ("acquire", 1, "a", True)))


# Processes


def test_a_killed_process_is_gone_and_its_errors_are_ours(tmp_path):
    from holdfast import Conflict, TaskBusy

    with StoreProcesses("holdfast.stores:open_store", str(tmp_path / "w")) as processes:
        one, two = processes.open(), processes.open()
        assert one.url == str(tmp_path / "w")
        lease = acquire_one(one, "tasks/t", "one", 60)
        one.append(lease, 0, [b'{"id":"t"}'])
        with pytest.raises(Conflict, match="is at event 1"):
            one.append(lease, 7, [b"no"])
        with pytest.raises(TaskBusy, match="being driven by one"):
            acquire_one(two, "tasks/t", "two", 60)
        processes.kill(one)
        assert acquire_one(two, "tasks/t", "two", 60).epoch == lease.epoch + 1
        assert list(two.read("tasks/t")) == [b'{"id":"t"}']
        processes.kill(one)
        with pytest.raises(OSError):
            one.read("tasks/t")


def test_a_store_that_can_not_be_opened_says_why(tmp_path):
    from holdfast import StorageFailed

    (tmp_path / "w").touch()
    with (
        StoreProcesses("holdfast.stores:open_store", str(tmp_path / "w")) as processes,
        pytest.raises(StorageFailed, match="can't open the workspace"),
    ):
        processes.open()
