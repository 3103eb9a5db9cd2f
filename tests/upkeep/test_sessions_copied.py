"""Sessions and memories go with the tasks: copied, moved, archived and restored, whole."""

from __future__ import annotations

import itertools
import threading
from datetime import timedelta

import msgspec
import pytest

from holdfast import Conflict, Holdfast, Keys, LogDamaged, NewerFormat, Retention, task
from holdfast.core.kinds import KINDS as LOGS
from holdfast.core.kinds import SESSION
from holdfast.log.states import facts_in, load_any
from holdfast.log.store_calls import acquire_one, facts_of_all, streams_in, sync_one
from holdfast.upkeep import archive, transfer
from holdfast.upkeep import transfer as keeping
from holdfast.upkeep.archive import Archive
from tests.stores import sessions
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401

KEY = Keys.new()
WAYS = {"plain": {}, "encrypted": {"key": KEY}, "signed": {"sign_key": KEY}}
PAIRS = list(itertools.product(KINDS, KINDS))
LONG_S = 60.0


@task
def accompanied(n: int) -> int:
    return n


def read(hf: Holdfast) -> dict[str, list[bytes]]:
    """Every line of the logs of sessions and memories, by stream."""
    streams = [stream for kind in LOGS[1:] for stream in streams_in(hf.store, kind.prefix)]
    return {stream: list(hf.store.read(stream)) for stream in streams}


def fill(hf: Holdfast) -> dict[str, list[bytes]]:
    for n in range(2):
        hf.run(accompanied, n, id=f"t-{n}", user="ada", session="s-1")
    hf.run(accompanied, 2, id="sessions/s-2", session="nobody")
    sessions.talked(hf.store, "s-1")
    sessions.talked(hf.store, "Bob's / 2nd", user="bob")
    sessions.memory(hf.store, "main")
    return read(hf)


def drafts(hf: Holdfast) -> list[str]:
    return [stream for kind in LOGS for stream in streams_in(hf.store, kind.drafts)]


@pytest.fixture
def here():
    with Holdfast("memory://") as hf:
        yield hf


@pytest.fixture
def there():
    with Holdfast("memory://") as hf:
        yield hf


@pytest.mark.parametrize(("source", "target"), PAIRS, ids="-".join)
def test_everything_is_everything(source, target, new_url):  # noqa: F811
    with Holdfast(new_url(source)) as here, Holdfast(new_url(target)) as there:
        whole = fill(here)
        plan = here.copy_to(there, dry_run=True)
        assert read(there) == {}
        copied = here.copy_to(there)
        assert read(there) == whole and there.verify().sound
        assert (there.verify().blobs, there.verify().sessions) == (7, 2)
        assert copied.refused == plan.refused == ()
        for said in (plan, copied):
            assert [log.id for log in said.tasks] == ["t-0", "t-1", "sessions/s-2"]
            assert [(log.id, log.how, log.status) for log in said.sessions] == [
                ("Bob's / 2nd", "copied", "open"),
                ("s-1", "copied", "open"),
            ]
            assert [(log.id, log.how, log.events) for log in said.memories] == [
                ("main", "copied", 4)
            ]
        assert drafts(there) == []
        for stream, facts in facts_of_all(there.store, "sessions/"):
            assert facts == facts_in(load_any(here.store, stream))
        assert {log.how for log in here.copy_to(there).sessions} == {"there"}


@pytest.mark.parametrize("ways", list(itertools.permutations(WAYS, 2)), ids="-".join)
def test_between_stores_with_other_keys(ways, tmp_path):
    source, target = ways
    with (
        Holdfast(tmp_path / "a", **WAYS[source]) as here,
        Holdfast(tmp_path / "b", **WAYS[target]) as there,
    ):
        whole = fill(here)
        assert here.copy_to(there, move=True).refused == ()
        assert read(there) == whole and there.verify().sound
        assert read(here) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_one_task_brings_its_session_and_no_other(kind, new_url, here):  # noqa: F811
    whole = fill(here)
    with Holdfast(new_url(kind)) as there:
        copied = here.copy_to(there, "t-1")
        assert [log.id for log in copied.sessions] == ["s-1"]
        assert read(there) == {"sessions/s-1": whole["sessions/s-1"]}
        assert here.copy_to(there, "sessions/s-2").sessions == ()
        copied = here.copy_to(there, user="bob")
        assert ([*copied.tasks], [log.id for log in copied.sessions]) == ([], ["Bob's / 2nd"])
        assert [log.id for log in here.copy_to(there, type="accompanied").sessions] == ["s-1"]


