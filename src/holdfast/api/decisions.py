"""`decide`: what an agent chose at a branch point, from what, and why."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from msgspec import UNSET, Raw

from holdfast.codec import shape_of_value
from holdfast.core.events import Decided
from holdfast.core.scope import inside
from holdfast.core.state import State
from holdfast.core.words import must_be_texts
from holdfast.engines.execution import must_have_restored
from holdfast.engines.run import Run, plain, record
from holdfast.errors import BadInput, CodeChanged, Undecodable
from holdfast.log.states import load

T = TypeVar("T")


def decide(
    name: str, choice: T, *, options: Any = UNSET, because: str = "", supersedes: str = ""
) -> T:
    """Record what was chosen at a branch point, from what, and why; returns the choice.

    On a replay the recorded choice is returned, so a choice that a model or a person made stays.
    A decision that takes the place of an earlier one says so: `supersedes` is its name (the newest
    of that name counts) or its path. `holdfast why` prints the chain.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def pick() -> str:
    ...     return decide("room", "attic", options=["attic", "cellar"], because="has a window")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(pick, id="pick-1")
    ...     hf.task("pick-1").decisions[0].because
    'has a window'
    """
    must_be_texts("decide()", name=name, because=because, supersedes=supersedes)
    scope = inside("decide()")
    run: Run = scope.run
    run.must_go_on_in(scope)
    path = scope.named_path(name, "?")
    must_have_restored(run, path, f"decides {name!r}")
    shape = shape_of_value(choice)
    known = run.log.state.calls.get(path)
    if known is None:
        run.must_write(path)
        raw, choice = shape.settle(choice)
        event = Decided(
            path=path,
            name=name,
            choice=run.log.stow(raw),
            options=UNSET
            if options is UNSET
            else run.log.stow(run.log.redact.data(plain(options))),
            because=because,
            supersedes=_path_of(run, supersedes) if supersedes else "",
        )
        record(scope, event)
        return choice
    try:
        return cast("T", shape.load(run.log.fetch(cast("Raw", known.result))))
    except Undecodable as error:
        asked = f"chooses something of another type ({error})"
        raise run.halted(CodeChanged(run.task_id, path, f"the decision {name!r}", asked)) from None


def _path_of(run: Run, wanted: str) -> str:
    """The path of the decision that is superseded."""
    log = run.log
    found = _newest(log.state, wanted)
    if not found and log.state.checkpoints:  # what was decided before is not in the state
        found = _newest(load(log.store, run.task_id, missing_ok=True), wanted)
    if found:
        return found
    # It halts the run: a function that caught this might find the decision on a replay, when the
    # log knows what comes later.
    run.halt(
        BadInput(
            f"task {run.task_id!r}: decide(supersedes={wanted!a:.60}): the task has made no "
            f"decision of that name or path. Name one that it has made before this one"
        )
    )


def _newest(state: State, wanted: str) -> str:
    names = (d.path for d in reversed(state.decisions) if wanted in (d.path, d.name))
    return next(names, "")
