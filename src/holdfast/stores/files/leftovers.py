"""The files that crashed writers leave in a workspace: files that were to get another name, and
never did.

    tasks/<safe id>/events.jsonl.<12 hex>     a log on its way to a fresh inode
    tasks/<safe id>/events.jsonl.torn-…       a torn tail, kept aside for people
    tasks/<safe id>/lock.<12 hex>             a lock file of one who took over
    tasks/<safe id>/inbox/.<12 hex>           a message that was never left
    tasks/.deleted-<12 hex>/                  a task that was deleted
    blobs/ab/.<digest>.<12 hex>               a blob that was never whole
    index.jsonl.<12 hex>                      an index that was being rewritten

All of them live for moments. A file that is an hour old belongs to nobody.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.stores.files.catalog import INDEX
from holdfast.stores.files.locks import LOCK, LOG
from holdfast.stores.port import Leftovers

_HEX = "[0-9a-f]{12}"
TORN = re.compile(rf"{re.escape(LOG)}\.torn-.*")
TEMPORARY = re.compile(rf"(?:{re.escape(LOG)}|{re.escape(INDEX)}|{LOCK}|\.[0-9a-f]{{64}}|)\.{_HEX}")
DELETED = re.compile(rf"\.deleted-{_HEX}")

_DEPTH = 4


class NothingLeft:
    """For stores whose writers leave nothing behind when they crash."""

    def sweep(
        self, older_than_s: float, torn_older_than_s: float | None = None, *, dry_run: bool = False
    ) -> Leftovers:
        return Leftovers()


def sweep(
    root: Path, older_than_s: float, torn_older_than_s: float | None, *, dry_run: bool
) -> Leftovers:
    """Remove leftovers that are old enough, and say how much they were."""
    now = time.time()
    found = size = 0
    for path, kind in _leftovers(root, _DEPTH):
        least_s = torn_older_than_s if kind is TORN else older_than_s
        with suppress(FileNotFoundError):  # its maker has just renamed or removed it
            about = path.lstat()
            # A folder got its name when it was deleted, long after it was last written.
            made_at = about.st_ctime if kind is DELETED else about.st_mtime
            if least_s is None or now - made_at < least_s:
                continue
            found += 1
            size += _size_of(path) if kind is DELETED else about.st_size
            if not dry_run:
                _remove(path)
    return Leftovers(found, size)


def _leftovers(folder: Path, depth: int) -> Iterator[tuple[Path, re.Pattern[str]]]:
    """The leftovers in a folder. No symlink is followed, nor what a task made looked at."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder and DELETED.fullmatch(entry.name):
                yield Path(entry.path), DELETED
            elif is_folder and depth > 1 and entry.name != "artifacts":
                yield from _leftovers(Path(entry.path), depth - 1)
            elif entry.is_file(follow_symlinks=False):
                for kind in (TEMPORARY, TORN):
                    if kind.fullmatch(entry.name):
                        yield Path(entry.path), kind


def _size_of(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(place) / name).lstat().st_size
    return total


def _remove(path: Path) -> None:
    if stat.S_ISDIR(path.lstat().st_mode):
        from shutil import rmtree

        rmtree(path)
    else:
        path.unlink()
