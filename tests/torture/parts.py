"""The parts of the torture: what each does, how often it has to, and where it can't."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct

from holdfast.stores.port import Store
from tests.freezing import is_unlocked
from tests.torture import frozen, full, fuzz, model, power, server, strace, thawed
from tests.torture.recording import BUGS

Results = Iterator[Any]
"""Each says what is `broken`; some have numbers of their own, as how much was `acknowledged`."""


class Part(Struct):
    """One of them."""

    name: str
    goal: int
    """How many rounds a long run makes."""
    bounded: int
    """How many `make thorough` makes; `make test` makes a third of them."""
    run: Callable[[str], Results]
    why_not: Callable[[], str] = lambda: ""
    has_bug: bool = False
    """Whether it is run against a store that is broken on purpose, and has to find that."""


@contextmanager
def _folder() -> Iterator[Path]:
    folder = model.fast_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _frozen(kind: str, freeze: Callable[..., Results], seed: str) -> Results:
    if kind == "postgres":
        from holdfast.stores.postgres.store import PostgresStore

        url = server.running().new_database()
        yield from freeze(lambda: PostgresStore(url), seed)
    with _folder() as folder:
        opened = partial(power.STORES[kind], folder, "")
        opened().close()
        is_free = partial(is_unlocked, folder / "store.db")
        yield from freeze(opened, seed, is_free if kind == "sqlite" else lambda: True)


def _failed(kind: str, seed: str) -> Results:
    def opened(folder: Path) -> Store:
        return power.STORES[kind](folder, "")

    for number in itertools.count():
        every = strace.faults(opened, f"{seed} {number}")
        Random(seed).shuffle(every)
        for fault in every:
            yield strace.outcome(opened, f"{seed} {number}", fault)


_FREEZES: tuple[tuple[str, int, int, Callable[..., Results]], ...] = (
    ("takeovers", 200, 5, frozen.takeovers),
    ("freezes at random", 300, 8, thawed.at_random),
    ("freezes at boundaries", 300, 12, thawed.at_boundaries),
)

_why_no_power = cache(power.why_not)
_why_no_strace = cache(strace.why_not)


def parts() -> list[Part]:
    """All of them."""
    return [
        Part("modelled crashes, files", 20_000, 300, model.crashes),
        *(
            Part(
                f"power cuts, {kind} on {system}",
                500,
                8,
                partial(power.cuts, system, kind),
                partial(_why_no_power, system),
            )
            for system in power.SYSTEMS
            for kind in power.STORES
        ),
        Part("calls failed and killed, files", 1500, 30, partial(_failed, "files"), _why_no_strace),
        Part(
            "calls failed and killed, sqlite", 1500, 20, partial(_failed, "sqlite"), _why_no_strace
        ),
        *(
            Part(f"{name}, {kind}", goal, bounded, partial(_frozen, kind, freeze))
            for name, goal, bounded, freeze in _FREEZES
            for kind in ("files", "sqlite", "postgres")
        ),
        Part("crashes of the server, postgres", 25, 2, server.crashes),
        Part("sessions ended, postgres", 25, 2, server.terminations),
        *(
            Part(
                f"full disk, {kind} on {system}",
                20,
                2,
                partial(full.full_disks, system, kind),
                partial(_why_no_power, system),
            )
            for system in power.SYSTEMS
            for kind in power.STORES
        ),
        *(
            Part(f"short of room, {kind}", 50, 3, partial(full.files_that_may_not_grow, kind))
            for kind in power.STORES
        ),
        *(
            Part(f"damage, {kind}", goal, bounded, partial(fuzz.cases, kind))
            for kind, goal, bounded in fuzz.GOALS
        ),
        *seeded(),
    ]


def seeded() -> Iterator[Part]:
    """What runs against a store that forgets to sync, or a decoder that forgets to catch. The first
    round that shows it ends it."""
    for name, freeze in (("at random", thawed.at_random), ("at boundaries", thawed.at_boundaries)):
        unsure = partial(_frozen, "files", partial(freeze, bug="a lease is never confirmed"))
        yield Part(f"seeded bug, freezes {name}: no look", 100, 100, unsure, has_bug=True)
    for bug in BUGS:
        run = partial(model.crashes, bug=bug)
        yield Part(f"seeded bug, modelled: {bug}", 3000, 3000, run, has_bug=True)
        for system in power.SYSTEMS:
            cuts = partial(power.cuts, system, "files", bug=bug)
            why = partial(_why_no_power, system)
            yield Part(f"seeded bug, cut on {system}: {bug}", 300, 150, cuts, why, has_bug=True)
    for bug in fuzz.BUGS:
        damaged = partial(fuzz.cases, "files", bug=bug)
        yield Part(f"seeded bug, damage: {bug}", 2000, 400, damaged, has_bug=True)
