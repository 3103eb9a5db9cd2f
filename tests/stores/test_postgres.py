from __future__ import annotations

import pytest

from holdfast.stores.postgres import PostgresStore
from holdfast.testing.stores import StoreContract
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]


class TestContract(StoreContract):
    @pytest.fixture
    def store(self, postgres_url):
        store = PostgresStore(postgres_url)
        yield store
        store.close()
