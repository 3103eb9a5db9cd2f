"""The five layers of a task, for people: position, outputs, decisions, retries, failures.

Each function prints one layer of a view and says so where there is nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console
from rich.text import Text

from holdfast.agent.model import lines_of
from holdfast.cli.output import print_lines, status_text
from holdfast.cli.text import clock, count, plain, plain_lines, precise_clock, short, shown, took
from holdfast.core.events import PlanItem
from holdfast.core.state import Attempt, Call
from holdfast.core.words import beginning
from holdfast.history.known import Choice, Output, RetryContext
from holdfast.log.messages import Message
from holdfast.views.task import TaskView
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
