"""Changes to real files that may be made again: `ensure_line(".gitignore", "build/")`.

Each says how a file is to be, and changes it if it is not. In a task each is a tool that may be
retried, since doing it twice changes nothing; outside it is a plain function. Files are replaced
at once and durably; permissions, line endings and what stands around stay as they are.

What was there is kept first, in the store, and is in the log before the file is touched: so a
crash in between does not lose it, and a task that is called off puts it back.

With `root` a path is one in that folder, and none that leads out of it is touched, not even by a
symlink. A symlink that stays inside is followed: its target is changed, and it stays one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from holdfast.artifacts import Artifact
from holdfast.errors import BadInput
from holdfast.step import tool
from holdfast.workspace.before import Before, Records, digest_of
from holdfast.workspace.editing import Comment, comment_of, with_block, with_json, with_line
from holdfast.workspace.placing import (
    Seen,
    look,
    make_folders,
    missing_folders,
    placed,
    put,
)


class Ensured(Struct, frozen=True):
    """What an operation did: whether it `changed` anything, and what was there `before`."""

    path: str
    changed: bool
    before: Before | None = None
    after: str = ""
    """The sha256 of what it left there; '' for nothing, or a folder."""


@tool(name="ensure_undone", in_doubt="retry")
def _undo(result: Ensured) -> None:
    """Put back what was there, unless somebody has changed it since."""
    before, place = result.before, Path(result.path)
    if before is None:
        return
    if before.digest or result.after:
        now, wanted = look(place), before.seen()
        if digest_of(now) not in (result.after, before.digest):
            raise BadInput(
                f"{place} was changed since it was ensured: what was there before is in the log, "
                f"and has to be put back by hand"
            )
        if now != wanted and not put(place, now, wanted):
            raise BadInput(f"{place} is being changed by somebody: try again")
    for folder in reversed(before.missing):
        with suppress(OSError):  # somebody uses it
            Path(folder).rmdir()


@tool(in_doubt="retry", undo=_undo)
def ensure_file(
    path: str | Path,
    content: str | bytes | Artifact,
    *,
    root: str | Path | None = None,
    mode: int | None = None,
) -> Ensured:
    """See to it that a file has this content, and with `mode` these permissions.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [ensure_file("a/b.txt", "hi", root=folder).changed for _ in range(2)]
    [True, False]
    """
    data = _bytes(content)

    def changed(seen: Seen) -> Seen:
        return Seen(data, seen.mode if mode is None else mode)  # a new one has the usual

    return _ensured(path, root, changed)


@tool(in_doubt="retry", undo=_undo)
def ensure_line(path: str | Path, line: str, *, root: str | Path | None = None) -> Ensured:
    """See to it that a text file has this line, somewhere; if not, it comes at the end.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = [ensure_line(".gitignore", line, root=folder) for line in ("a", "b", "a")]
    ...     Path(folder, ".gitignore").read_text()
    'a\\nb\\n'
    """
    return _ensured(path, root, _of_text(path, lambda text: with_line(text, line)))


@tool(in_doubt="retry", undo=_undo)
def ensure_block(
    path: str | Path,
    marker: str,
    text: str,
    *,
    comment: str | tuple[str, str] | None = None,
    root: str | Path | None = None,
) -> Ensured:
    """See to it that a text file has this text between two lines of comment that name `marker`.

    What stood between them is replaced. How comments are written goes by the ending of the file's
    name, or is given: `"//"`, or `("<!--", "-->")`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = [ensure_block("a.conf", "ours", text, root=folder) for text in ("x=1", "x=2")]
    ...     Path(folder, "a.conf").read_text()
    '# BEGIN ours\\nx=2\\n# END ours\\n'
    """
    style: Comment = comment_of(str(path)) if comment is None else comment
    return _ensured(path, root, _of_text(path, lambda old: with_block(old, marker, text, style)))


@tool(in_doubt="retry", undo=_undo)
def ensure_json(
    path: str | Path,
    key_path: str | list[str | int],
    value: Any,
    *,
    root: str | Path | None = None,
) -> Ensured:
    """See to it that a JSON file has this value under a key: `"a.b"`, or `["a", "b", 0]`.

    The order of keys, the indent and the end of the file stay as they are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ensure_json("package.json", "scripts.test", "pytest", root=folder)
    ...     Path(folder, "package.json").read_text()
    '{\\n  "scripts": {\\n    "test": "pytest"\\n  }\\n}\\n'
    """
    keys = key_path.split(".") if isinstance(key_path, str) else key_path
    return _ensured(path, root, _of_text(path, lambda text: with_json(text, keys, value)))


@tool(in_doubt="retry", undo=_undo)
def ensure_absent(path: str | Path, *, root: str | Path | None = None) -> Ensured:
    """See to it that there is no such file. Folders and symlinks are refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ensure_absent("a.txt", root=folder).changed
    False
    """
    # A symlink is not followed here: who wants it gone does not mean what it leads to.
    named = placed(Path(path).parent / "_", root).with_name(Path(path).name)
    if not named.parent.is_dir():
        return Ensured(str(named), False)
    return _ensured_at(named, lambda seen: Seen())


@tool(in_doubt="retry", undo=_undo)
def ensure_dir(path: str | Path, *, root: str | Path | None = None) -> Ensured:
    """See to it that a folder is there, with those around it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [ensure_dir("a/b", root=folder).changed for _ in range(2)]
    [True, False]
    """
    place = placed(path, root)
    records = Records()
    if missing_folders(place):
        records.keep(Seen(), place, place.name)
        make_folders(place)
    return Ensured(str(place), records.newest is not None, records.newest)


def _ensured(path: str | Path, root: str | Path | None, change: Callable[[Seen], Seen]) -> Ensured:
    return _ensured_at(placed(path, root), change)


def _ensured_at(place: Path, change: Callable[[Seen], Seen]) -> Ensured:
    """Make a file what it should be, if it is not. Others may change it meanwhile."""
    records = Records()
    while True:
        seen = look(place)
        wanted = change(seen)
        if wanted == seen or (wanted.data is None and seen.data is None):
            before = records.newest
            return Ensured(str(place), before is not None, before, digest_of(wanted))
        records.keep(seen, place.parent, place.name)
        make_folders(place.parent)
        put(place, seen, wanted)


def _of_text(path: str | Path, change: Callable[[str], str]) -> Callable[[Seen], Seen]:
    """The same change, of the text that a file holds."""

    def changed(seen: Seen) -> Seen:
        try:
            return Seen(change(_text(seen.data or b"")).encode(), seen.mode)
        except BadInput as error:
            raise BadInput(f"{path}: {error}. Nothing was changed") from None
        except UnicodeEncodeError as error:
            raise BadInput(f"{path}: the text can't be written as UTF-8: {error}") from None

    return changed


def _text(data: bytes) -> str:
    if b"\0" in data:
        raise BadInput("it is no text: it has a zero byte in it")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"it is no text in UTF-8: {error}") from None


def _bytes(content: str | bytes | Artifact) -> bytes:
    if isinstance(content, str):
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            raise BadInput(f"the text can't be written as UTF-8: {error}") from None
    if isinstance(content, Artifact):
        with content.open() as file:
            return file.read()
    return content
