"""The engine that a command was given: to drive tasks, or to be told of messages for them.

    option              environment               [tool.holdfast.engine]    for
    --engine NAME       HOLDFAST_ENGINE           name = "…"
    --address …         HOLDFAST_ENGINE_ADDRESS   address = "…"             temporal, restate
    --namespace NAME    HOLDFAST_ENGINE_NAMESPACE namespace = "…"           temporal
    --queue NAME        HOLDFAST_ENGINE_QUEUE     queue = "…"               temporal
    --tls               HOLDFAST_ENGINE_TLS=1     tls = "1"                 temporal
                        HOLDFAST_ENGINE_API_KEY                             temporal
    --admin URL         HOLDFAST_ENGINE_ADMIN     admin = "…"               restate
    --listen HOST:PORT  HOLDFAST_ENGINE_LISTEN    listen = "…"              restate

`engine = "temporal"` is short for a table with a name only. Instead of a name one may write
MODULE:ATTR, an engine of one's own or a function that makes one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from holdfast.cli.code import load_named
from holdfast.cli.settings import Given, engine_settings, remember
from holdfast.engines.elsewhere import LOCAL
from holdfast.engines.port import Engine
from holdfast.errors import BadInput

F = TypeVar("F", bound=Callable[..., Any])

_TAKES = {
    "temporal": ("address", "namespace", "queue", "tls", "api_key"),
    "restate": ("address", "admin", "listen"),
}

_HELP = {
    "engine": "What drives the tasks: local, temporal, restate or MODULE:ATTR.  "
    "[default: $HOLDFAST_ENGINE, pyproject.toml, or local]",
    "address": "Where the engine is: HOST:PORT of Temporal, the URL of Restate.",
    "namespace": "Temporal: the namespace.",
    "queue": "Temporal: the task queue.",
    "admin": "Restate: the URL of its admin API.",
    "listen": "Restate: where a worker listens for it.",
}
_METAVARS = {
    "engine": "NAME",
    "address": "ADDRESS",
    "namespace": "NAME",
    "queue": "NAME",
    "admin": "URL",
    "listen": "HOST:PORT",
}


def engine_options(command: F) -> F:
    """`--engine` and where it is: for every command that drives tasks."""
    tls = click.option(
        "--tls", is_flag=True, expose_value=False, callback=remember, help="Temporal: use TLS."
    )
    command = tls(command)
    for name in reversed(_HELP):
        command = click.option(
            f"--{name}",
            metavar=_METAVARS[name],
            expose_value=False,
            callback=remember,
            help=_HELP[name],
        )(command)
    return command


def engine_of(given: Given) -> Engine | None:
    """The engine that the command was given; None for the local one."""
    settings = engine_settings(given, os.environ, Path.cwd())
    name = settings.pop("name", "")
    _must_suit(given, name)
    if name in ("", LOCAL):
        return None
    if ":" in name:
        return _own(name, load_named("engine", given))
    if name not in _TAKES:
        raise BadInput(
            f"--engine {name}: there are local, temporal and restate, or write MODULE:ATTR for "
            f"one of your own"
        )
    return _made(name, settings)


def _must_suit(given: Given, name: str) -> None:
    """What stands on the command line is meant; the environment may hold more than is needed."""
    suits = _TAKES.get(name, ())
    for option in ("address", "namespace", "queue", "tls", "admin", "listen"):
        if getattr(given, option) and option not in suits:
            engines = " or ".join(f"--engine {each}" for each in _TAKES if option in _TAKES[each])
            raise BadInput(f"--{option} goes with {engines}, not with {name or LOCAL}")


def _own(where: str, named: Sequence[Any]) -> Engine:
    (found,) = named
    engine: Engine = found() if callable(found) else found
    if not isinstance(getattr(engine, "name", None), str) or not hasattr(engine, "start"):
        raise BadInput(f"--engine {where}: that is no engine, but {engine!r:.80}")
    return engine


def _made(name: str, settings: Mapping[str, str]) -> Engine:
    taken: dict[str, Any] = {each: settings[each] for each in _TAKES[name] if each in settings}
    if "tls" in taken:
        taken["tls"] = taken["tls"].lower() in ("1", "true", "yes", "on")
    where = [taken.pop("address")] if "address" in taken else []
    import holdfast

    try:
        engine: Engine = getattr(holdfast, name.capitalize())(*where, **taken)
    except ModuleNotFoundError as error:
        raise BadInput(f"--engine {name}: {error}") from None
    return engine
