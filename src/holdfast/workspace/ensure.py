"""Changes to real files that may be made again: `ensure_line(".gitignore", "build/")`.

Each says how a file is to be, and changes it if it is not. In a task each is a tool that may be
retried, since doing it twice changes nothing; outside it is a plain function. Files are replaced
at once and durably; permissions, line endings and what stands around stay as they are.

The content that was there is kept first, in the store, and is in the log before the file is
touched: so a crash in between does not lose it, and a task that is called off puts it back.

With `root` a path is one in that folder, and none that leads out of it is touched, not even by a
symlink. A symlink that stays inside is followed: its target is changed, and it stays one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from holdfast.api.steps import tool
from holdfast.core.decoding import decode
from holdfast.core.events import Observed
from holdfast.core.scope import inside, scope_var
from holdfast.engines.run import Run
from holdfast.errors import BadInput
from holdfast.log.artifacts import Artifact, kept, opened
from holdfast.workspace.replacement import (
    SeenFile,
    look,
    make_folders,
    missing_folders,
    placed,
    put,
)

__all__ = [
    "Ensured",
    "ensure_absent",
    "ensure_block",
    "ensure_dir",
    "ensure_file",
    "ensure_json",
    "ensure_line",
]

# The text that holds a line, a marked block, or a value under a key.
#
# Plain functions of texts. Each leaves a text that holds it already exactly as it is, and changes
# nothing else: not the line endings, not the byte order mark, not how JSON is indented.


Comment = str | tuple[str, str]
"""How a line of comment begins, or what it stands between."""

BOM = "\ufeff"

_SLASHES = "c cc cpp cs dart go h hpp java js jsx kt m mjs php proto rs scala scss swift ts tsx zig"
_MARKUP = "htm html markdown md svg vue xhtml xml"
_STYLES: dict[str, Comment] = {
    **dict.fromkeys(_SLASHES.split(), "//"),
    **dict.fromkeys(_MARKUP.split(), ("<!--", "-->")),
    **dict.fromkeys(["hs", "lua", "sql"], "--"),
    **dict.fromkeys(["asm", "el", "lisp", "clj"], ";"),
    **dict.fromkeys(["erl", "sty", "tex"], "%"),
    "css": ("/*", "*/"),
    "vim": '"',
}
_NONE = ("json", "csv", "tsv", "jsonl")


def comment_of(name: str) -> Comment:
    """How comments are written in a file of that name: `#` where nothing else is known.

    >>> comment_of("Makefile"), comment_of("src/app.ts"), comment_of("README.md")
    ('#', '//', ('<!--', '-->'))
    """
    ending = PurePath(name).suffix[1:].lower()
    if ending in _NONE:
        raise BadInput(f"{name}: there are no comments in .{ending} files, so a block can't stand")
    return _STYLES.get(ending, "#")


def newline_of(text: str) -> str:
    """How the lines of a text end, mostly."""
    windows = text.count("\r\n")
    return "\r\n" if windows * 2 > text.count("\n") else "\n"


def with_line(text: str, line: str) -> str:
    """A text that has this line: itself, or with the line at its end.

    >>> with_line("a\\r\\nb", "c"), with_line("a\\nb\\n", "a")
    ('a\\r\\nb\\r\\nc\\r\\n', 'a\\nb\\n')
    """
    if "\n" in line or "\r" in line:
        raise BadInput(f"{line!r:.60} is more than one line: ensure one at a time, or a block")
    if line in lines_of(text):
        return text
    return f"{ended(text)}{line}{newline_of(text)}"


def lines_of(text: str) -> list[str]:
    """The lines of a text without what ends them."""
    found = text.removeprefix(BOM).split("\n")
    if found[-1] == "":
        found.pop()
    return [line.removesuffix("\r") for line in found]


def ended(text: str) -> str:
    """A text whose last line is ended, if it has one."""
    return text if text.removeprefix(BOM) == "" or text.endswith("\n") else text + newline_of(text)


def with_block(text: str, marker: str, block: str, comment: Comment) -> str:
    """A text that has this block between two marked lines: in the place of the one it has, or at
    its end.

    >>> print(with_block("x = 1\\n", "flags", "y = 2", "#"), end="")
    x = 1
    # BEGIN flags
    y = 2
    # END flags
    """
    begin, end = _fences(marker, comment)
    inner = lines_of(block)
    if any(line.strip() in (begin, end) for line in inner):
        raise BadInput(f"the block {marker!r} holds a line that marks its own beginning or end")
    newline = newline_of(text)
    fenced = "".join(f"{line}{newline}" for line in (begin, *inner, end))
    place = _place_of(text, begin, end, marker)
    if place is None:
        return ended(text) + fenced
    start, stop = place
    if lines_of(text[start:stop].removeprefix(BOM)) == lines_of(fenced):
        return text
    mark = BOM if text.startswith(BOM) and start == 0 else ""
    last = "" if text[start:stop].endswith("\n") else newline
    return f"{text[:start]}{mark}{fenced.removesuffix(last)}{text[stop:]}"


def _fences(marker: str, comment: Comment) -> tuple[str, str]:
    if not marker.strip() or marker != marker.strip() or not marker.isprintable():
        raise BadInput(f"{marker!r:.60} can't mark a block: give one short line")
    before, after = (comment, "") if isinstance(comment, str) else comment
    words = (f"{before} {word} {marker} {after}".strip() for word in ("BEGIN", "END"))
    begin, end = words
    return begin, end


def _place_of(text: str, begin: str, end: str, marker: str) -> tuple[int, int] | None:
    """Where a block stands, its marked lines included; None if it is not there."""
    begins, ends, place = [], [], 0
    for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
        line = piece.removeprefix(BOM).strip()
        if line == begin:
            begins.append(place)
        elif line == end:
            ends.append(place + len(piece))
        place += len(piece)
    if not begins and not ends:
        return None
    if len(begins) != 1 or len(ends) != 1 or begins[0] >= ends[0]:
        raise BadInput(
            f"the block {marker!r} is begun {len(begins)} times and ended {len(ends)} times, or "
            f"the other way round: mend it by hand, so that {begin!r} and {end!r} stand there once"
        )
    return begins[0], ends[0]


def with_json(text: str, keys: Sequence[str | int], value: Any) -> str:
    """A piece of JSON that has this value under these keys.

    >>> with_json('{"a": {"b": 1}}', ["a", "c"], [2])
    '{"a": {"b": 1, "c": [2]}}'
    """
    mark = BOM if text.startswith(BOM) else ""
    plain = text.removeprefix(BOM)
    try:
        found = json.loads(plain, object_pairs_hook=_object, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        if plain.strip():
            raise BadInput(f"it is no JSON: {error}") from None
        found = {}
    try:
        changed = _set(found, list(keys), value)
        if plain.strip() and _same(changed, found):
            return text
        escaped = "\\u" in plain and plain.isascii()
        dumped = json.dumps(changed, indent=_indent(plain), ensure_ascii=escaped, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadInput(f"{value!r:.60} is no JSON value: {error}") from None
    newline = newline_of(plain)
    ending = newline if plain.endswith("\n") or not plain.strip() else ""
    return mark + dumped.replace("\n", newline) + ending


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadInput("an object in it has the same key twice: mend it by hand")
    return found


def _no_number(name: str) -> None:
    raise BadInput(f"it is no JSON: {name} is no number there")


def _indent(text: str) -> int | str | None:
    if not text.strip():
        return 2
    found = re.search(r"[\[{]\r?\n([ \t]+)\S", text)
    if found is None:
        return None
    return found[1] if "\t" in found[1] else len(found[1])


def _set(found: Any, keys: list[str | int], value: Any) -> Any:
    """A copy of plain data that has the value there."""
    if not keys:
        return value
    key, *rest = keys
    if isinstance(found, dict) and isinstance(key, str):
        return {**found, key: _set(found.get(key, {} if rest else None), rest, value)}
    if isinstance(found, list) and isinstance(key, int) and 0 <= key <= len(found):
        inner = found[key] if key < len(found) else ({} if rest else None)
        return [*found[:key], _set(inner, rest, value), *found[key + 1 :]]
    raise BadInput(f"the key {key!r} can't stand there: it has {json.dumps(found):.60}")


def _same(one: Any, other: Any) -> bool:
    # In Python 1 == True == 1.0, and in JSON they are three things.
    return json.dumps(one) == json.dumps(other)


# The content before a change, kept ahead of it.
#
# A call that changes a file records what the file was, in the log and durably, before it touches
# it. If it dies in between and is made again, it finds the record: what is there by then may be
# its own doing. If somebody else changed the file in that time, a newer record is made.


class Before(Struct, frozen=True):
    """The content before a change."""

    digest: str = ""
    """The sha256 of it; '' if there was nothing."""
    content: Artifact | None = None
    """The content itself. Outside of a task nothing is kept."""
    mode: int | None = None
    missing: tuple[str, ...] = ()
    """The folders that had to be made."""

    def seen(self) -> SeenFile:
        """The same file as a task would see it, to be restored inside of the task."""
        if not self.digest:
            return SeenFile()
        if self.content is None:
            raise BadInput("what was there before was not kept: it was no task that changed it")
        with opened(inside("undo").run.log.store, self.content) as file:
            return SeenFile(file.read(), self.mode)


def digest_of(seen: SeenFile) -> str:
    """The sha256 of what was seen; '' if there was nothing."""
    return "" if seen.data is None else sha256(seen.data).hexdigest()


class CallRecords:
    """The recorded content from before the call that runs now."""

    def __init__(self) -> None:
        self.newest: Before | None = None
        self._scope = scope_var.get()
        self._path = self._next()
        while (found := self._recorded()) is not None:
            self.newest = found
            self._path = self._next()

    def _next(self) -> str:
        return "" if self._scope is None else self._scope.named_path("before", "=")

    def _recorded(self) -> Before | None:
        if self._scope is None:
            return None
        run: Run = self._scope.run
        call = run.log.state.calls.get(self._path)
        if call is None:
            return None
        return decode(run.log.fetch(cast("Raw", call.result)), Before)

    def keep(self, seen: SeenFile, folder: Path, name: str) -> None:
        """Record what is there now, unless that is what was recorded last."""
        digest, newest = digest_of(seen), self.newest
        if newest is not None and newest.digest == digest:
            return
        missing = (*(newest.missing if newest is not None else ()), *missing_folders(folder))
        if self._scope is None:
            self.newest = Before(digest, None, seen.mode, missing)
            return
        run: Run = self._scope.run
        content = None if seen.data is None else kept(run.log.store, [seen.data], name)
        self.newest = Before(digest, content, seen.mode, missing)
        value = Raw(msgspec.json.encode(self.newest))
        run.append(Observed(path=self._path, name="before", value=value), self._scope)
        run.sync()  # before anything is touched
        self._path = self._next()


class Ensured(Struct, frozen=True):
    """The effect of an operation: whether it `changed` anything, and what was there `before`."""

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
                f"and has to be restored by hand"
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

    def changed(seen: SeenFile) -> SeenFile:
        return SeenFile(data, seen.mode if mode is None else mode)  # a new one has the usual

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

    The text between them is replaced. How comments are written goes by the ending of the file's
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
    return _ensured_at(named, lambda seen: SeenFile())


@tool(in_doubt="retry", undo=_undo)
def ensure_dir(path: str | Path, *, root: str | Path | None = None) -> Ensured:
    """See to it that a folder is there, with those around it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [ensure_dir("a/b", root=folder).changed for _ in range(2)]
    [True, False]
    """
    place = placed(path, root)
    records = CallRecords()
    if missing_folders(place):
        records.keep(SeenFile(), place, place.name)
        make_folders(place)
    return Ensured(str(place), records.newest is not None, records.newest)


def _ensured(
    path: str | Path, root: str | Path | None, change: Callable[[SeenFile], SeenFile]
) -> Ensured:
    return _ensured_at(placed(path, root), change)


def _ensured_at(place: Path, change: Callable[[SeenFile], SeenFile]) -> Ensured:
    """Make a file what it should be, if it is not. Others may change it meanwhile."""
    records = CallRecords()
    while True:
        seen = look(place)
        wanted = change(seen)
        if wanted == seen or (wanted.data is None and seen.data is None):
            before = records.newest
            return Ensured(str(place), before is not None, before, digest_of(wanted))
        records.keep(seen, place.parent, place.name)
        make_folders(place.parent)
        put(place, seen, wanted)


def _of_text(path: str | Path, change: Callable[[str], str]) -> Callable[[SeenFile], SeenFile]:
    """The same change, of the text that a file holds."""

    def changed(seen: SeenFile) -> SeenFile:
        try:
            return SeenFile(change(_text(seen.data or b"")).encode(), seen.mode)
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
