"""Whatever is changed in a store is noticed, by whoever can be expected to."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from holdfast import Artifact, Holdfast, Keys, LogDamaged, TaskNotFound, WrongKey, keep, step, task
from holdfast.errors import StorageFailed
from holdfast.log import chain
from holdfast.log.reading import fork_of, newest_event
from holdfast.log.store_calls import acquire_one, inbox_of, post_to, streams_in, sync_one
from holdfast.log.verify import Head
from holdfast.stores import open_store, secured
from holdfast.stores.files.folder import safe_name
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

KEY = Keys.new()
WAYS = {"plain": {}, "encrypted": {"key": KEY}, "signed": {"sign_key": KEY}}
TASKS = ("small", "Trip 42/b")
LONG_S = 60.0


@step
def checked_step(n: int) -> str:
    return f"result {n}"


@step
def checked_blob() -> str:
    return "large " * 15_000


@task
def checked_agent() -> str:
    for n in range(2):
        checked_step(n)
    checked_blob()
    return checked_step(7)


@step
def checked_keep() -> Artifact:
    return keep([b"a file"])


@task
def checked_keeping() -> int:
    return sum(checked_keep().size_bytes for _ in range(3))


def make(url, **keys) -> int:
    """A store with two tasks; returns how many events each has."""
    with Holdfast(url, **keys) as hf:
        for name in TASKS:
            hf.run(checked_agent, id=name)
        found = hf.verify()
        assert found.sound and found.tasks == 2 and found.blobs == 1
        return found.events // 2


def log_of(root: Path, name: str) -> Path:
    return root / "tasks" / safe_name(name) / "events.jsonl"


# Any byte of the files


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory):
    root = tmp_path_factory.mktemp("verified")
    for way, keys in WAYS.items():
        make(root / way, **keys)
    return root


@contextmanager
def spoiled(file: Path, place: int, value: int) -> Iterator[int]:
    """A file with another byte in it; gives the number of the line it is in."""
    right = file.read_bytes()
    place %= len(right)
    wrong = bytearray(right)
    wrong[place] ^= value
    file.write_bytes(wrong)
    try:
        yield right.count(b"\n", 0, place) + 1
    finally:
        file.write_bytes(right)


@pytest.mark.parametrize("way", list(WAYS))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(TASKS), st.integers(0, 1 << 30), st.integers(1, 255))
@example("small", -1, ord("\n") ^ ord(" "))
@example("small", -2, 1)
@example("small", -3, 1)
@example("small", -5, 1)
@example("Trip 42/b", 10, 1)
@example("Trip 42/b", -1, 255)
def test_any_byte_of_a_log_that_is_changed_is_noticed_and_its_event_named(
    workspaces, way, name, place, value
):
    root = workspaces / way
    with spoiled(log_of(root, name), place, value) as line, Holdfast(root, **WAYS[way]) as hf:
        found = hf.verify()
        assert not found.sound
        (damage,) = found.damage
        assert damage.seq == line
        assert damage.task in (name, f"tasks/{safe_name(name)}")
    with Holdfast(root, **WAYS[way]) as hf:
        assert hf.verify().sound


@pytest.mark.parametrize("way", list(WAYS))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 1 << 30), st.integers(1, 255))
def test_any_byte_of_a_blob_that_is_changed_is_noticed(workspaces, way, place, value):
    (blob,) = [path for path in (workspaces / way / "blobs").rglob("*") if path.is_file()]
    with spoiled(blob, place, value), Holdfast(workspaces / way, **WAYS[way]) as hf:
        found = hf.verify()
        assert {damage.task for damage in found.damage} == set(TASKS)
        assert all("blob" in damage.what for damage in found.damage)


@pytest.mark.parametrize("way", ["encrypted", "signed"])
def test_a_log_cut_anywhere_by_a_crash_goes_on_as_others_do(workspaces, way, tmp_path):
    whole = log_of(workspaces / way, "small").read_bytes()
    start = whole.index(b"\n", whole.index(b"\n") + 1) + 1
    for cut in range(start, len(whole), 61):
        root = tmp_path / str(cut)
        shutil.copytree(workspaces / way, root)
        log_of(root, "small").write_bytes(whole[:cut])
        with Holdfast(root, **WAYS[way]) as hf:
            assert hf.run(checked_agent, id="small") == "result 7"
            assert hf.verify().sound


# Every store


class Rows:
    """Changes what a store keeps, behind its back."""

    def __init__(self, url, keys) -> None:
        self.url = url
        self.keys = keys

    def change(self, stream: str, seq: int, line: bytes | None) -> None:
        """Another line in the place of one; or none."""
        if isinstance(self.url, Path):
            file = log_of(self.url, stream.removeprefix("tasks/"))
            lines = file.read_bytes().splitlines()
            lines[seq - 1 : seq] = [] if line is None else [line]
            file.write_bytes(b"\n".join([*lines, b""]))
        elif self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as conn, conn:
                (id,) = conn.execute("select id from streams where name = ?", [stream]).fetchone()
                given = {"line": line, "id": (id << 32) + seq}
                conn.execute(
                    "delete from lines where id = :id"
                    if line is None
                    else "update lines set line = :line where id = :id",
                    given,
                )
            conn.close()
        else:
            where = "where seq = %(seq)s and stream = " + (
                "(select id from holdfast.streams where name = %(stream)s)"
            )
            what = (
                "delete from holdfast.lines "
                if line is None
                else ("update holdfast.lines set line = %(line)s ")
            )
            with psycopg.connect(self.url) as pg:
                pg.execute((what + where).encode(), {"stream": stream, "seq": seq, "line": line})

    def lines(self, stream: str) -> list[bytes]:
        store = open_store(self.url)
        try:
            return list(store.read(stream))
        finally:
            store.close()

    def rewrite(self, stream: str, lines: list[bytes]) -> None:
        for seq, line in enumerate(lines, 1):
            self.change(stream, seq, line)

    def cut(self, stream: str, count: int) -> None:
        """As by somebody who knows the store: a database has the length of a log beside it."""
        for seq in range(len(self.lines(stream)), count, -1):
            self.change(stream, seq, None)
            self._say_length(stream, seq - 1)

    def _say_length(self, stream: str, head: int) -> None:
        if isinstance(self.url, Path):
            return
        if self.url.startswith("sqlite"):
            with closing(sqlite3.connect(self.url.removeprefix("sqlite:///"))) as conn, conn:
                conn.execute("update streams set head = ? where name = ?", [head, stream])
            conn.close()
        else:
            with psycopg.connect(self.url) as pg:
                given = [head, stream]
                pg.execute("update holdfast.streams set head = %s where name = %s", given)


@pytest.fixture(params=["files", "sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else tmp_path / "workspace"


@pytest.fixture(params=list(WAYS))
def keys(request):
    return WAYS[request.param]


@pytest.fixture
def rows(url, keys):
    make(url, **keys)
    return Rows(url, keys)


def damage_in(rows: Rows, **more) -> list[tuple[str, int]]:
    with Holdfast(rows.url, **rows.keys) as hf:
        return [(damage.task, damage.seq) for damage in hf.verify(**more).damage]


def test_a_changed_missing_or_moved_line_is_noticed_in_every_store(rows):
    lines = rows.lines("tasks/small")
    spoiled = lines[2].replace(b'":"', b'" :"', 1)
    rows.change("tasks/small", 3, spoiled)
    assert damage_in(rows) == [("small", 3)]
    rows.rewrite("tasks/small", [lines[0], lines[2], lines[1], *lines[3:]])
    assert damage_in(rows) == [("small", 2)]
    rows.rewrite("tasks/small", lines)
    assert damage_in(rows) == []
    rows.change("tasks/small", 4, None)
    assert damage_in(rows) == [("small", 4)]


def test_a_cut_tail_is_noticed_against_an_exported_head_and_by_nothing_else(rows):
    with Holdfast(rows.url, **rows.keys) as hf:
        heads = hf.heads()
        assert [head.task for head in heads] == sorted(TASKS)
        assert hf.heads("small") == [head for head in heads if head.task == "small"]
        assert hf.verify(against=heads).sound
    rows.cut("tasks/small", 5)
    assert damage_in(rows) == []
    with Holdfast(rows.url, **rows.keys) as hf:
        (damage,) = hf.verify(against=heads).damage
        assert (damage.task, damage.seq) == ("small", heads[1].seq)
        assert "it ends with event 5" in damage.what
        assert hf.verify("Trip 42/b", against=heads).sound


def test_a_task_that_is_gone_is_noticed_against_an_exported_head(rows):
    with Holdfast(rows.url, **rows.keys) as hf:
        heads = hf.heads()
        hf.store.delete(acquire_one(hf.store, "tasks/small", "me", LONG_S))
        assert hf.verify().sound
        (damage,) = hf.verify(against=heads).damage
        assert damage.task == "small" and "gone" in damage.what
        with pytest.raises(TaskNotFound):
            hf.verify("small")


def test_a_log_that_grew_still_fits_its_head_and_another_in_its_place_does_not(tmp_path):
    with Holdfast(tmp_path / "a") as hf:
        hf.start(checked_agent, id="small")
        heads = hf.heads()
        hf.resume("small")
        assert hf.verify(against=heads).sound
        assert not hf.verify(against=[Head("small", 2, "0" * 16)]).sound


# Forging


def forged(line: bytes) -> bytes:
    """A line with another result in it."""
    return line.replace(b"result 1", b"result 9")


def resummed(lines: list[bytes]) -> list[bytes]:
    """Lines whose sums fit, as anybody can compute them; signatures stay as they are."""
    total, found = chain.ROOT, []
    for line in lines:
        bare, mac = chain.without_mac(line)
        anew, total = chain.seal(total, bare[:-26] + b"}")
        found.append(chain.with_mac(anew, mac) if mac else anew)
    return found


@pytest.mark.parametrize("url", ["files", "sqlite", "postgres"], indirect=True)
def test_who_can_compute_sums_can_forge_a_log_that_is_not_signed(url):
    make(url)
    rows = Rows(url, {})
    lines = [forged(line) for line in rows.lines("tasks/small")]
    assert lines != rows.lines("tasks/small")
    rows.rewrite("tasks/small", lines)
    assert len(damage_in(rows)) == 1
    rows.rewrite("tasks/small", resummed(lines))
    assert damage_in(rows) == []
    with Holdfast(url) as hf:
        assert any(output.output == "result 9" for output in hf.task("small").outputs)


@pytest.mark.parametrize("url", ["files", "sqlite", "postgres"], indirect=True)
def test_a_signed_log_can_not_be_forged(url):
    make(url, sign_key=KEY)
    rows = Rows(url, {"sign_key": KEY})
    right = rows.lines("tasks/small")
    assert all(chain.is_signed(line) for line in right)
    lines = resummed([forged(line) for line in right])
    changed = next(n for n, line in enumerate(right, 1) if forged(line) != line)
    rows.rewrite("tasks/small", lines)
    assert damage_in(rows) == [("small", changed)]
    rows.keys = {}
    assert damage_in(rows) == []  # without the key there is nothing to tell it by
    with Holdfast(url, sign_key=KEY) as hf:
        with pytest.raises(LogDamaged, match="signature"):
            hf.run(checked_agent, id="small")
        assert [view.id for view in hf.tasks()] == ["Trip 42/b"]
        assert len(hf.tasks().unreadable) == 1


def strip(line: bytes) -> bytes:
    return chain.without_mac(line)[0]


@pytest.mark.parametrize(
    "stripped",
    [
        lambda lines: list(map(strip, lines)),
        lambda lines: [*lines[:-1], strip(lines[-1])],
        lambda lines: [strip(lines[0]), *lines[1:]],
        lambda lines: [*lines[:3], *map(strip, lines[3:])],
        lambda lines: [*map(strip, lines[:3]), *lines[3:]],
    ],
)
def test_taking_signatures_off_gains_nothing(tmp_path, stripped):
    url = tmp_path / "workspace"
    make(url, sign_key=KEY)
    rows = Rows(url, {"sign_key": KEY})
    lines = stripped(rows.lines("tasks/small"))
    rows.rewrite("tasks/small", lines)
    ((name, seq),) = damage_in(rows)
    assert (name, chain.is_signed(lines[seq - 1])) == ("small", False)
    with Holdfast(url, sign_key=KEY) as hf, pytest.raises(LogDamaged):
        hf.resume("small")


def test_a_signature_fits_no_other_task_and_no_other_place(tmp_path):
    url = tmp_path / "workspace"
    make(url, sign_key=KEY)
    rows = Rows(url, {"sign_key": KEY})
    with Holdfast(url, sign_key=KEY) as hf:
        hf.run(checked_agent, id="twin")
    ours, theirs = rows.lines("tasks/small"), rows.lines("tasks/twin")
    rows.rewrite("tasks/small", resummed([*ours[:3], theirs[3], *ours[4:]]))
    assert damage_in(rows) == [("small", 4)]
    rows.rewrite("tasks/small", [ours[0], *ours[2:4], ours[1], *ours[4:]])
    assert damage_in(rows) == [("small", 2)]


def test_another_key_is_told_from_no_key(tmp_path):
    make(tmp_path / "a", sign_key=KEY)
    with Holdfast(tmp_path / "a", sign_key=Keys.new()) as hf:
        assert all("another key" in damage.what for damage in hf.verify().damage)
    make(tmp_path / "b")
    with Holdfast(tmp_path / "b", sign_key=KEY) as hf:
        assert all("not signed" in damage.what for damage in hf.verify().damage)


def test_a_signed_log_can_be_read_and_not_written_without_the_key(tmp_path):
    url = tmp_path / "workspace"
    with Holdfast(url, sign_key=KEY) as hf:
        hf.start(checked_agent, id="small")
    with Holdfast(url) as hf:
        assert hf.task("small").status == "pending"
        before = log_of(url, "small").read_bytes()
        for tell in (hf.resume, hf.pause, hf.cancel):
            with pytest.raises(WrongKey, match="sign-key-file"):
                tell("small")
        assert log_of(url, "small").read_bytes() == before
    with Holdfast(url, sign_key=KEY) as hf:
        assert hf.resume("small") == "result 7"


def test_a_new_key_to_sign_with_goes_before_the_old_one(tmp_path):
    url, new = tmp_path / "workspace", Keys.new()
    with Holdfast(url, sign_key=KEY) as hf:
        hf.start(checked_agent, id="small")
    with Holdfast(url, sign_key=Keys(new, KEY)) as hf:
        hf.resume("small")
        assert hf.verify().sound
    with Holdfast(url, sign_key=new) as hf:
        assert [damage.seq for damage in hf.verify().damage] == [1]


def test_an_unsigned_log_is_accepted_by_copying_it_into_a_signed_store(tmp_path):
    make(tmp_path / "old")
    old, new = open_store(tmp_path / "old"), secured(open_store(tmp_path / "new"), None, KEY)
    shutil.copytree(tmp_path / "old/blobs", tmp_path / "new/blobs")
    for stream in streams_in(old, "tasks/"):
        lease = acquire_one(new, stream, "me", LONG_S)
        new.append(lease, 0, list(old.read(stream)))
        sync_one(new, lease)
    new.close()
    with Holdfast(tmp_path / "new", sign_key=KEY) as hf:
        assert hf.verify().sound and hf.verify().tasks == 2
        assert hf.heads() == Holdfast(old).heads()


def test_a_message_of_somebody_without_the_key_is_not_taken_and_told_of(tmp_path):
    url = tmp_path / "workspace"
    with Holdfast(url, sign_key=KEY) as hf:
        hf.start(checked_agent, id="small")
        post_to(open_store(url), "tasks/small", "cancel-x", b'{"type":"cancel_asked"}')
        assert list(inbox_of(hf.store, ["tasks/small"])) == []
        assert hf.resume("small") == "result 7"
        (damage,) = hf.verify().damage
        assert re.search("message", damage.what)


def test_progress_is_told_and_the_tasks_after_a_damaged_one_are_checked(tmp_path):
    url = tmp_path / "workspace"
    make(url)
    told: list[tuple[int, int]] = []
    with spoiled(log_of(url, "Trip 42/b"), 300, 1), Holdfast(url) as hf:
        found = hf.verify(progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (2, 2) and found.events > 5
    assert str(found.damage[0]).startswith("Trip 42/b: event ")


def test_an_event_that_makes_no_sense_is_named_with_its_log_at_either_end(tmp_path):
    make(tmp_path / "w")
    with closing(open_store(str(tmp_path / "w"))) as store:
        newest = newest_event(store, "tasks/small")
        assert newest is not None and newest.seq > 5
        assert newest_event(store, "tasks/gone") is None
        lease = acquire_one(store, "tasks/odd", "me", LONG_S)
        store.append(lease, 0, [b'{"type":[],"fork":{}}'])
        sync_one(store, lease)
        with pytest.raises(LogDamaged, match="tasks/odd: it is damaged"):
            newest_event(store, "tasks/odd")
        with pytest.raises(LogDamaged, match="tasks/odd: event 1 is damaged"):
            fork_of(store, "tasks/odd")


class Counting(MemoryStore):
    """Counts how often blobs are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_blobs: list[str] = []

    def get_blob(self, name: str, *, checked: bool = True) -> bytes:
        self.read_blobs.append(name)
        return super().get_blob(name, checked=checked)