def test_a_session_is_moved_with_the_last_of_its_tasks(here, there):
    whole = fill(here)
    assert here.copy_to(there, "t-0", move=True).refused == ()
    assert read(here) == whole and set(read(there)) == {"sessions/s-1"}
    sessions.say(sessions.session(here.store), "meanwhile, here")
    whole = read(here)
    copied = here.copy_to(there, "t-1", move=True)
    assert [(log.id, log.how) for log in copied.sessions] == [("s-1", "continued")]
    assert "sessions/s-1" not in read(here)
    assert read(there)["sessions/s-1"] == whole["sessions/s-1"]
    assert there.verify().sound and here.verify().sound


def test_a_session_stays_while_a_task_that_may_be_one_of_it_cannot_be_read(here, there):
    fill(here)
    here.run(accompanied, 7, id="dark", session="s-1")
    lease = acquire_one(here.store, "tasks/dark", "me", LONG_S)
    here.store.append(lease, 3, [b"garbage"])
    sync_one(here.store, lease)
    here.store.release([lease])
    here.store._facts.pop("tasks/dark")
    copied = here.copy_to(there, move=True)
    assert [(why.id, why.kind) for why in copied.refused] == [("dark", "task")]
    assert "sessions/s-1" in read(here) and "memories/main" not in read(here)


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_went_on_there_is_left(kind, new_url, here):  # noqa: F811
    fill(here)
    with Holdfast(new_url(kind)) as there:
        here.copy_to(there)
        sessions.say(sessions.session(there.store), "only there")
        after = read(there)
        copied = here.copy_to(there, move=True)
        assert {(log.id, log.how) for log in copied.sessions} >= {("s-1", "ahead")}
        assert copied.refused == () and read(there) == after and read(here) == {}


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_that_went_on_at_both_places_is_refused_and_nothing_changes(
    kind, new_url, here  # noqa: F811
):  # fmt: skip
    fill(here)
    with Holdfast(new_url(kind)) as there:
        here.copy_to(there)
        sessions.say(sessions.session(there.store), "only there")
        sessions.say(sessions.session(here.store), "only here")
        here.start(accompanied, 9, id="t-9", session="s-1")
        before = read(here), read(there), list(here.store.read("tasks/t-9"))
        copied = here.copy_to(there, move=True)
        refused = {(why.id, why.kind): why for why in copied.refused}
        assert refused["sessions/s-1", "session"].error == "Conflict"
        assert refused["t-9", "task"].error == "Conflict"
        assert before == (read(here) | {"memories/main": before[0]["memories/main"],
                          "sessions/Bob's / 2nd": before[0]["sessions/Bob's / 2nd"]},
                          read(there), list(here.store.read("tasks/t-9")))  # fmt: skip
        assert here.task("t-9").status == "pending"
        with pytest.raises(Conflict):
            here.copy_to(there, "t-9")


def test_what_is_said_while_it_is_copied_waits_and_is_not_lost(here, there, monkeypatch):
    fill(here)
    talk = sessions.session(here.store)
    said, speaking = threading.Event(), None
    bring = transfer.Transfer.bring

    def slowly(self, stream, **more):
        nonlocal speaking
        if stream == "sessions/s-1":
            speaking = threading.Thread(
                target=lambda: (sessions.say(talk, "in between"), said.set())
            )
            speaking.start()
            assert not said.wait(0.05)
        return bring(self, stream, **more)

    monkeypatch.setattr(transfer.Transfer, "bring", slowly)
    here.copy_to(there, "t-0")
    speaking.join()
    monkeypatch.undo()
    ours, theirs = read(here)["sessions/s-1"], read(there)["sessions/s-1"]
    assert theirs == ours[:-1] and b"in between" in ours[-1]


