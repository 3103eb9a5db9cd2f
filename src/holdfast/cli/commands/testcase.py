"""`holdfast testcase`: a recorded run becomes a test that replays it."""

from __future__ import annotations

import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from pprint import pformat
from textwrap import indent

import click

from holdfast.api.app import Holdfast
from holdfast.cli.commands.stores import plain_option
from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, load_app, opened
from holdfast.cli.options import (
    store_command,
    task_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import plain
from holdfast.errors import BadInput
from holdfast.history.replay import Replayed
from holdfast.views.task import TaskView

_MOST_SHOWN = 2000

_TEST = '''\
"""A recorded run of {type}, replayed. Made by `holdfast testcase {id}`.

The code of the task runs over the log beside this file: no step or tool is called, and there is no
network. If it is meant to do something else from now on, make a test of a new run.
"""

from pathlib import Path

{imports}
from holdfast.testing import replay_recorded

LOG = Path(__file__).with_name({log_shown})


def test_{name}_does_what_it_did():
    replayed = replay_recorded(LOG, {task})
    assert replayed.same, replayed.summary()
    assert replayed.outcome == "{outcome}"
{more}'''


@click.command("testcase", short_help="Make a test of a recorded run.")
@task_argument
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("tests"),
    show_default=True,
    help="The folder to write to; it is made if it is not there.",
)
@click.option(
    "--force", is_flag=True, help="Replace the test that is there, or one that fails now."
)
@plain_option
@store_command("app", "redact", "secrets")
def make_testcase(
    given: Given, task: str, output: Path, force: bool, plain_text: bool, as_json: bool
) -> Exit:
    """Write a pytest file, and beside it the recorded log of a task, that replays the run.

    The test runs the task's code over that log, and fails if it calls something else, ends in
    another way, or knows something else on the way. It needs no store and no network: the log is an
    archive with all that belongs to the task. Redacted values are not in there either.

    The test imports the modules of --app, which pytest has to find (pythonpath in its settings, or
    python -m pytest).

    \b
    Examples:
      holdfast testcase trip-42 --app agents
      holdfast testcase trip-42 --app agents -o tests/replays
    """
    modules = load_app(given)
    if not modules:
        raise BadInput("the test has to import the code of the task: say where it is with --app")
    with opened(given) as hf:
        view = find_task(hf, task)
        name = _name(view.id)
        test, log = output / f"test_{name}.py", output / f"{name}.hfa"
        _must_be_free((test, log), force)
        with redirect_stdout(sys.stderr):
            found = hf.replay(view.id)
        if not found.same and not force:
            print_error(
                f"error: the code does not do what the log holds, so the test would fail: "
                f"{found.summary()}. Nothing was written (--force writes it all the same)"
            )
            return Exit.CODE
        _write(hf, view, found, test, log, modules, plain_text)
    if as_json:
        print_json({"test": str(test), "log": str(log), "same": found.same})
    else:
        print_lines(console(), f"wrote {plain(str(test))} and {plain(str(log))}")
    return Exit.OK


def _name(id: str) -> str:
    """The name of a task's test.

    >>> _name("Trip 42/b")
    'trip_42_b'
    """
    return re.sub(r"\W+", "_", id, flags=re.ASCII).strip("_").lower()[:80] or "task"


def _must_be_free(paths: tuple[Path, ...], force: bool) -> None:
    there = [path for path in paths if path.exists()]
    if there and not force:
        raise BadInput(
            f"{' and '.join(map(str, there))} {'is' if len(there) == 1 else 'are'} there already: "
            f"say --force to replace, or -o DIR for another folder. Nothing was written"
        )


def _write(
    hf: Holdfast,
    view: TaskView,
    found: Replayed,
    test: Path,
    log: Path,
    modules: tuple[str, ...],
    plain_text: bool,
) -> None:
    test.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    hf.archive_to(log, view.id, plain=plain_text)
    names = sorted({module.partition(":")[0] for module in modules})
    text = _TEST.format(
        type=view.type,
        id=_in_docstring(view.id),
        imports="\n".join(f"import {name}  # noqa: F401 (the code of the task)" for name in names),
        name=_name(view.id),
        log_shown=_quoted(log.name),
        task=_quoted(view.id),
        outcome=found.recorded,
        more=_more(found, view),
    )
    test.write_text(text, encoding="utf-8")


def _in_docstring(id: str) -> str:
    return id if re.fullmatch(r"[\w. -]+", id) else repr(id)[1:-1].replace('"', "'")


def _quoted(text: str) -> str:
    """A text as Python, in double quotes where that needs no more than the others.

    >>> print(_quoted("it's"), _quoted('say "hi"'))
    "it's" 'say "hi"'
    """
    shown = repr(text)
    return f'"{shown[1:-1]}"' if shown.startswith("'") and '"' not in shown else shown


def _more(found: Replayed, view: TaskView) -> str:
    """The test's lines about the end, where it is short enough to read."""
    if found.recorded == "completed":
        result = view.result
        shown = (
            _quoted(result)
            if isinstance(result, str)
            else pformat(result, width=80, sort_dicts=False)
        )
        if len(shown) > _MOST_SHOWN:
            return ""
        if "\n" not in shown:
            return f"    assert replayed.result == {shown}\n"
        return f"    assert replayed.result == (\n{indent(shown, ' ' * 8)}\n    )\n"
    if found.recorded == "failed" and view.failure is not None:
        return f"    assert replayed.failure == {_quoted(view.failure.summary())}\n"
    return ""
