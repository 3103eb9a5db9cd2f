"""How the writer of a log leaves waypoints as it goes: see `trail` for what they are made of.

Never in the way of the log itself. What can't be made or stored is left out, and whoever reads
makes it up (see `upto`). A writer that does not know the whole log, because it began to read at a
checkpoint, leaves none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.events import AnyEvent, Rewound
from holdfast.state import State
from holdfast.waypoints.encoding import EVERY, way_to
from holdfast.waypoints.trail import Trail
from holdfast.waypoints.upto import put_all, waypoints_of

if TYPE_CHECKING:
    from holdfast.store import Store


class Leaving:
    """Leaves the waypoints of one log, as long as nothing goes wrong with them."""

    def __init__(self, store: Store, stream: str, state: State, every: int = EVERY) -> None:
        self._stream = stream
        self._every = every
        self._kept = waypoints_of(store)
        self._trail = Trail(state, every) if self._kept is not None else None
        self._seq = 0
        self._known: set[int] = set()

    def read(self, state: State, event: AnyEvent, total: bytes) -> None:
        """An event that stands in the log already was folded into the state."""
        self.passed(state, event, total, was_there=True)

    def passed(
        self, state: State, event: AnyEvent, total: bytes, *, was_there: bool = False
    ) -> None:
        """An event that is to be written was folded into the state."""
        trail = self._trail
        if trail is None:
            return
        self._seq += 1
        # The numbers of a fork go on from its past, and a rewind makes a state of old ones: whoever
        # looks into such a log does without.
        if event.seq != self._seq or isinstance(event, Rewound):
            self._trail = None
            return
        try:
            trail.passed(state, event, self._seq, total, is_stored=was_there)
        except Exception:  # it is of no matter what: the log goes on without
            self._trail = None

    def put(self) -> None:
        """Store what was left since: the lines are there now."""
        trail, kept = self._trail, self._kept
        if trail is None or kept is None or not trail.made:
            return
        try:
            for waypoint in list(trail.made):
                number = waypoint.seq // self._every
                if not self._can_go_on(number):
                    self._trail = None
                    return
                put_all(kept, self._stream, [waypoint])
                self._known.add(number)
            trail.made.clear()
        except Exception:  # as above
            self._trail = None

    def _can_go_on(self, number: int) -> bool:
        """Whether the waypoints are there that this one goes on from."""
        before = set(way_to(number)[:-1])
        if not before <= self._known and self._kept is not None:
            seqs = self._kept.seqs(self._stream)
            self._known |= {seq // self._every for seq in seqs}
        return before <= self._known
