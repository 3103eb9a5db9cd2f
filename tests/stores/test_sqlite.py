"""The SQLite store: the contract, real processes on one file, and what a disk can do to it."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from holdfast import BadInput, Conflict, Holdfast, HoldfastError, NewerFormat, StorageFailed
from holdfast.log.store_calls import acquire_one, facts_of_all, sync_one
from holdfast.stores import migrate, open_store
from holdfast.stores.port import Facts, Query
from holdfast.stores.queries import migration, queries, schema
from holdfast.stores.sqlite import database as sqlite_file
from holdfast.stores.sqlite.database import VERSION, bring_up_to_date, statements
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.testing import StoreContract
from holdfast.testing.contract import AT
from holdfast.testing.contract.facts import put
from tests.stores import agents
from tests.stores.databases import LONG_S, ROOT, STREAM, DatabaseStore

SOURCE = ROOT / "src/holdfast/stores"


class TestContract(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path):
        return lambda: SqliteStore(tmp_path / "tasks.db")

    def spoil_blob(self, store, digest):
        with closing(sqlite3.connect(store.path)) as conn, conn:
            conn.execute("update blobs set data = x'77726f6e67' where digest = ?", [digest])


def test_a_deleted_stream_leaves_no_line_behind(tmp_path):
    store = SqliteStore(tmp_path / "tasks.db")
    lease = acquire_one(store, STREAM, "me", LONG_S)
    store.append(lease, 0, [b"one", b"two"])
    store.delete(lease)
    store.close()
    with closing(sqlite3.connect(store.path)) as conn:
        assert conn.execute("select count(*) from lines").fetchall() == [(0,)]


class TestStore(DatabaseStore):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path}/tasks.db"

    def spoil_blobs(self, store):
        with closing(sqlite3.connect(store.path)) as conn, conn:
            conn.execute("update blobs set data = x'77726f6e67'")

    @contextmanager
    def failing(self, store):
        with closing(sqlite3.connect(store.path)) as conn:
            conn.execute("create trigger broken before insert on lines begin "
                         "select raise(abort, 'no'); end")  # fmt: skip
            yield
            conn.execute("drop trigger broken")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tasks.db"


@pytest.fixture
def store(path):
    store = SqliteStore(path)
    yield store
    store.close()


# The file


def test_the_file_and_what_sqlite_puts_beside_it_are_private(path):
    before = os.umask(0)
    try:
        with Holdfast(f"sqlite:///{path}") as hf:
            hf.run(agents.adding, 2)
            found = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    finally:
        os.umask(before)
    assert found == {"tasks.db": 0o600, "tasks.db-wal": 0o600, "tasks.db-shm": 0o600}


def test_three_slashes_are_a_path_from_here_and_four_from_the_root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Holdfast("sqlite:///near.db") as hf:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert hf.run(agents.adding, 2) == 3
        assert hf.store.url == "sqlite:///near.db"
    assert (tmp_path / "near.db").exists()
    with Holdfast(f"sqlite:///{tmp_path}/far.db") as hf:
        assert hf.store.url == f"sqlite:///{tmp_path}/far.db"
    assert (tmp_path / "far.db").exists()


def test_a_name_may_hold_what_means_something_in_a_url(tmp_path):
    path = tmp_path / "a?b=c&d#e %20.db"
    with Holdfast(f"sqlite:///{path}") as hf:
        assert hf.run(agents.adding, 2) == 3
    assert path.exists()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite://host/x", "sqlite:///:memory:"]
)
def test_a_url_without_a_file_is_refused(url):
    with pytest.raises(BadInput, match="names no file"):
        open_store(url)


def test_what_is_no_database_is_refused_and_kept(tmp_path):
    (tmp_path / "notes").write_text("no database at all, but a long enough text. " * 99)
    with pytest.raises(StorageFailed, match=r"file is not a database\. .*not an SQLite database"):
        SqliteStore(tmp_path / "notes")
    assert (tmp_path / "notes").read_text().startswith("no database")
    with pytest.raises(StorageFailed, match=r"No such file.*\. Check that its folder is there"):
        SqliteStore(tmp_path / "no folder" / "x.db")
    with pytest.raises(StorageFailed):
        SqliteStore(tmp_path)


def test_a_database_of_something_else_is_refused_and_kept(path):
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute("create table theirs (x)")
    before = path.read_bytes()
    with pytest.raises(BadInput, match="a database of something else"):
        SqliteStore(path)
    with closing(sqlite3.connect(path)) as conn:
        assert [name for (name,) in conn.execute("select name from sqlite_master")] == ["theirs"]
    assert len(path.read_bytes()) == len(before)


def test_writes_are_synced_unless_asked_otherwise(path):
    for sync, expected in ((True, 2), (False, 0)):
        store = SqliteStore(path, sync=sync)
        with store._reader() as conn:
            assert conn.execute("pragma journal_mode").fetchone() == ("wal",)
        found = store._write(lambda conn: conn.execute("pragma synchronous").fetchone())
        assert found == (expected,)
        store.close()


def test_a_commit_is_a_sync_of_the_disk(path):
    trace = path.with_name("trace")
    script = (
        "import sys; from pathlib import Path\n"
        "from holdfast.log.store_calls import acquire_one, sync_one\n"
        "from holdfast.stores.sqlite.store import SqliteStore\n"
        "store = SqliteStore(Path(sys.argv[1])); lease = acquire_one(store, 'tasks/t', 'me', 60)\n"
        "for n in range(20):\n"
        "    store.append(lease, n, [b'x']); sync_one(store, lease)\n"
        "    print('acknowledged', n, flush=True)\n"
    )
    command = ["strace", "-f", "-e", "trace=fdatasync,fsync,write", "-o", str(trace)]
    try:
        done = subprocess.run(
            [*command, sys.executable, "-c", script, str(path)], capture_output=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("needs strace")
    if done.returncode:
        pytest.skip(f"strace can't trace here: {done.stderr[-200:]!r}")
    synced = 0
    seen = 0
    for line in trace.read_text().splitlines():
        if "sync(" in line:
            synced += 1
        elif "acknowledged" in line:
            seen += 1
            assert synced > 0, f"nothing was synced before {line}"
            synced = 0
    assert seen == 20


# Its schema


def shape(conn: sqlite3.Connection) -> dict[str, object]:
    """Everything that makes a database what it is, apart from how it was written down."""
    found: dict[str, object] = {}
    for kind, name, sql in conn.execute("select type, name, sql from sqlite_master"):
        if kind == "table":
            found[name] = conn.execute(f"pragma table_xinfo({name})").fetchall()
            indexes = conn.execute(f"pragma index_list({name})").fetchall()
            found[f"{name}, indexes"] = sorted(row[1:] for row in indexes)
        elif kind == "index":
            columns = conn.execute(f"pragma index_xinfo({name})").fetchall()
            found[name] = (columns, re.sub(r"\s+", " ", sql or ""))
        else:
            found[name] = sql
    return found


def made_by(*scripts: str) -> dict[str, object]:
    with closing(sqlite3.connect(":memory:")) as conn:
        for script in scripts:
            conn.executescript(script)
        return shape(conn)


def test_the_schema_and_the_migrations_make_the_same_database():
    migrations = [migration("sqlite", number) for number in range(1, VERSION + 1)]
    files = sorted(path.name for path in (SOURCE / "sql/sqlite/migrations").iterdir())
    assert files == [f"{number:03}.sql" for number in range(1, VERSION + 1)]
    expected = made_by(schema("sqlite"))
    assert len(expected) > 12
    assert made_by(*migrations) == expected
    assert made_by(*migrations, "create index more on lines (line)") != expected
    assert made_by(*migrations, "alter table blobs add column more text") != expected


def test_an_older_database_is_migrated_and_keeps_what_it_holds(path):
    with Holdfast(f"sqlite:///{path}") as hf:
        hf.run(agents.adding, 3, id="old")
    more = "create table more (x);\ncreate index most on more (x);"
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        bring_up_to_date(conn, path, VERSION + 1, lambda dialect, number: more)
        assert conn.execute("pragma user_version").fetchone() == (VERSION + 1,)
        assert {"more", "most", "streams"} <= shape(conn).keys()
        assert conn.execute("select count(*) from lines").fetchone() > (5,)


def test_a_migration_that_fails_changes_nothing(path):
    SqliteStore(path).close()
    broken = "create table more (x);\ncreate table more (x);"
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        before = shape(conn)
        with pytest.raises(sqlite3.OperationalError):
            bring_up_to_date(conn, path, VERSION + 1, lambda dialect, number: broken)
        assert shape(conn) == before
        assert conn.execute("pragma user_version").fetchone() == (VERSION,)


def test_a_newer_database_is_refused_and_kept(path):
    with Holdfast(f"sqlite:///{path}") as hf:
        hf.run(agents.adding, 3, id="t")
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(f"pragma user_version = {VERSION + 1}")
    with pytest.raises(NewerFormat, match=f"of version {VERSION + 1}, this one knows {VERSION}"):
        SqliteStore(path)
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("pragma user_version").fetchone() == (VERSION + 1,)
        assert conn.execute("select count(*) from streams").fetchone() == (1,)


def test_the_table_of_labels_says_what_the_streams_say_and_no_more(path):
    store = SqliteStore(path)
    put(store, "tasks/a", Facts("job", "failed", labels={"x": "1", "y": "2"}, created_at=AT))
    put(store, "tasks/b", Facts("job", "failed", labels={"x": "1"}, created_at=AT))
    store.remember("tasks/a", Facts("job", "failed", labels={"x": "1"}, created_at=AT), 1)
    store.remember("tasks/b", Facts("job", "failed", created_at=AT), 1)
    store.remember("tasks/b", Facts("job", "failed", labels={"z": "1"}, created_at=AT), 9)
    with closing(sqlite3.connect(path)) as conn:
        query = "select l.name, l.value, s.name from labels as l join streams as s on id = stream"
        assert conn.execute(query).fetchall() == [("x", "1", "tasks/a")]
        assert conn.execute("select count(*) from labels").fetchone() == (1,)
        store.delete(acquire_one(store, "tasks/a", "me", LONG_S))
        assert conn.execute("select count(*) from labels").fetchone() == (0,)
    store.close()


def test_the_labels_of_an_older_database_can_be_looked_for(path):
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        conn.executescript(migration("sqlite", 1))
        conn.execute(f"pragma application_id = {sqlite_file._APPLICATION}")
        conn.execute("pragma user_version = 1")
        for id, labels in enumerate(({"a": 'é"\\ 🚀'}, {"a": "x", "b": "x"}, {"a\0": "x"}, {}), 1):
            given = (id, f"tasks/{id}", json.dumps(labels) if labels else None, id * 10)
            conn.execute("insert into streams (id, name, head, status, labels, created_at, "
                         "updated_at) values (?, ?, 1, 'failed', ?, ?, 0)", given)  # fmt: skip
    migrate(f"sqlite:///{path}")
    store = SqliteStore(path)

    def found(**labels):
        return [name for name, _ in store.find(Query(labels=labels)).found]

    assert found(a='é"\\ 🚀') == ["tasks/1"]
    assert found(a="x") == found(b="x", a="x") == ["tasks/2"]
    page = store.find(Query())
    assert [name for name, _ in page.found] == ["tasks/4", "tasks/2", "tasks/1"]
    assert page.unknown == ["tasks/3"]
    store.remember("tasks/3", Facts("job", "failed", labels={"a\0": "x"}), 1)
    assert found(**{"a\0": "x"}) == ["tasks/3"]
    store.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_every_query_is_named_explained_or_plain_and_used(dialect):
    modules = (*SOURCE.glob(f"{dialect}/*.py"), SOURCE / "queries.py", SOURCE / "database.py")
    code = "".join(path.read_text() for path in modules)
    found = queries(dialect)
    assert len(found) > 20
    for name, text in found.items():
        assert f'"{name}"' in code, f"nobody asks for {name}"
        assert text.endswith(";") and text.count(";") == 1, name


def test_a_script_falls_into_its_statements():
    script = "-- one; or two?\ncreate table a (x);\n\ncreate table b (\n    y -- with; this\n);\n"
    assert [text.strip()[-2:] for text in statements(script)] == [");", ");"]
    assert "".join(statements(script)) == script


# Several writers


def test_many_processes_may_make_the_database_at_once(path):
    script = "import sys; from holdfast.stores import open_store; open_store(sys.argv[1]).close()"
    command = [sys.executable, "-c", script, f"sqlite:///{path}"]
    for _ in range(3):
        started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(6)]
        problems = [process.communicate(timeout=60)[1] for process in started]
        assert problems == [""] * 6
        for file in path.parent.iterdir():
            file.unlink()


def test_a_lock_of_another_process_is_waited_for(store, path):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("begin immediate")
        gone = threading.Event()

        def leave() -> None:
            gone.set()
            other.execute("commit")

        timer = threading.Timer(0.2, leave)
        timer.start()
        store.append(lease, 0, [b"one"])
        sync_one(store, lease)
        assert gone.is_set()
        timer.join()
    assert list(store.read(STREAM)) == [b"one"]


def test_a_process_that_never_lets_go_is_told_of(store, path, monkeypatch):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    monkeypatch.setattr(sqlite_file, "_PATIENCE_S", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("begin immediate")
        store.append(lease, 0, [b"one"])
        with pytest.raises(StorageFailed, match="kept it locked"):
            sync_one(store, lease)
        assert list(store.read(STREAM)) == []  # readers do not mind


def test_tasks_that_sync_at_once_share_their_commits(store):
    commits = []
    store._groups._commit = lambda jobs, commit=store._groups._commit: (
        commits.append(len(jobs)),
        commit(jobs),
    )
    leases = [acquire_one(store, f"tasks/{n}", "me", LONG_S) for n in range(40)]
    commits.clear()

    def work(lease):
        for seq in range(20):
            store.append(lease, seq, [b"%d" % seq])
            sync_one(store, lease)

    threads = [threading.Thread(target=work, args=[lease]) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(commits) == 800
    assert len(commits) < 200
    for lease in leases:
        assert list(store.read(lease.stream)) == [b"%d" % seq for seq in range(20)]


# Failures


def test_a_full_disk_is_named_and_costs_nothing_that_was_acknowledged(store, path):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    others = acquire_one(store, "tasks/other", "me", LONG_S)
    pages = store._write(lambda conn: conn.execute("pragma page_count").fetchone()[0])
    store._write(lambda conn: conn.execute(f"pragma max_page_count = {pages + 5}").fetchone())
    acknowledged = 0
    with pytest.raises(StorageFailed, match="The disk is full: free some space"):
        while True:
            store.append(lease, acknowledged, [b"x" * 3000])
            sync_one(store, lease)
            acknowledged += 1
    assert 0 < acknowledged < 20
    # The limit was that of the connection, and went with it.
    store.append(others, 0, [b"one"])
    sync_one(store, others)
    store.release([lease])
    again = acquire_one(store, STREAM, "me", LONG_S)
    assert list(store.read(STREAM)) == [b"x" * 3000] * acknowledged
    store.append(again, acknowledged, [b"and on"])
    sync_one(store, again)


def test_the_write_ahead_log_stays_small_beside_the_data(path):
    store = SqliteStore(path, sync=False)
    log = path.with_name("tasks.db-wal")
    most = 0

    def write(stream: str, count: int) -> None:
        nonlocal most
        lease = acquire_one(store, stream, "me", LONG_S)
        for seq in range(count):
            store.append(lease, seq, [b"%0300d" % seq])
            sync_one(store, lease)
            most = max(most, log.stat().st_size)

    write("tasks/a", 2000)
    limit = sqlite_file._WAL_BYTES
    assert most <= limit + (64 << 10)  # of the transaction that made it full
    store.put_blob(b"x" * (3 * limit))
    assert log.stat().st_size > 3 * limit
    write("tasks/b", 5)
    assert log.stat().st_size <= limit
    assert list(store.read("tasks/a")) == [b"%0300d" % seq for seq in range(2000)]
    store.close()


FILLING = """
import resource, sys
from pathlib import Path
from holdfast.log.store_calls import acquire_one, sync_one
from holdfast.stores.sqlite.store import SqliteStore
from holdfast.errors import StorageFailed

