"""Sessions and memories for tests: written as they are written by anybody, one event at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Raw

from holdfast.core import conversation
from holdfast.core import memories as remembering
from holdfast.core.conversation import Conversation
from holdfast.core.events import (
    FORMAT,
    Forgotten,
    MemoryBegan,
    Pinned,
    Remembered,
    Said,
    SessionBegan,
    SessionEnded,
    Summarized,
)
from holdfast.core.facts import facts_of_session
from holdfast.core.memories import Memories
from holdfast.log.artifacts import Artifact, kept
from holdfast.log.ledger import Ledger
from holdfast.log.reading import memory_stream, session_stream
from holdfast.log.states import facts_in
from holdfast.stores.port import Store

START = datetime(2026, 1, 1, tzinfo=UTC)
Clock = Callable[[], datetime]


def ticking(start: datetime = START) -> Clock:
    """A clock that is a second later each time it is looked at."""
    times: Iterator[int] = iter(range(1_000_000))
    return lambda: start + timedelta(seconds=next(times))


def session(store: Store, id: str = "s-1", clock: Clock | None = None) -> Ledger[Conversation]:
    """The log of a session, to be written to."""
    return Ledger(
        store, session_stream(id), "me", clock or ticking(),
        new=Conversation, advance=conversation.advance, facts=facts_of_session,
    )  # fmt: skip


def begun(
    store: Store,
    id: str = "s-1",
    user: str = "ada",
    clock: Clock | None = None,
    labels: dict[str, str] | None = None,
) -> Ledger[Conversation]:
    """A session that was begun."""
    ledger = session(store, id, clock)
    event = SessionBegan(format=FORMAT, id=id, user=user, labels=labels or {})
    ledger.write(lambda state: event)
    return ledger


def message(text: str) -> bytes:
    return msgspec.json.encode([{"role": "user", "content": text}])


def say(ledger: Ledger[Conversation], text: str, task: str = "") -> None:
    """A turn; one that is long is kept in a blob."""
    data = message(text)
    if len(data) > 10_000:
        digest = ledger.store.put_blob(data)
        data = msgspec.json.encode({"$blob": digest, "size_bytes": len(data)})
    event = Said(messages=Raw(data), count=1, role="user", task=task)
    ledger.write(lambda state: event)


def show(ledger: Ledger[Conversation], picture: bytes) -> Artifact:
    """A turn with a picture, which is an artifact: a blob that names its parts."""
    made = kept(ledger.store, [picture], "p.png")
    part = {"type": "media", "kind": "image", "artifact": made}
    data = msgspec.json.encode([{"role": "user", "content": [part]}])
    event = Said(messages=Raw(data), count=1, role="user")
    ledger.write(lambda state: event)
    return made


def pin(ledger: Ledger[Conversation], number: int) -> None:
    ledger.write(lambda state: Pinned(number=number))


def summarize(ledger: Ledger[Conversation], upto: int, text: str) -> None:
    event = Summarized(upto=upto, text=Raw(msgspec.json.encode(text)))
    ledger.write(lambda state: event)


def end(ledger: Ledger[Conversation], because: str = "") -> None:
    ledger.write(lambda state: SessionEnded(because=because))


def talked(
    store: Store, id: str = "s-1", user: str = "ada", turns: int = 3
) -> Ledger[Conversation]:
    """A session in which something was said, some of it at length, and a picture shown."""
    ledger = begun(store, id, user)
    for turn in range(turns):
        say(ledger, f"turn {turn} of {id}")
    say(ledger, f"at length in {id} " * 2_000)
    show(ledger, f"a picture of {id}".encode())
    pin(ledger, 1)
    summarize(ledger, 2, f"in short, {id}")
    return ledger


def memory(
    store: Store, id: str = "main", entries: int = 2, text: str = "fact"
) -> Ledger[Memories]:
    """A memory with entries, one of which has a vector in a blob, and the first of which is
    forgotten."""
    ledger: Ledger[Memories] = Ledger(
        store,
        memory_stream(id),
        "me",
        ticking(),
        new=Memories,
        advance=remembering.advance,
        facts=facts_in,
    )
    ledger.write(lambda state: MemoryBegan(format=FORMAT, id=id))
    digest = store.put_blob(msgspec.json.encode([id] * 5_000))
    vector = Raw(msgspec.json.encode({"$blob": digest, "size_bytes": 5_000}))
    for n in range(entries):
        entry = Remembered(id=f"m-{n}", text=f"{text} {n}", user="ada", vector=vector)
        ledger.write(lambda state, entry=entry: entry)  # type: ignore[misc]
    ledger.write(lambda state: Forgotten(id="m-0"))
    return ledger
