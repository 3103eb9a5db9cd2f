"""What `holdfast show` tells besides calls: how far a task says it is, and its children."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec import Struct

from holdfast.cli.layers import Page
from holdfast.cli.opening import read_task
from holdfast.cli.output import print_table, status_text
from holdfast.cli.text import ago, plain
from holdfast.errors import StoreError, TaskNotFound
from holdfast.events import OnCancel
from holdfast.state import Call
from holdfast.store import Store
from holdfast.views import TaskView


class ChildView(Struct, frozen=True):
    """A task that this one started."""

    path: str
    id: str
    type: str
    status: str
    """What its own log says, or why that can't be told."""
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


def print_children(page: Page, children: list[ChildView]) -> None:
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
    """Who said it: `6.1#2` is the second attempt of the call 6.1."""
    path, _, attempt = scope.rpartition("#")
    return (path, int(attempt)) if path and attempt.isdecimal() else (scope, None)


def print_progress(page: Page, found: list[ProgressView]) -> None:
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
