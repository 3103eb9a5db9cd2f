"""A migration is an act: nothing migrates a database just because it was opened."""

from __future__ import annotations

import json
import sqlite3
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from holdfast import Holdfast, Retention, task
from holdfast.cli.root import root
from holdfast.errors import MigrationNeeded, StorageFailed
from holdfast.stores import migrate, migrations_of
from holdfast.stores.postgres.database import VERSION as POSTGRES
from holdfast.stores.postgres.database import bring_up_to_date
from holdfast.stores.queries import migration
from holdfast.stores.sqlite.database import VERSION as SQLITE

from .postgres_server import postgres_server, postgres_url  # noqa: F401

ROLES = Path(__file__).parents[2] / "deploy" / "postgres-roles.sql"


@task
def migrated(n: int) -> int:
    return n


def older_sqlite(path: Path) -> str:
    """A database of the version before this one."""
    conn = sqlite3.connect(path)
    for number in range(1, SQLITE):
        conn.executescript(migration("sqlite", number))
    conn.execute("pragma application_id = 0x484F4C44")
    conn.execute(f"pragma user_version = {SQLITE - 1}")
    conn.commit()
    conn.close()
    return f"sqlite:///{path}"


def older_postgres(url: str) -> str:
    with psycopg.connect(url, autocommit=True) as conn:
        for number in range(1, POSTGRES):
            conn.execute(migration("postgres", number).encode())
        conn.execute(f"update holdfast.about set version = {POSTGRES - 1}".encode())
    return url


def must_migrate_when_told(url: str, version: int) -> None:
    for _ in range(2):
        with pytest.raises(MigrationNeeded, match="holdfast migrate"):
            Holdfast(url)
    (step,) = migrations_of(url)
    assert step.number == version
    assert step.about.startswith(f"Version {version}")
    told = CliRunner().invoke(root, ["migrate", "--dry-run", "--json", "--url", url])
    assert json.loads(told.stdout)["migrations"] == [{"number": version, "about": step.about}]
    with pytest.raises(MigrationNeeded):
        Holdfast(url)
    done = CliRunner().invoke(root, ["migrate", "--url", url])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, "1 migration made"), done.output
    with Holdfast(url) as hf:
        assert hf.run(migrated, 3, id="m-1") == 3
    assert migrate(url) == []


def test_an_older_sqlite_database_is_migrated_only_when_told(tmp_path):
    must_migrate_when_told(older_sqlite(tmp_path / "old.db"), SQLITE)


def test_an_older_postgres_schema_is_migrated_only_when_told(postgres_url):  # noqa: F811
    must_migrate_when_told(older_postgres(postgres_url), POSTGRES)


def test_a_new_database_and_a_folder_need_no_migration(tmp_path):
    for url in (f"sqlite:///{tmp_path}/new.db", str(tmp_path / "folder")):
        assert migrate(url) == []
        with Holdfast(url) as hf:
            assert hf.run(migrated, 1) == 1
        assert migrations_of(url) == []


def test_a_worker_of_the_version_before_finishes_what_it_has_in_hand(postgres_url):  # noqa: F811
    with Holdfast(postgres_url) as hf:
        hf.run(migrated, 1, id="before")
        with psycopg.connect(postgres_url, autocommit=True) as conn:
            more = "alter table holdfast.streams add column later text;"
            bring_up_to_date(conn, "", POSTGRES + 1, lambda dialect, number: more)
        assert hf.run(migrated, 2, id="after") == 2
    with pytest.raises(Exception, match="newer Holdfast"):
        Holdfast(postgres_url)


@pytest.fixture
def roles(postgres_url):  # noqa: F811
    """The URL of the database for each role, made by the script that we ship."""
    with Holdfast(postgres_url) as hf:
        hf.run(migrated, 1, id="m-1")
    names = ("reader", "starter", "worker", "operator")
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        conn.execute(ROLES.read_bytes())
        for name in names:
            conn.execute(f"alter role holdfast_{name} login".encode())
    yield {name: postgres_url.replace("postgres@", f"holdfast_{name}@") for name in names}
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        for name in names:
            conn.execute(f"drop owned by holdfast_{name}".encode())
            conn.execute(f"drop role holdfast_{name}".encode())


def test_each_role_can_do_what_it_is_for_and_no_more(roles):
    with Holdfast(roles["reader"]) as hf:
        assert hf.task("m-1").result == 1
        assert [each.id for each in hf.page().tasks] == ["m-1"]
        with pytest.raises(StorageFailed, match="permission denied"):
            hf.start(migrated, 2, id="m-2")
        with pytest.raises(StorageFailed, match="permission denied"):
            hf.cancel("m-1")
    with Holdfast(roles["starter"]) as hf:
        hf.start(migrated, 2, id="m-2")
        with pytest.raises(StorageFailed, match="permission denied"):
            hf.store.delete_blob(hf.store.put_blob(b"x" * 99), -1)
    with Holdfast(roles["worker"]) as hf:
        assert hf.resume("m-2") == 2
        with pytest.raises(StorageFailed, match="permission denied"):
            hf.gc(Retention(keep_last=0))
    with Holdfast(roles["operator"]) as hf:
        hf.gc(Retention(keep_last=0, grace=timedelta(0)))
        assert hf.page().tasks == ()
    with psycopg.connect(roles["operator"]) as conn, pytest.raises(psycopg.Error):
        conn.execute("drop table holdfast.lines")


def test_running_the_script_of_the_roles_twice_changes_nothing(roles, postgres_url):  # noqa: F811
    with psycopg.connect(postgres_url, autocommit=True) as conn:
        conn.execute(ROLES.read_bytes())