size = int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    store = SqliteStore(Path(sys.argv[1]))
    lease = acquire_one(store, "tasks/t", "me", 60)
    for seq in range(9999):
        store.append(lease, seq, [b"x" * 3000])
        sync_one(store, lease)
        print(seq, flush=True)
except StorageFailed as error:
    print(error)
"""


@pytest.mark.parametrize("size", [1 << 10, 20 << 10, 100 << 10, 300 << 10])
def test_a_file_that_may_not_grow_is_named_and_costs_nothing_that_was_acknowledged(path, size):
    # SIGXFSZ is ignored by Python, so that a write fails, and SQLite undoes the transaction itself.
    done = subprocess.run(
        [sys.executable, "-c", FILLING, str(path), str(size)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    *acknowledged, said = done.stdout.splitlines() or [""]
    assert re.search("disk I/O error|disk is full", said), done.stdout[-500:] + done.stderr[-2000:]
    store = SqliteStore(path)
    found = list(store.read("tasks/t"))
    assert len(found) >= len(acknowledged)
    store.close()


@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_lost_its_name_acknowledges_nothing(store, path, how):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    store.append(lease, 0, [b"one"])
    sync_one(store, lease)
    path.rename(path.with_name("away"))
    if how == "replaced":
        SqliteStore(path).close()
    store.append(lease, 1, [b"two"])
    with pytest.raises(StorageFailed):
        sync_one(store, lease)


@contextmanager
def held_up(store):
    """A block in which a commit is under way: what is added waits for the next one."""
    under_way, go_on = threading.Event(), threading.Event()

    def wait(conn):
        under_way.set()
        assert go_on.wait(60)

    def commit():
        with suppress(StorageFailed):
            store._write(wait)

    thread = threading.Thread(target=commit)
    thread.start()
    assert under_way.wait(60)
    try:
        yield
    finally:
        go_on.set()
        thread.join()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_was_under_way_when_its_lease_failed_is_not_written(store, count):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    others = acquire_one(store, "tasks/other", "me", LONG_S)
    store.append(lease, 0, [b"one"])
    with held_up(store):
        for seq in range(1, 1 + count):
            store.append(lease, seq, [b"%d" % seq])
        store.append(others, 0, [b"theirs"])
        store._groups._inode = -1  # as if the file had another name for a moment
    # The first line is there, but nobody could know: so nothing may follow it under that lease.
    with pytest.raises(StorageFailed):
        sync_one(store, lease)
    sync_one(store, others)
    assert list(store.read(STREAM)) == [b"one"]
    assert list(store.read("tasks/other")) == [b"theirs"]


@pytest.mark.parametrize("wrong", [None, 2, 3])
def test_what_is_committed_together_is_told_and_refused_each_for_itself(store, wrong):
    facts = [Facts("job", "failed", labels={"n": str(n)}) if n > 2 else None for n in range(6)]
    leases = [acquire_one(store, f"tasks/{n}", "me", LONG_S) for n in range(6)]
    with held_up(store):
        for n, lease in enumerate(leases):
            seq = 7 if n == wrong else 0
            store._leases.of(lease).head = seq
            store.append(lease, seq, [lease.stream.encode()], facts[n])
    outcomes = store.sync(leases)
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, Conflict)] == (
        [] if wrong is None else [wrong]
    )
    right = {lease.stream: fact for lease, fact in zip(leases, facts, strict=True)}
    right.pop(f"tasks/{wrong}", None)
    assert dict(facts_of_all(store, "tasks/")) == right
    for lease in leases:
        assert list(store.read(lease.stream)) == [name.encode() for name in right
                                                  if name == lease.stream]  # fmt: skip


# An interrupt that strikes while something is collected is not raised: Python only complains of it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_in_the_middle_of_a_commit_loses_nothing_and_hurts_nobody(path):
    # Without syncs, which would take nearly all of the time, and so of the interrupts.
    store = SqliteStore(path, sync=False)

    class Interrupt(BaseException):
        pass

    syncing = False

    def interrupt(number, frame):
        nonlocal syncing
        if syncing:
            syncing = False  # one at a time
            raise Interrupt

    ours, theirs = (acquire_one(store, f"tasks/{name}", "me", LONG_S) for name in "ab")
    ended = threading.Event()
    written = 0

    def write_theirs():
        nonlocal written
        while not ended.is_set():
            store.append(theirs, written, [b"%d" % written])
            sync_one(store, theirs)
            written += 1
            time.sleep(0.002)  # and leave most commits to us

    before = signal.signal(signal.SIGALRM, interrupt)
    other = threading.Thread(target=write_theirs)
    other.start()
    interrupts = 0
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.00017)
        for seq in range(2000):
            store.append(ours, seq, [b"%d" % seq])
            while True:
                try:
                    syncing = True
                    sync_one(store, ours)
                    syncing = False
                    break
                except Interrupt:
                    interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        ended.set()
        other.join()
    assert interrupts > 10
    assert written > 10
    assert list(store.read("tasks/a")) == [b"%d" % seq for seq in range(2000)]
    assert list(store.read("tasks/b")) == [b"%d" % seq for seq in range(written)]
    store.close()


def open_here(path: Path) -> list[str]:
    """The files of a database that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the list itself
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [name for name in found if name.startswith(str(path))]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="needs /proc")
def test_a_store_that_is_closed_while_it_is_used_leaves_no_connection_open(tmp_path):
    def use(store, lease):
        with suppress(HoldfastError):  # it was closed
            for seq in itertools.count():
                store.append(lease, seq, [b"x"])
                sync_one(store, lease)
                list(store.read(lease.stream))
                store.holder(lease.stream)

    for turn in range(20):
        path = tmp_path / f"{turn}.db"
        store = SqliteStore(path, sync=False)
        leases = [acquire_one(store, f"tasks/{n}", "me", LONG_S) for n in range(4)]
        threads = [threading.Thread(target=use, args=[store, lease]) for lease in leases]
        for thread in threads:
            thread.start()
        time.sleep(0.001 * turn)
        store.close()
        for thread in threads:
            thread.join()
        assert open_here(path) == []


