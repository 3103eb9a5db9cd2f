"""The contract of a store, as tests: every store runs them, and so can yours.

Subclass `StoreContract` in a test module and give it a fixture `open_store`; pytest does the rest:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: MyStore(tmp_path / "place")

Each call of what the fixture returns is to open one more store on *the same* new place, as another
process would. The tests close them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from holdfast.stores.port import Store
from holdfast.testing.contract.appending import Appending, Reading
from holdfast.testing.contract.blobs import Blobs, Deleting, HousekeepingContract
from holdfast.testing.contract.facts import DerivedBesideStreams, FactsOfStreams, FindContract
from holdfast.testing.contract.leases import Inboxes, Leases, Takeovers


class StoreContract(
    Appending,
    Leases,
    Takeovers,
    Reading,
    FactsOfStreams,
    Inboxes,
    Deleting,
    Blobs,
    HousekeepingContract,
    FindContract,
    DerivedBesideStreams,
):
    """The rules at the top of `holdfast.stores.port`, as tests.

    `open_store` is for you to give. `spoil_blob(store, digest)` may be given as well: it changes
    the bytes of a blob behind the store's back, and the store has to notice.
    """

    @pytest.fixture
    def open_store(self) -> Callable[[], Store]:
        """A function that opens one more store on the place of this test."""
        raise NotImplementedError(
            f"{type(self).__name__} needs a fixture `open_store`: a function that opens one more "
            f"store on the same place (see holdfast.testing.StoreContract)"
        )

    @pytest.fixture
    def store(self, open_store: Callable[[], Store]) -> Iterator[Store]:
        """A store on a new place."""
        with closing(open_store()) as store:
            yield store

    @pytest.fixture
    def other(self, open_store: Callable[[], Store], store: Store) -> Iterator[Store]:
        """Another store on the same place, as another process has it."""
        with closing(open_store()) as other:
            yield other
