"""`holdfast replay` and `check`: run the code of tasks over their logs, with no effect."""

from __future__ import annotations

import asyncio
import os
import pdb
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from datetime import datetime
from types import CoroutineType, FrameType
from typing import Any, Literal

import click
import msgspec
from msgspec import Struct
from rich.text import Text

from holdfast.api.app import Holdfast
from holdfast.cli.arguments import when
from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, load_app, must_be_there, opened, read_all
from holdfast.cli.options import (
    maybe_task_argument,
    store_command,
    tasks_argument,
    type_option,
    values,
)
from holdfast.cli.output import console, print_error, print_json, print_lines, warned
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.core.spec import SCRIPT, SCRIPT_STEP
from holdfast.core.state import FINISHED, Status
from holdfast.errors import CodeMissing, HoldfastError, StoreError, TaskNotFound
from holdfast.history.replay import REAL, Replayed
from holdfast.history.replay.recorded import is_inside
from holdfast.stores.listing import TaskRecord
from holdfast.stores.port import LONGEST_PAGE
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


# `holdfast check` and `replay --all`: does the code fit the logs of many tasks?

Verdict = Literal["fits", "diverges", "same", "changed", "code_missing"]

_ENDED = "its function ends the program (sys.exit) where the log goes on"


class CodeVerdict(Struct, frozen=True):
    """Whether the code of a task fits its log, and where it first does not."""

    task: str
    type: str
    status: Status
    verdict: Verdict
    path: str = ""
    recorded: str = ""
    asked: str = ""
    why: str = ""


@click.command(short_help="Check that the code fits the tasks that are under way.")
@tasks_argument
@type_option
@store_command("app", "redact", "secrets")
def check(given: Given, tasks: tuple[str, ...], kind: str | None, as_json: bool) -> Exit:
    """Check the code of --app against the logs of all unfinished tasks, or of those named.

    It is meant for CI before a deploy, with the new code and the store (or a copy of it) of the
    old. Each task's function runs from its top with the recorded results, as far as they go. No
    step or tool is called and nothing is written; only the code between the steps runs, as it does
    on every resume. Where the code asks for something else than the log holds, both are shown.

    The exit code is 7 if any task diverges or its code is missing, else 4 if a log can't be read,
    else 0. For a task that diverges, gate the change (patched), bring its state up to date
    (version and upcast), or let the old code finish it.

    \b
    Examples:
      holdfast check --app agents
      holdfast check --app agents --type plan_trip
      holdfast check --app agents --json | jq -e .fits
    """
    load_app(given)
    with opened(given) as hf:
        views, unreadable = _named(hf, tasks) if tasks else _unfinished(hf)
        wanted = [view for view in views if kind is None or view.type == kind]
        # The output of the code between the steps is not ours.
        with redirect_stdout(sys.stderr):
            found = [_checked(hf, view, unreadable) for view in wanted]
    seen = [each for each in found if each is not None]
    if as_json:
        fits = not unreadable and all(each.verdict == "fits" for each in seen)
        print_json(
            {"fits": fits, "tasks": seen, "unreadable": [str(error) for error in unreadable]}
        )
    else:
        _print_checked(seen)
    told = warned(unreadable)
    return told if all(each.verdict == "fits" for each in seen) else Exit.CODE


def _named(hf: Holdfast, tasks: tuple[str, ...]) -> tuple[list[TaskView], list[StoreError]]:
    return [find_task(hf, task) for task in dict.fromkeys(tasks)], []


def _unfinished(hf: Holdfast) -> tuple[list[TaskView], list[StoreError]]:
    views, unreadable = read_all(hf.store)
    return [view for view in views if view.status not in FINISHED], unreadable


def _checked(hf: Holdfast, view: TaskView, unreadable: list[StoreError]) -> CodeVerdict | None:
    about = (view.id, view.type, view.status)
    try:
        found = hf.check(view.id)
    except CodeMissing as error:
        return _missing(error, *about)
    except StoreError as error:
        unreadable.append(error)
        return None
    except SystemExit:
        return CodeVerdict(*about, "diverges", why=_ENDED)
    if found.fits:
        return CodeVerdict(*about, "fits")
    return CodeVerdict(*about, "diverges", found.path, found.recorded, found.asked, found.why)


def _missing(error: CodeMissing, task: str, type: str, status: Status) -> CodeVerdict | None:
    if type in (SCRIPT, SCRIPT_STEP):  # of a shell script: there never was any
        return None
    return CodeVerdict(task, type, status, "code_missing", why=str(error))


