"""The agents of the frameworks, to be killed everywhere: with their own clients, over HTTP.

The model and the world are servers in processes of their own. There is a boundary on either side of
each effect. A person settles what is in doubt by looking into the letter box.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import subprocess
import sys
from contextlib import ExitStack, suppress
from functools import cache
from multiprocessing.connection import Connection
from typing import Any

from examples.frameworks.script import said
from examples.frameworks.showing import attend
from examples.frameworks.tools import work_in
from examples.trip.client import ROOT, Json, World
from holdfast import Holdfast
from holdfast.testing.crash import boundary
from holdfast.testing.scripted import ScriptedModel
from tests.crash.agents import world

FORK = multiprocessing.get_context("fork")


class PerilousWorld(World):
    """The world, with a place to die on either side of everything that is done to it."""

    def effect(
        self, kind: str, reference: str, honour_key: bool = False, key: str | None = None
    ) -> Json:
        boundary("before an effect")
        done = super().effect(kind, reference, honour_key, key)
        boundary("after an effect")
        return done


@cache
def model_url() -> str:
    """Where the scripted model is: in a process of its own, which ends with us."""
    stack = ExitStack()
    atexit.register(stack.close)
    command = [sys.executable, "-m", "tests.crash.framework_agents"]
    process = stack.enter_context(
        subprocess.Popen(command, cwd=ROOT, stdin=-1, stdout=-1, text=True)
    )
    assert process.stdout is not None and process.stdin is not None
    stack.callback(process.stdin.close)
    return process.stdout.readline().strip()


class Support:
    """One request to an agent, to its end."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.url = model_url()
        self.world = world()
        work_in(PerilousWorld(self.world.base_url))
        self._import_what_a_run_imports()

    def _import_what_a_run_imports(self) -> None:
        """A framework imports hundreds of modules in its first run, and so would each process."""
        here, there = FORK.Pipe(duplex=False)
        process = FORK.Process(target=self._rehearse, args=(there,))
        process.start()
        there.close()
        for name in here.recv():
            with suppress(ImportError):  # not all that is in sys.modules can be imported by name
                importlib.import_module(name)
        process.join()

    def _rehearse(self, told: Connection) -> None:
        self.reset()
        with Holdfast("memory://") as hf:
            self.run(hf)
        told.send(list(sys.modules))

    def reset(self) -> None:
        self.world.reset()

    def run(self, hf: Holdfast) -> Any:
        return attend(hf, self.agent, self.url)

    def effects(self) -> Any:
        return self.world.counts()


def pydantic_ai() -> Support:
    from examples.frameworks.pydantic_ai_agent import pydantic_ai_support

    return Support(pydantic_ai_support)


def openai_agents() -> Support:
    from examples.frameworks.openai_agents_agent import openai_agents_support

    return Support(openai_agents_support)


def adk() -> Support:
    from examples.frameworks.adk_agent import adk_support

    return Support(adk_support)


class Thread(Support):
    """The same for an agent that has a thread of its own instead of a task."""

    def run(self, hf: Holdfast) -> Any:
        return self.agent(hf, self.url)


def langgraph() -> Thread:
    from examples.frameworks.langgraph_agent import support

    return Thread(support)


def langchain() -> Thread:
    from examples.frameworks.langchain_agent import support

    return Thread(support)


def main() -> None:
    with ScriptedModel(said) as model:
        print(model.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
