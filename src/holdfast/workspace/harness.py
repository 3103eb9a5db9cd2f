"""The harness: looks at where a mission stands, has an agent do one thing, and exits.

A mission is a task whose log has the plan. Each item of it is done in a task of its own, and the
lease of that task is the claim: of any number of harness processes one gets it, and if that one
dies, the next one takes it over. The outcome of an item is marked in the plan afterwards; if a
process dies in between, the next one finds the item's task finished, and marks it.

The agent is a function of the prompt, or a command (see `commands`). Killed half-way it is started
again: a crash costs the one item. So an item has to be safe to do again.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.api.app import Holdfast
from holdfast.api.steps import step, tool
from holdfast.api.tasks import task
from holdfast.core.events import MissionSet, PlanItem, Planned, PlanStatus
from holdfast.core.plan import ready, recorded, revised
from holdfast.core.scope import inside
from holdfast.core.spec import IdempotencyKey, task_spec
from holdfast.core.state import FINISHED
from holdfast.core.words import must_be_texts
from holdfast.engines.local.tasks import TaskOptions
from holdfast.errors import (
    BadInput,
    HoldfastError,
    LeaseLost,
    TaskBusy,
    TaskCancelled,
    TaskFailed,
    TaskPaused,
    TaskWaiting,
)
from holdfast.log.artifacts import opened
from holdfast.log.states import load
from holdfast.log.values import stow
from holdfast.stores.system import host_name
from holdfast.workspace.checklist import find_plan, print_plan
from holdfast.workspace.commands import (
    CommandOutput,
    RanCommand,
    kept_output,
    must_be_there,
    run_command,
)
from holdfast.workspace.edits import MAX_BYTES, take_in, taken
from holdfast.workspace.missions import (
    FOUND,
    MOST_ID,
    Doing,
    candidates,
    decided,
    files_of,
    id_of,
    item_prompt,
    last_try,
    left_of,
    mark,
    mission_text,
    planning_prompt,
    result_of,
    said,
    told_of,
    write,
)
from holdfast.workspace.projecting import project

# The input and the report of the harness: the agent, how to run it, and what came of it.


Agent = str | Callable[[str], Any]
"""A command, or a function that is given the prompt and returns what it has to say."""

What = Literal["planned", "did", "failed", "nothing", "blocked", "done"]
"""The plan was written; an item was done, or failed; others are at work; only failed ones are
left; everything is done."""

BUDGET_TOKENS = 16_000


class Next(Struct, frozen=True):
    """The outcome of one call of `next_item`, and how many items are left.

    >>> Next("did", left=2, item="1", text="sweep").what
    'did'
    """

    what: What
    left: int
    item: str = ""
    text: str = ""
    said: str = ""
    problems: tuple[str, ...] = ()
    """The faults of files that people edited; it goes on by what they said before."""


class Means(Struct, frozen=True):
    """How the agent is run.

    >>> Means("assistant -p", Path("project"), timeout_s=1800).budget_tokens
    16000
    """

    agent: Agent
    folder: Path
    budget_tokens: int = BUDGET_TOKENS
    timeout_s: float | None = None
    beside: tuple[Path, ...] = ()
    """Folders that are not the agent's: where the store is."""
    files: Path | None = None
    """Where the mission's own readable files are, which people may edit."""
    git: bool = False
    """Whether what an item changed is committed to the repository of the folder."""


class AgentFailed(HoldfastError):
    """An agent ended with an error, or said nothing that can be used.

    >>> issubclass(AgentFailed, HoldfastError)
    True
    """


_NO_KEY = IdempotencyKey()
_MOST_RESULTS = 20
"""Of so many items the one who does the next is told what came of them."""


class _Work(Struct, frozen=True):
    hf: Holdfast
    means: Means


_work: ContextVar[_Work | None] = ContextVar("holdfast_harness", default=None)


def _at_work() -> _Work:
    work = _work.get()
    if work is None:
        raise HoldfastError("a mission is worked off by `holdfast next`: that knows the agent")
    return work


# The tasks


