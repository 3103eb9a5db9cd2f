"""What the store is opened with, so that a command keeps the same secrets as the code does.

The settings name a `Redact(…)` and where named secrets come from, as `module:attribute`. Commands
that only read need neither, and don't import them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.cli.code import load, look_in
from holdfast.cli.settings import object_of


def redaction() -> dict[str, Any]:
    """The options `redact` and `secrets` of `Holdfast`, where the settings name them."""
    found = {}
    for setting in ("redact", "secrets"):
        code = object_of(setting, os.environ, Path.cwd())
        for where in code.modules:
            look_in(*code.folders)
            found[setting] = load(where)
    return found