def test_who_never_gives_it_back_is_not_waited_for_for_ever(here, there, monkeypatch):
    fill(here)
    monkeypatch.setattr(keeping, "PATIENCE_S", 0.01)
    lease = acquire_one(here.store, "sessions/s-1", "somebody", LONG_S)
    copied = here.copy_to(there)
    assert {(why.id, why.error) for why in copied.refused} == {
        ("t-0", "TaskBusy"), ("t-1", "TaskBusy"), ("sessions/s-1", "TaskBusy"),
    }  # fmt: skip
    assert "tasks/t-0" not in here.store._held and [*streams_in(there.store, "tasks/t-")] == []
    here.store.release([lease])
    assert here.copy_to(there).refused == ()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["plain", "encrypted", "signed"])
def test_an_interrupted_copy_goes_on_and_a_draft_that_nobody_wants_is_swept(
    kind, way, new_url, here, monkeypatch  # noqa: F811
):  # fmt: skip
    whole = fill(here)
    monkeypatch.setattr(transfer, "_BATCH_LINES", 2)
    with Holdfast(new_url(kind), **WAYS[way]) as there:
        written = []

        def stop(progress):
            if progress.what == "copying":
                written.append(progress)
                if progress.id == "sessions/s-1" and progress.events >= 4:
                    raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            here.copy_to(there, "t-0", progress=stop)
        assert drafts(there) == ["session-copies/s-1"]
        assert read(there) == {} and there.verify().sound
        swept = there.gc(dry_run=True)
        assert (swept.leftovers.count, swept.unreadable) == (0, ())  # it is too young
        assert here.copy_to(there, "t-0").refused == ()
        assert drafts(there) == [] and read(there)["sessions/s-1"] == whole["sessions/s-1"]
        written.clear()
        with pytest.raises(KeyboardInterrupt):
            sessions.talked(here.store, "s-9")
            here.copy_to(
                there, session="s-9",
                progress=lambda told: stop(msgspec.structs.replace(told, id="sessions/s-1")),
            )  # fmt: skip
        assert drafts(there) == ["session-copies/s-9"]
        swept = there.gc(Retention(grace=timedelta()), dry_run=False)
        assert drafts(there) == ["session-copies/s-9"]  # for a day
        later = there._holding.clock() + timedelta(days=2)
        monkeypatch.setattr(there._holding, "clock", lambda: later)
        swept = there.gc(Retention(grace=timedelta()))
        assert drafts(there) == [] and swept.leftovers.count == 1


def test_a_session_that_is_continued_is_never_gone_for_a_moment(here, there, monkeypatch):
    fill(here)
    here.copy_to(there)
    for n in range(9):
        sessions.say(sessions.session(here.store), f"more {n}")
    monkeypatch.setattr(transfer, "_BATCH_LINES", 1)
    lengths = []

    def look(progress):
        if progress.id == "sessions/s-1" and progress.what == "copying":
            lengths.append(len(list(there.store.read("sessions/s-1"))))

    here.copy_to(there, progress=look)
    assert lengths == list(range(9, 18))
    assert read(there) == read(here)


# Archives


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_brings_back_sessions_and_memories(kind, new_url, here, tmp_path):  # noqa: F811
    whole = fill(here)
    archived = here.archive_to(tmp_path / "all.hfa")
    assert archived.ids == ("t-0", "t-1", "sessions/s-2")
    assert (archived.sessions, archived.memories) == (("Bob's / 2nd", "s-1"), ("main",))
    with Holdfast(new_url(kind)) as there:
        plan = there.restore_from(archived.path, dry_run=True)
        assert read(there) == {}
        restored = there.restore_from(archived.path)
        assert read(there) == whole and there.verify().sound
        for said in (plan, restored):
            assert [log.id for log in said.sessions] == ["Bob's / 2nd", "s-1"]
            assert [log.id for log in said.memories] == ["main"]
        assert {log.how for log in there.restore_from(archived.path).sessions} == {"there"}


