"""The tokens and cost of model calls, found in what the calls returned.

A model is called in a step or tool that returns a `Reply`, or whatever a user's own code makes of
what a provider says: an object with a field `usage`, in our words or in theirs. All that counts
tokens and money (`holdfast stats`, `compare`, `sql`) asks here, so that they tell the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from operator import add
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import astuple

from holdfast.core.decoding import decode
from holdfast.core.lists import BLOB, REFERENCES, BlobRef
from holdfast.core.state import Call, scope_of

MOST_BYTES = 1 << 20
"""Of a result that is kept in a blob: a larger one is no reply of a model, and is not fetched."""

ANY = "*"
"""The name under which the prices of all other models are given."""

_MARK = b'"usage"'
_REPLY_FIELDS = {"message", "usage", "stop", "model", "id"}
"""Those of a `holdfast.agent.Reply`."""


class Usage(Struct, frozen=True, omit_defaults=True):
    """The tokens and the cost of a model call. The cost is in the currency of the prices.

    >>> Usage(10, 2) + Usage(5, 1, cost=0.5)
    Usage(input_tokens=15, output_tokens=3, cached_tokens=0, cost=0.5, reasoning_tokens=0)
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Those of the input that the provider had at hand."""
    cost: float = 0.0
    reasoning_tokens: int = 0
    """Those of the output that the model only thought."""

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cost + other.cost,
            self.reasoning_tokens + other.reasoning_tokens,
        )


class Prices(Struct, frozen=True, kw_only=True):
    """The price of a million tokens, in any currency.

    >>> Prices(input=3.0, output=15.0).of(Usage(1_000_000, 100_000))
    4.5
    """

    input: float
    output: float
    cached: float | None = None
    """Of input that the provider had at hand; as other input, if not said."""

    def of(self, usage: Usage) -> float:
        """The cost of that usage."""
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        total = (
            fresh * self.input + usage.cached_tokens * cached + usage.output_tokens * self.output
        )
        return total / 1_000_000


class Used(Struct, frozen=True):
    """The usage of one call, its model, and why the model stopped; '' where it was not recorded."""

    model: str
    usage: Usage
    stop: str = ""
    first_token_s: float | None = None
    """How long the first token took, if the caller of the model recorded that."""


class Spent(Struct, frozen=True):
    """The usage of several model calls together. The cost is in the currency of the prices.

    >>> Spent(1, 100, 20, unpriced=1) + Spent(1, 50, 5, cost=0.5)
    Spent(model_calls=2, input_tokens=150, output_tokens=25, cached_tokens=0, cost=0.5, unpriced=1)
    """

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    """Of those calls whose cost is known."""
    unpriced: int = 0
    """How many calls have no known cost."""

    @property
    def tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Spent) -> Spent:
        return Spent(*map(add, astuple(self), astuple(other)))


def spent(used: Used, prices: Mapping[str, Prices] | None = None) -> Spent:
    """The usage of one call. The recorded cost counts; without one, the prices.

    >>> used = Used("m", Usage(1_000_000, 100_000))
    >>> spent(used, {"m": Prices(input=3, output=15)}).cost, spent(used).unpriced
    (4.5, 1)
    """
    usage, known = used.usage, prices or {}
    cost: float | None = usage.cost or None
    price = known.get(used.model, known.get(ANY))
    if cost is None and price is not None:
        cost = price.of(usage)
    return Spent(
        1,
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        cost or 0.0,
        int(cost is None),
    )


def used_by(calls: Iterable[Call], value: Callable[[Raw], Any]) -> dict[str, Used]:
    """The usage of a task's model calls, by their paths. `value` gives a stored
    value as plain data.

    A call that was answered by an earlier one, or by another task or a stub, asked nobody. And a
    step that returns what a model told inside of it has not asked once more.
    """
    told: dict[str, Used] = {}
    for call in calls:
        asked = call.kind in ("step", "tool") and not call.of and not call.adopted
        if asked and isinstance(call.result, Raw) and may_tell(call.result):
            used = used_in(value(call.result))
            told |= {} if used is None else {call.path: used}
    around = {scope for path in told for scope in _scopes(path)}
    return {path: used for path, used in told.items() if path not in around}


def may_tell(result: Raw) -> bool:
    """Whether it is worth the while to read a result.

    >>> may_tell(Raw(b'{"usage":{}}')), may_tell(Raw(b'"attic"'))
    (True, False)
    """
    data = bytes(result)
    if data.startswith(BLOB):
        return decode(data, BlobRef).size_bytes <= MOST_BYTES
    return _MARK in data or data.startswith(REFERENCES)


def used_in(result: Any) -> Used | None:
    """The usage of a call, from its result as plain data; None if it asked no model.

    >>> used_in({"model": "m", "usage": {"prompt_tokens": 7, "completion_tokens": 2}}).usage
    Usage(input_tokens=7, output_tokens=2, cached_tokens=0, cost=0.0, reasoning_tokens=0)
    >>> used_in({"usage": {"input_tokens": 7, "first_token_s": 0.4}}).first_token_s
    0.4
    >>> used_in({"usage": "heavy"}) is None
    True
    """
    reply = _fields(result)
    usage = _usage(_fields(reply.get("usage")))
    is_tagged = isinstance(result, dict) and result.get("$type") == "Reply"
    is_reply = "message" in reply and (is_tagged or reply.keys() >= _REPLY_FIELDS)
    if usage == Usage() and not is_reply:
        return None
    model = _text(reply, "model") or _text(reply, "model_name")
    stop = _text(reply, "stop", "end" if is_reply else "")
    first_s = _number(_fields(reply.get("usage")).get("first_token_s"))
    return Used(model, usage, stop, float(first_s) or None)


def _usage(told: dict[str, Any]) -> Usage:
    given = _count(told, "input_tokens", "prompt_tokens")
    made = _count(told, "output_tokens", "completion_tokens")
    cached = _count(told, "cached_tokens", "cache_read_tokens")
    for name in ("prompt_tokens_details", "input_tokens_details"):
        cached = cached or _count(_fields(told.get(name)), "cached_tokens")
    # Anthropic tells what it read from its cache, and wrote to it, beside the input.
    read, written = (_count(told, f"cache_{how}_input_tokens") for how in ("read", "creation"))
    thought = _count(told, "reasoning_tokens")
    for name in ("completion_tokens_details", "output_tokens_details"):
        thought = thought or _count(_fields(told.get(name)), "reasoning_tokens", "thinking_tokens")
    cost = _number(told.get("cost"))
    if not given and not made and not cost:
        return Usage()
    return Usage(given + read + written, made, cached or read, float(cost), thought)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a record, whether or not its class is told as well."""
    if isinstance(value, dict) and "$type" in value:
        value = value.get("of")
    return value if isinstance(value, dict) else {}


def _text(reply: dict[str, Any], name: str, default: str = "") -> str:
    found = reply.get(name, default)
    return found if isinstance(found, str) else ""


def _count(told: dict[str, Any], *names: str) -> int:
    return next((int(found) for name in names if (found := _number(told.get(name)))), 0)


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and isfinite(value) and 0 < value < 2**62 else 0


def _scopes(path: str) -> Iterator[str]:
    while path := scope_of(path):
        yield path
