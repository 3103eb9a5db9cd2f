"""The research agent of the examples, to be killed everywhere: seven calls at once, one of them an
agent, one that needs a yes, one whose doubt only a person can settle, and one that streams."""

from __future__ import annotations

from typing import Any

import msgspec

from examples.research import agent as research
from examples.trip.client import World
from holdfast import Holdfast
from holdfast.testing.crash import boundary
from tests.crash.agents import world
from tests.crash.support_agents import bare, perilous


class PerilousWorld(World):
    """The world, with a place to die on either side of each effect."""

    def effect(
        self, kind: str, reference: str, honour_key: bool = False, key: str | None = None
    ) -> dict[str, Any]:
        boundary("before an effect")
        done = super().effect(kind, reference, honour_key, key)
        boundary("after an effect")
        return done


class Research:
    """One request to its end; the result is both conversations, and what was taken."""

    def __init__(self, asks: Any = research.model, reads: Any = research.reader_model) -> None:
        self.world = world()
        research.work_in(PerilousWorld(self.world.base_url))
        self.agent = research.make_agent(perilous(asks), perilous(reads))

    def reset(self) -> None:
        self.world.reset()

    def run(self, hf: Holdfast) -> Any:
        result = research.attend(hf, self.agent)
        (child,) = (call.child for call in hf.task(research.TASK).children)
        talks = (hf.session(research.SESSION), hf.session(child))
        return {
            "result": msgspec.to_builtins(result),
            "said": [[bare(message) for message in talk.messages()] for talk in talks],
        }

    def effects(self) -> Any:
        kept = ("kind", "reference", "key")
        return sorted([str(row.get(name)) for name in kept] for row in self.world.rows())


def sync_research() -> Research:
    return Research()


def awaited(model: Any) -> Any:
    async def amodel(request: Any) -> Any:
        return model(request)

    amodel.is_async = True  # type: ignore[attr-defined]
    return amodel


def async_research() -> Research:
    """The same on an event loop; its tools are sync, and so in threads."""
    return Research(awaited(research.model), awaited(research.reader_model))
