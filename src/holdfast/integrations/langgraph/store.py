"""`HoldfastStore`: LangGraph's long-term store on `hf.values`.

An item stands under its namespace and its key, with its time to live and the vectors that the
embedding function made of it. Searches and lists are LangGraph's own: what is in our log is given
to its `InMemoryStore`, so filters and scores are the same as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

import msgspec
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchOp,
    TTLConfig,
)
from langgraph.store.memory import InMemoryStore

from holdfast.api.app import Holdfast
from holdfast.api.async_forms import away
from holdfast.core.decoding import decode
from holdfast.core.memories import KeptValue
from holdfast.errors import BadInput
from holdfast.integrations.langgraph.encoding import Encoding

_encoding = Encoding(JsonPlusSerializer(), readable=True)


class _Stored(msgspec.Struct, omit_defaults=True):
    """An item as it stands in the log."""

    value: Any
    created_at: datetime
    vectors: dict[str, list[float]] = {}
    ttl_s: float | None = None


class HoldfastStore(BaseStore):
    """A store for what a graph knows beyond a thread, durable in every store of Holdfast.

    `index` is LangGraph's: an embedding function, its dimensions and the fields to embed. A time to
    live is given in minutes, as everywhere in LangGraph, and what has expired is not found.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     store = HoldfastStore(hf)
    ...     store.put(("users", "ada"), "room", {"quiet": True, "floor": 3})
    ...     [item.key for item in store.search(("users",), filter={"floor": {"$gt": 2}})]
    ['room']
    """

    supports_ttl = True

    def __init__(
        self,
        hf: Holdfast,
        namespace: str = "langgraph",
        *,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._values = hf.values(namespace).plain
        self._index = index
        self.ttl_config = ttl

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what is asked, in order; of several puts to one key the last one counts."""
        asked = list(ops)
        results: list[Result] = [None] * len(asked)
        found: InMemoryStore | None = None
        for number, op in enumerate(asked):
            if isinstance(op, GetOp):
                results[number] = self._get(op)
            elif isinstance(op, SearchOp | ListNamespacesOp):
                found = found or self._in_memory()
                (results[number],) = found.batch([op])
                if isinstance(op, SearchOp) and op.refresh_ttl:
                    self._refresh(results[number])
            elif not isinstance(op, PutOp):
                raise BadInput(f"HoldfastStore knows no operation {op!r:.80}")
        self._put([op for op in asked if isinstance(op, PutOp)])
        return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """`batch` for async code."""
        return await away(self.batch, list(ops))

    # Reading

    def _get(self, op: GetOp) -> Item | None:
        key = _key(op.namespace, op.key)
        kept = self._values.find([key]).get(key)
        if kept is None:
            return None
        stored = self._stored(kept)
        if op.refresh_ttl:
            self._write({key: stored})
        return _item(op.namespace, op.key, stored, kept)

    def _in_memory(self) -> InMemoryStore:
        """The items that are there now, in LangGraph's own store."""
        found = InMemoryStore(index=self._index)
        for kept in self._values.find_all():
            *namespace, key = (unquote(part) for part in kept.key.split("/"))
            stored = self._stored(kept)
            place = tuple(namespace)
            found._data[place][key] = _item(place, key, stored, kept)
            if stored.vectors:
                found._vectors[place][key] = stored.vectors
        return found

    def _refresh(self, items: Any) -> None:
        keys = [_key(item.namespace, item.key) for item in items or ()]
        kept = self._values.find(keys)
        self._write({key: self._stored(each) for key, each in kept.items()})

    def _stored(self, kept: KeptValue) -> _Stored:
        return decode(self._values.bytes_of(kept), _Stored)

    # Writing

    def _put(self, ops: Sequence[PutOp]) -> None:
        last = {_key(op.namespace, op.key): op for op in ops}
        gone = [key for key, op in last.items() if op.value is None]
        if gone:
            self._values.delete(gone)
        there = self._values.find(list(last))
        vectors = self._vectors([op for op in last.values() if op.value is not None])
        new = {}
        for key, op in last.items():
            if op.value is None:
                continue
            if not isinstance(op.value, dict):
                raise BadInput(f"the value of {op.key!a:.60} must be a dict, not {op.value!a:.60}")
            before = there.get(key)
            begun = self._stored(before).created_at if before is not None else self._values.clock()
            ttl_s = op.ttl * 60 if op.ttl is not None else None
            new[key] = _Stored(_encoding.dump(op.value), begun, vectors.get(key, {}), ttl_s)
        self._write(new, every=True)

    def _vectors(self, ops: Sequence[PutOp]) -> dict[str, dict[str, list[float]]]:
        """The vectors that the embedding function makes of the items: LangGraph's store does the
        work."""
        if self._index is None or not ops:
            return {}
        made = InMemoryStore(index=self._index)
        made.batch(ops)
        return {_key(op.namespace, op.key): dict(made._vectors[op.namespace][op.key]) for op in ops}

    def _write(self, stored: dict[str, _Stored], *, every: bool = False) -> None:
        """Write items; without `every` only those that live for a time, to lengthen it."""
        by_ttl: dict[float | None, dict[str, bytes]] = {}
        for key, each in stored.items():
            if every or each.ttl_s is not None:
                by_ttl.setdefault(each.ttl_s, {})[key] = msgspec.json.encode(each)
        for ttl_s, values in by_ttl.items():
            self._values.put(values, ttl_s)


def _key(namespace: tuple[str, ...], key: str) -> str:
    """Where an item stands.

    >>> _key(("users", "a/b"), "room")
    'users/a%2Fb/room'
    """
    return "/".join(quote(str(part), safe=" ") for part in (*namespace, key))


def _item(namespace: tuple[str, ...], key: str, stored: _Stored, kept: KeptValue) -> Item:
    return Item(
        value=_encoding.load(stored.value),
        key=key,
        namespace=namespace,
        created_at=stored.created_at,
        updated_at=kept.at,
    )
