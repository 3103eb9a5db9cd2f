"""What is in an encrypted store tells nothing to who has not the key, and everything to who has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import (
    BadInput,
    Holdfast,
    Keys,
    LogDamaged,
    TaskFailed,
    Unanswered,
    WrongKey,
    ask,
    checkpoint,
    decide,
    note,
    progress,
    restore,
    step,
    task,
    tool,
)
from holdfast.log import chain
from holdfast.log.store_calls import acquire_one, facts_of_all, inbox_of, post_to, streams_in
from holdfast.stores import open_store, secured
from holdfast.stores.files.disk import Disk
from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Query
from holdfast.stores.queries import unpacked
from holdfast.stores.sealed import ring
from holdfast.stores.sealed.hidden import StreamNames
from tests.stores import sessions
from tests.stores.postgres_server import (
    PostgresServer,
    own_server,
    postgres_server,
    postgres_url,
)

__all__ = ["postgres_server", "postgres_url"]

KEY = Keys.new()
LONG_S = 60.0

WHERE = (
    "argument", "result", "error", "note", "noted", "choice", "option", "because", "label",
    "labelled", "user", "session", "question", "answer", "answerer", "pause", "message",
    "messenger", "checkpoint", "blob", "part", "progress", "step", "cancel",
    "said", "said-at-length", "picture", "summary", "ended", "memory", "remembered",
)  # fmt: skip
"""Where a canary is put: each one is another."""


def canary(where: str) -> str:
    return f"canary-of-the-{where}-9f81"


@step
def sealed_step(given: str) -> str:
    return canary("step") + given


@step
def sealed_blob() -> str:
    return canary("blob") * 10_000


@step
def sealed_parts() -> Iterator[str]:
    yield canary("part")
    yield "end"


@tool
def sealed_failing(given: str) -> None:
    raise RuntimeError(canary("error"))


@task
def sealed_agent(given: str) -> str:
    sealed_step(given)
    sealed_blob()
    list(sealed_parts())
    note(canary("note"), {"data": canary("noted")})
    progress(canary("progress"), done=1, total=2)
    decide("which", canary("choice"), options=[canary("option")], because=canary("because"))
    ask(canary("question"), str, id="sure")
    return canary("result")


@task
def sealed_failure() -> None:
    sealed_failing(canary("argument"))


@task
def sealed_loop() -> int:
    seen = restore(list[str]())
    for n in range(3):
        seen.append(f"{canary('checkpoint')} {n}")
        checkpoint(seen)
    return len(seen)


def fill_sessions(hf: Holdfast, labels: dict[str, str]) -> None:
    """The session of the tasks, and a memory: also by their ids."""
    talk = sessions.begun(hf.store, canary("session"), canary("user"), labels=labels)
    sessions.say(talk, canary("said"))
    sessions.say(talk, canary("said-at-length") * 1_000)
    sessions.show(talk, canary("picture").encode() * 100)
    sessions.summarize(talk, 2, canary("summary"))
    sessions.end(talk, canary("ended"))
    sessions.memory(hf.store, canary("memory"), text=canary("remembered"))
    assert [*streams_in(hf.store, "sessions/")] == [f"sessions/{canary('session')}"]
    assert [*streams_in(hf.store, "memories/canary")] == [f"memories/{canary('memory')}"]
    for filters in ({"user": canary("user")}, {"labels": labels}, {"session": canary("session")}):
        page = hf.store.find(Query(prefix="sessions/", **filters))
        known = [stream for stream, _ in page.found] or page.unknown
        assert known == [f"sessions/{canary('session')}"]


def fill(url, **keys) -> None:
    """Make a store in which there is a canary wherever a user's text can go."""
    with Holdfast(url, **keys) as hf:
        about: dict[str, Any] = {"user": canary("user"), "session": canary("session")}
        labels = {canary("label"): canary("labelled")}
        with pytest.raises(Unanswered):
            hf.run(sealed_agent, canary("argument"), id="agent", labels=labels, **about)
        hf.answer("agent", canary("answer"), question="sure", by=canary("answerer"))
        hf.pause("agent", because=canary("pause"))
        assert hf.resume("agent") == canary("result")
        with pytest.raises(TaskFailed, match=canary("error")):
            hf.run(sealed_failure, id="failure")
        assert hf.run(sealed_loop, id="loop") == 3
        hf.start(sealed_loop, id="cancelled", **about)
        hf.cancel("cancelled", because=canary("cancel"))
        fill_sessions(hf, labels)
        hf.start(sealed_loop, id="waits", **about)
        post_to(hf.store, "tasks/waits", canary("messenger"), canary("message").encode())
        assert [view.id for view in hf.tasks(labels=labels)] == ["agent"]
        assert {view.id for view in hf.tasks(user=canary("user"))} == {
            "agent",
            "cancelled",
            "waits",
        }
        (facts,) = [
            facts for name, facts in facts_of_all(hf.store, "tasks/") if name == "tasks/agent"
        ]
        assert facts is None or facts.labels == labels


