"""Money: what a call of a model costs, and budgets that stop the call which would exceed them.

`Metered` goes around a model. It records the cost of each call in its reply, by a file of prices,
so that `stats`, `sql`, `compare` and the debugger know it. With budgets it takes the most that a
call is expected to cost out of each of them before the call is made, and settles the difference
afterwards. A budget is a number in the store, changed by compare and set, so it holds for all tasks
in all processes.

A call that was cut off by a crash keeps what was taken for it: the provider may bill it.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from functools import cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.adapters.base import ModelFailed, ModelRejected
from holdfast.agent.flow import Flow, adriven, driven
from holdfast.agent.model import Model, Reply, Request
from holdfast.agent.model_calls import asked_tokens, is_awaited, longest_answer
from holdfast.api.async_forms import away
from holdfast.core.decoding import Illegible, decode
from holdfast.core.limits import Limited
from holdfast.core.scope import scope_var
from holdfast.core.usage import ANY, Prices, Usage
from holdfast.core.words import LONGEST_ID
from holdfast.errors import BadInput, Conflict
from holdfast.log.namespaces import PREFIX, Namespace, OtherVersion, namespace_of

if TYPE_CHECKING:
    import os

    from holdfast.api.app import Holdfast
    from holdfast.engines.holder import Holding
    from holdfast.log.log import Log

Per = Literal["task", "session", "user", "all"]
Every = Literal["", "day", "month"]

# Prices


class _PriceFile(Struct):
    models: dict[str, Prices]


_DATED = re.compile(r"-(\d{4}-?\d{2}-?\d{2}|latest)$")
"""How the name of a version of a model ends."""


@cache
def _shipped() -> dict[str, Prices]:
    return load_prices(Path(__file__).parent / "prices.json")


def load_prices(path: str | os.PathLike[str] | None = None) -> dict[str, Prices]:
    """The prices in a file, by the name of the model; without a path, those that are shipped.

    The file is JSON: `{"models": {"gpt-5": {"input": 1.25, "cached": 0.125, "output": 10}}}`, the
    prices of a million tokens. `"*"` stands for any other model.

    >>> load_prices()["gpt-5"].output
    10.0
    """
    if path is None:
        return dict(_shipped())
    try:
        models = decode(Path(path).read_bytes(), _PriceFile).models
    except (OSError, Illegible) as error:
        raise BadInput(f"the prices in {str(path)!a:.200} can't be read: {error}") from None
    for model, price in models.items():
        for name, value in msgspec.structs.asdict(price).items():
            if value is not None and not 0 <= value < 1e9:
                raise BadInput(f"{str(path)!a:.200}: {model!a:.80}.{name} = {value} is no price")
    return models


def price_of(model: str, prices: Mapping[str, Prices]) -> Prices | None:
    """The prices of a model by its name, or by that without the date of its version; None if they
    are not known.

    >>> price_of("gpt-5-2025-08-07", load_prices()).input, price_of("nobody-1", load_prices())
    (1.25, None)
    """
    return prices.get(model) or prices.get(_DATED.sub("", model)) or prices.get(ANY)


# Budgets


class BudgetExceeded(ModelRejected):
    """A call of a model was not made, because it would have gone beyond a budget.

    The task fails, unless it catches that; `retry` goes on with it, once there is room.

    >>> issubclass(BudgetExceeded, ModelRejected)
    True
    """


class Budget(Struct, frozen=True):
    """How much may be spent, in the currency of the prices: by each task, session or user, or by
    all; in all, or every day or month (UTC).

    Budgets of one `name`, `per` and `every` are the same one, wherever they are used; what was
    spent stays if the limit is changed.

    >>> Budget(5.00, per="user", every="day")
    Budget(limit=5.0, per='user', every='day', name='models')
    """

    limit: float
    per: Per = "task"
    every: Every = ""
    name: str = "models"

    def __post_init__(self) -> None:
        limit: Any = self.limit
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        if not is_number or not 0 < limit < 1e9:
            raise BadInput(f"Budget({self.limit!r:.40}): the limit must be a number above 0")
        for name, known in (("per", Per), ("every", Every)):
            if getattr(self, name) not in known.__args__:  # type: ignore[attr-defined]
                words = ", ".join(map(repr, known.__args__))  # type: ignore[attr-defined]
                raise BadInput(f"Budget({name}={getattr(self, name)!r:.40}) must be one of {words}")
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", self.name):
            raise BadInput(f"Budget(name={self.name!r:.60}): up to 40 letters, digits, '_.-'")

    def spent(self, hf: Holdfast, of: str = "") -> float:
        """How much was spent of it so far: `of` is the id of the task, session or user. In it is
        what was taken for the calls in flight."""
        return _spent(self._namespace(hf._holding, hf._holding.owner, of))[0] / _NANO

    def place(self, of: str, now: datetime) -> str:
        """The namespace of the values that keeps it."""
        period = {"day": f"{now:%Y-%m-%d}", "month": f"{now:%Y-%m}", "": "ever"}[self.every]
        place = f"budget/{self.name}/{self.per}/{period}"
        if self.per == "all":
            return place
        if len(f"{PREFIX}{place}/{of}") > LONGEST_ID:
            return f"{place}#{sha256(of.encode()).hexdigest()}"
        return f"{place}/{of}"

    def _namespace(self, log: Log | Holding, owner: str, of: str) -> Namespace:
        return namespace_of(log.store, self.place(of, log.clock()), owner, log.clock)


_NANO = 10**9
"""Amounts are kept in whole billionths, so that many small ones add up."""
_KEY = "spent"
_MOST_TRIES = 500


def _spent(place: Namespace) -> tuple[int, int]:
    """The spending, and the version that says so."""
    kept = place.find([_KEY]).get(_KEY)
    return (0, 0) if kept is None else (decode(place.bytes_of(kept), int), kept.version)


def _change(place: Namespace, by: int, limit: int | None) -> int:
    """Add to what was spent, if it stays within the limit; returns what was spent before. Negative
    where the limit refuses it: then nothing is changed."""
    for tries in range(_MOST_TRIES):
        spent, version = _spent(place)
        if limit is not None and spent + by > limit:
            return -1 - spent
        try:
            place.put({_KEY: b"%d" % max(spent + by, 0)}, expected=version)
            return spent
        except OtherVersion:  # somebody else was first: look again
            time.sleep(random.uniform(0, 0.002 * min(tries, 10)))
    raise Conflict(f"{place.name}: too many write to it at once. Nothing was taken: try again")


class _Taken(Struct):
    """The sums taken out of budgets for one call."""

    amount: int
    places: list[Namespace]


class Metered:
    """A model whose calls have a cost, and may have budgets. It is a model itself.

    `prices` are those of `load_prices()`, unless others are given; a model that they do not know is
    refused. `expects_tokens` is how long an answer is expected to be at the most; left out, the
    limit that the adapter was given (`max_tokens` and the like), or 1,024.

    >>> from holdfast.agent import Reply, Request, Usage, assistant, user
    >>> def model(request: Request) -> Reply:
    ...     return Reply(assistant("Yes."), Usage(1000, 100))
    >>> metered = Metered(model, "gpt-5")
    >>> metered(Request((user("Is it?"),))).usage.cost
    0.00225
    """

    def __init__(
        self,
        model: Model,
        name: str = "",
        *,
        budgets: Iterable[Budget] = (),
        prices: Mapping[str, Prices] | None = None,
        expects_tokens: int | None = None,
    ) -> None:
        said = getattr(model, "model", "")
        self.inner = model
        self.model: str = name or (said if isinstance(said, str) else "")
        self.budgets: tuple[Budget, ...] = tuple(budgets)
        for budget in self.budgets:
            if not isinstance(budget, Budget):
                raise BadInput(f"Metered(budgets=…) are Budget(…), not {budget!r:.60}")
        self.is_async: bool = is_awaited(model)
        self.structured: bool = getattr(model, "structured", False) is True
        self.limit: Limited | None = getattr(model, "limit", None)
        known = load_prices() if prices is None else prices
        self.prices: Prices | None = price_of(self.model, known)
        if self.prices is None:
            raise BadInput(
                f"no prices are known of the model {self.model!a:.80}: give "
                f"prices={{{self.model!r:.80}: Prices(input=…, output=…)}}, or a file by "
                f"load_prices(PATH)"
            )
        self.expects_tokens: int = expects_tokens or longest_answer(model)

    def __repr__(self) -> str:
        return f"Metered({self.inner!r})"

    def __call__(self, request: Request) -> Reply | Awaitable[Reply]:
        """Ask the model, if the budgets allow it."""
        flow = self._flow(request)
        return adriven(flow) if self.is_async else driven(flow)

    def expected(self, request: Request) -> float:
        """The most that a call is expected to cost."""
        return self._prices.of(Usage(asked_tokens(request), self.expects_tokens))

    @property
    def _prices(self) -> Prices:
        if self.prices is None:
            raise BadInput(f"no prices are known of the model {self.model!a:.80}")
        return self.prices

    def _flow(self, request: Request) -> Flow[Reply]:
        taken = yield partial(self._at_store, self._take, request)
        try:
            reply: Reply = yield partial(self.inner, request)
        except ModelFailed as error:
            if error.status is not None or isinstance(error, ModelRejected):  # nothing was made
                yield partial(self._at_store, _settle, taken, 0)
            raise
        cost = reply.usage.cost or self._prices.of(reply.usage)
        yield partial(self._at_store, _settle, taken, round(cost * _NANO))
        return replace(reply, usage=replace(reply.usage, cost=cost))

    def _at_store(self, work: Callable[..., Any], *args: Any) -> Any:
        """Do what reads and writes the store: off the loop, where there is one."""
        if not self.budgets:
            return _Taken(0, [])
        return away(work, *args) if self.is_async else work(*args)

    def _take(self, request: Request) -> _Taken:
        scope = scope_var.get()
        if scope is None:
            raise BadInput("a model with budgets is called inside of tasks: they are in its store")
        log = scope.run.log
        ids = {"task": log.state.id, "session": log.state.session, "user": log.state.user}
        taken = _Taken(round(self.expected(request) * _NANO), [])
        for budget in self.budgets:
            of = ids.get(budget.per, "")
            place = budget._namespace(log, log.lease.owner, of)
            spent = _change(place, taken.amount, round(budget.limit * _NANO))
            if spent < 0:
                _settle(taken, 0)
                raise _exceeded(budget, of, -1 - spent, taken.amount)
            taken.places.append(place)
        return taken


def _settle(taken: _Taken, cost: int) -> None:
    """Give back what a call did not cost, or take what it cost beyond."""
    if cost != taken.amount:
        for place in taken.places:
            _change(place, cost - taken.amount, None)


def _exceeded(budget: Budget, of: str, spent: int, wanted: int) -> BudgetExceeded:
    whose = f"of {budget.per} {of!r:.80}" if budget.per != "all" else "of all tasks"
    every = f" every {budget.every}" if budget.every else ""
    return BudgetExceeded(
        f"the budget {whose} is {budget.limit:g}{every}: {spent / _NANO:.6g} is spent or taken for "
        f"calls in flight, and this call may cost {wanted / _NANO:.6g}. It was not made: raise the "
        f"budget{' or wait' if budget.every else ''}, then retry the task"
    )
