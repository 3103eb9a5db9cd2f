"""Compaction: older turns in short, so that a long conversation fits a context.

The user's own function writes the summary, as a step of the task: it is run once, retried if that
is asked for, and recorded. The summary is an event in the session's log that says up to which
message it goes; the messages stay, and can be read. The next one goes on from it: it is given the
summary before it as its first message, and stands for both. A failure changes nothing.

The second part decides which turns fit into a context.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Any, Self
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.agent.book import Book, book_of
from holdfast.agent.flow import Flow, drive, once
from holdfast.agent.model import Reply
from holdfast.agent.sessions import Session, means_in_task, must_be_session
from holdfast.api.steps import step
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import Summarized
from holdfast.core.scope import inside
from holdfast.core.spec import Spec, is_async
from holdfast.core.usage import Usage
from holdfast.errors import BadInput, StepFailed
from holdfast.log.messages import Message, Text, ToolCall, ToolResult
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


# Which turns fit into a context: pure, on numbers alone.
#
# There are things that must be there (the system message, what is pinned, the goal and the plan)
# and turns, of which the newest count most. In this order, until it fits the budget:
#
# 1. everything; or what is fixed, the summary, and as many turns as there is room for, at least the
#    last `keep`, and the message of the user that they answer;
# 2. if those are too much: the same, with long texts in turns and summary cut short, the longest
#    first, down to `SHORTEST` characters;
# 3. if that is too much: fewer turns, at least the newest one;
# 4. if that is too much, the budget can't be met.

SHORTEST = 200
"""To fewer characters than this no text is cut."""

UNCUT = 0
"""The limit that stands for none."""


class Fit(Struct, frozen=True):
    """Which turns are in, and to how many characters their texts are cut (0: not at all)."""

    turns: tuple[int, ...]
    limit: int
    tokens: int


Cost = Callable[[int, int], int]
"""How many tokens a turn is, if its texts are cut to so many characters."""


def fit(
    recent: Iterator[int],
    asked_at: Callable[[int], int | None],
    cost: Cost,
    fixed: Callable[[int], int],
    longest: Callable[[Sequence[int]], int],
    note: int,
    budget: int,
    keep: int,
) -> Fit | None:
    """The turns that are in, oldest first, or None if the budget can't be met.

    `recent` are the turns that may be in, from the newest to the oldest. `asked_at` says for a turn
    which earlier one it answers, if any. `fixed` is what everything else costs, with its long texts
    cut to a limit too, `note` what it costs to say that something is left out; `longest` is the
    length of the longest text that may be cut.
    """
    seen, tokens = [], fixed(UNCUT)
    for turn in recent:
        seen.append(turn)
        tokens += cost(turn, UNCUT)
        if tokens > budget:
            break
    else:
        if tokens <= budget:
            return Fit(tuple(reversed(seen)), UNCUT, tokens)
    recent, budget = chain(seen, recent), budget - note
    last = list(islice(recent, keep))
    must = _with_question(last, asked_at)
    tokens = fixed(UNCUT) + sum(cost(turn, UNCUT) for turn in must)
    if tokens <= budget:
        return _with_older(recent, must, tokens, cost, budget)
    while True:
        found = _cut(must, cost, fixed, longest, budget)
        if found is not None:
            return found
        if len(must) > len(last):
            must = sorted(last)  # without the question, before a turn is given up
        elif len(last) > 1:
            last = last[:-1]
            must = _with_question(last, asked_at)
        else:
            return None


def _with_question(last: Sequence[int], asked_at: Callable[[int], int | None]) -> list[int]:
    """Turns, and the message of the user that the oldest of them answers."""
    asked = asked_at(last[-1]) if last else None
    return sorted({*last, asked}) if asked is not None else sorted(last)


def _with_older(
    recent: Iterator[int], must: list[int], tokens: int, cost: Cost, budget: int
) -> Fit:
    """As many older turns as there is room for, without a gap."""
    turns = set(must)
    for turn in recent:
        if turn in turns:
            continue
        more = cost(turn, UNCUT)
        if tokens + more > budget:
            break
        turns.add(turn)
        tokens += more
    return Fit(tuple(sorted(turns)), UNCUT, tokens)


def _cut(
    must: Sequence[int],
    cost: Cost,
    fixed: Callable[[int], int],
    longest: Callable[[Sequence[int]], int],
    budget: int,
) -> Fit | None:
    """The same turns with their long texts cut, as little as possible."""

    def total(limit: int) -> int:
        return fixed(limit) + sum(cost(turn, limit) for turn in must)

    if total(UNCUT) <= budget:
        return Fit(tuple(must), UNCUT, total(UNCUT))
    low, high = SHORTEST, max(longest(must), SHORTEST)
    if total(low) > budget:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if total(middle) <= budget:
            low = middle
        else:
            high = middle - 1
    return Fit(tuple(must), low, total(low))


# Texts cut short, where there is no room for the whole: each says what it lacks.


_MARK = 40
"""About how long the words are that say what is missing: less than that is not worth cutting."""


def cut(message: Message, limit: int) -> Message:
    """A message whose long texts are cut, those in the arguments of calls included."""
    if limit == UNCUT:
        return message
    content = message.content
    if isinstance(content, str):
        return replace(message, content=cut_text(content, limit))
    return replace(message, content=tuple(_cut_part(part, limit) for part in content))


def _cut_part(part: Any, limit: int) -> Any:
    if isinstance(part, Text):
        return replace(part, text=cut_text(part.text, limit))
    if isinstance(part, ToolCall):
        return replace(part, arguments=cut_arguments(part.arguments, limit))
    if isinstance(part, ToolResult):
        content = part.content
        if isinstance(content, str):
            return replace(part, content=cut_text(content, limit))
        return replace(part, content=tuple(_cut_part(each, limit) for each in content))
    return part


def cut_arguments(arguments: str, limit: int) -> str:
    """The arguments of a call that was made: what is long in them is cut, and they stay JSON.

    >>> cut_arguments('{"path": "a.txt", "text": "%s"}' % ("x" * 500), 50)[37:-13]
    'xxxxxxxxxxxxxxxxxxxxxxxx[… 450 characters are left out here …]xx'
    """
    if limit == UNCUT or len(arguments) <= limit + _MARK:
        return arguments
    try:
        whole = decode(arguments)
        short = msgspec.json.encode(_cut_value(whole, limit)).decode()
    except (Illegible, UnicodeError, RecursionError):
        return cut_text(arguments, limit)
    if len(short) <= 2 * limit + _MARK or not isinstance(whole, dict):
        return short
    left_out = f"[… {len(arguments):,} characters of arguments are left out here …]"
    return msgspec.json.encode({"left_out": left_out}).decode()


def _cut_value(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, limit)
    if isinstance(value, dict):
        return {key: _cut_value(each, limit) for key, each in value.items()}
    return [_cut_value(each, limit) for each in value] if isinstance(value, list) else value


def cut_text(text: str, limit: int) -> str:
    """A text of about `limit` characters, mostly of its beginning.

    >>> cut_text("abcdefghij" * 100, 20)
    'abcdefghijabcde[… 980 characters are left out here …]fghij'
    """
    if limit == UNCUT or len(text) <= limit + _MARK:
        return text
    head = limit * 3 // 4
    left_out = len(text) - limit
    return f"{text[:head]}[… {left_out:,} characters are left out here …]{text[head - limit :]}"


def longest_text(message: Message) -> int:
    """How long the longest text is that could be cut."""
    if isinstance(message.content, str):
        return len(message.content)
    return max(map(_longest_in, message.content), default=0)


def _longest_in(part: Any) -> int:
    if isinstance(part, Text):
        return len(part.text)
    if isinstance(part, ToolCall):
        return len(part.arguments)
    if isinstance(part, ToolResult):
        if isinstance(part.content, str):
            return len(part.content)
        return max(map(_longest_in, part.content), default=0)
    return 0
