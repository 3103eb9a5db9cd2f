"""The arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, TypeVar, cast

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from holdfast.cli import opening
from holdfast.cli.settings import Given, Setting, remember
from holdfast.errors import HoldfastError

F = TypeVar("F", bound=Callable[..., Any])


class Imports(Struct, frozen=True):
    """The settings whose code a command imports: always, or only `when` it is given a parameter."""

    settings: tuple[Setting, ...] = ()
    when: str = ""


def imports(*settings: Setting, when: str = "") -> Callable[[F], F]:
    """Declare the settings whose code a command imports. Without this a command imports none.

    `opening` and `code` go by it, the reference page is made from it, and a test tries every
    command against it.
    """

    def declare(command: F) -> F:
        command.imports = Imports(settings, when)  # type: ignore[attr-defined]
        return command

    return declare


def imports_of(command: click.Command) -> Imports:
    """What a command declares."""
    return cast(Imports, getattr(command.callback, "imports", Imports()))


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


url_option = click.option(
    "--url",
    metavar="URL",
    expose_value=False,
    is_eager=True,
    callback=remember,
    help="The store: a folder, sqlite:///FILE or postgresql://…  "
    "[default: $HOLDFAST_URL, pyproject.toml, or workspace]",
)
app_option = click.option(
    "--app",
    metavar="MODULE[:ATTR]",
    multiple=True,
    expose_value=False,
    callback=remember,
    help="A module that defines tasks; may be repeated.  [default: $HOLDFAST_APP, pyproject.toml]",
)
debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=remember,
    help="On an error, show the Python traceback too.",
)
key_option = click.option(
    "--key-file",
    metavar="FILE",
    expose_value=False,
    is_eager=True,
    callback=remember,
    help="The key of an encrypted store.  [default: $HOLDFAST_KEY, $HOLDFAST_KEY_FILE]",
)
sign_key_option = click.option(
    "--sign-key-file",
    metavar="FILE",
    expose_value=False,
    is_eager=True,
    callback=remember,
    help="The key that logs are signed with.  [default: $HOLDFAST_SIGN_KEY, "
    "$HOLDFAST_SIGN_KEY_FILE]",
)
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, and nothing else, on standard output."
)


def store_options(command: F) -> F:
    """`--url`, `--debug` and the keys: for every command that opens a store."""
    return url_option(key_option(sign_key_option(debug_option(command))))


def code_options(command: F) -> F:
    """Those and `--app`: for every command that needs the tasks' code."""
    return app_option(store_options(command))


def _completed(ctx: click.Context, prefix: str, typed: str) -> list[CompletionItem]:
    """The ids that begin with what was typed. Whatever is wrong, the shell hears nothing of it."""
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


task_argument = click.argument("task", metavar="TASK", shell_complete=complete_task)
session_argument = click.argument("id", metavar="SESSION", shell_complete=complete_session)


def pairs(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    """`name=value` options as a dict."""
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{pair!r} is not of the form name=value", ctx, param)
        if name in found:
            raise click.BadParameter(f"{name!r} is given twice", ctx, param)
        found[name] = value
    return found


def numbers(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> dict[str, int]:
    """`name=number` options as a dict; a number is 1 or more."""
    found = {}
    for name, value in pairs(ctx, param, given).items():
        if not value.isascii() or not value.isdigit() or int(value) < 1:
            raise click.BadParameter(f"{name}={value}: {value!r} is not 1 or more", ctx, param)
        found[name] = int(value)
    return found


label_option = click.option(
    "--label",
    "labels",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs,
    help="A label; may be repeated.",
)
