"""`holdfast verify` and `holdfast head`: is every log what was written, and all of it?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from msgspec.structs import asdict
from rich.progress import Progress as Bar
from rich.text import Text

from holdfast.cli.exits import Exit, print_error
from holdfast.cli.opening import is_there, not_found, opened
from holdfast.cli.options import complete_task, json_option, pass_given, store_options
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import counts, plain
from holdfast.core.decoding import Illegible, decode
from holdfast.errors import BadInput, StoreError
from holdfast.log.reading import stream_of
from holdfast.log.verify import Head, Progress, Verified, heads
from holdfast.log.verify import verify as verify_logs
from holdfast.stores.port import Store

tasks_argument = click.argument("tasks", metavar="[TASK]…", nargs=-1, shell_complete=complete_task)


@click.command(short_help="Check that no log was changed or cut.")
@tasks_argument
@click.option(
    "--against",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `holdfast head` printed at an earlier time: also shows what was cut off since.",
)
@json_option
@store_options
@pass_given
def verify(given: Given, tasks: tuple[str, ...], against: Path | None, as_json: bool) -> Exit:
    """Check tasks, or all logs: every event, the chain of sums, and every blob they name.

    All logs are those of tasks, sessions and memories.

    The sums show damage, and changes by somebody who did not compute them anew. With the key of an
    encrypted store (--key-file) or of a signed one (--sign-key-file) a change by anybody without
    that key shows. A log that was cut short shows only against a head that was noted before.

    For each log the first event that is wrong is named. The exit code is 4 if there is one.

    \b
    Examples:
      holdfast verify
      holdfast verify trip-42 --sign-key-file sign.key
      holdfast head > heads.json              kept where nobody who writes the store can
      holdfast verify --against heads.json
    """
    noted = read_heads(against) if against else []
    with opened(given) as hf:
        for task in tasks:
            if not may_be_there(hf.store, task) and all(
                head.stream != stream_of(task) for head in noted
            ):
                raise not_found(hf.store, task)
        with _progress() as progress:
            found = verify_logs(hf.store, tasks, noted, progress)
    if as_json:
        print_json({"sound": found.sound, **asdict(found)})
    else:
        _print(found)
    return Exit.OK if found.sound else Exit.DAMAGED


@click.command(short_help="Print how far each log goes, to verify against later.")
@tasks_argument
@json_option
@store_options
@pass_given
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
        for task in tasks:
            if not is_there(hf.store, task):
                raise not_found(hf.store, task)
        unreadable: list[StoreError] = []
        print_json(heads(hf.store, tasks, None if tasks else unreadable))
    for error in unreadable:
        print_error(f"warning: {error}")
    return Exit.DAMAGED if unreadable else Exit.OK


def may_be_there(store: Store, task: str) -> bool:
    """Whether there is a log of the task, be it one that can't be read."""
    try:
        return is_there(store, task)
    except StoreError:
        return True


def read_heads(path: Path) -> list[Head]:
    """What `holdfast head` printed into a file."""
    try:
        return decode(path.read_bytes(), list[Head])
    except (OSError, Illegible) as error:
        raise BadInput(f"{path} is not what `holdfast head` prints: {error}") from None


@contextmanager
def _progress() -> Iterator[Progress]:
    """How far it is, for who looks at a terminal."""
    out = console(stderr=True)
    if not out.is_terminal:
        yield lambda done, of: None
        return
    with Bar(console=out, transient=True) as bar:
        shown = bar.add_task("checking logs", total=None)
        yield lambda done, of: bar.update(shown, completed=done, total=of)


def _print(found: Verified) -> None:
    out = console()
    for damage in found.damage:
        event = f", event {damage.seq}" if damage.seq else ""
        print_lines(out, Text.assemble((plain(damage.name), "bold red"), event))
        print_lines(out, f"  {plain(damage.what)}")
    read = ", ".join(counts(asdict(found)))
    result = ("as it was written", "green") if found.sound else ("damage found", "bold red")
    print_lines(out, Text.assemble(f"{read} checked: ", result))
