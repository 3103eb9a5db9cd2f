"""The reference page of the command line, made from the help texts.

python -m holdfast.cli.reference > docs/reference/cli.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from holdfast.cli.root import root

HEAD = """\
# The command line

It needs click and rich: install holdfast with its extra `cli`, or `pip install click rich`. It can
also be called as `python -m holdfast`. This page is made from the help texts by
`python -m holdfast.cli.reference > docs/reference/cli.md`; change those, not this.
"""


def reference() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(name, text) for name, text in _helps())])


def _helps() -> Iterator[tuple[str, str]]:
    # A width of its own: the page must not depend on the terminal it is made in.
    top = click.Context(root, info_name="holdfast", terminal_width=80, **root.context_settings)
    yield "holdfast", root.get_help(top)
    for name, command in root.commands.items():
        context = click.Context(command, parent=top, info_name=name, terminal_width=80)
        yield f"holdfast {name}", command.get_help(context)
        for inner, nested in getattr(command, "commands", {}).items():
            context_of_it = click.Context(nested, context, info_name=inner, terminal_width=80)
            yield f"holdfast {name} {inner}", nested.get_help(context_of_it)


def _section(name: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return f"## `{name}`\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
