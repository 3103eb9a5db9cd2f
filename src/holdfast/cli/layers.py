"""The layers of a task, for people: position, outputs, decisions, retries, failures.

Each function prints one layer of a view and says so where there is nothing in it. After them comes
the head of `holdfast show`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from holdfast.agent.model import lines_of
from holdfast.cli.opening import read_task
from holdfast.cli.output import print_lines, print_table, status_text
from holdfast.cli.settings import Given, our_command, resume_command
from holdfast.cli.text import (
    ago,
    clock,
    count,
    plain,
    plain_lines,
    precise_clock,
    short,
    shown,
    took,
)
from holdfast.core.events import OnCancel, PlanItem
from holdfast.core.state import FINISHED, HALTED, Attempt, Call, State
from holdfast.core.words import beginning
from holdfast.engines.routing import driven_by
from holdfast.errors import StoreError, TaskNotFound
from holdfast.history.known import Choice, Output, RetryContext
from holdfast.log.messages import Message
from holdfast.log.places import left_at, newest_rewind, rewound_to
from holdfast.stores.port import Store
from holdfast.views.task import DoubtView, QuestionView, TaskView, is_worked_off
from holdfast.views.words import raised_at

MOST_LINES = 12
MOST_ITEMS = 40

T = TypeVar("T")


class LayerPage:
    """Where the layers are printed. Unless it is `whole`, what is long is cut, with a note.

    A command that has `--all` says with `every` whether every item of a list is wanted.
    """

    def __init__(self, out: Console, *, full: bool, every: bool | None = None) -> None:
        self.out = out
        self.full = full
        self.whole: bool = full or not out.is_terminal
        self.every: bool = self.whole or bool(every)
        self.most = MOST_ITEMS
        self._more = "--full" if every is None else "--all"

    def heading(self, text: str, more: str = "") -> None:
        """The title of a layer."""
        self.out.print()
        self.out.print(Text.assemble((text, "bold underline"), f"  {more}" if more else ""))

    def line(self, *parts: str | tuple[str, str] | Text, indent: int = 2) -> None:
        """One line; the terminal wraps it, so that it can be copied whole."""
        print_lines(self.out, Text.assemble(" " * indent, *parts))

    def block(self, text: str, indent: int = 5) -> None:
        """Text of several lines, set in."""
        kept = text if self.whole else beginning(text, MOST_LINES)
        set_in = "\n".join(" " * indent + line for line in kept.split("\n"))
        print_lines(self.out, set_in)
        if left := len(text) - len(kept):
            self.line(
                (f"… {count(left, 'more character')}: --full shows them", "dim"), indent=indent
            )

    def newest(self, items: Sequence[T]) -> Sequence[T]:
        """The items to print: all, or the last few and a note of how many came before."""
        left = 0 if self.every else len(items) - self.most
        if left > 0:
            self.line((f"… {left:,} earlier ones: {self._more} shows them", "dim"))
        return items[max(left, 0) :]


def print_position(page: LayerPage, view: TaskView) -> None:
    """Layer 1: where the task is."""
    position = view.position
    page.heading("Position", str(position))
    failed = [c.path for c in view.calls if c.status == "failed" and "." not in c.path]
    _print_steps(page, view, "done", position.committed)
    _print_steps(page, view, "failed", failed)
    _print_steps(page, view, "now", position.running)
    if any(item.status != "pending" or item.after for item in view.plan):
        page.heading("Plan")
        for item in page.newest(view.plan):
            page.line(*_item(item))
    elif position.pending:
        page.line((f"{'to come':8} ", "dim"), plain(", ".join(position.pending)))


_BOXES = {"pending": "[ ]", "doing": "[>]", "done": "[x]", "failed": "[!]", "skipped": "[-]"}
_BOX_STYLES = {"doing": "cyan", "done": "green", "failed": "red", "skipped": "dim"}


def _item(item: PlanItem) -> list[str | tuple[str, str]]:
    box = (f"{_BOXES[item.status]} ", _BOX_STYLES.get(item.status, ""))
    after = f"  after {', '.join(item.after)}" if item.after else ""
    return [box, (f"{plain(item.id)}  ", "dim"), plain(item.text), (plain(after), "dim")]


def _print_steps(page: LayerPage, view: TaskView, title: str, paths: Sequence[str]) -> None:
    if paths:
        kept = paths if page.every else paths[-page.most :]
        left = len(paths) - len(kept)
        names = [f"… {left:,} earlier"] if left else []
        names += [_step_name(view.state.calls[path]) for path in kept]
        page.line((f"{title:8} ", "dim"), ", ".join(names))


def _step_name(call: Call) -> str:
    if call.status in ("completed", "failed", "running"):
        return plain(f"{call.path} {call.name}")
    until = f" until {clock(call.until)}" if call.status == "waiting" and call.until else ""
    return plain(f"{call.path} {call.name} ({call.status}{until})")


def print_outputs(page: LayerPage, view: TaskView) -> None:
    """Layer 2: what each call returned, verbatim."""
    page.heading("Outputs", "" if view.outputs else "none yet")
    for each in page.newest(view.outputs):
        page.line((plain(each.path), "cyan"), "  ", _call(each.name, _given(view, each)))
        page.block(shown(each.output))


def _given(view: TaskView, output: Output) -> Any:
    """What a call was given; a question its text, and a wait for a message the name of that."""
    if output.kind == "question":
        return view.state.calls[output.path].why
    return output.key if output.kind == "message" else output.input


def print_decisions(page: LayerPage, view: TaskView) -> None:
    """Layer 3: what was chosen, from what, and why."""
    page.heading("Decisions", "" if view.decisions else "none")
    for each in page.newest(view.decisions):
        print_choice(page, each)


def print_choice(page: LayerPage, each: Choice) -> None:
    """One decision, and whether it still counts."""
    what = f"{plain(each.name)} = {short(each.choice, 200)}"
    over = f"  superseded by {plain(each.superseded_by)}" if each.superseded_by else ""
    page.line((plain(each.path), "magenta"), "  ", what, (over, "yellow"))
    if each.because:
        page.line(("because  ", "dim"), plain(each.because), indent=5)
    if isinstance(each.options, list):
        page.line(("options  ", "dim"), *_options(each.options, each.choice), indent=5)
    elif each.options is not None:
        page.line(("options  ", "dim"), short(each.options, 200), indent=5)
    if each.supersedes:
        page.line(("instead of  ", "dim"), plain(each.supersedes), indent=5)


def _options(options: list[Any], choice: Any) -> list[str | tuple[str, str]]:
    parts: list[str | tuple[str, str]] = []
    for option in options[:MOST_LINES]:
        parts += [", "] if parts else []
        parts.append((short(option, 80), "bold") if option == choice else short(option, 80))
    more = len(options) - MOST_LINES
    return [*parts, f", … {more} more"] if more > 0 else parts


def print_retries(page: LayerPage, view: TaskView) -> None:
    """Layer 4: the calls that were tried more than once."""
    page.heading("Retries", "" if view.retries else "none")
    for each in page.newest(view.retries):
        tries = f"{count(len(each.attempts), 'attempt')}, {each.failures} failed: "
        title = (plain(each.path), "yellow"), "  ", plain(each.name), "  ", tries
        page.line(*title, status_text(each.status))
        for attempt in page.newest(each.attempts):
            page.line(*_attempt(attempt, each), indent=5)
        if each.retry_at:
            page.line(("next  ", "dim"), clock(each.retry_at), indent=5)


def _attempt(attempt: Attempt, of: RetryContext) -> tuple[str | tuple[str, str], ...]:
    span = took(attempt.ended_at - attempt.at) if attempt.ended_at else ""
    if attempt.failure is not None:
        ended = plain(attempt.failure.summary())
    elif attempt.ended_at is not None:
        ended = "went through"
    else:
        ended = "no word of how it ended" if attempt is not of.attempts[-1] else of.status
    return (f"{attempt.number}  {precise_clock(attempt.at)[11:]}  ", "dim"), f"{span:>7}  {ended}"


def print_failures(page: LayerPage, view: TaskView) -> None:
    """Layer 5: everything that broke, with all that was known."""
    page.heading("Failures", "" if view.failures else "none")
    for each in page.newest(view.failures):
        where = f"{each.path}  {each.name}, attempt {each.attempt}"
        when = f", at {clock(each.at)}{', timed out' if each.failure.timed_out else ''}"
        page.line(plain(where if each.path else f"the task itself, {each.name}"), (when, "dim"))
        page.line((plain(each.failure.summary()), "red"), indent=5)
        if where := raised_at(each.failure):
            page.line(("at  ", "dim"), plain(where), indent=5)
        page.line(("input  ", "dim"), short(each.input, 200), indent=5)
        if page.full and each.failure.traceback:
            page.block(plain_lines(each.failure.traceback.rstrip()))
    if view.failures and not page.full:
        page.line(("--full shows the tracebacks", "dim"))


def print_notes(page: LayerPage, view: TaskView) -> None:
    """The agent's notes."""
    page.heading("Notes")
    for each in page.newest(view.notes):
        data = "" if each.data is None else f"  {short(each.data, 200)}"
        page.line((f"{clock(each.at)[11:]}  ", "dim"), plain(each.text), (data, "dim"))