def test_each_blob_is_read_once_however_often_it_is_named():
    store = Counting()
    with Holdfast(store) as hf:
        for name in TASKS:
            hf.run(checked_agent, id=name)
        hf.run(checked_keeping, id="keeping")
        store.read_blobs.clear()
        assert hf.verify().blobs == len(store.read_blobs) == 3


class Unreadable(FileStore):
    """A disk that gives back one of the logs no more."""

    def read(self, stream: str, after_seq: int = 0, *, backwards: bool = False) -> Iterator[bytes]:
        if stream == "tasks/small":
            raise StorageFailed("the disk is broken")
        return super().read(stream, after_seq, backwards=backwards)


def test_a_log_that_can_not_be_read_is_named_and_the_others_are_checked(tmp_path):
    make(tmp_path / "w")
    with Holdfast(Unreadable(tmp_path / "w")) as hf:
        found = hf.verify()
    (damage,) = found.damage
    assert (damage.task, damage.seq, damage.kind) == ("small", 0, "task")
    assert damage.what == "it can't be checked: the disk is broken"
    assert found.tasks == 2 and found.events > 5


def test_the_lines_of_a_signed_store_are_chained_whatever_is_in_them():
    inner = MemoryStore()
    store = secured(inner, None, KEY)
    lease = acquire_one(store, "tasks/a", "me", LONG_S)
    store.append(lease, 0, [b"one", b"two", b"three"])
    store.append(lease, 3, [b"four"])
    lines = inner._streams["tasks/a"]
    for wrong in ([0, 2, 1, 3], [1, 2, 3], [0, 2, 3], [0, 0, 1, 2, 3]):
        inner._streams["tasks/a"] = [lines[n] for n in wrong]
        with pytest.raises(LogDamaged):
            list(store.read("tasks/a"))
        with pytest.raises(LogDamaged):
            list(store.read("tasks/a", backwards=True))


