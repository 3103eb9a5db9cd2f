"""The inbox of a stream: `tasks/<safe id>/inbox/`, a file for each message.

A message is written beside its place and then linked into it, which succeeds for one writer only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress

from holdfast.store import Post
from holdfast.stores.disk import Disk

INBOX = "inbox"


def post(disk: Disk, folder: int, name: str, data: bytes, *, durable: bool) -> bool:
    """Leave a message in a stream's folder; False if there is one of that name."""
    box = disk.make_folder(INBOX, folder)
    try:
        draft = f".{os.urandom(6).hex()}"
        fd = disk.open(draft, box, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            disk.write(fd, data)
            if durable:
                disk.sync(fd)
        finally:
            disk.close(fd)
        try:
            disk.link(draft, _file_name(name), box)
        except FileExistsError:
            return False
        finally:
            disk.unlink(draft, box)
        if durable:
            disk.sync_folder(box)
            disk.sync_folder(folder)
        return True
    finally:
        disk.close(box)


def messages(disk: Disk, stream: str, folder: int) -> Sequence[Post]:
    """What is in the inbox of a stream's folder, the oldest first."""
    try:
        box = disk.folder(INBOX, folder)
    except FileNotFoundError:
        return []
    found = []
    try:
        for file_name in disk.names(box):
            if file_name.startswith("."):
                continue
            with suppress(FileNotFoundError):  # taken meanwhile
                fd = disk.open(file_name, box, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    name = bytes.fromhex(file_name).decode()
                    found.append((disk.touched_at(fd), Post(stream, name, disk.read_all(fd))))
                finally:
                    disk.close(fd)
    finally:
        disk.close(box)
    return [message for _, message in sorted(found, key=lambda pair: pair[0])]


def remove(disk: Disk, folder: int, name: str) -> None:
    """Take a message out."""
    with suppress(FileNotFoundError):
        box = disk.folder(INBOX, folder)
        try:
            disk.unlink(_file_name(name), box)
        finally:
            disk.close(box)


def _file_name(name: str) -> str:
    return name.encode().hex()
