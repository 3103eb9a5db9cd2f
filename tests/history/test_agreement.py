"""Fold, snapshot, diff and rewind agree with each other, whatever a task did."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import (
    BadInput,
    Holdfast,
    Retry,
    StepFailed,
    TaskFailed,
    checkpoint,
    current,
    decide,
    gather,
    note,
    restore,
    step,
    task,
    tool,
)
from holdfast.core.fold import fold
from holdfast.history.differences import apply, diff, inverse
from holdfast.history.snapshots import Snapshot
from holdfast.log.states import load
from holdfast.workspace import files

pytestmark = pytest.mark.holdfast("memory://", "{tmp_path}/w", "sqlite:///{tmp_path}/w.db")


@step
def agree_step(value: Any) -> Any:
    return value


@tool
def agree_tool(value: Any) -> Any:
    return [value]


@step(retry=Retry(attempts=2, delay_s=0.0))
def agree_fails(value: Any) -> Any:
    raise ValueError(f"no {value!r}")


@step
def agree_nested(value: Any) -> Any:
    note("inside", value)
    return agree_tool(agree_step(value))


def act(op: tuple[str, Any], seen: list[Any]) -> None:
    kind, value = op
    if kind == "step":
        seen.append(agree_step(value))
    elif kind == "tool":
        seen.append(agree_tool(value))
    elif kind == "nested":
        seen.append(agree_nested(value))
    elif kind == "fails":
        try:
            agree_fails(value)
        except StepFailed as error:
            seen.append(str(error))
    elif kind == "note":
        note(f"note {len(seen)}", value)
    elif kind == "decide":
        decide("way", value, options=[value, None], because="so")
    elif kind == "plan":
        current().plan([str(value), "then"])
        current().mark("1", "done")
    elif kind == "file":
        files.write(f"{len(seen) % 2}.txt", repr(value))
    elif kind == "gather":
        seen.append(gather(lambda: agree_step(value), lambda: agree_nested(value)))


@task
def agree_plain(ops: list[tuple[str, Any]], fails: bool) -> list[Any]:
    seen: list[Any] = []
    for op in ops:
        act(op, seen)
    if fails:
        raise RuntimeError("the end")
    return seen


@task
def agree_loop(ops: list[tuple[str, Any]], fails: bool) -> list[Any]:
    seen: list[Any] = restore([])
    while len(seen) < len(ops):
        act(ops[len(seen)], [])
        seen = checkpoint([*seen, ops[len(seen)][1]])
    if fails:
        raise RuntimeError("the end")
    return seen


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=2),
    max_leaves=5,
)
kinds = st.sampled_from(
    ["step", "tool", "nested", "fails", "note", "decide", "plan", "file", "gather"]
)
programs = st.lists(st.tuples(kinds, values), max_size=6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs, st.booleans(), st.sampled_from([agree_plain, agree_loop]), st.data())
def test_fold_snapshot_diff_and_rewind_agree(program, fails, body, data):
    with Holdfast("memory://") as hf:
        with suppress(TaskFailed):
            hf.run(body, program, fails, id="t")
        view = hf.task("t")
        events = list(view.events())
        snapshots = {seq: view.at(seq=seq) for seq in range(1, len(events) + 1)}
        for seq, snapshot in snapshots.items():
            folded = fold(events[:seq])
            assert snapshot.view.state == folded, "a snapshot is the fold of the events before it"
        one, other = (snapshots[data.draw(st.sampled_from(list(snapshots)))] for _ in range(2))
        made = diff(one.content, other.content)
        assert apply(made, one.content) == other.content
        assert apply(inverse(made), other.content) == one.content
        assert bool(made) == (one.to_json() != other.to_json())

        went_back = data.draw(st.sampled_from(list(snapshots)))
        try:
            hf.rewind("t", seq=went_back, effects="live")
        except BadInput as error:
            assert "in the middle of" in str(error)
            assert hf.task("t").seq == view.seq, "and nothing was written"
            return
        assert _now(hf).content == snapshots[went_back].content
        hf.rewind("t", seq=view.seq)
        assert _now(hf).content == snapshots[view.seq].content, "a rewind can be rewound"
        hf.rewind("t", seq=went_back, effects="live")
        if view.at(seq=went_back).content["ended"] == "":
            with suppress(TaskFailed):
                hf.resume("t")
            again, ended = _now(hf).content, snapshots[view.seq].content
            assert again | {"calls": 0} == ended | {"calls": 0}, "it comes to the same end"
            assert again["calls"].keys() == ended["calls"].keys()
        assert hf.verify().sound
        assert fold(list(hf.task("t").events())) == load(hf.store, "t")


def _now(hf: Holdfast) -> Snapshot:
    view = hf.task("t")
    return view.at(seq=view.seq)
