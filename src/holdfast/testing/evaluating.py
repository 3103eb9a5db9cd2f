"""Evaluations: recorded runs, run again with the prompts and models of today.

A case is a recorded task. It is run anew, from its beginning, with the code that is loaded now:
models are really asked, and everything else is answered by the log. A tool that is called as it
was called then returns what it returned then; one that is called otherwise is not called at all,
and ends the case. Questions have the answers that people gave. It all happens in memory: the store
of the case is not changed.

`replay_recorded` only runs the code over the log and asks no model. `holdfast testcase` writes
calls of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from holdfast.api.app import Holdfast
from holdfast.core.state import Call, scope_of
from holdfast.core.usage import Spent, used_in
from holdfast.core.words import must_be_texts
from holdfast.errors import BadInput, HoldfastError, Unanswered
from holdfast.history.alignment import Made, in_tree
from holdfast.history.comparison import figures
from holdfast.history.replay import Replayed
from holdfast.views.task import TaskView

Score = bool | float
Check = Callable[["EvaluatedRun"], Score]

_MOST_SHOWN = 60
_MOST_ANSWERS = 1000


class EvaluatedRun(Struct, frozen=True):
    """A case that was run anew, as a check sees it."""

    recorded: TaskView
    """The task as it was recorded."""
    now: TaskView
    """The task as it went this time."""
    was: Any = None
    """The recorded result, as plain data."""
    result: Any = None
    """The result of this time, as plain data; None if there is none."""


class EvaluatedCase(Struct, frozen=True):
    """How a case went."""

    case: str
    outcome: str
    """The status of the task at the end of the run."""
    recorded: str
    """The status that the task had."""
    result: Any = None
    was: Any = None
    problem: str = ""
    """Why the task did not end: it failed, or called what the log can't answer."""
    divergence: str = ""
    """Where it first did something else than was recorded; '' if nowhere."""
    scores: dict[str, Score] = {}
    """The verdict of each check."""
    notes: dict[str, str] = {}
    """Why a check failed, where it says so."""
    spent: Spent = Spent()
    spent_then: Spent = Spent()

    @property
    def passed(self) -> bool:
        """Whether it ended as recorded, and no check said False."""
        return self.outcome == self.recorded and all(s is not False for s in self.scores.values())


class Evaluation(Struct, frozen=True):
    """How a set of cases went."""

    cases: tuple[EvaluatedCase, ...]

    @property
    def passed(self) -> bool:
        """Whether all cases passed."""
        return all(case.passed for case in self.cases)

    @property
    def spent(self) -> Spent:
        """The usage of all of them this time."""
        return sum((case.spent for case in self.cases), Spent())

    @property
    def spent_then(self) -> Spent:
        """The usage of all of them when they were recorded."""
        return sum((case.spent_then for case in self.cases), Spent())

    def mean(self, check: str) -> float:
        """The mean of what a check said, where True is 1 and False is 0.

        >>> case = EvaluatedCase("a", "completed", "completed", scores={"short": True})
        >>> Evaluation((case,)).mean("short")
        1.0
        """
        found = [float(case.scores[check]) for case in self.cases if check in case.scores]
        return sum(found) / len(found) if found else 0.0

    def rows(self) -> tuple[list[str], list[list[str]]]:
        """The table: its columns, and a row for each case, with a last one for all."""
        checks = list(dict.fromkeys(name for case in self.cases for name in case.scores))
        columns = ["case", "outcome", *checks, "cost", "was", "first divergence"]
        rows = [
            [
                case.case,
                case.outcome,
                *(_score(case.scores.get(name)) for name in checks),
                _cost(case.spent),
                _cost(case.spent_then),
                case.problem or case.divergence or "none",
            ]
            for case in self.cases
        ]
        passed = sum(case.passed for case in self.cases)
        total = [f"{passed} of {len(self.cases)} passed", ""]
        total += [f"{self.mean(name):.2f}" for name in checks]
        rows.append([*total, _cost(self.spent), _cost(self.spent_then), ""])
        return columns, rows

    def __str__(self) -> str:
        columns, rows = self.rows()
        table = [columns, *rows]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        )
        return "\n".join(lines)