def print_facts(page: LayerPage, view: TaskView) -> None:
    """The agent's conclusions from outside readings, and the age of each reading."""
    page.heading("Facts")
    for each in page.newest(view.facts):
        by = plain(f"  as of {precise_clock(each.as_of)}, by {', '.join(each.sources)}")
        page.line(
            (plain(each.path), "magenta"), "  ", plain(each.name), " = ", short(each.value, 200)
        )
        page.line((by.strip(), "dim"), indent=5)


def _call(name: str, given: Any) -> str:
    return f"{plain(name)}({short(given, 120)})"


# Messages for people: who says what, which one it is, and where it comes from.


STYLES = {"system": "dim", "user": "bold", "assistant": "cyan", "tool": "green"}


def print_message(page: LayerPage, message: Message, *more: str) -> None:
    """A message: a line on what it is, and what it says set in below it."""
    number = f"{message.number:>4} " if message.number else "     "
    said = [part for part in (*more, *origin(message)) if part]
    page.line(
        (number, "dim"),
        (plain(message.role), STYLES.get(message.role, "")),
        (plain(f"  {', '.join(said)}") if said else "", "dim"),
        indent=0,
    )
    for line in said_in(message):
        page.block(plain_lines(line), indent=7)


def said_in(message: Message) -> Iterator[str]:
    """The texts of a message, one for each part, without its author."""
    who = f"{message.role} ({message.name}): " if message.name else f"{message.role}: "
    if not message.parts:
        yield "(nothing)"
        return
    for line in lines_of(message):
        yield line.removeprefix(who)


