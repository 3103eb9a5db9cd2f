"""`holdfast log`: the events of a task, as they were written or as they come."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import get_args

import click
from msgspec import Raw, UnsetType
from rich.console import Console
from rich.text import Text

from holdfast.cli.exits import Exit
from holdfast.cli.opening import StoreNotFound, is_there, not_found, opened
from holdfast.cli.options import json_option, pass_given, store_options, task_argument
from holdfast.cli.output import console, print_json_line, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, cut, plain, precise_clock
from holdfast.core import events as e
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import AnyEvent, HistoryEvent, TaskCreated, TaskEvent, WorkspaceEvent
from holdfast.core.lists import BLOB, BlobRef, in_short
from holdfast.core.state import State
from holdfast.log.past import left_at, put_back_to
from holdfast.log.tail import Tail, pause

# An event in one line, for people: number, time, type, path, name, and what matters of it.


MOST = 160
_WIDTH = 1 + max(len(str(kind.__struct_config__.tag)) for kind in get_args(TaskEvent))

_STYLES: dict[type, str] = {
    e.Completed: "green",
    e.TaskCompleted: "bold green",
    e.AttemptFailed: "yellow",
    e.Failed: "red",
    e.TaskErrored: "bold red",
    e.Doubted: "bold yellow",
    e.Settled: "yellow",
    e.Decided: "magenta",
    e.Noted: "magenta",
    e.Derived: "magenta",
    e.Reused: "green",
    e.QuestionAsked: "bold yellow",
    e.QuestionAnswered: "green",
    e.AnswerRefused: "yellow",
    e.QuestionExpired: "red",
    e.PauseRequested: "yellow",
    e.CancelRequested: "bold yellow",
    e.TaskStopped: "bold yellow",
    e.Compensating: "bold yellow",
    e.Parked: "dim",
    e.Progressed: "dim",
    e.Adopted: "green",
    e.Rewound: "bold yellow",
}


def type_of(event: AnyEvent | type[AnyEvent]) -> str:
    """The event's type as it stands in the log.

    >>> type_of(e.TaskErrored)
    'task_failed'
    """
    return str(event.__struct_config__.tag)


def event_line(event: AnyEvent, state: State, *, narrow: bool = False) -> Text:
    """One event. `state` is that after it: it knows the names of the calls."""
    path = event.scope if isinstance(event, e.Progressed) else getattr(event, "path", "")
    call = state.calls.get(path.partition("#")[0])
    at = precise_clock(event.at)
    return Text.assemble(
        (f"{event.seq:4} {at[11:19]} " if narrow else f"{event.seq:5}  {at}  ", "dim"),
        (f"{type_of(event):{_WIDTH}}", _STYLES.get(type(event), "")),
        f"{plain(path):7} {plain(call.name) if call else '':{12 if narrow else 16}} ",
        cut(_detail(event), MOST),
    )


def _detail(event: AnyEvent) -> str:
    match event:
        case e.TaskCreated():
            return f"{plain(_fork(event))}{plain(event.task)} {short_raw(event.args)}"
        case e.Claimed():
            return f"by {plain(event.owner)}, epoch {event.epoch}"
        case e.Planned():
            texts = [each if isinstance(each, str) else each.text for each in event.items]
            return plain(f"{count(len(texts), 'step')}: {', '.join(texts)}")
        case e.Started():
            return _started(event)
        case e.AttemptFailed():
            return _attempt_failed(event)
        case e.Failed():
            return "no attempts left: the task is told"
        case e.Completed() | e.TaskCompleted():
            return f"→ {short_raw(event.result)}"
        case e.Settled():
            return _settled(event)
        case e.Doubted():
            return plain(f"waits for a person: {event.why}")
        case e.Decided():
            why = f", because {event.because}" if event.because else ""
            instead = f", instead of {event.supersedes}" if event.supersedes else ""
            return f"= {short_raw(event.choice)}{plain(why + instead)}"
        case e.Noted():
            return f"{plain(event.text)} {short_raw(event.data)}".rstrip()
        case e.Derived():
            by = plain(", ".join(event.sources))
            return f"= {short_raw(event.value)}, as of {precise_clock(event.as_of)}, by {by}"
        case e.Reused():
            return f"as {plain(event.of)} said"
        case e.TimerSet():
            return f"until {precise_clock(event.until)}"
        case e.Woke():
            return "the time has come"
        case e.Observed():
            return f"= {short_raw(event.value)}"
        case e.QuestionAsked():
            by = f", by {precise_clock(event.until)}" if event.until else ""
            return plain(f"{event.id} ({event.expects}{by}): {event.question}")
        case e.QuestionAnswered():
            return f"→ {short_raw(event.answer)}, says {plain(event.by)}"
        case e.AnswerRefused():
            return plain(f"the answer does not fit: {event.why}")
        case e.QuestionExpired():
            return "nobody answered in time: the task is told"
        case (
            e.SessionBegan() | e.Said() | e.Pinned() | e.Summarized() | e.SessionEnded()
            | e.SessionRewound() | e.MemoryBegan() | e.Remembered() | e.Forgotten()
        ):  # fmt: skip
            return ""  # these are in no log of a task
        case e.MissionSet():
            return f"{short_raw(event.text)}{f', by {plain(event.by)}' if event.by else ''}"
        case e.FileKept():
            return f"{plain(event.name)} {short_raw(event.file)}"
        case e.FileRemoved():
            return plain(event.name)
        case _:
            return _more_detail(event)


_Rest = (
    e.PlanProgressed
    | e.Parked
    | e.PauseRequested
    | e.CancelRequested
    | e.TaskContinued
    | e.Moved
    | e.ChildStarted
    | e.ChildMade
    | e.ChildEnded
    | e.Checkpointed
    | e.ListGrew
    | e.Patched
    | e.Progressed
    | e.Compensating
    | e.TaskStopped
    | e.TaskErrored
    | e.TaskRetried
    | e.Adopted
    | e.Rewound
)


def _more_detail(event: _Rest) -> str:
    match event:
        case e.PlanProgressed():
            because = f", because {event.because}" if event.because else ""
            return plain(f"{event.id}: {event.status}{because}")
        case e.Parked():
            until = f" until {precise_clock(event.until)}" if event.until else ""
            return plain(f"let go of{until}: {event.why}")
        case e.PauseRequested() | e.CancelRequested():
            because = f", because {event.because}" if event.because else ""
            return plain(f"by {event.by}{because}")
        case e.Moved() if event.since:
            return plain(f"to a new run of {event.engine} by {event.by}")
        case e.Moved():
            how = ", by force" if event.forced else ""
            return plain(f"to {event.engine or 'local'} by {event.by}{how}")
        case e.TaskContinued():
            return f"by {plain(event.by)}"
        case e.ChildStarted():
            return f"task {plain(event.id)} {short_raw(event.args)}"
        case e.ChildMade():
            return "its log is there"
        case e.ChildEnded():
            failure = event.failure
            return plain(failure.summary()) if failure else f"→ {short_raw(event.result)}"
        case e.Checkpointed():
            return f"number {event.number}: {_checkpoint(event)}"
        case e.ListGrew():
            return f"to {count(event.length, 'item')}: {short_raw(event.items)}"
        case e.Patched():
            return f"takes the new way at {plain(event.mark)}"
        case e.Progressed():
            of = f" of {event.total:g}" if event.total is not None else ""
            done = f"{event.done:g}{of} " if event.done is not None else ""
            return plain(f"{done}{event.text}")
        case e.Compensating():
            return plain(f"undoing what was done; then the task is {event.ending}")
        case e.TaskStopped():
            return plain(f"because {event.because}") if event.because else ""
        case e.TaskErrored():
            return plain(event.failure.summary())
        case e.TaskRetried():
            return f"by {plain(event.by)}" if event.by else ""
        case e.Adopted():
            return _adopted(event)
        case e.Rewound():
            because = f", because {event.because}" if event.because else ""
            return plain(f"to {put_back_to(event)} (event {event.to}), by {event.by}{because}")


def _fork(event: e.TaskCreated) -> str:
    fork = event.fork
    return "" if fork is None else f"fork of {fork.of}, {left_at(fork)}, effects={fork.effects}: "


def _adopted(event: e.Adopted) -> str:
    of = f" of {event.of} {event.of_path}" if event.of else ""
    failure = event.failure
    outcome = plain(failure.summary()) if failure else f"→ {short_raw(event.result)}"
    return f"{outcome} ({plain(event.how + of)}, not called)"


def _checkpoint(event: e.Checkpointed) -> str:
    if event.carried is not None:
        return f"the whole state {short_raw(event.state)}"
    return f"what changed {short_raw(event.change)}"


def _started(event: e.Started) -> str:
    if event.attempt > 1:
        return f"attempt {event.attempt}"
    return f"{short_raw(event.args)}{f'  key {plain(event.key)}' if event.key else ''}"


def _attempt_failed(event: e.AttemptFailed) -> str:
    what = f"attempt {event.attempt}: {plain(event.failure.summary())}"
    then = f"; again at {precise_clock(event.retry_at)[11:]}" if event.retry_at else ""
    return f"{cut(what, 120)}{'; it may have happened' if event.doubt else ''}{then}"


def _settled(event: e.Settled) -> str:
    verdict = "it happened" if event.verdict == "happened" else "it did not happen"
    result = f" → {short_raw(event.result)}" if event.verdict == "happened" else ""
    because = f", because {event.because}" if event.because else ""
    return plain(f"{verdict}, says {event.by}{because}") + result


def short_raw(raw: Raw | UnsetType) -> str:
    """The beginning of a stored value. One that is kept in a blob is not fetched for this."""
    if not isinstance(raw, Raw):
        return ""
    data = bytes(raw)
    if data.startswith(BLOB):
        with suppress(Illegible):
            return f"({decode(data, BlobRef).size_bytes:,} bytes, kept aside)"
    return cut(plain(in_short(data).decode(errors="replace")), MOST)


POLL_S = 0.25
BATCH = 500
ROOMY = 120
"""The width from which on dates and milliseconds are shown too."""
TYPES = sorted(type_of(kind) for kind in get_args(TaskEvent | WorkspaceEvent | HistoryEvent))


@click.command()
@task_argument
@click.option("-f", "--follow", is_flag=True, help="Wait for new events until the task has ended.")
@click.option("--wait", is_flag=True, help="Wait for the task to be started, if it was not yet.")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only events after it."
)
@click.option(
    "--type",
    "types",
    type=click.Choice(TYPES),
    multiple=True,
    metavar="TYPE",
    help=f"Only events of this type; may be repeated: {', '.join(TYPES)}.",
)
@json_option
@store_options
@pass_given
def log(
    given: Given,
    task: str,
    follow: bool,
    wait: bool,
    after: int,
    types: tuple[str, ...],
    as_json: bool,
) -> Exit:
    """Print the events of a task, one on each line.

    With --json these are the very lines of the log, as JSON lines. Every line is checked against
    its sum; damage ends the command with exit code 4 after the last good event.

    Those of a fork begin with what it shares with its original, and a line says where that ends.
    With --json these are the lines of the original's log; the fork's own are numbered from 1.

    \b
    Examples:
      holdfast log trip-42
      holdfast log -f --wait trip-42
      holdfast log trip-42 --type attempt_failed --type failed
      holdfast log trip-42 --json | jq .type
    """
    if wait:
        _wait_for(given, task)
    with opened(given) as hf:
        if not is_there(hf.store, task):
            raise not_found(hf.store, task)
        tail = Tail(hf.store, task)
        show = _show_lines if as_json else _show_texts
        show(tail, after, types)
        while follow and not tail.finished:
            pause(hf.store, POLL_S, lines=True)
            show(tail, after, types)
    return Exit.OK


def _wait_for(given: Given, task: str) -> None:
    while True:
        try:
            with opened(given) as hf:
                if is_there(hf.store, task):
                    return
        except StoreNotFound:
            pass
        time.sleep(POLL_S)


def _wanted(tail: Tail, after: int, types: tuple[str, ...]) -> Iterator[tuple[bytes, AnyEvent]]:
    for line, event in tail.read():
        if event.seq > after and (not types or type_of(event) in types):
            yield line, event


def _show_lines(tail: Tail, after: int, types: tuple[str, ...]) -> None:
    for line, _ in _wanted(tail, after, types):
        print_json_line(line.decode())
    sys.stdout.flush()


def _show_texts(tail: Tail, after: int, types: tuple[str, ...]) -> None:
    # Many at once, because the console takes its time for each print; and what was read before
    # damage is found is still shown.
    out, texts = console(), list[Text]()
    try:
        for _, event in _wanted(tail, after, types):
            if isinstance(event, TaskCreated) and event.fork is not None:
                what = f"--- up to here it shares the log of task {plain(event.fork.of)} ---"
                texts.append(Text(what, "dim"))
            texts.append(event_line(event, tail.state, narrow=out.width < ROOMY))
            if len(texts) >= BATCH:
                _flush(out, texts)
    finally:
        _flush(out, texts)


def _flush(out: Console, texts: list[Text]) -> None:
    if texts:
        print_lines(out, Text("\n").join(texts), cropped=True)
        out.file.flush()
        texts.clear()