@task(name="mission")
def mission(text: str) -> str:
    """A mission: somebody wants it done. Its plan is worked off from outside, an item at a time."""
    run = inside("a mission").run
    plan = run.log.state.plan
    if not plan or left_of(plan):
        why = f"mission {run.task_id!r} is worked off by `holdfast next`"
        run.park("", TaskWaiting(run.task_id, why))
    return f"{len(plan)} items"


@task(name="mission_plan")
def mission_plan(mission: str, number: int) -> tuple[PlanItem, ...]:
    """The first job of a mission: to write its plan."""
    ran = call_agent(prompt_for_plan(mission), command_of(_at_work().means))
    _must_have_ended_well(ran)
    items = find_plan(_whole_text(ran.stdout))
    if not items:
        raise AgentFailed(f"it printed no plan, which is a Markdown checklist: {said(ran)!r}")
    return revised((), items)


@task(name="mission_item")
def mission_item(mission: str, item: str, text: str, number: int) -> RanCommand:
    """One item of a mission's plan."""
    say_who_does(mission, item)
    ran = call_agent(prompt_for_item(mission, item), command_of(_at_work().means))
    _must_have_ended_well(ran)
    return ran


def _whole_text(output: CommandOutput) -> str:
    """All that was printed, up to the length of a plan that would be taken from a file."""
    if output.whole is None:
        return output.text
    with opened(_at_work().hf.store, output.whole) as file:
        file.seek(max(0, output.whole.size_bytes - MAX_BYTES))
        return file.read(MAX_BYTES).decode("utf-8", "replace")


def _must_have_ended_well(ran: RanCommand) -> None:
    if ran.timed_out:
        raise AgentFailed(f"it did not end in time, and was stopped after {ran.seconds:g} s")
    if ran.exit_code:
        raise AgentFailed(
            f"it ended with exit code {ran.exit_code}: {said(ran) or 'it said nothing'}"
        )


@step(name="say_who_does")
def say_who_does(mission: str, item: str) -> None:
    """Mark the item as one that is being done, now that it is ours."""
    mark(_at_work().hf, mission, item, "doing", f"process {os.getpid()} of {host_name()}")


@step(name="prompt_for_plan")
def prompt_for_plan(mission: str) -> str:
    """The prompt of the agent that writes the plan."""
    work = _at_work()
    return planning_prompt(mission_text(work.hf.task(mission)), work.means.budget_tokens)


@step(name="prompt_for_item")
def prompt_for_item(mission: str, item: str) -> str:
    """The prompt of the agent that does an item: composed of where the mission stands now."""
    work = _at_work()
    view = work.hf.task(mission)
    plan = view.state.plan
    at_hand = next((each for each in plan if each.id == item), None)
    if at_hand is None:
        raise AgentFailed(f"mission {mission!r} has no item {item!r} any more")
    told = told_of(plan, at_hand, _MOST_RESULTS)
    done = [(each, result_of(work.hf, mission, each)) for each in told]
    doing = Doing(
        mission=mission_text(view),
        plan=print_plan(plan),
        item=f"{at_hand.id}. {at_hand.text}",
        folder=str(work.means.files or ""),
        done=[(f"{each.id}. {each.text}", ran.stdout.text if ran else "") for each, ran in done],
        decisions=[f"{c.name}: {c.choice} ({c.because})" for c in view.decisions],
        files=files_of(view, [ran for _, ran in done if ran is not None]),
    )
    return item_prompt(doing, work.means.budget_tokens)


@tool(name="agent", in_doubt="retry")
def call_agent(prompt: str, command: str, *, key: IdempotencyKey = _NO_KEY) -> RanCommand:
    """Have the agent do what the prompt says. An agent that was killed is started again."""
    means = _at_work().means
    if isinstance(means.agent, str):
        # For `holdfast once` in an agent that is a script: the item's own task is ours to drive.
        script = f"{inside('an agent').run.task_id}.script"
        environment = {"HOLDFAST_TASK": script, "HOLDFAST_IDEMPOTENCY_KEY": str(key)}
        return run_command(
            command, prompt, means.folder, timeout_s=means.timeout_s, environment=environment,
            beside=means.beside,
        )  # fmt: skip
    began = time.monotonic()
    made = means.agent(prompt)
    text = "" if made is None else str(made)
    printed = kept_output(io.BytesIO(text.encode("utf-8", "replace")), "stdout")
    return RanCommand(0, round(time.monotonic() - began, 3), printed)


