"""A backup of each store, made while it is open, is a store again: whole up to that time."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from holdfast import Holdfast, ask, step, task

from .postgres_server import PostgresServer, own_server


@step
def remember_it(n: int) -> int:
    return n


@task
def kept_safe(n: int) -> int:
    return remember_it(n)


@task
def half_done(n: int) -> int:
    remember_it(n)
    return n if ask("Go on?", bool, id="go") else 0


def begin(hf: Holdfast) -> None:
    """What a backup has to hold: a task that has ended, and one that is under way."""
    hf.run(kept_safe, 1, id="before")
    with pytest.raises(Exception, match="Go on"):
        hf.run(half_done, 2, id="half")


def must_be_whole(url: str) -> None:
    with Holdfast(url) as hf:
        assert hf.verify().sound
        assert {each.id for each in hf.page().tasks} == {"before", "half"}
        assert hf.task("before").result == 1
        hf.answer("half", True, question="go")
        assert hf.resume("half") == 2
        assert hf.run(kept_safe, 3, id="later") == 3


def test_a_folder_is_backed_up_by_an_archive(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        begin(hf)
        hf.archive_to(tmp_path / "all.hfa")
        hf.run(kept_safe, 9, id="after")
    with Holdfast(tmp_path / "again") as hf:
        hf.restore_from(tmp_path / "all.hfa")
        hf.unpause("half")
    must_be_whole(str(tmp_path / "again"))


def test_a_sqlite_database_is_backed_up_while_it_is_open(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path}/w.db") as hf:
        begin(hf)
        with (
            closing(sqlite3.connect(tmp_path / "w.db")) as source,
            closing(sqlite3.connect(tmp_path / "copy.db")) as copy,
        ):
            source.backup(copy)
        hf.run(kept_safe, 9, id="after")
    must_be_whole(f"sqlite:///{tmp_path}/copy.db")


def _run(server: PostgresServer, name: str, *words: str) -> None:
    command = [str(server.program(name)), *words]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=server.folder, **server._as_user
    )
    assert done.returncode == 0, done.stderr


def test_a_postgres_database_is_restored_to_a_point_in_time():
    with own_server() as server:
        archive, base = server.folder / "archive", server.folder / "base"
        copying = f"mkdir -p {archive} && cp %p {archive}/%f"
        with psycopg.connect(server.url("postgres"), autocommit=True) as conn:
            conn.execute("alter system set archive_mode = on")
            conn.execute(f"alter system set archive_command = '{copying}'".encode())
        server.stop()
        server.start()
        url = server.new_database()
        Holdfast(url).close()
        _run(server, "pg_basebackup", "-h", str(server.folder), "-U", "postgres", "-D", str(base),
             "-c", "fast")  # fmt: skip
        with Holdfast(url) as hf, psycopg.connect(url, autocommit=True) as conn:
            begin(hf)
            conn.execute("select pg_create_restore_point('before_the_accident')")
            hf.run(kept_safe, 9, id="after")
            ((segment,),) = conn.execute("select pg_walfile_name(pg_switch_wal())").fetchall()
            _until_there(archive / segment)
        server.stop()
        shutil.rmtree(server._data)
        _run_restored(server, base, archive)
        _until_promoted(url)
        must_be_whole(url)


def _run_restored(server: PostgresServer, base: Path, archive: Path) -> None:
    base.rename(server._data)
    with (server._data / "postgresql.auto.conf").open("a") as conf:
        conf.write(
            f"restore_command = 'cp {archive}/%f %p'\n"
            "recovery_target_name = 'before_the_accident'\n"
            "recovery_target_action = 'promote'\n"
        )
    (server._data / "recovery.signal").touch()
    server.start()


def _until_there(path: Path) -> None:
    give_up_at = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < give_up_at, f"{path} was not archived"
        time.sleep(0.02)


def _until_promoted(url: str) -> None:
    give_up_at = time.monotonic() + 60
    while True:
        with psycopg.connect(url) as conn:
            if conn.execute("select pg_is_in_recovery()").fetchall() == [(False,)]:
                return
        assert time.monotonic() < give_up_at
        time.sleep(0.02)
