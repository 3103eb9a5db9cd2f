"""Texts as words, and an index of them in memory: what full-text search is made of.

Every store finds the same entries for the same query, because all of them are given the same words:
folded (`Zürich`, `ZURICH` and `zurich` are one), cut where neither a letter nor a digit stands, and
never longer than `LONGEST_WORD`. Chinese and Japanese are written without spaces, so there each
character is a word. What is left holds no quote, operator or control character, whatever the user
typed.

Entries that have any of the words match. How well is for the index to say: here by BM25, where a
word counts more the fewer entries have it, more the more often the entry has it, and less in a
longer entry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from math import log
from unicodedata import combining, normalize

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
    """Which lines of a log hold which words: a `TextIndex` that lasts as long as the process."""

    def __init__(self) -> None:
        self.drop("")

    def drop(self, stream: str) -> None:
        self._upto = 0
        self._lengths: dict[int, int] = {}
        self._holders: dict[str, dict[int, int]] = {}
        """For each word the lines that hold it, and how often."""
        self._words: dict[int, Collection[str]] = {}

    def upto(self, stream: str) -> int:
        return self._upto

    def add(
        self,
        stream: str,
        after_seq: int,
        upto_seq: int,
        texts: Iterable[tuple[int, Sequence[str]]],
        gone: Iterable[int],
    ) -> None:
        if after_seq != self._upto:
            return
        for seq in gone:
            self._remove(seq)
        for seq, words in texts:
            counts = Counter(words)
            self._lengths[seq], self._words[seq] = len(words), counts.keys()
            for word, count in counts.items():
                self._holders.setdefault(word, {})[seq] = count
        self._upto = upto_seq

    def _remove(self, seq: int) -> None:
        self._lengths.pop(seq, None)
        for word in self._words.pop(seq, ()):
            holders = self._holders[word]
            del holders[seq]
            if not holders:
                del self._holders[word]

    def find(self, stream: str, words: Sequence[str], limit: int) -> list[tuple[int, float]]:
        scores: dict[int, float] = {}
        total = len(self._lengths)
        usual = sum(self._lengths.values()) / total if total else 1.0
        for word in words:
            holders = self._holders.get(word, {})
            rarity = log(1 + (total - len(holders) + 0.5) / (len(holders) + 0.5))
            for seq, count in holders.items():
                length = 1 - _B + _B * self._lengths[seq] / usual
                part = rarity * count * (_K1 + 1) / (count + _K1 * length)
                scores[seq] = scores.get(seq, 0.0) + part
        return nsmallest(limit, scores.items(), key=lambda each: (-each[1], -each[0]))
