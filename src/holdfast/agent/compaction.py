"""Compaction: older turns in short, so that a long conversation fits a context.

The user's own function writes the summary, as a step of the task: it is run once, retried if that
is asked for, and recorded. The summary is an event in the session's log that says up to which
message it goes; the messages stay, and can be read. The next one goes on from it: it is given the
summary before it as its first message, and stands for both. A failure changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, Self
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct

from holdfast.agent.book import Book, book_of
from holdfast.agent.flow import Flow, drive, once
from holdfast.agent.model import Reply
from holdfast.agent.sessions import Session, means_in_task, must_be_session
from holdfast.api.steps import step
from holdfast.core.events import Summarized
from holdfast.core.scope import inside
from holdfast.core.spec import Spec, is_async
from holdfast.core.usage import Usage
from holdfast.errors import BadInput, StepFailed
from holdfast.log.messages import Message
from holdfast.log.tokens import Counter, Estimate

Summarize = Callable[[Sequence[Message]], Any]
"""The user's function: messages in; out a text, or the `Reply` of a model (or an awaitable)."""

KEEP_TURNS = 6
"""The newest turns, which are never summarized."""


class Stretch(Struct, frozen=True):
    """Messages of a session to be summarized: what follows a summary, up to a message."""

    session: str
    base: int
    """The event of the summary before; 0 if there is none."""
    first: int
    upto: int
    tokens: int = 0

    def messages(self) -> list[Message]:
        """They, with the summary before them. Inside of a task."""
        return stretch_of(book_of(means_in_task(), self.session), self)


class Summary(Struct, frozen=True, omit_defaults=True):
    """The outcome of the user's function: a text, and the usage of the model."""

    text: str
    usage: Usage = Usage()


class Compaction(Struct, frozen=True, omit_defaults=True):
    """Its outcome."""

    done: bool = False
    upto: int = 0
    why: str = ""
    """Why it was not done."""
    tokens_before: int = 0
    tokens_after: int = 0
    usage: Usage = Usage()

    def __await__(self) -> Generator[Any, Any, Self]:
        """Itself, at once: in an async task it is awaited, and so it may be anywhere."""
        yield from ()
        return self


def compact(
    session: Session,
    summarize: Summarize,
    *,
    over_tokens: int = 0,
    keep_turns: int = KEEP_TURNS,
    counter: Counter | None = None,
) -> Compaction:
    """Summarize the older turns of a session, if there are more than `over_tokens` of them.

    `summarize(messages)` returns the summary. It is called in a step, `summarize_by_NAME`. A
    summary that fails, comes back empty, or is longer than what it stands for changes nothing;
    neither does one that comes after another task's. For use inside of a task; in an async one it
    is awaited.

    >>> from holdfast import Holdfast, task
    >>> def in_short(messages: Sequence[Message]) -> str:
    ...     return f"They spoke {len(messages)} times."
    >>> @task
    ... def tidy_up_1() -> str:
    ...     from holdfast.agent import session
    ...
    ...     return compact(session(), in_short, keep_turns=2) and session().summary
    >>> with Holdfast("memory://") as hf:
    ...     chat = hf.session("chat-10")
    ...     _ = chat.say(*(f"A long story, part {n}: and so on, and so on" for n in range(8)))
    ...     chat.run(tidy_up_1)
    'They spoke 6 times.'
    """
    inside("compact()")
    must_be_session("compact()", session)
    if type(keep_turns) is not int or keep_turns < 1:
        raise BadInput(f"compact(keep_turns={keep_turns!r:.40}) must be a number above 0")
    if type(over_tokens) is not int or over_tokens < 0:
        raise BadInput(f"compact(over_tokens={over_tokens!r:.40}) must be a number, or 0")
    count = counter or Estimate()
    return drive(_compact(session, summarize, over_tokens, keep_turns, count))


