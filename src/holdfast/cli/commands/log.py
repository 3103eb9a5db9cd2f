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
from holdfast.cli.text import cut, plain, precise_clock
from holdfast.codec.readable import readable_json
from holdfast.core import events as e
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import AnyEvent, HistoryEvent, TaskCreated, TaskEvent, WorkspaceEvent
from holdfast.core.lists import BLOB, BlobRef, in_short
from holdfast.core.state import State
from holdfast.log.reading import Tail, pause
from holdfast.views.words import Tone, words_of

# An event in one line, for people: number, time, type, path, name, and what matters of it.


MOST = 160
_WIDTH = 1 + max(len(str(kind.__struct_config__.tag)) for kind in get_args(TaskEvent))

_STYLES: dict[Tone, str] = {
    "": "",
    "good": "green",
    "bad": "red",
    "doubt": "yellow",
    "thought": "magenta",
    "quiet": "dim",
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
    said = words_of(event, state)
    style = f"{'bold ' * said.strong}{_STYLES[said.tone]}"
    return Text.assemble(
        (f"{event.seq:4} {at[11:19]} " if narrow else f"{event.seq:5}  {at}  ", "dim"),
        (f"{type_of(event):{_WIDTH}}", style),
        f"{plain(path):7} {plain(call.name) if call else '':{12 if narrow else 16}} ",
        cut(said.sentence(short_raw, precise_clock, plain), MOST),
    )


def short_raw(raw: Raw | UnsetType) -> str:
    """The beginning of a stored value. A value in a blob is not fetched for this."""
    if not isinstance(raw, Raw):
        return ""
    data = bytes(raw)
    if data.startswith(BLOB):
        with suppress(Illegible):
            return f"({decode(data, BlobRef).size_bytes:,} bytes, kept aside)"
    return cut(plain(readable_json(in_short(data)).decode(errors="replace")), MOST)


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