def found_in(data: bytes) -> set[str]:
    """Of which canaries there is anything in the data, also in base64."""
    found = set()
    for where in WHERE:
        text = canary(where).encode()
        encoded = [b64encode(b"x" * skip + text)[4:-4] for skip in range(3)]
        if any(shape in data for shape in (text, text.hex().encode(), *encoded)):
            found.add(where)
    return found


def files_in(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def names_in(folder: Path) -> bytes:
    return "\n".join(map(str, folder.rglob("*"))).encode()


def test_no_file_of_an_encrypted_workspace_has_a_canary_in_it(tmp_path):
    fill(tmp_path / "plain")
    assert found_in(files_in(tmp_path / "plain")) == set(WHERE)
    fill(tmp_path / "closed", key=KEY)
    assert len(files_in(tmp_path / "closed")) > len(canary("blob")) * 10_000
    assert found_in(files_in(tmp_path / "closed") + names_in(tmp_path / "closed")) == set()


def test_no_byte_of_an_encrypted_sqlite_file_or_its_wal_is_a_canary(tmp_path):
    for name, keys in (("plain", {}), ("closed", {"key": KEY})):
        folder = tmp_path / name
        folder.mkdir()
        url = f"sqlite:///{folder}/store.db"
        with Holdfast(url, **keys):  # which keeps the write-ahead log from being removed
            fill(url, **keys)
            assert (folder / "store.db-wal").stat().st_size
            while_open = found_in(files_in(folder))
        assert while_open | found_in(files_in(folder)) == (set() if keys else set(WHERE))


def rows_in(url: str) -> bytes:
    """Every value of every row of every table, as bytes, and unpacked."""
    found = []
    with psycopg.connect(url) as conn:
        tables = conn.execute(
            "select quote_ident(table_schema) || '.' || quote_ident(table_name) "
            "from information_schema.tables "
            "where table_schema not in ('pg_catalog', 'information_schema')"
        ).fetchall()
        for (table,) in tables:
            for row in conn.execute(f"select * from {table}".encode()):
                found += [unpacked(v) if isinstance(v, bytes) else str(v).encode() for v in row]
    return b"\n".join(found)


@pytest.fixture
def untouched_server() -> Iterator[PostgresServer]:
    """Whose files hold nothing of other tests."""
    with own_server() as server:
        yield server


def test_no_row_and_no_file_of_an_encrypted_postgres_has_a_canary_in_it(untouched_server):
    closed = untouched_server.new_database()
    fill(closed, key=KEY)
    assert len(rows_in(closed)) > len(canary("blob")) * 10_000
    assert found_in(rows_in(closed)) == set()
    with psycopg.connect(closed, autocommit=True) as conn:
        conn.execute("checkpoint")
    assert found_in(files_in(untouched_server.folder / "data")) == set()
    assert found_in((untouched_server.folder / "log").read_bytes()) == set()
    plain = untouched_server.new_database()
    fill(plain)
    assert found_in(rows_in(plain)) == set(WHERE)
    assert len(found_in(files_in(untouched_server.folder / "data"))) > 10  # the rest is compressed


# Keys


@pytest.fixture
def url(tmp_path):
    return tmp_path / "workspace"


@task
def sealed_hello(name: str) -> str:
    return f"hello {sealed_step(name)}"


def test_a_key_comes_from_a_file_the_environment_or_a_callable(url, tmp_path, monkeypatch):
    file = tmp_path / "store.key"
    file.write_text(f"# of the trips\n{KEY}\n")
    monkeypatch.setenv("MY_KEY", KEY)
    sources = [KEY, Keys(KEY), KEY.encode(), file, lambda: KEY, lambda: Keys.from_file(file)]
    sources += [Keys.from_file(file), Keys.from_env("MY_KEY")]
    for source in sources:
        with Holdfast(url, key=source) as hf:
            assert hf.run(sealed_hello, "ada", id="hello") == f"hello {canary('step')}ada"


@pytest.mark.parametrize(
    "wrong",
    ["", "passphrase", "hfk_", KEY[:-1], KEY + "A", b"short", 7, Path("/nowhere/key")],
    ids=["none", "passphrase", "prefix", "cut", "longer", "short", "number", "no file"],
)
def test_what_is_no_key_is_refused_and_not_repeated(url, wrong):
    with pytest.raises(BadInput) as caught:
        Holdfast(url, key=wrong)
    if isinstance(wrong, str) and len(wrong) > 5:
        assert wrong not in str(caught.value)
    assert not (url / "keys").exists()


def test_keys_show_themselves_by_their_id_alone(url):
    keys = Keys(KEY)
    for shown in (repr(keys), str(keys), f"{keys}", f"{[keys]}"):
        assert KEY[4:] not in shown and keys.ids[0] in shown
    with Holdfast(url, key=KEY):
        pass
    with pytest.raises(WrongKey) as caught:
        Holdfast(url, key=Keys.new())
    assert KEY[4:] not in str(caught.value) and keys.ids[0] in str(caught.value)


def test_a_wrong_or_missing_key_is_told_and_changes_nothing(url):
    with Holdfast(url, key=KEY) as hf:
        hf.run(sealed_hello, "ada", id="hello")
    before = files_in(url)
    with pytest.raises(WrongKey, match=f"encrypted with the key {Keys(KEY).ids[0]}"):
        Holdfast(url, key=Keys.new())
    with pytest.raises(WrongKey, match=r"no key was given.*--key-file"):
        Holdfast(url)
    assert files_in(url) == before
    with Holdfast(url, key=KEY) as hf:
        assert hf.task("hello").result == f"hello {canary('step')}ada"


def test_a_store_with_tasks_that_are_not_encrypted_stays_as_it_is(url):
    with Holdfast(url) as hf:
        hf.run(sealed_hello, "ada", id="hello")
    before = files_in(url)
    with pytest.raises(WrongKey, match="begun without a key"):
        Holdfast(url, key=KEY)
    assert files_in(url) == before
    with Holdfast(url) as hf:
        assert hf.task("hello").status == "completed"


def test_a_store_whose_keys_are_gone_is_damaged_and_begun_anew_by_nobody(url):
    with Holdfast(url, key=KEY) as hf:
        hf.run(sealed_hello, "ada", id="hello")
    (url / "keys").rename(url / "aside")
    with pytest.raises(LogDamaged, match="keys of the store are gone"):
        Holdfast(url, key=KEY)
    with Holdfast(url) as hf, pytest.raises(LogDamaged, match="keys that belong to it"):
        hf.resume("hello")
    assert not (url / "keys").exists()
    (url / "aside").rename(url / "keys")
    with Holdfast(url, key=KEY) as hf:
        assert hf.task("hello").status == "completed"


def test_of_many_who_open_a_new_store_all_get_the_same_key(url):
    opened: list[Holdfast] = []
    wrong: list[Exception] = []

    def open_it() -> None:
        try:
            opened.append(Holdfast(url, key=KEY))
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=open_it) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(opened) == 6
    opened[0].run(sealed_hello, "ada", id="hello")
    for hf in opened:
        assert hf.task("hello").result == f"hello {canary('step')}ada"
        hf.close()


