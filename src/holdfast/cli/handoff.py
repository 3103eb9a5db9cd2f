"""`holdfast handoff`: what somebody needs to go on with a task, as two readable files."""

from __future__ import annotations

from pathlib import Path

import click

from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, folder_of, keys_of, opened, store_url
from holdfast.cli.options import json_option, pass_given, store_options, task_argument
from holdfast.cli.output import console, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.errors import BadInput
from holdfast.stores.workspace import way_to


@click.command(short_help="Write down what somebody needs to go on with a task.")
@task_argument
@click.option(
    "--dir",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where to write them.  [default: the task's own folder, in a store that is a folder]",
)
@click.option("--print", "prints", is_flag=True, help="Print the summary, and write nothing.")
@json_option
@store_options
@pass_given
def handoff(given: Given, task: str, folder: Path | None, prints: bool, as_json: bool) -> Exit:
    """Write SUMMARY.md and CHANGELOG.md of a task, from its log.

    The summary says where things stand, what was decided and why, what failed, what is next, and
    which files there are; the changelog says what each step changed. Whoever has the summary and
    the plan can go on. A version that somebody edited is kept beside the new one.

    \b
    Examples:
      holdfast handoff trip-42
      holdfast handoff trip-42 --dir handed-over
      holdfast handoff trip-42 --print | assistant "Go on with this."
    """
    from holdfast.workspace.handoff import handoff as write
    from holdfast.workspace.handoff import summary_text

    with opened(given) as hf:
        view = find_task(hf, task)
        if prints:
            if as_json:
                print_json({"id": task, "summary": summary_text(view)})
            else:
                click.echo(summary_text(view), nl=False)
            return Exit.OK
        written = write(hf, task, folder or _own_folder(given, task))
    if as_json:
        print_json({"id": task, "files": [str(path) for path in written]})
    else:
        for path in written:
            print_lines(console(), plain(str(path)))
    return Exit.OK


def _own_folder(given: Given, task: str) -> Path:
    url = store_url(given)
    root = folder_of(url)
    if root is None:
        raise BadInput(f"{url} is no folder, so there is no place for files: say where with --dir")
    if keys_of(given) is not None:
        raise BadInput(
            f"{url} is encrypted, and readable files in it would tell what it hides: say with "
            f"--dir where they may be"
        )
    return root / way_to(f"tasks/{task}")
