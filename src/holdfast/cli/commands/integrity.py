"""`holdfast verify`, `head`, `doctor` and `keys`: is every log what was written, and all of it?"""

from __future__ import annotations

import os
import platform
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

import click
import msgspec
from msgspec.structs import asdict
from rich.progress import Progress as Bar
from rich.text import Text

import holdfast
from holdfast.api.app import Holdfast
from holdfast.cli import folder as folders
from holdfast.cli.exits import Exit
from holdfast.cli.folder import Finding, Logs
from holdfast.cli.opening import (
    folder_of,
    is_there,
    keys_of,
    must_be_there,
    must_exist,
    not_found,
    opened,
    store_url,
)
from holdfast.cli.options import (
    maybe_task_argument,
    store_command,
    tasks_argument,
)
from holdfast.cli.output import console, print_json, print_lines, warned
from holdfast.cli.settings import Given
from holdfast.cli.text import count, counts, plain
from holdfast.core.decoding import Illegible, decode
from holdfast.core.kinds import KINDS
from holdfast.core.words import checked_id
from holdfast.errors import BadInput, StoreError
from holdfast.log.reading import stream_of
from holdfast.log.store_calls import streams_in
from holdfast.log.verify import Head, Progress, Verified, heads
from holdfast.log.verify import verify as verify_logs
from holdfast.stores import open_store, system
from holdfast.stores import rotate as rotate_keys
from holdfast.stores.files.folder import safe_name
from holdfast.stores.port import Store
from holdfast.stores.sealed.keys import Keys


@click.command(short_help="Check that no log was changed or cut.")
@tasks_argument
@click.option(
    "--against",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `holdfast head` printed at an earlier time: also shows what was cut off since.",
)
@store_command()
def verify(given: Given, tasks: tuple[str, ...], against: Path | None, as_json: bool) -> Exit:
    """Check tasks, or all logs: every event, the chain of sums, and every blob they name.

    It is the proof that no log was changed; `holdfast doctor` looks at the store around them, too,
    and says what you can do. All logs are those of tasks, sessions and memories.

    The sums show damage, and changes by somebody who did not compute them anew. With the key of an
    encrypted store (--key-file) or of a signed one (--sign-key-file) a change by anybody without
    that key shows. A log that was cut short shows only against a head that was noted before.

    For each log the first event that is wrong is named. The exit code is 4 if there is one.

    \b
    Examples:
      holdfast verify
      holdfast verify trip-42 --sign-key-file sign.key
      holdfast head > heads.json    keep it where no writer of the store can
      holdfast verify --against heads.json
    """
    noted = read_heads(against) if against else []
    with opened(given) as hf:
        for task in tasks:
            if not may_be_there(hf.store, task) and all(
                head.stream != stream_of(task) for head in noted
            ):
                raise not_found(hf.store, task)
        with _bar() as progress:
            found = verify_logs(hf.store, tasks, noted, progress)
    if as_json:
        print_json({"sound": found.sound, **asdict(found)})
    else:
        _print_verified(found)
    return Exit.OK if found.sound else Exit.DAMAGED


@click.command(short_help="Print how far each log goes, to verify against later.")
@tasks_argument
@store_command()
def head(given: Given, tasks: tuple[str, ...], as_json: bool) -> Exit:
    """Print how far the log of each task goes, or every log: its last event's number and sum.

    Keep it where nobody who can write to the store can change it. `holdfast verify --against` then
    shows a log that was cut or replaced since, which no sum and no signature in it can. It is JSON,
    with or without --json.

    The exit code is 4 if a log can't be read; of all logs, the heads of the others are printed.

    \b
    Examples:
      holdfast head > heads.json
      holdfast head trip-42 | jq -r '.[].sum'
    """
    with opened(given) as hf:
        must_be_there(hf.store, *tasks)
        unreadable: list[StoreError] = []
        print_json(heads(hf.store, tasks, None if tasks else unreadable))
    return warned(unreadable)


def may_be_there(store: Store, task: str) -> bool:
    """Whether there is a log of the task, be it one that can't be read."""
    try:
        return is_there(store, task)
    except StoreError:
        return True


def read_heads(path: Path) -> list[Head]:
    """A file that `holdfast head` printed."""
    try:
        return decode(path.read_bytes(), list[Head])
    except (OSError, Illegible) as error:
        raise BadInput(f"{path} is not what `holdfast head` prints: {error}") from None


