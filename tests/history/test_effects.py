"""However often a task is rewound, and whatever is undone: in the end each effect stands once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import (
    BadInput,
    Holdfast,
    IdempotencyKey,
    TaskPaused,
    checkpoint,
    note,
    restore,
    start,
    step,
    task,
    tool,
)

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/w.db")

NO_KEY = IdempotencyKey("")
stands: dict[str, int] = {}
"""The outside world: what was made and not undone, by key."""
calls: list[str] = []


def unmake(result: str, *, key: IdempotencyKey) -> None:
    del stands[result]


@tool(undo=unmake)
def effect_make(number: int, *, key: IdempotencyKey = NO_KEY) -> str:
    assert key not in stands, "a key is of one effect"
    calls.append(str(key))
    stands[key] = number
    return str(key)


@step
def effect_inside(number: int) -> str:
    return effect_make(number)


@task
def effect_child(number: int) -> str:
    return effect_make(number)


def act(number: int) -> None:
    if number % 4 == 3:
        start(effect_child, number).result()
    elif number % 4 == 2:
        effect_inside(number)
    else:
        effect_make(number)
    note("made", number)


@task
def effect_plain(numbers: list[int]) -> int:
    for number in numbers:
        act(number)
    return len(numbers)


@task
def effect_loop(numbers: list[int]) -> int:
    done: int = restore(0)
    while done < len(numbers):
        act(numbers[done])
        done = checkpoint(done + 1)
    return done


goings = st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.booleans()), min_size=1, max_size=4)
"""Back to where (as a share of the log), with undo or not, and whether it goes on then."""


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.sampled_from([effect_plain, effect_loop]),
    goings,
)
def test_each_effect_stands_once_in_the_end(numbers, body, going):
    stands.clear(), calls.clear()
    with Holdfast("memory://") as hf:
        hf.run(body, numbers, id="t")
        for share, undo, goes_on in going:
            seq = 1 + int(share * (hf.task("t").seq - 1))
            if any(path.startswith("undo.") for path in hf.snapshot("t", seq=seq).view.state.calls):
                continue  # there it has ended, and knows that what it did was undone
            with suppress(BadInput):
                hf.rewind("t", seq=seq, undo=undo)
            if goes_on:
                hf.resume("t")
        with suppress(TaskPaused):
            hf.resume("t")
        view = hf.task("t")
        assert view.status == "completed"
        assert sorted(stands.values()) == sorted(numbers)
        assert len(set(calls)) == len(calls), "no key was used twice"
        assert hf.verify().sound


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=5),
    st.sampled_from([effect_plain, effect_loop]),
    st.lists(st.floats(0, 1), min_size=1, max_size=3),
    st.sampled_from(["reuse", "stub"]),
)
def test_forks_that_reuse_make_nothing_again(numbers, body, shares, effects):
    stands.clear(), calls.clear()
    with Holdfast("memory://") as hf:
        hf.run(body, numbers, id="t")
        made, of = list(calls), "t"
        for share in shares:  # each a fork of the one before
            seq = 1 + int(share * (hf.task(of).seq - 1))
            with suppress(BadInput):
                fork = hf.fork(of, seq=seq, effects=effects)
                assert hf.resume(fork.id) == len(numbers)
                of = fork.id
        assert calls == made
        assert sorted(stands.values()) == sorted(numbers)
        assert hf.verify().sound
