"""The lines of a Markdown checklist: which are items, and what text belongs to each.

Headings, paragraphs, comments and code around the list are for people and are passed over. Inside
an item every line counts: what could be misread as something else is written with a backslash in
front of it or at its end, as Markdown has it, so that any text comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from holdfast.errors import BadInput

MARKS = {" ": "pending", "~": "doing", "x": "done", "!": "failed", "-": "skipped"}

_BULLET = re.compile(r"(?P<bullet>[-*+]|(?P<number>[0-9]{1,9})[.)])(?P<gap>[ \t]+|$)")
_NUMBER = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)*)(?P<dot>[.)]?)(?:\s+|$)")
_BOX = re.compile(r"\[(?P<mark>.?)\](?=\s|$)")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_OTHER_BLOCK = re.compile(r"#{1,6}(\s|$)|>|\||([-*_])(\s*\2){2,}\s*$|={3,}$")
"""What ends a paragraph, so that it is no more of the item above it."""

SUFFIX = re.compile(
    r"""\s*\(\s*(?P<what>after|id)\s*:\s*(?P<ids>(?:"(?:[^"\\]|\\.)*"|[^()"])*?)\s*\)\Z""", re.I
)
"""What an item comes after, or its id, at the end of a line."""


class Entry(Struct):
    """One item as it stands in the file."""

    line: int
    """Where it begins, counted from 1."""
    indent: int
    inner: int
    """Where its text begins: what is indented as far belongs to it."""
    mark: str
    number: str
    """The number that stands before its text, or ''."""
    lines: list[str]
    has_box: bool
    parent: int | None = None
    """Its place among the entries."""
    suffixes: list[tuple[str, str]] = []
    """What stands in parentheses at the end of a line: "after" or "id", and the ids."""

    def add(self, line: str) -> None:
        """One more line of text, as it stands in the file."""
        while suffix := SUFFIX.search(line):
            line = line[: suffix.start()]
            self.suffixes.append((suffix["what"].lower(), suffix["ids"]))
        self.lines.append(unescaped(line))

    def begin(self, line: str, parent: Entry | None) -> None:
        """The first line, which may begin with a number."""
        if not self.number and (number := _NUMBER.match(line)):
            # "2.1 call" without a dot counts only below a 2: "1.5 litres" is a text.
            of_parent = parent is not None and number["number"].startswith(f"{parent.number}.")
            if number["dot"] or of_parent:
                self.number, line = number["number"], line[number.end() :]
        self.add(line)


def entries(text: str) -> list[Entry]:
    """The items of a checklist, in the order of the file; `BadInput` for what never ends."""
    found: list[Entry] = []
    above: list[int] = []  # the entries that the next line may belong to, outermost first
    blanks = 0
    for number, line, is_code in _lines(text):
        content = line.lstrip(" ")
        indent = len(line) - len(content)
        if not content:
            blanks += 1
            continue
        entry = None if is_code else _item(number, indent, content)
        if entry is not None and _counts(entry, found, above):
            while above and found[above[-1]].indent >= indent:
                above.pop()
            entry.parent = above[-1] if above else None
            entry.begin(entry.lines.pop(), found[above[-1]] if above else None)
            above.append(len(found))
            found.append(entry)
        elif (owner := _owner(found, above, indent, content, blanks or is_code)) is not None:
            held = found[owner]
            held.lines += [""] * blanks
            own = line[min(indent, held.inner) :]
            held.lines.append(own) if is_code else held.add(own)
        else:
            above = []
        blanks = 0
    return found


def _item(number: int, indent: int, content: str) -> Entry | None:
    bullet = _BULLET.match(content)
    if bullet is None:
        return None
    rest = content[bullet.end() :]
    box = _box(rest)
    mark = (box["mark"].lower() or " ") if box else " "
    if mark not in MARKS:
        raise BadInput(
            f"line {number}: [{mark}] is no mark of a checklist. There are [ ] to do, [~] doing, "
            f"[x] done, [!] failed and [-] skipped"
        )
    text = rest[box.end() :].lstrip() if box else rest
    inner = indent + len(bullet["bullet"]) + 1
    return Entry(number, indent, inner, mark, bullet["number"] or "", [text], box is not None)


def _box(rest: str) -> re.Match[str] | None:
    box = _BOX.match(rest)
    # A digit refers to a source, as people write them.
    return None if box is None or box["mark"].isdigit() else box


def _counts(entry: Entry, found: list[Entry], above: list[int]) -> bool:
    """A bullet without a box is an item only where it stands between items: in the same list."""
    if entry.has_box:
        return True
    siblings = [found[place] for place in above if found[place].indent == entry.indent]
    return bool(siblings)


def _owner(
    found: list[Entry], above: list[int], indent: int, content: str, apart: int
) -> int | None:
    """The entry that a line of text belongs to, if it belongs to any."""
    inside = [place for place in above if indent >= found[place].inner]
    if apart or _BULLET.match(content) or _OTHER_BLOCK.match(content):
        return inside[-1] if inside else None
    return above[-1] if above else None  # a line that was wrapped by hand


def _lines(text: str) -> Iterator[tuple[int, str, bool]]:
    """The lines that mean something, with their numbers, and whether each is code.

    Code is never a list, but may belong to the text of an item. Comments are nothing.
    """
    end, began = "", 0
    for number, raw in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        line = _detabbed(raw.rstrip())
        content = line.lstrip(" ")
        if end == "-->":
            end = "" if end in content else end
        elif end:
            end = "" if content.startswith(end) and not content.strip(end[0]) else end
            yield number, line, True
        elif content.startswith("<!--"):
            end, began = "" if "-->" in content else "-->", number
        elif fence := _FENCE.match(content):
            end, began = fence[0], number
            yield number, line, True
        else:
            yield number, line, False
    if end:
        raise BadInput(f"line {began}: what begins here is never closed: {end} is missing")


def _detabbed(line: str) -> str:
    content = line.lstrip(" \t")
    return line[: len(line) - len(content)].expandtabs(4) + content


def escaped(line: str, *, is_first: bool, is_last: bool, has_number: bool) -> str:
    """A line of an item's text so that it is read as nothing else."""
    if not line:
        return "\\" if is_first or is_last else ""
    if is_first:
        is_misread = line[0].isspace() or (not has_number and line[0].isdigit())
    else:
        is_misread = _is_misread(line)
    front = "\\" if is_misread or _begins_escaped(line) else ""
    back = "\\" if line[-1].isspace() or line[-1] == "\\" or SUFFIX.search(line) else ""
    return f"{front}{line}{back}"


def _is_misread(line: str) -> bool:
    content = line.lstrip()
    bullet = _BULLET.match(content)
    is_item = bullet is not None and _box(content[bullet.end() :]) is not None
    starts_otherwise = content.startswith("<!--") or _FENCE.match(content) is not None
    return is_item or starts_otherwise or (line[0].isspace() and line[0] != " ")


def unescaped(line: str) -> str:
    """The text of a line again, without what was written to keep it apart."""
    if _begins_escaped(line):
        line = line[1:]
    return line.removesuffix("\\")


def _begins_escaped(line: str) -> bool:
    # What a person writes as \\d or \\n is no escape.
    return line.startswith("\\") and not line[1:2].isalpha()
