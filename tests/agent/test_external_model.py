"""Whatever a task reads, changes and lives through: each read returns what a small model says.

The model knows nothing of logs. It knows when each answer was asked for, and forgets it when it is
too old, when a tool may have changed it, and when the clock was set back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct

from holdfast import Holdfast, IdempotencyKey, InDoubt, StepFailed, step, task, tool
from holdfast.agent.externals import external
from holdfast.core.events import Reused
from holdfast.core.journal import calls as reads
from holdfast.stores.memory import MemoryStore
from holdfast.testing import Clock
from tests.agent.world import TTL_S
from tests.flavors import Crash
from tests.thorough import THOROUGH

WHAT = ("rates", "shares")
CRASHES = ("crash", "happened", "did_not_happen")
"""How an operation ends that its process does not survive; of a tool, also what a person says."""


class Op(Struct, frozen=True):
    """One thing that the task does, and how that goes."""

    kind: str
    what: str = "rates"
    seconds: float = 0
    ends: str = "well"


class Outside:
    """The world, and what befalls those who deal with it."""

    def __init__(self, script: list[Op]) -> None:
        self.script = script
        self.clock = Clock()
        self.asked = 0
        self.befallen: set[int] = set()

    def befalls(self, number: int) -> bool:
        """Whether what the script says of an operation is to happen now: it does so once."""
        is_new = number not in self.befallen
        self.befallen.add(number)
        return is_new


world: Outside


def answer(number: int) -> int:
    world.asked += 1
    asked = world.asked
    if world.script[number].ends == "crash" and world.befalls(number):
        raise Crash
    return asked


now_at: list[int] = [0]
"""The number of the operation that the task is at: no argument of it, or no two would be alike."""


@external(ttl_s=TTL_S)
def model_rates() -> int:
    return answer(now_at[0])


@external(ttl_s=TTL_S)
def model_shares() -> int:
    return answer(now_at[0])


LOOK: dict[str, Any] = {"rates": model_rates, "shares": model_shares}


@step
def model_wait(number: int) -> None:
    world.clock.advance(world.script[number].seconds)


def effect(number: int) -> None:
    ends = world.script[number].ends
    if ends == "fail":
        raise ValueError("no reply")
    if ends in CRASHES and world.befalls(number):
        raise Crash


@tool(invalidates=[model_rates])
def model_change_rates(number: int, *, key: IdempotencyKey = IdempotencyKey()) -> None:
    effect(number)


@tool(invalidates=["model_shares"], in_doubt="ask")
def model_change_shares(number: int) -> None:
    effect(number)


CHANGE = {"rates": model_change_rates, "shares": model_change_shares}


@task
def model_agent() -> list[int]:
    seen = []
    for number, op in enumerate(world.script):
        now_at[0] = number
        if op.kind == "read":
            seen.append(LOOK[op.what]())
        elif op.kind == "fresh":
            seen.append(LOOK[op.what].fresh())
        elif op.kind == "wait":
            model_wait(number)
        elif op.kind == "change":
            with suppress(StepFailed):
                CHANGE[op.what](number)
        elif world.befalls(number):
            raise Crash
    return seen


def run(script: list[Op]) -> tuple[list[int], Holdfast]:
    """What the task sees, however often its process ends meanwhile."""
    global world
    world = Outside(script)
    hf = Holdfast(MemoryStore(), clock=world.clock)
    while True:
        try:
            return hf.run(model_agent, id="t"), hf
        except Crash:
            number = max(world.befallen)
            world.clock.advance(script[number].seconds)
        except InDoubt as doubt:
            happened = script[max(world.befallen)].ends == "happened"
            hf.resolve("t", doubt.path, happened=happened)


def predicted(script: list[Op]) -> list[int]:
    """What each read returns."""
    seen: list[int] = []
    known: dict[str, tuple[float, int]] = {}
    clock, asked = 0.0, 0
    for op in script:
        if op.kind in ("read", "fresh"):
            at, number = known.get(op.what, (float("-inf"), 0))
            if op.kind == "read" and clock - at <= TTL_S:
                seen.append(number)
                continue
            asked += 2 if op.ends == "crash" else 1
            seen.append(asked)
        elif op.kind == "change":
            known.pop(op.what, None)
        if op.kind in ("wait", "crash") or op.ends in CRASHES:
            clock += op.seconds
            known = known if op.seconds >= 0 else {}
        is_cut = op.ends == "crash" and op.seconds < 0  # it began before the clock was set back
        if op.kind in ("read", "fresh") and not is_cut:
            known[op.what] = (clock, asked)
    return seen


seconds = st.sampled_from([0, 1, TTL_S / 2, TTL_S, TTL_S + 1, -1, -TTL_S])
ops = st.one_of(
    st.builds(Op, st.just("read"), st.sampled_from(WHAT)),
    st.builds(
        Op, st.sampled_from(["read", "fresh"]), st.sampled_from(WHAT), seconds, st.just("crash")
    ),
    st.builds(Op, st.just("fresh"), st.sampled_from(WHAT)),
    st.builds(Op, st.just("wait"), seconds=seconds),
    st.builds(Op, st.just("crash"), seconds=seconds),
    st.builds(
        Op,
        st.just("change"),
        st.sampled_from(WHAT),
        seconds,
        st.sampled_from(["well", "fail", *CRASHES]),
    ),
)


@settings(max_examples=300 if THOROUGH else 80, deadline=None)
@given(st.lists(ops, max_size=14))
@example([Op("read"), Op("wait", seconds=TTL_S), Op("read"), Op("wait", seconds=1), Op("read")])
def test_each_read_returns_what_the_model_says(script):
    seen, hf = run(script)
    with hf:
        assert seen == predicted(script)
        asked = world.asked
        world.clock.advance(10 * TTL_S)
        assert hf.run(model_agent, id="t") == seen
        assert world.asked == asked
        calls = hf.task("t").state.calls
        for event in hf.task("t").events():
            assert not isinstance(event, Reused) or calls[event.of].of == ""


def test_the_model_finds_a_build_that_trusts_what_it_has_seen(monkeypatch):
    trusting: Callable[..., bool] = lambda seen, state, ttl_s, now: True  # noqa: E731
    for script in (
        [Op("read"), Op("wait", seconds=TTL_S + 1), Op("read")],
        [Op("read"), Op("change", ends="fail"), Op("read")],
        [Op("read"), Op("crash", seconds=-1), Op("read")],
    ):
        assert run(script)[0] == predicted(script) == [1, 2]
        with monkeypatch.context() as patched:
            patched.setattr(reads, "is_usable", trusting)
            patched.setattr("holdfast.core.fold.waits.clock_set_back", lambda state, seq: None)
            assert run(script)[0] == [1, 1]


def test_the_clock_of_the_model_is_that_of_the_log():
    assert run([Op("wait", seconds=5)])[0] == []
    assert world.clock.now - Clock().now == timedelta(seconds=5)
