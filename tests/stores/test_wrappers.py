"""Encrypted and signed stores keep the contract of those they are around."""

from __future__ import annotations

import inspect

import pytest

from holdfast.keys import Keys
from holdfast.store import Store
from holdfast.stores import open_store, secured
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sealed import SealedStore
from holdfast.stores.signed import SignedStore
from holdfast.stores.wrapped import Wrapped
from holdfast.testing.stores import StoreContract
from tests.stores.postgres_server import postgres_server, postgres_url

__all__ = ["postgres_server", "postgres_url"]

KEY = Keys.new()
WAYS = {"encrypted": (KEY, None), "signed": (None, KEY), "both": (KEY, KEY)}


class Secured(StoreContract):
    @pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
    def open_store(self, url, request):
        first = MemoryStore()

        def opened():
            plain = MemoryStore(beside=first) if url == "memory://" else open_store(url)
            return secured(plain, *request.param)

        return opened


class TestAroundMemory(Secured):
    @pytest.fixture
    def url(self):
        return "memory://"


class TestAroundFiles(Secured):
    @pytest.fixture
    def url(self, tmp_path):
        return tmp_path / "workspace"


class TestAroundSqlite(Secured):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path}/store.db"


class TestAroundPostgres(Secured):
    @pytest.fixture
    def url(self, postgres_url):
        return postgres_url


def test_a_wrapper_hands_on_the_whole_port_and_says_so_for_each_method():
    def of(kind):
        return {name for name in vars(kind) if not name.startswith("_")}

    assert of(Store) <= of(Wrapped)
    for name in of(Store) - {"url"}:
        theirs = inspect.signature(getattr(Store, name)).parameters
        ours = inspect.signature(getattr(Wrapped, name)).parameters
        assert list(theirs) == list(ours), name
    assert not hasattr(Wrapped, "__getattr__")
    assert issubclass(SealedStore, Wrapped) and issubclass(SignedStore, Wrapped)
