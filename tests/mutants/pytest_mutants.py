"""What pytest does inside a copy of the tree: note what each test runs, or try to kill a mutant.

It is loaded by its name alone, from the environment of the copy: the tree need not be ours.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if into := os.environ.get("MUTANTS_NOTE"):
        config.pluginmanager.register(Noting(Path(into)))
    if asked := os.environ.get("MUTANTS_TRY"):
        config.pluginmanager.register(Trying(Path(asked)))


class Noting:
    """Tells coverage which test runs, here and in the processes it starts, and times each."""

    def __init__(self, into: Path) -> None:
        self._into = into
        self._times: dict[str, float] = {}
        self._unfit: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        import coverage

        os.environ["MUTANTS_TEST"] = nodeid
        if running := coverage.Coverage.current():
            running.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._times[report.nodeid] = self._times.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self._unfit.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        times = {name: s for name, s in self._times.items() if name not in self._unfit}
        self._into.write_text(json.dumps(times))


class Trying:
    """Runs the tests it is asked to, in that order, until one fails or the time is up."""

    def __init__(self, asked: Path) -> None:
        given = json.loads(asked.read_text())
        self._limits: dict[str, float] = given["limits"]
        self._bound_s: float = given["bound_s"]
        self._until = 0.0
        self._into = asked.with_suffix(".done")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in self._limits if name in by_name]
        for item in items:
            limit = pytest.mark.timeout(self._limits[item.nodeid], func_only=False)
            item.add_marker(limit, append=False)
        self._until = time.monotonic() + self._bound_s

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        result = yield
        if time.monotonic() > self._until:
            item.session.shouldstop = "the time is up"
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            with self._into.open("a") as out:
                out.write(json.dumps([report.nodeid, report.failed]) + "\n")