# Rotation


@pytest.fixture(params=["files", "sqlite", "postgres"])
def any_url(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else tmp_path / "workspace"


def test_a_new_master_key_needs_one_line_and_the_old_one_can_go(any_url):
    old, new = Keys.new(), Keys.new()
    with Holdfast(any_url, key=old) as hf:
        hf.run(sealed_hello, "ada", id="hello")
        lines = list(hf.store.inner.read("tasks/hello"))
        store = open_store(any_url)
        assert ring.rotate(store, Keys(new, old))
        assert not ring.rotate(store, Keys(new, old))
        assert list(streams_in(store, "keys/")) == ["keys/2"]
        store.close()
        assert hf.run(sealed_hello, "eve", id="meanwhile")  # who has it open goes on
    with pytest.raises(WrongKey):
        Holdfast(any_url, key=old)
    with Holdfast(any_url, key=new) as hf:
        assert list(hf.store.inner.read("tasks/hello")) == lines
        assert hf.task("hello").result == f"hello {canary('step')}ada"
        assert hf.task("meanwhile").status == "completed"
        assert hf.verify().sound


def test_a_rotation_that_dies_half_way_leaves_the_store_open_to_both(url):
    old, new = Keys.new(), Keys.new()
    Holdfast(url, key=old).close()
    store = open_store(url)
    deleted = store.delete

    def die(lease):
        raise KeyboardInterrupt

    store.delete = die
    with pytest.raises(KeyboardInterrupt):
        ring.rotate(store, Keys(new, old))
    store.close()
    assert deleted is not None
    Holdfast(url, key=new).close()
    with pytest.raises(WrongKey):
        Holdfast(url, key=old)
    store = open_store(url)
    assert not ring.rotate(store, Keys(new))  # and tidies up what was left
    assert list(streams_in(store, "keys/")) == ["keys/2"]
    store.close()


class DyingDisk(Disk):
    """A disk whose process dies just before it changes something for the so-and-so-many-th time."""

    def __init__(self, changes: int) -> None:
        self.left = changes

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("make_folder", "open", "write", "overwrite", "sync", "sync_folder", "rename"):
            self.left -= 1
            if self.left < 0:
                os._exit(9)
        return found


def killed_at_every_change(url: Path, work) -> Iterator[Path]:
    """Copies of a workspace, left by a process that was killed in the middle of some work."""
    for changes in range(100):
        place = url.with_name(f"killed-{changes}")
        if url.exists():
            shutil.copytree(url, place)
        child = os.fork()
        if not child:
            try:
                work(FileStore(place, disk=DyingDisk(changes)))
            finally:
                os._exit(0)
        died = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        yield place
        if not died:
            assert changes > 10
            return
    raise AssertionError("it never came to its end")


def test_a_process_that_dies_while_it_makes_the_keys_leaves_a_store_that_opens(url):
    for place in killed_at_every_change(url, lambda store: secured(store, KEY)):
        with Holdfast(place, key=KEY) as hf:
            hf.run(sealed_hello, "ada", id="hello")
        with Holdfast(place, key=KEY) as hf:
            assert hf.verify().sound and hf.verify().tasks == 1


def test_a_process_that_dies_while_it_rotates_leaves_a_store_that_opens(url):
    old, new = Keys.new(), Keys.new()
    with Holdfast(url, key=old) as hf:
        hf.run(sealed_hello, "ada", id="hello")
    places = killed_at_every_change(url, lambda store: ring.rotate(store, Keys(new, old)))
    for place in places:
        with Holdfast(place, key=Keys(new, old)) as hf:
            assert hf.task("hello").result == f"hello {canary('step')}ada"
        store = open_store(place)
        ring.rotate(store, Keys(new, old))
        store.close()
        with Holdfast(place, key=new) as hf:
            assert hf.task("hello").result == f"hello {canary('step')}ada"


def test_a_store_that_is_not_encrypted_has_no_key_to_rotate(url):
    with pytest.raises(WrongKey, match="not encrypted"):
        ring.rotate(open_store(url), Keys(KEY))


# What a box is bound to


@pytest.fixture
def inner():
    return MemoryStore()


def written(inner: MemoryStore, *streams: str, count: int = 3):
    store = secured(inner, KEY)
    for stream in streams:
        lease = acquire_one(store, stream, "me", LONG_S)
        lines = [b'{"seq":%d,"in":"%b"}' % (n, stream.encode()) for n in range(1, count + 1)]
        store.append(lease, 0, lines)
        store.release([lease])
    return store


def swap(inner: MemoryStore, one: tuple[str, int], other: tuple[str, int], *, resum: bool) -> None:
    """Put two lines in each other's place; as somebody would who can count and compute sums."""
    lines = inner._streams
    (a, i), (b, j) = one, other
    lines[a][i], lines[b][j] = lines[b][j], lines[a][i]
    for stream in {a, b} if resum else ():
        total, anew = chain.ROOT, []
        for seq, line in enumerate(lines[stream], 1):
            line = re.sub(rb'"seq":\d+', b'"seq":%d' % seq, line)
            line, total = chain.seal(total, line[:-26] + b"}")
            anew.append(line)
        lines[stream] = anew


@pytest.mark.parametrize("resum", [False, True])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("tasks/a", 1), ("tasks/a", 2)),
        (("tasks/a", 1), ("tasks/b", 1)),
        (("tasks/a", 0), ("tasks/b", 0)),
        (("tasks/a", 2), ("tasks/b", 2)),
    ],
)
def test_a_line_opens_only_where_it_was_written(inner, one, other, resum):
    written(inner, "tasks/a", "tasks/b")
    swap(inner, one, other, resum=resum)
    store = secured(inner, KEY)
    for stream in {one[0], other[0]}:
        with pytest.raises(LogDamaged):
            list(store.read(stream))
        with pytest.raises(LogDamaged):
            list(store.read(stream, backwards=True))


