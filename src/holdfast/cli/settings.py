"""The options that a command was given, and the commands to copy that carry them on.

`holdfast.api.settings` has the settings behind the options.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from holdfast.api.settings import Settings, code_of
from holdfast.cli.text import clock
from holdfast.core.spec import SCRIPT, SCRIPT_STEP
from holdfast.core.state import State
from holdfast.engines.routing import driven_by
from holdfast.errors import BadInput, InDoubt, TaskFailed, TaskPaused, TaskStuck, Unanswered


class Given(Settings):
    """The options of a command, before or after its name."""

    debug: bool = False
    json: bool = False


def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option's value where every part of a command finds it."""
    # The same option may stand before and after the command's name; the later one counts.
    if value:
        setattr(ctx.ensure_object(Given), str(param.name), value)


# Next steps: commands to copy, and errors that name them.
#
# A printed command must do what it says when it is pasted into the same shell: it carries the store
# and the code that the one before it was given, and quotes whatever an id may hold.

APPROVAL = "approve-"
"""How the id of a question begins that asks whether a call may be made."""


_MISSIONS = ("mission", "mission_plan", "mission_item")
_DRIVE = ("worker", "resume", "retry")
_ENGINE = ("engine", "address", "namespace", "queue", "tls", "admin", "listen")


def our_command(
    given: Given, command: str, *words: str, options: Sequence[str] = (), code: bool = False
) -> str:
    """A command of ours to copy into a shell. `code` if it needs that of the task.

    >>> our_command(Given(app=("agents",)), "resume", "trip-42", code=True)
    'holdfast resume trip-42 --app agents'
    >>> our_command(Given(url="my state"), "show", "-x; rm")
    "holdfast show --url 'my state' -- '-x; rm'"
    """
    more = [*options, *(_app(given) if code else ())]
    for name in ("url", "key_file", "sign_key_file", *(_ENGINE if command in _DRIVE else ())):
        if value := getattr(given, name):
            more += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
    dashed = any(word.startswith("-") for word in words)
    return shlex.join(
        ["holdfast", command, *((*more, "--", *words) if dashed else (*words, *more))]
    )


def resume_command(given: Given, state: State, command: str = "resume") -> str:
    """The command that resumes or retries a task. Missions and scripts have no code to name.

    >>> resume_command(Given(), State(id="tidy", task="mission"))
    "holdfast next --mission tidy --agent 'COMMAND …'"
    >>> resume_command(Given(), State(id="nightly", task=SCRIPT))
    'run the script again, with HOLDFAST_TASK=nightly'
    """
    whole = state.parent or state.id
    if state.task in _MISSIONS:
        options = ("--mission", whole, "--agent", "COMMAND …")
        again = ("--retry",) if command == "retry" else ()
        return our_command(given, "next", options=(*options, *again))
    if state.task in (SCRIPT, SCRIPT_STEP):
        return f"run the script again, with HOLDFAST_TASK={shlex.quote(whole)}"
    return our_command(given, command, state.id, code=True)


def go_on_hint(given: Given, state: State) -> str:
    """How a task goes on that was told what it waited for.

    >>> go_on_hint(Given(app=("agents",)), State(id="trip-42"))
    'To go on: holdfast resume trip-42 --app agents'
    >>> go_on_hint(Given(), State(id="trip-42", driver="temporal"))
    'A worker of temporal goes on with it.'
    """
    if engine := driven_by(state):
        return f"A worker of {engine} goes on with it."
    return f"To go on: {resume_command(given, state)}"


def resolve_commands(given: Given, task: str, path: str, type: str = "") -> tuple[str, str]:
    """The two that settle a call in doubt: that it happened, that it did not."""
    happened: tuple[str, ...] = ("--happened", "--result", "JSON")
    if (
        type == SCRIPT_STEP
    ):  # a command of a script: its result is its exit code, and no code checks it
        happened = ("--happened", "--unchecked", "--result", '{"exit_code": 0}')
    return (
        our_command(given, "resolve", task, path, options=happened, code=type != SCRIPT_STEP),
        our_command(given, "resolve", task, path, options=("--did-not-happen",)),
    )


def answers(given: Given, task: str, question: str, approval: bool) -> tuple[str, ...]:
    """How to answer a question; an approval is a yes or a no.

    >>> answers(Given(), "trip-42", "approve-6", True)[0]
    'to approve it:  holdfast answer trip-42 approve-6 true'
    """
    if not approval:
        return (f"answer it:  {our_command(given, 'answer', task, question, 'ANSWER')}",)
    return (
        f"to approve it:  {our_command(given, 'answer', task, question, 'true')}",
        f"to refuse it:   {our_command(given, 'answer', task, question, 'false')}",
    )


def told(given: Given, error: Exception) -> str:
    """An error in words, with commands that fit this shell where the library names some."""
    match error:
        case TaskFailed():
            retry = our_command(given, "retry", error.task_id, code=True)
            return (
                f"task {error.task_id!r} failed: {error.failure.summary()}\n"
                f"Mend the cause, then try it again (recorded steps are kept):  {retry}"
            )
        case InDoubt():
            happened, did_not = resolve_commands(given, error.task_id, error.path)
            return (
                f"task {error.task_id!r} waits for a person: call {error.path}, {error.name}, "
                f"is in doubt ({error.why}). Look for its key in the outside system: {error.key}\n"
                f"it happened:        {happened}\n"
                f"it did not happen:  {did_not}"
            )
        case Unanswered():
            by = f", by {clock(error.until)}" if error.until else ""
            asks = f"task {error.task_id!r} asks ({error.expects}{by}): {error.question}"
            approval = error.id.startswith(APPROVAL)
            why = (f"the last answer did not fit: {error.refused}",) if error.refused else ()
            return "\n".join((asks, *why, *answers(given, error.task_id, error.id, approval)))
        case TaskPaused() | TaskStuck():
            paused = str(error).partition(". To let it go on:")[0].partition(", then let it")[0]
            return (
                f"{paused}\n"
                f"let it go on here:    {our_command(given, 'resume', error.task_id, code=True)}\n"
                f"leave it to a worker: "
                f"{our_command(given, 'resume', error.task_id, options=('--worker',))}"
            )
    return str(error)


def _app(given: Given) -> list[str]:
    if given.app:
        return [word for module in given.app for word in ("--app", module)]
    try:
        known = code_of("app", given, os.environ, Path.cwd()).names
    except BadInput:
        known = ()
    return [] if known else ["--app", "MODULE"]
