"""The pytest plugin: `hf`, a clock, a scripted model and the crash harness, as fixtures.

pytest loads this module in every project that has Holdfast installed, whether its tests use it or
not. So each fixture imports what it needs when a test asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from holdfast import Holdfast
    from holdfast.testing.clock import Clock
    from holdfast.testing.crash import Report, Scenario
    from holdfast.testing.scripted import Script, ScriptedModel

_MARK = (
    "holdfast(*urls, **options): the stores that `hf` is opened on, one test for each, and the "
    "options of Holdfast; in a url, {tmp_path} stands for the folder of the test"
)


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of our mark."""
    config.addinivalue_line("markers", _MARK)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test whose mark names several stores is run on each."""
    mark = metafunc.definition.get_closest_marker("holdfast")
    if mark is not None and mark.args and "holdfast_url" in metafunc.fixturenames:
        kinds = [str(url).partition(":")[0] if ":" in str(url) else "files" for url in mark.args]
        metafunc.parametrize("holdfast_url", mark.args, indirect=True, ids=kinds)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """While a test runs, the tasks, steps and tools of its own module go before others of the same
    names, and what it defines inside itself is forgotten at its end. A replay looks them up by
    their names, and pytest has loaded every module of tests at once."""
    spec = sys.modules.get("holdfast.core.spec")
    if spec is None:
        return (yield)
    registry = spec.registry
    if (function := getattr(item, "function", None)) is not None:
        module, known = function.__module__, set[str]()
        inside = f"{module}.{function.__qualname__}.<locals>."
    elif (example := getattr(item, "dtest", None)) is not None:  # a doctest: they are like globals
        module, known = str(example.globs.get("__name__")), registry.places()
        inside = f"{module}."
    else:
        return (yield)
    registry.prefers = module
    try:
        return (yield)
    finally:
        registry.prefers = None
        registry.forget(inside, known)


@pytest.fixture
def holdfast_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where `hf` keeps its logs: a folder of the test's own, or what `pytest.mark.holdfast` says.
    Override it to choose another store for all tests of a file or a folder."""
    url: str = getattr(request, "param", "{tmp_path}/workspace")
    return url.replace("{tmp_path}", str(tmp_path))


@pytest.fixture
def hf(request: pytest.FixtureRequest, holdfast_url: str) -> Iterator[Holdfast]:
    """An open `Holdfast` with a store of its own. Its tasks go by `holdfast_clock` if the test asks
    for that as well, and by the time of day if not."""
    from holdfast import Holdfast

    mark = request.node.get_closest_marker("holdfast")
    options: dict[str, Any] = dict(mark.kwargs) if mark is not None else {}
    if "holdfast_clock" in request.fixturenames:
        options.setdefault("clock", request.getfixturevalue("holdfast_clock"))
    with Holdfast(holdfast_url, **options) as opened:
        yield opened


@pytest.fixture
def holdfast_clock() -> Clock:
    """A clock that skips the time in which everything waits. Set `holdfast_clock.skips = False` to
    advance it by hand."""
    from holdfast.testing.clock import Clock

    return Clock(skips=True)


@pytest.fixture
def holdfast_model() -> Iterator[Callable[[Script], ScriptedModel]]:
    """Starts a model server that says what a script says: `holdfast_model(["Hello!"]).url`."""
    from contextlib import ExitStack

    from holdfast.testing.scripted import ScriptedModel

    with ExitStack() as started:
        yield lambda script: started.enter_context(ScriptedModel(script))


@pytest.fixture
def holdfast_crash(pytestconfig: pytest.Config) -> Callable[..., Report]:
    """Kills a scenario at every boundary: `assert holdfast_crash("my_agents:make_scenario")`.

    It takes `MODULE:FUNCTION`, or a function of an importable module, and the options `every` and
    `crashes` of `holdfast.testing.crash`. The report is false if a crash did any harm.
    """

    def crash(
        scenario: str | Callable[[], Scenario], *, every: int = 1, crashes: int = 1
    ) -> Report:
        import os
        import subprocess
        import sys

        import msgspec

        from holdfast.testing.crash import Report

        if not isinstance(scenario, str):
            named = cast("Any", scenario)
            scenario = f"{named.__module__}:{named.__qualname__}"
        command = [sys.executable, "-m", "holdfast.testing.crash", scenario]
        done = subprocess.run(  # forked from a clean process, and not from this one
            [*command, "--every", str(every), "--crashes", str(crashes)],
            cwd=pytestconfig.rootpath,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = done.stdout.splitlines()
        if done.returncode not in (0, 1) or not lines or not lines[-1].startswith("{"):
            pytest.fail(f"the crash test of {scenario} did not run:\n{done.stderr or done.stdout}")
        return msgspec.json.decode(lines[-1], type=Report)

    return crash
