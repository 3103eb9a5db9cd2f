"""Going back in time: what was known at a place, what changed, files, and two tasks compared."""

from __future__ import annotations

import mimetypes
from collections.abc import Iterable, Iterator
from difflib import unified_diff
from typing import Any

import msgspec

from holdfast.core.decoding import decode
from holdfast.core.state import FINISHED, KeptFile, State
from holdfast.core.words import cut
from holdfast.errors import BadInput, HoldfastError
from holdfast.history.alignment import Alignment, Divergence, Made
from holdfast.history.comparison import Figures
from holdfast.history.differences import describe, diff
from holdfast.history.forks import EFFECTS, UNDO_WORDS, Effect, effects_since
from holdfast.history.known import Known
from holdfast.history.snapshots import shown_call
from holdfast.log.artifacts import Artifact, opened
from holdfast.log.places import PastPlace, must_be_still, place_of
from holdfast.log.states import load
from holdfast.stores.port import Store
from holdfast.views.task import MANY
from holdfast.web.asked import Download, Failing, PageRequest, Site
from holdfast.web.logs import event_at, head_of, state_at
from holdfast.web.shapes import (
    IN_DETAIL,
    IN_LISTS,
    address,
    calls_by,
    changes_of,
    diff_lines,
    plain_value,
)

Data = dict[str, Any]
_FEW = 200
_PIECE = 256 * 1024


def known_at(store: Store, state: State, paths: Iterable[str]) -> Data:
    """The knowledge at a place, as plain data, with those calls that matter."""
    view = Known(store, state)
    there = [path for path in paths if path in state.calls]
    return {
        "task": view.type,
        "input": view.input,
        "mission": view.value(state.mission),
        "plan": [msgspec.to_builtins(item) for item in view.plan],
        "calls": {call.path: shown_call(view, call) for call in calls_by(state, there)},
        "decisions": [
            {"name": d.name, "choice": view.value(d.choice), "because": d.because}
            for d in state.decisions[-_FEW:]  # `view.decisions` counts the steps before each
        ],
        "notes": [{"text": n.text, "data": n.data} for n in view.notes[-_FEW:]],
        "facts": [{"name": f.name, "value": f.value} for f in view.facts[-_FEW:]],
        "state": view.checkpoint,
        "files": {name: view.value(kept.file) for name, kept in sorted(state.files.items())},
        "result": view.result,
        "failure": None if view.failure is None else view.failure.summary(),
        "ended": view.status if view.status in FINISHED else "",
    }


def state(site: Site, asked: PageRequest) -> Data:
    """The knowledge of the task after an event, and the changes since another one."""
    store, id = site.hf.store, asked.id
    at = asked.number("at", None, least=1)
    now = state_at(store, id, at)
    since = asked.number("since", None, least=0)
    if since is None:
        since = _before_step(store, now)
    since = min(since, now.seq)
    then = load(store, id, since) if since else State()
    paths = _touched(since, now)
    new = known_at(store, now, paths)
    changes, more = changes_of(diff(known_at(store, then, paths), new)) if since else ([], False)
    newest = list(now.calls)[-_FEW if len(now.calls) > MANY else 0 :]
    view = Known(store, now)
    outputs = {
        call.name: view.value(call.result)
        for call in calls_by(now, newest)
        if call.status == "completed" and call.kind in ("step", "tool", "question", "message")
    }
    known = {name: each for name, each in new.items() if name != "calls"} | {"outputs": outputs}
    href = address("tasks", id, "value", of="state", at=now.seq)
    edited = asked.flag("checkpoint") and now.checkpoints > 0
    return {
        **({"checkpoint": plain_value(view.stored_checkpoint, "")} if edited else {}),
        "seq": now.seq,
        "at": now.updated_at,
        "since": since,
        "state": plain_value(known, href),
        "changes": changes,
        "truncated": more,
    }


def _before_step(store: Store, now: State) -> int:
    """The event before the call began that the newest event is about; else the one before it."""
    event, _ = event_at(store, now.id, now.seq)
    call = now.calls.get(str(getattr(event, "path", "")))
    begun = call.seq - 1 if call is not None and call.seq else now.seq - 1
    return max(begun, 0)


