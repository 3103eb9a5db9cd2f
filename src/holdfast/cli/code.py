"""Importing the code that the person at the keyboard named. Nothing that a log names is imported.

A command imports only the code of the settings that it declares (`options.imports`), so a command
that reads imports none. A setting may stand in a pyproject.toml above the current folder, where
somebody else may have put it: its code is imported only from a folder of the user's own, and a line
on standard error says so.
"""

from __future__ import annotations

import importlib
import os
import stat
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.cli.settings import Given, Setting, code_of
from holdfast.cli.telling import print_error
from holdfast.errors import BadInput

_told: set[Path] = set()


def load_app(given: Given) -> tuple[str, ...]:
    """Import the modules of `--app`, so that the tasks in them are known. Returns their names."""
    load_named("app", given)
    return code_of("app", given, os.environ, Path.cwd()).names


def load_named(setting: Setting, given: Given) -> list[Any]:
    """Import what a setting names, if it names anything and the command may import it."""
    code = code_of(setting, given, os.environ, Path.cwd())
    if not code.names or setting not in given.imports:
        return []
    if code.above:
        _must_be_ours(setting, code.above)
    look_in(code.folder)
    return [load(name) for name in code.names]


def _must_be_ours(setting: str, project: Path) -> None:
    for path in (project.parent, project):
        found = path.stat()
        if found.st_uid != os.getuid():
            why = "belongs to another user"
        elif found.st_mode & stat.S_IWOTH:
            why = "can be written to by everybody"
        else:
            continue
        raise BadInput(
            f"{project} names code to import ({setting} = …), and {path} {why}. Code that a "
            f"setting above the current folder names is imported only from a folder of your own. "
            f"If you trust it, run the command in {project.parent}"
        )
    if project not in _told:
        _told.add(project)
        print_error(f"imports the code that {project} names")


def look_in(folder: Path) -> None:
    """Look for modules in this folder before anywhere else."""
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
