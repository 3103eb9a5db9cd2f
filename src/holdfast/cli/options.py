"""The arguments and options that several commands share, and the one decorator of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import update_wrapper, wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast, get_args

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from holdfast.api.settings import Setting
from holdfast.cli import opening
from holdfast.cli.arguments import when
from holdfast.cli.settings import Given, remember
from holdfast.codec import from_outside
from holdfast.core.decoding import Illegible, decode
from holdfast.core.state import Status
from holdfast.errors import HoldfastError
from holdfast.log.places import When

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast
    from holdfast.history.snapshots import Snapshot
    from holdfast.stores.listing import Filters

F = TypeVar("F", bound=Callable[..., Any])


class Imports(Struct, frozen=True):
    """The settings whose code a command imports: always, or only `when` it is given a parameter."""

    settings: tuple[Setting, ...] = ()
    when: str = ""


def imports_of(command: click.Command) -> Imports:
    """The declarations of a command."""
    return cast(Imports, getattr(command.callback, "imports", Imports()))


def store_command(
    *imports: Setting, when: str = "", engine: bool = False, json: bool = True
) -> Callable[[F], F]:
    """The options of every command that opens a store: `--json`, `--url`, keys, `--debug`, `given`.

    `imports` are the settings whose code the command imports; without any it imports none.
    `opening` and `code` go by it, the reference page is made from it, and a test tries every
    command against it. A command that imports `app` has the option `--app`, too.
    """

    def decorate(command: F) -> F:
        command.imports = Imports(imports, when)  # type: ignore[attr-defined]
        command = store_options(pass_given(command))
        command = app_option(command) if "app" in imports else command
        command = _engine_options(command) if engine else command
        return json_option(command) if json else command

    return decorate


def pass_given(command: F) -> F:
    """Hand a command what the command line said, and what code it may import."""

    def with_given(*args: Any, **words: Any) -> Any:
        context = click.get_current_context()
        given = context.ensure_object(Given)
        declared = imports_of(context.command)
        if not declared.when or context.params[declared.when] is not None:
            given.imports = declared.settings
        return context.invoke(command, given, *args, **words)

    return cast(F, update_wrapper(with_given, command))


def stacked(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Several options as one decorator, in the order in which help shows them."""

    def decorate(command: F) -> F:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def _remembered(name: str, help: str, **more: Any) -> Callable[[F], F]:
    return click.option(name, expose_value=False, callback=remember, help=help, **more)


url_option: Final = _remembered(
    "--url",
    "The store: a folder, sqlite:///FILE or postgresql://…  "
    "[default: $HOLDFAST_URL, pyproject.toml, or workspace]",
    metavar="URL",
    is_eager=True,
)
_ENGINE = {
    "engine": "What drives the tasks: local, temporal, restate or MODULE:ATTR.  "
    "[default: $HOLDFAST_ENGINE, pyproject.toml, or local]",
    "address": "Where the engine is: HOST:PORT of Temporal, the URL of Restate.",
    "namespace": "Temporal: the namespace.",
    "queue": "Temporal: the task queue.",
    "admin": "Restate: the URL of its admin API.",
    "listen": "Restate: where a worker listens for it.",
}
_METAVARS = {"address": "ADDRESS", "admin": "URL", "listen": "HOST:PORT"}
_engine_options = stacked(
    *(
        _remembered(f"--{name}", _ENGINE[name], metavar=_METAVARS.get(name, "NAME"))
        for name in _ENGINE
    ),
    _remembered("--tls", "Temporal: use TLS.", is_flag=True),
)
"""`--engine` and where it is: for every command that drives tasks."""
app_option: Final = _remembered(
    "--app",
    "A module that defines tasks; may be repeated.  [default: $HOLDFAST_APP, pyproject.toml]",
    metavar="MODULE[:ATTR]",
    multiple=True,
)
debug_option: Final = _remembered(
    "--debug", "On an error, show the Python traceback too.", is_flag=True
)
key_option: Final = _remembered(
    "--key-file",
    "The key of an encrypted store.  [default: $HOLDFAST_KEY, $HOLDFAST_KEY_FILE]",
    metavar="FILE",
    is_eager=True,
)
sign_key_option: Final = _remembered(
    "--sign-key-file",
    "The key that logs are signed with.  [default: $HOLDFAST_SIGN_KEY, $HOLDFAST_SIGN_KEY_FILE]",
    metavar="FILE",
    is_eager=True,
)
json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output."
)
full_option: Final = click.option("--full", is_flag=True, help="Cut nothing, however long it is.")
because_option: Final = click.option(
    "--because", default="", metavar="TEXT", help="Why, for the log."
)


