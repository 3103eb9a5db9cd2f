"""The inbox of a stream: `tasks/<safe id>/inbox/`, a file for each message.

A message is written beside its place and then linked into it, which succeeds for one writer only.
Its first line says which message it is and when it was left; the rest is the message. What else
lies in the folder is none of ours, and is left alone.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Struct

from holdfast.decoding import Illegible, decode
from holdfast.store import Post
from holdfast.stores.disk import Disk

INBOX = "inbox"

_left = itertools.count()


class Head(Struct, frozen=True):
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
            head = msgspec.json.encode(Head(name, time.time_ns(), next(_left)))
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
    """What is in the inbox of a stream's folder, the oldest first."""
    try:
        box = disk.folder(INBOX, folder)
    except FileNotFoundError:
        return []
    found: list[tuple[Head, Post]] = []
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


def _read(disk: Disk, file_name: str, box: int) -> tuple[Head, bytes]:
    fd = disk.open(file_name, box, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not disk.is_plain(fd):
            raise ValueError("not a file")
        first, _, data = disk.read_all(fd).partition(b"\n")
    finally:
        disk.close(fd)
    head = decode(first, Head)
    if _file_name(head.name) != file_name:
        raise ValueError("not its name")
    return head, data


def remove(disk: Disk, folder: int, name: str) -> None:
    """Take a message out."""
    with suppress(FileNotFoundError):
        box = disk.folder(INBOX, folder)
        try:
            disk.unlink(_file_name(name), box)
        finally:
            disk.close(box)


def _file_name(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:32]
