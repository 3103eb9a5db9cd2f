"""Files beside a log: the inbox of a stream, and what was derived from its lines.

    tasks/<safe id>/inbox/<hash>              a file for each message
    tasks/<safe id>/waypoints/1024.head  …    a file for each thing that was derived

Both are beside the log, and so go with it. A message is written beside its place and then linked
into it, which succeeds for one writer only. Its first line says which message it
is and when it was left; the rest is the message. Other files in the folder are none of ours, and
are left alone.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from hashlib import sha256

import msgspec
from msgspec import Struct

from holdfast.core.decoding import Illegible, decode
from holdfast.stores.files.disk import Disk
from holdfast.stores.port import DERIVED_NAME, Post
from holdfast.stores.system import NO_WAIT

INBOX, DERIVED = "inbox", "waypoints"

_left = itertools.count()


class MessageHead(Struct, frozen=True):
    """The first line of a message."""

    name: str
    at_ns: int
    number: int
    """Tells those apart that one process left in the same tick of the clock."""


def post(disk: Disk, folder: int, name: str, data: bytes, *, durable: bool) -> bool:
    """Leave a message in a stream's folder; False if there is one of that name."""
    box = disk.make_folder(INBOX, folder)
    try:
        draft = f".{os.urandom(6).hex()}"
        fd = disk.open(draft, box, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            head = msgspec.json.encode(MessageHead(name, time.time_ns(), next(_left)))
            disk.write(fd, head + b"\n" + data)
            if durable:
                disk.sync(fd)
        finally:
            disk.close(fd)
        is_new = True
        try:
            disk.link(draft, _file_name(name), box)
        except FileExistsError:
            is_new = False
        finally:
            disk.unlink(draft, box)
        if durable:
            # Also when there was one: who left it may have died before it got this far.
            disk.sync_folder(box)
            disk.sync_folder(folder)
        return is_new
    finally:
        disk.close(box)


def messages(disk: Disk, stream: str, folder: int) -> Sequence[Post]:
    """The messages in the inbox of a stream's folder, the oldest first."""
    try:
        box = disk.folder(INBOX, folder)
    except FileNotFoundError:
        return []
    found: list[tuple[MessageHead, Post]] = []
    try:
        for file_name in disk.names(box):
            # Taken meanwhile, or no message of ours.
            with suppress(OSError, ValueError, Illegible):
                head, data = _read(disk, file_name, box)
                found.append((head, Post(stream, head.name, data)))
    finally:
        disk.close(box)
    found.sort(key=lambda pair: (pair[0].at_ns, pair[0].number))
    return [message for _, message in found]


def _read(disk: Disk, file_name: str, box: int) -> tuple[MessageHead, bytes]:
    first, _, data = _plain_file(disk, file_name, box).partition(b"\n")
    head = decode(first, MessageHead)
    if _file_name(head.name) != file_name:
        raise ValueError("not its name")
    return head, data


def remove(disk: Disk, folder: int, name: str | None) -> None:
    """Take a message out, or all of them."""
    with suppress(FileNotFoundError):
        if name is None:
            return disk.remove_all(INBOX, folder)
        box = disk.folder(INBOX, folder)
        try:
            disk.unlink(_file_name(name), box)
        finally:
            disk.close(box)


def _file_name(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:32]


# Derived data is written beside its place and renamed into it, and never synced: its reader finds
# out that a crash left it torn.


Folder = Callable[[str], AbstractContextManager[int]]


def put_derived(disk: Disk, folder_of: Folder, stream: str, name: str, data: bytes) -> bool:
    """Keep something derived in the folder of a stream that is there."""
    if not DERIVED_NAME.fullmatch(name):
        return False
    with suppress(OSError), folder_of(stream) as folder:
        inner = disk.make_folder(DERIVED, folder)
        draft = f".{os.urandom(6).hex()}"
        try:
            fd = disk.open(draft, inner, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                disk.write(fd, data)
            finally:
                disk.close(fd)
            disk.rename(draft, name, inner)
            return True
        except OSError:
            with suppress(OSError):  # a full disk
                disk.unlink(draft, inner)
        finally:
            disk.close(inner)
    return False


def derived(
    disk: Disk, folder_of: Folder, stream: str, names: Collection[str] | None, with_data: bool
) -> list[Post]:
    """The data derived from a stream, as far as it is there."""
    found: list[Post] = []
    with suppress(OSError), folder_of(stream) as folder:
        inner = disk.folder(DERIVED, folder)
        try:
            for name in disk.names(inner) if names is None else names:
                with suppress(OSError):
                    if DERIVED_NAME.fullmatch(name):
                        data = _plain_file(disk, name, inner) if with_data else b""
                        found.append(Post(stream, name, data))
        finally:
            disk.close(inner)
    return found


def drop_derived(disk: Disk, folder_of: Folder, stream: str, name: str | None) -> None:
    """Remove what was derived from a stream."""
    with suppress(OSError), folder_of(stream) as folder:
        if name is None:
            return disk.remove_all(DERIVED, folder)
        if DERIVED_NAME.fullmatch(name):
            with disk.opened(disk.folder(DERIVED, folder)) as inner:
                disk.unlink(name, inner)


def _plain_file(disk: Disk, name: str, inner: int) -> bytes:
    fd = disk.open(name, inner, os.O_RDONLY | NO_WAIT)
    try:
        return disk.read_all(fd) if disk.is_plain(fd) else b""
    finally:
        disk.close(fd)
