"""A value is acknowledged when its blob is whole, whatever stood under its name before."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, Keys, LogDamaged, step, task
from tests.stores.every import LASTING, new_url, postgres_server

__all__ = ["new_url", "postgres_server"]

KEY = Keys.new()
SIZE = 200_000

Damage = Callable[[bytes], bytes]

DAMAGE: dict[str, Damage] = {
    "emptied": lambda data: b"",
    "cut": lambda data: data[:-1],
    "grown": lambda data: data + b"x",
    "one bit at the start": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "one bit at the end": lambda data: data[:-1] + bytes([data[-1] ^ 0x80]),
    "zeros": lambda data: bytes(len(data)),
    "another value": lambda data: b"y" * len(data),
}


@step
def mended_step(letter: str) -> str:
    return letter * SIZE


@task
def mended(letter: str) -> int:
    return len(mended_step(letter))


def damage_files(url: str, damage: Damage) -> None:
    for blob in Path(url, "blobs").rglob("*"):
        if blob.is_file():
            blob.write_bytes(damage(blob.read_bytes()))


def damage_sqlite(url: str, damage: Damage) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as conn, conn:
        for digest, data in conn.execute("select digest, data from blobs").fetchall():
            conn.execute("update blobs set data = ? where digest = ?", [damage(data), digest])


def damage_postgres(url: str, damage: Damage) -> None:
    with psycopg.connect(url) as conn:
        for digest, data in conn.execute("select digest, data from holdfast.blobs").fetchall():
            given = [damage(data), digest]
            conn.execute("update holdfast.blobs set data = %s where digest = %s", given)


DAMAGED = {"files": damage_files, "sqlite": damage_sqlite, "postgres": damage_postgres}


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "is whole again" in each.getMessage()]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("keys", [{}, {"key": KEY}], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", LASTING)
def test_a_value_that_is_written_again_mends_its_blob(new_url, kind, keys, damage, caplog):
    url = new_url(kind)
    given: dict[str, Any] = {"sync": False, **keys} if kind != "postgres" else keys
    with Holdfast(url, **given) as hf:
        assert hf.run(mended, "a", id="first") == SIZE
        DAMAGED[kind](url, DAMAGE[damage])
        with pytest.raises(LogDamaged):
            _ = hf.task("first").outputs
        assert not said(caplog)
        for again in ("second", "third"):
            assert hf.run(mended, "a", id=again) == SIZE
            assert len(said(caplog)) == 1, "once, by the one that found it damaged"
        for id in ("first", "second", "third"):
            assert hf.task(id).outputs[0].output == "a" * SIZE
        assert hf.verify().sound


def put_in_place_of_a_blob(blob: Path, what: str) -> None:
    content = blob.read_bytes()
    blob.unlink()
    match what:
        case "a symlink to the same bytes":
            (blob.parent.parent.parent / "elsewhere").write_bytes(content)
            blob.symlink_to("../../elsewhere")
        case "a symlink to nothing":
            blob.symlink_to("nowhere")
        case "a pipe":
            os.mkfifo(blob)
        case "an empty folder":
            blob.mkdir()


@pytest.mark.parametrize(
    "what", ["a symlink to the same bytes", "a symlink to nothing", "a pipe", "an empty folder"]
)
def test_what_is_no_file_in_the_place_of_a_blob_is_replaced_or_refused(tmp_path, what):
    with Holdfast(tmp_path / "w") as hf:
        hf.run(mended, "a", id="first")
        (blob,) = (each for each in (tmp_path / "w/blobs").rglob("*") if each.is_file())
        put_in_place_of_a_blob(blob, what)
        if what == "an empty folder":
            with pytest.raises(Exception, match="can't write a value"):
                hf.run(mended, "a", id="second")
            shutil.rmtree(blob)
            assert hf.resume("second") == SIZE
        else:
            assert hf.run(mended, "a", id="second") == SIZE
        assert blob.is_file()
        assert not blob.is_symlink()
        assert hf.task("first").outputs[0].output == "a" * SIZE


def test_a_copy_mends_the_blobs_of_its_target(tmp_path, caplog):
    with Holdfast(tmp_path / "w") as hf, Holdfast(tmp_path / "other") as other:
        hf.run(mended, "a", id="first")
        other.run(mended, "a", id="there")
        damage_files(str(tmp_path / "other"), DAMAGE["zeros"])
        hf.copy_to(tmp_path / "other")
        assert len(said(caplog)) == 1
        for id in ("first", "there"):
            assert other.task(id).outputs[0].output == "a" * SIZE