def origin(message: Message) -> tuple[str, ...]:
    """When a message was said, and by which step of which task."""
    at = clock(message.at) if message.at else ""
    by = f"task {message.task}, {message.step}" if message.task else ""
    return tuple(each for each in (at, f"as {message.name}" if message.name else "", by) if each)


def ranges_text(ranges: tuple[tuple[int, int], ...]) -> str:
    """Stretches of messages by their numbers.

    >>> ranges_text(((3, 14), (20, 20)))
    '3 to 14, 20'
    """
    return ", ".join(f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in ranges)


def messages_text(number: int) -> str:
    """So many messages.

    >>> messages_text(1)
    '1 message'
    """
    return count(number, "message")


# The head of `holdfast show`: what the task is, its status, and what it needs to go on. First, what
# it tells besides calls: how far a task says it is, and its children.


class ChildView(Struct, frozen=True):
    """A task that this one started."""

    path: str
    id: str
    type: str
    status: str
    """The facts of its own log, or why they can't be told."""
    on_cancel: OnCancel


class ProgressView(Struct, frozen=True):
    """How far a strand of the task last said it is."""

    path: str
    """Of the call or branch that said so; '' for the task itself."""
    attempt: int | None
    text: str
    done: float | None
    total: float | None
    at: datetime


def children_of(store: Store, view: TaskView) -> list[ChildView]:
    """The tasks that this one started, and how they stand."""
    return [
        ChildView(call.path, call.child, call.name, _status(store, call), call.on_cancel)
        for call in view.children
    ]


def _status(store: Store, call: Call) -> str:
    try:
        return read_task(store, call.child).status
    except TaskNotFound:
        return "gone"
    except StoreError:
        return "unreadable"


def print_children(page: LayerPage, children: list[ChildView]) -> None:
    """The tasks that this one started."""
    page.heading("Children", "tasks that this one started")
    rows = [
        (plain(each.path), plain(each.id), plain(each.type), status_text(each.status))
        for each in page.newest(children)
    ]
    print_table(page.out, ("PATH", "ID", "TYPE", "STATUS"), rows, cut_last=False)


