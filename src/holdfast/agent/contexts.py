"""The context: what a model call sees of a session, within a budget of tokens.

A `Context` does not hold the messages. It says which they are (by number), and what stands beside
them; the messages are in the session's log, where they never change. So it is a small value that a
step takes as its argument, and what the model saw can be told years later, after any number of
compactions: by the same log, and a digest that says that it is the same.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from hashlib import sha256
from typing import Any, Literal, Self

import msgspec
from msgspec import Struct

from holdfast.agent.book import Book, book_of
from holdfast.agent.cutting import cut, cut_text
from holdfast.agent.flow import once
from holdfast.agent.messages import Message
from holdfast.agent.sessions import Session, means_in_task, must_be_session
from holdfast.agent.tokens import Counter
from holdfast.errors import BadInput, LogDamaged
from holdfast.scope import scope_var
from holdfast.words import must_be_texts

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
    """What a context does not have of the conversation, besides what its summary stands for."""

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
    """What a model call is to see: within the budget, and never a call without its result.

    The system message first, then what is pinned, the goal and the plan, the newest summary, and
    the recent turns: at least the last six (see `holdfast.agent.fitting` for what happens where
    they are too much). What had to be left out is in `left_out`, and the model is told. A budget
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
    from holdfast.agent.building import Building

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
    """The book that has what a context was made of: that of then, where it was put back since."""
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
