"""`holdfast doctor`: is everything in the store as it was written?"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.text import Text

import holdfast
from holdfast.app import Holdfast
from holdfast.cli import folder as folders
from holdfast.cli.exits import Exit
from holdfast.cli.health import Finding, Logs
from holdfast.cli.opening import folder_of, is_there, not_found, opened
from holdfast.cli.options import complete_task, json_option, pass_given, store_options
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, counts, plain
from holdfast.errors import StoreError
from holdfast.kinds import KINDS
from holdfast.reading import stream_of
from holdfast.stores.workspace import safe_name
from holdfast.words import checked_id

_STYLES = {"damage": "bold red", "warning": "yellow", "note": "dim"}
LEVELS = list(_STYLES)


@click.command(short_help="Check that every log is intact.")
@click.argument("task", metavar="[TASK]", required=False, shell_complete=complete_task)
@json_option
@store_options
@pass_given
def doctor(given: Given, task: str | None, as_json: bool) -> Exit:
    """Check the store, or one task: that every log and blob is what was written, to the byte.

    It compares what lists go by with what the logs say. Besides it looks for leftovers of crashes,
    permissions, symlinks, and a filesystem that is not fit for locks. It only reads: it repairs
    and removes nothing, and says what you can do.

    The exit code is 4 if anything is damaged, else 0: warnings and notes are no damage.

    \b
    Examples:
      holdfast doctor
      holdfast doctor trip-42
      holdfast doctor --json | jq -e .healthy
    """
    with opened(given) as hf:
        logs = Logs(hf.store)
        root = folder_of(hf.store.url)
        check = _check_task(hf, root, logs, task) if task else _check_all(hf, root, logs)
        findings = sorted(check, key=lambda finding: LEVELS.index(finding.level))
        facts = _facts(hf, root, logs)
    healthy = not any(finding.level == "damage" for finding in findings)
    if as_json:
        print_json({"healthy": healthy, **facts, "findings": findings})
    else:
        _print(facts, findings)
    return Exit.OK if healthy else Exit.DAMAGED


def _check_task(hf: Holdfast, root: Path | None, logs: Logs, task: str) -> Iterator[Finding]:
    folder = root / "tasks" / safe_name(checked_id(task)) if root else None
    if folder is not None and folder.is_dir():
        yield from folders.check_names(folder.parents[1], folder)
    elif not _may_be_there(hf, task):
        raise not_found(hf.store, task)
    yield from logs.check(stream_of(task))


def _may_be_there(hf: Holdfast, task: str) -> bool:
    try:
        return is_there(hf.store, task)
    except StoreError:
        return True


def _check_all(hf: Holdfast, root: Path | None, logs: Logs) -> Iterator[Finding]:
    if root is None:
        for kind in KINDS:
            for stream in sorted(hf.store.streams(kind.prefix)):
                yield from logs.check(stream)
        return
    yield from folders.check_filesystem(root, folders.filesystem_of(root))
    yield from folders.check_names(root, root)
    yield from folders.check_index(root)
    all_read, shown = True, _named_there(hf, "stream_shown")
    for folder, named in folders.log_folders(root):
        if named is None:
            yield folders.check_nameless(root, folder)
            continue
        for finding in logs.check(shown(named)):
            all_read = all_read and finding.level == "note"
            yield finding
    yield from _check_spare_blobs(hf, root, logs, all_read)


def _check_spare_blobs(hf: Holdfast, root: Path, logs: Logs, all_read: bool) -> Iterator[Finding]:
    in_store = _named_there(hf, "blob_in_store")
    named = set(map(in_store, logs.blobs))
    spare = {name: size for name, size in folders.blobs_in(root).items() if name not in named}
    if spare:
        size = sum(spare.values())
        what = f"{count(len(spare), 'blob')} ({size:,} bytes) that no readable log names"
        todo = "Nothing, until every log can be read: one that can't may name them."
        if all_read:
            todo = "`holdfast gc` removes them, unless a task is about to name them."
        yield Finding("note", "blobs", what, todo)


def _named_there(hf: Holdfast, method: str) -> Callable[[str], str]:
    """How names are turned, where an encrypted store has others than it shows."""
    layer: Any = hf.store
    while layer is not None and not hasattr(layer, method):
        layer = getattr(layer, "inner", None)
    return str if layer is None else getattr(layer, method)


def _facts(hf: Holdfast, root: Path | None, logs: Logs) -> dict[str, Any]:
    return {
        "store": hf.store.url,
        "filesystem": folders.filesystem_of(root) if root else "",
        **logs.counts,
        "blobs": len(logs.blobs),
        "holdfast": holdfast.__version__,
        "python": platform.python_version(),
        "msgspec": msgspec.__version__,
        "system": platform.system(),
    }


def _print(facts: dict[str, Any], findings: Iterable[Finding]) -> None:
    out = console()
    out.print(
        f"Holdfast {facts['holdfast']}, Python {facts['python']}, msgspec {facts['msgspec']}, "
        f"{facts['system']}"
    )
    place = f"{facts['store']} on {facts['filesystem']}" if facts["filesystem"] else facts["store"]
    read = ", ".join(counts(facts))
    print_lines(out, f"Store {plain(place)}: {read} read and checked")
    damaged = False
    for finding in findings:
        damaged = damaged or finding.level == "damage"
        out.print()
        where = (finding.level, _STYLES[finding.level]), "  ", (plain(finding.where), "bold")
        print_lines(out, Text.assemble(*where))
        print_lines(out, f"  {plain(finding.what)}")
        print_lines(out, Text(f"  {plain(finding.todo)}", "cyan"))
    out.print()
    out.print(Text("damage found", "bold red") if damaged else Text("no damage found", "green"))
