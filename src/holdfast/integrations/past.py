"""Bring past sessions of the OpenAI Agents SDK along, and what is shared by all imports.

An import copies what another tool has kept into a store of Holdfast, where `show`, `compare`, `sql`
and the debugger open it. Nothing is run, and the source is only read. An imported session has the
label `imported`, which names the source, and the times of the source. A second import adds what is
new. No framework has to be installed for this module or for `traces`.

LangGraph's threads are in `holdfast.integrations.langgraph`, traces in
`holdfast.integrations.traces`.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct

from holdfast.agent.book import Book, BookMeans
from holdfast.api.app import Holdfast
from holdfast.codec import args_hash
from holdfast.core.conversation import Conversation
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import Said
from holdfast.core.words import checked_id
from holdfast.errors import BadInput, SessionNotFound
from holdfast.log.messages import Message, Role, Turn, stored_form

__all__ = ["IMPORTED", "ImportedSessions", "PastSession", "import_sessions"]

IMPORTED = "imported"
"""The label of everything that was imported; its value names the source."""

OPENAI_ITEM = "openai_agents"
"""The note beside a message that holds the item of the SDK."""


class ImportedSessions(Struct, frozen=True):
    """The result of an import."""

    sessions: tuple[str, ...]
    messages: int
    """How many were new."""


def import_sessions(
    hf: Holdfast,
    path: str | Path,
    session_id: str | None = None,
    *,
    sessions_table: str = "agent_sessions",
    messages_table: str = "agent_messages",
) -> ImportedSessions:
    """Copy the sessions of an SQLite file of the OpenAI Agents SDK: all, or one.

    `HoldfastSession(hf, id)` goes on with them. The names of the tables are those that the file's
    `SQLiteSession` was given.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     import_sessions(hf, "no-such-file.db")
    Traceback (most recent call last):
    holdfast.errors.BadInput: no-such-file.db: there is no such file
    """
    file = Path(path)
    if not file.is_file():
        raise BadInput(f"{path}: there is no such file")
    brought, new = [], 0
    names = [_quoted(sessions_table), _quoted(messages_table)]
    try:
        # Read-only, also where the SDK has the file open.
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as base:
            for id, begun in _rows(base, f"SELECT session_id, created_at FROM {names[0]}"):
                if session_id not in (None, id):
                    continue
                session = PastSession(hf, str(id), "openai-agents", _time(begun))
                brought.append(session.id)
                of_it = f"SELECT id, message_data, created_at FROM {names[1]} WHERE session_id = ?"
                for row, data, at in _rows(base, f"{of_it} ORDER BY id", id):
                    message = said_by_item(_item(file, row, data))
                    new += session.say((message,), _time(at), f"openai-agents:{row}")
    except sqlite3.Error as error:
        raise BadInput(f"{path}: no sessions of the OpenAI Agents SDK ({error})") from None
    if session_id is not None and not brought:
        raise BadInput(f"{path}: there is no session {session_id!r:.80}")
    return ImportedSessions(tuple(brought), new)


def said_by_item(item: Any) -> Message:
    """An item of the SDK as a message that people can read, with the item itself beside it.

    >>> said_by_item({"role": "user", "content": "Hello"}).text
    'Hello'
    """
    role = item.get("role")
    text = item.get("content", item.get("output", item.get("arguments", "")))
    if isinstance(text, list):
        text = "".join(str(part.get("text", "")) for part in text if isinstance(part, dict))
    text = text if isinstance(text, str) else json.dumps(text)
    if item.get("type") == "function_call":
        text = f"{item.get('name')}({text})"
    spoken: Role = role if role in ("user", "system") else "assistant"
    return Message(spoken, text, meta={OPENAI_ITEM: item})


class PastSession:
    """A session as it is imported: what is said in it has the time of the source."""

    def __init__(self, hf: Holdfast, id: str, source: str, begun: datetime, user: str = "") -> None:
        held = hf._holding
        self.id: str = checked_id(id)
        self._now = begun
        # A book of its own: that of the process tells the time of now.
        self._book = Book(
            BookMeans(hf.store, held.owner, self._clock, held.redact, held.max_value_bytes), id
        )
        try:
            self._must_be_imported(self._book.refresh(), source)
        except SessionNotFound:
            self._book.begin(user, {IMPORTED: source})

    def _clock(self) -> datetime:
        return self._now

    def _must_be_imported(self, state: Conversation, source: str) -> None:
        if state.labels.get(IMPORTED) != source:
            raise BadInput(
                f"session {self.id!r} exists, and was not imported from {source}: import into "
                f"another store, or delete it (holdfast gc)"
            )

    def messages(self) -> list[Message]:
        """The messages in it so far."""
        return list(self._book.messages(1, self._book.refresh().messages))

    def say(self, turn: Turn, at: datetime, key: str) -> int:
        """Add a turn that was said at a time, once for each key; how many messages were new."""
        form = stored_form(self._book.store, turn)
        before = self._book.refresh().messages
        self._now = at
        said = Said(
            messages=Raw(b"[]"), count=len(turn), role=turn[0].role, key=key, digest=args_hash(form)
        )
        self._book.say(form, said)
        return self._book.refresh().messages - before


def _rows(base: sqlite3.Connection, query: str, *given: object) -> Iterator[Sequence[Any]]:
    # All at once: a writer of the source does not have to wait for our writes.
    yield from base.execute(query, given).fetchall()


def _quoted(table: str) -> str:
    return '"' + table.replace('"', '""') + '"'


def _item(file: Path, row: object, data: Any) -> dict[str, Any]:
    try:
        item = decode(data.encode() if isinstance(data, str) else bytes(data))
    except (Illegible, TypeError, ValueError):
        item = None
    if not isinstance(item, dict):
        raise BadInput(f"{file}: row {row} is no item of a session: {data!a:.80}")
    return item


def _time(text: Any) -> datetime:
    """The time that SQLite wrote, in UTC.

    >>> _time("2026-11-18 08:30:00").isoformat()
    '2026-11-18T08:30:00+00:00'
    """
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        raise BadInput(f"{text!a:.60} is no time that SQLite writes") from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
