"""What files are made of, and how they are shown: for those inside of a task and outside."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from holdfast.artifacts import Artifact, Source, kept
from holdfast.decoding import decoder
from holdfast.errors import BadInput
from holdfast.events import FileKept
from holdfast.redact import Redact
from holdfast.state import KeptFile
from holdfast.values import Blobs

Content = str | bytes | Artifact | Source
"""What a file can be given: text, bytes, an artifact, a path, an open file, pieces of bytes."""


class File(Struct, frozen=True):
    """One version of a file of a task.

    >>> from datetime import UTC
    >>> File("a.md", 7, datetime(2026, 1, 1, tzinfo=UTC), Artifact("0" * 64, 3, "")).size_bytes
    3
    """

    name: str
    version: int
    """The event that kept it."""
    at: datetime
    artifact: Artifact
    path: str = ""
    """The call that wrote it; '' for the task's own body, or for people."""
    by: str = ""
    """Who wrote it, if it was not the task."""

    @property
    def size_bytes(self) -> int:
        """How long it is."""
        return self.artifact.size_bytes


artifact_in = decoder(Artifact)
"""The artifact that an event names."""


def file_of(known: KeptFile) -> File:
    """A file as it stands in a state, to be looked at."""
    artifact = artifact_in(known.file)
    return File(known.name, known.seq, known.at, artifact, known.path, known.by)


def file_in(event: FileKept) -> File:
    """A file as an event of the log has it."""
    artifact = artifact_in(event.file)
    return File(event.name, event.seq, event.at, artifact, event.path, event.by)


def listed(files: Mapping[str, KeptFile]) -> tuple[File, ...]:
    """Files by their names."""
    return tuple(file_of(files[name]) for name in sorted(files))


def base_of(expected: Any) -> int | UnsetType:
    """The version that a writer expects, as an event has it: 0 for none."""
    if expected is None or expected is UNSET:
        return UNSET if expected is UNSET else 0
    if type(expected) is not int or expected < 1:
        raise BadInput(
            f"expected={expected!r:.60}: give the version that you have seen, a number, or None "
            f"for a file that is not there"
        )
    return expected


def kept_content(store: Blobs, data: Content, redact: Redact) -> Artifact:
    """The content, put into a store."""
    if isinstance(data, Artifact):
        return data
    if isinstance(data, str | bytes | bytearray | memoryview):
        raw = bytes_of(data)
        if isinstance(data, str):
            redact.must_be_free(raw)
        return kept(store, [raw])
    if isinstance(data, Path):
        with data.open("rb") as file:
            return kept(store, file)
    return kept(store, data)


def digest_of(data: Content) -> str:
    """The sha256 of content; '' where it could only be told by using it up."""
    if isinstance(data, Artifact):
        return data.sha256
    if isinstance(data, str | bytes | bytearray | memoryview):
        return sha256(bytes_of(data)).hexdigest()
    return ""


def bytes_of(data: str | bytes | bytearray | memoryview) -> bytes:
    """Text or bytes, as they are stored."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if not isinstance(data, str):
        raise BadInput(f"give text or bytes, not {type(data).__name__}: {data!r:.60}")
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise BadInput(f"a text can't be written as UTF-8: {error}") from None


def text_of(data: bytes, name: str, encoding: str = "utf-8") -> str:
    """Bytes as text, or an error that says whose they are."""
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(f"the file {name!r} is no text in {encoding}: {error}") from None
