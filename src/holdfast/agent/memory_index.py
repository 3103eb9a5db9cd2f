"""The index of a memory: its words, in this process; never behind the log that it is of.

It is brought up to date when somebody searches. The words of many entries are kept beside the log,
so that a new process need not cut the texts again: a copy, which may be behind, or gone. The end of
this module says what a word is, and searches.
"""

from __future__ import annotations

import re
import sys
import threading
from array import array
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from itertools import accumulate, islice, takewhile
from math import isfinite, log, sqrt
from operator import mul
from typing import Any
from unicodedata import combining, normalize

import msgspec
from msgspec import Raw, Struct

from holdfast.core.decoding import decode
from holdfast.core.events import Remembered
from holdfast.core.memories import Memories
from holdfast.errors import BadInput, StoreError
from holdfast.log.ledger import Ledger
from holdfast.stores.port import Post

_BATCH = 500
"""Of how many entries the words are kept together."""
_WORDS = "words"

Match = tuple[Remembered, float]


class _KeptWords(Struct):
    """The words of some entries in a row, as they are kept beside the log."""

    upto: int
    entries: list[tuple[int, datetime, str]]
    """The line of each, when it was remembered (which shows that it is of this log), its words."""


_encode = msgspec.msgpack.encode
_SUM_BYTES = 16


class Indexed:
    """A memory's entries by their words."""

    def __init__(self, ledger: Ledger[Memories]) -> None:
        self._ledger = ledger
        self._own: tuple[Memories, WordIndex] | None = None
        self._lock = threading.Lock()

    def find(self, words: Sequence[str], fits: Callable[[Remembered], bool]) -> Iterator[Match]:
        """The entries that have any of the words and fit, the best first."""
        if not words:
            return
        with self._lock:
            lines = self._current().find(words)
        entries = self._ledger.state.by_seq
        for seq, score in lines:
            # None of an entry that was forgotten a moment ago.
            event = entries.get(seq)
            if event is not None and fits(event):
                yield event, score

    def _current(self) -> WordIndex:
        """The index, up to date."""
        state = self._ledger.refresh()
        # A state that is not the one we know was read anew, perhaps of another log.
        if self._own is None or self._own[0] is not state:
            self._own = state, WordIndex()
            self._load(self._own[1], state)
        index = self._own[1]
        while index.upto < state.seq:
            self._go_on(index, state)
        return index

    def _load(self, index: WordIndex, state: Memories) -> None:
        """Take up the words that are kept beside the log, as far as they are of this one."""
        rows: Sequence[Post] = ()
        with suppress(StoreError):
            rows = self._ledger.store.get_side([self._ledger.stream], "derived")
        by_name, entries = {row.name: row.data for row in rows}, state.by_seq.copy()
        while True:
            name = f"{index.upto}.{_WORDS}"
            kept = _decoded(by_name.pop(name, b""))
            if kept is None or not index.upto < kept.upto <= state.seq:
                return
            if any(seq in entries and entries[seq].at != at for seq, at, _ in kept.entries):
                return
            left = [entry for entry in kept.entries if entry[0] in entries]
            if len(left) < len(kept.entries):  # what was forgotten is not kept either
                self._keep(name, _KeptWords(kept.upto, left))
            index.add(((seq, words) for seq, _, words in left), (), kept.upto)

    def _go_on(self, index: WordIndex, state: Memories) -> None:
        """Index the next entries, and leave out what was taken away since.

        Other threads may change the state meanwhile. All that was before its `seq` is in it.
        """
        upto, end = index.upto, state.seq
        gone, entries = state.gone.copy(), state.by_seq.copy()
        newer = list(takewhile(lambda seq: seq > upto, reversed(entries)))[::-1]
        batch = [seq for seq in newer if seq <= end][:_BATCH]
        if len(batch) == _BATCH:
            end = batch[-1]
        made = [(seq, entries[seq].at, " ".join(words_of(entries[seq].text))) for seq in batch]
        if len(batch) == _BATCH:  # fewer are soon cut again, and would make many small rows
            self._keep(f"{upto}.{_WORDS}", _KeptWords(end, made))
        left_out = [was for seq, was in gone.items() if upto < seq <= end]
        index.add(((seq, words) for seq, _, words in made), left_out, end)

    def _keep(self, name: str, kept: _KeptWords) -> None:
        data = _encode(kept)
        with suppress(StoreError):  # then they are cut again
            summed = sha256(data).digest()[:_SUM_BYTES] + data
            self._ledger.store.put_side(self._ledger.stream, "derived", name, summed)


def _decoded(stored: bytes) -> _KeptWords | None:
    total, data = stored[:_SUM_BYTES], stored[_SUM_BYTES:]
    if not data or sha256(data).digest()[:_SUM_BYTES] != total:
        return None
    try:
        return msgspec.msgpack.decode(data, type=_KeptWords)
    except msgspec.MsgspecError:
        return None


