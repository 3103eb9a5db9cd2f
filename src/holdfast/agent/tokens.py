from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from holdfast.agent.messages import Message


class Counter(Protocol):
    name: str

    def count(self, message: Message) -> int: ...


class Estimate:
    name = "estimate"

    def count(self, message: Message) -> int:
        return 4 + len(msgspec.json.encode(message.content)) // 3


def calibrate(pairs: Iterable[tuple[int, int]]) -> float:
    p = list(pairs)
    return 1.0 if not p else sum(b for a, b in p) / max(sum(a for a, b in p), 1)
