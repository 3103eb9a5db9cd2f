"""The index of texts in PostgreSQL: a row of words for each line that has any (see the schema).

Words come folded (see `holdfast.texts`). They are handed over as a `tsvector` with their places, so
no parser or dictionary of the database, nor its locale, has a say in what is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

_LAST_PLACE = 16_383
"""A `tsvector` counts no further."""


class _Ask(Protocol):
    def __call__(self, query: str, /, **given: Any) -> list[Any]: ...


class PostgresTexts:
    """A `TextIndex` in the database of a store."""

    def __init__(self, ask: _Ask) -> None:
        self._ask = ask

    def upto(self, stream: str) -> int:
        return next((int(upto) for (upto,) in self._ask("indexed", stream=stream)), 0)

    def add(
        self,
        stream: str,
        after_seq: int,
        upto_seq: int,
        texts: Sequence[tuple[int, Sequence[str]]],
        gone: Sequence[int],
    ) -> None:
        if not after_seq:
            self._ask("clear_texts", stream=stream)
        self._ask(
            "index_texts",
            stream=stream,
            after=after_seq,
            upto=upto_seq,
            gone=list(gone),
            seqs=[seq for seq, _ in texts],
            texts=[_vector(words) for _, words in texts],
        )

    def find(self, stream: str, words: Sequence[str], limit: int) -> list[tuple[int, float]]:
        query = " | ".join(f"'{word}'" for word in words)
        return self._ask("find_texts", stream=stream, query=query, limit=limit)

    def drop(self, stream: str) -> None:
        self._ask("drop_index", stream=stream)


def _vector(words: Sequence[str]) -> str:
    """Words and their places, as PostgreSQL writes them.

    >>> _vector(["a", "room", "a"])
    "'a':1 'room':2 'a':3"
    """
    places = enumerate(words, 1)
    return " ".join(f"'{word}':{min(place, _LAST_PLACE)}" for place, word in places)
