"""What pytest does inside a copy of the tree: note what each test runs, or try to kill mutants.

It is loaded by its name alone, from the environment of the copy: the tree need not be ours.
"""

from __future__ import annotations

import gc
import inspect
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if into := os.environ.get("MUTANTS_NOTE"):
        config.pluginmanager.register(Noting(Path(into)))
    if asked := os.environ.get("MUTANTS_TRY"):
        config.pluginmanager.register(Trying(Path(asked)))
    if pipes := os.environ.get("MUTANTS_SERVE"):
        config.pluginmanager.register(Serving(*map(int, pipes.split())))


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


class Serving:
    """Collects all tests once, then runs some of them for each mutant, in a child of its own.

    To start Python, to import and to collect takes longer than the tests of most mutants. In the
    child the functions that are there get the code of the mutant; the processes that tests start
    read it from the file, as ever. What a function did when it was imported is done, so a mutant
    that lives through this may still be killed by tests that begin from nothing.
    """

    def __init__(self, asked: int, told: int) -> None:
        self._asked = os.fdopen(asked)
        self._told = os.fdopen(told, "w")
        self._functions: dict[str, list[FunctionType]] = {}
        self._failed = False
        self._into = Path()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        items = {item.nodeid: item for item in session.items}
        for found in gc.get_objects():
            if type(found) is FunctionType:
                self._functions.setdefault(found.__code__.co_filename, []).append(found)
        gc.freeze()
        self._tell("ready")
        for line in self._asked:
            given = json.loads(line)
            chosen = [items[name] for name in given["limits"] if name in items]
            self._tell(self._in_a_child(session, chosen, given))
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self._failed = self._failed or report.failed
            with self._into.open("a") as out:
                out.write(json.dumps([report.nodeid, report.failed]) + "\n")

    def _tell(self, answer: str) -> None:
        self._told.write(answer + "\n")
        self._told.flush()

    def _in_a_child(
        self, session: pytest.Session, chosen: list[pytest.Item], given: dict[str, Any]
    ) -> str:
        """Whether tests could be run on the mutant; and how that ended is in the file."""
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                self._run(session, chosen, given)
                os._exit(0)
            except _Unfit:
                os._exit(3)
            finally:
                os._exit(1)
        ended = os.pidfd_open(child)
        try:
            is_over, _, _ = select.select([ended], [], [], given["timeout_s"])
        finally:
            os.close(ended)
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not is_over:
            return "hung"
        return {0: "ran", 3: "unfit"}.get(code, "died")

    def _run(self, session: pytest.Session, chosen: list[pytest.Item], given: Any) -> None:
        sys.dont_write_bytecode = True
        if given["path"]:
            self._become(given["path"], given["was"])
        self._into = Path(given["done"])
        until = time.monotonic() + given["bound_s"]
        for item, after in zip(chosen, [*chosen[1:], None], strict=True):
            limit = pytest.mark.timeout(given["limits"][item.nodeid], func_only=False)
            item.add_marker(limit, append=False)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self._failed or session.shouldstop or time.monotonic() > until:
                break

    def _become(self, path: str, was: str) -> None:
        """Give the functions of a file the code that it holds now."""
        now = Path(path).read_text()
        old = compile(was, path, "exec", dont_inherit=True)
        new = compile(now, path, "exec", dont_inherit=True)
        changed: dict[tuple[str, int], CodeType] = {}
        _find_changed(old, new, changed)
        count = 0
        for function in self._functions.get(path, ()):
            code = function.__code__
            if (by := changed.get((code.co_qualname, code.co_firstlineno))) is not None:
                try:
                    function.__code__ = by
                except ValueError as error:  # it has other variables in common with those around
                    raise _Unfit from error
                count += 1
        if not count:
            raise _Unfit


class _Unfit(Exception):
    """The mutant is not in the code of functions alone."""


def _find_changed(old: CodeType, new: CodeType, into: dict[tuple[str, int], CodeType]) -> None:
    """Find the functions whose code is another, also for what is inside them."""
    inner = [
        [const for const in code.co_consts if isinstance(const, CodeType)] for code in (old, new)
    ]
    if old != new and new.co_flags & inspect.CO_OPTIMIZED:
        into[new.co_qualname, new.co_firstlineno] = new
    elif _apart(old) != _apart(new):
        raise _Unfit
    if len(inner[0]) == len(inner[1]):
        for before, after in zip(*inner, strict=True):
            _find_changed(before, after, into)


def _apart(code: CodeType) -> tuple[Any, ...]:
    """What makes up a code, without that of the functions in it."""
    consts = [const for const in code.co_consts if not isinstance(const, CodeType)]
    return code.co_code, repr(consts), code.co_names, code.co_varnames
