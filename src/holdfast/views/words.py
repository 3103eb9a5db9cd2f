"""Every event in words: one table, by the type of the event.

The lines of `holdfast log`, of `progress.log` and of an audit are made of it, and so is whatever
shows events next. A function of the table is given an event and the state after it, which knows
the names of the calls. It returns `Words`: what happened in a word or two, and a sentence in parts,
so that a terminal, a file or a page can show each part in its own way. A new type of event gets a
line in `WORDS`; a test holds that against the types that there are.

The functions at the end put texts of others into Markdown of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from holdfast.core import events as e
from holdfast.core.crashes import died_in_words
from holdfast.core.events import AnyEvent, Failure
from holdfast.core.state import Call, State
from holdfast.core.words import cut, plain
from holdfast.log.places import left_at, rewound_to

Tone = Literal["", "good", "bad", "doubt", "thought", "quiet"]
"""How an event reads: as success, failure, something to look at, a thought of the agent, or of
little interest."""

_MS = timedelta(milliseconds=1)


class Phrase(Struct, frozen=True):
    """A part of a sentence: a text, a value of the log, or a time."""

    of: str | Raw | datetime
    more: bool = False
    """Whether it is left out where there is little room."""


class Words(Struct, frozen=True):
    """An event in words.

    >>> words_of(e.Woke(seq=7, path="3"), State()).what
    'woke'
    """

    what: str
    """The kind of event, in a word or two: always the same ones."""
    status: str
    """The same in `progress.log`, whose words programs may look for."""
    parts: tuple[Phrase, ...] = ()
    tone: Tone = ""
    strong: bool = False
    """Whether a reader should notice it first."""
    minor: bool = False
    """Whether it is of no interest to people: a list grew, a time was read."""

    def sentence(
        self,
        value: Callable[[Raw], str],
        time: Callable[[datetime], str],
        text: Callable[[str], str] = str,
        *,
        short: bool = False,
    ) -> str:
        """The parts as one text, each made by the function for its kind; without those that need
        room, if it has to be `short`."""
        made = []
        for part in self.parts:
            if not (short and part.more):
                of = part.of
                show: Any = text if isinstance(of, str) else value if isinstance(of, Raw) else time
                made.append(show(of))
        return "".join(made).rstrip()


def words_of(event: AnyEvent, state: State) -> Words:
    """An event in words. `state` is that after it.

    >>> claimed = e.Claimed(seq=2, format=2, epoch=1, owner="w-1")
    >>> words_of(claimed, State()).sentence(str, str)
    'by w-1, epoch 1'
    """
    return WORDS[type(event)](event, state)


_Said = str | Raw | UnsetType | datetime | None | Phrase


def _words(
    what: str,
    *said: _Said,
    status: str = "",
    tone: Tone = "",
    strong: bool = False,
    minor: bool = False,
) -> Words:
    parts = tuple(
        each if isinstance(each, Phrase) else Phrase(each)
        for each in said
        if each not in ("", None) and each is not UNSET
    )
    return Words(what, status or what, parts, tone, strong, minor)


def _more(text: str) -> Phrase:
    return Phrase(text, more=True)


def _because(text: str) -> str:
    return f", because {text}" if text else ""


def _by(name: str) -> str:
    return f", by {name}" if name else ""


def _ended(failure: Failure | None, result: Raw | UnsetType) -> tuple[_Said, ...]:
    return (failure.summary(),) if failure is not None else ("→ ", result)


# Calls.


def _started(event: e.Started, state: State) -> Words:
    if event.attempt > 1:
        return _words("tried again", f"attempt {event.attempt}", status="started")
    key = _more(f"  key {event.key}") if event.key else None
    return _words("called", event.args, key, status="started")


def _completed(event: e.Completed, state: State) -> Words:
    call = state.calls[event.path]
    said = (f"{_took(event, call)} → ", event.result)
    return _words("returned", *said, status="completed", tone="good")


def _stepped(event: e.Stepped, state: State) -> Words:
    took = f"  {(event.at - event.began) // _MS} ms → "
    return _words("called", event.args, took, event.result, status="completed", tone="good")


def _took(event: AnyEvent, call: Call) -> str:
    begun = call.attempts[-1].at if call.attempts else call.at
    return f"{(event.at - begun) // _MS} ms"


def _attempt_failed(event: e.AttemptFailed, state: State) -> Words:
    again = ("again at ", event.retry_at, ", ") if event.retry_at else ()
    doubt = "it may have happened, " if event.doubt else ""
    said = (f"attempt {event.attempt}, ", *again, doubt, event.failure.summary())
    status = "retrying" if event.retry_at else ""
    return _words("attempt failed", *said, status=status, tone="doubt")


def _failed(event: e.Failed, state: State) -> Words:
    failure = state.calls[event.path].failure
    return _words("failed", failure.summary() if failure else "", tone="bad")


def _settled(event: e.Settled, state: State) -> Words:
    result = (_more(" → "), event.result) if event.verdict == "happened" else ()
    shown = [Phrase(each, more=True) if isinstance(each, Raw) else each for each in result]
    said = f"says {event.by}{_because(event.because)}"
    status = event.verdict.replace("_", " ")
    return _words("doubt settled", _more(f"{status}, "), said, *shown, status=status, tone="doubt")


def _adopted(event: e.Adopted, state: State) -> Words:
    of = f", of {event.of} {event.of_path}" if event.of else ""
    said = (f"not called{of}{_by(event.by)}: ", *_ended(event.failure, event.result))
    return _words("adopted", *said, status=event.how, tone="good")


def _decided(event: e.Decided, state: State) -> Words:
    instead = f", instead of {event.supersedes}" if event.supersedes else ""
    said = (event.choice, instead + _because(event.because))
    return _words("decided", *said, tone="thought")


def _derived(event: e.Derived, state: State) -> Words:
    since = (_more(", as of "), Phrase(event.as_of, more=True))
    by = _more(f", by {', '.join(event.sources)}")
    said = (f"{event.name} = ", event.value, *since, by)
    return _words("fact", *said, status="derived", tone="thought")


def _asked(event: e.QuestionAsked, state: State) -> Words:
    until = (", until ", event.until) if event.until else ()
    said = (f"{event.id} ({event.expects}", *until, f"): {event.question}")
    what = "approval asked" if event.call else "asked"
    return _words(what, *said, status="asked", tone="doubt", strong=True)


def _answered(event: e.QuestionAnswered, state: State) -> Words:
    call = state.calls.get(event.path)
    what = "answered"
    if call is not None and call.approves:
        what = "approved" if bytes(event.answer) == b"true" else "not approved"
    said = (event.answer, f", says {event.by}")
    return _words(what, *said, status="answered", tone="good")


def _awaited(event: e.MessageAwaited, state: State) -> Words:
    until = (_more(", until "), Phrase(event.until, more=True)) if event.until else ()
    said = (f"for the message {event.name}", _more(f" ({event.expects}"), *until, _more(")"))
    return _words("waits for a message", *said, status="waiting", tone="doubt")


def _timer(event: e.TimerSet) -> Words:
    if event.call:
        said = (f"{event.name}, until ", event.until)
        return _words("waits for a limit", *said, status="waiting", tone="quiet")
    return _words("sleeps", "until ", event.until, status="sleeping")


def _child_ended(event: e.ChildEnded, state: State) -> Words:
    status = "failed" if event.failure is not None else "completed"
    said = _ended(event.failure, event.result)
    return _words("child ended", *said, status=status, tone="bad" if event.failure else "good")


# The task itself.


def _created(event: e.TaskCreated, state: State) -> Words:
    asked = (f"{event.task} ", event.args)
    fork = event.fork
    if fork is None:
        return _words("created", *asked)
    of = f"of {fork.of}, {left_at(fork)}, effects {fork.effects}{_because(fork.because)}: "
    return _words("forked", _more("fork "), of, *asked)


def _rewound(event: e.Rewound, state: State) -> Words:
    to = f"to {rewound_to(event)} (event {event.to})"
    said = f"{to}, by {event.by}{_because(event.because)}"
    return _words("rewound", said, tone="doubt", strong=True)


def _parked(event: e.Parked, state: State) -> Words:
    until = ("until ", event.until, ": ") if event.until else ()
    return _words("released", *until, event.why, status="waiting", tone="quiet")


def _died(event: e.DriverDied | e.SetAside) -> str:
    return died_in_words(event.owner, event.path, event.name, event.deaths)


def _moved(event: e.Moved, state: State) -> Words:
    by = _more(_by(event.by))
    if event.since:
        return _words("moved", f"to a new run of {event.engine}", by)
    return _words("moved", f"to {event.engine or 'local'}", ", by force" * event.forced, by)


def _stopped(what: str, status: str, *, strong: bool) -> Callable[[Any, State], Words]:
    def told(event: e.PauseRequested | e.CancelRequested, state: State) -> Words:
        said = f"by {event.by}{_because(event.because)}"
        return _words(what, said, status=status, tone="doubt", strong=strong)

    return told


def _planned(event: e.Planned, state: State) -> Words:
    texts = ", ".join(item.text for item in state.plan[:9])
    return _words("planned", f"{len(state.plan)} items{_by(event.by)}: {texts}")


def _plan_progressed(event: e.PlanProgressed, state: State) -> Words:
    text = next((item.text for item in state.plan if item.id == event.id), "")
    said = f"{event.id}. {text}{_because(event.because)}"
    return _words("plan item marked", _more(f"{event.status}: "), said, status=event.status)


def _checkpointed(event: e.Checkpointed, state: State) -> Words:
    whole = event.carried is not None
    kept = event.state if whole else event.change
    value = Phrase(kept, more=True) if isinstance(kept, Raw) else None
    about = _more(": the whole state " if whole else ": what changed ")
    return _words("checkpoint", f"number {event.number}", about, value)


def _progressed(event: e.Progressed, state: State) -> Words:
    of = f" of {event.total:g}" if event.total is not None else ""
    done = f"{event.done:g}{of} " if event.done is not None else ""
    who = f"{event.scope}: " if event.scope else ""
    return _words("progress", f"{who}{done}{event.text}", tone="quiet")


def _grew(event: e.ListGrew, state: State) -> Words:
    return _words("list grew", f"to {event.length:,} items: ", event.items, minor=True)


# Sessions and memories.


def _said(event: e.Said, state: State) -> Words:
    many = f", {event.count} messages" if event.count > 1 else ""
    return _words("said", f"by the {event.role}{many}: ", event.messages)


def _changed(event: e.ValuesChanged, state: State) -> Words:
    first, *others = event.changes or (e.ValueChange(""),)
    more = f", and {len(others):,} more" if others else ""
    if isinstance(first.value, Raw):
        return _words("value put", f"{first.key} = ", first.value, more)
    return _words("value deleted", f"{first.key}{more}")


def _forgotten(event: e.Forgotten, state: State) -> Words:
    return _words("forgotten", f"{event.id}{_because(event.because)}")


def _queue(state: State) -> str:
    ticket = state.ticket
    if ticket is None:
        return ""
    return f"in {ticket.queue}" + (f", key {ticket.key}" if ticket.key else "")


def _places(event: e.PlacesChanged) -> str:
    taken = [f"taken by {', '.join(place.task for place in event.taken)}"] if event.taken else []
    return "; ".join(taken + ([f"free again: {', '.join(event.freed)}"] if event.freed else []))


WORDS: dict[type[AnyEvent], Callable[[Any, State], Words]] = {
    e.TaskCreated: _created,
    e.Queued: lambda event, state: _words("queued", _queue(state), status="waits"),
    e.QueueBegan: lambda event, _: _words("queue began", f"{len(event.places):,} places taken"),
    e.PlacesChanged: lambda event, _: _words("places changed", _places(event)),
    e.QueueTurned: lambda event, _: _words("queue turned", "a new log goes on"),
    e.Claimed: lambda event, _: _words(
        "claimed", f"by {event.owner}", _more(f", epoch {event.epoch}"), status="driven"
    ),
    e.DriverDied: lambda event, _: _words(
        "driver died", _died(event), status="interrupted", tone="bad", strong=True
    ),
    e.SetAside: lambda event, _: _words(
        "stuck", _died(event), status="stuck", tone="bad", strong=True
    ),
    e.Hindered: lambda event, _: _words(
        "hindered", f"{event.error}: {event.why}", _more(_by(event.by)), tone="doubt", strong=True
    ),
    e.Parked: _parked,
    e.PauseRequested: _stopped("paused", "paused", strong=False),
    e.CancelRequested: _stopped("cancel asked", "cancelling", strong=True),
    e.TaskContinued: lambda event, _: _words("continued", f"by {event.by}"),
    e.TaskRetried: lambda event, _: _words("retried", f"by {event.by}" if event.by else ""),
    e.Moved: _moved,
    e.Planned: _planned,
    e.PlanProgressed: _plan_progressed,
    e.MissionSet: lambda event, _: _words(
        "mission set", event.text, _more(_by(event.by)), status="set"
    ),
    e.FileKept: lambda event, _: _words(
        "file kept", event.name, _more(" "), Phrase(event.file, more=True), status="kept"
    ),
    e.FileRemoved: lambda event, _: _words("file removed", event.name, status="removed"),
    e.Started: _started,
    e.Completed: _completed,
    e.Stepped: _stepped,
    e.AttemptFailed: _attempt_failed,
    e.Failed: _failed,
    e.Settled: _settled,
    e.Doubted: lambda event, _: _words("in doubt", event.why, tone="doubt", strong=True),
    e.Adopted: _adopted,
    e.Reused: lambda event, _: _words("reused", f"as {event.of} said", tone="good"),
    e.Decided: _decided,
    e.Noted: lambda event, _: _words("noted", f"{event.text} ", event.data, tone="thought"),
    e.Derived: _derived,
    e.Observed: lambda event, _: _words("observed", f"{event.name} = ", event.value, minor=True),
    e.TimerSet: lambda event, _: _timer(event),
    e.Woke: lambda event, _: _words("woke"),
    e.QuestionAsked: _asked,
    e.QuestionAnswered: _answered,
    e.AnswerRefused: lambda event, _: _words("answer refused", event.why, tone="doubt"),
    e.QuestionExpired: lambda event, _: _words(
        "nobody answered", "nobody answered in time", status="failed", tone="bad"
    ),
    e.MessageAwaited: _awaited,
    e.MessageSent: lambda event, _: _words(
        "message", f"{event.name} = ", event.value, f", from {event.by}", tone="good"
    ),
    e.MessageRefused: lambda event, _: _words("message refused", event.why, tone="doubt"),
    e.MessageExpired: lambda event, _: _words(
        "no message came", "none came in time", status="no message", tone="bad"
    ),
    e.ChildStarted: lambda event, _: _words(
        "child started", f"task {event.id} ", event.args, status="started"
    ),
    e.ChildMade: lambda event, _: _words("child made", "its log is there", minor=True),
    e.ChildEnded: _child_ended,
    e.Checkpointed: _checkpointed,
    e.ListGrew: _grew,
    e.Patched: lambda event, _: _words("new way taken", f"at {event.mark}", minor=True),
    e.Progressed: _progressed,
    e.Compensating: lambda event, _: _words(
        "compensating", f"then it is {event.ending}", status="undoing", tone="doubt", strong=True
    ),
    e.TaskStopped: lambda event, _: _words(
        "task cancelled", event.because, status="cancelled", tone="doubt", strong=True
    ),
    e.TaskCompleted: lambda event, _: _words(
        "task completed", "→ ", event.result, status="completed", tone="good", strong=True
    ),
    e.TaskErrored: lambda event, _: _words(
        "task failed", event.failure.summary(), status="failed", tone="bad", strong=True
    ),
    e.Rewound: _rewound,
    e.SessionBegan: lambda event, _: _words("session began", event.user),
    e.Said: _said,
    e.Pinned: lambda event, _: _words(
        "pinned" if event.pinned else "unpinned", f"message {event.number}{_by(event.by)}"
    ),
    e.Summarized: lambda event, _: _words(
        "summarized", f"up to message {event.upto}: ", event.text
    ),
    e.SessionEnded: lambda event, _: _words("session ended", event.because),
    e.SessionRewound: lambda event, _: _words("session rewound", f"to event {event.to}"),
    e.MemoryBegan: lambda event, _: _words("memory began", event.id),
    e.Remembered: lambda event, _: _words("remembered", event.text),
    e.Forgotten: _forgotten,
    e.ValuesChanged: _changed,
}
"""The words of each type of event."""


# Where an exception came from.


_OURS = re.compile(
    r"[/\\]holdfast[/\\](agent|api|codec|core|engines|integrations|log|stores|workspace)[/\\]"
)
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)


def raised_at(failure: Failure) -> str:
    """The file and line that raised, as the traceback has it; '' if there is none.

    >>> raised_at(Failure("ValueError", "no", 'Tr:\\n  File "agents.py", line 7, in book\\n    x'))
    'agents.py:7, in book'
    """
    frames = _FRAME.findall(failure.traceback)
    theirs = [frame for frame in frames if not _OURS.search(frame[0])]
    found = theirs or frames
    return "{}:{}, in {}".format(*found[-1]) if found else ""


# Texts of others inside Markdown of ours.
#
# A log holds whatever a model, a tool or a stranger wrote, and a page about it must not be forged
# by that: nobody's text begins a line of ours, opens a heading, a link or a comment, or hides what
# follows it.

_MARKS = re.compile(r"([\\`*\[\]<>])")
_TICKS = re.compile(r"`+")


def one_line(text: str, most: int = 300) -> str:
    r"""A text on one line, with everything written out that could act on who reads it.

    >>> print(one_line("done\n# Status: failed"))
    done\n# Status: failed
    """
    return plain(cut(text, most))


def prose(text: str, most: int = 300) -> str:
    r"""The same inside a sentence.

    >>> print(prose("<!-- see [here](http://example.com)"))
    \<!-- see \[here\](http://example.com)
    """
    return one_line(_MARKS.sub(r"\\\1", text[:most]), 2 * most) + ("…" if len(text) > most else "")


def code(text: str, most: int = 200) -> str:
    """A name or a value, as code on one line.

    >>> code("book"), code("a `tick`")
    ('`book`', '`` a `tick` ``')
    """
    text = one_line(text, most)
    if not text.strip():
        return "` `"
    longest = max(map(len, _TICKS.findall(text)), default=0)
    if not longest:
        return f"`{text}`"
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}"


def block(text: str, kind: str = "", most: int = 4000) -> str:
    """A text of several lines, as a block of code.

    >>> print(block("one\\ntwo"))
    ```
    one
    two
    ```
    """
    if len(text) > most:
        text = f"{text[:most]}…"
    lines = (one_line(line.removesuffix("\r").expandtabs(4), most) for line in text.split("\n"))
    longest = max(map(len, _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}{kind}", *lines, fence))
