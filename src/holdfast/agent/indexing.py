"""The index of a memory: the store's own, or one in this process; never behind the log it is of.

It is brought up to date when somebody searches, from wherever it is: a crash, another process or a
person may have left it behind, or deleted it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from holdfast.events import Remembered
from holdfast.ledger import Ledger
from holdfast.remembering import Memories
from holdfast.store import TextIndex, TextSearch
from holdfast.texts import WordIndex, words_of

_BATCH = 500
"""How many entries are indexed at once: others may want to write in between."""
_FIRST, _TIMES = 64, 32
"""How many lines are asked for at first, and how many times more if too few of them fit."""

Match = tuple[Remembered, float]


class Indexed:
    """A memory's entries by their words."""

    def __init__(self, ledger: Ledger[Memories]) -> None:
        self._ledger = ledger
        store = ledger.store
        self._of_store = store.text_index() if isinstance(store, TextSearch) else None
        self._own: tuple[Memories, WordIndex] | None = None
        self._lock = threading.Lock()

    def find(
        self, words: Sequence[str], fits: Callable[[Remembered], bool], limit: int
    ) -> Iterator[Match]:
        """The entries that have any of the words and fit, the best first; at least `limit` if
        there are so many."""
        if not words:
            return iter(())
        with self._lock:
            return iter(self._found(self._current(), words, fits, limit))

    def _found(
        self,
        index: TextIndex,
        words: Sequence[str],
        fits: Callable[[Remembered], bool],
        limit: int,
    ) -> Sequence[Match]:
        count = max(_FIRST, limit)
        while True:
            lines = index.find(self._ledger.stream, words, count)
            found = list(self._fitting(lines, fits))
            if len(found) >= limit or len(lines) < count:
                return found
            count *= _TIMES

    def _fitting(
        self, lines: Sequence[tuple[int, float]], fits: Callable[[Remembered], bool]
    ) -> Iterator[Match]:
        entries = self._ledger.state.by_seq
        for seq, score in lines:
            # None of an entry that was forgotten, or remembered, a moment ago.
            event = entries.get(seq)
            if event is not None and fits(event):
                yield event, score

    def _current(self) -> TextIndex:
        """The index, up to date."""
        state = self._ledger.refresh()
        index, stream = self._index(state), self._ledger.stream
        while (upto := index.upto(stream)) != state.seq:
            if upto > state.seq:  # somebody has read more than we had
                state = self._ledger.refresh()
                if upto > state.seq:
                    index.drop(stream)
            else:
                _go_on(index, stream, state, upto)
        return index

    def _index(self, state: Memories) -> TextIndex:
        if self._of_store is not None:
            return self._of_store
        # A state that is not the one we know was read anew, perhaps of another log.
        if self._own is None or self._own[0] is not state:
            self._own = state, WordIndex()
        return self._own[1]


def _go_on(index: TextIndex, stream: str, state: Memories, upto: int) -> None:
    """Index the next entries, and leave out what was taken away since.

    Other threads may change the state meanwhile. All that was before its `seq` is in it.
    """
    end = state.seq
    gone, entries = state.gone.copy(), state.by_seq.copy()
    newer = list(takewhile(lambda seq: seq > upto, reversed(entries)))[::-1]
    batch = [seq for seq in newer if seq <= end][:_BATCH]
    if len(batch) == _BATCH:
        end = batch[-1]
    texts = [(seq, words_of(entries[seq].text)) for seq in batch]
    index.add(stream, upto, end, texts, [was for seq, was in gone.items() if upto < seq <= end])