def test_a_whole_log_under_another_name_does_not_open(inner):
    written(inner, "tasks/a")
    inner._streams["tasks/b"] = inner._streams["tasks/a"]
    with pytest.raises(LogDamaged, match="copied or moved"):
        list(secured(inner, KEY).read("tasks/b"))


def test_a_line_that_is_not_encrypted_is_refused(inner):
    store = written(inner, "tasks/a")
    line, _ = chain.seal(chain.sum_of(inner._streams["tasks/a"][-1]), b'{"seq":4}')
    inner._streams["tasks/a"].append(line)
    with pytest.raises(LogDamaged, match="not encrypted"):
        list(store.read("tasks/a"))
    inner._streams["tasks/plain"] = [chain.seal(chain.ROOT, b'{"seq":1,"id":"plain"}')[0]]
    with pytest.raises(LogDamaged, match="not encrypted"):
        list(store.read("tasks/plain"))


def test_a_log_made_anew_has_another_key_and_who_had_it_open_reads_it(inner):
    ours, theirs = written(inner, "tasks/a"), secured(inner, KEY)
    old = list(inner._streams["tasks/a"])
    assert len(list(ours.read("tasks/a"))) == 3
    theirs.delete(acquire_one(theirs, "tasks/a", "they", LONG_S))
    lease = acquire_one(theirs, "tasks/a", "they", LONG_S)
    theirs.append(lease, 0, [b"new", b"newer"])
    assert list(ours.read("tasks/a", 1)) == [b"newer"]
    assert list(ours.read("tasks/a", backwards=True)) == [b"newer", b"new"]
    inner._streams["tasks/a"][1] = old[1]
    with pytest.raises(LogDamaged):
        list(ours.read("tasks/a", 1))