def progress_of(view: TaskView) -> list[ProgressView]:
    """How far each strand is. Of a call that was tried again, only its last attempt counts."""
    newest: dict[str, ProgressView] = {}
    for scope, said in view.progress:
        path, number = _strand(scope)
        made = ProgressView(path, number, said.text, said.done, said.total, said.at)
        before = newest.get(path)
        if before is None or (before.attempt or 0) <= (number or 0):
            newest[path] = made
    return list(newest.values())


def _strand(scope: str) -> tuple[str, int | None]:
    """Its author: `6.1#2` is the second attempt of the call 6.1."""
    path, _, attempt = scope.rpartition("#")
    return (path, int(attempt)) if path and attempt.isdecimal() else (scope, None)


def print_progress(page: LayerPage, found: list[ProgressView]) -> None:
    """How far each strand said it is, and when."""
    page.heading("Progress", "what it last said")
    for each in page.newest(found):
        who = f"{plain(each.path)}  " if each.path else ""
        when = f"  ({ago(each.at, datetime.now(UTC))})"
        page.line((who, "cyan"), plain(_how_far(each)), (when, "dim"))


def _how_far(each: ProgressView) -> str:
    parts = [each.text] if each.text else []
    if each.done is not None and each.total:
        parts.append(f"{each.done:g} of {each.total:g} ({each.done / each.total:.0%})")
    elif each.done is not None:
        parts.append(f"{each.done:g}")
    return " ".join(parts)


MOST_FORKS = 8
"""So many are named."""


class SeenNow(Struct, frozen=True):
    """The facts of this moment that the log does not have."""

    at_work: str | None
    doubts: list[DoubtView]
    questions: list[QuestionView]
    children: list[ChildView]
    progress: list[ProgressView]
    forks: list[str]


def print_title(page: LayerPage, view: TaskView) -> None:
    """Which task it is, and how it stands."""
    page.line((plain(view.id), "bold"), "  ", status_text(view.status), indent=0)


def print_head(page: LayerPage, view: TaskView, seen: SeenNow) -> None:
    """Its kind, its age and its owner."""
    state, now = view.state, datetime.now(UTC)
    facts = {
        "task": f"{view.type}({short(view.input, 200)})",
        "started": f"{clock(state.created_at)} ({ago(state.created_at, now)})",
        "changed": f"{clock(state.updated_at)} ({ago(state.updated_at, now)}), "
        f"{count(view.seq, 'event')}",
        "deadline": f"{clock(state.until)} ({ago(state.until, now)})" if state.until else "",
        "checkpoint": f"number {state.checkpoints:,}" if state.checkpoints else "",
        "fork of": _fork(state),
        "forks": _forks(seen.forks),
        "rewound": _rewinds(state),
        "parent": ", call ".join(each for each in (state.parent, state.parent_path) if each),
        "engine": state.driver,
        "last driven by": "" if seen.at_work or is_worked_off(view) else state.owner,
        "user": state.user,
        "session": state.session,
        "labels": ", ".join(f"{name}={value}" for name, value in sorted(state.labels.items())),
    }
    for name, fact in facts.items():
        if fact:
            page.line((f"{name:14} ", "dim"), plain(fact))


def _fork(state: State) -> str:
    fork = state.fork
    if fork is None:
        return ""
    changed = [*fork.stubs, *fork.arguments]
    other = f", other answers or arguments for {', '.join(sorted(changed))}" if changed else ""
    because = f", because {fork.because}" if fork.because else ""
    where = f"{fork.of}, {left_at(fork)} (event {fork.seq})"
    return f"{where}, effects={fork.effects}{other}, by {fork.by}{because}"


def _forks(forks: list[str]) -> str:
    more = ", …: see `holdfast ls --origin`" if len(forks) > MOST_FORKS else ""
    return ", ".join(forks[:MOST_FORKS]) + more


def _rewinds(state: State) -> str:
    newest = newest_rewind(state)
    if newest is None:
        return ""
    because = f", because {newest.because}" if newest.because else ""
    often = f"{count(state.rewinds, 'time')}, last " if state.rewinds > 1 else ""
    where = f"to {rewound_to(newest)} (event {newest.to})"
    return f"{often}{where}, effects={newest.effects}, by {newest.by}{because}"


