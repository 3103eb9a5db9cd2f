"""The servers that engines are tested on: killed, they come back with all that they were told."""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import restate as sdk
from hypercorn.asyncio import serve
from hypercorn.config import Config
from temporalio.client import Client

from holdfast.testing.servers import NoServer, RestateServer, Server, TemporalServer, free_ports
from tests.engines.servers import need, new_restate, new_temporal

MAKERS = [pytest.param(new_temporal, id="temporal"), pytest.param(new_restate, id="restate")]

counter = sdk.VirtualObject("Counter")


@counter.handler()
async def add(context: sdk.ObjectContext, amount: int) -> int:
    total = (await context.get("total", type_hint=int) or 0) + amount
    context.set("total", total)
    return total


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """The URL of an app, which is served for the length of the block."""
    url = f"127.0.0.1:{next(free_ports())}"
    config = Config()
    config.bind = [url]
    enough = asyncio.Event()
    serving = asyncio.create_task(serve(app, config, shutdown_trigger=enough.wait))
    yield f"http://{url}"
    enough.set()
    await serving


async def ask(url: str, body: Any = None) -> Any:
    def now() -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    return await asyncio.to_thread(now)


def test_temporal_knows_its_workflows_after_it_was_killed(tmp_path: Path) -> None:
    async def story(server: TemporalServer) -> None:
        client = await Client.connect(server.address)
        await client.start_workflow("Trip", "Oslo", id="trip-1", task_queue="nobody")
        before = await client.get_workflow_handle("trip-1").describe()
        server.restart()
        after = await client.get_workflow_handle("trip-1").describe()
        assert (after.run_id, after.workflow_type) == (before.run_id, "Trip")

    with new_temporal(tmp_path) as server:
        asyncio.run(story(server))


def test_restate_knows_services_and_state_after_it_was_killed(tmp_path: Path) -> None:
    async def story(server: RestateServer) -> None:
        async with served(sdk.app([counter])) as url:
            await ask(f"{server.admin_url}/deployments", {"uri": url})
            assert await ask(f"{server.url}/Counter/mine/add", 40) == 40
            server.restart()
            assert await ask(f"{server.url}/Counter/mine/add", 2) == 42

    with new_restate(tmp_path) as server:
        asyncio.run(story(server))


def test_the_tests_of_a_process_share_a_server(
    temporal: TemporalServer, restate: RestateServer
) -> None:
    assert temporal.is_ready()
    assert restate.is_ready()


@pytest.mark.parametrize("maker", MAKERS)
def test_a_server_ends_with_the_process_that_started_it(
    maker: Callable[[Path], Server], tmp_path: Path
) -> None:
    server = maker(tmp_path)
    script = (
        f"from holdfast.testing.servers import {type(server).__name__} as Kind\n"
        f"server = Kind({str(tmp_path)!r}, durable=False)\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        watched = os.pidfd_open(pid)
        process.kill()
    try:
        assert ended(watched, within_s=20)
    finally:
        os.close(watched)


def ended(pidfd: int, *, within_s: float) -> bool:
    """Whether a process ends in time: its descriptor can be read from when it has."""
    return bool(select.select([pidfd], [], [], within_s)[0])


@pytest.mark.parametrize("maker", MAKERS)
def test_a_server_that_cannot_start_says_what_it_printed(
    maker: Callable[[Path], Server], tmp_path: Path
) -> None:
    server = maker(tmp_path)
    (tmp_path / "temporal.db").write_text("not a database" * 1000)
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(NoServer, match="and printed:"):
        server.start()
    assert server.pid is None


@pytest.mark.parametrize("kind", [TemporalServer, RestateServer])
def test_without_its_program_a_test_is_skipped_or_where_it_must_run_fails(
    kind: type[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_NEED_ENGINES", raising=False)
    with pytest.raises(pytest.skip.Exception, match="is not installed"):
        need(kind, None)
    monkeypatch.setenv("HOLDFAST_NEED_ENGINES", "1")
    with pytest.raises(pytest.fail.Exception, match="is not installed"):
        need(kind, None)
