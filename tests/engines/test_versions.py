"""How the versions of an engine fit with ours: a task that waits through a deploy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest

from holdfast import Holdfast
from holdfast.engines.temporal import Temporal
from holdfast.testing.servers import RestateServer, TemporalServer, free_ports
from tests.engines.serve import LEASE_S, engine_of
from tests.engines.versioned import visit
from tests.engines.working import until, until_it_drives

ROOT = Path(__file__).parents[2]


@contextmanager
def worker(store: str, build: str, *engine: str) -> Iterator[None]:
    """A worker process with one build of the code."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.serve", store, "tests.engines.versioned", *engine],
        cwd=ROOT,
        env={**os.environ, "AGENT_BUILD": build},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            until_it_drives(process.stdout)
            yield
        finally:
            process.kill()


def make_current(engine: Temporal, build: str) -> None:
    async def ask() -> None:
        client = await engine.connect()
        await client.workflow_service.set_worker_deployment_current_version(
            SetWorkerDeploymentCurrentVersionRequest(
                namespace=engine.namespace, deployment_name="agents", build_id=build
            )
        )

    asyncio.run(ask())


def make_current_soon(engine: Temporal, build: str) -> None:
    """A build is known to Temporal a moment after its first worker is there."""

    def is_known() -> bool:
        try:
            make_current(engine, build)
        except Exception as error:
            assert "found" in str(error), error
            return False
        return True

    until(is_known)


@pytest.mark.timeout(90)
def test_on_temporal_a_task_stays_with_the_build_it_began_on(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    queue = "versions"
    engine = Temporal(temporal.address, queue=queue, deployment=("agents", "v1"))
    with (
        Holdfast(store, lease_s=LEASE_S, engine=engine) as hf,
        worker(store, "v1", "temporal", temporal.address, queue, "v1"),
    ):
        make_current_soon(engine, "v1")
        old = hf.start(visit, "Ada", id="versioned-old")
        until(lambda: old.status == "awaiting_user")
        with worker(store, "v2", "temporal", temporal.address, queue, "v2"):
            make_current_soon(engine, "v2")
            new = hf.start(visit, "Bob", id="versioned-new")
            assert new.result(timeout_s=20) == ["farewell to Bob by v2", "Bob by v2"]
            hf.answer(old.id, True)
            assert old.result(timeout_s=20) == ["Ada by v1", "Ada by v1"]


@pytest.mark.timeout(90)
def test_on_restate_a_task_stays_with_the_deployment_it_began_on(
    restate: RestateServer, tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/store.db"
    old_code, new_code = (
        ("restate", restate.url, restate.admin_url, f"127.0.0.1:{next(free_ports())}")
        for _ in range(2)
    )
    with (
        Holdfast(store, lease_s=LEASE_S, engine=engine_of(*old_code)) as hf,
        worker(store, "v1", *old_code),
    ):
        old = hf.start(visit, "Ada", id="versioned-old")
        until(lambda: old.status == "awaiting_user")
        with worker(store, "v2", *new_code):
            new = hf.start(visit, "Bob", id="versioned-new")
            assert new.result(timeout_s=20) == ["farewell to Bob by v2", "Bob by v2"]
            hf.answer(old.id, True)
            assert old.result(timeout_s=20) == ["Ada by v1", "Ada by v1"]
