"""Kill an agent everywhere on SQLite: `python -m tests.crash.on_sqlite SCENARIO EVERY`."""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

import msgspec

from holdfast.stores import open_store
from holdfast.stores.port import Store
from holdfast.testing.crash import CrashStore, crash_everywhere


def in_peril(folder: Path) -> Store:
    """The database of a try, in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return CrashStore(open_store(f"sqlite:///{folder}/tries.db"))


def main(scenario: str, every: str) -> int:
    """Kill it at every so many boundaries, and print the report."""
    module, _, function = scenario.partition(":")
    make = getattr(importlib.import_module(module), function)
    with tempfile.TemporaryDirectory(prefix="holdfast-crash-") as folder:
        report = crash_everywhere(make(), Path(folder), store=in_peril, every=int(every))
    print(msgspec.json.encode(report).decode())
    return 0 if report else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
