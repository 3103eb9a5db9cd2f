"""The calls of a task as a tree by path: what was made inside what, and how it went."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from rich.console import Console
from rich.text import Text

from holdfast.cli.output import print_table, status_text
from holdfast.cli.text import clock, plain, took
from holdfast.state import Call, scope_of

COLUMNS = ("PATH", "NAME", "KIND", "STATUS", "TRIES", "TOOK", "KEY")

_DEEPEST = 50  # a path deeper than this was made by no agent


class Node(Struct):
    """A place in the tree. A branch (`visit~1`) is one that no call stands for."""

    path: str
    call: Call | None = None
    inside: list[Node] = []


def print_timeline(out: Console, rows: Iterable[tuple[str, Node]]) -> None:
    """Print what `walk` gives. Only the keys are cut where the terminal is narrow."""
    print_table(out, COLUMNS, [_row(guide, node) for guide, node in rows], cut_last=True)


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
