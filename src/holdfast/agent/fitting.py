"""Which turns fit into a context: pure, on numbers alone.

There are things that must be there (the system message, what is pinned, the goal and the plan) and
turns, of which the newest count most. In this order, until it fits the budget:

1. everything; or what is fixed, the summary, and as many turns as there is room for, at least the
   last `keep`, and the message of the user that they answer;
2. if those are too much: the same, with long texts in turns and summary cut short, the longest
   first, down to `SHORTEST` characters;
3. if that is too much: fewer turns, at least the newest one;
4. if that is too much, the budget can't be met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.core.decoding import Illegible, decode
from holdfast.log.messages import Message, Text, ToolCall, ToolResult

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
