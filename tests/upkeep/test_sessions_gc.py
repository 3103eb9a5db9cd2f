"""A clean-up keeps what sessions and memories name, and removes a session only when told to."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import BadInput, Holdfast, Retention, task
from holdfast.log.store_calls import acquire_one, streams_in
from holdfast.testing import Clock
from tests.stores import sessions
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401

AT_ONCE = timedelta()
DAY = timedelta(days=1)
LONG_S = 60.0
KEEP_NO_TASK = Retention(keep_last=0, grace=AT_ONCE)


@task
def engaged(n: int) -> int:
    return n


@pytest.fixture(params=KINDS)
def hf(request, new_url):  # noqa: F811
    with Holdfast(new_url(request.param), clock=Clock(sessions.START, tick_s=0.000001)) as hf:
        yield hf


@pytest.fixture
def memory():
    with Holdfast("memory://", clock=Clock(sessions.START, tick_s=0.000001)) as hf:
        yield hf


def streams(hf, kind="sessions"):
    return sorted(streams_in(hf.store, f"{kind}/"))


def fill(hf):
    clock = hf._holding.clock
    for id in ("s-1", "s-2"):
        talk = sessions.begun(hf.store, id, clock=clock)
        sessions.say(talk, f"at length in {id} " * 2_000)
        sessions.show(talk, f"a picture of {id}".encode())
    sessions.end(talk, "bye")
    sessions.memory(hf.store)
    hf.run(engaged, 1, id="t-1", session="s-1")


def test_what_sessions_and_memories_name_is_never_removed(hf):
    fill(hf)
    hf.store.put_blob(b"nobody's")
    hf._holding.clock.now += 1000 * DAY
    swept = hf.gc(KEEP_NO_TASK)
    assert ([each.id for each in swept.tasks], swept.blobs) == (["t-1"], 1)
    assert (swept.sessions, swept.kept, swept.unreadable) == ((), (), ())
    assert (streams(hf), streams(hf, "memories")) == (
        ["sessions/s-1", "sessions/s-2"],
        ["memories/main"],
    )
    assert hf.verify().sound and hf.verify().blobs == 7


def test_an_idle_session_goes_when_told_to_and_no_task_of_it_is_left(hf):
    fill(hf)
    hf._holding.clock.now += 10 * DAY
    policy = Retention(sessions_after=9 * DAY, grace=AT_ONCE)
    plan = hf.gc(policy, dry_run=True)
    assert len(streams(hf)) == 2
    swept = hf.gc(policy)
    for said in (plan, swept):
        assert [(each.id, each.user, each.status) for each in said.sessions] == [
            ("s-2", "ada", "ended")
        ]
        assert (said.tasks, said.blobs) == ((), 3)
        assert said.freed_bytes > said.blob_bytes > 30_000
    assert streams(hf) == ["sessions/s-1"]
    swept = hf.gc(Retention(sessions_after=9 * DAY, keep_last=0, grace=AT_ONCE))
    assert [each.id for each in swept.sessions] == ["s-1"]  # with the last of its tasks
    assert (streams(hf), streams(hf, "memories")) == ([], ["memories/main"])
    assert hf.verify().sound and hf.verify().blobs == 1


def test_a_session_that_was_used_lately_stays(hf):
    fill(hf)
    hf._holding.clock.now += 10 * DAY
    sessions.say(sessions.session(hf.store, "s-2", hf._holding.clock), "me again")
    policy = Retention(sessions_after=9 * DAY, keep_last=0, grace=AT_ONCE)
    assert [each.id for each in hf.gc(policy).sessions] == ["s-1"]
    assert streams(hf) == ["sessions/s-2"]


def test_a_session_that_goes_is_archived_with_the_tasks(memory, tmp_path):
    fill(memory)
    before = list(memory.store.read("sessions/s-2"))
    memory._holding.clock.now += 10 * DAY
    policy = Retention(sessions_after=9 * DAY, keep_last=0, grace=AT_ONCE)
    swept = memory.gc(policy, archive=tmp_path / "gone.hfa")
    assert swept.archive is not None
    assert (swept.archive.ids, swept.archive.sessions) == (("t-1",), ("s-1", "s-2"))
    assert streams(memory) == []
    assert memory.restore_from(swept.archive.path).refused == ()
    assert list(memory.store.read("sessions/s-2")) == before
    assert memory.verify().sound


def test_the_session_of_an_archived_task_is_in_the_archive_also_if_it_stays(memory, tmp_path):
    fill(memory)
    archived = memory.gc(KEEP_NO_TASK, archive=tmp_path / "a.hfa").archive
    assert (archived.ids, archived.sessions) == (("t-1",), ("s-1",))
    assert streams(memory) == ["sessions/s-1", "sessions/s-2"]


def test_a_session_that_somebody_writes_to_or_that_gets_a_task_stays(memory, monkeypatch):
    fill(memory)
    memory._holding.clock.now += 10 * DAY
    policy = Retention(sessions_after=9 * DAY, grace=AT_ONCE)
    lease = acquire_one(memory.store, "sessions/s-2", "somebody", LONG_S)
    (kept,) = memory.gc(policy).kept
    assert (kept.id, kept.kind) == ("sessions/s-2", "session") and "somebody" in kept.why
    memory.store.release([lease])
    tell = memory.store.acquire

    def meanwhile(streams, owner, lease_s):
        if "sessions/s-2" in streams:
            memory.store.acquire = tell
            memory.run(engaged, 2, id="t-2", session="s-2")
        return tell(streams, owner, lease_s)

    monkeypatch.setattr(memory.store, "acquire", meanwhile)
    (kept,) = memory.gc(policy).kept
    assert "a task of it is left" in kept.why and len(streams(memory)) == 2
    assert memory.verify().blobs == 7


def test_no_session_goes_while_a_task_cannot_be_read(memory):
    fill(memory)
    memory._holding.clock.now += 10 * DAY
    lease = acquire_one(memory.store, "tasks/t-1", "me", LONG_S)
    memory.store.append(lease, 3, [b"garbage"])
    memory.store.release([lease])
    memory.store._facts.clear()
    swept = memory.gc(Retention(sessions_after=9 * DAY, grace=AT_ONCE))
    assert swept.sessions == () and len(streams(memory)) == 2
    assert {kept.id for kept in swept.kept} == {"sessions/s-1", "sessions/s-2"}


@pytest.mark.parametrize("stream", ["sessions/s-1", "memories/main"])
def test_no_blob_goes_while_a_session_or_a_memory_is_damaged(memory, stream):
    fill(memory)
    memory.store.put_blob(b"nobody's")
    lease = acquire_one(memory.store, stream, "me", LONG_S)
    head = len(list(memory.store.read(stream)))
    memory.store.append(lease, head, [b'{"type":"said"}'])
    memory.store.release([lease])
    swept = memory.gc(Retention(grace=AT_ONCE))
    assert [log.id for log in swept.unreadable] == [stream] and swept.blobs == 0


def test_an_age_is_an_age():
    with pytest.raises(BadInput, match="sessions_after"):
        Retention(sessions_after=30)
