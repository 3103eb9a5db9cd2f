"""Recorded runs of the examples and of the agents of the crash harness, replayed.

The whole, and from every step: every snapshot is there again, byte for byte, and nothing happens
in the outside world.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from examples.support import agent as support
from examples.support.shop import Shop
from examples.trip import agent as trip
from holdfast import Holdfast
from holdfast.agent import Request
from holdfast.agent.adapters import OpenAIChat
from holdfast.core.spec import registry
from holdfast.core.state import FINISHED
from holdfast.history.replay import WantedReplay, replay
from holdfast.history.snapshots import tags
from holdfast.log.reading import stream_of
from holdfast.stores.memory import Aside
from tests.crash import agents, external_agents, flow_agents, workspace_agents
from tests.crash.agents import world
from tests.crash.support_agents import model_url


class TripExample:
    """The trip of the examples."""

    def reset(self) -> None:
        world().reset()
        trip.world = world()

    def run(self, hf: Holdfast) -> Any:
        return hf.run(trip.plan_trip, trip.CITY, trip.GUEST, id=trip.TRIP)

    def effects(self) -> Any:
        return world().rows()


class SupportExample(TripExample):
    """The support agent of the examples, with a model that answers by a script."""

    def reset(self) -> None:
        world().reset()
        support.work_for(Shop(world().base_url))
        self.asked: list[Request] = []
        options: Any = {"api_key": "none is needed", "base_url": model_url()}
        self.model = OpenAIChat(OpenAI(**options), "scripted")
        self.agent = support.make_agent(self.ask)

    def ask(self, request: Request) -> Any:
        self.asked.append(request)
        return self.model(request)

    def run(self, hf: Holdfast) -> Any:
        return list(support.converse(hf, self.agent, lambda question: "Yes, please."))

    def effects(self) -> Any:
        return [super().effects(), len(self.asked)]


def few_reads() -> Any:
    """One round of what the agent does in three: there are many steps in it."""
    scenario = external_agents.sync_reads()
    scenario.argument, scenario.sees = 1, scenario.sees[:7]
    return scenario


SCENARIOS: dict[str, Callable[[], Any]] = {
    "trip": TripExample,
    "support": SupportExample,
    "sync": agents.sync_scenario,
    "async": agents.async_scenario,
    "fleet": agents.fleet_scenario,
    "sync flow": flow_agents.sync_flow,
    "async flow": flow_agents.async_flow,
    "cancelled flow": flow_agents.cancelled_flow,
    "sync reads": few_reads,
    "async reads": external_agents.async_reads,
    "rows": workspace_agents.rows_in_batches,
    "async rows": workspace_agents.rows_async,
    "undone project": workspace_agents.project_undone,
}


@pytest.fixture(autouse=True)
def _only_the_code_of_the_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have tasks of the same names."""
    ours = {
        key: {where: spec for where, spec in found.items() if where.startswith(_OURS)}
        for key, found in registry._found.items()
    }
    monkeypatch.setattr(registry, "_found", {key: found for key, found in ours.items() if found})


_OURS = ("examples.", "holdfast.", "tests.crash.")


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_whole_and_from_every_step_every_snapshot_is_there_again(name, tmp_path, capfd):
    scenario = SCENARIOS[name]()
    scenario.reset()
    with Holdfast(tmp_path / "w", projections=False) as hf:
        scenario.run(hf)
        before, effects = everything(tmp_path), scenario.effects()
        compared = 0
        for task in list(hf.tasks()):
            places = [None, *(tag.path for tag in tags(task.state) if tag.when == "before")]
            for place in places:
                found = replay(hf._holding, task.id, WantedReplay(start=place, always=True))
                assert found.same, (task.id, place, found.divergence, found.differing)
                assert found.outcome == found.recorded
                assert found.recorded == (task.status if task.status in FINISHED else "open")
                compared += found.snapshots
        assert compared > 10
        assert everything(tmp_path) == before
    assert scenario.effects() == effects


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_log_that_ends_anywhere_is_replayed_as_far_as_it_goes(name, tmp_path, capfd):
    scenario = SCENARIOS[name]()
    scenario.reset()
    with Holdfast(tmp_path / "w", projections=False) as hf:
        scenario.run(hf)
        effects = scenario.effects()
        for task in list(hf.tasks()):
            stream = stream_of(task.id)
            lines = list(hf.store.read(stream))
            for length in range(1, len(lines)):
                cut = Aside(hf.store)
                cut.take(stream, lines[:length])
                with Holdfast(cut) as killed:
                    found = killed.replay(task.id)
                assert found.same, (task.id, length, found.summary())
                assert found.recorded == "open"
    assert scenario.effects() == effects
