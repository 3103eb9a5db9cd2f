"""Sessions are listed by the index of the store, and without it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import BadInput, Holdfast, Keys, LogDamaged
from holdfast.stores.listing import page_of_sessions
from holdfast.stores.port import Query
from tests.stores import sessions
from tests.stores.every import KINDS, new_url, postgres_server  # noqa: F401

KEY = Keys.new()
WAYS = {"plain": {}, "encrypted": {"key": KEY}, "signed": {"sign_key": KEY}}
HOUR = timedelta(hours=1)


def fill(hf):
    """Six sessions, an hour apart, of two users; every second one has ended."""
    for n in range(6):
        clock = sessions.ticking(sessions.START + n * HOUR)
        labels = {"team": "x"} if n < 3 else {}
        talk = sessions.begun(hf.store, f"S {n}", ("ada", "bob")[n % 2], clock, labels)
        sessions.say(talk, "hello")
        if n % 2:
            sessions.end(talk)


def ids(hf, **filters):
    return [session.id for session in page_of_sessions(hf.store, filters).sessions]


@pytest.fixture(params=KINDS)
def url(request, new_url):  # noqa: F811
    return new_url(request.param)


@pytest.mark.parametrize("way", list(WAYS))
def test_sessions_are_found_by_what_they_are(url, way):
    with Holdfast(url, **WAYS[way]) as hf:
        fill(hf)
        assert ids(hf) == [f"S {n}" for n in range(5, -1, -1)]
        assert ids(hf, user="bob") == ids(hf, status="ended") == ["S 5", "S 3", "S 1"]
        assert ids(hf, status=["open"], labels={"team": "x"}) == ["S 2", "S 0"]
        assert ids(hf, created_after=sessions.START + 4 * HOUR) == ["S 5", "S 4"]
        assert ids(hf, updated_before=sessions.START + HOUR) == ["S 0"]
        assert ids(hf, user="nobody") == [] and hf.tasks() == []
        first = page_of_sessions(hf.store, {}, limit=4)
        second = page_of_sessions(hf.store, {}, 4, first.next)
        assert [session.id for session in (*first.sessions, *second.sessions)] == ids(hf)
        assert (first.next is None, second.next) == (False, None)
        (record,) = page_of_sessions(hf.store, {"user": "ada"}, limit=1).sessions
        assert (record.user, record.status, record.labels) == ("ada", "open", {})
        assert record.created_at == sessions.START + 4 * HOUR
        assert timedelta() <= record.updated_at - record.created_at <= HOUR


@pytest.mark.parametrize("way", list(WAYS))
def test_a_list_is_complete_without_the_index(tmp_path, way):
    with Holdfast(tmp_path / "w", **WAYS[way]) as hf:
        fill(hf)
    (tmp_path / "w/index.jsonl").unlink()
    with Holdfast(tmp_path / "w", **WAYS[way]) as hf:
        page = hf.store.find(Query(prefix="sessions/"))
        assert (len(page.found), len(page.unknown)) == (0, 6)
        assert ids(hf, user="bob") == ["S 5", "S 3", "S 1"]
        page = hf.store.find(Query(prefix="sessions/"))
        assert (len(page.found), len(page.unknown)) == (6, 0)  # it remembers what was read
        sessions.say(sessions.session(hf.store, "S 1", sessions.ticking()), "once more")
        assert ids(hf, status="open") == ["S 4", "S 2", "S 1", "S 0"]


def test_a_session_that_cannot_be_read_is_told_of(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        fill(hf)
        (tmp_path / "w/index.jsonl").unlink()
        (log,) = tmp_path.glob("w/sessions/S_3~*/events.jsonl")
        log.write_bytes(log.read_bytes().replace(b"hello", b"jello"))
        page = page_of_sessions(hf.store, {})
        assert [session.id for session in page.sessions] == ["S 5", "S 4", "S 2", "S 1", "S 0"]
        (error,) = page.unreadable
        assert isinstance(error, LogDamaged) and error.stream == "sessions/S 3"


@pytest.mark.parametrize(
    "filters", [{"type": "x"}, {"session": "x"}, {"status": "completed"}, {"status": []}]
)
def test_what_a_session_does_not_have_is_refused(filters):
    with Holdfast("memory://") as hf, pytest.raises(BadInput):
        page_of_sessions(hf.store, filters)