def _print_checked(found: Sequence[CodeVerdict]) -> None:
    for each in found:
        if each.verdict != "fits":
            at = " at its start" if each.path == "0" else f" at call {each.path}"
            _print_verdict(each, f"diverges{at if each.path else ''}")
    names = {
        "fits": ("fits", "fit"),
        "diverges": ("diverges", "diverge"),
        "code_missing": ("has no code", "have no code"),
    }
    _print_tally(found, "fits", "no unfinished task to check", "all fit", names)


def _print_verdict(each: CodeVerdict, where: str) -> None:
    out = console()
    if each.verdict == "code_missing":
        where = "its code is missing"
    who = f"{plain(each.task)}  {plain(each.type)}"
    print_lines(out, Text.assemble((who, "bold"), "  ", (plain(where), "bold red")))
    facts = {"the log holds": each.recorded, "the code": each.asked}
    for name, fact in (facts if each.recorded else {"why": each.why}).items():
        print_lines(out, Text.assemble((f"  {name:14}", "dim"), plain(fact)))
    print_lines(out, "")


def _print_tally(
    found: Sequence[CodeVerdict],
    good: Verdict,
    none: str,
    all_good: str,
    names: Mapping[str, tuple[str, str]],
) -> None:
    out, tally = console(), Counter(each.verdict for each in found)
    if not found:
        print_lines(out, none)
    elif tally[good] == len(found):
        print_lines(out, Text(f"{count(len(found), 'task')}: {all_good}", "green"))
    else:
        parts = [f"{tally[v]:,} {names[v][tally[v] != 1]}" for v in names if tally[v]]  # type: ignore[index]
        print_lines(out, Text(f"{count(len(found), 'task')}: {', '.join(parts)}", "bold red"))


# `holdfast replay --all`: many tasks against the code as it is now.


_EVERY = 25


def replay_all(hf: Holdfast, kind: str | None, since: datetime | None, as_json: bool) -> Exit:
    """Replay the tasks that match, the newest first, and list what changed."""
    unreadable: list[str] = []
    found: list[CodeVerdict] = []
    # The output of the code between the calls is not ours.
    with redirect_stdout(sys.stderr):
        for number, task in enumerate(_wanted(hf, kind, since, unreadable), 1):
            each = _replayed(hf, task, unreadable)
            found += [each] if each is not None else []
            if number % _EVERY == 0:
                print_error(f"{count(number, 'task')} replayed")
    changed = [each for each in found if each.verdict != "same"]
    if as_json:
        same = not changed and not unreadable
        print_json({"same": same, "tasks": found, "unreadable": unreadable})
    else:
        _print_replayed(found)
    told = warned(map(plain, unreadable))
    return Exit.CODE if changed else told


def _wanted(
    hf: Holdfast, kind: str | None, since: datetime | None, unreadable: list[str]
) -> Iterator[TaskRecord]:
    cursor = None
    while True:
        page = hf.page(limit=LONGEST_PAGE, cursor=cursor, type=kind, created_after=since)
        if cursor is None:
            unreadable += map(str, page.unreadable)
        yield from page.tasks
        cursor = page.next
        if cursor is None:
            return


def _replayed(hf: Holdfast, task: TaskRecord, unreadable: list[str]) -> CodeVerdict | None:
    about = (task.id, task.type, task.status)
    try:
        found = hf.replay(task.id)
    except CodeMissing as error:
        return _missing(error, *about)
    except TaskNotFound:  # it was deleted meanwhile
        return None
    except StoreError as error:
        unreadable.append(f"{task.id}: {error}")
        return None
    except HoldfastError as error:
        return CodeVerdict(*about, "changed", why=str(error))
    unreadable += [f"{task.id}: {found.note}"] if found.note else []
    if (first := found.divergence) is not None:
        why = found.summary()
        return CodeVerdict(*about, "changed", first.path, first.recorded, first.asked, why)
    if found.differing:
        return CodeVerdict(*about, "changed", found.differing[0].path, why=found.summary())
    return CodeVerdict(*about, "same", why=found.note)


def _print_replayed(found: Sequence[CodeVerdict]) -> None:
    for each in found:
        if each.verdict != "same":
            at = f"diverges at call {each.path}" if each.path else "diverges at its end"
            _print_verdict(each, at if each.recorded else "changed")
    names = {
        "same": ("the same",) * 2,
        "changed": ("changed",) * 2,
        "code_missing": ("without code",) * 2,
    }
    _print_tally(found, "same", "no task to replay", "all do the same", names)
