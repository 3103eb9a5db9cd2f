"""The research agent on Temporal, its workers killed: the same words, and each effect once."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from examples.research import agent as research
from examples.trip.client import World, start_world
from holdfast import BadInput, Holdfast, HoldfastError
from holdfast.core.state import FINISHED
from tests.crash.support_agents import bare
from tests.engines.killing import Workers
from tests.engines.research_tasks import agent
from tests.engines.serve import LEASE_S, engine_of
from tests.engines.servers import new_temporal
from tests.thorough import THOROUGH

TASKS, KILLS = (12, 30) if THOROUGH else (3, 5)
BOUND_S = 240.0


def tend(hf: Holdfast, world: World, ids: list[str]) -> bool:
    """Say yes, and look into the letter box; whether all have ended."""
    for id in ids:
        for call in list(hf.task(id).state.calls.values()):
            with suppress(BadInput, HoldfastError):  # answered a moment ago
                if call.kind in ("question", "approval") and call.status == "waiting":
                    hf.answer(id, True, question=call.key or call.path, by="a person")
                elif call.status == "in_doubt":
                    happened = bool(world.find("letter", call.key))
                    result = "letter: done" if happened else None
                    hf.resolve(id, call.path, happened=happened, result=result, by="a person")
    return all(hf.task(id).status in FINISHED for id in ids)


def said_in(hf: Holdfast, id: str) -> list[list[str]]:
    """Both conversations of a task: its own, and that of the agent it called."""
    (child,) = (call.child for call in hf.task(id).children)
    talks = (hf.session(f"session-{id}"), hf.session(child))
    return [[bare(m).replace(id, "ID") for m in talk.messages()] for talk in talks]


@pytest.mark.timeout(600)
def test_workers_of_temporal_are_killed_and_the_conversation_is_the_same(tmp_path: Path) -> None:
    with new_temporal(tmp_path / "temporal") as server, start_world(tmp_path / "w.db") as (_, url):
        world = World(url)
        research.work_in(world)
        with Holdfast("memory://") as hf:
            hf.session("session-calm", user="ada").start(agent.task, research.GOAL, id="calm")
            while not tend(hf, world, ["calm"]):
                with suppress(HoldfastError):
                    hf.resume("calm")
            calm, result = said_in(hf, "calm"), hf.task("calm").result
        world.reset()
        where = ["temporal", server.address, "research"]
        store = f"sqlite:///{tmp_path}/store.db"
        workers = Workers(store, url, [where] * 2, "tests.engines.research_tasks")
        try:
            with Holdfast(store, lease_s=LEASE_S, engine=engine_of(*where)) as hf:
                ids = [f"eels-{number}" for number in range(TASKS)]
                for id in ids:
                    hf.session(f"session-{id}", user="ada").start(agent.task, research.GOAL, id=id)
                chance = random.Random(21)
                for _ in range(KILLS):
                    until = time.monotonic() + chance.uniform(0.1, 1.0)
                    while time.monotonic() < until and not tend(hf, world, ids):
                        time.sleep(0.05)
                    workers.kill_one(chance)
                give_up_at = time.monotonic() + BOUND_S
                while not tend(hf, world, ids):
                    assert time.monotonic() < give_up_at, [hf.task(id).status for id in ids]
                    time.sleep(0.1)
                for id in ids:
                    assert said_in(hf, id) == calm
                    assert hf.task(id).result == {**result, "session": f"session-{id}"}
        finally:
            workers.end()
        made = Counter(row["kind"] for row in world.rows())
        assert made == {"copy": 2 * TASKS, "seat": TASKS, "letter": TASKS, "page": TASKS}
