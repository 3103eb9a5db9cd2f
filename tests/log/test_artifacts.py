"""Artifacts: files of any size, in constant memory, by reference."""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from holdfast import (
    Artifact,
    BadInput,
    Holdfast,
    HoldfastError,
    LogDamaged,
    Retention,
    keep,
    step,
    task,
)
from holdfast.log import artifacts as module
from holdfast.log.artifacts import PART_BYTES, extended, kept, opened
from holdfast.stores.memory import MemoryStore


@step
def art_made(source: Path) -> Artifact:
    return keep(source)


@step
def art_counted(file: Artifact) -> int:
    with file.open() as content:
        return sum(1 for _ in content)


@task
def art_flow(source: Path) -> tuple[Artifact, int]:
    made = art_made(source)
    return made, art_counted(made)


def test_a_step_makes_a_file_and_the_next_reads_it(tmp_path: Path) -> None:
    lines = b"".join(b"line %d\n" % n for n in range(200_000))
    (tmp_path / "in.txt").write_bytes(lines)
    with Holdfast(tmp_path / "w") as hf:
        made, count = hf.run(art_flow, tmp_path / "in.txt", id="t")
        assert (made.name, made.size_bytes, count) == ("in.txt", len(lines), 200_000)
        assert made.sha256 == hashlib.sha256(lines).hexdigest()
    (tmp_path / "in.txt").unlink()
    with Holdfast(tmp_path / "w") as hf:
        again, _ = hf.run(art_flow, tmp_path / "in.txt", id="t")
        with hf.open(again) as file:
            assert file.read() == lines
            file.seek(-9, io.SEEK_END)
            assert file.read() == b"e 199999\n"
            file.seek(PART_BYTES - 3)
            assert file.read(6) == lines[PART_BYTES - 3 : PART_BYTES + 3]


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 16))
def test_any_pieces_come_back_as_one(pieces: list[bytes], part_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART_BYTES", part_bytes)
        store = MemoryStore()
        made = kept(store, iter(pieces))
        whole = b"".join(pieces)
        assert made.size_bytes == len(whole)
        with opened(store, made) as file:
            assert file.read() == whole
        with opened(store, made) as file:
            assert b"".join(iter(lambda: file.read(3), b"")) == whole
        same = kept(store, io.BytesIO(whole))
        assert same.digest == made.digest


@given(st.lists(st.binary(max_size=40), max_size=60), st.integers(1, 64))
def test_an_artifact_goes_on_from_another(pieces: list[bytes], part_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART_BYTES", part_bytes)
        store, whole = MemoryStore(), b""
        made = kept(store, [])
        for piece in pieces:
            made = extended(store, made, piece)
            whole += piece
            assert (made.size_bytes, made.sha256) == (
                len(whole), hashlib.sha256(whole).hexdigest(),
            )  # fmt: skip
        with opened(store, made) as file:
            assert file.read() == whole
        with opened(store, made) as file:
            middle = file.seek(len(whole) // 2)
            assert file.read() == whole[middle:]


def test_going_on_a_thousand_times_costs_a_few_times_what_is_new() -> None:
    class Counting(MemoryStore):
        written = 0

        def put_blob(self, data: bytes, name: str = "") -> str:
            self.written += len(data)
            return super().put_blob(data, name)

    store = Counting()
    made = kept(store, [])
    for number in range(2000):
        made = extended(store, made, b"%05d " % number * 1000)
    assert made.size_bytes == 12_000_000
    assert store.written < 4 * made.size_bytes


@pytest.mark.parametrize("bad", [b"bytes", "text", ["text"], [1], 7])
def test_what_is_no_content_is_refused(bad: Any) -> None:
    @task(name=f"art_bad_{bad!r:.9}")
    def wrong() -> Artifact:
        return keep(bad)

    with Holdfast("memory://") as hf, pytest.raises(Exception, match=r"bytes|iterable"):
        hf.run(wrong, id="t")


def test_it_belongs_in_a_task() -> None:
    with pytest.raises(HoldfastError, match=r"keep\(\) was called outside a task"):
        keep([b"x"])
    with pytest.raises(BadInput, match="not str"):
        kept(MemoryStore(), "text")  # type: ignore[arg-type]


class ArtBundle(Struct, frozen=True, omit_defaults=True):
    """Written with tags, because what is left out of it depends on its defaults."""

    file: Artifact
    pages: int = 0


def test_one_inside_of_a_value_with_tags_is_kept_by_a_clean_up_and_goes_along_in_a_copy() -> None:
    @step
    def bundled() -> ArtBundle:
        return ArtBundle(keep([b"content"]))

    @task
    def bundling() -> ArtBundle:
        return bundled()

    with Holdfast("memory://") as hf, Holdfast("memory://") as there:
        made = hf.run(bundling, id="t")
        assert hf.gc(Retention(grace=timedelta())).blobs == 0
        hf.copy_to(there)
        for store in (hf, there):
            with store.open(made.file) as file:
                assert file.read() == b"content"


def test_a_part_that_is_gone_or_damaged_is_told(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(bytes(range(256)) * 8192)
    with Holdfast(tmp_path / "w") as hf:
        made, _ = hf.run(art_flow, tmp_path / "in", id="t")
        first = max((tmp_path / "w/blobs").rglob("*"), key=lambda path: path.stat().st_size)
        first.write_bytes(first.read_bytes()[::-1])
        with hf.open(made) as file, pytest.raises(LogDamaged):
            file.read()
        with pytest.raises(LogDamaged):
            hf.open(Artifact("0" * 64, 3, ""))


def test_a_source_that_fails_leaves_no_artifact() -> None:
    def failing() -> Iterator[bytes]:
        yield b"x" * 10
        raise OSError("the line went dead")

    with pytest.raises(OSError, match="line went dead"):
        kept(MemoryStore(), failing())


CHILD = """
    import re, sys
    from holdfast import Artifact, Holdfast, keep, step, task

    @step
    def large(parts: int) -> Artifact:
        return keep(bytes([n % 251]) * 1_000_000 for n in range(parts))

    @step
    def read(file: Artifact) -> int:
        with file.open() as content:
            return sum(len(piece) for piece in iter(lambda: content.read(65536), b""))

    @task
    def flow(parts: int) -> int:
        return read(large(parts))

    def most_kib() -> int:
        # Not `ru_maxrss`, which begins with what the process that started this one has.
        return int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])

    with Holdfast(sys.argv[1]) as hf:
        hf.run(flow, 2, id="warm")
        before = most_kib()
        assert hf.run(flow, 128, id="t") == 128_000_000
        print(most_kib() - before)
"""


@pytest.mark.parametrize("url", ["w", "sqlite:///w.db"])
def test_128_megabytes_are_written_and_read_in_a_few(tmp_path: Path, url: str) -> None:
    child = [sys.executable, "-c", dedent(CHILD), url]
    done = subprocess.run(
        child, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
    )
    grown_kib = int(done.stdout)
    assert grown_kib < 24 * 1024, f"{grown_kib} KiB"
