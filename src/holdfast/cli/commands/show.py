"""`holdfast show` and `log`: one task and all that its log says of it, and its events."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, get_args

import click
from msgspec import Raw, Struct, UnsetType
from msgspec.structs import replace
from rich.console import Console
from rich.text import Text

from holdfast.cli import layers
from holdfast.cli.commands.control import print_compensation, summary_of
from holdfast.cli.commands.people import print_doubt, print_question
from holdfast.cli.commands.sessions import show_session
from holdfast.cli.exits import Exit
from holdfast.cli.layers import (
    MOST_FORKS,
    LayerPage,
    SeenNow,
    children_of,
    ended_badly,
    print_children,
    print_compensate,
    print_head,
    print_outlook,
    print_progress,
    print_title,
    progress_of,
)
from holdfast.cli.opening import StoreNotFound, find_task, is_session, is_there, not_found, opened
from holdfast.cli.options import (
    json_option,
    pass_given,
    store_command,
    store_options,
    task_argument,
)
from holdfast.cli.output import (
    console,
    print_json,
    print_json_line,
    print_lines,
    print_table,
    status_text,
)
from holdfast.cli.settings import Given
from holdfast.cli.text import clock, cut, plain, precise_clock, took
from holdfast.codec.tags import readable_json
from holdfast.core import events as e
from holdfast.core.decoding import Illegible, damage_in, decode
from holdfast.core.events import AnyEvent, HistoryEvent, TaskCreated, TaskEvent, WorkspaceEvent
from holdfast.core.lists import BLOB, BlobRef, in_short
from holdfast.core.state import Call, State, scope_of
from holdfast.engines.routing import LOCAL
from holdfast.log.places import newest_rewind
from holdfast.log.reading import Tail, pause, stream_of
from holdfast.stores.listing import forks_of
from holdfast.views.task import MANY, TaskView, at_work, doubts_of, questions_of, recent
from holdfast.views.words import Tone, words_of

# The calls of a task as a tree by path: what was made inside what, and how it went.


COLUMNS = ("PATH", "NAME", "KIND", "STATUS", "TRIES", "TOOK", "KEY")

_FEW = 4
_SCREEN = 8
"""So many items of each layer fit a screen, of a task that made many calls."""
_DEEPEST = 50  # a path deeper than this was made by no agent


class Node(Struct):
    """A place in the tree. A branch (`visit~1`) is one that no call stands for."""

    path: str
    call: Call | None = None
    inside: list[Node] = []


def print_timeline(out: Console, rows: Iterable[tuple[str, Node]]) -> None:
    """Print what `walk` gives. Only the keys are cut where the terminal is narrow."""
    print_table(out, COLUMNS, [_row(guide, node) for guide, node in rows], cut_last=True)


def print_calls(page: LayerPage, calls: Iterable[Call]) -> None:
    """The calls as a tree. Of many, those alike that follow each other are one row."""
    rows = list(walk(tree(call for call in calls if call.kind != "reading")))
    if not page.every and len(rows) > layers.MOST_ITEMS:
        rows = list(_grouped(rows))
    print_timeline(page.out, page.newest(rows))


def _grouped(rows: Sequence[tuple[str, Node]]) -> Iterator[tuple[str, Node]]:
    """Rows that are alike and follow each other, as one row that says how many."""
    for _, same in groupby(rows, _alike):
        group = list(same)
        guide, first = group[0]
        if len(group) < _FEW or first.call is None:
            yield from group
        else:
            _, last = group[-1]
            path = f"{first.path} … {last.path}"
            yield guide, Node(path, replace(first.call, key=f"{len(group):,} calls"))


def _alike(row: tuple[str, Node]) -> object:
    guide, node = row
    call, depth = node.call, len(guide)
    if call is None or node.inside:
        return id(node)
    return depth, scope_of(node.path), call.name, call.kind, call.status, len(call.attempts)


def tree(calls: Iterable[Call]) -> Node:
    """The calls in the order they were made, each in the one it was made in."""
    top = Node("")
    nodes = {"": top}
    for call in calls:
        _node(nodes, call.path).call = call
    return top


def _node(nodes: dict[str, Node], path: str) -> Node:
    missing = []
    outer = path
    while outer not in nodes:
        missing.append(outer)
        outer = scope_of(outer) if outer.count(".") < _DEEPEST else ""
    node = nodes[outer]
    for inner in reversed(missing):
        nodes[inner] = Node(inner)
        node.inside.append(nodes[inner])
        node = nodes[inner]
    return node


def walk(top: Node) -> Iterator[tuple[str, Node]]:
    """Every node after the one it is in, with the lines that lead to it.

    >>> [guide for guide, _ in walk(Node("", inside=[Node("1", inside=[Node("1.1")])]))]
    ['', '└─ ']
    """
    todo = [("", "", node) for node in reversed(top.inside)]
    while todo:
        guide, under, node = todo.pop()
        yield guide, node
        last = len(node.inside) - 1
        for index in range(last, -1, -1):
            mine, below = ("└─ ", "   ") if index == last else ("├─ ", "│  ")
            todo.append((under + mine, under + below, node.inside[index]))


def _row(guide: str, node: Node) -> tuple[str | Text, ...]:
    path = Text.assemble((guide, "dim"), plain(node.path))
    call = node.call
    if call is None:
        what = "checkpoint" if node.path.startswith("@") and "." not in node.path else "branch"
        return path, "", Text(what, "dim"), "", "", "", ""
    return (
        path,
        plain(call.name),
        call.kind,
        _status(call),
        str(len(call.attempts)) if call.attempts else "",
        took(call.ended_at - call.at) if call.ended_at and call.attempts else "",
        Text(plain(call.key), "dim"),
    )


def _adopted(call: Call) -> str:
    if call.adopted == "edited":
        return f"result edited by {call.settled_by}" if call.settled_by else "result edited"
    of = f" of {' '.join(call.adopted_of)}" if call.adopted_of else ""
    return f"not called: {call.adopted}{of}"


def _status(call: Call) -> Text:
    status = status_text(call.status)
    if call.status == "waiting" and call.until:
        status.append(f" until {clock(call.until)}")
    if call.of:
        status.append(f" (as {plain(call.of)} said)", "dim")
    if call.adopted:
        status.append(f" ({plain(_adopted(call))})", "dim")
    elif call.settled_by:
        status.append(f" (by {plain(call.settled_by.partition(',')[0])})", "dim")
    return status


LAYERS = {
    "position": layers.print_position,
    "outputs": layers.print_outputs,
    "decisions": layers.print_decisions,
    "retries": layers.print_retries,
    "failures": layers.print_failures,
}


@click.command()
@task_argument
@click.option("--layer", type=click.Choice(tuple(LAYERS)), help="Only this one.")
@click.option("--all", "every", is_flag=True, help="Every call and item, however many.")
@click.option("--full", is_flag=True, help="Cut nothing, and show tracebacks.")
@store_command()
def show(
    given: Given, task: str, layer: str | None, every: bool, full: bool, as_json: bool
) -> Exit:
    """Show where a task is, and what happened to get there.

    \b
    Everything comes from the task's log, in layers:
      position     which step it is on, which are done, running and to come
      outputs      what each call returned, verbatim
      decisions    what the agent chose, from which options, and why
      retries      the calls that were tried more than once
      failures     everything that broke, with input and time

    Besides, it shows all calls as a tree, the agent's facts and notes, the calls in doubt, the open
    questions and approvals, how far it says it is, its parent and children, its checkpoint and
    deadline; of a fork, whose past it shares and from where on it goes its own way; which forks
    there are of it; to which step it was rewound; of one that was paused or cancelled, why; of one
    that ended badly, what was undone; and of an unfinished task, who is at work on it.

    Of a task that made many calls, a terminal gets calls alike as one row, and the newest items;
    of one that made more than 2,000, only the newest calls are looked at. --all, a pipe or a file
    get every one.

    Of a session it shows what `holdfast session` does; of a thread of LangGraph its checkpoints and
    the values of its newest one.

    \b
    Examples:
      holdfast show trip-42
      holdfast show trip-42 --layer failures --full
      holdfast show trip-42 --json | jq .position
    """
    with opened(given) as hf:
        if is_session(hf.store, task):
            show_session(given, hf, task, LayerPage(console(), full=full, every=every), as_json)
            return Exit.OK
        view = find_task(hf, task)
        page = LayerPage(console(), full=full, every=every or as_json)
        made = len(view.state.calls)
        if not page.every:
            view = recent(view, hf.store, MANY)
        earlier = made - len(view.state.calls)
        seen = SeenNow(
            at_work(hf.store, view),
            doubts_of(hf.store, view),
            questions_of(view),
            children_of(hf.store, view),
            progress_of(view),
            forks_of(hf.store, view.id, MOST_FORKS + 1),
        )
        if as_json:
            data = _data(view, seen)
            kept = ("id", "status", layer) if layer else tuple(data)
            print_json({name: data[name] for name in kept})
            return Exit.OK
        if len(view.calls) > layers.MOST_ITEMS:
            page.most = _SCREEN
        print_title(page, view)
        if earlier:
            page.line(
                (f"… {earlier:,} earlier calls, and what they led to: --all shows them", "dim")
            )
        if layer:
            LAYERS[layer](page, view)
        else:
            _print_all(page, given, view, seen)
    return Exit.OK


def _print_all(page: LayerPage, given: Given, view: TaskView, seen: SeenNow) -> None:
    print_head(page, view, seen)
    print_outlook(page, given, view, seen)
    layers.print_position(page, view)
    if view.calls:
        page.heading("Calls")
        print_calls(page, view.calls)
    for name, there in (
        ("outputs", view.outputs),
        ("decisions", view.decisions),
        ("retries", view.retries),
        ("failures", view.failures),
    ):
        if there:
            LAYERS[name](page, view)
    if view.facts:
        layers.print_facts(page, view)
    if view.notes:
        layers.print_notes(page, view)
    if seen.progress:
        print_progress(page, seen.progress)
    if seen.children:
        print_children(page, seen.children)
    if ended_badly(view) and view.compensation:
        page.heading("Compensation", summary_of(view.compensation))
        print_compensation(page.out, page.newest(view.compensation))
        print_compensate(page, given, view)
    if seen.doubts:
        page.heading("In doubt", "calls that may or may not have happened")
        for each in seen.doubts:
            print_doubt(page.out, given, each)
    if seen.questions:
        page.heading("Questions", "that wait for an answer")
        for question in seen.questions:
            print_question(page.out, given, question)


_OF_STATE = (
    *("created_at", "updated_at", "user", "session", "labels", "owner", "engine", "epoch"),
    *("format", "version", "parent", "parent_path", "fork", "rewinds", "because", "cancelling"),
    *("ending", "checkpoints", "deaths", "death", "hindrance"),
)
_OF_VIEW = (
    *("input", "result", "failure", "plan", "observations", "position", "outputs", "decisions"),
    *("retries", "failures", "facts", "notes", "compensation"),
)


def _data(view: TaskView, seen: SeenNow) -> dict[str, Any]:
    state, rewound = view.state, newest_rewind(view.state)
    return {
        **{name: getattr(view, name) for name in ("id", "type", "status", "seq")},
        **{name: getattr(state, name) for name in _OF_STATE},
        "driver": state.driver or LOCAL,
        "rewound_to": rewound.to if rewound is not None else None,
        "deadline": state.until,
        "wake_at": state.wake_at if state.parked else None,
        "checkpoint": _checkpoint(view),
        **{name: getattr(view, name) for name in _OF_VIEW},
        **{name: getattr(seen, name) for name in SeenNow.__struct_fields__},
        "calls": [_call(call) for call in view.calls],
    }


def _checkpoint(view: TaskView) -> Any:
    with damage_in(stream_of(view.id)):
        return view.checkpoint


_OF_CALL = (
    *("path", "name", "kind", "status", "at", "ended_at", "key", "settled_by", "until", "child"),
    *("adopted", "adopted_of"),
)


def _call(call: Call) -> dict[str, Any]:
    spent_s = (call.ended_at - call.at).total_seconds() if call.ended_at else None
    told = {name: getattr(call, name) for name in _OF_CALL}
    return {**told, "attempts": len(call.attempts), "duration_s": spent_s}


# `holdfast log`: the events of a task, as they were written or as they come.
#
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
