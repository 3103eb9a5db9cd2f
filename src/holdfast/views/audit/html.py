"""An audit as one file of HTML: no script, nothing from elsewhere, and readable on paper.

Every text goes through `_text`, which leaves nothing for a browser to act on; and should anything
slip through, the page forbids scripts and whatever would have to be fetched.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from holdfast.views.audit.shown import CLAIMS, EntryPart, Item, Sheet
from holdfast.views.markdown import one_line

_ALL = 1 << 62

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff; overflow-wrap: anywhere; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.2rem; margin-top: 2rem; }}
.verdict {{ border-left: .4rem solid #2a7; padding: .5rem 1rem; background: #f3faf6; }}
.verdict.damaged {{ border-color: #c22; background: #fdf2f2; font-weight: bold; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ text-align: left; vertical-align: top; padding: .2rem .6rem .2rem 0; }}
section {{ border-top: 1px solid #ddd; padding: .4rem 0; break-inside: avoid; }}
section header b {{ margin-right: .4rem; }}
.seq, .when, dt, .cut {{ color: #666; }}
dl {{ display: grid; grid-template-columns: 8rem 1fr; margin: .2rem 0 0; }} dd {{ margin: 0; }}
pre, code {{ font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap; margin: 0; }}
@media print {{ body {{ margin: 0; max-width: none; font-size: 10pt; }} }}
</style>
</head>
<body>
"""


def to_html(sheet: Sheet) -> str:
    """The page."""
    head = _HEAD.format(title=_text(sheet.title))
    return head + "\n".join(_lines(sheet)) + "\n</body>\n</html>\n"


def _lines(sheet: Sheet) -> Iterator[str]:
    yield f"<h1>{_text(sheet.title)}</h1>"
    yield f'<div class="verdict{"" if sheet.sound else " damaged"}">{_text(sheet.verdict)}'
    yield _list(sheet.checks) + "</div>"
    yield "<dl>" + "".join(map(_fact, sheet.facts)) + "</dl>"
    if sheet.open:
        yield "<h2>Open</h2>" + _list(sheet.open)
    if sheet.claims:
        yield "<h2>Claims</h2>\n<table>"
        yield _row("th", CLAIMS)
        yield from (_row("td", claim) for claim in sheet.claims)
        yield "</table>"
    yield "<h2>Entries</h2>"
    if sheet.left_out:
        yield f"<p>{_text(sheet.left_out)}</p>"
    yield from map(_item, sheet.items)


def _item(item: Item) -> str:
    call = f"<code>{_text(item.call)}</code> " if item.call else ""
    who = f", {_text(item.who)}" if item.who else ""
    return (
        f'<section><header><span class="seq">{item.seq}</span> <b>{_text(item.what)}</b>{call}'
        f'<div class="when">{item.at}{who}</div></header>'
        f"<dl>{''.join(map(_part, item.parts))}</dl></section>"
    )


def _part(part: EntryPart) -> str:
    is_block = part.is_code or "\n" in part.text
    shown = f"<pre>{_texts(part.text)}</pre>" if is_block else _text(part.text)
    cut = f'<div class="cut">{_text(part.cut)}</div>' if part.cut else ""
    return f"<dt>{_text(part.label)}</dt><dd>{shown}{cut}</dd>"


def _fact(fact: tuple[str, str]) -> str:
    return f"<dt>{_text(fact[0])}</dt><dd>{_text(fact[1])}</dd>"


def _list(texts: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{_text(text)}</li>" for text in texts) + "</ul>"


def _row(cell: str, texts: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{cell}>{_text(text)}</{cell}>" for text in texts) + "</tr>"


def _text(text: str) -> str:
    return escape(one_line(text, _ALL))


def _texts(text: str) -> str:
    return "\n".join(_text(line.removesuffix("\r").expandtabs(4)) for line in text.split("\n"))