def evaluate(
    cases: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    checks: Mapping[str, Check] | Iterable[Check] = (),
    hf: Holdfast | None = None,
    stubs: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Mapping[str, Any]] | None = None,
    at_once: int = 4,
    progress: Callable[[EvaluatedCase], None] = lambda case: None,
    **options: Any,
) -> Evaluation:
    """Run recorded tasks anew with the code that is loaded now, and compare.

    A case is an archive (`holdfast testcase` makes one, or `hf.archive_to`), whose tasks are all
    run; or, with `hf`, the id of a task in its store. `checks` are functions of an `EvaluatedRun`
    that say whether it is well (True or False), or how well (a number); one that raises
    `AssertionError` says False. `stubs` answer instead of the log, and `arguments` change those of
    steps, both as in `hf.fork`. `options` are those of `Holdfast`, such as `redact`.

    >>> from holdfast import Holdfast, step, task
    >>> tone = ["Hello"]
    >>> @step
    ... def greeting() -> str:
    ...     return tone[0]
    >>> @task
    ... def greets(name: str) -> str:
    ...     return f"{greeting()}, {name}"
    >>> def kind(run: EvaluatedRun) -> bool:
    ...     return run.result.startswith("Dear")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(greets, "Ada", id="greets-1")
    ...     tone[0] = "Dear"
    ...     print(evaluate("greets-1", hf=hf, checks=[kind]))
    case           outcome    kind  cost  was  first divergence
    greets-1       completed  yes   0     0    step 1: greeting returned "Dear", and "Hello" then
    1 of 1 passed             1.00  0     0
    """
    named = _named(checks)
    given = [cases] if isinstance(cases, str | os.PathLike) else list(cases)
    if not given:
        raise BadInput("evaluate() takes cases: archives, or ids of tasks with hf=…")
    changes = {"stubs": dict(stubs or {}), "arguments": dict(arguments or {})}
    loads: list[tuple[Callable[[Holdfast], object], str]] = []
    for case in given:
        loads += _loads(case, hf, options)

    def run(load: Callable[[Holdfast], object], id: str) -> EvaluatedCase:
        with Holdfast("memory://", **options) as aside:
            load(aside)
            done = _evaluated(aside, id, named, changes)
        progress(done)
        return done

    with ThreadPoolExecutor(max_workers=at_once) as pool:
        return Evaluation(tuple(pool.map(lambda each: run(*each), loads)))


def _named(checks: Mapping[str, Check] | Iterable[Check]) -> dict[str, Check]:
    if not isinstance(checks, Mapping):
        checks = {getattr(check, "__name__", "check"): check for check in checks}
    for name, check in checks.items():
        must_be_texts("evaluate()", check=name)
        if not callable(check):
            raise BadInput(f"evaluate(): the check {name!r} must be a function, not {check!a:.60}")
    return dict(checks)


def _loads(
    case: str | os.PathLike[str], hf: Holdfast | None, options: Mapping[str, Any]
) -> list[tuple[Callable[[Holdfast], object], str]]:
    """How the tasks of a case are brought into a store, and their ids."""
    path = Path(case)
    if path.is_file():
        with Holdfast("memory://", **options) as aside:
            aside.restore_from(path)
            ids = [view.id for view in aside.tasks() if not view.state.parent]
        return [(partial(Holdfast.restore_from, path=path), id) for id in ids]
    if hf is None or not isinstance(case, str):
        raise BadInput(f"there is no archive {str(case)!a:.200} (and no hf=… to find a task in)")
    hf.task(case)  # `TaskNotFound`, if it is none of these
    return [(lambda aside: hf.copy_to(aside, case, paused=True), case)]


def _evaluated(
    aside: Holdfast, id: str, checks: Mapping[str, Check], changes: Mapping[str, Any]
) -> EvaluatedCase:
    recorded, problem = aside.task(id), ""
    fork = aside.fork(id, seq=1, effects="stub", because="an evaluation", **changes).id
    try:
        _drive(aside, fork, recorded)
    except HoldfastError as error:
        problem = str(error).partition("\n")[0]
    now = aside.task(fork)
    run = EvaluatedRun(recorded, now, recorded.result, _renamed(recorded, now, now.result))
    scores, notes = dict[str, Score](), dict[str, str]()
    for name, check in checks.items():
        try:
            scores[name] = _checked(name, check(run))
        except AssertionError as error:
            scores[name], notes[name] = False, str(error)
    before, after = recorded.state, run.now.state
    return EvaluatedCase(
        case=id,
        outcome=after.status,
        recorded=before.status,
        result=run.result,
        was=run.was,
        problem=problem,
        divergence=_divergence(recorded, run.now),
        scores=scores,
        notes=notes,
        spent=figures(after, run.now.value).spent,
        spent_then=figures(before, recorded.value).spent,
    )


def _checked(name: str, score: Any) -> Score:
    if not isinstance(score, bool | int | float):
        raise BadInput(f"the check {name!r} must return True, False or a number, not {score!a:.60}")
    return score if isinstance(score, bool) else float(score)


def _drive(aside: Holdfast, id: str, recorded: TaskView) -> None:
    """Run a task to its end. Questions have the answers that were given then, in their order."""
    left = [c for c in recorded.calls if c.kind in ("question", "approval")]
    for _ in range(_MOST_ANSWERS):
        try:
            aside.resume(id)
            return
        except Unanswered as asked:
            same = (c for c in left if c.why == asked.question and c.status == "completed")
            found = next(same, None)
            if found is None:
                raise
            left.remove(found)
            aside.answer(id, recorded.value(found.result), question=asked.id, by="the recording")


