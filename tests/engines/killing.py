"""Tasks on an engine whose workers, and whose server, are killed at random while they run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast import BadInput, Holdfast, HoldfastError
from holdfast.core.events import Claimed, Parked
from holdfast.core.state import FINISHED, State
from holdfast.log.reading import read_events, stream_of
from tests.engines.working import until

ROOT = Path(__file__).parents[2]
MODULES = "tests.crash.flow_agents"


class Workers:
    """Worker processes of an engine; each that is killed is started again."""

    def __init__(
        self, store: str, world: str, engines: list[list[str]], modules: str = MODULES
    ) -> None:
        self._environment = {**os.environ, "AGENT_WORLD": world}
        self._store, self._engines, self._modules = store, engines, modules
        self._all = [self._start(n) for n in range(len(engines))]

    def _start(self, number: int) -> subprocess.Popen[str]:
        module = [sys.executable, "-m", "tests.engines.serve", self._store, self._modules]
        with self._said(number).open("w") as log:
            return subprocess.Popen(
                [*module, *self._engines[number]],
                cwd=ROOT,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def _said(self, number: int) -> Path:
        return Path(f"{self._store.removeprefix('sqlite:///')}.{number}.log")

    def kill_one(self, chance: random.Random) -> None:
        """Kill one of them that is at work: on a slow machine it takes a while until it is."""
        number = chance.randrange(len(self._all))
        until(lambda: "drives tasks" in self._said(number).read_text())
        assert self._all[number].poll() is None, "a worker ended by itself"
        self._all[number].kill()
        self._all[number].wait()
        self._all[number] = self._start(number)

    def end(self) -> None:
        for process in self._all:
            process.kill()
            process.wait()


class Person:
    """Answers whatever a task asks, and looks up what is in doubt."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf

    def look(self, id: str) -> State:
        state = self._hf.task(id).state
        for call in list(state.calls.values()):
            with suppress(BadInput, HoldfastError):  # answered a moment ago
                if call.kind in ("question", "approval") and call.status == "waiting":
                    self._hf.answer(id, True, question=call.key or call.path, by="a person")
                elif call.status == "in_doubt":
                    raise AssertionError(f"{call.path} {call.name} is in doubt: {call.why}")
        return state


def family(hf: Holdfast, id: str) -> dict[str, Any]:
    """What a task and its children came to, call by call."""
    came_to: dict[str, Any] = {}
    for view in hf.tasks():
        if view.id == id or view.id.startswith(f"{id}."):
            calls = {
                call.path: (call.name, call.kind, call.status, bytes(call.result or b""))
                for call in view.state.calls.values()
                if call.name not in ("now", "sleep")
            }
            came_to[view.id] = (view.status, calls)
    return came_to


def takeovers(hf: Holdfast, ids: list[str]) -> int:
    """How often somebody else went on with one of the tasks, because who drove it had died."""
    count = 0
    for id in ids:
        claims = [
            e for e in read_events(hf.store, stream_of(id)) if isinstance(e, Claimed | Parked)
        ]
        count += sum(isinstance(a, Claimed) and isinstance(b, Claimed) for a, b in pairwise(claims))
    return count


def effects(rows: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((row["kind"], row["reference"]) for row in rows)


def all_ended(hf: Holdfast, ids: list[str], person: Person) -> bool:
    return all(person.look(id).status in FINISHED for id in ids)


def until_all_ended(hf: Holdfast, ids: list[str], seconds: float) -> None:
    person = Person(hf)
    give_up_at = time.monotonic() + seconds
    while not all_ended(hf, ids, person):
        if time.monotonic() > give_up_at:
            left = {i: hf.task(i).status for i in ids if hf.task(i).status not in FINISHED}
            raise AssertionError(f"still under way after {seconds:g} s: {left}")
        time.sleep(0.1)
