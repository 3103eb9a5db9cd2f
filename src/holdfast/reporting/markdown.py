"""An audit as a page of Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.reporting.shown import CLAIMS, Item, Part, Sheet
from holdfast.workspace.markdown import block, code, prose

_ALL = 1 << 62


def to_markdown(sheet: Sheet) -> str:
    """The page. Nothing that the log holds can pass for a heading, a link or a tag of ours."""
    return "\n".join(_lines(sheet)) + "\n"


def _lines(sheet: Sheet) -> Iterator[str]:
    yield f"# {_text(sheet.title)}"
    yield ""
    yield f"**{_text(sheet.verdict)}**"
    yield ""
    yield from (f"- {_text(check)}" for check in sheet.checks)
    yield ""
    yield from (f"- {label}: {_text(text)}" for label, text in sheet.facts)
    if sheet.open:
        yield from ("", "## Open", "")
        yield from (f"- {_text(each)}" for each in sheet.open)
    if sheet.claims:
        yield from ("", "## Claims", "")
        yield f"| {' | '.join(CLAIMS)} |"
        yield "|" + "---|" * len(CLAIMS)
        for claim in sheet.claims:
            yield f"| {' | '.join(map(_text, claim))} |"
    yield from ("", "## Entries", "")
    if sheet.left_out:
        yield from (f"*{_text(sheet.left_out)}*", "")
    for item in sheet.items:
        yield from _item(item)


def _item(item: Item) -> Iterator[str]:
    call = f" {code(item.call)}" if item.call else ""
    yield f"### {item.seq} {_text(item.what)}{call}"
    yield ""
    yield f"{item.at}{f', {_text(item.who)}' if item.who else ''}"
    yield ""
    for part in item.parts:
        yield from _part(part)
    if item.parts:
        yield ""


def _part(part: Part) -> Iterator[str]:
    if "\n" in part.text or len(part.text) > 200:
        yield f"- {part.label}:"
        yield ""
        yield from (f"  {line}" for line in block(part.text, most=_ALL).split("\n"))
    else:
        shown = code(part.text) if part.is_code else _text(part.text)
        yield f"- {part.label}: {shown}"
    if part.cut:
        yield f"  ({_text(part.cut)})"


def _text(text: str) -> str:
    """A text in a line that begins with words of ours, to be seen as it is: also what `prose`
    leaves alone, such as entities, bars that divide a table, and addresses that turn into links."""
    text = prose(text, 2_000)
    for mark in "&_~|$":
        text = text.replace(mark, f"\\{mark}")
    return text.replace("://", "\\://").replace("www.", "www\\.")
