"""What a text becomes when it is to hold a line, a marked block, or a value under a key.

Plain functions of texts. Each leaves a text that holds it already exactly as it is, and changes
nothing else: not the line endings, not the byte order mark, not how JSON is indented.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from holdfast.errors import BadInput

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
