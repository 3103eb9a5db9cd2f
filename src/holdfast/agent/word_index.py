"""Texts as words, and a search in them: the whole of full-text search.

Every store finds the same entries for the same query, because no store has a part in it. Words are
folded (`Zürich`, `ZURICH` and `zurich` are one), cut where neither a letter nor a digit stands, and
never longer than `LONGEST_WORD`. Chinese and Japanese are written without spaces, so there each
character is a word. The rest holds no quote, operator or control character, whatever the user
typed.

Entries that have any of the words match. How well they match is said by BM25, where a word counts
more the fewer entries have it, more the more often the entry has it, and less in a longer entry.

There is no list of entries for each word: a search scans all words, which are joined to one text.
That takes about a millisecond for a megabyte, and the text is made far sooner than lists are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
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