def print_outlook(page: LayerPage, given: Given, view: TaskView, seen: SeenNow) -> None:
    """The headline: how did it end, or what does it need to go on?"""
    if view.status == "completed":
        long = _is_long(view.result)
        page.line((f"{'result':14} ", "dim"), "" if long else short(view.result))
        if long:
            page.block(shown(view.result))
    elif view.status == "cancelled":
        if view.state.because:
            page.line((f"{'cancelled':14} ", "dim"), plain(_because(view)))
    elif view.status == "failed" and view.failure is not None:
        page.line((f"{'failed':14} ", "dim"), (plain(view.failure.summary()), "red"))
        if where := raised_at(view.failure):
            page.line((f"{'at':14} ", "dim"), plain(where))
        if not view.state.compensated:  # what was undone can't be gone on from
            retry = resume_command(given, view.state, "retry")
            page.line(("to try it again: ", "dim"), plain(retry))
    elif view.status not in FINISHED:
        _print_needs(page, given, view, seen)


def _print_needs(page: LayerPage, given: Given, view: TaskView, seen: SeenNow) -> None:
    for call in view.calls:
        if call.kind == "sleep" and call.status == "waiting" and call.until:
            until = f"{clock(call.until)} ({ago(call.until, datetime.now(UTC))})"
            page.line(("sleeps until ", "dim"), until)
        elif call.kind == "limit" and call.status == "waiting" and call.until:
            until = f"{clock(call.until)} ({ago(call.until, datetime.now(UTC))})"
            page.line((f"waits for the limit {plain(call.name)} until ", "dim"), until)
    if view.status == "awaiting_user":
        parts = {"In doubt": seen.doubts, "Questions": seen.questions}
        where = " and ".join(name for name, there in parts.items() if there)
        page.line(Text(f"it waits for a person: see below, under {where}", "bold yellow"))
    _print_told(page, view)
    if seen.at_work:
        page.line(("at work: ", "dim"), (plain(seen.at_work), "cyan"))
        return
    if driver := driven_by(view.state):
        page.line(("driven by ", "dim"), (plain(driver), "cyan"))
        return
    page.line(Text("nobody is at work on it", "bold yellow"))
    if view.status == "awaiting_user" and not view.state.cancelling:
        return
    to_do = "to end it" if view.state.cancelling or view.state.ending else "to go on"
    resume = resume_command(given, view.state)
    page.line((f"{to_do}: ", "dim"), plain(resume))
    if view.status in HALTED:
        worker = our_command(given, "resume", view.id, options=("--worker",))
        page.line(("or, left to a worker: ", "dim"), plain(worker))


def _print_told(page: LayerPage, view: TaskView) -> None:
    """Orders from outside, and what the task does because of them."""
    state = view.state
    if state.ending:
        what = f"what it did is being undone; then it is {state.ending}"
        page.line(Text(what, "bold yellow"), plain(_because(view, ", ")))
    elif state.cancelling:
        page.line(Text("it is being cancelled", "bold yellow"), plain(_because(view, ", ")))
    elif view.status == "paused":
        page.line(Text("it is paused", "bold yellow"), plain(_because(view, ", ")))
    elif view.status == "stuck":
        page.line(Text("it is stuck", "bold red"), plain(_because(view, ", ")))
    elif state.hindrance is not None:
        since = ago(state.hindrance.at, datetime.now(UTC))
        page.line(
            Text("it could not go on", "bold yellow"),
            plain(
                f" ({since}), by "
                f"{state.hindrance.by}: {state.hindrance.error}: {state.hindrance.why}"
            ),
        )
    elif state.parked and state.wake_at is not None:
        until = f"{clock(state.wake_at)} ({ago(state.wake_at, datetime.now(UTC))})"
        page.line(("released until ", "dim"), until, (": then a worker goes on with it", "dim"))


def ended_badly(view: TaskView) -> bool:
    """Whether what it did is undone, or may be."""
    return view.status in ("failed", "cancelled") or bool(view.state.ending)


def print_compensate(page: LayerPage, given: Given, view: TaskView) -> None:
    """How to undo what is left, if anything is."""
    if view.status in FINISHED and any(each.status != "undone" for each in view.compensation):
        command = our_command(given, "compensate", view.id, code=True)
        page.line(("to undo what is left: ", "dim"), plain(command))


def _because(view: TaskView, before: str = "") -> str:
    because = view.state.because
    return f"{before}because {because}" if because else ""


def _is_long(value: Any) -> bool:
    return len(short(value, 61)) > 60