def _touched(since: int, now: State) -> list[str]:
    """The calls that began or ended between two places, as far as they can be told quickly."""
    if len(now.calls) <= MANY:
        calls = now.calls.values()
        return [c.path for c in calls if max(c.seq, c.ended_seq, c.failed_seq) > since][-_FEW:]
    newest = calls_by(now, list(now.calls)[-_FEW:])
    return [c.path for c in newest if max(c.seq, c.ended_seq, c.failed_seq) > since]


# Files.


def files(site: Site, asked: PageRequest) -> Data:
    """The files of a task, each with its versions."""
    now = state_at(site.hf.store, asked.id, asked.number("at", None, least=1))
    return {"files": files_of(now)}


def files_of(now: State) -> list[Data]:
    """The files as the page shows them."""
    versions: dict[str, list[KeptFile]] = {}
    for kept in now.kept:
        versions.setdefault(kept.name, []).append(kept)
    return [
        {
            "name": name,
            **_version(kept),
            "media_type": mimetypes.guess_type(name)[0] or "",
            "versions": [_version(each) for each in versions.get(name, [kept])[-200:]],
        }
        for name, kept in sorted(now.files.items())
    ]


def _version(kept: KeptFile) -> Data:
    artifact = _artifact(kept)
    return {
        "seq": kept.seq,
        "at": kept.at,
        "by": kept.by,
        "path": kept.path,
        "size": artifact.size_bytes,
        "digest": artifact.sha256[:16],
    }


def _artifact(kept: KeptFile) -> Artifact:
    return decode(kept.file, Artifact)


def _kept(site: Site, asked: PageRequest, seq: int | None) -> Artifact:
    now = state_at(site.hf.store, asked.id, None)
    name = asked.part("name")
    kept = [k for k in now.kept if k.name == name and (seq is None or k.seq == seq)]
    current = [now.files[name]] if name in now.files and seq in (None, now.files[name].seq) else []
    if not kept and not current:
        raise Failing(404, "not_found", f"task {asked.id!r} has no such file")
    return _artifact((kept or current)[-1])


_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(beginning: bytes) -> str:
    """The kind of image, of those that can do nothing but be looked at; '' if none."""
    if beginning[:4] == b"RIFF" and beginning[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for mark, kind in _IMAGES.items() if beginning.startswith(mark)), "")


def file(site: Site, asked: PageRequest) -> Download | Data:
    """The content of a file: to be saved, or the beginning of its text, or an image."""
    store = site.hf.store
    artifact = _kept(site, asked, asked.number("seq", None, least=1))
    if asked.flag("text"):
        text, is_binary = _read_text(store, artifact)
        cut_off = artifact.size_bytes > IN_DETAIL
        return {
            "text": None if is_binary else text,
            "size": artifact.size_bytes,
            "truncated": cut_off,
            "binary": is_binary,
        }
    pieces, name = _pieces(store, artifact), asked.part("name").rpartition("/")[2]
    if asked.flag("image"):
        first = next(pieces, b"")
        kind = image_type(first)
        if not kind:
            raise Failing(415, "bad_input", "it is no image of a kind that is shown here")
        return Download(_joined(first, pieces), name, kind, inline=True)
    return Download(pieces, name)


