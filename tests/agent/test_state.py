"""The agent's state: a value that is never changed, and of which nothing is lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import (
    BadInput,
    Holdfast,
    IllegalTransition,
    PlanItem,
    Undecodable,
    Unserializable,
    checkpoint,
    restore,
    step,
    task,
)
from holdfast.agent.state import AGENT, AgentState, Phase, ToolCallRecord, WorkingMemory, dump, load
from holdfast.core.plan import STATUSES
from holdfast.core.usage import Usage
from holdfast.log.artifacts import Artifact
from holdfast.log.messages import (
    Foreign,
    Media,
    Message,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    assistant,
    is_valid,
    tool_result,
    user,
)
from tests.flavors import Crash

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)


def begun() -> AgentState:
    return AgentState.from_user_input("Find a room", "s-1", at=NOON)


# What any state may hold

texts = st.text('aé✓\n"\\\u0000\U0001f600 ', max_size=6)
times = st.datetimes(
    datetime(1970, 1, 2),  # noqa: DTZ001 (the zone is drawn)
    datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))]),
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
datas = st.dictionaries(texts, plain, max_size=2)
extras = st.dictionaries(texts, datas, max_size=1)
artifacts = st.builds(Artifact, texts, st.integers(0, 99), texts, texts)
media = st.builds(
    Media,
    kind=st.sampled_from(["image", "file", "audio"]),
    media_type=texts,
    data=st.none() | st.binary(max_size=8),
    url=texts,
    artifact=st.none() | artifacts,
    name=texts,
    extra=extras,
)
parts = st.one_of(
    st.builds(Text, texts, extras),
    media,
    st.builds(Thinking, texts, extras),
    st.builds(Refusal, texts, extras),
    st.builds(ToolCall, texts, texts, texts, extras),
    st.builds(
        ToolResult, texts, texts | st.tuples(st.builds(Text, texts), media), st.booleans(), extras
    ),
    st.builds(Foreign, texts, plain),
)
messages = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts | st.lists(parts, max_size=3).map(tuple),
    name=texts,
    meta=datas,
    extra=extras,
    number=st.integers(0, 99),
    at=st.none() | times,
    task=texts,
    step=texts,
)
records = st.builds(
    ToolCallRecord,
    id=texts,
    name=texts,
    arguments=texts,
    result=st.none() | texts,
    error=st.none() | texts,
    duration_ms=st.none() | st.floats(0, 1e9),
    at=st.none() | times,
)
items = st.builds(
    PlanItem, texts, texts, st.sampled_from(STATUSES), st.lists(texts, max_size=2).map(tuple)
)
memories = st.builds(
    WorkingMemory,
    goal=texts,
    plan=st.lists(items, max_size=2).map(tuple),
    completed_steps=st.lists(texts, max_size=2).map(tuple),
    notes=datas,
    tool_calls=st.lists(records, max_size=2).map(tuple),
)
states = st.builds(
    AgentState,
    session_id=texts,
    phase=st.sampled_from(get_args(Phase)),
    history=st.lists(messages, max_size=3).map(tuple),
    memory=memories,
    iteration=st.integers(0, 999),
    usage=st.builds(
        Usage, st.integers(0, 999), st.integers(0, 999), st.integers(0, 999), st.floats(0, 9)
    ),
    final_answer=st.none() | texts,
    error_message=st.none() | texts,
    created_at=times,
    updated_at=times,
)


# Nothing is lost


@settings(deadline=None)
@given(states)
def test_nothing_is_lost_in_dump_and_load(state):
    data = dump(state)
    again = load(data)
    assert again == state
    assert dump(again) == data


@settings(deadline=None, max_examples=30)
@given(states)
def test_nothing_is_lost_in_checkpoint_and_restore(state):
    crashed: list[bool] = []

    @task(name="keeps_agent_state")
    def body() -> bool:
        found = restore(state)
        if not crashed:
            checkpoint(state)
            crashed.append(True)
            raise Crash
        return found == state

    with Holdfast("memory://") as hf:
        with pytest.raises(Crash):
            hf.run(body, id="t")
        assert hf.run(body, id="t") is True


def seed_save_and_load(state: AgentState) -> dict[str, Any]:
    """The loader as the lesson on agent state has it: which fields it reads, and no others."""
    payload = json.loads(msgspec.json.encode(state))
    memory = payload.get("memory", {})
    return {
        "session_id": payload["session_id"],
        "phase": payload["phase"],
        "iteration": payload["iteration"],
        "final_answer": payload.get("final_answer"),
        "error_message": payload.get("error_message"),
        "history": payload.get("history", []),
        "memory": {
            "goal": memory.get("goal", ""),
            "plan": memory.get("plan", []),
            "completed_steps": memory.get("completed_steps", []),
            "notes": memory.get("notes", {}),
        },
        "created_at": datetime.now(UTC),  # the default of the class: nobody sets it
        "updated_at": datetime.now(UTC),
    }


def test_a_loader_that_reads_field_by_field_drops_tool_calls_and_times_and_ours_does_not():
    call = ToolCallRecord("c1", "search", '{"city": "Oslo"}', "3 rooms", None, 12.5, NOON)
    state = begun().to_executing(at=LATER).record_observation(call, at=LATER)
    theirs, ours = seed_save_and_load(state), load(dump(state))
    assert "tool_calls" not in theirs["memory"]
    assert theirs["created_at"] != state.created_at and theirs["updated_at"] != state.updated_at
    assert ours.memory.tool_calls == (call,)
    assert (ours.created_at, ours.updated_at) == (NOON, LATER)
    assert ours == state


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), (1, 2), b"bytes", {1: 2}, {1, 2}, object(), "\ud800"],
)
def test_what_json_would_not_bring_back_is_refused_when_it_is_dumped(value):
    with pytest.raises(Unserializable, match="'s-1'"):
        dump(begun().note("odd", value, at=NOON))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"garbage",
        b"\xff\xfe",
        b"[]",
        b"{}",
        b'{"version": "one"}',
        b'{"version": 1}',
        b'{"version": 1, "state": {}}',
        b'{"version": 1, "state": null}',
        b"[" * 100_000,
    ],
)
def test_garbage_is_no_state_and_said_to_be_none(garbage):
    with pytest.raises(Undecodable, match="no agent state"):
        load(garbage)


def test_a_state_in_a_phase_that_does_not_exist_is_refused():
    data = dump(begun()).replace(b'"phase":"planning"', b'"phase":"dreaming"')
    with pytest.raises(Undecodable, match="dreaming"):
        load(data)


def test_a_newer_version_is_not_guessed_at():
    with pytest.raises(Undecodable, match="of version 2: this Holdfast knows 1"):
        load(dump(begun()).replace(b'"version":1', b'"version":2'))


# A state is never changed


def test_old_and_new_share_nothing_that_can_be_changed():
    """A shallow copy shares its lists: what the new state appends, the old one has too."""
    old = begun().note("seen", {"rooms": [1]}, at=NOON).to_executing(at=NOON)
    before = dump(old)
    call = ToolCallRecord("c1", "search")
    new = old.record_observation(call, at=LATER).note("more", [1], at=LATER)
    new = new.say(user("And a bath", meta={"from": ["phone"]}), at=LATER).with_plan(["a"], at=LATER)
    new.memory.notes["seen"]["rooms"].append(2)
    new.memory.notes["hacked"] = True
    assert dump(old) == before
    assert old.memory.tool_calls == () and len(old.history) == 1


def test_what_the_caller_changes_later_does_not_reach_the_state():
    rooms, meta = [1], {"from": ["phone"]}
    state = begun().note("rooms", rooms, at=NOON).say(user("Hello", meta=meta), at=NOON)
    rooms.append(2)
    meta["from"].append("home")
    assert state.memory.notes == {"rooms": [1]}
    assert state.history[-1].meta == {"from": ["phone"]}


def test_fields_cannot_be_set():
    with pytest.raises(AttributeError):
        begun().phase = "done"


# Phases


def test_the_whole_way_with_a_new_plan_after_reflection():
    state = AgentState.new("s-1", at=NOON)
    assert (state.phase, state.history) == ("idle", ())
    state = state.to_planning(goal="a room", at=NOON).with_plan(["search"], at=NOON)
    state = state.to_executing(at=NOON).mark("1", "done", at=NOON).to_reflecting(at=NOON)
    state = state.to_planning(at=NOON).with_plan(["call", "book"], at=NOON)
    state = state.to_executing(at=NOON).mark("1", "done", at=NOON).to_reflecting(at=NOON)
    assert state.memory.goal == "a room"
    assert state.memory.completed_steps == ("search", "call")
    assert state.memory.pending_steps == ("book",)
    state = state.to_done("It is booked", at=LATER)
    assert (state.phase, state.final_answer, state.iteration) == ("done", "It is booked", 2)
    assert state.history[-1] == assistant("It is booked", at=LATER)
    assert (state.created_at, state.updated_at) == (NOON, LATER)


MOVES: dict[str, Any] = {
    "planning": lambda s: s.to_planning(at=LATER),
    "executing": lambda s: s.to_executing(at=LATER),
    "reflecting": lambda s: s.to_reflecting(at=LATER),
    "done": lambda s: s.to_done("yes", at=LATER),
    "error": lambda s: s.to_error("no", at=LATER),
}


@pytest.mark.parametrize("phase", AGENT.names)
@pytest.mark.parametrize("to", MOVES)
def test_each_transition_is_made_where_the_machine_allows_it_and_refused_elsewhere(phase, to):
    state = msgspec.structs.replace(begun(), phase=phase)
    if to in AGENT.allowed(phase):
        assert MOVES[to](state).phase == to
    else:
        with pytest.raises(IllegalTransition) as caught:
            MOVES[to](state)
        assert caught.value.allowed == AGENT.allowed(phase)


def test_an_error_says_what_went_wrong():
    state = begun().to_error("the model is gone", at=LATER)
    assert (state.phase, state.error_message) == ("error", "the model is gone")


def test_a_result_becomes_a_message_only_after_the_call_that_asks_for_it():
    state = begun().to_executing(at=NOON)
    asked = assistant("", [ToolCall("c1", "search", "{}"), ToolCall("c2", "search", "{}")])
    state = state.say(asked, at=NOON)
    for id, error in (("c1", None), ("c2", "no answer")):
        call = ToolCallRecord(id, "search", "{}", result="3 rooms", error=error)
        state = state.record_observation(call, at=LATER)
    assert is_valid(state.history)
    assert [m.results[0].content for m in state.history[-2:]] == ["3 rooms", "error: no answer"]
    again = state.record_observation(ToolCallRecord("c1", "search", "{}"), at=LATER)
    assert again.history == state.history and len(again.memory.tool_calls) == 3


def test_an_unknown_item_of_the_plan_is_refused():
    with pytest.raises(BadInput, match="no item '9'"):
        begun().with_plan(["a"], at=NOON).mark("9", "done", at=NOON)


def test_usage_adds_up():
    state = begun().spend(Usage(10, 2, cost=0.5), at=NOON).spend(Usage(1, 1), at=NOON)
    assert (state.usage.tokens, state.usage.cost) == (14, 0.5)


# Time


def test_outside_a_task_the_times_are_those_of_the_clock():
    before = datetime.now(UTC)
    state = AgentState.from_user_input("Hello")
    after = state.to_executing()
    assert before <= state.created_at <= after.updated_at <= datetime.now(UTC)
    assert state.session_id != AgentState.from_user_input("Hello").session_id


@step
def answer_of_agent() -> str:
    return "42"


def test_in_a_task_a_replay_sees_the_very_same_state(tmp_path):
    seen: list[bytes] = []

    @task(name="agent_state_replayed")
    def body() -> None:
        state = restore(AgentState.from_user_input("Hello"))
        if state.phase == "planning":
            state = state.to_executing().note("answer", answer_of_agent()).to_reflecting()
            seen.append(dump(state))
            if len(seen) == 1:
                raise Crash
            state = checkpoint(state)
        state = state.to_done("42")
        seen.append(dump(state))
        if len(seen) == 3:
            raise Crash

    with Holdfast(tmp_path) as hf:
        for _ in range(2):
            with pytest.raises(Crash):
                hf.run(body, id="t", session="s-7")
        hf.run(body, id="t", session="s-7")
        created = hf.task("t").created_at
    assert seen[0] == seen[1] and seen[2] == seen[3] and len(seen) == 4
    state = load(seen[3])
    assert (state.session_id, state.created_at) == ("s-7", created)
    assert state.updated_at > state.created_at


def test_no_result_without_its_call_nor_a_word_before_it_is_kept():
    state = AgentState.from_user_input("q")
    with pytest.raises(BadInput, match="not open"):
        state.say(tool_result("zz", "r"))
    asked = state.say(assistant("", [ToolCall("c", "look", "{}")]))
    with pytest.raises(BadInput, match="need their results"):
        asked.say(user("and?"))
    assert len(asked.say(tool_result("c", "r"), user("and?")).history) == 4
