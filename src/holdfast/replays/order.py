"""Whether the code says something between the same two of its calls as it did.

Only what one strand of the code does has an order: branches run beside each other, and may come in
another one each time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence

from msgspec import Struct

from holdfast.events import Claimed
from holdfast.replays.recorded import Passed
from holdfast.replays.script import Script
from holdfast.state import scope_of


class Order:
    """The calls of each strand, in the order in which the code came to them."""

    def __init__(self, script: Script, passed: Sequence[Passed]) -> None:
        self._claims = [event.seq for event in script.during() if isinstance(event, Claimed)]
        self._strands: dict[str, _Strand] = {}
        known: set[str] = set()
        for number, each in enumerate(passed, 1):
            if each.began and each.path not in known:  # what was stopped is driven once more
                known.add(each.path)
                strand = self._strands.setdefault(scope_of(each.path), _Strand())
                strand.numbers.append(number)
                strand.began.append(each.began)

    def is_moved(self, place: str, calls: int, seq: int) -> bool:
        """Whether what was recorded at `seq` is said elsewhere now: after so many calls in all."""
        before, after = self._around(place, calls)
        if before > seq:
            return True
        # What was added to the code while the task was in nobody's hands comes late in the log.
        return 0 < after < seq and not any(after < claim < seq for claim in self._claims)

    def following(self, place: str, calls: int) -> int:
        """The recorded event before which something is said: that of the next call; 0 if none."""
        return self._around(place, calls)[1]

    def _around(self, place: str, calls: int) -> tuple[int, int]:
        """By which events the calls of its strand before and after a place began; 0 for none."""
        strand = self._strands.get(scope_of(place))
        if strand is None:
            return 0, 0
        done = bisect_right(strand.numbers, calls)
        began = (0, *strand.began[max(done - 1, 0) : done + 1], 0)
        return (began[1], began[2]) if done else (0, began[1])


class _Strand(Struct):
    numbers: list[int] = []
    """Of each call, among all that the code came to."""
    began: list[int] = []
    """The recorded event by which it began."""


def is_cut_off(place: str, branches: Collection[str]) -> bool:
    """Whether something stands in a branch that was cancelled.

    >>> is_cut_off("fetch~2.1", {"fetch~2"}), is_cut_off("fetch~1.1", {"fetch~2"})
    (True, False)
    """
    scope = scope_of(place)
    while scope:
        if scope in branches:
            return True
        scope = scope_of(scope)
    return False