def command_of(means: Means) -> str:
    """The agent's command; empty if it is a function."""
    return means.agent if isinstance(means.agent, str) else ""


# Doing


def init(hf: Holdfast, text: str, *, id: str | None = None, user: str = "") -> str:
    """Make a mission; returns its id. Its first job, for `next_item`, is to write the plan.

    >>> with Holdfast("memory://") as hf:
    ...     init(hf, "Tidy up the attic", id="attic")
    'attic'
    """
    must_be_texts("a mission", text=text)
    if not text.strip():
        raise BadInput("a mission needs words: say what is to be done")
    if (size := len(text.encode())) > MAX_BYTES:
        raise BadInput(
            f"a mission of {size:,} bytes is too long: say it in {MAX_BYTES:,}, and put the rest "
            f"into files that it names"
        )
    if id is not None and len(id) > MOST_ID:
        raise BadInput(f"the id of a mission has at most {MOST_ID} characters, not {len(id):,}")
    made = hf.start(mission, text, id=id, user=user).id
    words = stow(hf.store, msgspec.json.encode(text))
    write(hf, made, lambda state: MissionSet(text=words) if state.mission is UNSET else None)
    with suppress(TaskWaiting, TaskBusy):
        hf.resume(made)  # it is released at once, so that no worker looks after it
    return made


def next_item(hf: Holdfast, id: str, means: Means, *, retry: bool = False) -> Next:
    """Do the next thing that a mission needs, if there is any, and say what is left.

    With `retry`, items that failed are tried again.

    >>> from pathlib import Path
    >>> with Holdfast("memory://") as hf:
    ...     id = init(hf, "Tidy up the attic")
    ...     next_item(hf, id, Means(lambda prompt: "- [ ] 1. sweep", Path("."))).what
    'planned'
    """
    view = hf.task(id)
    if view.type != "mission":
        raise BadInput(f"task {id!r} is no mission but {view.type!r}: make one with holdfast init")
    if view.status == "completed":
        return Next("done", 0)
    if view.status == "paused":
        raise TaskPaused(id, view.state.because)
    if view.status == "cancelled":
        raise TaskCancelled(id, view.state.because)
    if isinstance(means.agent, str):
        must_be_there(means.agent, means.folder)
    changes = take_in(hf, id, means.files) if means.files is not None else []
    token = _work.set(_Work(hf, means))
    try:
        plan = hf.task(id).state.plan
        came = _do_one(hf, id, plan, retry) if plan else _write_plan(hf, id)
    finally:
        _work.reset(token)
    if means.files is not None:
        project(hf.store, id, means.files, taken=taken(changes))
    return replace(came, problems=tuple(each.problem for each in changes if each.problem))


def _write_plan(hf: Holdfast, id: str) -> Next:
    number = 1
    while load(hf.store, f"{id}.plan.{number}", missing_ok=True).status == "failed":
        number += 1
    try:
        plan = _run(hf, mission_plan, f"{id}.plan.{number}", id, number)
    except (TaskBusy, LeaseLost):
        return Next("nothing", 1)
    except TaskFailed as error:
        return Next("failed", 1, "plan", "write the plan", error.failure.message)
    write(hf, id, lambda state: None if state.plan else Planned(items=recorded(plan), by="agent"))
    return Next("planned", left_of(plan), "plan", "write the plan")


