"""A store against the memory store, under random use: append, crash, reopen, takeover, delete.

Hypothesis makes up a story: a few processes with a store each on one place, a few streams, and
what they do to them, one after the other. Everything is done to a memory store as well, and the
two must agree wherever the rules say what comes of it (see `model`). A story that fails is made as
short as can be, and is printed as code.

Nothing that is drawn depends on what a store answered, so that a story can be told again.
"""

from __future__ import annotations

from collections.abc import Callable

import hypothesis
from hypothesis import HealthCheck, Phase
from hypothesis.stateful import run_state_machine_as_test

from holdfast.stores.port import Store
from holdfast.testing.machine.looking import Ending, Leaving, Looking
from holdfast.testing.machine.writing import Writing


class StoreMachine(Writing, Ending, Looking, Leaving):
    """The rules of a story. Subclass it for more of them; `run_store_machine` tells the stories."""


def run_store_machine(
    open_store: Callable[[], Store],
    crash: Callable[[Store], None] | None = None,
    *,
    notices_death: bool = True,
    settings: hypothesis.settings | None = None,
    machine: type[StoreMachine] = StoreMachine,
) -> None:
    """Check a store against the memory store. Raises `AssertionError` where it breaks a rule.

    `open_store` opens one more store on the place, as another process would. `crash` ends one as
    if its process had been killed; see `StoreProcesses` for real ones. Without it nothing crashes.
    `notices_death=False` is for a store that learns of a dead holder only when its lease runs out.
    `settings` are those of Hypothesis, or the profile that is loaded.

    >>> from hypothesis import settings
    >>> from holdfast.stores.memory import MemoryStore
    >>> place = MemoryStore()
    >>> run_store_machine(
    ...     lambda: MemoryStore(beside=place), MemoryStore.close, settings=settings(max_examples=3)
    ... )
    """
    told = type(
        machine.__name__,
        (machine,),
        {
            "open_store": staticmethod(open_store),
            "crash_store": staticmethod(crash) if crash is not None else None,
            "notices_death": notices_death,
        },
    )
    given = settings or hypothesis.settings()
    given = hypothesis.settings(
        given,
        deadline=None,  # a disk takes its time
        suppress_health_check=list(HealthCheck),
        # To explain a failure, stories are told many times over: of real processes, for minutes.
        phases=[phase for phase in given.phases if phase is not Phase.explain],
    )
    run_state_machine_as_test(told, settings=given)
