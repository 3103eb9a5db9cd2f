"""The engine that a command was given: to drive tasks, or to be told of messages for them.

`holdfast.api.settings` has the table of options, variables and settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.api import settings
from holdfast.cli.exits import print_error
from holdfast.cli.settings import Given, remember
from holdfast.engines.routing import LOCAL
from holdfast.errors import BadInput

if TYPE_CHECKING:
    from holdfast.engines.port import Engine

F = TypeVar("F", bound=Callable[..., Any])

_HELP = {
    "engine": "What drives the tasks: local, temporal, restate or MODULE:ATTR.  "
    "[default: $HOLDFAST_ENGINE, pyproject.toml, or local]",
    "address": "Where the engine is: HOST:PORT of Temporal, the URL of Restate.",
    "namespace": "Temporal: the namespace.",
    "queue": "Temporal: the task queue.",
    "admin": "Restate: the URL of its admin API.",
    "listen": "Restate: where a worker listens for it.",
}
_METAVARS = {"address": "ADDRESS", "admin": "URL", "listen": "HOST:PORT"}


def engine_options(command: F) -> F:
    """`--engine` and where it is: for every command that drives tasks."""
    tls = click.option(
        "--tls", is_flag=True, expose_value=False, callback=remember, help="Temporal: use TLS."
    )
    command = tls(command)
    for name in reversed(_HELP):
        command = click.option(
            f"--{name}",
            metavar=_METAVARS.get(name, "NAME"),
            expose_value=False,
            callback=remember,
            help=_HELP[name],
        )(command)
    return command


def engine_of(given: Given) -> Engine | None:
    """The engine that the command was given; None for the local one."""
    must_suit(given)
    return settings.engine_of(given, print_error)


def must_suit(given: Given) -> None:
    """Refuse an option of another engine than the one that is meant.

    What stands on the command line is meant; the environment may hold more than is needed.
    """
    name = settings.engine_settings(given, os.environ, Path.cwd())["name"]
    suits = settings.TAKES.get(name, ())
    for option in ("address", "namespace", "queue", "tls", "admin", "listen"):
        if getattr(given, option) and option not in suits:
            takers = (each for each, taken in settings.TAKES.items() if option in taken)
            engines = " or ".join(f"--engine {each}" for each in takers)
            raise BadInput(f"--{option} goes with {engines}, not with {name or LOCAL}")