def _joined(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _pieces(store: Store, artifact: Artifact) -> Iterator[bytes]:
    with opened(store, artifact) as content:
        while piece := content.read(_PIECE):
            yield piece


def _read_text(store: Store, artifact: Artifact) -> tuple[str, bool]:
    with opened(store, artifact) as content:
        data = content.read(IN_DETAIL)
    if b"\0" in data:
        return "", True
    try:
        return data.decode("utf-8"), False
    except UnicodeDecodeError as error:
        # The cut may be in the middle of a character.
        whole = error.start >= len(data) - 3 and artifact.size_bytes > len(data)
        return (data[: error.start].decode("utf-8"), False) if whole else ("", True)


def file_diff(site: Site, asked: PageRequest) -> Data:
    """The changes in a file between two versions."""
    store, texts = site.hf.store, list[list[str]]()
    for name in ("from", "to"):
        text, is_binary = _read_text(store, _kept(site, asked, asked.number(name, None, least=1)))
        if is_binary:
            return {"lines": [], "binary": True}
        texts.append(text.splitlines())
    found = list(unified_diff(texts[0], texts[1], lineterm="", n=3))[2:2002]
    # The line that says where a hunk is has no marker of its own.
    marked = [("", line) if line[:2] == "@@" else (line[:1], line[1:]) for line in found]
    lines = [{"marker": marker, "text": cut(text, 2000)} for marker, text in marked]
    return {"lines": lines, "binary": False}


# The calls and effects that a rewind would leave behind.


def rewind_preview(site: Site, asked: PageRequest) -> Data:
    """The effects outside since a place, and whether the task can be rewound to there."""
    store, id = site.hf.store, asked.id
    newest = load(store, id)
    when: Any = asked.text("when") or None
    place = place_of(newest, asked.text("to") or None, when, asked.number("seq", None, least=1))
    past = load(store, id, place.seq)
    why_not = ""
    try:
        must_be_still(past, place, "rewound")
    except HoldfastError as error:
        why_not = str(error)
    return {
        "place": _place(place),
        "effects": [effect_data(each) for each in effects_since(newest, past)][:500],
        "allowed": not why_not,
        "why_not": why_not,
    }


def _place(place: PastPlace) -> Data:
    return {"seq": place.seq, "path": place.path, "when": place.when, "words": str(place)}


def effect_data(each: Effect) -> Data:
    """Something that a task did outside."""
    return {**msgspec.structs.asdict(each), "undo_words": UNDO_WORDS.get(each.undo, each.undo)}


def effects(site: Site, asked: PageRequest) -> Data:
    """The choices for the tools that a fork calls."""
    return {"effects": [{"name": name, "words": words} for name, words in EFFECTS.items()]}


# Tasks beside each other.


def compare(site: Site, asked: PageRequest) -> Data:
    """Two tasks or more, call by call up to where they first differ."""
    ids = asked.texts("id")
    if len(ids) < 2:
        raise BadInput("say which two tasks: ?id=A&id=B")
    for id in ids[:20]:
        head_of(site.hf.store, id)
    made = site.hf.compare(*ids[:20])
    offset = int(asked.number("offset", 0) or 0)
    limit = int(asked.number("limit", 200, least=1, most=1000) or 200)
    pairs = [
        _pair(alignment, knows, offset, limit)
        for alignment, knows in zip(made.alignments, made.knows, strict=True)
    ]
    return {
        "ids": made.ids,
        "types": made.types,
        "same": made.is_same,
        "pairs": pairs,
        "figures": [_figures(each) for each in made.figures],
        "states": [_places(site, alignment) for alignment in made.alignments],
        "command": site.hints.command("compare", *made.ids),
    }


def _pair(alignment: Alignment, knows: Any, offset: int, limit: int) -> Data:
    rows = alignment.rows[offset : offset + limit]
    return {
        "a": alignment.a,
        "b": alignment.b,
        "first": _first(alignment.first),
        "rows": [{"what": r.what, "a": _made(r.a), "b": _made(r.b)} for r in rows],
        "total": len(alignment.rows),
        "offset": offset,
        "input": changes_of(alignment.input)[0],
        "knows": changes_of(knows)[0],
    }


def _first(found: Divergence | None) -> Data | None:
    if found is None:
        return None
    where = f"step {found.path}" if found.path else "the end"
    return {
        "what": found.what,
        "path": found.path,
        "row": found.row,
        "words": f"they first differ at {where}: {found.what}",
        "a": _made(found.a),
        "b": _made(found.b),
        "lines": diff_lines(describe(found.diff)),
    }


def _made(made: Made | None) -> Data | None:
    if made is None:
        return None
    return {
        **{name: getattr(made, name) for name in ("path", "name", "kind", "outcome")},
        "input": plain_value(made.input, "", IN_LISTS),
        "output": plain_value(made.output, "", IN_LISTS),
        "failure": cut(made.failure, 1000),
    }


def _figures(each: Figures) -> Data:
    told = ("id", "type", "status", "failure", "calls", "failures", "retries", "files")
    return {
        **{name: getattr(each, name) for name in told},
        **{name: getattr(each, name) for name in ("duration_s", "working_s", "waiting_s")},
        "result": plain_value(each.result, "", IN_LISTS),
        "tokens": each.spent.tokens,
        "cost_usd": each.spent.cost or None,
    }


def _places(site: Site, alignment: Alignment) -> Data:
    """The events right before the first divergence."""
    first = alignment.first
    found = {}
    for side, id, made in (
        ("a", alignment.a, first.a if first else None),
        ("b", alignment.b, first.b if first else None),
    ):
        newest = state_at(site.hf.store, id, None)
        call = newest.calls.get(made.path) if made is not None else None
        found[f"{side}_seq"] = max(call.seq - 1, 1) if call is not None and call.seq else newest.seq
    return found
