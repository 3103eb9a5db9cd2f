"""Every store keeps the same contract."""

from __future__ import annotations

import pytest

from holdfast.stores.files import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing.stores import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        store = MemoryStore()
        yield store
        store.close()


class TestFileStore(StoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        store = FileStore(tmp_path / "workspace")
        yield store
        store.close()
