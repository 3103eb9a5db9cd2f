"""The data of a log for the page: values, events, calls and failures, each bounded in size.

A value goes out as the JSON text that the log holds. So a number of any length stays what it is,
and nothing deep is parsed here. A value that is too long goes out as its beginning, its size, and
an address to download it from.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, get_args
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.core import events as e
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import AnyEvent, Failure
from holdfast.core.lists import BLOB, LISTED, BlobRef, in_short
from holdfast.core.state import Attempt, Call, Later, State, scope_of
from holdfast.core.usage import Used, spent
from holdfast.core.words import cut
from holdfast.errors import StoreError
from holdfast.history.differences import Change, Diff, DiffLine, describe, place
from holdfast.log.reading import value_in
from holdfast.stores.port import Store
from holdfast.views.measures import usage_in, whole_result
from holdfast.views.words import raised_at, words_of

IN_LISTS, IN_DETAIL = 16 * 1024, 256 * 1024
"""How long a value may be that is sent whole, in bytes."""
_BEGINNING = 2048
_MOST_FETCHED = 4 * 1024 * 1024
"""A value that is kept aside and is longer than this is not even begun to be read."""
_MOST_TEXT, _MOST_WORDS = 64 * 1024, 300
_MOST_CHANGES, _MOST_DIFF_LINES = 400, 200

Data = dict[str, Any]


# ShownValues.


def address(*parts: str, **query: Any) -> str:
    """An address of the API.

    >>> address("tasks", "a/b", "value", of="input", at=None)
    '/api/tasks/a%2Fb/value?of=input'
    """
    path = "/api/" + "/".join(quote(part, safe="") for part in parts)
    asked = urlencode({name: value for name, value in query.items() if value is not None})
    return f"{path}?{asked}" if asked else path


def text_value(text: str, href: str, most: int = IN_DETAIL) -> Data:
    """JSON text as a value: whole, or its beginning.

    >>> text_value('"attic"', "")
    {'json': '"attic"', 'size': 7}
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    if size <= most:
        return {"json": text, "size": size}
    return {"cut": text[:_BEGINNING], "size": size, "href": href}


def plain_value(value: Any, href: str, most: int = IN_DETAIL) -> Data:
    """Plain data as a value."""
    return text_value(msgspec.json.encode(value).decode(), href, most)


class ShownValues:
    """The values of one task as of a place in its log."""

    def __init__(self, store: Store, state: State, at: int | None = None) -> None:
        self._store, self._state, self._at = store, state, at

    def shown(
        self, raw: Raw | UnsetType, of: str, path: str = "", *, most: int = IN_DETAIL
    ) -> Data | None:
        """A value of the log. `of` and `path` say where it stands, to download it."""
        if not isinstance(raw, Raw):
            return None
        href = address(
            "tasks", self._state.id, "value", of=of, path=path or None, at=self._at or None
        )
        data = bytes(raw)
        if data.startswith(BLOB):
            with suppress(Illegible):
                size = decode(data, BlobRef).size_bytes
                if size > _MOST_FETCHED or most < size <= IN_LISTS:
                    return {"cut": "", "size": size, "href": href}
        if data.startswith(LISTED) and most <= IN_LISTS:  # its lists may be longer than the log
            return text_value(_text(in_short(data)), href, most)
        try:
            return text_value(_text(self.whole(raw)), href, most)
        except StoreError as error:
            return {"cut": f"it can't be read: {error}", "size": 0, "href": href}

    def whole(self, raw: Raw) -> bytes:
        """The bytes of a value, from wherever they are kept."""
        return value_in(self._store, self._state, raw)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def short(raw: Raw, most: int = 160) -> tuple[str, int]:
    """The beginning of a stored value, and its size. Values kept aside are not fetched."""
    data = bytes(raw)
    if data.startswith(BLOB):
        with suppress(Illegible):
            size = decode(data, BlobRef).size_bytes
            return f"({size:,} bytes, kept aside)", size
    with suppress(Illegible):
        data = in_short(data)
    return cut(_text(data[: 4 * most]), most), len(data)


# Events in words.


def event_row(event: AnyEvent, state: State, shared: int = 0) -> Data:
    """One event. `state` is that after it; `shared` how many events a fork has of its original."""
    path = event.scope if isinstance(event, e.Progressed) else getattr(event, "path", "")
    path = path if isinstance(path, str) else ""
    call = state.calls.get(path.partition("#")[0])
    said = words_of(event, state)
    parts = [_part(each.of, each.more) for each in said.parts]
    told = said.sentence(lambda raw: short(raw)[0], datetime.isoformat)
    return {
        "seq": event.seq,
        "at": event.at,
        "type": type_of(event),
        "path": path,
        "name": call.name if call else "",
        "what": said.what,
        "parts": parts,
        "sentence": cut(f"{said.what}: {told}" if told else said.what, _MOST_WORDS),
        "tone": said.tone,
        "strong": said.strong,
        "minor": said.minor,
        "shared": event.seq <= shared,
    }


def type_of(event: AnyEvent) -> str:
    """The event's type as it stands in the log."""
    return str(event.__struct_config__.tag)


TYPES = sorted(str(kind.__struct_config__.tag) for kind in get_args(AnyEvent))


def _part(of: str | Raw | datetime, more: bool) -> Data:
    if isinstance(of, Raw):
        beginning, size = short(of)
        made: Data = {"value": beginning, "size": size}
    else:
        made = {"time": of} if isinstance(of, datetime) else {"text": cut(of, 4000)}
    return made | ({"more": True} if more else {})


