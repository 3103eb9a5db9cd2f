"""Which tests run a line, and how long each takes.

Each test file is run once under coverage, and what that found is kept by the content of the file:
a new test costs only the run of its own file. The sources that it ran are kept too. Once they have
changed, their lines are matched with those of now; the map only says which tests to try first and
which not at all, so a few lines that are matched wrongly cost a kill or two, and no truth.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections import defaultdict
from difflib import SequenceMatcher
from functools import cache
from pathlib import Path
from typing import Any

import coverage

from tests.mutants.trees import Tree

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
        self.files = files
        self.skipped = ["-k", f"not ({skipped})"] if skipped else []
        self._sources = self._digest_of_sources()
        self._keys = {file: _key(file, root) for file in files}
        self.times: dict[str, float] = {}
        self._imported: defaultdict[str, set[int]] = defaultdict(set)
        kept.mkdir(parents=True, exist_ok=True)

    def missing(self, *, anew: bool = False) -> list[str]:
        """The test files that have to be run yet; also those that ran other sources, if `anew`."""
        return [file for file, key in self._keys.items() if self._is_missing(key, anew)]

    def _is_missing(self, key: str, anew: bool) -> bool:
        if not self._noted(key).exists():
            return True
        return anew and self._read(key)["sources"] != self._sources

    def note(self, tree: Tree, file: str) -> tuple[float, str]:
        """Run a test file, and keep what its tests ran; how long that took."""
        key, began = self._keys[file], time.monotonic()
        self._keep_sources()
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder, "coveragerc")
            include = "\n    ".join(str(tree.root / path) for path in self._paths)
            config.write_text(_CONFIG.format(folder=folder, include=include))
            times = Path(folder, "times")
            more = {"COVERAGE_PROCESS_START": str(config), "MUTANTS_NOTE": str(times)}
            code = tree.pytest([file, *self.skipped], more, _LONGEST_S)
            if not times.exists():
                raise RuntimeError(f"{file} did not end ({code}): {tree.output()[-2000:]}")
            self._data_of(key).unlink(missing_ok=True)
            found = coverage.Coverage(data_file=self._data_of(key), config_file=False)
            found.combine([str(path) for path in Path(folder).glob("data.*")], strict=False)
            found.save()
            noted = {"sources": self._sources, "times": json.loads(times.read_text())}
            self._noted(key).write_text(json.dumps(noted))
        return time.monotonic() - began, file

    def read(self) -> int:
        """Take in how long each test takes; and of how many files it is known of older sources."""
        older = 0
        for key in self._keys.values():
            noted = self._read(key)
            self.times |= noted["times"]
            older += noted["sources"] != self._sources
        return older

    def of_lines(self, path: str, first: int, last: int) -> set[str]:
        """The tests that run one of these lines."""
        by_line = self._by_line(path)
        return {test for line in range(first, last + 1) for test in by_line.get(line, ())}

    def is_imported(self, path: str, first: int, last: int) -> bool:
        """Whether one of these lines is run when tests are imported, before any begins."""
        self._by_line(path)
        return not self._imported[path].isdisjoint(range(first, last + 1))

    @cache  # noqa: B019 (there is one map)
    def _by_line(self, path: str) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for key in self._keys.values():
            data = coverage.CoverageData(str(self._data_of(key)))
            data.read()
            now = self._lines_now(self._read(key)["sources"], path)
            for file in data.measured_files():
                if file.endswith(f"/{path}"):
                    for then, tests in data.contexts_by_lineno(file).items():
                        for line in now.get(then, ()) if now is not None else (then,):
                            found.setdefault(line, set()).update(self.times.keys() & tests)
                            if "" in tests:
                                self._imported[path].add(line)
            data.close()
        return found

    @cache  # noqa: B019
    def _lines_now(self, sources: str, path: str) -> dict[int, list[int]] | None:
        """Where the lines are that were in a file of those sources; None where they were."""
        before = self._sources_of(sources) / path
        if sources == self._sources or not before.exists():
            return None
        then, now = (file.read_text().splitlines() for file in (before, self._root / path))
        return matched(then, now)

    def _keep_sources(self) -> None:
        kept = self._sources_of(self._sources)
        for path in self._paths:
            if not (kept / path).exists():
                (kept / path).parent.mkdir(parents=True, exist_ok=True)
                (kept / path).write_bytes((self._root / path).read_bytes())

    def _digest_of_sources(self) -> str:
        digest = hashlib.sha256()
        for path in self._paths:
            digest.update(path.encode() + b"\0" + (self._root / path).read_bytes())
        return digest.hexdigest()[:32]

    def _sources_of(self, digest: str) -> Path:
        return self._kept / f"sources-{digest}"

    def _data_of(self, key: str) -> Path:
        return self._kept / f"{key}.coverage"

    def _noted(self, key: str) -> Path:
        return self._kept / f"{key}.json"

    @cache  # noqa: B019
    def _read(self, key: str) -> dict[str, Any]:
        noted: dict[str, Any] = json.loads(self._noted(key).read_text())
        return noted


def matched(then: list[str], now: list[str]) -> dict[int, list[int]]:
    """For each line of a text, counted from 1, the lines of a later text that stand for it.

    A line that is new belongs to those it replaces, or to the one above it.

    >>> matched(["a", "b", "c"], ["a", "new", "b", "C", "c too"])
    {1: [1, 2], 2: [3], 3: [4, 5]}
    """
    found: defaultdict[int, list[int]] = defaultdict(list)
    for kind, a, to_a, b, to_b in SequenceMatcher(None, then, now, autojunk=False).get_opcodes():
        if kind == "equal":
            for step in range(to_a - a):
                found[a + step + 1].append(b + step + 1)
        else:
            for line in range(a, to_a) if kind == "replace" else [max(0, a - 1)]:
                found[line + 1] += range(b + 1, to_b + 1)
    return dict(found)


def _key(file: str, root: Path) -> str:
    about = json.dumps([sys.version, file]).encode()
    return hashlib.sha256(about + (root / file).read_bytes()).hexdigest()[:32]
