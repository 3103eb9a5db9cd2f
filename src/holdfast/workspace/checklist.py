"""`plan.md`: a plan as a Markdown checklist that people and models can read and write.

    # Plan

    - [x] 1. Find rooms
    - [~] 2. Book one (after: 1)
      - [x] 2.1. Ask for a late arrival
      - [ ] 2.2. Pay
    - [ ] Tell Ada (id: tell) (after: 2)

The number is the item's id, and stays with it wherever it is moved; an item without one gets the
number of its place, or the next that is free. A nested item comes before the one that it is nested
in. Any plan that is printed comes back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Struct

from holdfast.core.decoding import Illegible, decode
from holdfast.core.plan import Plan, PlanItem, PlanStatus, circle_in, numbered
from holdfast.errors import BadInput

__all__ = [
    "find_plan",
    "parse",
    "print_plan",
]

# The lines of a Markdown checklist: which are items, and what text belongs to each.
#
# Headings, paragraphs, comments and code around the list are for people and are passed over.
# Inside an item every line counts: what could be misread as something else is written with a
# backslash in front of it or at its end, as Markdown has it, so that any text comes back as it
# was.


MARKS = {" ": "pending", "~": "doing", "x": "done", "!": "failed", "-": "skipped"}

_BULLET = re.compile(r"(?P<bullet>[-*+]|(?P<number>[0-9]{1,9})[.)])(?P<gap>[ \t]+|$)")
_NUMBER = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)*)(?P<dot>[.)]?)(?:\s+|$)")
_BOX = re.compile(r"\[(?P<mark>.?)\](?=\s|$)")
_FENCE = re.compile(r"(`{3,}|~{3,})")
_OTHER_BLOCK = re.compile(r"#{1,6}(\s|$)|>|\||([-*_])(\s*\2){2,}\s*$|={3,}$")
"""The lines that end a paragraph, so that they belong no more to the item above."""

SUFFIX = re.compile(
    r"""\s*\(\s*(?P<what>after|id)\s*:\s*(?P<ids>(?:"(?:[^"\\]|\\.)*"|[^()"])*?)\s*\)\Z""", re.I
)
"""The items that an item comes after, or its id, at the end of a line."""


class ChecklistItem(Struct):
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
    """The text in parentheses at the end of a line: "after" or "id", and the ids."""

    def add(self, line: str) -> None:
        """One more line of text, as it stands in the file."""
        while suffix := SUFFIX.search(line):
            line = line[: suffix.start()]
            self.suffixes.append((suffix["what"].lower(), suffix["ids"]))
        self.lines.append(unescaped(line))

    def begin(self, line: str, parent: ChecklistItem | None) -> None:
        """The first line, which may begin with a number."""
        if not self.number and (number := _NUMBER.match(line)):
            # "2.1 call" without a dot counts only below a 2: "1.5 litres" is a text.
            of_parent = parent is not None and number["number"].startswith(f"{parent.number}.")
            if number["dot"] or of_parent:
                self.number, line = number["number"], line[number.end() :]
        self.add(line)


def entries(text: str) -> list[ChecklistItem]:
    """The items of a checklist, in the order of the file; `BadInput` for what never ends."""
    found: list[ChecklistItem] = []
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


def _item(number: int, indent: int, content: str) -> ChecklistItem | None:
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
    return ChecklistItem(
        number, indent, inner, mark, bullet["number"] or "", [text], box is not None
    )


def _box(rest: str) -> re.Match[str] | None:
    box = _BOX.match(rest)
    # A digit refers to a source, as people write them.
    return None if box is None or box["mark"].isdigit() else box


def _counts(entry: ChecklistItem, found: list[ChecklistItem], above: list[int]) -> bool:
    """A bullet without a box is an item only where it stands between items: in the same list."""
    if entry.has_box:
        return True
    siblings = [found[place] for place in above if found[place].indent == entry.indent]
    return bool(siblings)


def _owner(
    found: list[ChecklistItem], above: list[int], indent: int, content: str, apart: int
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
    # A \\d or \\n that a person writes is no escape.
    return line.startswith("\\") and not line[1:2].isalpha()


_MARK_OF = {status: mark for mark, status in MARKS.items()}
_NUMERIC = re.compile(r"[0-9]+(\.[0-9]+)*")
_PLAIN_ID = re.compile(r"[^\s,;()\"]+( [^\s,;()\"]+)*")
_IDS = re.compile(r"""\s*("(?:[^"\\]|\\.)*"|[^,;"]+)\s*(?:[,;]|\Z)""")
_LISTED = re.compile(r"^( *)([0-9]{1,4}[.)])(?= +\S)(?! +\[.?\]\s)", re.MULTILINE)


def parse(text: str, before: Iterable[PlanItem] = ()) -> Plan:
    """The plan that a checklist says; `BadInput` names the line of what makes no sense.

    `before` is the plan that it was made from: an item without a number is that of `before` with
    the same text, and a new one gets no id that was in use there. To come after an item that was
    done there, and is gone from the list, asks for nothing.

    >>> parse("- [x] look\\n- [ ] book (after: 1)")[1]
    PlanItem(text='book', id='2', status='pending', after=('1',))
    >>> parse("I could not make a plan.")
    Traceback (most recent call last):
    holdfast.errors.BadInput: there is no checklist: an item is a line such as "- [ ] 1. call Ada"
    """
    found = entries(text)
    if not any(entry.has_box for entry in found):
        raise BadInput('there is no checklist: an item is a line such as "- [ ] 1. call Ada"')
    known = tuple(before)
    ids = _ids_of(found, known)
    gone = {item.id for item in known if item.status in ("done", "skipped")}.difference(ids)
    items = tuple(
        msgspec.structs.replace(item, after=tuple(id for id in item.after if id not in gone))
        for item in _items(found, ids)
    )
    return _checked(found, ids, items)


PLAN_HEADING = "# Plan"


def print_plan(items: Iterable[str | PlanItem]) -> str:
    """A plan as a Markdown checklist.

    >>> print(print_plan(["look", PlanItem("book", id="b", status="doing", after=("1",))]))
    # Plan
    <BLANKLINE>
    - [ ] 1. look
    - [~] book (id: b) (after: 1)
    <BLANKLINE>
    """
    plan = numbered(items)
    if not plan:
        return f"{PLAN_HEADING}\n\nNothing is planned yet.\n"
    parents = _parents(plan)
    children = _children(parents)
    depths: list[int] = []
    lines = [PLAN_HEADING, ""]
    for place, (item, parent) in enumerate(zip(plan, parents, strict=True)):
        depths.append(0 if parent is None else depths[parent] + 1)
        above = None if parent is None else plan[parent]
        nested = [plan[child].id for child in children.get(place, ())]
        lines += _printed(item, above, nested, "  " * depths[place])
    return "\n".join([*lines, ""])


def find_plan(text: str) -> Plan | None:
    """The plan in what an agent printed: the longest checklist, or else a numbered list.

    >>> find_plan("Here is my plan:\\n\\n1. look\\n2. book\\n\\nShall I begin?")
    (PlanItem(text='look', id='1', status='pending', after=()), \
PlanItem(text='book', id='2', status='pending', after=()))
    >>> find_plan("I have no idea.") is None
    True
    """
    blocks = [text, *_fenced(text), *_blocks(text)]
    boxed = [_LISTED.sub(r"\1\2 [ ]", block) for block in blocks[1:]]
    for candidates in (blocks, boxed):
        plans = [plan for block in candidates if (plan := _parsed(block))]
        if plans:
            return max(reversed(plans), key=len)
    return None


def _parsed(text: str) -> Plan | None:
    try:
        return parse(text)
    except BadInput:
        return None


def _fenced(text: str) -> list[str]:
    """The lines in code blocks: many models put their answer into one."""
    return [found[2] for found in re.finditer(r"(?ms)^ *(`{3,}|~{3,})[^\n]*\n(.*?)^ *\1", text)]


def _blocks(text: str) -> list[str]:
    """A text cut where something stands at the margin that is no list."""
    return re.split(r"(?m)^(?![-*+ \t]|[0-9]+[.)]|\s*$)[^\n]*$", text)


# Reading


def _ids_of(found: Sequence[ChecklistItem], before: Plan) -> list[str]:
    """The id of each entry: said, or by its number, or of the item it was, or by its place."""
    ids = [_said_id(entry) for entry in found]
    known = {item.id for item in before}
    lists = _children([entry.parent for entry in found])
    for parent, places in lists.items():  # a list comes after that of its parent
        prefix = "" if parent is None else f"{ids[parent]}."
        _number(found, ids, places, prefix, before, known)
    return ids


def _number(
    found: Sequence[ChecklistItem],
    ids: list[str],
    places: Sequence[int],
    prefix: str,
    before: Plan,
    known: set[str],
) -> None:
    said = [found[place].number for place in places if found[place].number]
    all_alike = len(said) > 1 and len(set(said)) == 1  # "1." throughout, as Markdown allows
    for place in places:
        number = found[place].number
        if not ids[place] and number and not all_alike:
            ids[place] = number if "." in number else f"{prefix}{number}"
    by_text = {item.text: item.id for item in reversed(before)}
    for place in places:
        same = by_text.get("\n".join(found[place].lines), "")
        if not ids[place] and same not in ids:
            ids[place] = same
    for at, place in enumerate(places, 1):
        if not ids[place]:
            ids[place] = _free_number(prefix, at, {*ids, *known})


def _free_number(prefix: str, at: int, taken: set[str]) -> str:
    if f"{prefix}{at}" not in taken:
        return f"{prefix}{at}"
    rest = (id.removeprefix(prefix) for id in taken if id.startswith(prefix))
    return f"{prefix}{1 + max(int(n) for n in rest if n.isdecimal() and n.isascii())}"


def _said_id(entry: ChecklistItem) -> str:
    for what, ids in entry.suffixes:
        if what == "id":
            said = _ids_in(entry, ids)
            if len(said) != 1:
                raise BadInput(f'line {entry.line}: "(id: {ids})" must hold one id')
            return said[0]
    return ""


def _ids_in(entry: ChecklistItem, text: str) -> list[str]:
    """The ids of a suffix: bare, or in double quotes where they hold other signs."""
    ids: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        found = _IDS.match(text, place)
        if found is None:
            raise BadInput(f'line {entry.line}: ids are given like "1, 3", not "{text:.60}"')
        place = found.end()
        ids.append(_unquoted(entry, found[1].strip()))
    return ids


def _unquoted(entry: ChecklistItem, id: str) -> str:
    if not id.startswith('"'):
        return id
    try:
        return decode(id, str)
    except Illegible:
        raise BadInput(f"line {entry.line}: {id:.60} is no text in double quotes") from None


def _items(found: Sequence[ChecklistItem], ids: Sequence[str]) -> Plan:
    plan = []
    nested = _children([entry.parent for entry in found])
    for place, (entry, id) in enumerate(zip(found, ids, strict=True)):
        after = [
            each
            for what, said in entry.suffixes
            if what == "after"
            for each in _ids_in(entry, said)
        ]
        children = [ids[child] for child in nested.get(place, ())]
        after += [child for child in children if child not in after]
        status: PlanStatus = MARKS[entry.mark]  # type: ignore[assignment]
        plan.append(PlanItem("\n".join(entry.lines), id, status, tuple(after)))
    return tuple(plan)


def _checked(found: Sequence[ChecklistItem], ids: Sequence[str], plan: Plan) -> Plan:
    line_of: dict[str, int] = {}
    for entry, id in zip(found, ids, strict=True):
        first = line_of.setdefault(id, entry.line)
        if first != entry.line:
            raise BadInput(
                f"line {entry.line}: item {id!a:.60} is on line {first} already: give this one "
                f"another number, or none"
            )
    for item in plan:
        if unknown := [each for each in item.after if each not in line_of]:
            known = ", ".join(f"{id!a:.40}" for id in ids[:12])
            raise BadInput(
                f"line {line_of[item.id]}: item {item.id!a:.60} comes after {unknown[0]!a:.60}, "
                f"which is no item here. There are {known}{', …' if len(ids) > 12 else ''}"
            )
    if circle := circle_in(plan):
        told = " before ".join(f"{id!a:.40}" for id in circle[:12])
        raise BadInput(
            f"line {min(line_of[id] for id in circle)}: items wait for each other: {told} (what is "
            f"nested comes before what it is nested in)"
        )
    return plan


def _children(parents: Iterable[int | None]) -> dict[int | None, list[int]]:
    """Of each item the places of those that are nested in it; under None those in nothing."""
    found: dict[int | None, list[int]] = {}
    for place, parent in enumerate(parents):
        found.setdefault(parent, []).append(place)
    return found


# Printing


def _parents(plan: Plan) -> list[int | None]:
    """Which item each is nested in: one that comes after it and that it is named after."""
    parents: list[int | None] = []
    above: list[int] = []
    for place, item in enumerate(plan):
        while above and not _is_child(item, plan[above[-1]]):
            above.pop()
        parents.append(above[-1] if above else None)
        above.append(place)
    return parents


def _is_child(item: PlanItem, parent: PlanItem) -> bool:
    rest = item.id.removeprefix(f"{parent.id}.")
    is_named_after = rest != item.id and rest.isdecimal() and rest.isascii()
    return is_named_after and item.id in parent.after


def _printed(item: PlanItem, above: PlanItem | None, children: list[str], indent: str) -> list[str]:
    number = item.id if _NUMERIC.fullmatch(item.id) else ""
    if above is not None and not number:
        number = item.id.removeprefix(f"{above.id}.")
    others = tuple(id for id in item.after if id not in children)
    after = others if (*others, *children) == item.after else item.after
    suffix = "" if number else f" (id: {_quoted(item.id)})"
    suffix += f" (after: {', '.join(map(_quoted, after))})" if after else ""
    own = item.text.split("\n")
    first, *rest = (
        escaped(
            line,
            is_first=n == 0,
            is_last=n == len(own) - 1,
            has_number=bool(number),
        )
        for n, line in enumerate(own)
    )
    head = f"{indent}- [{_MARK_OF[item.status]}] {number + '. ' if number else ''}{first}{suffix}"
    return [head, *(f"{indent}  {line}" if line else "" for line in rest)]


def _quoted(id: str) -> str:
    return id if _PLAIN_ID.fullmatch(id) else msgspec.json.encode(id).decode()
