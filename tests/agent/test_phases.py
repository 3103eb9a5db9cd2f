"""Phases: declared once, checked then, and never left by a way that was not declared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import BadInput, IllegalTransition
from holdfast.agent.state import AGENT, Phases


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"moves": {"a": ["b"]}}, "'a' leads to 'b', which is no phase"),
        (
            {"moves": {"a": ["end"]}, "from_any": ["b"]},
            "'from_any' leads to 'b', which is no phase",
        ),
        ({"moves": {"a": ["end"], "b": ["end"]}}, "no move leads to 'b' from 'a'"),
        ({"moves": {"a": ["b", "end"], "b": []}}, "'b' leads nowhere and is not final"),
        ({"moves": {"a": ["b", "end"], "b": ["b"]}}, "'b' leads nowhere and is not final"),
        ({"moves": {"a": ["end"], "end": ["a"]}}, "'end' is final and leads to a"),
        ({"moves": {"a": "end"}}, r"moves\['a'\]='end' must be a list of phases"),
        ({"moves": {"a": ["end"]}, "start": ""}, "start: a phase has a name"),
        ({"moves": {"a": [7]}}, "a phase has a name, which 7 is not"),
        ({"moves": {"a": ["end"]}, "start": "z"}, "'z' leads nowhere"),
        ({"moves": {"a": ["b"], "b": ["a"]}}, "no move leads to 'end'"),
    ],
)
def test_a_machine_that_makes_no_sense_is_refused_where_it_is_declared(declared, told):
    with pytest.raises(BadInput, match=told):
        Phases(**{"start": "a", "final": ["end"], **declared})


def test_an_agent_that_never_ends_is_fine():
    assert Phases(start="a", moves={"a": ["b"], "b": ["a"]}).move("b", "a") == "a"


def test_an_illegal_move_tells_from_where_to_where_and_what_is_allowed():
    with pytest.raises(IllegalTransition) as caught:
        AGENT.move("planning", "done")
    error = caught.value
    assert (error.now, error.to, error.allowed) == ("planning", "done", ("executing", "error"))
    assert str(error) == "from 'planning' to 'done': allowed is executing, error"
    with pytest.raises(IllegalTransition, match="'done' is final"):
        AGENT.move("done", "planning")


def test_an_unknown_phase_is_named_with_those_there_are():
    with pytest.raises(BadInput, match="'thinking' is no phase: it is one of idle, planning"):
        AGENT.move("thinking", "done")
    with pytest.raises(IllegalTransition, match="to 'thinking': allowed is planning, error"):
        AGENT.move("idle", "thinking")


def test_the_agents_machine_is_the_one_that_is_drawn():
    assert {phase: set(to) for phase, to in AGENT.moves.items()} == {
        "idle": {"planning", "error"},
        "planning": {"executing", "error"},
        "executing": {"reflecting", "error"},
        "reflecting": {"planning", "executing", "done", "error"},
        "done": set(),
        "error": set(),
    }


@given(st.lists(st.sampled_from(AGENT.names), max_size=30))
def test_whatever_is_tried_only_declared_moves_are_made(tried):
    now = AGENT.start
    for to in tried:
        try:
            after = AGENT.move(now, to)
        except IllegalTransition as error:
            assert to not in AGENT.moves[now] and error.allowed == AGENT.moves[now]
        else:
            assert after == to and to in AGENT.moves[now]
            now = after


def test_the_moves_cannot_be_changed_afterwards():
    with pytest.raises(TypeError):
        AGENT.moves["done"] = ("planning",)
