"""The PostgreSQL store: the contract, real processes on one server, and a server that goes away."""

from __future__ import annotations

import math
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from holdfast import BadInput, Holdfast, NewerFormat, StorageFailed, TaskBusy, Worker
from holdfast.log.store_calls import acquire_one, due_in, holder_of, post_to, sync_one
from holdfast.stores import open_store
from holdfast.stores.port import Facts
from holdfast.stores.postgres.database import SQL, VERSION, bring_up_to_date
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.queries import migration, schema
from holdfast.testing import StoreContract
from tests.stores import agents
from tests.stores.databases import (
    LONG_S,
    ROOT,
    STREAM,
    DatabaseStore,
    at_work,
    process,
    until,
)
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

NOW = datetime.now(UTC) + timedelta(days=1)
OURS = "select pid from pg_stat_activity where application_name = 'holdfast' and pid <> %s"


@contextmanager
def superuser(url: str):
    with psycopg.connect(url, autocommit=True) as conn:
        yield conn


def cut_connections(url: str, where: str = "true") -> int:
    """End the sessions of stores in a database, as a server does that goes away."""
    with superuser(url) as conn:
        ended = conn.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where application_name "
            f"= 'holdfast' and datname = current_database() and {where}"
        ).fetchall()
        assert all(row == (True,) for row in ended)
        return len(ended)


class TestContract(StoreContract):
    @pytest.fixture
    def open_store(self, postgres_url):
        return lambda: PostgresStore(postgres_url)

    def spoil_blob(self, store, digest):
        with superuser(store._address.session_url) as conn:
            spoil = "update holdfast.blobs set data = 'wrong' where digest = %s"
            conn.execute(spoil, [bytes.fromhex(digest)])


def test_a_long_log_is_read_whole_and_in_order_however_long_its_pages_are(store):
    (lease,) = store.acquire(["tasks/t"], "me", 30)
    lines = [b'{"seq":%d}' % seq for seq in range(1, 1801)]
    lines[400:440] = [b'{"seq":%d,"of":"%b"}' % (seq, b"x" * 40_000) for seq in range(401, 441)]
    store.append(lease, 0, lines)
    store.sync([lease])
    assert list(store.read("tasks/t")) == lines
    assert list(store.read("tasks/t", 399)) == lines[399:]
    assert list(store.read("tasks/t", 7, backwards=True)) == lines[:6:-1]


def test_a_page_of_what_is_due_is_read_off_its_index_however_many_have_the_same_time(store):
    given = {"now": NOW, "after_at": None, "after_name": "", "prefix": "tasks/", "beyond": "tasks0"}
    with superuser(store._address.session_url) as conn:
        conn.execute(
            "insert into holdfast.streams (name, head, status, wake_at)"
            " select 'tasks/' || n, 1, 'pending', %s from generate_series(1, 5000) as n",
            [NOW],
        )
        conn.execute("vacuum analyze holdfast.streams")
        explain = f"explain (analyze, format json) {SQL['due']}"
        given |= {"page": 10, "process": None}
        [[[plan]]] = conn.execute(explain, given).fetchall()
        (walk,) = plan["Plan"]["Plans"]
        assert plan["Plan"]["Node Type"] == "Limit" and walk["Index Name"] == "streams_to_wake"
        assert (walk["Node Type"], walk["Actual Rows"]) == ("Index Scan", 10)


def test_of_what_is_due_a_store_leaves_out_what_other_processes_hold(store, postgres_url):
    other = PostgresStore(postgres_url)
    for name, who in (("free", store), ("mine", store), ("theirs", other)):
        lease = acquire_one(who, f"tasks/{name}", name, LONG_S)
        who.append(lease, 0, [b"one"], Facts("job", "in_progress", wake_at=NOW))
        who.sync([lease])
        if name == "free":
            who.release([lease])

    def due(asker: PostgresStore, **how: bool) -> list[str]:
        return [name for name, _ in due_in(asker, "tasks/", NOW, **how)]

    assert due(store) == ["tasks/free", "tasks/mine", "tasks/theirs"]
    assert due(store, unheld=True) == ["tasks/free", "tasks/mine"]
    assert due(other, unheld=True) == ["tasks/free", "tasks/theirs"]
    with superuser(postgres_url) as conn:  # not heard of for longer than its lease
        conn.execute("update holdfast.streams set expires_at = now() where name = 'tasks/theirs'")
    assert due(store, unheld=True) == ["tasks/free", "tasks/mine", "tasks/theirs"]
    other.close()


