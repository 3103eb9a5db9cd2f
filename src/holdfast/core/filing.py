"""The files of a task: which names they may have, which version is there, who may replace it.

A name is a relative path with `/` between its parts. It has to be one file on any disk, so names
that only differ in case or in Unicode form are the same to us, and what some systems would read as
something else is refused.

A version is the number of the event that kept it. A writer that says which one it has seen
(`base`, 0 for none) replaces that one and no other.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from msgspec import UNSET, Struct

from holdfast.core.events import FileKept, FileRemoved
from holdfast.core.state import State
from holdfast.core.words import is_utf8
from holdfast.errors import BadInput, Conflict, HoldfastError

OURS = ".holdfast-"
"""How the names of files begin that we make while others are written."""

_LONGEST_NAME, _LONGEST_PART_BYTES = 1000, 240


def checked_file_name(name: Any) -> str:
    """The name, if a file can have it on any disk.

    >>> checked_file_name("notes/day 1.md")
    'notes/day 1.md'
    >>> checked_file_name("../notes.md")
    Traceback (most recent call last):
    holdfast.errors.BadInput: '../notes.md' can't name a file: it has a part '..'. Give a relative
    path with / between its parts, such as 'notes/day-1.md'
    """
    if not isinstance(name, str):
        raise BadInput(f"the name of a file is text, not {type(name).__name__}: {name!r:.60}")
    if why := _wrong_with(name):
        raise BadInput(
            f"{name!a:.200} can't name a file: {why}. Give a relative path with / between its "
            f"parts, such as 'notes/day-1.md'"
        )
    return name


def _wrong_with(name: str) -> str:
    if not name:
        return "it is empty"
    if len(name) > _LONGEST_NAME:
        return f"it has {len(name):,} characters, and {_LONGEST_NAME:,} is the most"
    if not is_utf8(name) or not name.isprintable():
        return "it holds characters that can't be printed"
    if name.startswith("/"):
        return "it is an absolute path"
    if "\\" in name:
        return "it has a backslash, which divides paths on some systems"
    for part in name.split("/"):
        if part in ("", ".", ".."):
            return f"it has a part {part!r}"
        if part[-1] in ". ":
            return f"the part {part!r} ends in a {'dot' if part[-1] == '.' else 'space'}"
        if part.startswith(OURS):
            return f"names that begin with {OURS!r} are ours"
        if len(part.encode()) > _LONGEST_PART_BYTES:
            return f"a part of it is longer than {_LONGEST_PART_BYTES} bytes"
        if part[1:2] == ":":
            return f"the part {part!r} names a drive on some systems"
    return ""


def clashing(name: str, others: Iterable[str]) -> str:
    """The one of `others` that would be in the way of a file of that name; '' if there is none.

    >>> clashing("Notes.md", ["plan.md", "notes.md"]), clashing("a/b", ["a"]), clashing("a", ["b"])
    ('notes.md', 'a', '')
    """
    ours = _ways(name)
    for other in others:
        if other == name:
            continue
        theirs = _ways(other)
        if ours.keys().isdisjoint(theirs):
            continue
        for folded, way in ours.items():
            found = theirs.get(folded)
            if found is not None and (found != way or name == way or other == found):
                return other
    return ""


@lru_cache(1 << 14)
def _ways(name: str) -> dict[str, str]:
    """A name and the folders that it is in, by what they are on a disk that knows no case."""
    parts = name.split("/")
    ways = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
    return {_folded(way): way for way in ways}


def _folded(way: str) -> str:
    if way.isascii():
        return way.casefold()
    import unicodedata  # a megabyte of tables

    plain = unicodedata.normalize("NFD", unicodedata.normalize("NFD", way).casefold())
    return unicodedata.normalize("NFC", plain)


class FileRefused(Struct, frozen=True):
    """Why a file was not written."""

    why: str
    conflict: bool = False

    def error(self) -> HoldfastError:
        """The same, to be raised."""
        return Conflict(self.why) if self.conflict else BadInput(self.why)


def refused(state: State, event: FileKept | FileRemoved) -> FileRefused | None:
    """Why a file of a task can't be written or removed just now; None if it can."""
    name, found = event.name, state.files.get(event.name)
    if event.base is not UNSET and event.base != (found.seq if found is not None else 0):
        return FileRefused(_conflict(state, event), True)
    if found is None and isinstance(event, FileKept) and (other := clashing(name, state.files)):
        return FileRefused(
            f"task {state.id!r}: a file {name!a:.200} would be in the way of {other!a:.200}, which "
            f"is there: on some disks the two can't stand side by side. Choose another name"
        )
    return None


def _conflict(state: State, event: FileKept | FileRemoved) -> str:
    found = state.files.get(event.name)
    expected = f"version {event.base}" if event.base else "no such file"
    there = "it is not there" if found is None else f"version {found.seq} is there"
    if found is not None:
        there += f", written by {found.by or f'the task in call {found.path}'} at {found.at}"
    return (
        f"task {state.id!r}, file {event.name!a:.200}: {expected} was expected, and {there}. "
        f"Nothing was written: read what is there, and write again"
    )
