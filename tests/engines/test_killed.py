"""The agents that were killed everywhere, on engines whose workers and servers are killed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.trip.client import World, start_world
from holdfast import Holdfast
from holdfast.core.state import FINISHED
from holdfast.testing.servers import free_ports
from tests.crash.flow_agents import aexpedition, expedition
from tests.engines.killing import Person, Workers, effects, family, takeovers, until_all_ended
from tests.engines.serve import LEASE_S, engine_of
from tests.engines.servers import new_restate, new_temporal
from tests.thorough import THOROUGH

KILLS, SERVER_KILLS = (50, 5) if THOROUGH else (15, 2)
AT_ONCE = 4
_EVERY_S = (0.2, 1.0)


class Trips:
    """Expeditions that are under way: enough of them while others are killed."""

    def __init__(self, hf: Holdfast) -> None:
        self.hf = hf
        self.ids: list[str] = []
        self._person = Person(hf)

    def tend(self) -> None:
        under_way = [i for i in self.ids if self._person.look(i).status not in FINISHED]
        for _ in range(AT_ONCE - len(under_way)):
            self.start()

    def start(self) -> None:
        number = len(self.ids)
        self.ids.append(f"trip-{number}")
        self.hf.start(expedition if number % 2 else aexpedition, 3, id=self.ids[-1])


def kill_while_they_run(trips: Trips, workers: Workers, server: Any, chance: random.Random) -> None:
    restarts = set(chance.sample(range(KILLS), SERVER_KILLS))
    for kill in range(KILLS):
        until = time.monotonic() + chance.uniform(*_EVERY_S)
        while time.monotonic() < until:
            trips.tend()
            time.sleep(0.1)
        workers.kill_one(chance)
        if kill in restarts:
            server.kill()
            time.sleep(chance.uniform(0, 0.5))
            server.start()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_killed_again_and_again_each_effect_is_made_once_and_the_logs_are_the_same(
    engine: str, tmp_path: Path
) -> None:
    new: Callable[[Path], Any] = {"temporal": new_temporal, "restate": new_restate}[engine]
    with new(tmp_path / engine) as server, start_world(tmp_path / "world.db") as (_, url):
        if engine == "temporal":
            where = [["temporal", server.address, "killed"]] * 2
        else:
            listen = f"127.0.0.1:{next(free_ports())}"
            where = [["restate", server.url, server.admin_url, listen]]
        store = f"sqlite:///{tmp_path}/store.db"
        workers = Workers(store, url, where)
        try:
            with Holdfast(store, lease_s=LEASE_S, engine=engine_of(*where[0])) as hf:
                trips = Trips(hf)
                kill_while_they_run(trips, workers, server, random.Random(8))
                until_all_ended(hf, trips.ids, 120)
                made = {id: family(hf, id) for id in trips.ids}
                taken_over = takeovers(hf, trips.ids)
                unreadable = hf.verify().damage
        finally:
            workers.end()
        done = effects(World(url).rows())
        World(url).reset()
        assert not unreadable
        expected, once = local(trips.ids, url, tmp_path)
    assert made == expected
    assert done == once
    assert taken_over >= KILLS / 5, "nearly all who were killed had nothing in hand"


def local(ids: list[str], world: str, folder: Path) -> tuple[dict[str, Any], Any]:
    """What the same tasks come to in this process, and what they do to the world."""
    from tests.crash import agents

    agents.world.cache_clear()
    with pytest.MonkeyPatch.context() as patch, Holdfast(folder / "local") as hf:
        patch.setenv("AGENT_WORLD", world)
        for number, id in enumerate(ids):
            hf.start(expedition if number % 2 else aexpedition, 3, id=id)
            run_to_end(hf, id)
        agents.world.cache_clear()
        return {id: family(hf, id) for id in ids}, effects(World(world).rows())


def run_to_end(hf: Holdfast, id: str) -> None:
    from holdfast import Unanswered

    while True:
        try:
            hf.resume(id)
            return
        except Unanswered as asked:
            hf.answer(asked.task_id, True, question=asked.id, by="a person")
