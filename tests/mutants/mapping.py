"""Which tests run a line, and how long each takes.

Each test file is run once under coverage. What that found is kept, by the content of the sources,
of what the tests share, and of the file itself: a new test costs only the run of its own file.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import coverage

from tests.mutants.trees import HERE, Tree

_LONGEST_S = 1200
_CONFIG = """\
[run]
core = ctrace
parallel = true
data_file = {folder}/data
context = ${{MUTANTS_TEST-}}
patch = _exit
disable_warnings = no-data-collected, module-not-imported, no-contexts, dynamic-conflict
include =
    {include}
"""


class Map:
    """The tests of each line, of the given test files."""

    def __init__(
        self, root: Path, kept: Path, paths: list[str], files: list[str], skipped: str
    ) -> None:
        self._root = root
        self._kept = kept
        self._paths = paths
        self._skipped = ["-k", f"not ({skipped})"] if skipped else []
        shared = hashlib.sha256(json.dumps([sys.version, paths]).encode())
        for path in _shared_by_tests(root):
            shared.update(path.read_bytes())
        self._keys = {file: _key(shared.hexdigest(), root / file) for file in files}
        self.times: dict[str, float] = {}
        kept.mkdir(parents=True, exist_ok=True)

    def missing(self) -> list[str]:
        """The test files that have to be run yet."""
        return [file for file, key in self._keys.items() if not self._times_of(key).exists()]

    def note(self, tree: Tree, file: str) -> tuple[float, str]:
        """Run a test file, and keep what its tests ran; how long that took."""
        key, began = self._keys[file], time.monotonic()
        if self._times_of(key).exists():  # another run was quicker
            return 0.0, file
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder, "coveragerc")
            include = "\n    ".join(str(tree.root / path) for path in self._paths)
            config.write_text(_CONFIG.format(folder=folder, include=include))
            times = Path(folder, "times")
            more = {"COVERAGE_PROCESS_START": str(config), "MUTANTS_NOTE": str(times)}
            code = tree.pytest([file, *self._skipped], more, _LONGEST_S)
            if not times.exists():
                raise RuntimeError(f"{file} did not end ({code}): {tree.output()[-2000:]}")
            found = coverage.Coverage(data_file=self._data_of(key), config_file=False)
            found.combine([str(path) for path in Path(folder).glob("data.*")], strict=False)
            found.save()
            self._times_of(key).write_text(times.read_text())
        return time.monotonic() - began, file

    def read(self) -> None:
        """Take in how long each test takes."""
        for key in self._keys.values():
            self.times |= json.loads(self._times_of(key).read_text())

    def of_lines(self, path: str, first: int, last: int) -> set[str]:
        """The tests that run one of these lines."""
        by_line = self._by_line(path)
        return {test for line in range(first, last + 1) for test in by_line.get(line, ())}

    @cache  # noqa: B019 (there is one map)
    def _by_line(self, path: str) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for key in self._keys.values():
            data = coverage.CoverageData(str(self._data_of(key)))
            data.read()
            for file in data.measured_files():
                if file.endswith(f"/{path}"):
                    for line, tests in data.contexts_by_lineno(file).items():
                        found.setdefault(line, set()).update(self.times.keys() & tests)
            data.close()
        return found

    def _data_of(self, key: str) -> Path:
        return self._kept / f"{key}.coverage"

    def _times_of(self, key: str) -> Path:
        return self._kept / f"{key}.json"


def _shared_by_tests(root: Path) -> Iterable[Path]:
    for path in sorted((*root.glob("src/**/*.*"), *root.glob("tests/**/*.py"))):
        is_test = path.name.startswith("test_") or path.parent == HERE
        if not is_test and path.suffix in (".py", ".sql"):
            yield path


def _key(shared: str, file: Path) -> str:
    return hashlib.sha256(shared.encode() + file.read_bytes()).hexdigest()[:32]
