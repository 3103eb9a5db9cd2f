"""What calls of models took and cost: tokens as they were told, money as told or by prices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Raw, Struct

from holdfast.decoding import Illegible, decode
from holdfast.errors import BadInput, StoreError
from holdfast.lists import BLOB, LISTED, BlobRef, value_of
from holdfast.usage import Prices, Used, may_tell, used_in
from holdfast.values import Blobs

ANY = "*"
"""The name under which the prices of all other models are given."""


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

    >>> from holdfast.usage import Usage
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

    >>> usage_in(b'{"model":"m","usage":{"prompt_tokens":7}}').usage.input_tokens
    7
    """
    try:
        if not may_tell(Raw(result)):
            return None
        data = value_of(result) if result.startswith(LISTED) else result
        return used_in(decode(data))
    except Illegible:
        return None


def whole_result(store: Blobs, result: Raw) -> bytes:
    """The bytes of a result, from its blob if it is a small one; else nothing."""
    data = bytes(result)
    if not data.startswith(BLOB):
        return data
    try:
        ref = decode(data, BlobRef)
        return store.get_blob(ref.digest) if may_tell(result) else b""
    except StoreError:
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
