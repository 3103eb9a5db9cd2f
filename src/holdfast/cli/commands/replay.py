"""`holdfast replay`: run the code of tasks over their logs, with no effect, and compare."""

from __future__ import annotations

import asyncio
import os
import pdb
import sys
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import redirect_stdout
from datetime import datetime
from types import CoroutineType, FrameType
from typing import Any

import click
import msgspec
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.arguments import when
from holdfast.cli.commands.check import replay_all
from holdfast.cli.exits import Exit
from holdfast.cli.opening import load_app, must_be_there, opened
from holdfast.cli.options import (
    maybe_task_argument,
    store_command,
    values,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.history.replay import REAL, Replayed
from holdfast.history.replay.recorded import is_inside
from holdfast.views.task import TaskView

_MOST_SHOWN = 5


@click.command(short_help="Run a task's code over its log, with no effect, and compare.")
@maybe_task_argument
@click.option("--from", "start", metavar="STEP", help="Begin before this step, as it was then.")
@click.option("--to", metavar="STEP", help="Stop at this call, before it is made.")
@click.option("--pdb", "debugs", is_flag=True, help="Open a debugger there, in the task's code.")
@click.option(
    "--stub",
    "stubs",
    metavar="NAME=JSON",
    multiple=True,
    callback=values,
    help="What a step or tool returns, instead of what is recorded; may be repeated.",
)
@click.option(
    "--real",
    metavar="NAME",
    multiple=True,
    help="A step or tool that is really called; may be repeated.",
)
@click.option(
    "--all", "everything", is_flag=True, help="All tasks that match, one after the other."
)
@click.option("--type", "kind", metavar="NAME", help="With --all: only runs of this function.")
@click.option(
    "--since", metavar="WHEN", callback=when, help="With --all: only tasks made since: 7d, a date."
)
@store_command("app", "redact", "secrets")
def replay(
    given: Given,
    task: str | None,
    start: str | None,
    to: str | None,
    debugs: bool,
    stubs: dict[str, Any],
    real: tuple[str, ...],
    everything: bool,
    kind: str | None,
    since: datetime | None,
    as_json: bool,
) -> Exit:
    """Run the code of --app over the log of a task, with no effect, and say whether it does the
    same.

    Recorded calls answer from the log: no step or tool is called, nobody waits or is asked, and
    nothing is written. Only the code between the calls runs, as it does on every resume. A call
    that is not recorded stops it, with its name and arguments, unless --stub or --real says who
    answers. The result is compared with the recorded one, and so is what the task knew before and
    after each call.

    Replay changes nothing. To go on with a task: `holdfast resume`. To go another way from one of
    its steps, for real and in a new task: `holdfast fork`.

    With --pdb, a debugger opens where the task's code makes the call --to, or else the call that
    failed, with its variables: c goes on with the replay, q ends it. It stops in no library. With
    --all, what changed is listed, each with its first divergence. A task that is at work is
    replayed as far as its log goes.

    The exit code is 7 if a task does something else than its log holds, or its code is missing;
    with --all, else 4 if a log can't be read.

    \b
    Examples:
      holdfast replay trip-42 --app agents
      holdfast replay trip-42 --to 6 --pdb
      holdfast replay trip-42 --from 4 --stub 'ask_model="Rome"'
      holdfast replay --all --type plan_trip --since 7d --json
    """
    answers = stubs | dict.fromkeys(real, REAL)
    _must_make_sense(task, to, debugs, everything, kind, since, start, answers, as_json)
    load_app(given)
    with opened(given) as hf:
        if task is None:
            return replay_all(hf, kind, since, as_json)
        must_be_there(hf.store, task)
        if debugs:
            to = to or _failed_call(hf.task(task))
            return _debugged(hf, task, start=start, to=to, stubs=answers)
        # The output of the code between the calls is not ours.
        with redirect_stdout(sys.stderr):
            found = hf.replay(task, start=start, to=to, stubs=answers)
    if as_json:
        print_json(told(found))
    else:
        _print(found)
    return Exit.OK if found.same else Exit.CODE


def _must_make_sense(
    task: str | None,
    to: str | None,
    debugs: bool,
    everything: bool,
    kind: str | None,
    since: datetime | None,
    start: str | None,
    answers: dict[str, Any],
    as_json: bool,
) -> None:
    if everything == (task is not None):
        raise click.UsageError("name a task, or say --all for those that match")
    if everything and (to or start or debugs or answers):
        raise click.UsageError("--from, --to, --pdb, --stub and --real are for one task")
    if not everything and (kind or since):
        raise click.UsageError("--type and --since go with --all")
    if debugs and as_json:
        raise click.UsageError("--pdb is for people, and --json for programs: leave one out")


def _failed_call(view: TaskView) -> str:
    """The call that made a task fail, or its last one if its own code did."""
    calls = [call for call in view.calls if not is_inside(call.path, view.state.calls)]
    made = [call for call in calls if call.kind in ("step", "tool", "question", "sleep", "child")]
    failed = [call for call in made if call.status == "failed"]
    if not failed and view.status != "failed":
        raise click.UsageError("nothing failed, so --pdb needs a call to stop at: --to STEP")
    if not made:
        raise click.UsageError("it failed before its first call: there is nothing to stop at")
    return (failed or made)[-1].path


def _debugged(hf: Holdfast, task: str, **wanted: Any) -> Exit:
    debugging = Debugging()
    found = hf.replay(task, **wanted, on_reached=debugging)
    if debugging.was_left and not found.same:
        print_lines(console(), f"{plain(task)}  left in the debugger")
        return Exit.OK
    _print(found)
    return Exit.OK if found.same or debugging.was_left else Exit.CODE


def told(found: Replayed) -> dict[str, Any]:
    """The outcome of a replay, for programs."""
    return {"same": found.same, **msgspec.to_builtins(found)}


def _print(found: Replayed) -> None:
    out = console()
    style = "green" if found.same else "bold red"
    print_lines(out, Text.assemble((plain(found.id), "bold"), "  ", (_headline(found), style)))
    for name, fact in _facts(found):
        print_lines(out, Text.assemble((f"  {name:14}", "dim"), plain(fact)))
    if found.note:
        print_error(f"warning: {found.note}")


def _headline(found: Replayed) -> str:
    if found.divergence is None:
        return plain(found.summary())
    path = found.divergence.path
    return f"diverges at call {plain(path)}" if path else "diverges at its end"


def _facts(found: Replayed) -> list[tuple[str, str]]:
    facts = []
    if found.divergence is not None:
        facts += [
            ("the log holds", found.divergence.recorded),
            ("the code", found.divergence.asked),
        ]
    elif found.stopped_at:
        facts.append(("stopped at", found.stopped_at))
    facts += [("mended since", f"{each}") for each in found.mended]
    answered = f"{count(found.answered, 'call')} from the log"
    if found.stubbed:
        answered += f", {count(len(found.stubbed), 'call')} by stubs"
    if found.real:
        answered += f"; {count(len(found.real), 'call')} really made"
    facts.append(("answered", answered))
    if found.unused:
        names = ", ".join(found.unused)
        facts.append(("never reached", f"{names}: the code made no such call of its own"))
    facts.append(("compared", f"{count(found.snapshots, 'snapshot')}, {_differing(found)}"))
    return facts


def _differing(found: Replayed) -> str:
    if not found.differing:
        return "all the same"
    places = [f"{t.when} {t.path}" if t.path else "at its end" for t in found.differing]
    more = len(places) - _MOST_SHOWN
    shown = ", ".join(places[:_MOST_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return f"{len(places):,} differ: {shown}"


# A debugger at a call of a task that is replayed: in the code that makes the call, as it makes it.
#
# Everything there is real: the frame of the task's function, with its variables. `c` goes on with
# the replay from there, `n` and `s` go on line by line, `q` ends it.


_LIBRARIES = tuple(
    f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
"""Where libraries are. Their frames may stand between the task's code and the call it makes."""


class TaskDebugger(pdb.Pdb):
    """A debugger that stops in the task's own code, and in no library."""

    def __init__(self, frame: FrameType) -> None:
        super().__init__(nosigint=True)
        self._is_library = not _is_theirs(frame)  # then the task's code is in one, too

    def stop_here(self, frame: FrameType) -> bool:
        is_theirs = _is_theirs(frame) or (self._is_library and not _is_ours(frame))
        return is_theirs and bool(super().stop_here(frame))


class Debugging:
    """Opens a debugger in the task's code that makes a call, when it is called there."""

    def __init__(self) -> None:
        self._debugger: pdb.Pdb | None = None

    def __call__(self) -> bool:
        """Debug; whether the replay is to go on."""
        frame = frame_of_the_task(sys._getframe(1))
        self._debugger = TaskDebugger(frame)
        self._debugger.reset()
        self._debugger.interaction(frame, None)
        if self.was_left:
            return False
        if self._debugger.stoplineno != -1 or self._debugger.breaks:  # not just `continue`
            _follow(self._debugger, frame)
        return True

    @property
    def was_left(self) -> bool:
        """Whether the person at it ended it, and with it the replay."""
        return self._debugger is not None and self._debugger.quitting


def frame_of_the_task(frame: FrameType) -> FrameType:
    """The nearest frame of the task's own code.

    A call in a branch may be made by a thread or an asyncio task that has none: then it is the
    code that waits for the branch.
    """
    for wanted in (_is_theirs, lambda frame: not _is_ours(frame)):
        for outer in (_outwards(frame), _waiting_coroutines(), _main_thread()):
            if (found := next(filter(wanted, outer), None)) is not None:
                return found
    return frame


def _is_theirs(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    is_library = file.startswith((*_LIBRARIES, "<frozen "))
    return not is_library and not _is_ours(frame)


def _is_ours(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] in ("holdfast", "asyncio", "concurrent", "threading")


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """A frame and those around it, up to where the task's function was called."""
    while frame is not None:
        if _module(frame).startswith("holdfast.engines") and frame.f_code.co_name == "run_function":
            return
        if _module(frame) == "asyncio.base_events":
            return
        yield frame
        frame = frame.f_back


def _waiting_coroutines() -> Iterator[FrameType]:
    """The frames of coroutines that wait, each from the inside out."""
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop runs here
        return
    for task in tasks:
        frames: list[FrameType] = []
        waiting: Any = task.get_coro()
        while isinstance(waiting, CoroutineType) and waiting.cr_frame is not None:
            frames.append(waiting.cr_frame)
            waiting = waiting.cr_await
        yield from reversed(frames)


def _main_thread() -> Iterator[FrameType]:
    return _outwards(sys._current_frames().get(threading.main_thread().ident or 0))


def _follow(debugger: pdb.Pdb, frame: FrameType) -> None:
    """Let the debugger stop where it was told to: it is told of each line from here on."""
    outer: FrameType | None = frame
    while outer is not None:
        outer.f_trace = debugger.trace_dispatch
        debugger.botframe = outer
        outer = outer.f_back
    sys.settrace(debugger.trace_dispatch)
