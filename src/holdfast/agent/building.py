"""Building a context: which turns are in, what stands beside them, and what is left out.

It costs what is in the context, not what was ever said: turns are counted once and looked at from
the newest back, and those that a summary stands for are not looked at at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import partial
from math import ceil

from holdfast.agent.book import Book
from holdfast.agent.contexts import (
    Context,
    Kind,
    LeftOut,
    Section,
    digest_of,
    messages_in,
)
from holdfast.agent.cutting import cut, cut_text, longest_text
from holdfast.agent.fitting import SHORTEST, UNCUT, Fit, fit
from holdfast.agent.messages import Message
from holdfast.agent.tokens import Counter, Estimate
from holdfast.conversation import Conversation
from holdfast.errors import BadInput

MOST_LEFT_OUT = LeftOut(10**6, 10**9, (), 10**6)
"""Room is kept for a note that says this."""

_FARTHEST = 64
"""How many turns back a question is looked for that recent turns answer."""


class Building:
    """One context in the making."""

    def __init__(
        self,
        book: Book,
        counter: Counter | None,
        budget: int,
        keep: int,
        texts: Sequence[Section],
    ) -> None:
        self._book = book
        self._counter: Counter = counter or Estimate()
        self._budget = budget
        self._keep = keep
        self._texts = texts

    def context(self) -> Context:
        """The context, of the conversation as it is now."""
        state = self._book.now()
        fixed = _Fixed(self._book, state, self._texts, self._count)
        # What providers report says how far the counting is off: by as much the budget is other.
        ratio = self._book.ratio(self._counter)
        budget = int(self._budget / ratio)
        since = state.turn_of(state.summary.upto) + 1 if state.summary is not None else 0
        recent = (t for t in range(len(state.turns) - 1, since - 1, -1) if t not in fixed.turns)

        def longest(turns: Sequence[int]) -> int:
            inside = (longest_text(m) for turn in turns for m in self._book.turn(turn))
            return max(*inside, fixed.longest(), 0, 0)

        found = fit(
            recent, partial(self._asked_at, state, since, fixed.turns), self._cost, fixed.cost,
            longest, fixed.note, budget, self._keep,
        )  # fmt: skip
        if found is None:
            raise BadInput(self._too_small(state, since, fixed, ratio))
        return self._made(state, since, fixed, found, ratio)

    def _count(self, messages: Iterable[Message]) -> int:
        return sum(map(self._counter.count, messages))

    def _cost(self, turn: int, limit: int) -> int:
        if limit == UNCUT:
            return self._book.tokens(turn, self._counter)
        return self._count(cut(message, limit) for message in self._book.turn(turn))

    def _asked_at(self, state: Conversation, since: int, fixed: Set[int], turn: int) -> int | None:
        """The message of the user that a turn answers, if it is not far and not there anyway."""
        if state.turns[turn].role == "user":
            return None
        for earlier in range(turn - 1, max(since, turn - _FARTHEST) - 1, -1):
            if state.turns[earlier].role == "user":
                return None if earlier in fixed else earlier
        return None

    def _made(
        self, state: Conversation, since: int, fixed: _Fixed, found: Fit, ratio: float
    ) -> Context:
        left_out = self._left_out(state, since, fixed.turns, found)
        sections = fixed.sections(found.limit, left_out)
        sections += [
            Section("recent", first=state.firsts[first], last=_last_of(state, last))
            for first, last in _runs(found.turns)
        ]
        messages = tuple(messages_in(sections, found.limit, self._book))
        note = fixed.note if left_out.messages or found.limit != UNCUT else 0
        return Context(
            session=state.id,
            seq=state.seq,
            sections=tuple(sections),
            tokens=ceil((found.tokens + note) * ratio),
            budget=self._budget,
            digest=digest_of(messages),
            left_out=left_out,
            ratio=ratio,
        )

    def _left_out(self, state: Conversation, since: int, fixed: Set[int], found: Fit) -> LeftOut:
        """What no summary stands for, and is not in."""
        inside = sorted({*found.turns, *(turn for turn in fixed if turn >= since)})
        gaps = list(_gaps(inside, since, len(state.turns)))
        ranges = tuple((state.firsts[a], _last_of(state, b)) for a, b in gaps)
        tokens = sum(self._book.tokens_of(a, b, self._counter) for a, b in gaps)
        return LeftOut(sum(b - a + 1 for a, b in ranges), tokens, ranges, found.limit)

    def _too_small(self, state: Conversation, since: int, fixed: _Fixed, ratio: float) -> str:
        newest = max({*range(since, len(state.turns))} - fixed.turns, default=None)
        least = fixed.cost(SHORTEST) + fixed.note
        least += self._cost(newest, SHORTEST) if newest is not None else 0
        return (
            f"session {state.id!r}: a budget of {self._budget:,} tokens has no room for what every "
            f"context must have: the system message, what is pinned, the goal, the plan and the "
            f"newest turn are about {ceil(least * ratio):,} tokens, cut "
            f"short as far as they can be. Give a larger budget, or a shorter system message"
        )


class _Fixed:
    """What stands beside the recent turns: system message, pinned ones, goal, plan, summary."""

    def __init__(
        self,
        book: Book,
        state: Conversation,
        texts: Sequence[Section],
        count: Callable[[Iterable[Message]], int],
    ) -> None:
        pinned = sorted({state.turn_of(number) for number in state.pinned} - set(state.system))
        self.turns = frozenset((*state.system, *pinned))
        self._book = book
        self._state = state
        self._texts = texts
        self._pinned = pinned
        self._count = count
        self.note = count([Message("system", note_text(MOST_LEFT_OUT))])
        """How many tokens the note on what is left out takes at most."""
        self._known: dict[int, int] = {}

    def cost(self, limit: int) -> int:
        """How many tokens they are, if their texts are cut."""
        if limit not in self._known:
            sections = self.sections(limit, LeftOut())
            messages = messages_in(sections, limit, self._book)
            self._known[limit] = self._count(messages)
        return self._known[limit]

    def longest(self) -> int:
        """The length of the longest text that may be cut."""
        texts = [len(section.text) for section in self._texts if section.kind != "system"]
        if self._state.summary is not None:
            texts.append(len(self._book.summary_shown(self._state.summary.seq)))
        pinned = (longest_text(m) for turn in self._pinned for m in self._book.turn(turn))
        return max([*texts, *pinned], default=0)

    def sections(self, limit: int, left_out: LeftOut) -> list[Section]:
        """They, in order."""
        state = self._state
        found = [section for section in self._texts if section.kind == "system"]
        found += self._of_turns("system", state.system)
        found += self._of_turns("pinned", self._pinned)
        found += [
            Section(section.kind, text=cut_text(section.text, limit))
            for section in self._texts
            if section.kind != "system"
        ]
        if state.summary is not None:
            found.append(Section("summary", summary=state.summary.seq))
        if left_out.messages or left_out.cut_to:
            found.append(Section("note", text=note_text(left_out)))
        return found

    def _of_turns(self, kind: Kind, turns: Sequence[int]) -> list[Section]:
        state = self._state
        return [
            Section(kind, first=state.firsts[first], last=_last_of(state, last))
            for first, last in _runs(turns)
        ]


def note_text(left_out: LeftOut) -> str:
    """How the model is told what is left out."""
    said = []
    if left_out.messages:
        count = f"{left_out.messages:,} earlier message{'s' * (left_out.messages != 1)}"
        said.append(f"{count} of this conversation (about {left_out.tokens:,} tokens) left out")
    if left_out.cut_to:
        said.append(f"texts of more than {left_out.cut_to:,} characters cut short")
    return f"[For want of room: {'; '.join(said)}.]"


def _last_of(state: Conversation, turn: int) -> int:
    return state.firsts[turn] + state.turns[turn].count - 1


def _runs(turns: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Turns in order as stretches without a gap: the first and the last of each.

    >>> list(_runs([1, 2, 3, 7]))
    [(1, 3), (7, 7)]
    """
    first = last = -2
    for turn in turns:
        if turn != last + 1:
            if first >= 0:
                yield first, last
            first = turn
        last = turn
    if first >= 0:
        yield first, last


def _gaps(turns: Sequence[int], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The stretches from `start` to before `end` in which none of the turns is.

    >>> list(_gaps([3, 4, 7], 0, 9))
    [(0, 2), (5, 6), (8, 8)]
    """
    for first, last in _runs(turns):
        if first > start:
            yield start, first - 1
        start = last + 1
    if start < end:
        yield start, end - 1
