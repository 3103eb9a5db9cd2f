"""A check, and a person by whatever door, say what a tool returned; so does the log.

What a framework wraps around it is the integration's own business. The agents of all frameworks die
after the mail and after the letter; then their logs must hold what those of an undisturbed run do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from examples.frameworks.script import said
from examples.frameworks.showing import attend
from examples.frameworks.tools import work_in
from examples.trip.client import Json, World
from holdfast import Holdfast, InDoubt, Unserializable, task, tool
from holdfast.cli.root import root
from holdfast.testing import ScriptedModel
from tests.flavors import Crash
from tests.web.serving import serving

FRAMEWORKS = ["pydantic_ai", "openai_agents", "adk", "langgraph", "langchain"]


class MortalWorld(World):
    """A world without a server, in which the process dies once after each of some effects."""

    def __init__(self, *deadly: str) -> None:
        self.done: dict[tuple[str, str], int] = Counter()
        self.deadly = {*deadly}

    def effect(
        self, kind: str, reference: str, honour_key: bool = False, key: str | None = None
    ) -> Json:
        self.done[kind, reference] += 1
        if kind in self.deadly:
            self.deadly.discard(kind)
            raise Crash
        return {}

    def find(self, kind: str, reference: str) -> list[Json]:
        return [{}] * self.done[kind, reference]


def running(framework: str, hf: Holdfast, url: str) -> Callable[[], str]:
    """The agent of a framework, to be run to its end or on to it."""
    module = import_module(f"examples.frameworks.{framework}_agent")
    if framework in ("langgraph", "langchain"):
        return lambda: module.support(hf, url)
    return lambda: attend(hf, getattr(module, f"{framework}_support"), url)


def tools_of(hf: Holdfast) -> dict[str, Any]:
    calls = [call for view in hf.tasks() for call in view.calls if call.kind == "tool"]
    return {call.name: msgspec.json.decode(call.result) for call in calls if call.result}


def settlers(hf: Holdfast) -> set[str]:
    calls = [call for view in hf.tasks() for call in view.state.calls.values()]
    return {call.settled_by for call in calls if call.settled_by}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_log_holds_what_the_tool_returned_whoever_says_it(framework):
    logs = []
    for deadly in [(), ("email", "letter")]:
        world = MortalWorld(*deadly)
        work_in(world)
        with ScriptedModel(said) as model, Holdfast("memory://") as hf:
            work = running(framework, hf, model.url)
            for _ in deadly:
                with pytest.raises(Crash):
                    work()
            assert work() == "Order 7 is refunded, and you have mail."
            assert len(settlers(hf)) == len(deadly)
            assert set(world.done.values()) == {1}
            seen = [each.content for each in model.requests[-1].messages[-1].results]
            logs.append((tools_of(hf), seen))
    calm, settled = logs
    assert settled == calm
    assert calm[0]["post_letter"] == calm[1][0] == "posted"
    assert calm[0]["send_email"] == "sent"


def by_method(hf: Holdfast, path: str) -> None:
    hf.resolve("support-1", path, happened=True, result="posted", by="ada")


def by_command(hf: Holdfast, path: str) -> None:
    words = ["resolve", "support-1", path, "--happened", "--result", '"posted"', "--unchecked"]
    done = CliRunner().invoke(root, [*words, "--url", hf.store.url])
    assert done.exit_code == 0, done.output


def by_page(hf: Holdfast, path: str) -> None:
    with serving(hf) as page:
        page.post("tasks", "support-1", "resolve", path=path, happened=True, result="posted")


@pytest.mark.parametrize("framework", ["pydantic_ai", "openai_agents", "adk"])
@pytest.mark.parametrize("settle", [by_method, by_command, by_page])
def test_no_door_takes_another_tool_of_that_name_for_it(framework, settle, tmp_path: Path):
    @tool(name="post_letter")
    def post_another_letter(to: str) -> dict[str, int]:
        return {"to": len(to)}

    work_in(MortalWorld("letter"))
    module = import_module(f"examples.frameworks.{framework}_agent")
    agent = getattr(module, f"{framework}_support")
    with ScriptedModel(said) as model, Holdfast(tmp_path / "workspace") as hf:
        with pytest.raises(Crash):
            attend(hf, agent, model.url)
        with pytest.raises(InDoubt) as doubt:
            hf.resume("support-1")
        settle(hf, doubt.value.path)
        assert hf.resume("support-1") == "Order 7 is refunded, and you have mail."
        assert tools_of(hf)["post_letter"] == "posted"


def test_a_wrong_result_of_our_own_tool_is_refused_and_one_given_unchecked_is_not(hf):
    @tool
    def post_one() -> dict[str, int]:
        raise Crash

    @task
    def posting() -> dict[str, int]:
        return post_one()

    with pytest.raises(Crash):
        hf.run(posting, id="posting-1")
    with suppress(InDoubt):
        hf.resume("posting-1")
    with pytest.raises(
        Unserializable, match=r"call 1, post_one: the result is not what .*post_one"
    ):
        hf.resolve("posting-1", "1", happened=True, result="posted")
    hf.resolve("posting-1", "1", happened=True, result="posted", unchecked=True)
    hf.resolve("posting-1", "1", happened=True, result={"letters": 1})
    assert hf.resume("posting-1") == {"letters": 1}
