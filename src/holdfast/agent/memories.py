"""Long-term memory: what outlives sessions, and is found by what it says.

A memory is a log like that of a task or a session, with the same promises: what `remember` returned
is on disk. Entries are short. Each knows its source, and is there until it is forgotten. Indexes
are made of the log, and brought up to date with it before a search answers.

Inside a task each call happens once: what it did or found is in the log of the task, and a replay
sees that. In an async task the calls are awaited.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from hashlib import sha256
from itertools import islice
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import replace

from holdfast.agent.flow import once
from holdfast.agent.memory_index import Embed, Indexed, Vectors, words_to_find
from holdfast.codec.redact import DEFAULT, Redact
from holdfast.core.events import FORMAT, Forgotten, MemoryBegan, Remembered
from holdfast.core.memories import Entry, Memories, advance, entry_of
from holdfast.core.scope import Scope, inside, scope_var
from holdfast.core.words import checked_id, must_be_texts
from holdfast.errors import BadInput
from holdfast.log.ledger import Ledger
from holdfast.log.reading import memory_stream
from holdfast.log.states import facts_in
from holdfast.stores.port import LONGEST_PAGE, MOST_LABELS, Store

# Entries of a memory as users give them: what may be one, and which ones are meant.


LONGEST_BYTES = 16 * 1024


def must_be_short(text: Any) -> None:
    """Refuse what is no text, or says nothing, or is too long for an entry."""
    must_be_texts("remember()", text=text)
    if not text.strip():
        raise BadInput("remember(): there is nothing to remember: the text is empty")
    size = len(text.encode())
    if size > LONGEST_BYTES:
        raise BadInput(
            f"remember(): a text of {size:,} bytes is too long, at most {LONGEST_BYTES:,} are "
            f"kept: keep the whole as an artifact (keep), and remember a summary of it"
        )


def checked_labels(what: str, labels: Any) -> dict[str, str]:
    """Labels, if they are texts, and not too many."""
    given = {} if labels is None else labels
    if not isinstance(given, Mapping) or len(given) > MOST_LABELS:
        raise BadInput(
            f"{what}: labels={labels!a:.60} must be a dict of at most {MOST_LABELS} texts"
        )
    for name, value in given.items():
        must_be_texts(what, **{"the name of a label": name, "a label": value})
    return dict(given)


def filter_of(
    what: str, user: str | None, session: str | None, labels: Mapping[str, str] | None
) -> Callable[[Remembered], bool]:
    """Whether an entry is of a user and a session, where they are given, and has all labels."""
    wanted = given_texts(what, user=user, session=session)
    with_labels = checked_labels(what, labels).items()

    def fits(event: Remembered) -> bool:
        return all(getattr(event, name) == value for name, value in wanted.items()) and all(
            event.labels.get(name) == value for name, value in with_labels
        )

    return fits


def given_texts(what: str, **texts: str | None) -> dict[str, str]:
    """The given ones, if they are texts."""
    given = {name: text for name, text in texts.items() if text is not None}
    must_be_texts(what, **given)
    return given


__all__ = ["Entry", "Found", "Memory", "memory", "open_memory"]

ID = "default"
"""The memory of a store: there is one."""


class Found(Struct, frozen=True):
    """An entry that a search found, and how well it matches: to be compared within one search."""

    entry: Entry
    score: float


class Memory:
    """The knowledge beyond any session: `hf.memory`.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.memory.remember("Ada wants a quiet room with a desk", user="ada")
    ...     _ = hf.memory.remember("Bob is allergic to nuts", user="bob")
    ...     [found.entry.text for found in hf.memory.search("quiet rooms", user="ada")]
    ['Ada wants a quiet room with a desk']
    """

    def __init__(self, ledger: Ledger[Memories], indexed: Indexed, vectors: Vectors | None) -> None:
        self._ledger = ledger
        self._indexed = indexed
        self._vectors = vectors

    def using(self, embed: Embed, name: str) -> Memory:
        """The same memory, searched by meaning: `embed` makes a vector of each text in a list.

        An entry remembered through it keeps its vector, under that name: another function, or
        another model, needs another name. Entries without one are given theirs when they are
        searched, for as long as the process lasts.

        >>> from holdfast import Holdfast
        >>> def letters(texts: list[str]) -> list[list[float]]:
        ...     return [[float(text.count(letter)) for letter in "abc"] for text in texts]
        >>> with Holdfast("memory://") as hf:
        ...     memory = hf.memory.using(letters, name="letters")
        ...     _ = memory.remember("abba"), memory.remember("ccc")
        ...     memory.search("cab c", limit=1)[0].entry.text
        'ccc'
        """
        must_be_texts("using()", name=name)
        if not name or not callable(embed):
            raise BadInput("using(embed, name=…): give a function, and a name for what it makes")
        return Memory(self._ledger, self._indexed, Vectors(embed, name))

    # Remembering and forgetting

    def remember(
        self,
        text: str,
        *,
        user: str | None = None,
        session: str | None = None,
        step: str | None = None,
        labels: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> Entry:
        """Keep a short text, durably. It replaces the text under the same `id`.

        Inside a task it is remembered once, and `user`, `session` and `step` are those of the task
        where they are not given. In an async task: `await hf.memory.remember(…)`.

        >>> from holdfast import Holdfast, task
        >>> @task
        ... def learning(hint: str) -> str:
        ...     return hf.memory.remember(hint, labels={"kind": "taste"}).id
        >>> with Holdfast("memory://") as hf:
        ...     id = hf.run(learning, "likes tea", id="learning-1", user="ada")
        ...     hf.memory.entry(id).user, hf.memory.entry(id).task
        ('ada', 'learning-1')
        """
        must_be_short(text)
        given = given_texts("remember()", user=user, session=session, step=step)
        with_labels = checked_labels("remember()", labels)
        if id is not None:
            checked_id(id)
        scope = scope_var.get()

        def work(key: str, path: str) -> Entry:
            source = _source(scope, path) | given
            key = call_key(scope, key)
            return self._remember(text, key, id or _id_of(key), with_labels, source)

        return once("remember", work, Entry)

    def _remember(
        self, text: str, key: str, id: str, labels: dict[str, str], source: dict[str, str]
    ) -> Entry:
        text = self._ledger.redact.text(text)
        vector = self._vector(text, key)
        event = Remembered(id=id, text=text, labels=labels, vector=vector, key=key)
        event = replace(event, **source)

        def make(state: Memories) -> Remembered | None:
            known = state.keys.get(key) if key else state.entries.get(id)
            return None if known is not None and (key or _says_the_same(known, event)) else event

        self._begin()
        self._ledger.write(make)
        state = self._ledger.state
        kept = state.keys[key] if key else state.entries.get(id)
        # Somebody may have taken it away in the meantime; then it was there for a moment.
        return entry_of(kept or replace(event, at=state.updated_at))

    def _vector(self, text: str, key: str) -> Raw | UnsetType:
        if self._vectors is None or (key and key in self._ledger.refresh().keys):
            return UNSET
        return self._vectors.kept(text)

    def _begin(self) -> None:
        if not self._ledger.state.seq:
            began = MemoryBegan(format=FORMAT, id=ID)
            self._ledger.write(lambda state: None if state.seq else began)

    def forget(self, id: str, because: str = "") -> bool:
        """See to it that an entry is found no more; False if there is none of that id.

        The log still has it, as it has everything. In an async task: `await hf.memory.forget(…)`.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     entry = hf.memory.remember("Ada's code is 4711")
        ...     hf.memory.forget(entry.id, because="private"), hf.memory.search("code")
        (True, [])
        """
        checked_id(id)
        must_be_texts("forget()", because=because)
        event = Forgotten(id=id, because=because)
        scope = scope_var.get()

        def work(key: str, path: str) -> bool:
            must_write(scope, path)
            if not self._ledger.refresh().seq:
                return False
            return self._ledger.write(lambda state: event if id in state.entries else None)

        return once("forget", work, bool)

    # Finding

    def search(
        self,
        query: str,
        *,
        user: str | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int = 10,
    ) -> list[Found]:
        """The entries that have any of the words of a query, the best match first.

        Only those of the user and the session that are given, and with all of the labels. Case and
        accents do not matter, and nothing in a query is an operator. Of `using(…)`: those nearest
        in meaning. In an async task: `await hf.memory.search(…)`.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.memory.remember("Ada flies from Zürich", labels={"kind": "travel"})
        ...     len(hf.memory.search("ZURICH airport", labels={"kind": "travel"}))
        1
        """
        must_be_texts("search()", query=query)
        if type(limit) is not int or not 1 <= limit <= LONGEST_PAGE:
            raise BadInput(f"search(): limit={limit!a:.60} must be 1 to {LONGEST_PAGE}")
        fits = filter_of("search()", user, session, labels)
        scope = scope_var.get()

        def work(key: str, path: str) -> list[Found]:
            must_write(scope, path)
            return self._search(query, fits, limit)

        return once("search", work, list[Found])

    def _search(self, query: str, fits: Callable[[Remembered], bool], limit: int) -> list[Found]:
        if self._vectors is not None:
            events = [event for event in self._all() if fits(event)]
            found = self._vectors.nearest(query, events, limit)
        else:
            found = list(islice(self._indexed.find(words_to_find(query), fits), limit))
        return [Found(entry_of(event), score) for event, score in found]

    def entry(self, id: str) -> Entry | None:
        """The entry of that id; None if there is none, or it was forgotten.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.memory.remember("Ada likes tea", id="tea")
        ...     hf.memory.entry("tea").text, hf.memory.entry("coffee")
        ('Ada likes tea', None)
        """
        event = self._ledger.refresh().entries.get(checked_id(id))
        return None if event is None else entry_of(event)

    def entries(
        self,
        *,
        user: str | None = None,
        session: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Iterator[Entry]:
        """All entries that match, the newest first.

        Like everything that changes with time, a task reads them in a step.

        >>> from holdfast import Holdfast
        >>> with Holdfast("memory://") as hf:
        ...     for text in ("one", "two"):
        ...         _ = hf.memory.remember(text)
        ...     [entry.text for entry in hf.memory.entries()]
        ['two', 'one']
        """
        fits = filter_of("entries()", user, session, labels)
        return (entry_of(event) for event in reversed(self._all()) if fits(event))

    def _all(self) -> list[Remembered]:
        return list(self._ledger.refresh().entries.values())


def open_memory(
    store: Store, owner: str, clock: Callable[[], datetime], redact: Redact = DEFAULT
) -> Memory:
    """The memory of a store."""
    ledger = Ledger(
        store, memory_stream(ID), owner, clock,
        new=Memories, advance=advance, facts=facts_in, redact=redact,
    )  # fmt: skip
    return Memory(ledger, Indexed(ledger), None)


def _source(scope: Scope | None, path: str) -> dict[str, str]:
    """Where an entry comes from, as far as the task says that it is remembered in."""
    if scope is None:
        return {}
    must_write(scope, path)
    task = scope.run.log.state
    step = scope.call.path if scope.call is not None else path
    return {"user": task.user, "session": task.session, "task": task.id, "step": step}


def must_write(scope: Scope | None, path: str) -> None:
    """Halt if the driver of a task may write nothing: it replays."""
    if scope is not None:
        scope.run.must_write(path)


def call_key(scope: Scope | None, key: str) -> str:
    """The key of a call. A task that was deleted, and made anew, is another one."""
    return f"{key}@{scope.run.log.state.created_at.isoformat()}" if scope is not None else ""


def _id_of(key: str) -> str:
    return (sha256(key.encode()) if key else sha256(os.urandom(16))).hexdigest()[:16]


def _says_the_same(known: Remembered, event: Remembered) -> bool:
    plain: dict[str, Any] = {"seq": 0, "at": known.at, "key": "", "vector": UNSET}
    return replace(known, **plain) == replace(event, **plain)


def memory() -> Memory:
    """The long-term memory, from inside of a task. Elsewhere it is `hf.memory`.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def recalls_in_task() -> str:
    ...     return memory().search("quiet")[0].entry.text
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.memory.remember("Ada wants a quiet room")
    ...     hf.run(recalls_in_task)
    'Ada wants a quiet room'
    """
    log = inside("memory()").run.log
    return open_memory(log.store, log.lease.owner, log.clock, log.redact)