def test_a_message_that_was_changed_or_moved_is_given_to_nobody_and_told_of(inner):
    store = written(inner, "tasks/a", "tasks/b")
    post_to(store, "tasks/a", "one", b"1")
    post_to(store, "tasks/a", "two", b"2")
    (name,) = [name for (_, name), data in inner._posts.items() if len(data)][:1]
    inner._posts["tasks/b", name] = inner._posts["tasks/a", name]
    inner._posts["tasks/a", name] = inner._posts["tasks/a", name][:-1] + b"\0"
    assert [post.name for post in inbox_of(store, ["tasks/a", "tasks/b"])] == ["two"]
    assert len(store.refused(["tasks/a", "tasks/b"])) == 2


def test_equal_blobs_are_kept_once_and_a_changed_or_swapped_one_is_damage(inner):
    store = secured(inner, KEY)
    one, two = store.put_blob(b"one" * 999), store.put_blob(b"two" * 999)
    assert store.put_blob(b"one" * 999) == one
    assert len(inner._blobs) == 2 and not {one, two} & inner._blobs.keys()
    names = [store.blob_in_store(digest) for digest in (one, two)]
    assert set(names) == inner._blobs.keys()
    assert [store._names.shown(name) for name in names] == [one, two]
    inner._blobs[names[0]], inner._blobs[names[1]] = inner._blobs[names[1]], inner._blobs[names[0]]
    for digest in (one, two, "0" * 64, "no digest"):
        with pytest.raises(LogDamaged):
            store.get_blob(digest)


