"""An event in one line, for people: number, time, type, path, name, and what matters of it."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

from msgspec import Raw, UnsetType
from rich.text import Text

from holdfast import events as e
from holdfast.cli.text import count, cut, plain, precise_clock
from holdfast.decoding import Illegible, decode
from holdfast.events import AnyEvent, TaskEvent
from holdfast.history import left_at, put_back_to
from holdfast.lists import BLOB, BlobRef, in_short
from holdfast.state import State

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