@contextmanager
def _bar() -> Iterator[Progress]:
    """How far it is, for who looks at a terminal."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield lambda done, of: None
        return
    with Bar(console=out, transient=True) as bar:
        shown = bar.add_task("checking logs", total=None)
        yield lambda done, of: bar.update(shown, completed=done, total=of)


def _print_verified(found: Verified) -> None:
    out = console()
    for damage in found.damage:
        event = f", event {damage.seq}" if damage.seq else ""
        print_lines(out, Text.assemble((plain(damage.name), "bold red"), event))
        print_lines(out, f"  {plain(damage.what)}")
    read = ", ".join(counts(asdict(found)))
    result = ("as it was written", "green") if found.sound else ("damage found", "bold red")
    print_lines(out, Text.assemble(f"{read} checked: ", result))


# `holdfast doctor`: is everything in the store as it was written?


_STYLES = {"damage": "bold red", "warning": "yellow", "note": "dim"}
LEVELS = list(_STYLES)


@click.command(short_help="Check the whole store: logs, lists, leftovers, permissions.")
@maybe_task_argument
@store_command()
def doctor(given: Given, task: str | None, as_json: bool) -> Exit:
    """Check the store, or one task: that every log and blob is what was written, to the byte.

    Start here if something looks wrong. `holdfast verify` checks the logs alone, also against keys
    and earlier heads.

    It compares the index, which lists are made of, with the logs. It also looks for leftovers of
    crashes, wrong permissions, symlinks, and a filesystem that is not fit for locks. It only reads:
    it repairs and removes nothing, and says what you can do.

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
        facts = _facts_of(hf, root, logs)
    healthy = not any(finding.level == "damage" for finding in findings)
    if as_json:
        print_json({"healthy": healthy, **facts, "findings": findings})
    else:
        _print_findings(facts, findings)
    return Exit.OK if healthy else Exit.DAMAGED


def _check_task(hf: Holdfast, root: Path | None, logs: Logs, task: str) -> Iterator[Finding]:
    folder = root / "tasks" / safe_name(checked_id(task)) if root else None
    if folder is not None and folder.is_dir():
        yield from folders.check_names(folder.parents[1], folder)
    elif not may_be_there(hf.store, task):
        raise not_found(hf.store, task)
    yield from logs.check(stream_of(task))


def _check_all(hf: Holdfast, root: Path | None, logs: Logs) -> Iterator[Finding]:
    if root is None:
        for kind in KINDS:
            for stream in sorted(streams_in(hf.store, kind.prefix)):
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


def _facts_of(hf: Holdfast, root: Path | None, logs: Logs) -> dict[str, Any]:
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


def _print_findings(facts: dict[str, Any], findings: Iterable[Finding]) -> None:
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


# `holdfast keys`: make a key, or change that of an encrypted store.


@click.group(short_help="Make a key, or change the key of an encrypted store.")
def keys() -> None:
    """Keys to encrypt a store with (--key-file), or to sign its logs with (--sign-key-file).

    \b
    Examples:
      holdfast keys new > trips.key
      holdfast ls --key-file trips.key
      holdfast keys rotate --key-file trips.key --to new.key
    """


@keys.command()
def new() -> Exit:
    """Print a new key. Without it nobody can read what was encrypted with it: keep a copy.

    A file that it is written to is made readable by you alone.

    \b
    Examples:
      holdfast keys new > trips.key
    """
    _make_private(sys.stdout)
    click.echo(Keys.new())
    return Exit.OK


@keys.command()
@click.option(
    "--to",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="The file with the new key.  [default: the first key of the --key-file]",
)
@store_command()
def rotate(given: Given, to: str | None, as_json: bool) -> Exit:
    """Change the master key of an encrypted store. No log is rewritten, nothing has to stop.

    One line of the store is: the root key, which opens all others, closed with the new key. After
    that the old key opens the store no more. (It still opens copies of the store from before.)

    Where many processes use the store, first give all of them a key file with both keys, the new
    one on top; then run this; then drop the old one from the file.

    \b
    Examples:
      holdfast keys new > new.key
      holdfast keys rotate --key-file old.key --to new.key
    """
    must_exist(url := store_url(given))
    old = keys_of(given)
    if old is None:
        raise BadInput("say which key the store has now: --key-file FILE, or HOLDFAST_KEY")
    wanted = Keys.from_file(to) + old if to else old
    store = open_store(url)
    try:
        changed = rotate_keys(store, wanted)
    finally:
        store.close()
    if as_json:
        print_json({"key": wanted.ids[0], "changed": changed})
    else:
        done = "has now the key" if changed else "had already the key"
        print_lines(console(), f"{plain(url)} {done} {wanted.ids[0]}")
    return Exit.OK


def _make_private(stream: TextIO) -> None:
    """A file that a shell made for us is readable by all, as a rule."""
    with suppress(OSError, ValueError):  # then it is no file
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            system.make_private(stream.fileno())
