"""An audit as people read it, apart from how it is printed: a head, and an item for each entry.

Texts are as the log has them: the code that prints them makes them harmless.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import asdict

from holdfast.core.words import beginning
from holdfast.views.audit import Audit, AuditEntry, Verification
from holdfast.views.audit.entry import AuditStream, stream_of_audit
from holdfast.views.words import block, code, one_line, prose

MOST_LINES = 20

_SIGNATURES = {
    "checked": "every line has a signature that fits the key",
    "encrypted": "every line opened with the key of the store",
    "not_checked": "the lines are signed, and no key was given: the signatures were not checked",
    "none": "the log is not signed: sums show damage, not a change by who computed them anew",
}


class EntryPart(Struct, frozen=True):
    """One thing that is said of an entry."""

    label: str
    text: str
    is_code: bool = False
    """Whether it is a value, and not a sentence."""
    cut: str = ""
    """The length of the part left out, and where the whole is."""


class Item(Struct, frozen=True):
    """An entry: a line, and what is said of it."""

    seq: int
    at: str
    what: str
    call: str
    """Path and name of the call, or the name alone."""
    who: str
    parts: tuple[EntryPart, ...]


class Sheet(Struct, frozen=True):
    """An audit, ready to be printed."""

    title: str
    sound: bool
    verdict: str
    checks: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    claims: tuple[tuple[str, ...], ...]
    """Epoch, owner, engine, from, to, events, and how each came to be."""
    open: tuple[str, ...]
    items: Iterable[Item]
    """Made as they are taken, once."""
    left_out: str
    """How many entries are not shown."""


CLAIMS = ("epoch", "who", "engine", "from", "to", "events", "how")


def sheet(given: Audit | AuditStream, *, full: bool = False) -> Sheet:
    """The printed form of an audit. Unless it is `full`, long values are cut."""
    told = stream_of_audit(given) if isinstance(given, Audit) else given
    audit = told.audit
    claims = tuple(
        (str(c.epoch), c.owner, c.engine, utc(c.at), utc(c.last_at), f"{c.events:,}", c.how)
        for c in audit.claims
    )
    left_out = f"{audit.left_out:,} other entries are not shown" if audit.left_out else ""
    return Sheet(
        f"Audit of task {audit.id}",
        audit.verification.sound,
        verdict(audit.verification),
        tuple(_checks(audit.verification)),
        tuple((label, text) for label, text in _facts(told) if text),
        claims,
        audit.open,
        (_item(audit.id, entry, full) for entry in told.entries),
        left_out,
    )


def utc(at: datetime | None) -> str:
    """A time, to the millisecond.

    >>> utc(datetime(2026, 5, 1, 12, tzinfo=UTC))
    '2026-05-01 12:00:00.000 UTC'
    """
    if at is None:
        return ""
    return f"{at.astimezone(UTC).isoformat(' ', 'milliseconds')[:23]} UTC"


def verdict(found: Verification) -> str:
    """Whether the log can be believed, in one line."""
    if found.sound:
        return f"The log is as it was written: {found.events:,} events were checked."
    return (
        f"THE LOG IS DAMAGED: this report tells of what comes before the damage, up to event "
        f"{found.head_seq:,}."
    )


def _checks(found: Verification) -> Iterator[str]:
    yield from found.damage
    yield _SIGNATURES[found.signatures]
    if found.head_seq:
        head = f"event {found.head_seq}, sum {found.head_sum}"
        yield f"its head, by which it can be known again: {head}"


def _facts(told: AuditStream) -> Iterator[tuple[str, str]]:
    audit = told.audit
    yield "task", audit.type
    yield "status", audit.status
    yield "user", audit.user
    yield "session", audit.session
    yield "labels", ", ".join(f"{name}={value}" for name, value in sorted(audit.labels.items()))
    yield "version", str(audit.version) if audit.version else ""
    yield "parent", audit.parent
    yield "shares the past of", audit.origin
    yield "forks", ", ".join(audit.forks)
    yield "created", utc(audit.created_at)
    yield "last event", utc(audit.updated_at)
    yield "people", ", ".join(f"{name} ({count})" for name, count in told.people.items())
    yield "store", audit.store
    yield "report made", utc(audit.made_at)


def _item(task: str, entry: AuditEntry, full: bool) -> Item:
    call = " ".join(each for each in (entry.path, entry.name) if each)
    parts = tuple(_parts(task, entry, full))
    return Item(entry.seq, utc(entry.at), entry.what, call, entry.who, parts)


def _parts(task: str, entry: AuditEntry, full: bool) -> Iterator[EntryPart]:
    if entry.attempt > 1:
        yield EntryPart("attempt", str(entry.attempt))
    yield from _sentences(entry)
    for label, value in (
        ("input", entry.input),
        ("options", entry.options),
        ("output", entry.output),
    ):
        if value is not UNSET:
            yield _value(label, value, task, entry, full)
    if entry.failure is not None:
        timed_out = " (timed out)" if entry.failure.timed_out else ""
        yield EntryPart("failure", f"{entry.failure.summary()}{timed_out}", True)
        if entry.failure.traceback:
            yield _value("traceback", entry.failure.traceback, task, entry, full)
    for problem in entry.problems:
        yield EntryPart("problem", problem)


def _sentences(entry: AuditEntry) -> Iterator[EntryPart]:
    of = ", ".join(entry.of)
    for label, text in (
        ("verdict", entry.verdict.replace("_", " ")),
        ("how", entry.how),
        ("goes on from event", f"{entry.to:,}" if entry.to else ""),
        ("text", entry.text),
        ("because", entry.because),
        ("of", of),
        ("task", entry.task),
        ("in the log of", entry.log),
        ("key", entry.key),
        ("as of" if entry.what == "fact" else "until", utc(entry.until)),
        ("approved by", entry.approved_by),
        ("approved at", utc(entry.approved_at)),
        ("superseded by", entry.superseded_by),
        ("took", f"{entry.duration_s:.3f} s" if entry.duration_s is not None else ""),
    ):
        if text:
            yield EntryPart(label, text)


def _value(label: str, value: Any, task: str, entry: AuditEntry, full: bool) -> EntryPart:
    text = value_text(value)
    kept = text if full else beginning(text, MOST_LINES)
    if len(kept) == len(text):
        return EntryPart(label, text, True)
    command = shlex.join(("holdfast", "audit", task, "--event", str(entry.seq)))
    size = f"{len(kept):,} of {len(text):,} characters"
    cut = f"{size}; the whole: {command} --format jsonl"
    return EntryPart(label, kept, True, cut)


def value_text(value: Any) -> str:
    """A value for reading: text of several lines as it is, all else as JSON.

    >>> value_text({"a": [1, 2]}), value_text("one")
    ('{"a":[1,2]}', '"one"')
    """
    if isinstance(value, str) and "\n" in value:
        return value
    data = msgspec.json.encode(value)
    if len(data) > 72:
        spread = msgspec.json.format(data, indent=2)
        # A text that would be cut after a few short lines tells more as one long line.
        data = spread if spread.count(b"\n") < MOST_LINES else msgspec.json.format(data, indent=0)
    return data.decode()


# An audit as a page of Markdown.


_ALL = 1 << 62


def to_markdown(sheet: Sheet) -> str:
    """The page. Nothing that the log holds can pass for a heading, a link or a tag of ours."""
    return "\n".join(markdown_lines(sheet)) + "\n"


def markdown_lines(sheet: Sheet) -> Iterator[str]:
    """The lines of it, without what ends them."""
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
        yield from _markdown_item(item)


def _markdown_item(item: Item) -> Iterator[str]:
    call = f" {code(item.call)}" if item.call else ""
    yield f"### {item.seq} {_text(item.what)}{call}"
    yield ""
    yield f"{item.at}{f', {_text(item.who)}' if item.who else ''}"
    yield ""
    for part in item.parts:
        yield from _part(part)
    if item.parts:
        yield ""


def _part(part: EntryPart) -> Iterator[str]:
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


# An audit as JSON lines: the head on the first, and each entry on one of its own, whole.


VERSION = 1
"""Of the fields. An added field does not change it; a field that changes its meaning does."""


def to_jsonl(given: Audit | AuditStream) -> Iterator[str]:
    """The lines, without what ends them."""
    told = stream_of_audit(given) if isinstance(given, Audit) else given
    head: dict[str, Any] = asdict(told.audit)
    del head["entries"]
    yield _line({"record": "audit", "format": VERSION, **head, "count": told.count})
    for entry in told.entries:
        # Not by `asdict`: what is left out of an entry is to be left out here too.
        yield _line({"record": "entry"} | msgspec.to_builtins(entry))


def _line(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# An audit as one file of HTML: no script, nothing from elsewhere, and readable on paper.
#
# Every text goes through `_html`, which leaves nothing for a browser to act on; and should anything
# slip through, the page forbids scripts and whatever would have to be fetched.


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
    return "\n".join(html_lines(sheet)) + "\n"


def html_lines(sheet: Sheet) -> Iterator[str]:
    """The lines of it, without what ends them."""
    yield _HEAD.format(title=_html(sheet.title)) + f"<h1>{_html(sheet.title)}</h1>"
    yield f'<div class="verdict{"" if sheet.sound else " damaged"}">{_html(sheet.verdict)}'
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
        yield f"<p>{_html(sheet.left_out)}</p>"
    yield from map(_html_item, sheet.items)
    yield "</body>\n</html>"


def _html_item(item: Item) -> str:
    call = f"<code>{_html(item.call)}</code> " if item.call else ""
    who = f", {_html(item.who)}" if item.who else ""
    return (
        f'<section><header><span class="seq">{item.seq}</span> <b>{_html(item.what)}</b>{call}'
        f'<div class="when">{item.at}{who}</div></header>'
        f"<dl>{''.join(map(_html_part, item.parts))}</dl></section>"
    )


def _html_part(part: EntryPart) -> str:
    is_block = part.is_code or "\n" in part.text
    shown = f"<pre>{_html_block(part.text)}</pre>" if is_block else _html(part.text)
    cut = f'<div class="cut">{_html(part.cut)}</div>' if part.cut else ""
    return f"<dt>{_html(part.label)}</dt><dd>{shown}{cut}</dd>"


def _fact(fact: tuple[str, str]) -> str:
    return f"<dt>{_html(fact[0])}</dt><dd>{_html(fact[1])}</dd>"


def _list(texts: tuple[str, ...]) -> str:
    return "<ul>" + "".join(f"<li>{_html(text)}</li>" for text in texts) + "</ul>"


def _row(cell: str, texts: tuple[str, ...]) -> str:
    return "<tr>" + "".join(f"<{cell}>{_html(text)}</{cell}>" for text in texts) + "</tr>"


def _html(text: str) -> str:
    return escape(one_line(text, _ALL))


def _html_block(text: str) -> str:
    return "\n".join(_html(line.removesuffix("\r").expandtabs(4)) for line in text.split("\n"))
