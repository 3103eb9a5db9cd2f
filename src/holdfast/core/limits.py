"""Limits around steps and tools: what they promise, and who may go now. Nothing here acts.

A limit is shared by all tasks and workers of a store. Its state is a log of places, as that of a
queue is (`core.queues`), under `limits/<name>/<number>`: `held` are the calls under way, `ready_at`
is when a provider lets us ask again, and `key_ready` has a time for each rate.

A rate is a time that moves on with every call (the generic cell rate algorithm). A call that is
refused is told when to come again. Those times are spread along a line, so that a thousand calls
that wait do not all come back for the same place: `key_ready["line"]` is the end of it. The line is
an estimate and the rate decides, so it does no harm if somebody never comes.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, inf
from typing import Any

from msgspec import Struct

from holdfast.core.events import PlacesChanged, QueuePlace
from holdfast.core.queues import QueuePlaces, checked_queue_name
from holdfast.errors import BadInput

ROOM = "limits"
"""How the streams of the logs of limits begin."""
SUFFIX = "!limit"
"""How the path of a wait ends; before it stands that of the call that waits."""

BUSY_S = 5.0
"""How long nobody asks after a provider said "too many" without saying for how long."""
_LINE = "line"
_IDLE_S = 1.0
_LATE_S = 5.0
_ROUNDING_S = 0.001
_LONGEST_POLL_S = 10.0


class Limit(Struct, frozen=True, omit_defaults=True):
    """How often steps and tools may be called, by all tasks and workers of a store together.

    `concurrency` is how many calls are made at once. `per_second` and `per_minute` say how many
    begin in a time, and `tokens_per_minute` how many tokens they take: those that were expected are
    taken before a call, and what it really used is settled after it. No minute sees more than its
    share. A call that has to wait is recorded, and keeps no worker.

    >>> Limit("openai", per_minute=500, tokens_per_minute=200_000).name
    'openai'
    """

    name: str
    per_minute: float | None = None
    tokens_per_minute: float | None = None
    concurrency: int | None = None
    per_second: float | None = None

    def __post_init__(self) -> None:
        checked_queue_name(self.name)
        for name in ("per_minute", "tokens_per_minute", "per_second"):
            number = getattr(self, name)
            is_number = isinstance(number, int | float) and not isinstance(number, bool)
            if number is not None and not (is_number and 0 < number < inf):
                raise BadInput(f"limit {self.name!r}: {name}={number!r:.60} must be above 0")
        most = self.concurrency
        if most is not None and (type(most) is not int or most < 1):
            raise BadInput(
                f"limit {self.name!r}: concurrency={most!r:.60} must be a whole number, 1 or more"
            )
        if most is None and not self.rates:
            raise BadInput(
                f"limit {self.name!r} limits nothing: give per_minute=, tokens_per_minute=, "
                f"per_second= or concurrency="
            )

    def of(
        self,
        *,
        tokens: int | Callable[..., int] = 0,
        key: str | Callable[..., str] = "",
    ) -> Limited:
        """This limit for calls that are expected to take `tokens`, or that share it with those of
        the same `key` alone.

        `tokens` may be a function of the arguments of the call; `key` is the name of a parameter,
        or such a function.

        >>> Limit("crm", per_minute=60).of(key="customer").key
        'customer'
        """
        is_number = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
        if not (is_number or callable(tokens)):
            raise BadInput(
                f"limit {self.name!r}: tokens={tokens!r:.60} must be a number, 0 or more, or a "
                f"function of the arguments"
            )
        if not isinstance(key, str) and not callable(key):
            raise BadInput(
                f"limit {self.name!r}: key={key!r:.60} must be the name of a parameter, or a "
                f"function of the arguments"
            )
        return Limited(self, tokens, key)

    @property
    def rates(self) -> dict[str, Pace]:
        """Its rates, by name."""
        given = {
            "second": (self.per_second, 1.0),
            "minute": (self.per_minute, 60.0),
            "tokens": (self.tokens_per_minute, 60.0),
        }
        return {name: _pace(count, per_s) for name, (count, per_s) in given.items() if count}


class Limited(Struct, frozen=True):
    """A limit as one function keeps to it: see `Limit.of`."""

    limit: Limit
    tokens: int | Callable[..., int] = 0
    key: str | Callable[..., str] = ""


class Pace(Struct, frozen=True):
    """A rate: the seconds that one of what it counts is worth, and how many may come at once."""

    spacing_s: float
    at_once: float

    def allowed_at(self, ready_at: float, count: float) -> float:
        """From when on so many may come. More than the rate ever lets in at once come alone."""
        return ready_at + (min(count, self.at_once) - self.at_once) * self.spacing_s


def _pace(count: float, per_s: float) -> Pace:
    """A rate of which no span of `per_s` sees more than `count`.

    >>> _pace(500, 60.0).at_once, round(_pace(6, 60.0).spacing_s, 2)
    (25.0, 10.0)
    """
    at_once = float(max(1, floor(count / 20)))
    return Pace((per_s + 2 * _ROUNDING_S) / (count - (at_once - 1)), at_once)


def must_be_limited(name: str, given: Any) -> Limited | None:
    """The value that a decorator was given as `limit=`."""
    if given is None or isinstance(given, Limited):
        return given
    if isinstance(given, Limit):
        return Limited(given)
    raise BadInput(f"{name}: limit={given!r:.60} must be a Limit, or Limit(…).of(tokens=…)")


class Wish(Struct, frozen=True):
    """A call that would like to go."""

    place: str
    task: str
    by: str
    """The process that makes it."""
    tokens: int
    waited_s: float = 0.0
    is_its_turn: bool = False
    """Whether it comes when it was told to."""
    chance: float = 0.5
    """A number from 0 to 1 that spreads those who come at the same moment."""


def is_on_time(until_s: float, now_s: float) -> bool:
    """Whether one who was told to come at a time has done so. After an outage nobody has, and the
    line is made anew."""
    return now_s <= until_s + _LATE_S


def admit(
    state: QueuePlaces, limit: Limit, wish: Wish, at: Any, now_s: float
) -> tuple[PlacesChanged | None, float | None]:
    """The changes by a call that would like to go, and when it is to come again; None if it goes.

    `at` is the time as a datetime, for the place.
    """
    others = len(state.held) - (wish.place in state.held)
    if limit.concurrency is not None and others >= limit.concurrency:
        poll_s = min(max(0.1, 0.3 * wish.waited_s), _LONGEST_POLL_S) * (0.75 + wish.chance / 2)
        return None, now_s + poll_s
    weights = {name: wish.tokens if name == "tokens" else 1 for name in limit.rates}
    ready = {name: state.key_ready.get(name, 0.0) for name in weights}
    paces = limit.rates
    earliest = max(
        [state.ready_at, *(p.allowed_at(ready[n], weights[n]) for n, p in paces.items())]
    )
    gap_s = max([weights[n] * p.spacing_s for n, p in paces.items()], default=0.05) or 0.05
    line = state.key_ready.get(_LINE, 0.0)
    if max([state.ready_at, *ready.values()]) + _IDLE_S <= now_s:
        line = 0.0  # nobody came for a while: those who were told to will not, or are late
    must_queue = line > now_s and not wish.is_its_turn
    if earliest <= now_s + _ROUNDING_S and not must_queue:
        used = {n: max(ready[n], now_s) + weights[n] * p.spacing_s for n, p in paces.items()}
        place = QueuePlace(wish.place, wish.task, wish.by, at)
        taken = (place,) if limit.concurrency is not None else ()
        return _changed(state, taken=taken, key_ready={**used, _LINE: line}), None
    if wish.is_its_turn:
        until = earliest + gap_s * wish.chance
    else:
        until = max(earliest, line + gap_s if line > now_s else 0.0)
    return _changed(state, key_ready={_LINE: max(line, until)}), until


def leave(
    state: QueuePlaces, limit: Limit, wish: Wish, used: int | None, pause_s: float, now_s: float
) -> PlacesChanged | None:
    """The changes by a call that has ended; None if nothing does.

    `used` are the tokens that it took, if that is known, and `pause_s` is how long the provider
    asked everybody to wait.
    """
    place = state.held.get(wish.place)
    freed = (wish.place,) if place is not None and place.by == wish.by else ()
    key_ready: dict[str, float] = {}
    pace = limit.rates.get("tokens")
    if pace is not None and used is not None and used != wish.tokens:
        before = state.key_ready.get("tokens", now_s)
        key_ready["tokens"] = before + (used - wish.tokens) * pace.spacing_s
    ready_at = max(state.ready_at, now_s + pause_s) if pause_s else state.ready_at
    if not freed and not key_ready and ready_at == state.ready_at:
        return None
    return _changed(state, freed=freed, key_ready=key_ready, ready_at=ready_at)


def _changed(state: QueuePlaces, **changes: Any) -> PlacesChanged:
    return PlacesChanged(**{"turn": state.turn, "ready_at": state.ready_at, **changes})
