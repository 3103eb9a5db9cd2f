"""Forks in encrypted and in signed stores: nothing more is shown, and every change is noticed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast, Keys, Retention
from holdfast.stores.port import Query
from tests.stores import forks

DAY = timedelta(days=1)


@pytest.mark.parametrize("place", ["w", "sqlite:///w/t.db"])
@pytest.mark.parametrize("how", ["key", "sign_key", "both"])
def test_forks_work_end_to_end(place, how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("w").mkdir()
    made = Keys.new()
    keys = {name: made for name in ("key", "sign_key") if how in (name, "both")}
    with Holdfast(place, **keys) as hf:
        forks.family(hf)
        heads = hf.heads()
    with Holdfast(place, **keys) as hf:
        assert hf.verify(against=heads).sound
        assert [task.id for task in hf.tasks(origin="first")] == ["fork"]
        hf.rewind("fork", to=2)
        assert hf.resume("fork") == "Oslo done"
        hf.fork("fork-of-fork", at=4, effects="reuse", new_id="late")
        assert hf.resume("late") == "Oslo done"
        swept = hf.gc(Retention(grace=timedelta()))
        assert swept.blobs == 0 and not swept.unreadable
        assert hf.verify(against=heads).sound
        with Holdfast("memory://") as other:
            assert not hf.copy_to(other, "late").refused
            assert other.verify().sound and other.task("late").result == "Oslo done"


@pytest.mark.parametrize("place", ["w", "sqlite:///w/t.db"])
def test_the_names_of_sessions_that_were_forked_do_not_show(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("w").mkdir()
    with Holdfast(place, key=Keys.new()) as hf:
        forks.family(hf)
        found = hf.store.find(Query(prefix="sessions/", origin="talk")).found
        assert [stream for stream, _ in found] == ["sessions/talk~fork"]
        (facts,) = (facts for _, facts in found)
        assert facts is not None and facts.origin == "talk"
        late = hf._holding.clock() + 40 * DAY
        hf._holding.clock = lambda: late
        kept = Retention(sessions_after=30 * DAY, grace=timedelta())
        assert hf.gc(kept).sessions == ()
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"talk" not in written and b"Oslo" not in written


def test_a_changed_original_shows_in_its_fork_in_a_signed_store(tmp_path):
    key = Keys.new()
    with Holdfast(tmp_path / "w", sign_key=key) as hf:
        forks.family(hf)
    log = tmp_path / "w/tasks/first/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"sent 1", b"sent 9", 1))
    with Holdfast(tmp_path / "w", sign_key=key) as hf:
        assert {each.task for each in hf.verify().damage} == {"first", "fork", "fork-of-fork"}