def test_what_a_dead_process_held_is_due_at_once(store, postgres_url):
    with process("run_endless", postgres_url) as other:
        assert other.stdout.readline() == "at work\n"
        until(lambda: store.holder("tasks/endless") is not None, "it is held")
        until(lambda: dict(due_in(store, "tasks/", NOW)), "it is known")
        assert not dict(due_in(store, "tasks/", NOW, unheld=True))
        other.kill()
        until(lambda: dict(due_in(store, "tasks/", NOW, unheld=True)), "it is due")


def test_a_deleted_stream_leaves_no_line_behind(store):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    store.append(lease, 0, [b"one", b"two"])
    store.delete(lease)
    with superuser(store._address.session_url) as conn:
        assert conn.execute("select count(*) from holdfast.lines").fetchall() == [(0,)]


class TestStore(DatabaseStore):
    @pytest.fixture
    def url(self, postgres_url):
        return postgres_url

    def spoil_blobs(self, store):
        with superuser(store._address.session_url) as conn:
            conn.execute("update holdfast.blobs set data = 'wrong'")

    @contextmanager
    def failing(self, store):
        with superuser(store._address.session_url) as conn:
            conn.execute("alter table holdfast.lines add constraint broken check (seq < 2)")
            yield
            conn.execute("alter table holdfast.lines drop constraint broken")


@pytest.fixture
def store(postgres_url):
    store = PostgresStore(postgres_url)
    yield store
    store.close()


# Opening


def test_a_password_is_not_shown(postgres_server, postgres_url):
    url = postgres_url.replace("postgres@", "postgres:secret@") + "&password=secret"
    store = open_store(url)
    assert "secret" not in store.url
    store.close()
    again = open_store(store.url)
    assert again.url == store.url
    again.close()
    with pytest.raises(StorageFailed) as failed:
        open_store(url.replace("/test_", "/gone_"))
    assert "secret" not in str(failed.value)
    assert "createdb" in str(failed.value)


def test_a_server_that_is_not_there_is_told_of_at_once(tmp_path):
    started = time.monotonic()
    with pytest.raises(StorageFailed, match="See that the server is up"):
        open_store(f"postgresql://postgres@/x?host={tmp_path}")
    assert time.monotonic() - started < 30


def test_an_address_that_makes_no_sense_is_refused():
    with pytest.raises(BadInput, match="is no address of a database"):
        open_store("postgresql://localhost/x?no_such_option=1")


def test_without_the_driver_one_is_told_what_to_install(postgres_url):
    script = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from holdfast import BadInput, Holdfast\n"
        "try: Holdfast(sys.argv[1])\n"
        "except BadInput as error: print(error)\n"
    )
    command = [sys.executable, "-c", script, postgres_url]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "needs psycopg: pip install 'holdfast[postgres]'" in done.stdout


def test_many_may_make_the_schema_at_once(postgres_url):
    problems: list[BaseException] = []

    def make():
        try:
            PostgresStore(postgres_url).close()
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with superuser(postgres_url) as conn:
        assert conn.execute("select * from holdfast.about").fetchall() == [(VERSION,)]


def test_a_role_that_may_only_use_the_schema_can_run_tasks(postgres_url):
    PostgresStore(postgres_url).close()
    with superuser(postgres_url) as conn:
        conn.execute("drop role if exists guest")
        conn.execute("create role guest login")
        conn.execute("grant usage on schema holdfast to guest")
        conn.execute("grant all on all tables in schema holdfast to guest")
        conn.execute("grant all on all sequences in schema holdfast to guest")
    with Holdfast(postgres_url.replace("postgres@", "guest@")) as hf:
        assert hf.run(agents.adding, 3) == 6
    with superuser(postgres_url) as conn:
        conn.execute("drop schema holdfast cascade")
    with pytest.raises(StorageFailed, match="ask who owns the database to grant it"):
        open_store(postgres_url.replace("postgres@", "guest@"))


