"""Servers of engines for tests: where one can't be had, a test is skipped and says why.

With HOLDFAST_NEED_ENGINES=1 it fails instead, so that no skipped test is taken for one that passed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.testing.servers import (
    RestateServer,
    Server,
    TemporalServer,
    restate_server,
    temporal_server,
)


def need(kind: type[Server], program: Path | None) -> None:
    """Skip the test if the program of a server is not here, or fail it where it has to be."""
    if program is None:
        reason = f"{kind.name} is not installed: {kind.how_to_install}"
        if os.environ.get("HOLDFAST_NEED_ENGINES") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def new_temporal(folder: Path) -> TemporalServer:
    """A server for tests, not started yet: it outlives a kill but, for speed, no power cut."""
    need(TemporalServer, temporal_server())
    return TemporalServer(folder, durable=False)


def new_restate(folder: Path) -> RestateServer:
    """A server for tests, not started yet: it outlives a kill but, for speed, no power cut."""
    need(RestateServer, restate_server())
    return RestateServer(folder, durable=False)