# Calls.


def calls_by(state: State, paths: list[str]) -> list[Call]:
    """The calls of these paths. Of a long log, no others are made for it."""
    calls = state.calls
    return calls.some(paths) if isinstance(calls, Later) else [calls[path] for path in paths]


def call_row(store: Store, call: Call) -> Data:
    """A call as a row of the timeline, and of the tree."""
    used = usage_of(store, call)
    return {
        "path": call.path,
        "scope": scope_of(call.path),
        "depth": call.path.count("."),
        "name": call.name,
        "kind": call.kind,
        "status": call.status,
        "seq": call.seq,
        "ended_seq": max(call.ended_seq, call.failed_seq),
        "at": call.at,
        "ended_at": call.ended_at,
        "attempts": [_short_attempt(call, each) for each in call.attempts[-50:]],
        "retry_at": call.retry_at,
        "until": call.until,
        "why": cut(call.why, _MOST_WORDS),
        "doubt": call.doubt or call.status == "in_doubt",
        "settled_by": call.settled_by,
        "answered": _answered(call),
        "adopted_of": call.adopted_of,
        "of": call.of,
        "child": call.child,
        "approves": call.approves,
        "key": call.key,
        "tokens": used.usage.tokens if used else None,
        "cost_usd": (used.usage.cost or None) if used else None,
        "words": call_words(call),
    }


def _answered(call: Call) -> str:
    if call.adopted:
        return {"reused": "fork", "recorded": "log"}.get(call.adopted, call.adopted)
    return "read" if call.of else ""


def call_words(call: Call) -> str:
    """How a call stands, in a few words.

    >>> from holdfast.core.state import NEVER
    >>> call_words(Call("6", "pay", "tool", "in_doubt", NEVER, why="the process died"))
    'in doubt: the process died'
    """
    if call.adopted:
        of = f" of {' '.join(call.adopted_of)}" if call.adopted_of else ""
        by = f" by {call.settled_by}" if call.settled_by else ""
        return (
            f"result edited{by}" if call.adopted == "edited" else f"not called: {call.adopted}{of}"
        )
    if call.of:
        return f"as {call.of} said"
    status = call.status.replace("_", " ")
    if call.failure is not None and call.status == "failed":
        return cut(f"failed: {call.failure.summary()}", _MOST_WORDS)
    if call.status == "in_doubt" and call.why:
        return cut(f"in doubt: {call.why}", _MOST_WORDS)
    if call.kind in ("question", "approval") and call.why:
        return cut(f"{status}: {call.why}", _MOST_WORDS)
    tries = len(call.attempts)
    times = f" after {tries} attempts" if tries > 1 else ""
    settled = f", settled by {call.settled_by}" if call.settled_by else ""
    return f"{status}{times}{settled}"


def _short_attempt(call: Call, attempt: Attempt) -> Data:
    return {
        "number": attempt.number,
        "at": attempt.at,
        "ended_at": attempt.ended_at,
        "outcome": _outcome(call, attempt),
    }


def _outcome(call: Call, attempt: Attempt) -> str:
    if attempt.failure is not None:
        return "failed"
    if attempt is not call.attempts[-1]:
        return "interrupted"
    if call.status == "completed":
        return "ok" if not call.settled_by else "interrupted"
    return "interrupted" if call.status in ("in_doubt", "failed") else "open"


def attempts_of(call: Call) -> list[Data]:
    """The attempts of a call, each with what went wrong."""
    return [
        _short_attempt(call, each) | {"failure": failure_of(each.failure)}
        for each in call.attempts[-50:]
    ]


def failure_of(failure: Failure | None) -> Data | None:
    """An exception, with where it was raised."""
    if failure is None:
        return None
    return {
        "type": failure.type,
        "message": cut(failure.message, _MOST_TEXT),
        "summary": cut(failure.summary(), 1000),
        "traceback": failure.traceback[-_MOST_TEXT:],
        "where": raised_at(failure),
    }


def usage_of(store: Store, call: Call) -> Used | None:
    """The tokens and the cost of a call, if it was a model's."""
    if call.kind not in ("step", "tool") or call.of or call.adopted:
        return None
    if not isinstance(call.result, Raw):
        return None
    return usage_in(whole_result(store, call.result))


def usage_data(used: Used | None) -> Data | None:
    """The same as the page gets it."""
    if used is None:
        return None
    told = used.usage
    return {
        "model": used.model,
        "input_tokens": told.input_tokens,
        "output_tokens": told.output_tokens,
        "cached_tokens": told.cached_tokens,
        "cost_usd": spent(used).cost or None,
        "stop": used.stop,
        "first_token_s": used.first_token_s,
    }


# The changes between two places.


def changes_of(made: Diff) -> tuple[list[Data], bool]:
    """The changes, and whether there are more than are told."""
    told = made.changes[:_MOST_CHANGES]
    return [_change(each) for each in told], len(made.changes) > len(told)


def _change(change: Change) -> Data:
    before, after = (
        None if each is UNSET else plain_value(each, "", IN_LISTS)
        for each in (change.before, change.after)
    )
    return {
        "where": change.where,
        "place": place(change.where),
        "what": change.what,
        "before": before,
        "after": after,
        "lines": diff_lines(describe(Diff((change,)))),
    }


def diff_lines(lines: Iterable[DiffLine]) -> list[Data]:
    """Lines with a mark each."""
    return [
        {"marker": line.marker, "text": cut(line.text, 2000)}
        for line, _ in zip(lines, range(_MOST_DIFF_LINES), strict=False)
    ]
