"""Every store keeps the same contract."""

from __future__ import annotations

import pytest

from holdfast.stores.files.store import FileStore
from holdfast.stores.memory import MemoryStore
from holdfast.testing import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self):
        first = MemoryStore()
        return lambda: MemoryStore(beside=first)

    def spoil_blob(self, store, digest):
        store._blobs[digest] = b"wrong"


class TestFileStore(StoreContract):
    @pytest.fixture
    def open_store(self, tmp_path):
        return lambda: FileStore(tmp_path / "workspace")

    def spoil_blob(self, store, digest):
        (store.root / "blobs" / digest[:2] / digest).write_bytes(b"wrong")
