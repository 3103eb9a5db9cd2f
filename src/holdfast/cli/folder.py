"""Whether a store's folder is as it should be: leftovers, permissions, symlinks, filesystem.

It only looks. Every name is looked at as it is and no symlink is followed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from holdfast.cli.health import RESTORE, Finding, about_to_start, unreadable
from holdfast.cli.text import count
from holdfast.decoding import Illegible, decode
from holdfast.kinds import KINDS
from holdfast.stores.index import INDEX
from holdfast.stores.index import spoiled as index_spoiled
from holdfast.stores.leftovers import DELETED, TEMPORARY, TORN
from holdfast.stores.locks import LOCK, LOG, was_started
from holdfast.stores.workspace import Named, safe_name

_NETWORKED = re.compile(r"nfs|cifs|smb|9p|afs|ceph|gluster|lustre|fuse\.|vboxsf|drvfs|virtiofs")
_IN_MEMORY = ("tmpfs", "ramfs")


def log_folders(root: Path) -> Iterator[tuple[Path, str | None]]:
    """The folders of logs, each with its stream, or None where the log does not tell."""
    for kind in KINDS:
        folder = root / kind.plural
        if not folder.is_dir() or folder.is_symlink() or not os.access(folder, os.R_OK | os.X_OK):
            continue  # as `check_names` says where there is something wrong
        for name in sorted(os.listdir(folder)):
            if stat.S_ISDIR((folder / name).lstat().st_mode) and not DELETED.fullmatch(name):
                id = name if safe_name(name) == name else _named_in(folder / name)
                yield folder / name, None if id is None else kind.stream(id)


def _named_in(folder: Path) -> str | None:
    try:
        fd = os.open(folder / LOG, os.O_RDONLY | os.O_NOFOLLOW)
        with open(fd, "rb") as log:
            named = decode(log.readline(), Named).id
    except (OSError, Illegible):
        return None
    return named if safe_name(named) == folder.name else None


def check_names(root: Path, folder: Path) -> Iterator[Finding]:
    """What is wrong with what a folder holds, and with what that holds in turn."""
    exposed: list[str] = []
    # What a task made (artifacts) is its own business.
    todo = [folder]
    while todo:
        inside = todo.pop()
        try:
            found = _listed(inside)
        except OSError as error:
            yield unreadable(_place(root, inside), error.strerror or str(error))
            continue
        for path, mode in found:
            where = _place(root, path)
            yield from _check_name(where, path, mode)
            if not stat.S_ISLNK(mode) and mode & 0o077:
                exposed.append(where)
            if stat.S_ISDIR(mode) and path.name != "artifacts":
                todo.append(path)
    if exposed:
        what = f"{count(len(exposed), 'name')} in it can be opened by other users of this machine"
        advice = f"chmod -R go= {shlex.quote(str(folder))}"
        yield Finding("warning", _place(root, folder), f"{what} (such as {exposed[0]})", advice)


def check_index(root: Path) -> Iterator[Finding]:
    """Whether lines of the index are not what was written."""
    spoiled = 0
    with suppress(OSError):  # without one, or with one that can't be read, all logs are read
        fd = os.open(root / INDEX, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(fd, "rb") as index:
            spoiled = index_spoiled(index.read())
    if spoiled:
        what = (
            f"{count(spoiled, 'line')} in it count for nothing: torn by a crash, changed, or "
            f"written by an older Holdfast. Their logs are read instead"
        )
        yield Finding("note", INDEX, what, "Nothing. It may be deleted: it is made of the logs.")


def _listed(folder: Path) -> list[tuple[Path, int]]:
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    return [(Path(entry.path), entry.stat(follow_symlinks=False).st_mode) for entry in found]


def _place(root: Path, path: Path) -> str:
    return str(path.relative_to(root))


def _check_name(where: str, path: Path, mode: int) -> Iterator[Finding]:
    name = path.name
    if stat.S_ISLNK(mode):
        what = "it is a symlink, which Holdfast does not follow: what it points to is not read"
        yield Finding("damage", where, what, "Move the real file or folder here in its place.")
    elif TORN.fullmatch(name):
        what = (
            f"{path.lstat().st_size:,} bytes of a write that a crash cut short. It was never "
            f"acknowledged, so nothing is lost"
        )
        yield Finding("note", where, what, "Delete it whenever you like.")
    elif TEMPORARY.fullmatch(name) or DELETED.fullmatch(name):
        what = "a leftover of a process that was killed, unless one is at work right now"
        yield Finding("note", where, what, "Delete it when no process uses the store.")
    elif name == LOG and stat.S_ISREG(mode):
        with suppress(OSError):  # to be reported when the log is read
            yield from _check_tail(where, path)


def _check_tail(where: str, path: Path) -> Iterator[Finding]:
    tail = _tail(path)
    if tail.count(0):
        what = (
            f"it ends with {len(tail):,} bytes that are no whole line, with zeros among them: a "
            f"power cut does that to a write that was not acknowledged, a broken disk to any"
        )
        yield Finding("warning", where, what, "Copy the file before the task goes on.")
    elif tail:
        what = "it ends within a line: a process is writing, or a crash cut a write short"
        yield Finding("note", where, what, "Nothing: the next one to drive the task sees to it.")


def _tail(path: Path) -> bytes:
    """What follows the last newline of a file."""
    tail = b""
    with open(path, "rb") as log:
        end = log.seek(0, os.SEEK_END)
        while end and b"\n" not in tail:
            start = max(end - (1 << 16), 0)
            log.seek(start)
            tail = log.read(end - start) + tail
            end = start
    return tail.rpartition(b"\n")[2]


def check_nameless(root: Path, folder: Path) -> Finding:
    """For a folder whose log does not tell whose it is."""
    where = _place(root, folder)
    try:
        log, lock = _bytes_of(folder / LOG), _bytes_of(folder / LOCK)
    except OSError as error:
        return unreadable(where, error.strerror or str(error))
    if log:
        what = "its first line does not tell whose log it is, or names another"
    elif was_started(lock):
        what = "events were recorded here, and the log is empty or gone"
    else:
        return about_to_start(where)
    return Finding("damage", where, what, RESTORE)


def _bytes_of(path: Path) -> bytes:
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            return file.read(1 << 16)
    except FileNotFoundError:
        return b""


def check_filesystem(root: Path, kind: str) -> Iterator[Finding]:
    """Whether the folder lies where locks and syncs can be relied on."""
    if _NETWORKED.match(kind):
        what = f"it lies on {kind}, where locks may not hold between machines"
        todo = "Drive its tasks from one machine only, or move it to a local disk."
        yield Finding("warning", str(root), what, todo)
    elif kind in _IN_MEMORY:
        what = f"it lies on {kind}, in memory: it is gone when the machine stops"
        yield Finding("warning", str(root), what, "Move it to a disk.")
    if problem := _lock_problem(root):
        what = f"files in it can't be locked ({problem}), so no task can be driven here"
        yield Finding("warning", str(root), what, "Move it to a local disk.")


def _lock_problem(root: Path) -> str:
    # A shared lock on the folder itself, which nobody else locks: it is in nobody's way.
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    finally:
        os.close(fd)
    return ""


def filesystem_of(folder: Path) -> str:
    """The type of filesystem that a folder lies on; '' where the system does not tell."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    best, kind = -1, ""
    real = folder.resolve()
    for line in mounts.splitlines():
        _, place, found, *_ = line.split(" ")
        point = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), place))
        if real.is_relative_to(point) and len(point.parts) >= best:
            best, kind = len(point.parts), found
    return kind


def blobs_in(root: Path) -> dict[str, int]:
    """The blobs that are there, and how large each is."""
    found = {}
    for path in (root / "blobs").glob("[0-9a-f][0-9a-f]/*"):
        if re.fullmatch("[0-9a-f]{64}", path.name) and not path.is_symlink():
            found[path.name] = path.lstat().st_size
    return found