def login_name() -> str:
    """The person at this terminal, for the log: else it would name a process."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # Windows has no module `pwd` to ask
        return ""


def by_option_saying(help: str) -> Callable[[Any], Any]:
    """`--by`, which is your login name if you say none."""
    help = f"{help} Else your login name."
    return click.option("--by", default=login_name, metavar="NAME", help=help)


by_option: Final = by_option_saying("Who says so, for the log.")
type_option: Final = click.option(
    "--type", "kind", metavar="NAME", help="Only runs of this task function."
)

store_options: Final = stacked(url_option, key_option, sign_key_option, debug_option)


def limit_option(default: int, help: str = "The length of a page.") -> Callable[[F], F]:
    """`--limit N`, at most as long as a page may be."""
    from holdfast.stores.port import LONGEST_PAGE

    length = click.IntRange(1, LONGEST_PAGE)
    return click.option(
        "--limit", type=length, default=default, show_default=True, metavar="N", help=help
    )


cursor_option: Final = click.option("--cursor", metavar="CURSOR", help="The page after this place.")


def _completed(ctx: click.Context, prefix: str, typed: str) -> list[CompletionItem]:
    """The ids that begin with what was typed. The shell hears nothing of an error."""
    try:
        with opening.opened(ctx.ensure_object(Given)) as hf:
            ids = opening.ids_of(hf.store, prefix)
            return [CompletionItem(id) for id in ids if id.startswith(typed) and id.isprintable()]
    except (HoldfastError, OSError):
        return []


def complete_task(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """The ids of tasks."""
    return _completed(ctx, "tasks/", typed)


def complete_session(
    ctx: click.Context, param: click.Parameter, typed: str
) -> list[CompletionItem]:
    """The ids of sessions."""
    return _completed(ctx, "sessions/", typed)


task_argument: Final = click.argument("task", metavar="TASK", shell_complete=complete_task)
maybe_task_argument: Final = click.argument(
    "task", metavar="[TASK]", required=False, shell_complete=complete_task
)
tasks_argument: Final = click.argument(
    "tasks", metavar="[TASK]...", nargs=-1, shell_complete=complete_task
)
session_argument: Final = click.argument("id", metavar="SESSION", shell_complete=complete_session)


def pairs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`name=value` options as a dict."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            form = param.metavar if param.metavar == "NAME=JSON" else "name=value"
            raise click.BadParameter(f"{pair!r} is not of the form {form}", ctx, param)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx, param)
        found[name] = value
    return found


def values(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    """`NAME=JSON` options as a dict, for `Shape.given`."""
    found = {}
    for name, text in pairs(ctx, param, given).items():
        try:
            found[name] = from_outside(decode(text.encode()))
        except (Illegible, UnicodeError) as error:
            raise click.BadParameter(
                f"{name}={text}: that is no JSON ({error}). A text needs quotes inside quotes, "
                f"'\"like this\"'",
                ctx,
                param,
            ) from None
    return found


def numbers(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """`name=number` options as a dict; a number is 1 or more."""
    found = {}
    for name, value in pairs(ctx, param, given).items():
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise click.BadParameter(f"{name}={value}: {value!r} is not 1 or more", ctx, param)
        found[name] = int(value)
    return found


label_option: Final = click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="A label; may be repeated.",
)
stub_option: Final = click.option(
    "--stub",
    "stubs",
    metavar="NAME=JSON",
    multiple=True,
    callback=values,
    help="What a step or tool returns without being called; may be repeated.",
)


# The options by which tasks are found, for every command that goes through many of them.


def _status_option(name: str, help: str, **more: Any) -> Callable[[F], F]:
    return click.option("--status", name, type=click.Choice(get_args(Status)), help=help, **more)


_user_option = click.option("--user", help="Only tasks of this user.")
_session_option = click.option("--session", help="Only the tasks of a session.")

find_options: Final = stacked(
    _status_option(
        "statuses", "Only tasks in this status; may be repeated, for any of them.", multiple=True
    ),
    type_option,
    _user_option,
    _session_option,
    click.option("--parent", metavar="TASK", help="Only the children of a task."),
    click.option("--origin", metavar="TASK", help="Only the forks of a task."),
    label_option,
    click.option(
        "--since", metavar="WHEN", callback=when, help="Only tasks made since: 7d, a date."
    ),
    click.option("--until", metavar="WHEN", callback=when, help="Only tasks made before that."),
)
"""`--status`, `--type`, `--user`, …: what `found_by` takes."""

filter_options: Final = stacked(
    _status_option("status", "Only tasks in this status."),
    type_option,
    _user_option,
    _session_option,
    label_option,
)
"""The same for commands that take tasks by name as well: what `meant` takes."""


def found_by(
    statuses: tuple[str, ...],
    kind: str | None,
    since: datetime | None,
    until: datetime | None,
    **same: Any,
) -> Filters:
    """The filters as `Holdfast.page` takes them."""
    found = {"status": statuses or None, "type": kind, **same}
    return cast("Filters", {**found, "created_after": since, "created_before": until})


def meant(tasks: tuple[str, ...], kind: str | None, labels: Any, **same: Any) -> dict[str, Any]:
    """The options as arguments of `Holdfast.copy_to` and its like."""
    return {"ids": tasks or None, "type": kind, "labels": labels or None, **same}


# How a place in a task's past is named on the command line: by a step, or by an event.


class At(Struct, frozen=True):
    """A place as it was named."""

    step: str | None = None
    when: When | None = None
    seq: int | None = None

    def of(self, hf: Holdfast, task: str) -> Snapshot:
        """The snapshot of a task there; at its end, if no place was named."""
        return hf.snapshot(task, self.step, self.when, seq=self.seq)

    def named(self, name: str) -> Mapping[str, Any]:
        """The place as arguments, with `name` for the one that takes the step."""
        if self.step is None and self.seq is None:
            raise click.UsageError(f"say where: --{name} STEP, or --event N")
        return {name: self.step, "when": self.when, "seq": self.seq}


def place_options(name: str, what: str) -> Callable[[F], F]:
    """`--step 6 --before` and `--event 61`, with `name` for the option that takes the step.

    The command is given the place that they name as `place`.
    """
    return stacked(
        click.option(name, "step", metavar="STEP", help=f"{what}: a step, by its path."),
        click.option("--before", "is_before", is_flag=True, help="… before it (the default)."),
        click.option("--after", "is_after", is_flag=True, help="… after that step."),
        click.option("--event", "seq", type=int, metavar="N", help=f"{what}: after event N."),
        _with_place,
    )


def _with_place(command: F) -> F:
    @wraps(command)
    def with_place(
        *args: Any, step: str | None, is_before: bool, is_after: bool, seq: int | None, **words: Any
    ) -> Any:
        return command(*args, place=_place(step, is_before, is_after, seq), **words)

    return with_place  # type: ignore[return-value]


def _place(step: str | None, is_before: bool, is_after: bool, seq: int | None) -> At:
    if is_before and is_after:
        raise click.UsageError("say either --before or --after")
    if step is not None and seq is not None:
        raise click.UsageError("say either a step or --event, not both")
    if step is None and (is_before or is_after):
        raise click.UsageError("--before and --after go with a step: say which")
    return At(step, "after" if is_after else "before" if is_before else None, seq)


def place_of_word(word: str) -> At:
    """A place as one word: `6`, `before:6`, `after:6`, `event:61` or `end`.

    >>> place_of_word("after:6")
    At(step='6', when='after', seq=None)
    """
    if word == "end":
        return At()
    kind, colon, rest = word.partition(":")
    if not colon:
        return At(word)
    if kind == "event" and rest.isdigit():
        return At(seq=int(rest))
    if kind in ("before", "after") and rest:
        return At(rest, kind)  # type: ignore[arg-type]
    raise click.UsageError(
        f"{word!r} is no place: say a step (6), before:6, after:6, event:61 or end"
    )
