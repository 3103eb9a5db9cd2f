"""A clock, and an outside world that never gives the same answer twice."""

from __future__ import annotations

from typing import Any

from tests.flavors import Flavor

TTL_S = 60


class World:
    """What is outside: each answer is a number that was not given before."""

    def __init__(self, flavor: Flavor, **options: Any) -> None:
        self.answers = 0
        self.asked: list[str] = []
        self.errors: list[BaseException] = []
        self.before_answer = lambda: None

        async def look(what: str = "rates") -> int:
            self.asked.append(what)
            self.answers += 1
            answer = self.answers
            self.before_answer()
            if self.errors:
                raise self.errors.pop()
            return answer

        self.look = flavor.external(look, **{"ttl_s": TTL_S, **options})
        self.name = self.look.holdfast_spec.name