def test_an_archived_task_has_its_session_with_it(here, there, tmp_path):
    whole = fill(here)
    archived = here.archive_to(tmp_path / "one.hfa", "t-0")
    assert (archived.ids, archived.sessions, archived.memories) == (("t-0",), ("s-1",), ())
    sessions.say(sessions.session(here.store), "afterwards")
    assert [log.how for log in here.restore_from(archived.path).sessions] == ["ahead"]
    restored = there.restore_from(archived.path, "t-0")
    assert [log.id for log in restored.sessions] == ["s-1"]
    assert read(there) == {"sessions/s-1": whole["sessions/s-1"]}


def test_a_task_is_not_restored_without_its_session(here, there, tmp_path):
    fill(here)
    archived = here.archive_to(tmp_path / "one.hfa")
    sessions.begun(there.store, "s-1", user="somebody else")
    restored = there.restore_from(archived.path)
    assert {(why.id, why.error) for why in restored.refused} == {
        ("sessions/s-1", "Conflict"), ("t-0", "BadInput"), ("t-1", "BadInput"),
    }  # fmt: skip
    assert [log.id for log in restored.tasks] == ["sessions/s-2"]
    with pytest.raises(Conflict):
        there.restore_from(archived.path, "t-0")
    assert len(read(there)["sessions/s-1"]) == 1


def test_an_archive_without_sessions_is_what_it_always_was(here, tmp_path, monkeypatch):
    here.run(accompanied, 1, id="t-1")
    with Archive(tmp_path / here.archive_to(tmp_path / "old.hfa").path) as old:
        assert old.manifest.format == 1
    sessions.begun(here.store)
    path = tmp_path / here.archive_to(tmp_path / "new.hfa").path
    with Archive(path) as new:
        assert new.manifest.format == 2
    monkeypatch.setattr(archive, "ARCHIVE_FORMAT", 1)
    with pytest.raises(NewerFormat):
        Archive(path)


def test_a_damaged_session_is_told_and_the_rest_is_archived(here, tmp_path):
    fill(here)
    lease = acquire_one(here.store, "sessions/s-1", "me", LONG_S)
    here.store.append(lease, 8, [b"garbage"])
    sync_one(here.store, lease)
    here.store.release([lease])
    archived = here.archive_to(tmp_path / "a.hfa")
    assert [(why.id, why.kind) for why in archived.refused] == [("sessions/s-1", SESSION.name)]
    assert archived.sessions == ("Bob's / 2nd",)
    with pytest.raises(LogDamaged):
        here.archive_to(tmp_path / "b.hfa", "t-0")


# As they are used


@pytest.mark.parametrize(("source", "target"), PAIRS, ids="-".join)
def test_a_memory_is_searched_where_it_was_moved_to_and_when_it_comes_back(
    source, target, new_url  # noqa: F811
):  # fmt: skip
    def found(hf, words):
        return [each.entry.text for each in hf.memory.search(words)]

    with Holdfast(new_url(source)) as here, Holdfast(new_url(target)) as there:
        here.memory.remember("Ada wants a quiet room")
        here.session("chat-1", user="ada").say("Hello")
        assert found(here, "quiet room") == ["Ada wants a quiet room"]
        assert here.copy_to(there, move=True).refused == ()
        assert found(there, "quiet room") == ["Ada wants a quiet room"]
        assert found(here, "quiet room") == []
        there.memory.remember("Bob likes noise")
        there.session("chat-1").say("Hello again")
        assert there.copy_to(here).refused == ()
        assert found(here, "noise") == ["Bob likes noise"]
        said = [message.text for message in here.session("chat-1").messages()]
        assert said == ["Hello", "Hello again"]
        here.memory.remember("Cem is back")
        assert [log.how for log in here.copy_to(there).memories] == ["continued"]
        assert found(there, "cem back") == ["Cem is back"]
        assert here.verify().sound and there.verify().sound


def test_two_stores_that_each_have_a_memory_keep_their_own(here, there):
    here.memory.remember("ours")
    there.memory.remember("theirs")
    fill(here)
    copied = here.copy_to(there)
    assert [(why.id, why.kind, why.error) for why in copied.refused] == [
        ("memories/default", "memory", "Conflict")
    ]
    assert [log.id for log in copied.memories] == ["main"] and len(copied.tasks) == 3
    assert [entry.text for entry in there.memory.entries()] == ["theirs"]
