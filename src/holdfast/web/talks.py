"""Conversations: sessions, their messages, and exactly what a model call saw of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.agent.model_calls import AskedModel, asked_in, listed, saw, session_of
from holdfast.agent.sessions import Session, open_session
from holdfast.core.conversation import Conversation
from holdfast.core.conversation import advance as said_next
from holdfast.core.decoding import damage_in
from holdfast.core.words import cut
from holdfast.engines.origins import said_by, sessions_of
from holdfast.errors import BadInput
from holdfast.log.artifacts import opened
from holdfast.log.messages import (
    Media,
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    load_turn,
)
from holdfast.log.reading import session_stream
from holdfast.stores.listing import page_of_sessions
from holdfast.views.audit.pages import sheet, to_markdown
from holdfast.web.asked import Download, Failing, PageRequest, Site
from holdfast.web.logs import view_at
from holdfast.web.needs import row_of
from holdfast.web.past import image_type
from holdfast.web.shapes import (
    IN_LISTS,
    ShownValues,
    address,
    plain_value,
    text_value,
    usage_data,
    usage_of,
)

Data = dict[str, Any]
_MOST_TEXT = 32 * 1024
_MOST_TASKS, _MOST_CALLS = 200, 2000


def sessions(site: Site, asked: PageRequest) -> Data:
    """A page of sessions, the newest first."""
    filters = {"user": asked.text("user") or None, "status": asked.text("status") or None}
    limit = int(asked.number("limit", 50, least=1, most=200) or 50)
    page = page_of_sessions(site.hf.store, filters, limit, asked.text("cursor") or None)
    return {
        "sessions": [msgspec.to_builtins(each) for each in page.sessions],
        "next": page.next,
        "unreadable": [str(error)[:300] for error in page.unreadable],
    }


def session(site: Site, asked: PageRequest) -> Data:
    """One session: what it is, its compactions, and the tasks that took part."""
    found = open_session(site.hf.store, asked.id)
    state = found.state
    page = site.hf.page(session=state.id, limit=_MOST_TASKS)
    told = ("id", "user", "status", "labels", "created_at", "updated_at", "because", "messages")
    return {
        **{name: getattr(state, name) for name in told},
        "pinned": sorted(state.pinned),
        "summaries": _summaries(found, state),
        "tasks": [row_of(each) for each in page.tasks],
        "tasks_next": page.next,
        "fork": state.fork.of if state.fork is not None else "",
        "commands": {"show": site.hints.command("session", state.id)},
    }


def _summaries(found: Session, state: Conversation) -> list[Data]:
    return [
        {
            "upto": each.upto,
            "at": each.at,
            "task": each.task,
            "text": cut(found.book.summary_text(each), 4000),
        }
        for each in state.summaries[-200:]
    ]


def messages(site: Site, asked: PageRequest) -> Data:
    """A page of the messages of a session, by number."""
    found = open_session(site.hf.store, asked.id)
    state = found.state
    first, last = _range(asked, state.messages)
    said = found.messages(first, last) if first <= last else ()
    return {
        "messages": _shown(asked.id, said, state),
        "total": state.messages,
        "offset": first - 1,
    }


def _range(asked: PageRequest, total: int) -> tuple[int, int]:
    limit = int(asked.number("limit", 100, least=1, most=500) or 100)
    offset = int(asked.number("offset", 0) or 0)
    if asked.flag("newest") and not asked.text("offset"):
        offset = max(total - limit, 0)
    return offset + 1, min(offset + limit, total)


def conversation(site: Site, asked: PageRequest) -> Data:
    """The messages in the session of a task by the time of an event."""
    store = site.hf.store
    now = view_at(store, asked.id, asked.number("at", None, least=1)).state
    id = next(sessions_of(store, now), None)
    if id is None:
        return {"session": None, "messages": [], "total": 0, "offset": 0, "summaries": []}
    with damage_in(session_stream(id)):
        said = Conversation()
        for event, _ in said_by(store, id, now):
            said_next(said, event)
        first, last = _range(asked, said.messages)
        found = list[Message]()
        if first <= last:
            for turn in range(said.turn_of(first), said.turn_of(last) + 1):
                found += load_turn(store, said.turns[turn], said.firsts[turn])
    inside = [each for each in found if first <= each.number <= last]
    return {
        "session": id,
        "messages": _shown(id, inside, said),
        "total": said.messages,
        "offset": first - 1,
        "summaries": _summaries(open_session(store, id), said),
    }


def _shown(session: str, said: Iterable[Message], state: Conversation) -> list[Data]:
    upto = state.summary.upto if state.summary is not None else 0
    return [message_data(session, each, state.pinned, upto) for each in said]


def message_data(
    session: str, message: Message, pinned: Iterable[int] = (), summarized: int = 0
) -> Data:
    """One message: who said what, in blocks."""
    return {
        "number": message.number,
        "role": message.role,
        "name": message.name,
        "at": message.at,
        "task": message.task,
        "path": message.step,
        "pinned": message.number in pinned,
        "summarized": 0 < message.number <= summarized,
        "blocks": [
            _block(session, message.number, place, part) for place, part in enumerate(message.parts)
        ],
    }


def _text(kind: str, text: str, href: str) -> Data:
    """A text, or its beginning and where to have all of it."""
    size, is_long = len(text), len(text) > _MOST_TEXT
    return {
        "kind": kind,
        "text": cut(text, _MOST_TEXT),
        "size": size,
        "cut": is_long,
        "href": href if is_long else "",
    }


def _block(session: str, number: int, place: int, part: Any) -> Data:
    # Additions of the harness are no messages of the session: they have no number.
    href = address("sessions", session, "media", number=number, place=place) if number else ""
    match part:
        case Text() | Refusal():
            return _text("text", part.text, href)
        case Thinking():
            return _text("thinking", part.text, href)
        case ToolCall():
            given = text_value(part.arguments, "", IN_LISTS)
            return {"kind": "tool_call", "id": part.id, "name": part.name, "input": given}
        case ToolResult():
            told = _text("tool_result", _texts(part.content), href)
            return told | {
                "id": part.call_id,
                "name": "",
                "is_error": part.is_error,
                "output": None,
            }
        case Media():
            size = part.artifact.size_bytes if part.artifact is not None else 0
            return {
                "kind": "media",
                "media_type": cut(part.media_type or part.kind, 100),
                "name": cut(part.name, 200),
                "size": size,
                "href": href if part.artifact is not None else None,
            }
    return {"kind": "other", "value": plain_value(part, "", IN_LISTS)}


def _texts(parts: str | Iterable[Any]) -> str:
    if isinstance(parts, str):
        return parts
    return "\n".join(each.text if isinstance(each, Text) else "(no text)" for each in parts)


def media(site: Site, asked: PageRequest) -> Download:
    """A part of a message, whole: a text, an image or a file. Only images are shown in place."""
    store, number = site.hf.store, int(asked.number("number", 0) or 0)
    place = int(asked.number("place", 0) or 0)
    message = next(iter(open_session(store, asked.id).messages(number, number)), None)
    parts = message.parts if message is not None else ()
    part = parts[place] if place < len(parts) else None
    if isinstance(part, Text | Refusal | Thinking | ToolResult):
        text = _texts(part.content) if isinstance(part, ToolResult) else part.text
        data = text.encode("utf-8", "replace")
        return Download(iter([data]), f"message-{number}-{place}.txt", "text/plain; charset=utf-8")
    if not isinstance(part, Media) or part.artifact is None:
        raise Failing(404, "not_found", "there is no such part of a message")
    content = opened(store, part.artifact)
    kind = image_type(content.read(16))
    content.seek(0)
    pieces = iter(lambda: content.read(256 * 1024), b"")
    return Download(
        pieces, part.name or f"part-{number}-{place}",
        kind or "application/octet-stream", inline=bool(kind),
    )  # fmt: skip


# The inputs of model calls.


def _calls(site: Site, asked: PageRequest) -> list[AskedModel]:
    view = view_at(site.hf.store, asked.id, asked.number("at", None, least=1))
    with damage_in(f"tasks/{view.id}"):
        found = []
        for each in asked_in(view):
            found.append(each)
            if len(found) >= _MOST_CALLS:
                break
        return found


def models(site: Site, asked: PageRequest) -> Data:
    """The model calls of a task."""
    store = site.hf.store
    state = view_at(store, asked.id).state
    rows = listed(_calls(site, asked), store)
    for row in rows:
        call = state.calls.get(row["path"])
        row["usage"] = usage_data(usage_of(store, call)) if call is not None else None
    return {"calls": rows}


def saw_of(site: Site, asked: PageRequest) -> Data:
    """Exactly what a model call saw, what was left out, and what it said."""
    store, path = site.hf.store, asked.part("path")
    calls = _calls(site, asked)
    places = [number for number, each in enumerate(calls) if each.path == path]
    if not places:
        raise BadInput(f"task {asked.id!r}: call {path!a:.60} was given no context")
    place = places[0]
    model = calls[place]
    seen = saw(model, session_of(model, store), store)
    made, left = model.context, model.context.left_out
    state = view_at(store, asked.id).state
    call = state.calls.get(path)
    gone = (
        f"{left.messages:,} messages, about {left.tokens:,} tokens" if left.messages else "nothing"
    )
    shortened = f"; texts are cut to {left.cut_to:,} characters" if left.cut_to else ""
    return {
        "path": model.path,
        "name": model.name,
        "at": model.at,
        "session": made.session,
        "tokens": made.tokens,
        "budget": made.budget,
        "ratio": made.ratio,
        "messages": [
            {"kind": kind, "message": message_data(made.session, message)}
            for kind, message in seen.messages
        ],
        "nudges": [message_data(made.session, each) for each in seen.nudges],
        "tools": [
            {
                "name": tool.name,
                "description": cut(tool.description, 4000),
                "parameters": plain_value(tool.parameters, "", IN_LISTS),
            }
            for tool in seen.tools
        ],
        "left_out": {
            **{name: getattr(left, name) for name in ("messages", "tokens", "ranges")},
            "cut_to": left.cut_to or None,
            "words": f"left out: {gone}{shortened}",
        },
        "said": None
        if call is None
        else ShownValues(store, state).shown(call.result, "call_output", path),
        "usage": usage_data(usage_of(store, call)) if call is not None else None,
        "previous": calls[place - 1].path if place else None,
        "command": site.hints.command("context", asked.id, options=["--step", path]),
    }


def audit(site: Site, asked: PageRequest) -> Download:
    """The audit of a task as a page of Markdown."""
    text = to_markdown(sheet(site.hf.audit(asked.id), full=False))
    return Download(iter([text.encode()]), f"{asked.id}-audit.md", "text/markdown")
