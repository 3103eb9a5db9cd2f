"""Logs of sessions and memories are checked as those of tasks are."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from holdfast import Holdfast, Keys, LogDamaged, TaskNotFound, task
from holdfast.core.events import FORMAT, Pinned, Said, SessionBegan, Summarized, dump_event
from holdfast.log import chain
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.log.verify import Damage, Head
from holdfast.stores.files.folder import safe_name
from tests.log.test_verify import LONG_S, Rows, resummed, spoiled
from tests.stores import sessions
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401

KEY = Keys.new()
WAYS = {"plain": {}, "encrypted": {"key": KEY}, "signed": {"sign_key": KEY}}


@task
def verified_beside() -> str:
    return "done"


def fill(hf: Holdfast) -> None:
    hf.run(verified_beside, id="sessions/s-1", session="s-1")
    sessions.talked(hf.store, "s-1")
    sessions.talked(hf.store, "Ada's 2nd/session")
    sessions.memory(hf.store, "main")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", list(WAYS))
def test_sessions_and_memories_are_read_to_their_last_event_and_blob(kind, way, new_url):  # noqa: F811
    with Holdfast(new_url(kind), **WAYS[way]) as hf:
        fill(hf)
        found = hf.verify()
        assert found.sound
        assert (found.tasks, found.sessions, found.memories) == (1, 2, 1)
        events = [len(list(hf.store.read(stream))) for stream in ("sessions/s-1", "memories/main")]
        assert events == [8, 4] and found.events == 3 + 2 * 8 + 4
        assert found.blobs == 2 * 3 + 1
        assert hf.verify("sessions/s-1").events == 3  # an id is one of a task


@pytest.mark.parametrize("kind", KINDS)
def test_a_task_that_is_called_like_a_session_is_told_from_it(kind, new_url):  # noqa: F811
    with Holdfast(new_url(kind)) as hf:
        fill(hf)
        heads = hf.heads()
        named = {(head.kind, head.task): head for head in heads}
        assert list(named) == [
            ("task", "sessions/s-1"),
            ("session", "sessions/Ada's 2nd/session"),
            ("session", "sessions/s-1"),
            ("memory", "memories/main"),
        ]
        assert (named["task", "sessions/s-1"].seq, named["session", "sessions/s-1"].seq) == (3, 8)
        assert hf.heads("sessions/s-1") == [named["task", "sessions/s-1"]]
        assert hf.verify(against=heads).sound
        hf.store.delete(acquire_one(hf.store, "sessions/s-1", "me", LONG_S))
        (damage,) = hf.verify(against=heads).damage
        assert (damage.kind, damage.task) == ("session", "sessions/s-1")
        assert str(damage).startswith("sessions/s-1: event 8: the session is gone")
        with pytest.raises(TaskNotFound):
            hf.verify("s-1")


def test_heads_that_were_noted_before_there_were_sessions_are_still_read():
    old = b'[{"task":"sessions/x","seq":3,"sum":"0123456789abcdef"}]'
    (head,) = msgspec.json.decode(old, type=list[Head])
    assert head.stream == "tasks/sessions/x"
    assert msgspec.json.encode([head]) == old
    other = Head("sessions/x", 3, "0123456789abcdef", "session")
    assert other.stream == "sessions/x"
    assert msgspec.json.decode(msgspec.json.encode(other), type=Head) == other


def test_a_task_that_looks_like_another_log_is_named_in_full():
    assert str(Damage("sessions/x", 0, "gone")) == "tasks/sessions/x: gone"
    assert str(Damage("sessions/x", 0, "gone", "session")) == "sessions/x: gone"
    assert str(Damage("trip-42", 1, "gone")) == "trip-42: event 1: gone"


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory):
    root = tmp_path_factory.mktemp("verified")
    for way, keys in WAYS.items():
        with Holdfast(root / way, **keys) as hf:
            fill(hf)
    return root


@pytest.mark.parametrize("way", list(WAYS))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 2), st.integers(0, 1 << 30), st.integers(1, 255))
def test_any_byte_of_a_log_that_is_changed_is_noticed_and_its_event_named(
    workspaces, way, which, place, value
):
    root = workspaces / way
    logs = [*sorted(root.glob("sessions/*/*.jsonl")), *root.glob("memories/*/*.jsonl")]
    with spoiled(logs[which], place, value) as line, Holdfast(root, **WAYS[way]) as hf:
        (damage,) = hf.verify().damage
        assert damage.seq == line
        assert damage.kind == ("memory" if which == 2 else "session")
        assert damage.task.startswith(("sessions/", "memories/"))
    with Holdfast(root, **WAYS[way]) as hf:
        assert hf.verify().sound


@pytest.mark.parametrize("way", ["plain", "signed"])
def test_a_missing_blob_of_a_session_is_noticed(way, tmp_path):
    with Holdfast(tmp_path / "w", **WAYS[way]) as hf:
        talk = sessions.begun(hf.store)
        picture = sessions.show(talk, b"a picture")
        assert hf.verify().blobs == 2
        part = tmp_path / "w/blobs" / picture.sha256[:2] / picture.sha256
        part.unlink()
        (damage,) = hf.verify().damage
        assert (damage.task, damage.seq) == ("sessions/s-1", 2)
        assert "blob" in damage.what


@pytest.mark.parametrize("way", ["plain", "signed"])
def test_a_session_can_be_forged_only_where_it_is_not_signed(way, tmp_path):
    url, keys = tmp_path / "workspace", WAYS[way]
    with Holdfast(url, **keys) as hf:
        sessions.say(sessions.begun(hf.store), "pay 10")
    rows = Rows(url, keys)
    file = url / "sessions/s-1/events.jsonl"
    forged = resummed([line.replace(b"pay 10", b"pay 99") for line in rows.lines("sessions/s-1")])
    file.write_bytes(b"\n".join([*forged, b""]))
    with Holdfast(url, **keys) as hf:
        assert [damage.seq for damage in hf.verify().damage] == ([2] if keys else [])


def raw(hf: Holdfast, stream: str, *events) -> None:
    """Lines whose sums are right, whatever they say."""
    lease = acquire_one(hf.store, stream, "me", LONG_S)
    total = chain.ROOT
    for seq, event in enumerate(events, 1):
        event = msgspec.structs.replace(event, seq=seq, at=sessions.START)
        line, total = chain.seal(total, dump_event(event))
        hf.store.append(lease, seq - 1, [line])
    sync_one(hf.store, lease)
    hf.store.release([lease])


BEGAN = SessionBegan(format=FORMAT, id="s-1")
SAID = Said(messages=Raw(sessions.message("hi")), count=1, role="user")


@pytest.mark.parametrize(
    "event",
    [
        BEGAN,
        Pinned(number=2),
        Summarized(upto=2, text=Raw(b'"more than there is"')),
        Said(messages=Raw(b"[]"), count=0, role="user"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_that_does_not_follow_is_noticed(event):
    with Holdfast("memory://") as hf:
        raw(hf, "sessions/s-1", BEGAN, SAID, event)
        (damage,) = hf.verify().damage
        assert (damage.task, damage.seq) == ("sessions/s-1", 3)


def test_an_event_of_another_kind_of_log_is_noticed():
    with Holdfast("memory://") as hf:
        hf.run(verified_beside, id="t-1")
        sessions.memory(hf.store)
        raw(hf, "sessions/s-1", BEGAN, SAID)
        raw(hf, "memories/s-1", BEGAN, SAID)
        lines = list(hf.store.read("sessions/s-1"))
        lease = acquire_one(hf.store, "tasks/s-1", "me", LONG_S)
        hf.store.append(lease, 0, lines)
        sync_one(hf.store, lease)
        found = {(damage.kind, damage.seq) for damage in hf.verify().damage}
        assert found == {("memory", 1), ("task", 1)}


def test_a_log_that_does_not_say_whose_it_is_is_noticed(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        sessions.begun(hf.store, "A session")
        log = tmp_path / "w/sessions" / safe_name("A session") / "events.jsonl"
        log.write_bytes(b"{}\n")
        (damage,) = hf.verify().damage
        assert (damage.kind, damage.seq) == ("session", 1)
        with pytest.raises(LogDamaged):
            sessions.say(sessions.session(hf.store, "A session"), "hi")