def test_facts_that_were_changed_or_moved_are_not_believed(inner):
    with Holdfast(inner, key=KEY) as hf:
        hf.run(sealed_hello, "ada", id="a", user="ada")
        hf.run(sealed_hello, "bob", id="b", user="bob")
        assert dict(facts_of_all(hf.store, "tasks/"))["tasks/a"].user == "ada"
        inner._facts["tasks/a"] = inner._facts["tasks/b"]
        assert dict(facts_of_all(hf.store, "tasks/"))["tasks/a"] is None
        assert [view.id for view in hf.tasks(user="bob")] == ["b"]


def test_the_same_user_is_the_same_to_the_store_and_nothing_else_is(inner):
    with Holdfast(inner, key=KEY) as hf:
        hf.run(sealed_hello, "x", id="a", user="ada", session="ada", labels={"ada": "ada"})
        hf.run(sealed_hello, "x", id="b", user="ada")
        a, b = inner._facts["tasks/a"], inner._facts["tasks/b"]
    assert a.user == b.user
    assert len({a.user, a.session, *a.labels, *a.labels.values()}) == 6
    other = MemoryStore()
    with Holdfast(other, key=Keys.new()) as hf:
        hf.run(sealed_hello, "x", id="a", user="ada")
    assert other._facts["tasks/a"].user != a.user


@pytest.mark.parametrize("ways", [(None, KEY), (KEY, None), (KEY, Keys.new())])
def test_a_log_can_be_copied_line_by_line_between_stores_with_other_keys(ways):
    inner, outer = MemoryStore(), MemoryStore()
    target = secured(outer, ways[1])
    with Holdfast(inner, key=ways[0]) as hf:
        with pytest.raises(Unanswered):
            hf.run(sealed_agent, "x", id="agent")
        lease = acquire_one(target, "tasks/agent", "me", LONG_S)
        target.append(lease, 0, list(hf.store.read("tasks/agent")))
        target.release([lease])
        for digest in [blob.digest for blob in hf.store.blobs()]:
            assert target.put_blob(hf.store.get_blob(digest)) == digest
    with Holdfast(outer, key=ways[1]) as hf:
        hf.answer("agent", "yes")
        assert hf.resume("agent") == canary("result")
        assert hf.verify().sound


# Loading


