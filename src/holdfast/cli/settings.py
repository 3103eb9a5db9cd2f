"""The options of the command line itself. `holdfast.api.settings` has the settings behind them."""

from __future__ import annotations

from typing import Any

import click

from holdfast.api.settings import Settings


class Given(Settings):
    """The options of a command, before or after its name."""

    debug: bool = False
    json: bool = False


def remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep an option's value where every part of a command finds it."""
    # The same option may stand before and after the command's name; the later one counts.
    if value:
        setattr(ctx.ensure_object(Given), str(param.name), value)
