"""An archive that was made to fill the memory is refused long before it does, whatever part it is.

Each bomb is a small file whose parts unpack to hundreds of megabytes. A process of its own reads
it, and says how much memory that took at most.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, step, task
from holdfast.upkeep.archive import Archive

MEGABYTE = 1 << 20
HUGE = 256 * MEGABYTE
MOST_BYTES = 200 * MEGABYTE
"""What reading a bomb may take. A process that reads an archive of a few bytes takes 50 MB."""

METHODS = {"deflated": zipfile.ZIP_DEFLATED, "bzip2": zipfile.ZIP_BZIP2}

READER = """
import re, sys
from holdfast import Holdfast, HoldfastError
with Holdfast('memory://') as hf:
    try:
        restored = hf.restore_from(sys.argv[1])
        print('refused' if restored.refused else 'taken')
    except HoldfastError as error:
        print(type(error).__name__)
# Not `ru_maxrss`, which begins with what the process that started this one has.
print(re.search(r'VmHWM:\\s*(\\d+)', open('/proc/self/status').read())[1])
"""


def restored(path: Path) -> tuple[str, int]:
    """What came of reading an archive, and how many bytes that took at most."""
    done = subprocess.run(
        [sys.executable, "-c", READER, path],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    what, most = done.stdout.split()
    return what, int(most) * 1024


def zeros(size: int = HUGE) -> Iterator[bytes]:
    return iter([bytes(MEGABYTE)] * (size // MEGABYTE))


def sum_of(pieces: Iterable[bytes]) -> str:
    total = sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()


def manifest(**changes: Any) -> bytes:
    about = {"format": 1, "holdfast": "0", "made_at": "2026-01-01T00:00:00Z", "source": ""}
    return json.dumps({**about, "streams": [], "blobs": {}, **changes}).encode()


def stream(size: int, digest: str = "0" * 64, events: int = 1) -> dict[str, Any]:
    about = {"stream": "tasks/b", "entry": "streams/0.jsonl"}
    return {**about, "events": events, "size_bytes": size, "sha256": digest}


def put(packed: zipfile.ZipFile, name: str, pieces: Iterable[bytes], method: int) -> None:
    info = zipfile.ZipInfo(name)
    info.compress_type = method
    info._compresslevel = 1  # type: ignore[attr-defined]  # and so is the test quicker
    with packed.open(info, "w", force_zip64=True) as entry:
        for piece in pieces:
            entry.write(piece)


def bomb(path: Path, parts: dict[str, Iterable[bytes]], method: int) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, pieces in parts.items():
            put(packed, name, pieces, method)
    assert path.stat().st_size < 4_000_000
    return path


def many(piece: bytes, end: bytes = b"") -> Iterator[bytes]:
    """As much as is huge, of the same few bytes."""
    block = piece * (MEGABYTE // len(piece))
    for _ in range(HUGE // len(block)):
        yield block
    yield end


ABOUT = manifest()[:-2]  # up to the brackets of the blobs

PARTS: dict[str, Callable[[], dict[str, Iterable[bytes]]]] = {
    "a manifest of blanks": lambda: {"manifest.json": many(b" ", manifest())},
    "a manifest of blobs": lambda: {
        "manifest.json": (ABOUT, *many(b'"a":1234567,'), b'"b":1}}'),
    },
    "a manifest of streams": lambda: {
        "manifest.json": (
            manifest()[: manifest().index(b"[]") + 1],
            *many(json.dumps(stream(7)).encode() + b","),
            json.dumps(stream(7)).encode() + b'],"blobs":{}}',
        ),
    },
    "a log of another sum": lambda: {
        "streams/0.jsonl": zeros(),
        "manifest.json": [manifest(streams=[stream(HUGE)])],
    },
    "a log of another length": lambda: {
        "streams/0.jsonl": zeros(),
        "manifest.json": [manifest(streams=[stream(100)])],
    },
    "a log of one line": lambda: {
        "streams/0.jsonl": zeros(),
        "manifest.json": [manifest(streams=[stream(HUGE, sum_of(zeros()))])],
    },
    "a log of empty lines": lambda: {
        "streams/0.jsonl": many(b"\n"),
        "manifest.json": [manifest(streams=[stream(HUGE, sum_of(many(b"\n")), HUGE)])],
    },
    "what no manifest names": lambda: {
        "waypoints/0": zeros(),
        "streams/7.jsonl": zeros(),
        "blobs/7": zeros(),
        "manifest.json": [manifest()],
    },
}


OTHERWISE_PACKED = [("a manifest of blanks", "bzip2"), ("a log of another sum", "bzip2")]


@pytest.mark.parametrize(("part", "method"), [*((p, "deflated") for p in PARTS), *OTHERWISE_PACKED])
def test_a_bomb_is_refused_before_it_goes_off(tmp_path, part, method):
    what, most = restored(bomb(tmp_path / "bomb.hfa", PARTS[part](), METHODS[method]))
    assert (what == "taken") == (part == "what no manifest names")
    assert most < MOST_BYTES, f"{what}, and it took {most:,} bytes"


@step
def bombed_step(size: int) -> str:
    return "y" * size


@task
def bombed(size: int) -> int:
    return len(bombed_step(size))


def with_another_blob(archive: Path, path: Path, method: int, said: int) -> Path:
    """An archive whose log names a blob that is another, and huge."""
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name.startswith("blobs/"):
                put(new, name, zeros(), method)
            elif name == "manifest.json":
                about = json.loads(old.read(name))
                about["blobs"] = dict.fromkeys(about["blobs"], said)
                new.writestr(name, json.dumps(about))
            else:
                new.writestr(name, old.read(name))
    return path


@pytest.mark.parametrize(
    ("lie", "method"),
    [
        *((lie, "deflated") for lie in ("its size", "a smaller size", "a larger size")),
        ("its size", "bzip2"),
    ],
)
def test_a_blob_that_is_a_bomb_is_refused_before_it_goes_off(tmp_path, lie, method):
    with Holdfast("memory://") as hf:
        hf.run(bombed, 100_000, id="b")
        hf.archive_to(tmp_path / "archive.hfa")
    said = {"its size": HUGE, "a smaller size": 1000, "a larger size": 2 * HUGE}[lie]
    path = with_another_blob(tmp_path / "archive.hfa", tmp_path / "bomb.hfa", METHODS[method], said)
    assert path.stat().st_size < 4_000_000
    what, most = restored(path)
    assert what == "refused"
    assert most < MOST_BYTES, f"it took {most:,} bytes"


def test_a_manifest_as_tight_as_it_may_be_takes_no_more_than_a_few_times_itself(tmp_path):
    """The worst that gets through: sums that differ, and nothing that they are the sums of."""
    blobs = {f"{n:064x}": 1 for n in range(200_000)}
    path = tmp_path / "tight.hfa"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("manifest.json", manifest(blobs=blobs))
    what, most = restored(path)
    assert what == "ArchiveDamaged"
    assert most < MOST_BYTES, f"it took {most:,} bytes"


def test_an_honest_archive_of_many_tasks_and_large_values_is_read(tmp_path):
    with Holdfast("memory://") as hf:
        for n in range(50):
            hf.run(bombed, 100_000 + n % 5, id=f"t-{n}")
        hf.run(bombed, 10 * MEGABYTE, id="large")
        hf.archive_to(tmp_path / "archive.hfa")
    with Archive(tmp_path / "archive.hfa") as archive:
        assert len(archive.manifest.streams) == 51
    what, most = restored(tmp_path / "archive.hfa")
    assert what == "taken"
    assert most < 2 * MOST_BYTES, f"it took {most:,} bytes"