def test_encryption_is_loaded_when_it_is_asked_for_and_missed_with_a_sentence(tmp_path):
    script = """
import sys
from holdfast import BadInput, Holdfast, Keys
with Holdfast("memory://", sign_key=Keys.new()):
    assert "cryptography" not in sys.modules
sys.modules["cryptography"] = None
sys.modules["cryptography.exceptions"] = None
try:
    Holdfast("memory://", key=Keys.new())
except BadInput as error:
    print(error)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'holdfast[encryption]'" in done.stdout


# Names of sessions and memories

IDS = (
    "s-1",
    "S-1",
    "Ada's / 2nd",
    "日本語 🚀",
    "sessions/s-1",
    "x" * 255,
    "\U00020000" * 255,
    "%_'",
)


@pytest.mark.parametrize("kind", ["sessions", "memories", "session-copies", "memory-copies"])
@pytest.mark.parametrize("id", IDS)
def test_a_hidden_name_is_one_name_for_one_id_and_can_be_shown(kind, id):
    names = StreamNames(b"k" * 32)
    hidden = names.hidden(f"{kind}/{id}")
    assert re.fullmatch(f"{kind}/[a-z2-7]{{27,}}", hidden)
    assert names.shown(hidden) == f"{kind}/{id}"
    assert hidden == StreamNames(b"k" * 32).hidden(f"{kind}/{id}")
    assert hidden != StreamNames(b"K" * 32).hidden(f"{kind}/{id}")
    assert StreamNames(b"K" * 32).shown(hidden) != f"{kind}/{id}"


def test_a_task_keeps_its_name_and_a_draft_has_that_of_what_it_will_be():
    names = StreamNames(b"k" * 32)
    for stream in ("tasks/t-1", "copies/t-1", "tasks/sessions/s-1", "keys/1", "housekeeping/gc"):
        assert names.hidden(stream) == names.shown(stream) == stream
    final, draft = names.hidden("sessions/x"), names.hidden("session-copies/x")
    assert final.partition("/")[2] == draft.partition("/")[2]
    assert names.hidden("memories/x").partition("/")[2] != final.partition("/")[2]


def test_sessions_with_any_id_are_listed_read_and_gone_on_with(tmp_path):
    for id in IDS:
        with Holdfast(tmp_path / "w", key=KEY) as hf:
            sessions.begun(hf.store, id)
    with Holdfast(tmp_path / "w", key=KEY) as hf:
        assert sorted(streams_in(hf.store, "sessions/")) == sorted(f"sessions/{id}" for id in IDS)
        assert sorted(streams_in(hf.store, "sessions/S")) == ["sessions/S-1"]
        for id in IDS:
            sessions.say(sessions.session(hf.store, id), "more")
        found = hf.verify()
        assert found.sound and (found.sessions, found.events) == (len(IDS), 2 * len(IDS))
        page = hf.store.find(Query(prefix="sessions/", limit=3))
        assert len(page.found) + len(page.unknown) >= 3


def test_a_session_whose_folder_was_renamed_is_damage_and_not_gone(tmp_path):
    with Holdfast(tmp_path / "w", key=KEY) as hf:
        sessions.begun(hf.store, "s-1")
        (folder,) = (tmp_path / "w/sessions").iterdir()
        folder.rename(folder.with_name("s-1"))
        (damage,) = hf.verify().damage
        assert (damage.kind, damage.seq) == ("session", 1) and "moved here" in damage.what


def test_a_lost_or_old_key_opens_no_session_and_a_new_one_opens_all(tmp_path):
    new = Keys.new()
    with Holdfast(tmp_path / "w", key=KEY) as hf:
        sessions.talked(hf.store, "s-1")
        before = list(hf.store.read("sessions/s-1"))
    store = open_store(tmp_path / "w")
    assert ring.rotate(store, Keys(new, KEY))
    store.close()
    with pytest.raises(WrongKey):
        Holdfast(tmp_path / "w", key=KEY)
    with Holdfast(tmp_path / "w", key=new) as hf:
        assert list(hf.store.read("sessions/s-1")) == before
        sessions.say(sessions.session(hf.store), "with the new key")
        assert hf.verify().sound
    shutil.rmtree(tmp_path / "w/keys")
    with pytest.raises(LogDamaged, match="keys of the store are gone"):
        Holdfast(tmp_path / "w", key=new)


@pytest.mark.parametrize("kind", ["session", "memory"])
def test_a_store_with_sessions_in_the_clear_is_not_opened_with_a_key(tmp_path, kind):
    with Holdfast(tmp_path / "w") as hf:
        sessions.begun(hf.store) if kind == "session" else sessions.memory(hf.store)
    with pytest.raises(WrongKey, match="begun without a key"):
        Holdfast(tmp_path / "w", key=KEY)
