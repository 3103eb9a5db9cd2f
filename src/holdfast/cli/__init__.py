"""The command line, `holdfast`. It needs click and rich, which are installed with it.

This module loads neither, so that a missing one is a sentence and not a traceback.

Internal. Nothing but asking and printing: what a command tells, a room below knows. Read `root`
first, which has the commands in seven groups, then `options`, which has what they share.
"""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    """The entry point of the installed command `holdfast`."""
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
            f"pip install click rich\n"
        )
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    root.main(prog_name="holdfast")
