"""`holdfast init`, `next` and `loop`: a mission, worked off an item at a time by any agent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from holdfast.api.app import Holdfast
from holdfast.api.settings import load, look_in
from holdfast.cli.exits import Exit
from holdfast.cli.opening import find_task, folder_of, keys_of, opened, store_url
from holdfast.cli.options import (
    stacked,
    store_command,
    task_argument,
)
from holdfast.cli.output import console, print_error, print_json, print_lines
from holdfast.cli.settings import Given
from holdfast.cli.text import count, plain
from holdfast.core.state import FINISHED
from holdfast.errors import BadInput
from holdfast.stores.files.folder import way_to
from holdfast.workspace.harness import BUDGET_TOKENS, Agent, Means, Next, init, loop, next_item
from holdfast.workspace.projecting import task_folder

MISSION_VARIABLE = "HOLDFAST_MISSION"
AGENT_VARIABLE = "HOLDFAST_AGENT"

EXITS: dict[str, Exit] = {
    "planned": Exit.OK,
    "did": Exit.OK,
    "done": Exit.ALL_DONE,
    "nothing": Exit.NOTHING_READY,
    "blocked": Exit.BLOCKED,
    "failed": Exit.TASK_FAILED,
}


harness_options: Final = stacked(
    click.option(
        "--mission", metavar="ID", envvar=MISSION_VARIABLE, show_envvar=True,
        help="Which mission. May be left out while only one is open.",
    ),
    click.option(
        "--agent", metavar="COMMAND", envvar=AGENT_VARIABLE, show_envvar=True,
        help="The agent: a command that reads the prompt on its standard input, or from "
        "the file that {prompt_file} stands for; or MODULE:FUNCTION with --python.",
    ),
    click.option(
        "--python", "is_python", is_flag=True, help="The agent is a Python function."
    ),
    click.option(
        "--dir", "folder", metavar="FOLDER", default=".",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Where the agent works (the current folder).",
    ),
    click.option(
        "--budget", "budget_tokens", type=click.IntRange(min=500), default=BUDGET_TOKENS,
        show_default=True, metavar="TOKENS", help="How long the prompt may be.",
    ),
    click.option(
        "--files", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
        help="Where the readable files are (as for `holdfast mirror`), whose edits count. "
        "For a store that is a folder: there.",
    ),
    click.option(
        "--git", is_flag=True,
        help="After each item, commit what it changed to the git repository of the folder.",
    ),
    click.option(
        "--timeout", "timeout_s", type=click.FloatRange(min=0, min_open=True),
        metavar="SECONDS", help="Stop an agent that takes longer for one item.",
    ),
)  # fmt: skip
"""The options that `next` and `loop` have in common."""


@click.command(name="init", short_help="Make a mission for agents to work off.")
@click.argument("text")
@click.option("--id", "id", metavar="ID", help="Its id; one is made up otherwise.")
@click.option("--user", default="", help="Whose it is.")
@store_command("redact")
def init_mission(given: Given, text: str, id: str | None, user: str, as_json: bool) -> Exit:
    """Make a mission: what is to be done, in your words. Prints its id.

    Its first job is to write the plan, which `holdfast next` has an agent do. With - the text is
    read from standard input. With the --id of a mission that exists it is that one.

    \b
    Examples:
      holdfast init "Refactor the five modules to use the new client"
      holdfast init - --id refactor < mission.md
    """
    words = _read_text() if text == "-" else text
    with opened(given, create=True) as hf:
        made = init(hf, words, id=id, user=user)
        if as_json:
            print_json({"id": made})
        else:
            print_lines(console(), plain(made))
            print_error("next: holdfast next --agent 'COMMAND'")
    return Exit.OK


@click.command(name="next", short_help="Have an agent do the next item of a mission, and exit.")
@harness_options
@click.option("--retry", is_flag=True, help="Try items again that failed.")
@store_command("redact")
def next_(given: Given, /, mission: str | None, retry: bool, as_json: bool, **words: Any) -> Exit:
    """Look at where a mission stands, have the agent do the next item, record it, and exit.

    The agent is told everything in its prompt: the mission, the plan, what is done, its one item.
    Any number of these may run at once: each takes another item, and that of one that died is
    taken over. The exit code says what is left: 0 an item was done (or the plan was written) and
    there may be more; 10 everything is done; 11 nothing can be begun just now, others are at work;
    12 only failed items and what waits for them are left; 1 the item failed.

    \b
    Examples:
      holdfast next --agent 'assistant -p'
      while holdfast next --agent './agent.sh {prompt_file}'; do :; done
    """
    with opened(given) as hf:
        id = _mission(hf, mission)
        came = next_item(hf, id, _means(hf, id, **words), retry=retry)
        _show(came, as_json)
    return EXITS[came.what]


@click.command(name="loop", short_help="Have an agent work off a mission, item by item.")
@harness_options
@click.option("--items", "most_items", type=click.IntRange(min=1), metavar="N", help="At most N.")
@click.option(
    "--minutes", type=click.FloatRange(min=0, min_open=True), metavar="M",
    help="Begin no item after so long.",
)  # fmt: skip
@click.option(
    "--retries", type=click.IntRange(min=0), default=0, show_default=True, metavar="N",
    help="Try failed items again, so often in all.",
)  # fmt: skip
@store_command("redact")
def loop_(
    given: Given, /, mission: str | None, most_items: int | None, minutes: float | None,
    retries: int, as_json: bool, **words: Any,
) -> Exit:  # fmt: skip
    """`holdfast next`, again and again, until nothing is left or a limit is reached.

    The exit code is that of the last `next`. Stop it at any time: the next one does the interrupted
    item again.

    \b
    Examples:
      holdfast loop --agent 'assistant -p' --items 10
      holdfast loop --agent './agent.sh' --minutes 60 --retries 2
    """
    with opened(given) as hf:
        id = _mission(hf, mission)
        came = loop(
            hf, id, _means(hf, id, **words), most_items=most_items,
            most_s=None if minutes is None else 60 * minutes, retries=retries,
            told=lambda each: _show(each, as_json),
        )  # fmt: skip
    return EXITS[came.what]


def _read_text() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"the mission on standard input is not UTF-8: {error}") from None


def _mission(hf: Holdfast, id: str | None) -> str:
    if id:
        return id
    page = hf.page(type="mission", limit=1000)
    found = [record.id for record in page.tasks if record.status not in FINISHED]
    if page.unreadable:  # it may be the one that is meant
        raise page.unreadable[0]
    if len(found) == 1:
        return found[0]
    if not found and page.tasks:
        return page.tasks[0].id  # the newest, which is done
    what = "several are open" if found else "there is none"
    hint = ", ".join(sorted(found)[:5]) or 'make one: holdfast init "what is to be done"'
    raise BadInput(f"which mission? {what} in {hf.store.url}: --mission ID ({hint})")


def _means(
    hf: Holdfast, id: str, *, agent: str | None, is_python: bool, folder: Path,
    budget_tokens: int, timeout_s: float | None, git: bool, files: Path | None,
) -> Means:  # fmt: skip
    if not agent:
        raise BadInput(
            f"which agent? Give a command: --agent 'assistant -p' (or set {AGENT_VARIABLE})"
        )
    found: Agent = _function(agent) if is_python else agent
    root = getattr(hf.store, "root", None)
    if not isinstance(root, Path):
        path = getattr(hf.store, "path", None)
        beside = _database_files(path) if isinstance(path, Path) else ()
    else:
        files, beside = files or root, (root.resolve(),)
    of_mission = None if files is None else task_folder(files.resolve(), id)
    beside = beside if files is None else (*beside, files.resolve())
    return Means(found, folder.resolve(), budget_tokens, timeout_s, beside, of_mission, git)


def _database_files(path: Path) -> tuple[Path, ...]:
    path = path.resolve()
    return tuple(path.with_name(path.name + end) for end in ("", "-wal", "-shm", "-journal"))


def _function(name: str) -> Callable[[str], Any]:
    look_in(Path.cwd())
    fn = load(name)
    if ":" not in name or not callable(fn):
        raise BadInput(f"--agent {name!r:.60} --python: name a function, as in agents:work")
    made: Callable[[str], Any] = fn
    return made


def _show(came: Next, as_json: bool) -> None:
    for problem in came.problems:
        print_error(problem)
    if as_json:
        print_json(msgspec.to_builtins(came))
        return
    left = f"{count(came.left, 'item')} left" if came.left else "nothing left"
    words = {
        "planned": "the plan is written",
        "did": f"done: {came.item}. {came.text}",
        "failed": f"failed: {came.item}. {came.text}: {came.said}",
        "nothing": "nothing can be begun just now: others are at work",
        "blocked": f"blocked: {came.item}. {came.text} failed (--retry tries it again)",
        "done": "everything is done",
    }[came.what]
    print_lines(console(), plain(f"{words} ({left})".partition("\n")[0]))


# `holdfast handoff`: what somebody needs to go on with a task, as two readable files.


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
@store_command()
def handoff(given: Given, task: str, folder: Path | None, prints: bool, as_json: bool) -> Exit:
    """Write SUMMARY.md and CHANGELOG.md of a task, from its log.

    The summary says where things stand, what was decided and why, what failed, what is next, and
    which files there are; the changelog says what each step changed. A reader of the
    summary and the plan can go on. An edited version is kept beside the new one.

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
