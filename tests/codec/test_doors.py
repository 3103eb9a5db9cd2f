"""Values by every door, for every kind of class: accepted as the same value, or refused with a
message that names the field, before anything came of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast import (
    BadInput,
    CodeChanged,
    Holdfast,
    HoldfastError,
    InDoubt,
    TaskFailed,
    Unanswered,
)
from holdfast.agent.tooling import BadCall, Tools
from holdfast.cli.root import root
from holdfast.core.events import MessageRefused
from holdfast.log.messages import ToolCall
from tests.codec.orders import AGENTS, Agent
from tests.flavors import Crash

INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "right": ({"city": "Oslo", "beds": 2}, ""),
    "right, with a default": ({"city": "Oslo"}, ""),
    "wrong": ({"city": 7, "beds": 2}, "city"),
    "half right": ({"city": "Oslo", "beds": "many"}, "beds"),
    "nonsense": ({"nonsense": 1}, "city|nonsense"),
}


class Refused(Exception):
    """What a door said, when it let a value not in."""


def python_call(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    """The caller has an object, or for pydantic what makes one."""
    is_model = hasattr(agent.kind, "model_fields")
    try:
        order = given if is_model else agent.kind(**given)
    except TypeError as error:  # the class itself says so, in Python's own words
        raise Refused(str(error)) from None
    try:
        return hf.run(agent.take, order, id="t")
    except HoldfastError as error:
        assert hf.tasks() == []
        raise Refused(str(error)) from None


def command_line(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    name = f"tests.codec.orders:take_{agent.kind.__name__}"
    done = CliRunner().invoke(
        root, ["--url", str(hf.store.url), "run", name, json.dumps(given), "--id", "t"]
    )
    if done.exit_code:
        assert hf.tasks() == []
        raise Refused(done.output)
    return hf.run(agent.take, agent.kind(**given), id="t")  # the very same call


def model(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    call = ToolCall("1", agent.book.holdfast_spec.name, json.dumps({"order": given}))
    try:
        return Tools([agent.book]).prepared(call)()
    except BadCall as bad:
        raise Refused(str(bad)) from None


def answer(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    with pytest.raises(Unanswered):
        hf.run(agent.question, id="t")
    hf.answer("t", given)
    try:
        return hf.resume("t")
    except Unanswered:
        (asked,) = hf.task("t").questions
        raise Refused(hf.task("t").state.calls[asked.path].refused) from None


def message(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    hf.start(agent.message, id="t")
    hf.send("t", "order", given)
    try:
        return hf.resume("t")
    except TaskFailed:  # it waited for another one, and none came in time
        (why,) = (e.why for e in hf.task("t").events() if isinstance(e, MessageRefused))
        raise Refused(why) from None


def stub(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    agent.returns = agent.kind(city="Bergen")
    hf.run(agent.finds, id="t")
    try:
        done = hf.replay("t", stubs={agent.find.holdfast_spec.name: given})
    except BadInput as error:
        raise Refused(str(error)) from None
    return done.result


def resolve(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    agent.crashes = True
    with pytest.raises(Crash):
        hf.run(agent.books, id="t")
    agent.crashes = False
    with pytest.raises(InDoubt):
        hf.resume("t")
    before = hf.task("t").seq
    try:
        hf.resolve("t", "1", happened=True, result=given)
    except HoldfastError as error:
        assert hf.task("t").seq == before
        raise Refused(str(error)) from None
    return hf.resume("t")


def replay(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    """The log has plain data, of a time when the step had no type."""
    agent.returns, agent.finder, agent.crashes = given, agent.read_untyped, True
    with pytest.raises(Crash):
        hf.run(agent.finds, id="t")
    agent.finder, agent.crashes = agent.read, False
    try:
        return hf.run(agent.finds, id="t")
    except CodeChanged as error:
        raise Refused(str(error)) from None


def result(hf: Holdfast, agent: Agent, given: dict[str, Any]) -> Any:
    """A step returns it."""
    is_model = hasattr(agent.kind, "model_fields")
    try:
        agent.returns = given if is_model else agent.kind(**given)
    except TypeError as error:
        raise Refused(str(error)) from None
    try:
        return hf.run(agent.finds, id="t")
    except TaskFailed as failed:
        raise Refused(str(failed)) from None


DOORS: list[Callable[[Holdfast, Agent, dict[str, Any]], Any]] = [
    *(python_call, command_line, model, answer, message, stub, resolve, replay, result),
]


@pytest.fixture
def agent(request):
    agent = AGENTS[request.param]
    yield agent
    agent.crashes, agent.finder = False, agent.find


@pytest.mark.parametrize("agent", AGENTS, indirect=True)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize("given", INPUTS)
def test_a_value_is_the_same_by_every_door_or_refused_by_the_name_of_its_field(
    tmp_path, agent, door, given
):
    data, field = INPUTS[given]
    with Holdfast(tmp_path / "w") as hf:
        if field:
            with pytest.raises(Refused) as refused:
                door(hf, agent, data)
            assert re.search(field, str(refused.value))
            return
        order = door(hf, agent, data)
        expected = agent.kind(**data)
        assert order in (expected, repr(expected))
        assert type(order) in (agent.kind, str)
