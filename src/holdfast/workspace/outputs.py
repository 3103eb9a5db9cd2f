"""What a command made: its output and the files it declares, kept in the store and given back.

Short output that is text stands in the log as text, so that it can be read there. All else is an
`Artifact`. Files are given back only at the paths that the command line names today; a log can't
name a place to write to.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Literal

from msgspec import Struct

from holdfast.artifacts import PART_BYTES, Artifact, kept, opened
from holdfast.errors import HoldfastError
from holdfast.values import Blobs
from holdfast.workspace.process import Recorded, write_all

_IN_THE_LOG = 8 * 1024
"""How long a text may be that stands in the log itself."""

Say = Callable[[str], None]
Output = str | Artifact


class KeptOutput(Struct, frozen=True):
    """A file that a command made."""

    file: Artifact
    mode: int
    """Its permissions."""


def stored(store: Blobs, recorded: Recorded, name: str) -> Output:
    """What a command printed, as it goes into the log."""
    recorded.file.seek(0)
    if recorded.size_bytes <= _IN_THE_LOG:
        try:
            return recorded.file.read().decode()
        except UnicodeDecodeError:
            recorded.file.seek(0)
    return kept(store, iter(lambda: recorded.file.read(PART_BYTES), b""), name)


def print_again(store: Blobs, output: Output, descriptor: int) -> None:
    """Print what a command printed, byte for byte."""
    if isinstance(output, str):
        write_all(descriptor, output.encode())
        return
    with opened(store, output) as file:
        while part := file.read(PART_BYTES):
            write_all(descriptor, part)


def keep_files(store: Blobs, names: Iterable[str]) -> dict[str, KeptOutput]:
    """The files that a command said it would make, or an error that says which it did not."""
    found = {}
    for name in names:
        try:
            with open(name, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode & 0o777
                found[name] = KeptOutput(kept(store, file, Path(name).name), mode)
        except OSError as error:
            raise NotMade(
                f"it ended well, but the file it declares can't be kept: {name} "
                f"({error.strerror or error})"
            ) from None
    return found


class NotMade(HoldfastError):
    """A command did not make a file that it declares."""


def restore_files(
    store: Blobs, files: Mapping[str, KeptOutput], *, overwrite: bool, say: Say
) -> None:
    """Give back the files that are missing, and with `overwrite` those that were changed."""
    for name, made in files.items():
        standing = _standing(name, made)
        if standing == "same":
            continue
        if standing == "changed" and not overwrite:
            say(
                f"{name} is not what this step made, and was left as it is (--restore puts the "
                f"step's file in its place)"
            )
            continue
        _write(store, name, made)
        say(f"{name} was {standing}: restored as this step made it")


def _standing(name: str, made: KeptOutput) -> Literal["same", "changed", "missing"]:
    try:
        with open(name, "rb") as file:
            if os.fstat(file.fileno()).st_size != made.file.size_bytes:
                return "changed"
            same = file_digest(file, "sha256").hexdigest() == made.file.sha256
            return "same" if same else "changed"
    except FileNotFoundError:
        return "missing"
    except IsADirectoryError:
        raise HoldfastError(
            f"{name} was made as a file by this step, and is a folder now: move it away"
        ) from None


def _write(store: Blobs, name: str, made: KeptOutput) -> None:
    """A file in one piece, or not at all."""
    place = Path(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(prefix=".holdfast-", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file, opened(store, made.file) as content:
            while part := content.read(PART_BYTES):
                file.write(part)
            os.fchmod(file.fileno(), made.mode & 0o777)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, place)
    except BaseException:
        os.unlink(scratch)
        raise
