"""What a call of a model took, found in what the call returned.

A model is called in a step that returns a `Reply`, or whatever a user's own code makes of one: an
object with a field `usage`, in our words or in those of a provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from holdfast.agent.model import Prices, Usage
from holdfast.errors import BadInput, StoreError
from holdfast.lists import LISTED, value_of
from holdfast.values import BLOB, BlobRef, Blobs

MOST_BYTES = 1 << 20
"""Of a result that is kept in a blob: a larger one is no reply of a model, and is not fetched."""

ANY = "*"
"""The name under which the prices of all other models are given."""

_MARK = b'"usage"'


class Used(Struct, frozen=True):
    """What one call took, and of which model; '' where that was not recorded."""

    model: str
    usage: Usage


class Spent(Struct):
    """What calls of models took together. The money is in whatever the prices are in."""

    model_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost: float = 0.0
    """Of those calls whose cost is known."""
    unpriced: int = 0
    """How many calls have no known cost."""

    def add(self, other: Spent) -> None:
        """Count others too."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def spent(used: Used, prices: Mapping[str, Prices]) -> Spent:
    """What a call took. The cost that was recorded counts; without one, the prices.

    >>> used = Used("m", Usage(1_000_000, 100_000))
    >>> spent(used, {"m": Prices(input=3, output=15)}).cost, spent(used, {}).unpriced
    (4.5, 1)
    """
    usage = used.usage
    cost: float | None = usage.cost or None
    price = prices.get(used.model, prices.get(ANY))
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


def usage_in(result: bytes) -> Used | None:
    """What a call took, from its result as it stands in the log; None if it was of no model.

    >>> usage_in(b'{"model":"m","usage":{"prompt_tokens":7,"completion_tokens":2}}')
    Used(model='m', usage=Usage(input_tokens=7, output_tokens=2, cached_tokens=0, cost=0.0))
    """
    if _MARK not in result:
        return None
    try:
        data = value_of(result) if result.startswith(LISTED) else result
        found = _bare(msgspec.json.decode(data))
    except msgspec.MsgspecError:
        return None
    usage = _bare(found.get("usage")) if isinstance(found, dict) else None
    if not isinstance(usage, dict):
        return None
    given = _count(usage, "input_tokens", "prompt_tokens")
    made = _count(usage, "output_tokens", "completion_tokens")
    cost = usage.get("cost")
    cost = float(cost) if isinstance(cost, int | float) and cost is not True else 0.0
    if not given and not made and not cost:
        return None
    model = found.get("model")
    cached = _count(usage, "cached_tokens", "cache_read_input_tokens")
    return Used(model if isinstance(model, str) else "", Usage(given, made, cached, cost))


def whole_result(store: Blobs, result: Raw) -> bytes:
    """The bytes of a result, from its blob if it is a small one; else nothing."""
    data = bytes(result)
    if not data.startswith(BLOB):
        return data
    try:
        ref = msgspec.json.decode(data, type=BlobRef)
        return store.get_blob(ref.digest) if ref.size_bytes <= MOST_BYTES else b""
    except (msgspec.MsgspecError, StoreError):
        return b""


def checked_prices(given: Any) -> dict[str, Prices]:
    """Prices by the name of the model: a `Prices`, or what a million tokens in and out cost.

    >>> checked_prices({"m": (3, 15)})["m"].output
    15.0
    """
    if not isinstance(given, Mapping):
        raise BadInput(f"prices={given!r:.60} must be a dict: the name of a model, its Prices(…)")
    return {model: _prices(model, price) for model, price in given.items()}


def _prices(model: Any, price: Any) -> Prices:
    if isinstance(price, Prices):
        return price
    try:
        given, made = map(float, price)
        if isinstance(model, str) and given >= 0 and made >= 0:
            return Prices(input=given, output=made)
    except (TypeError, ValueError):
        pass
    raise BadInput(
        f"prices[{model!r:.60}] = {price!r:.60} must be Prices(input=…, output=…), or what a "
        f"million tokens of input and of output cost: (3.0, 15.0)"
    )


def _bare(data: Any) -> Any:
    """What a tag of the codec is around."""
    return data["of"] if isinstance(data, dict) and "$type" in data and "of" in data else data


def _count(usage: dict[str, Any], *names: str) -> int:
    for name in names:
        if type(value := usage.get(name)) is int and value > 0:
            return value
    return 0