def test_a_store_can_be_closed_at_any_moment(tmp_path):
    problems: list[BaseException] = []

    def open_and_close(number):
        try:
            for turn in range(15):
                store = SqliteStore(tmp_path / f"{number}.db", sync=False)
                lease = acquire_one(store, STREAM, "me", LONG_S)
                store.append(lease, turn, [b"x"])
                time.sleep(0.018 + 0.0004 * turn)  # about when what lingers is written
                store.close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=open_and_close, args=[n], daemon=True) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert problems == []


@pytest.mark.parametrize("column", ["owner", "process", "lease_s", "expires_at"])
@pytest.mark.parametrize("spoiled", [None, 0, "[null]", b"\xff"])
def test_a_spoiled_row_of_a_lease_keeps_nobody_from_a_stream(path, column, spoiled):
    with closing(SqliteStore(path)) as store:
        lease = acquire_one(store, STREAM, "me", LONG_S)
        store.append(lease, 0, [b"one"])
        sync_one(store, lease)
        store.release([lease])
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(f"update streams set {column} = ?", (spoiled,))
    with closing(SqliteStore(path)) as store:
        assert store.holder(STREAM) is None
        store.append(acquire_one(store, STREAM, "another", LONG_S), 1, [b"two"])


def test_a_crowd_of_readers_leaves_few_connections_behind(tmp_path):
    with closing(open_store(f"sqlite:///{tmp_path}/crowd.db")) as store:
        many = 40
        all_read = threading.Barrier(many)

        def read() -> None:
            with store._reader() as conn:
                conn.execute("select 1").fetchall()
                all_read.wait(60)

        crowd = [threading.Thread(target=read) for _ in range(many)]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join()
        assert len(store._readers) <= 8