def _renamed(recorded: TaskView, now: TaskView, value: Any) -> Any:
    """A value of the run as it would be under the names that the task and its session had."""
    if isinstance(value, str):
        for name, was in ((now.state.session, recorded.state.session), (now.id, recorded.id)):
            value = value.replace(name, was) if name else value
        return value
    if isinstance(value, list):
        return [_renamed(recorded, now, each) for each in value]
    if isinstance(value, dict):
        return {key: _renamed(recorded, now, each) for key, each in value.items()}
    return value


# Where two runs part


class _Move(Struct, frozen=True):
    """One call as an evaluation compares it: what a model was asked differs in every run (by the
    name of the session, for one), and what counts is what it said."""

    path: str
    name: str
    asked: Any
    told: Any

    def __str__(self) -> str:
        return f"{self.name}({_short(self.asked)})" if self.asked is not None else self.name


def _divergence(recorded: TaskView, now: TaskView) -> str:
    then, these = _moves(recorded), _moves(now, recorded)
    for before, after in zip(then, these, strict=False):
        if (before.name, before.asked) != (after.name, after.asked):
            return f"step {after.path}: it calls {after}, and {before} then"
        if before.told != after.told:
            return (
                f"step {after.path}: {after.name} returned {_short(after.told)}, and "
                f"{_short(before.told)} then"
            )
    if len(these) > len(then):
        return f"step {these[len(then)].path}: it calls {these[len(then)]}, and ended then"
    if len(these) < len(then):
        return f"it ends, and called {then[len(these)]} then"
    is_same = recorded.result == _renamed(recorded, now, now.result)
    return "" if is_same else "the result is another one"


def _moves(view: TaskView, recorded: TaskView | None = None) -> list[_Move]:
    calls = {call.path: call for call in view.calls}
    tools = {path for path, call in calls.items() if call.kind == "tool"}
    found = []
    # By their places in the tree: which of several branches came first is chance.
    for place in in_tree(Made(path, call.name) for path, call in calls.items()):
        call = calls[place.path]
        if call.kind in ("step", "tool") and scope_of(call.path) not in tools:
            move = _move(view, call)
            if recorded is not None:
                asked, told = (_renamed(recorded, view, each) for each in (move.asked, move.told))
                move = _Move(move.path, move.name, asked, told)
            found.append(move)
    return found


def _move(view: TaskView, call: Call) -> _Move:
    told = view.value(call.result) if call.status == "completed" else call.status
    if call.status == "completed" and used_in(told) is not None:
        return _Move(call.path, call.name, None, _said(told))
    asked = view.value(call.args) if call.kind == "tool" else None
    return _Move(call.path, call.name, asked, told)


def _said(reply: Any) -> Any:
    """The words of a model, without ids, which no two replies share."""
    while isinstance(reply, dict) and "$type" in reply:
        reply = reply.get("of")
    message = reply.get("message", reply) if isinstance(reply, dict) else reply
    content = message.get("content", message) if isinstance(message, dict) else message
    return _without_ids(content)


def _without_ids(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_ids(each)
            for key, each in value.items()
            if key not in ("id", "usage", "extra", "meta", "at") and each not in ("", {}, None)
        }
    return [_without_ids(each) for each in value] if isinstance(value, list) else value


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"


def _score(score: Score | None) -> str:
    if score is None:
        return ""
    return f"{score:.2f}" if not isinstance(score, bool) else "yes" if score else "no"


def _cost(spent: Spent) -> str:
    """The cost of calls; with a question mark, if that of some is not known.

    >>> _cost(Spent(2, cost=0.0312)), _cost(Spent(2, unpriced=2))
    ('0.0312', '?')
    """
    if spent.model_calls and spent.unpriced == spent.model_calls:
        return "?"
    return f"{spent.cost:.4g}" + "?" * bool(spent.unpriced)


def replay_recorded(
    path: str | os.PathLike[str],
    id: str,
    *,
    stubs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Replayed:
    """Replay a task from an archive (`hf.archive_to`), with no network and no effect.

    The code of the task has to be imported first. `stubs` answer instead of the log, as in
    `hf.replay`; `options` are those of `Holdfast`, such as the `redact` that the task ran with.

    >>> import tempfile
    >>> from holdfast import Holdfast, task
    >>> @task
    ... def greets_again(name: str) -> str:
    ...     return f"hello, {name}"
    >>> with tempfile.TemporaryDirectory() as folder, Holdfast("memory://") as hf:
    ...     _ = hf.run(greets_again, "Ada", id="greets-1")
    ...     archived = hf.archive_to(folder)
    ...     replayed = replay_recorded(archived.path, "greets-1")
    >>> replayed.same, replayed.result
    (True, 'hello, Ada')
    """
    with Holdfast("memory://", **options) as hf:
        hf.restore_from(path)
        return hf.replay(id, stubs=stubs)
