"""PostgreSQL through PgBouncer, which gives every transaction whatever session is free.

The contract of stores is kept, processes see each other live and die, and all of them together use
few sessions of the server. `tests/crash/test_queues.py` kills workers behind it.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from holdfast import Holdfast, StorageFailed, Worker
from holdfast.stores import migrate, migrations_of
from holdfast.stores.postgres.database import address_of
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing import StoreContract
from tests.stores import agents
from tests.stores.databases import at_work, process, until
from tests.stores.pgbouncer import SESSIONS, PgBouncer, running
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


@pytest.fixture(scope="module")
def bouncer(postgres_server) -> Iterator[PgBouncer]:
    with running(postgres_server) as bouncer:
        yield bouncer


@pytest.fixture
def pooled_url(bouncer, postgres_url) -> str:
    return bouncer.url(postgres_url)


class TestContract(StoreContract):
    @pytest.fixture
    def open_store(self, pooled_url):
        return lambda: PostgresStore(pooled_url)

    def spoil_blob(self, store, digest):
        with psycopg.connect(store._address.session_url, autocommit=True) as conn:
            spoil = "update holdfast.blobs set data = 'wrong' where digest = %s"
            conn.execute(spoil, [bytes.fromhex(digest)])


def test_a_pooler_of_transactions_without_the_way_to_a_session_is_refused(bouncer, postgres_url):
    with pytest.raises(StorageFailed, match="needs a session of its own: add"):
        Holdfast(bouncer.url(postgres_url, with_session=False))


def test_a_session_that_may_lose_commits_is_refused(pooled_url, postgres_url):
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        ((name,),) = conn.execute("select current_database()").fetchall()
        conn.execute(f"alter database {name} set synchronous_commit = off".encode())
        try:
            with (
                pytest.raises(StorageFailed, match="synchronous_commit is off"),
                Holdfast(pooled_url) as hf,
            ):
                hf.run(agents.adding, 3, id="lost")
        finally:
            conn.execute(f"alter database {name} reset synchronous_commit".encode())


def test_the_url_of_a_pooler_is_migrated_and_needs_nothing_more(pooled_url):
    with Holdfast(pooled_url):
        pass
    assert migrations_of(pooled_url) == [] == migrate(pooled_url)


def test_many_processes_use_few_sessions_and_leave_nothing_set_in_them(pooled_url, postgres_url):
    with process("run_many", pooled_url, "a") as one, process("run_many", pooled_url, "b") as two:
        with Holdfast(pooled_url) as hf, at_work(Worker(hf)):
            handles = [hf.start(agents.adding, n, id=f"t-{n}") for n in range(20)]
            assert [handle.result(timeout_s=60) for handle in handles] == [
                n * (n + 1) // 2 for n in range(20)
            ]
            with psycopg.connect(postgres_url, autocommit=True) as conn:
                ((count,),) = conn.execute(
                    "select count(*) from pg_stat_activity where application_name = 'holdfast'"
                    " and datname = current_database()"
                ).fetchall()
        assert one.wait(60) == two.wait(60) == 0
    assert count <= SESSIONS + 3  # what shows that the three processes live


def test_a_process_that_dies_behind_a_pooler_leaves_its_task_to_others_at_once(pooled_url):
    with process("run_endless", pooled_url) as other, Holdfast(pooled_url) as hf:
        assert other.stdout.readline() == "at work\n"
        until(lambda: hf.store.holder("tasks/endless") is not None, "it is held")
        other.kill()
        until(lambda: hf.store.holder("tasks/endless") is None, "it is free")


def test_an_address_names_the_session_apart():
    address = address_of("postgresql://b:6432/trips?pool_size=2&session_dbname=trips_session")
    assert (address.pool_size, address.is_pooled) == (2, True)
    assert address.url == "postgresql://b:6432/trips"
    assert psycopg.conninfo.conninfo_to_dict(address.session_url) == {
        "host": "b", "port": "6432", "dbname": "trips_session",
    }  # fmt: skip
    assert not address_of("postgresql://db/trips?pool_size=2").is_pooled
