"""Meaning as numbers: vectors that a function of the user makes of texts, and which are nearest.

A vector is kept with its entry as 32-bit numbers, in base64, under the name of the function that
made it: two functions are never compared. Entries without one are given theirs when they are first
searched, for as long as the process lasts.
"""

from __future__ import annotations

import sys
from array import array
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import isfinite, sqrt
from operator import mul
from typing import Any

import msgspec
from msgspec import Raw, Struct

from holdfast.decoding import decode
from holdfast.errors import BadInput
from holdfast.events import Remembered

Embed = Callable[[list[str]], Sequence[Sequence[float]]]

_BATCH = 64
"""How many texts a function is given at once."""


class _Kept(Struct):
    """A vector as an event has it."""

    by: str
    f32: str
    """Little-endian."""


class Vectors:
    """The vectors that one function makes of texts."""

    def __init__(self, embed: Embed, name: str) -> None:
        self.name = name
        self._embed = embed
        self._known: dict[tuple[Any, ...], array[float]] = {}

    def kept(self, text: str) -> Raw:
        """The vector of a text, as it goes into an event."""
        (vector,) = self._made([text])
        kept = _Kept(self.name, b64encode(_little_endian(vector).tobytes()).decode())
        return Raw(msgspec.json.encode(kept))

    def nearest(
        self, query: str, events: Sequence[Remembered], limit: int
    ) -> list[tuple[Remembered, float]]:
        """The entries nearest to a text, with the cosine of the angle between them."""
        if not events:
            return []
        (wanted,) = map(_unit, self._made([query]))
        self._learn(events)
        found = [(event, self._cosine(wanted, event)) for event in events]
        return sorted(found, key=lambda each: (-each[1], -each[0].seq))[:limit]

    def _cosine(self, wanted: array[float], event: Remembered) -> float:
        vector = self._known[_key(event)]
        if len(vector) != len(wanted):
            raise BadInput(
                f"{self.name} makes {len(wanted)} numbers of a text, and entry {event.id!r} has "
                f"{len(vector)}: that is another function, so give it another name"
            )
        return float(sum(map(mul, wanted, vector)))

    def _learn(self, events: Sequence[Remembered]) -> None:
        """Know the vector of each entry: the one kept with it, or one that is made now."""
        missing = []
        for event in events:
            if _key(event) not in self._known:
                vector = self._kept_with(event)
                if vector is None:
                    missing.append(event)
                else:
                    self._known[_key(event)] = _unit(vector)
        for some in _batches(missing):
            vectors = self._made([event.text for event in some])
            self._known.update((_key(e), _unit(v)) for e, v in zip(some, vectors, strict=True))

    def _kept_with(self, event: Remembered) -> array[float] | None:
        if not isinstance(event.vector, Raw):
            return None
        kept = decode(event.vector, _Kept)
        if kept.by != self.name:
            return None
        return _little_endian(array("f", b64decode(kept.f32)))

    def _made(self, texts: list[str]) -> list[array[float]]:
        made = self._embed(texts)
        if isinstance(made, Awaitable):
            close = getattr(made, "close", None)
            if close is not None:
                close()  # or it would be said that it was never awaited
            raise BadInput(f"{self.name} is async: give a plain function of a list of texts")
        try:
            vectors = [array("f", map(float, vector)) for vector in made]
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(
                f"{self.name} must make a list of numbers of each text: {error}"
            ) from None
        lengths = {len(vector) for vector in vectors}
        if len(vectors) != len(texts):
            raise BadInput(f"{self.name} made {len(vectors)} vectors of {len(texts)} texts")
        if len(lengths) != 1 or 0 in lengths:
            many = " and ".join(map(str, sorted(lengths)))
            raise BadInput(f"{self.name} made vectors of {many} numbers: all must be as long")
        if not all(isfinite(number) for vector in vectors for number in vector):
            raise BadInput(f"{self.name} made a vector with a number that is not finite")
        return vectors


def _key(event: Remembered) -> tuple[Any, ...]:
    return event.seq, event.at, event.id


def _batches(events: Sequence[Remembered]) -> Iterator[Sequence[Remembered]]:
    for first in range(0, len(events), _BATCH):
        yield events[first : first + _BATCH]


def _unit(vector: array[float]) -> array[float]:
    length = sqrt(sum(map(mul, vector, vector)))
    return array("f", (number / length for number in vector)) if length else vector


def _little_endian(vector: array[float]) -> array[float]:
    if sys.byteorder == "big":
        vector = vector[:]
        vector.byteswap()
    return vector
