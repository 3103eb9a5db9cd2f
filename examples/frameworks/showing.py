"""Run the agent of a framework against the scripted model, and say what was done to the world."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from examples.frameworks.script import QUESTION, said
from examples.frameworks.tools import letter_is_there, work_in
from examples.trip.client import World, start_world
from holdfast import Holdfast, InDoubt
from holdfast.testing import ScriptedModel

Agent = Callable[[str, str], Coroutine[Any, Any, str]]


_stores: list[Holdfast] = []


def store() -> Holdfast:
    """The store that the agent runs in, for what it keeps there beside its task."""
    return _stores[0]


def show(agent: Agent) -> None:
    """Run it once, and print its answer and the effects."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_world(Path(folder) / "world.db") as (_, base_url),
        ScriptedModel(said) as model,
        Holdfast(Path(folder) / "workspace") as hf,
    ):
        work_in(World(base_url))
        print(attend(hf, agent, model.url))
        for call in hf.task("support-1").calls:
            print(f"{call.kind:5} {call.name:24} {call.path}")
        print(World(base_url).counts())


def show_thread(support: Callable[[Holdfast, str], str]) -> None:
    """The same for an agent that has a thread of its own instead of a task."""
    with (
        tempfile.TemporaryDirectory() as folder,
        start_world(Path(folder) / "world.db") as (_, base_url),
        ScriptedModel(said) as model,
        Holdfast(Path(folder) / "workspace") as hf,
    ):
        work_in(World(base_url))
        print(support(hf, model.url))
        for view in hf.tasks(session="support-1"):
            print(f"{view.type:12} {', '.join(call.name for call in view.calls)}")
        print(World(base_url).counts())


def attend(hf: Holdfast, agent: Agent, url: str) -> str:
    """Run the agent, or go on with it; a person settles what is in doubt."""
    _stores[:] = [hf]
    while True:
        try:
            answer: str = hf.run(agent, url, QUESTION, id="support-1")
            return answer
        except InDoubt as doubt:
            # A person looks into the letter box.
            happened = letter_is_there("Ada")
            result = "posted" if happened else None
            hf.resolve("support-1", doubt.path, happened=happened, result=result, by="a person")