def test_a_commit_is_durable_whatever_the_default_of_the_server_is(postgres_url):
    with superuser(postgres_url) as conn:
        (name,) = conn.execute("select current_database()").fetchone()
        conn.execute(f"alter database {name} set synchronous_commit = off")
        conn.execute(f"alter database {name} set timezone = 'Asia/Tokyo'")
    for sync, expected in ((True, "on"), (False, "off")):
        store = PostgresStore(postgres_url, sync=sync)
        with store._connection() as conn:
            assert conn.execute("show synchronous_commit").fetchone() == (expected,)
            assert conn.execute("show timezone").fetchone() == ("UTC",)
        store.close()
    with superuser(postgres_url) as conn:
        conn.execute(f"alter database {name} set synchronous_commit = local")
    store = PostgresStore(postgres_url)
    with store._connection() as conn:
        assert conn.execute("show synchronous_commit").fetchone() == ("local",)
    store.close()


# The schema


def dumped(server, *scripts: str) -> str:
    """What `pg_dump` says of a database that scripts made."""
    url = server.new_database()
    with superuser(url) as conn:
        for script in scripts:
            conn.execute(script.encode())
    command = [server.program("pg_dump"), "--schema-only", "--no-comments", url]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.sub(r"(?m)^\\(un)?restrict .*\n", "", found)


def test_the_schema_and_the_migrations_make_the_same_database(postgres_server):
    migrations = [migration("postgres", number) for number in range(1, VERSION + 1)]
    folder = ROOT / "src/holdfast/stores/sql/postgres/migrations"
    files = sorted(path.name for path in folder.iterdir())
    assert files == [f"{number:03}.sql" for number in range(1, VERSION + 1)]
    expected = dumped(postgres_server, schema("postgres"))
    assert "CREATE TABLE holdfast.streams" in expected
    assert dumped(postgres_server, *migrations) == expected
    more = "create index more on holdfast.inbox (name)"
    assert dumped(postgres_server, *migrations, more) != expected


def test_an_older_database_is_migrated_all_or_nothing(postgres_url):
    with Holdfast(postgres_url) as hf:
        hf.run(agents.adding, 3, id="old")
    more = "create table holdfast.more (x text);"
    with superuser(postgres_url) as conn:
        with pytest.raises(psycopg.errors.DuplicateTable):
            bring_up_to_date(conn, "", VERSION + 1, lambda dialect, number: more + more)
        assert conn.execute("select version from holdfast.about").fetchall() == [(VERSION,)]
        assert conn.execute("select to_regclass('holdfast.more')").fetchone() == (None,)
        bring_up_to_date(conn, "", VERSION + 1, lambda dialect, number: more)
        assert conn.execute("select version from holdfast.about").fetchall() == [(VERSION + 1,)]
        assert conn.execute("select count(*) from holdfast.more").fetchone() == (0,)
        assert conn.execute("select count(*) from holdfast.lines").fetchone() > (5,)


def test_a_newer_database_is_refused_and_kept(postgres_url):
    PostgresStore(postgres_url).close()
    with superuser(postgres_url) as conn:
        conn.execute("update holdfast.about set version = version + 1")
        with pytest.raises(NewerFormat, match=f"of version {VERSION + 1}, this one knows"):
            PostgresStore(postgres_url)
        assert conn.execute("select * from holdfast.about").fetchall() == [(VERSION + 1,)]


def test_an_append_touches_no_index_of_streams(store, postgres_url):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    store.append(lease, 0, [b"one"], Facts("job", "in_progress"))
    sync_one(store, lease)
    for seq in range(1, 51):
        store.append(lease, seq, [b"more"])
        sync_one(store, lease)
    store.close()  # whose connections then say what they did
    with superuser(postgres_url) as conn:
        query = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'streams'"

        def counted() -> bool:
            conn.execute("select pg_stat_clear_snapshot()")
            return conn.execute(query).fetchone()[0] >= 52

        until(counted, "the statistics never came")
        updates, in_place = conn.execute(query).fetchone()
        assert in_place >= 50, (updates, in_place)


# News


def test_who_waits_hears_of_facts_and_messages_of_others_at_once(store, postgres_url):
    assert store.wait_for_news(0)  # of what may have been before
    assert not store.wait_for_news(0.01)
    other = open_store(postgres_url)
    lease = acquire_one(other, STREAM, "me", LONG_S)
    started = time.monotonic()
    timer = threading.Timer(0.1, lambda: post_to(other, STREAM, "m", b"{}"))
    timer.start()
    assert store.wait_for_news(60)
    assert time.monotonic() - started < 50
    timer.join()
    other.append(lease, 0, [b"one"], Facts("job", "pending"))
    sync_one(other, lease)
    assert store.wait_for_news(20)
    other.close()


