"""A task as one HTML file: to keep, to send, to read without a network.

It has no script in it, so nothing in a log can become one: each text is escaped, values stand in
folded blocks, and the policy in its head forbids everything but its own style.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from typing import Any

from holdfast.core.state import Call
from holdfast.core.words import plain
from holdfast.views.task import TaskView, position_of
from holdfast.web.asked import Download, PageRequest, Site
from holdfast.web.logs import event_rows, head_of, view_at
from holdfast.web.needs import Needs
from holdfast.web.shapes import ShownValues, call_words, calls_by, failure_of

MOST_EVENTS, MOST_CALLS = 5000, 2000
_PAGE = 500

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--quiet:light-dark(#5c6167,#99a1a9)}
body{font:14px/1.5 system-ui,sans-serif;max-width:64rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin:2rem 0 .4rem}
bdi,summary{overflow-wrap:anywhere}summary{cursor:pointer}
code,pre{font:12.5px/1.45 ui-monospace,monospace}summary code{color:var(--quiet)}
pre{white-space:pre-wrap;overflow-wrap:anywhere;margin:.3rem 0 .6rem;unicode-bidi:plaintext}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem}dd{margin:0}
article,.e{border-top:1px solid var(--line);padding:.35rem 0}
.of{display:flex;flex-wrap:wrap;gap:0 .8rem;align-items:baseline}
.e{display:grid;grid-template-columns:3rem 11.5rem 4rem minmax(0,1fr);gap:0 .6rem}
.n,dt{color:var(--quiet);font-variant-numeric:tabular-nums}.n:first-child{min-width:3rem}
.bad{color:light-dark(#ad241c,#ff9288)}.doubt{color:light-dark(#815300,#e9b551)}
.good{color:light-dark(#2a6b3d,#84cf98)}
@media(max-width:640px){.e{grid-template-columns:3rem minmax(0,1fr)}.e>:last-child{grid-column:2}}
"""
_BRIEF = 90


def exported(site: Site, asked: PageRequest) -> Download:
    """The file."""
    view = view_at(site.hf.store, asked.id, asked.number("at", None, least=1))
    pieces = (piece.encode("utf-8", "replace") for piece in _pieces(site, view))
    return Download(pieces, f"{view.id}.html", "text/html; charset=utf-8")


def _text(text: object) -> str:
    # Characters that change the direction of writing, or ring a bell, are written out.
    return f"<bdi>{escape(plain(str(text)))}</bdi>"


def _lines(text: str) -> str:
    return escape("\n".join(plain(line) for line in text.split("\n")))


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _pieces(site: Site, view: TaskView) -> Iterator[str]:
    needs = Needs(site, view)
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(plain(view.id))}</title><style>{_STYLE}</style></head><body>"
    )
    yield f"<h1>{_text(view.id)} · {_text(view.type)} · {_text(view.status.replace('_', ' '))}</h1>"
    yield f"<p>{_text(needs.todo())}</p><dl>"
    state = view.state
    facts: dict[str, Any] = {
        "position": position_of(view),
        "user": state.user,
        "session": state.session,
        "started": _time(state.created_at),
        "changed": _time(state.updated_at),
        "events": f"{view.seq:,}",
        "processes": state.claims,
        "exported": _time(datetime.now(UTC)),
    }
    for name, fact in facts.items():
        if fact:
            yield f"<dt>{name}</dt><dd>{_text(fact)}</dd>"
    yield "</dl>"
    values = ShownValues(site.hf.store, state)
    yield _value("Input", values.shown(state.args, "input"))
    yield _value("Result", values.shown(state.result, "result"))
    yield _failure(failure_of(view.failure))
    yield from _calls(view, values)
    yield from _events(site, view)
    yield "</body></html>"


def _value(title: str, value: dict[str, Any] | None) -> str:
    if value is None:
        return ""
    text = value.get("json", value.get("cut", ""))
    left = "" if "json" in value else f" (the beginning of {value['size']:,} bytes)"
    if not left and len(text) <= _BRIEF:
        return f"<div>{escape(title)} <code>{_text(text)}</code></div>"
    summary = f"<summary>{escape(title)}{left} <code>{_text(text[:_BRIEF])}…</code></summary>"
    return f"<details>{summary}<pre>{_lines(text)}</pre></details>"


def _failure(failure: dict[str, Any] | None) -> str:
    if failure is None:
        return ""
    title, trace = _text(failure["summary"]), _lines(failure["traceback"])
    return f'<details open><summary class="bad">{title}</summary><pre>{trace}</pre></details>'


def _calls(view: TaskView, values: ShownValues) -> Iterator[str]:
    paths = list(view.state.calls)
    more = f" (the newest {MOST_CALLS:,})" if len(paths) > MOST_CALLS else ""
    yield f"<h2>Calls: {len(paths):,}{more}</h2>"
    for first in range(max(len(paths) - MOST_CALLS, 0), len(paths), _PAGE):
        for call in calls_by(view.state, paths[first : first + _PAGE]):
            yield _call(call, values)


def _call(call: Call, values: ShownValues) -> str:
    tone = {"completed": "good", "failed": "bad"}.get(call.status, "doubt")
    inside = _value("input", values.shown(call.args, "call_input", call.path))
    inside += _value("output", values.shown(call.result, "call_output", call.path))
    inside += _failure(failure_of(call.failure))
    key = f'<div class="n">key {_text(call.key)}</div>' if call.key else ""
    return (
        f'<article><div class="of"><span class="n">{_text(call.path)}</span>'
        f'<b>{_text(call.name)}</b><span class="{tone}">{_text(call_words(call))}</span>'
        f'<span class="n">{_time(call.at)}</span></div>{key}{inside}</article>'
    )


def _events(site: Site, view: TaskView) -> Iterator[str]:
    store, head = site.hf.store, min(view.seq, head_of(site.hf.store, view.id))
    after = max(head - MOST_EVENTS, 0)
    more = f" (the newest {MOST_EVENTS:,})" if after else ""
    yield f"<h2>Events: {head:,}{more}</h2>"
    while after < head:
        rows = event_rows(store, view.id, after, min(_PAGE, head - after))
        if not rows:
            break
        for row in rows:
            name = f"<b>{_text(row['name'])}</b> " if row["name"] else ""
            yield (
                f'<div class="e"><span class="n">{row["seq"]}</span>'
                f'<span class="n">{_time(row["at"])}</span><span class="n">{_text(row["path"])}'
                f'</span><span>{name}<span class="{row["tone"]}">{_text(row["sentence"])}</span>'
                "</span></div>"
            )
        after = rows[-1]["seq"]
