"""Every engine keeps the same contract."""

from __future__ import annotations

import pytest

from holdfast.engines.local.worker import Local
from holdfast.engines.port import Engine
from holdfast.engines.restate import Restate
from holdfast.engines.temporal import Temporal
from holdfast.testing import EngineContract
from holdfast.testing.engine_contract.ending import Ending
from holdfast.testing.engine_contract.families import Branching, Families
from holdfast.testing.engine_contract.people import People
from holdfast.testing.servers import RestateServer, TemporalServer, free_ports
from tests.thorough import THOROUGH


class Some(Branching, People, Families, Ending):
    """Where what a function asks for depends most on what it may see."""

    hf = EngineContract.hf


class TestLocal(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine:
        return Local()


class TestTemporal(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, temporal: TemporalServer) -> Engine:
        return Temporal(temporal.address, queue="contract")


class TestTemporalThatForgets(EngineContract if THOROUGH else Some):  # type: ignore[misc]
    """A worker that keeps no task in memory: each runs from its top whenever something happens, and
    has to ask for the same again."""

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, temporal: TemporalServer) -> Engine:
        return Temporal(temporal.address, queue="forgetful", kept=0)


class TestRestate(EngineContract):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, restate: RestateServer) -> Engine:
        listen = f"127.0.0.1:{next(free_ports())}"
        return Restate(restate.url, admin=restate.admin_url, listen=listen)
