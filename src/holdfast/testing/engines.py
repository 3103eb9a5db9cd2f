"""The contract of an engine, as tests: every engine runs them, and so can yours.

Subclass `EngineContract` in a test module and give it a fixture `engine`; pytest does the rest:

    class TestMyEngine(EngineContract):
        @pytest.fixture(scope="class")
        @classmethod
        def engine(cls):
            return MyEngine("127.0.0.1:7000")

All tests share one store and one worker of the engine, which runs in a thread of this process, and
each makes tasks of its own. A test that waits for what does not come fails after a while.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.api.app import Holdfast
from holdfast.engines.port import Engine
from holdfast.testing.engine_contract import working
from holdfast.testing.engine_contract.calling import Calling
from holdfast.testing.engine_contract.ending import Ending
from holdfast.testing.engine_contract.families import Branching, Families, Messages
from holdfast.testing.engine_contract.logs import Logs
from holdfast.testing.engine_contract.people import People, Saying
from holdfast.testing.engine_contract.starting import Starting, Travelling


class EngineContract(
    Starting,
    Calling,
    Branching,
    Saying,
    People,
    Messages,
    Families,
    Ending,
    Travelling,
    Logs,
):
    """The rules at the top of `holdfast.engines.port`, as tests.

    `engine` is for you to give. `hf` may be given as well, to use another store than SQLite.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine:
        """The engine to be tested."""
        raise NotImplementedError(
            f"{cls.__name__} needs a fixture `engine`, of the scope 'class': the engine to "
            f"be tested (see holdfast.testing.EngineContract)"
        )

    @pytest.fixture(scope="class")
    @classmethod
    def hf(cls, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
        """Tasks in a new store, and a worker of the engine that drives them."""
        place = tmp_path_factory.mktemp("engine") / "store.db"
        with Holdfast(f"sqlite:///{place}", sync=False, engine=engine) as hf, working(hf):
            yield hf