def _do_one(hf: Holdfast, id: str, plan: Sequence[PlanItem], retry: bool) -> Next:
    for item in candidates(plan, retry=retry):
        number, tried = last_try(hf, id, item)
        now = hf.task(id).state.plan if tried.status in FINISHED else plan
        marked: PlanStatus = next((each.status for each in now if each.id == item.id), "skipped")
        deed = decided(marked, tried, retry=retry)
        if deed in FOUND:  # and what waits for it may be begun now
            if deed == "done":
                _commit(hf, id, item, id_of(id, item, number), result_of(hf, id, item))
            why = f"it was found to be {deed}"
            return _do_one(hf, id, mark(hf, id, item.id, FOUND[deed], why), retry)
        if deed == "leave":
            continue
        number += deed == "anew"
        try:
            ran = _run(hf, mission_item, id_of(id, item, number), id, item.id, item.text, number)
        except (TaskBusy, LeaseLost):
            continue
        except TaskFailed as error:
            return _ended(hf, id, item, "failed", error.failure.message)
        _commit(hf, id, item, id_of(id, item, number), ran)
        return _ended(hf, id, item, "done", said(ran))
    return _nothing_done(hf, id)


def _commit(hf: Holdfast, id: str, item: PlanItem, task_id: str, ran: RanCommand | None) -> None:
    """With --git, commit what an item changed, and nothing that others are at work on.

    It comes before the item's mark: an item that is done and not committed, because somebody died
    or the repository was in the middle of a merge, is found by the next one, who commits it.
    """
    from holdfast.workspace.git import commit_workspace, step_message

    if _at_work().means.git and ran is not None and ran.changed:
        calls = load(hf.store, task_id, missing_ok=True).calls.values()
        call = next((call for call in calls if call.kind == "tool"), None)
        path, key = (call.path, call.key) if call is not None else ("", "")
        message = step_message(id, f"{item.id}. {item.text}", path, key)
        commit_workspace(_at_work().means.folder, message, [each.name for each in ran.changed])


def _run(hf: Holdfast, fn: Any, task_id: str, mission: str, *args: Any) -> Any:
    given = TaskOptions(id=task_id, parent=mission, labels={"mission": mission})
    return hf._driving.drive(hf._driving.starting(task_spec(fn), (mission, *args), {}, given))


def _ended(hf: Holdfast, id: str, item: PlanItem, status: PlanStatus, why: str) -> Next:
    plan = mark(hf, id, item.id, status, why)
    _complete(hf, id, plan)
    what: What = "did" if status == "done" else "failed"
    return Next(what, left_of(plan), item.id, item.text, why)


def _nothing_done(hf: Holdfast, id: str) -> Next:
    plan = hf.task(id).state.plan
    _complete(hf, id, plan)
    left = left_of(plan)
    if not left:
        return Next("done", 0)
    if any(item.status == "doing" for item in plan) or ready(plan):
        return Next("nothing", left)
    failed = next((item for item in plan if item.status == "failed"), None)
    return Next("blocked", left, failed.id if failed else "", failed.text if failed else "")


def _complete(hf: Holdfast, id: str, plan: Sequence[PlanItem]) -> None:
    """End a mission whose items are all over."""
    if not left_of(plan):
        with suppress(TaskWaiting, TaskBusy, LeaseLost):
            hf.resume(id)


def loop(
    hf: Holdfast,
    id: str,
    means: Means,
    *,
    most_items: int | None = None,
    most_s: float | None = None,
    retries: int = 0,
    told: Callable[[Next], None] = lambda done: None,
    pause_s: float = 1.0,
) -> Next:
    """`next_item` again and again, until nothing is left or a limit is reached.

    >>> from pathlib import Path
    >>> with Holdfast("memory://") as hf:
    ...     id = init(hf, "Tidy up the attic")
    ...     loop(hf, id, Means(lambda prompt: "- [ ] 1. sweep", Path("."))).what
    'done'
    """
    began, done, failures = time.monotonic(), 0, 0
    while True:
        again = 0 < failures <= retries
        came = next_item(hf, id, means, retry=again)
        told(came)
        failures += came.what == "failed"
        if came.what == "done" or (came.what == "blocked" and not again):
            return came
        if came.what == "failed" and came.item == "plan" and failures > retries:
            return came
        done += came.what in ("did", "failed")
        is_late = most_s is not None and time.monotonic() - began >= most_s
        if is_late or (most_items is not None and done >= most_items):
            return came
        if came.what == "nothing":
            time.sleep(pause_s)
