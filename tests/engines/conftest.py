"""One server of each engine for the tests here of a process, started when the first one asks for it
and ended after the last: an idle server takes a tenth of a processor.

A test that kills a server starts one of its own: `with new_temporal(tmp_path) as server`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.core.spec import Spec, registry
from holdfast.testing.servers import RestateServer, TemporalServer
from tests.engines.servers import new_restate, new_temporal


@pytest.fixture(scope="package")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """Temporal's server, with the namespace `default`."""
    with new_temporal(tmp_path_factory.mktemp("temporal")) as server:
        yield server


@pytest.fixture(scope="package")
def restate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestateServer]:
    """Restate's server; each test registers deployments of its own."""
    with new_restate(tmp_path_factory.mktemp("restate")) as server:
        yield server


_OURS = ("tests.engines", "tests.crash", "tests.flavors", "holdfast.testing", "examples")


def _module(spec: Spec) -> str:
    return str(getattr(spec.fn, "__module__", ""))


@pytest.fixture(autouse=True)
def _few_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker here serves the tasks of these tests: not the thousands that others of this process
    made, which Restate would take a minute to discover."""
    tasks, found = registry.tasks, registry._found

    def ours() -> list[str]:
        return [
            name
            for name in tasks()
            if any(_module(spec).startswith(_OURS) for spec in found["task", name].values())
        ]

    monkeypatch.setattr(registry, "tasks", ours)
