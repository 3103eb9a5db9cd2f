"""Importing the code that the person at the keyboard named. Nothing that a log names is imported.

Modules are looked for in the current folder first, as `python -m` does.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.cli.settings import Code, Given, code_of
from holdfast.errors import BadInput


def load_app(given: Given) -> Code:
    """Import the modules of `--app`, so that the tasks in them are known."""
    code = code_of(given, os.environ, Path.cwd())
    look_in(*code.folders)
    for name in code.modules:
        load(name)
    return code


def look_in(*folders: Path) -> None:
    """Look for modules in these folders before anywhere else."""
    for folder in reversed(folders):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def load(where: str) -> Any:
    """What `module` or `module:attribute` names, or `BadInput` that says what is wrong.

    >>> load("math:tau") == load("math").tau
    True
    """
    name, colon, attribute = where.partition(":")
    if not name or (colon and not attribute):
        raise BadInput(f"{where!r} names no code: write module:function, as in agents.trip:plan")
    if name.endswith(".py") or "/" in name:
        dotted = name.removesuffix(".py").strip("./").replace("/", ".")
        raise BadInput(f"{name!r} is a file: name the module, as in {dotted}{colon}{attribute}")
    found: Any = _imported(name)
    for part in attribute.split(".") if attribute else ():
        try:
            found = getattr(found, part)
        except AttributeError:
            raise BadInput(f"module {name!r} has no {attribute!r}{_tasks_of(found)}") from None
    return found


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise BadInput(
                f"there is no module {name!r} in {Path.cwd()} nor where Python looks for modules"
            ) from error
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> BadInput:
    return BadInput(
        f"importing {name!r} failed with {type(error).__name__}: {error} (--debug shows where)"
    )


def _tasks_of(module: Any) -> str:
    tasks = sorted(
        name
        for name, value in vars(module).items()
        if getattr(getattr(value, "holdfast_spec", None), "kind", "") == "task"
    )
    return f"; its tasks are {', '.join(tasks)}" if tasks else ", and no tasks"