def test_news_that_came_while_nobody_waited_are_not_missed(store):
    store.wait_for_news(0)
    post_to(store, STREAM, "m", b"{}")
    assert store.wait_for_news(20)
    assert not store.wait_for_news(0.2)
    lease = acquire_one(store, STREAM, "me", LONG_S)
    store.append(lease, 0, [b"one"])  # without facts it is nobody's business
    sync_one(store, lease)
    assert not post_to(store, STREAM, "m", b"again")
    assert not store.wait_for_news(0.2)


def test_every_thread_that_waits_is_told(store):
    heard: list[bool] = []
    waiting = threading.Barrier(6)

    def wait():
        store.wait_for_news(0)
        waiting.wait()
        heard.append(store.wait_for_news(20))

    threads = [threading.Thread(target=wait) for _ in range(5)]
    for thread in threads:
        thread.start()
    waiting.wait()
    post_to(store, STREAM, "m", b"{}")
    for thread in threads:
        thread.join()
    assert heard == [True] * 5


def test_a_worker_takes_up_at_once_what_another_process_starts(postgres_url):
    with Holdfast(postgres_url) as hf, at_work(Worker(hf, poll_s=3600)):
        for n in range(5):
            with process("start_adding", postgres_url, f"t-{n}") as other:
                assert other.communicate(timeout=60)[0] == "started\n"
            until(lambda n=n: hf.task(f"t-{n}").status == "completed", "it was not taken up")


def test_who_follows_a_task_sees_each_event_at_once(postgres_url, tmp_path):
    """A step that ends is no news to anybody but those who follow."""
    steps: list[str] = []
    with Holdfast(postgres_url) as hf, Holdfast(postgres_url) as other:
        hf.start(agents.watched, str(tmp_path), id="p")
        view = other.task("p")

        def follow() -> None:
            for event in view.follow(poll_s=3600):
                steps.append(type(event).__name__)

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        driver = threading.Thread(target=hf.resume, args=["p"], daemon=True)
        driver.start()
        until(lambda: "Claimed" in steps, "the driver was not seen")
        (tmp_path / "one").touch()
        until(lambda: {"Stepped", "Completed"} & {*steps}, "the end of the first step was not seen")
        assert "TaskCompleted" not in steps
        (tmp_path / "two").touch()
        driver.join(60)
        follower.join(60)
        assert steps[-1] == "TaskCompleted"


def test_appends_are_told_of_only_while_somebody_follows(store, postgres_url):
    other = open_store(postgres_url)
    lease = acquire_one(other, STREAM, "me", LONG_S)
    store.wait_for_news(0, lines=True)
    until(other._presence.is_asked, "nobody heard that somebody follows")
    store.wait_for_news(0)
    other.append(lease, 0, [b"one"])
    sync_one(other, lease)
    assert store.wait_for_news(20)
    other._presence._heard_asking_at = -math.inf  # as a minute later
    other.append(lease, 1, [b"two"])
    sync_one(other, lease)
    assert not store.wait_for_news(0.2)
    other.close()


# A server that goes away


def test_a_connection_lost_in_the_middle_of_an_append_spoils_the_lease(store, postgres_url):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    store.append(lease, 0, [b"one"])
    sync_one(store, lease)
    problems: list[BaseException] = []

    def write():
        store.append(lease, 1, [b"two"])
        try:
            sync_one(store, lease)
        except BaseException as error:
            problems.append(error)

    with superuser(postgres_url) as conn, conn.transaction():
        conn.execute("select * from holdfast.streams for update")
        thread = threading.Thread(target=write)
        thread.start()
        until(lambda: cut_connections(postgres_url, "wait_event_type = 'Lock'") == 1, "no wait")
        thread.join()
    (problem,) = problems
    assert isinstance(problem, StorageFailed)
    assert "run the task again" in str(problem)
    with pytest.raises(StorageFailed, match="what was written is not known"):
        store.append(lease, 2, [b"three"])
    store.release([lease])
    again = acquire_one(store, STREAM, "me", LONG_S)
    assert list(store.read(STREAM)) == [b"one"]
    store.append(again, 1, [b"two"])
    sync_one(store, again)
    assert list(store.read(STREAM)) == [b"one", b"two"]


