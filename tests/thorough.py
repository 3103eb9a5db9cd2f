"""How much of what could be tried is tried: a part of it, or with `make thorough` all of it.

The part is always the same one, so that a test that passed passes again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = bool(os.environ.get("HOLDFAST_THOROUGH"))

T = TypeVar("T")


def every(nth: int) -> tuple[str, ...]:
    """For the crash harness: kill at every `nth` boundary. Boundaries come by twos and threes, so
    that a number which is no multiple of those meets each kind of them."""
    return () if THOROUGH else ("--every", str(nth))


def some(items: Sequence[T], nth: int, first: int = 0) -> Sequence[T]:
    """Every `nth` of them, and the last."""
    return items if THOROUGH else [*items[first:-1:nth], *items[-1:]]