@step
def verified_report() -> Artifact:
    return keep([b"x" * 3_000_000], name="report")


@task
def verified_reporting() -> list[Artifact]:
    return [verified_report()]


def test_a_part_of_an_artifact_that_is_gone_shows(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        hf.run(verified_reporting, id="t")
        assert hf.verify().sound
        assert hf.verify().blobs == 3, "parts, of which two are equal, and their list"
        blobs = [path for path in (tmp_path / "w/blobs").rglob("*") if path.is_file()]
        largest = max(blobs, key=lambda path: path.stat().st_size)
        largest.unlink()
        assert f"{largest.name} is damaged" in str(hf.verify().damage[0])


def test_lines_that_are_missing_at_the_end_of_a_sqlite_log_show(tmp_path):
    url = f"sqlite:///{tmp_path}/w.db"
    for what in ("where id = (select max(id) from lines)", ""):
        with Holdfast(url) as hf:
            hf.run(verified_reporting, id="t")
            assert hf.verify().sound
        with closing(sqlite3.connect(tmp_path / "w.db")) as conn, conn:
            conn.execute(f"delete from lines {what}")
        with Holdfast(url) as hf:
            assert "those after it are gone" in str(hf.verify().damage[0])
            with pytest.raises(LogDamaged, match="those after it are gone"):
                hf.task("t")
            with pytest.raises(LogDamaged, match="those after it are gone"):
                hf.run(verified_reporting, id="t")
        (tmp_path / "w.db").unlink()


def test_lines_that_are_missing_at_the_end_of_a_postgresql_log_show(postgres_url):
    with Holdfast(postgres_url) as hf:
        hf.run(verified_reporting, id="t")
        assert hf.verify().sound
        with psycopg.connect(postgres_url) as conn:
            conn.execute("delete from holdfast.lines where seq > 3")
        assert "those after it are gone" in str(hf.verify().damage[0])
        with pytest.raises(LogDamaged, match="those after it are gone"):
            hf.run(verified_reporting, id="t")