def test_connections_that_were_cut_while_idle_are_made_anew_and_nobody_notices(store, postgres_url):
    lease = acquire_one(store, STREAM, "me", LONG_S)
    for seq in range(3):
        store.append(lease, seq, [b"%d" % seq])
        sync_one(store, lease)
        assert list(store.read(STREAM, seq)) == [b"%d" % seq]
        assert cut_connections(postgres_url) >= 2


def test_a_process_whose_presence_was_cut_keeps_its_tasks(store, postgres_url):
    lease = acquire_one(store, STREAM, "alive", LONG_S)
    number = store._presence.number
    assert cut_connections(postgres_url) >= 2
    until(lambda: store._presence.number != number, "it did not appear again")
    other = open_store(postgres_url)
    until(lambda: holder_of(other, STREAM) == "alive", "its lease was not moved")
    with pytest.raises(TaskBusy, match="alive"):
        acquire_one(other, STREAM, "taker", LONG_S)
    store.append(lease, 0, [b"one"])
    sync_one(store, lease)
    assert post_to(other, STREAM, "m", b"{}")
    assert store.wait_for_news(20)
    other.close()


def test_a_server_that_crashes_loses_nothing_that_was_acknowledged(postgres_server, postgres_url):
    acknowledged = 0
    store = PostgresStore(postgres_url)
    lease = acquire_one(store, STREAM, "me", LONG_S)
    crash = threading.Timer(0.3, lambda: postgres_server.stop(signal.SIGQUIT))
    crash.start()
    with pytest.raises(StorageFailed):
        while True:
            store.append(lease, acknowledged, [b"%d" % acknowledged])
            sync_one(store, lease)
            acknowledged += 1
    crash.join()
    with pytest.raises(StorageFailed):
        open_store(postgres_url)
    postgres_server.start()
    store.release([lease])
    again = acquire_one(store, STREAM, "me", LONG_S)
    found = list(store.read(STREAM))
    assert len(found) in (acknowledged, acknowledged + 1)
    assert found == [b"%d" % n for n in range(len(found))]
    assert acknowledged > 10
    store.append(again, len(found), [b"and on"])
    sync_one(store, again)
    store.close()


@pytest.mark.parametrize(("first", "second"), [("tasks/0", "tasks/1"), ("tasks/1", "tasks/0")])
def test_two_who_wait_for_each_other_both_get_through(store, postgres_url, first, second):
    with superuser(postgres_url) as conn:
        (name,) = conn.execute("select current_database()").fetchone()
        conn.execute(f"alter database {name} set deadlock_timeout = '50ms'")
    leases = [acquire_one(store, f"tasks/{n}", "me", LONG_S) for n in range(2)]
    number = store._presence.number
    cut_connections(postgres_url)  # so that new ones know of the timeout
    until(lambda: store._presence.number != number, "it did not appear again")
    waiting = (
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = "
        "current_database() and query like '%json_to_recordset%'"
    )
    with superuser(postgres_url) as watching, psycopg.connect(postgres_url) as other:
        lock = "select 1 from holdfast.streams where name = %s for update"
        other.execute("set deadlock_timeout = '30s'")
        other.execute(lock, [first])
        for lease in leases:
            store.append(lease, 0, [b"one"])
        thread = threading.Thread(target=store.sync, args=[[leases[0]]])
        thread.start()
        until(lambda: watching.execute(waiting).fetchone() == (1,), "the append does not wait")
        other.execute(lock, [second])  # which the append has, in one of the two orders
        other.commit()
        thread.join()
    for lease in leases:
        sync_one(store, lease)
        assert list(store.read(lease.stream)) == [b"one"]


def test_a_killed_process_is_told_from_one_that_is_only_slow(store, postgres_url):
    with process("write_when_told", postgres_url) as other:
        assert other.stdout.readline() == "ready\n"
        with superuser(postgres_url) as conn:
            conn.execute("update holdfast.streams set expires_at = expires_at + interval '1 hour'")
        with pytest.raises(TaskBusy, match="the one that freezes"):
            acquire_one(store, "tasks/t", "me", LONG_S)
        other.kill()
        until(lambda: store.holder("tasks/t") is None, "its death was not noticed")
        assert acquire_one(store, "tasks/t", "me", LONG_S).epoch == 2
