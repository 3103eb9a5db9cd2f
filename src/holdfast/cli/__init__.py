"""The command line, `holdfast`. It needs click and rich, which come with the extra `cli`.

This module loads neither, so that a missing one is a sentence and not a traceback.

Internal. Nothing but asking and printing: what a command tells, a room below knows. Read `root`
first; each command is a module of `commands`, and what they share is beside it.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """What the installed command `holdfast` calls."""
    try:
        import click  # noqa: F401

        if sys.argv[1:2] == ["once"]:
            # A script calls it for each of its steps: what the other commands need is not loaded.
            from holdfast.cli.commands.once import once

            once.main(sys.argv[2:], prog_name="holdfast once")
        import rich  # noqa: F401

        from holdfast.cli.root import root
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write(
            f"error: the command line needs {error.name}, which is not installed: "
            f"pip install click rich, or install holdfast with its extra cli\n"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    root.main(prog_name="holdfast")