def _compact(
    session: Session, summarize: Summarize, over_tokens: int, keep_turns: int, counter: Counter
) -> Flow[Compaction]:
    book = session.book

    def stretch(key: str, path: str) -> Stretch | None:
        found = next_stretch(book, keep_turns, counter)
        return found if found is not None and found.tokens > over_tokens else None

    chosen: Stretch | None = yield lambda: once("compact", stretch, Stretch | None)
    if chosen is None:
        return Compaction(why="there is nothing to summarize yet")
    try:
        made: Summary = yield lambda: summarizer(summarize)(chosen)
    except StepFailed as error:
        return Compaction(why=f"the summary failed: {error}", tokens_before=chosen.tokens)
    tokens = counter.count(Message("system", made.text))
    outcome = partial(Compaction, False, 0, tokens_before=chosen.tokens, usage=made.usage)
    if not made.text.strip():
        return outcome("the summary came back empty")
    if tokens >= chosen.tokens:
        why = f"the summary ({tokens:,} tokens) is no shorter than what it stands for"
        return outcome(f"{why} ({chosen.tokens:,})", tokens_after=tokens)
    kept: bool = yield lambda: once(
        "summarized", lambda key, path: _keep(book, chosen, made.text, key, path), bool
    )
    if not kept:
        return outcome("another summary came first")
    return Compaction(True, chosen.upto, "", chosen.tokens, tokens, made.usage)


def _keep(book: Book, stretch: Stretch, text: str, key: str, path: str) -> bool:
    run = inside("compact()").run
    if not run.driver.writes:
        return True
    summary = Summarized(
        upto=stretch.upto, text=Raw(b'""'), base=stretch.base, key=key, task=run.task_id, step=path
    )
    return book.summarize(msgspec.json.encode(text), summary)


def next_stretch(book: Book, keep_turns: int, counter: Counter) -> Stretch | None:
    """The turns to summarize next: all but the newest, since the last summary."""
    state = book.refresh()
    summary = state.summary
    since = state.turn_of(summary.upto) + 1 if summary is not None else 0
    end = len(state.turns) - keep_turns
    # System messages are in every context anyway.
    turns = [turn for turn in range(since, end) if state.turns[turn].role != "system"]
    if not turns:
        return None
    base = summary.seq if summary is not None else 0
    tokens = sum(book.tokens(turn, counter) for turn in turns)
    if summary is not None:
        tokens += counter.count(Message("system", book.summary_text(summary)))
    upto = state.firsts[end - 1] + state.turns[end - 1].count - 1
    return Stretch(state.id, base, state.firsts[since], upto, tokens)


def stretch_of(book: Book, stretch: Stretch) -> list[Message]:
    """The messages of a stretch, with the summary before them."""
    book.refresh()
    before = []
    if stretch.base:
        before = [Message("system", book.summary_shown(stretch.base))]
    said = book.messages(stretch.first, stretch.upto)
    return [*before, *(message for message in said if message.role != "system")]


_summarizers: WeakKeyDictionary[Any, Callable[[Stretch], Any]] = WeakKeyDictionary()


def summarizer(fn: Summarize) -> Callable[[Stretch], Any]:
    """The user's function as a step. Its argument names the messages: they are stored once."""
    if not callable(fn):
        raise BadInput(f"compact() takes a function of the messages, not {fn!r:.60}")
    try:
        made = _summarizers.get(fn)
        if made is None:
            made = _summarizers[fn] = _as_step(fn)
    except TypeError:  # some callables can't be remembered
        return _as_step(fn)
    return made


def _as_step(fn: Summarize) -> Callable[[Stretch], Any]:
    own = getattr(fn, "holdfast_spec", None)
    options: dict[str, Any] = {"name": f"summarize_by_{_name_of(fn)}"}
    if isinstance(own, Spec):
        options |= {"retry": own.retry, "timeout_s": own.timeout_s}
        fn = own.fn
    decorate: Callable[..., Any] = step(**options)
    if is_async(fn):

        async def asummarize(stretch: Stretch) -> Summary:
            return _summary(await fn(stretch.messages()))

        made: Callable[[Stretch], Any] = decorate(asummarize)
        return made

    def summarize(stretch: Stretch) -> Summary:
        return _summary(fn(stretch.messages()))

    made = decorate(summarize)
    return made


def _summary(made: Any) -> Summary:
    if isinstance(made, Reply):
        return Summary(made.message.text, made.usage)
    if made is not None and not isinstance(made, str):
        raise BadInput(f"a summary is a text, or the Reply of a model, not {type(made).__name__}")
    return Summary(made or "")


def _name_of(fn: Any) -> str:
    name: str = getattr(fn, "__name__", "") or type(fn).__name__
    return "function" if name == "<lambda>" else name
