"""`holdfast replay --all`: many tasks against the code as it is now."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from datetime import datetime
from typing import Literal

from msgspec import Struct
from rich.text import Text

from holdfast.app import Holdfast
from holdfast.cli.exits import Exit
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.text import count, plain
from holdfast.errors import CodeMissing, HoldfastError, StoreError, TaskNotFound
from holdfast.store import LONGEST_PAGE
from holdfast.workspace.script import SCRIPT, STEP

Verdict = Literal["same", "changed", "code_missing"]

_EVERY = 25


class TaskReplayed(Struct, frozen=True):
    """What became of one task of many: what its code does now, and where it first differs."""

    task: str
    type: str
    verdict: Verdict
    path: str = ""
    recorded: str = ""
    asked: str = ""
    why: str = ""


def replay_all(hf: Holdfast, kind: str | None, since: datetime | None, as_json: bool) -> Exit:
    """Replay the tasks that match, the newest first, and list what changed."""
    unreadable: list[str] = []
    found: list[TaskReplayed] = []
    # What the code between the calls prints is not ours.
    with redirect_stdout(sys.stderr):
        for number, (task, type) in enumerate(_wanted(hf, kind, since, unreadable), 1):
            each = _replayed(hf, task, type, unreadable)
            found += [each] if each is not None else []
            if number % _EVERY == 0:
                print_error(f"{count(number, 'task')} replayed")
    changed = [each for each in found if each.verdict != "same"]
    if as_json:
        same = not changed and not unreadable
        print_json({"same": same, "tasks": found, "unreadable": unreadable})
    else:
        _print_all(found, changed)
    for what in unreadable:
        print_error(f"warning: {plain(what)}")
    if changed:
        return Exit.CODE
    return Exit.DAMAGED if unreadable else Exit.OK


def _wanted(
    hf: Holdfast, kind: str | None, since: datetime | None, unreadable: list[str]
) -> Iterator[tuple[str, str]]:
    cursor = None
    while True:
        page = hf.page(limit=LONGEST_PAGE, cursor=cursor, type=kind, created_after=since)
        if cursor is None:
            unreadable += map(str, page.unreadable)
        for task in page.tasks:
            yield task.id, task.type
        cursor = page.next
        if cursor is None:
            return


def _replayed(hf: Holdfast, task: str, type: str, unreadable: list[str]) -> TaskReplayed | None:
    try:
        found = hf.replay(task)
    except CodeMissing as error:
        if type in (SCRIPT, STEP):  # of a shell script: there never was any
            return None
        return TaskReplayed(task, type, "code_missing", why=str(error))
    except TaskNotFound:  # it was deleted meanwhile
        return None
    except StoreError as error:
        unreadable.append(f"{task}: {error}")
        return None
    except HoldfastError as error:
        return TaskReplayed(task, type, "changed", why=str(error))
    unreadable += [f"{task}: {found.note}"] if found.note else []
    if found.divergence is not None:
        first = found.divergence
        return TaskReplayed(
            task, type, "changed", first.path, first.recorded, first.asked, found.summary()
        )
    if found.differing:
        return TaskReplayed(task, type, "changed", found.differing[0].path, why=found.summary())
    return TaskReplayed(task, type, "same", why=found.note)


def _print_all(found: Sequence[TaskReplayed], changed: Sequence[TaskReplayed]) -> None:
    out = console()
    for each in changed:
        _print(each)
    missing = sum(each.verdict == "code_missing" for each in found)
    if not found:
        print_lines(out, "no task to replay")
    elif not changed:
        print_lines(out, Text(f"{count(len(found), 'task')}: all do the same", "green"))
    else:
        parts = [
            f"{len(found) - len(changed):,} the same",
            f"{len(changed) - missing:,} changed",
            *([f"{missing:,} without code"] if missing else []),
        ]
        print_lines(out, Text(f"{count(len(found), 'task')}: {', '.join(parts)}", "bold red"))


def _print(each: TaskReplayed) -> None:
    out = console()
    if each.verdict == "code_missing":
        where = "its code is missing"
    elif not each.recorded:
        where = "changed"
    else:
        where = f"diverges at call {each.path}" if each.path else "diverges at its end"
    who = f"{plain(each.task)}  {plain(each.type)}"
    print_lines(out, Text.assemble((who, "bold"), "  ", (plain(where), "bold red")))
    facts = {"the log holds": each.recorded, "the code": each.asked}
    for name, fact in (facts if each.recorded else {"why": each.why}).items():
        print_lines(out, Text.assemble((f"  {name:14}", "dim"), plain(fact)))
    print_lines(out, "")
