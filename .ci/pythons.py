"""The Pythons of this machine that Holdfast is tested on: one of each version from 3.11 on.

    python .ci/pythons.py

Looks for `python3.N` on the path and under pyenv, and prints the first one of each version. A
free-threaded build counts as a version of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

OLDEST, NEWEST = 11, 14
_ASK = (
    "import sys, sysconfig as s; "
    "print(sys.version_info[1], 't' * bool(s.get_config_var('Py_GIL_DISABLED')))"
)


def candidates() -> Iterator[str]:
    yield sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    made = sorted(pyenv.glob("3.*/bin/python3"), key=_number, reverse=True)
    for number in range(OLDEST, NEWEST + 1):
        for name in (f"python3.{number}", f"python3.{number}t"):
            if found := shutil.which(name):
                yield found
    yield from map(str, made)


def _number(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", path.parts[-3]))


def main() -> None:
    found: dict[str, str] = {}
    for python in candidates():
        try:
            asked = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            continue
        number, _, kind = asked.stdout.strip().partition(" ")
        if not asked.returncode and number.isdecimal() and OLDEST <= int(number) <= NEWEST:
            found.setdefault(f"{int(number):02}{kind}", python)
    print(*(found[version] for version in sorted(found)))


if __name__ == "__main__":
    main()
