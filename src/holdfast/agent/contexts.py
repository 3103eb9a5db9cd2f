"""The context: what a model call sees of a session, within a budget of tokens.

A `Context` does not hold the messages. It says which they are (by number), and what stands beside
them; the messages are in the session's log, where they never change. So it is a small value that a
step takes as its argument, and what the model saw can be told years later, after any number of
compactions: by the same log, and a digest that says that it is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Set
from functools import partial
from hashlib import sha256
from math import ceil
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from holdfast.agent.book import Book, book_of
from holdfast.agent.compaction import SHORTEST, UNCUT, Fit, cut, cut_text, fit, longest_text
from holdfast.agent.flow import once
from holdfast.agent.sessions import Session, means_in_task, must_be_session
from holdfast.core.conversation import Conversation
from holdfast.core.scope import scope_var
from holdfast.core.words import must_be_texts
from holdfast.errors import BadInput, LogDamaged
from holdfast.log.messages import Message
from holdfast.log.tokens import Counter, Estimate

LAST_TURNS = 6
"""So many turns are in every context that has room for them."""

Kind = Literal["system", "pinned", "goal", "plan", "summary", "note", "recent"]


class Section(Struct, frozen=True):
    """A part of a context: a text of its own, messages by number, or the summary of an event."""

    kind: Kind
    text: str = ""
    first: int = 0
    last: int = 0
    summary: int = 0


class LeftOut(Struct, frozen=True):
    """The turns that a context leaves out, besides those in its summary."""

    messages: int = 0
    tokens: int = 0
    ranges: tuple[tuple[int, int], ...] = ()
    cut_to: int = 0
    """Texts are cut to so many characters; 0 if none is."""


class Context(Struct, frozen=True):
    """Exactly what a model call sees: made by `context`, and a small value like any other.

    Its `messages` are had inside of a task; elsewhere by `shown(context, session)`.

    >>> Context("chat", 1, (), tokens=0, budget=10, digest="").left_out.messages
    0
    """

    session: str
    seq: int
    """How far the conversation had come."""
    sections: tuple[Section, ...]
    tokens: int
    budget: int
    digest: str
    left_out: LeftOut = LeftOut()
    ratio: float = 1.0
    """By how much the counted tokens were corrected, by what the provider reported before."""

    def __await__(self) -> Generator[Any, Any, Self]:
        """Itself, at once: in an async task a context is awaited, and so one may be anywhere."""
        yield from ()
        return self

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages, in the order in which the model sees them."""
        if scope_var.get() is None:
            raise BadInput(
                "a context has its messages inside of a task: elsewhere use shown(context, session)"
            )
        return messages_of(self, book_of(means_in_task(), self.session))


def context(
    session: Session,
    *,
    budget_tokens: int,
    system: str = "",
    goal: str = "",
    plan: Sequence[Any] | None = None,
    counter: Counter | None = None,
    keep_turns: int = LAST_TURNS,
) -> Context:
    """The input of a model call: within the budget, and never a call without its result.

    The system message first, then what is pinned, the goal and the plan, the newest summary, and
    the recent turns: at least the last six (see `holdfast.agent.compaction` for what happens where
    they are too much). Turns left out are in `left_out`, and the model is told. A budget
    that has no room for the system message is refused. In a task the context is recorded, so that
    a resumed task goes on with the same one; in an async task it is awaited. The `plan` is that of
    the running task, if it is left out.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     chat = hf.session("chat-8")
    ...     _ = chat.say(Message("system", "Be brief."), "Hello")
    ...     seen = context(chat, budget_tokens=1000, goal="Greet the user.")
    ...     [message.text for message in shown(seen, chat)]
    ['Be brief.', 'The goal: Greet the user.', 'Hello']
    """

    must_be_session("context()", session)
    for name, number in (("budget_tokens", budget_tokens), ("keep_turns", keep_turns)):
        if type(number) is not int or number < 1:
            raise BadInput(f"context({name}={number!r:.40}) must be a number above 0")
    must_be_texts("context()", system=system, goal=goal)
    texts = [Section("system", text=system)] if system else []
    if goal:
        texts.append(Section("goal", text=f"The goal: {goal}"))
    if planned := plan_text(_plan_of_task() if plan is None else plan):
        texts.append(Section("plan", text=planned))
    building = Building(session.book, counter, budget_tokens, keep_turns, texts)
    return once("context", lambda key, path: building.context(), Context)


def shown(context: Context, session: Session) -> tuple[Message, ...]:
    """The messages of a context, outside of a task. See `context`."""
    return messages_of(context, session.book)


def plan_text(plan: Sequence[Any]) -> str:
    """A plan as a model reads it: a checklist.

    >>> print(plan_text(["look", "book"]))
    The plan:
    - [ ] look
    - [ ] book
    """
    marks = {"done": "x", "doing": "~", "failed": "!", "skipped": "-"}
    lines = [
        f"- [{marks.get(getattr(item, 'status', ''), ' ')}] {getattr(item, 'text', item)}"
        for item in plan
    ]
    return "\n".join(["The plan:", *lines]) if lines else ""


def _plan_of_task() -> Sequence[Any]:
    scope = scope_var.get()
    plan: Sequence[Any] = () if scope is None else scope.run.log.state.plan
    return plan


def messages_of(context: Context, book: Book) -> tuple[Message, ...]:
    """The messages that a context names; they must be those that it was made of."""
    book = book_at(context, book)
    found = tuple(messages_in(context.sections, context.left_out.cut_to, book))
    if digest_of(found) != context.digest:
        what = "the messages of a context are other ones than it was made of"
        raise LogDamaged(f"sessions/{context.session}", context.seq, what)
    return found


def book_at(context: Context, book: Book) -> Book:
    """The book that a context was made of: as it was then, where the session was rewound since."""
    state = book.refresh()
    if state.seq < context.seq:
        raise LogDamaged(f"sessions/{context.session}", context.seq, "a context was made of it")
    return book.as_of(context.seq) if state.was_left(context.seq) else book


def messages_in(sections: Sequence[Section], cut_to: int, book: Book) -> Iterator[Message]:
    """The messages that sections stand for. System messages are never cut."""
    for section in sections:
        if section.summary:
            yield Message("system", cut_text(book.summary_shown(section.summary), cut_to))
        elif section.first:
            limit = 0 if section.kind == "system" else cut_to
            for message in book.messages(section.first, section.last):
                yield cut(message, limit)
        else:
            yield Message("system", section.text)


def digest_of(messages: Sequence[Message]) -> str:
    """A short name for what a model sees."""
    seen = [(message.role, message.name, message.content) for message in messages]
    return sha256(msgspec.json.encode(seen)).hexdigest()[:16]


# Building a context: which turns are in, what stands beside them, and what is left out.
#
# It costs what is in the context, not what was ever said: turns are counted once and looked at
# from the newest back, and those that a summary stands for are not looked at at all.


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
        # The providers' reports say how far the counting is off; the budget is adjusted by as much.
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
        """Turns that neither a summary nor the context contains."""
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
    """The parts beside the recent turns: system message, pinned ones, goal, plan, summary."""

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
