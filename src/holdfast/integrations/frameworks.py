"""The first question of every integration: is its framework installed, and is it one we have tried?

A module of an integration calls `need(…)` before it imports its framework. So an install that
lacks it is told which extra to install, and a version that nobody tried is refused with the range
that was tested, instead of failing later in some way of its own.
"""

from __future__ import annotations

import re
from importlib import metadata

from holdfast.errors import HoldfastError

__all__ = ["FrameworkMissing", "FrameworkUntested", "need"]


class FrameworkMissing(HoldfastError, ImportError):
    """The framework of an integration is not installed."""


class FrameworkUntested(HoldfastError, ImportError):
    """The framework is installed in a version that the integration was not tested with."""


def need(extra: str, **ranges: str) -> None:
    """Raise unless each package is installed in its tested range: `need("x", some_pkg=">=1,<2")`.

    An underscore in a name stands for a dash.

    >>> need("testing", pytest=">=8")
    >>> need("testing", no_such_package=">=1,<2")
    Traceback (most recent call last):
    holdfast.integrations.frameworks.FrameworkMissing: holdfast.integrations.testing needs
    no-such-package>=1,<2, and it is not installed: pip install 'holdfast[testing]'
    """
    for name, tested in ranges.items():
        package = name.replace("_", "-")
        try:
            found = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise FrameworkMissing(
                f"holdfast.integrations.{extra} needs {package}{tested}, and it is not installed: "
                f"pip install 'holdfast[{extra}]'"
            ) from None
        if not _within(found, tested):
            raise FrameworkUntested(
                f"holdfast.integrations.{extra} was tested with {package}{tested}, and {found} is "
                f"installed: pip install '{package}{tested}'"
            )


def _within(found: str, tested: str) -> bool:
    """Whether a version is in a range such as `>=1.2,<2`.

    >>> _within("1.2.22", ">=1.2,<2"), _within("2.0.0rc1", ">=1.2,<2"), _within("1.1", ">=1.2,<2")
    (True, False, False)
    """
    version = _numbers(found)
    for bound in tested.split(","):
        if bound.startswith(">=") and version < _numbers(bound[2:]):
            return False
        if bound.startswith("<") and version >= _numbers(bound[1:]):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, without what a release candidate or a build adds."""
    plain = re.match(r"[0-9.]+", version)
    found = [int(part) for part in plain[0].split(".") if part] if plain else []
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)