# Meaning as numbers: vectors that a function of the user makes of texts, and which are nearest.
#
# A vector is kept with its entry as 32-bit numbers, in base64, under the name of the function that
# made it: two functions are never compared. Entries without one are given theirs when they are
# first searched, for as long as the process lasts.


Embed = Callable[[list[str]], Sequence[Sequence[float]]]

_VECTORS_AT_ONCE = 64
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
    for first in range(0, len(events), _VECTORS_AT_ONCE):
        yield events[first : first + _VECTORS_AT_ONCE]


def _unit(vector: array[float]) -> array[float]:
    length = sqrt(sum(map(mul, vector, vector)))
    return array("f", (number / length for number in vector)) if length else vector


def _little_endian(vector: array[float]) -> array[float]:
    if sys.byteorder == "big":
        vector = vector[:]
        vector.byteswap()
    return vector


# Texts as words, and a search in them: the whole of full-text search.
#
# Every store finds the same entries for the same query, because no store has a part in it. Words
# are folded (`Zürich`, `ZURICH` and `zurich` are one), cut where neither a letter nor a digit
# stands, and never longer than `LONGEST_WORD`. Chinese and Japanese are written without spaces, so
# there each character is a word. The rest holds no quote, operator or control character, whatever
# the user typed.
#
# Entries that have any of the words match. How well they match is said by BM25, where a word counts
# more the fewer entries have it, more the more often the entry has it, and less in a longer entry.
#
# There is no list of entries for each word: a search scans all words, which are joined to one text.
# That takes about a millisecond for a megabyte, and the text is made far sooner than lists are.

LONGEST_WORD = 64
MOST_WORDS = 64
"""Of a query. Those after them are not looked for."""

_ALONE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_ALONE}]|[^\W_{_ALONE}]+")
_K1, _B = 1.2, 0.75
"""The usual ones: how soon more of the same word counts no more, and how much length counts."""


def words_of(text: str) -> list[str]:
    """The words of a text, in order.

    >>> words_of("Café «Zürich», max_value=8: 東京へ")
    ['cafe', 'zurich', 'max', 'value', '8', '東', '京', 'へ']
    """
    return list(_words(text))


def words_to_find(query: str) -> list[str]:
    """The words that a query asks for, each once.

    >>> words_to_find('"quiet" OR Quiet* room')
    ['quiet', 'or', 'room']
    """
    return list(islice(dict.fromkeys(_words(query)), MOST_WORDS))


def _words(text: str) -> Iterator[str]:
    # Twice, because there are capital letters that only decomposing brings to light.
    folded = normalize("NFKD", normalize("NFKD", text).casefold())
    if not folded.isascii():
        folded = normalize("NFC", "".join(c for c in folded if not combining(c)))
    for found in _WORD.finditer(folded):
        yield found.group()[:LONGEST_WORD]


class WordIndex:
    """The words of entries, by the numbers of their lines."""

    def __init__(self) -> None:
        self.upto: int = 0
        """Up to which line it goes."""
        self._words: dict[int, str] = {}
        self._scanned: _Scanned | None = None

    def add(self, texts: Iterable[tuple[int, str]], gone: Iterable[int], upto: int) -> None:
        """Go on to a line, with the words of the entries up to there, joined by spaces."""
        for seq in gone:
            self._words.pop(seq, None)
        self._words.update(texts)
        self.upto = upto
        self._scanned = None

    def find(self, words: Sequence[str]) -> list[tuple[int, float]]:
        """The lines that hold any of the words, and how well they match (above 0).

        The best first; of equal ones the newest.
        """
        if self._scanned is None:
            self._scanned = _Scanned(self._words)
        scores = self._scanned.scores(words)
        return sorted(scores.items(), key=lambda each: (-each[1], -each[0]))


class _Scanned:
    """All words in one text, and where in it each entry begins."""

    def __init__(self, words: dict[int, str]) -> None:
        self._seqs = list(words)
        parts = [f" {text} " for text in words.values()]
        self._text = "".join(parts)
        self._lengths = [part.count(" ") - 1 for part in parts]
        self._starts = list(accumulate(map(len, parts), initial=0))

    def scores(self, words: Sequence[str]) -> dict[int, float]:
        scores: dict[int, float] = {}
        total = len(self._seqs)
        usual = sum(self._lengths) / total if total else 1.0
        for word in words:
            holders = Counter(self._holders(word))
            rarity = log(1 + (total - len(holders) + 0.5) / (len(holders) + 0.5))
            for number, count in holders.items():
                length = 1 - _B + _B * self._lengths[number] / usual
                part = rarity * count * (_K1 + 1) / (count + _K1 * length)
                seq = self._seqs[number]
                scores[seq] = scores.get(seq, 0.0) + part
        return scores

    def _holders(self, word: str) -> Iterator[int]:
        """The entry of each place where a word stands."""
        wanted, at = f" {word} ", -1
        while (at := self._text.find(wanted, at + 1)) >= 0:
            yield bisect_right(self._starts, at) - 1
