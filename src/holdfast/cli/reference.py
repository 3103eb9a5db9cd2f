"""The reference page of the command line, made from the help texts.

python -m holdfast.cli.reference > docs/reference/cli.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import click

from holdfast.cli.options import imports_of
from holdfast.cli.root import root

HEAD = """\
# The command line

`pip install holdfast` brings it. It can also be called as `python -m holdfast`. This page is made
from the help texts by `python -m holdfast.cli.reference > docs/reference/cli.md`; change those, not
this.

## Which commands import your code

Four settings name code: `app`, `redact`, `secrets` and `engine` (where it is a MODULE:ATTR). A
command imports the code of the settings that this table names, and no other. A command that is not
in the table imports none. Code that an argument names (`holdfast run MODULE:FUNCTION`) is imported
too.

{table}
Values are redacted when they are written: reading needs no code for that, and shows no more than
the log holds. Commands that write import `redact`, so that they keep out of the log what your
code keeps out.

A pyproject.toml in the current folder counts as yours. One above the current folder may be somebody
else's. Code that it names is imported only if you own that folder and that file, and not everybody
can write to them, and a line on standard error says so. Else the command ends with exit code 2,
before it has done anything. A module is looked for where the file that names it stands.

`python -m holdfast` also looks in the current folder for every module that Holdfast and Python
themselves need, as `python -m` always does: a `json.py` there is imported. In a folder that you do
not trust, say `holdfast`, or `python -P -m holdfast`.
"""


def reference() -> str:
    """The whole page."""
    head = HEAD.format(table=_table())
    return "\n".join([head, *(_section(name, text) for name, text in _helps())])


def _table() -> str:
    """Which command imports the code of which settings, as the commands declare it."""
    lines = ["| command | imports | |", "|---|---|---|"]
    for name, command in _commands():
        if (declared := imports_of(command)).settings:
            settings = ", ".join(f"`{each}`" for each in declared.settings)
            when = f"only with {declared.when.upper()}" if declared.when else ""
            lines.append(f"| `{name}` | {settings} | {when} |".replace("|  |", "| |"))
    return "\n".join([*lines, ""])


def _commands() -> Iterator[tuple[str, click.Command]]:
    yield "holdfast", root
    for name, command in root.commands.items():
        yield f"holdfast {name}", command
        for inner, nested in getattr(command, "commands", {}).items():
            yield f"holdfast {name} {inner}", nested


def _helps() -> Iterator[tuple[str, str]]:
    # A width of its own: the page must not depend on the terminal it is made in.
    contexts: dict[str, click.Context] = {}
    for name, command in _commands():
        before, _, word = name.rpartition(" ")
        more = root.context_settings if command is root else {}
        contexts[name] = click.Context(
            command, contexts.get(before), info_name=word, terminal_width=80, **more
        )
        yield name, command.get_help(contexts[name])


def _section(name: str, text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return f"## `{name}`\n\n```text\n{lines}\n```\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
