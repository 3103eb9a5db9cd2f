"""Encrypted and signed stores keep the contract of those they are around."""

from __future__ import annotations

import inspect

import pytest

from holdfast.errors import BadInput
from holdfast.keys import Keys
from holdfast.store import ManyAtOnce, Store
from holdfast.stores import KEYS, open_store, secured
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
    def way(self, request):
        return request.param

    @pytest.fixture
    def open_store(self, url, way):
        first = MemoryStore()

        def opened():
            plain = MemoryStore(beside=first) if url == "memory://" else open_store(url)
            return secured(plain, *way)

        return opened


class TestAroundMemory(Secured):
    @pytest.fixture
    def url(self):
        return "memory://"


class TestAroundFiles(Secured):
    @pytest.fixture
    def url(self, tmp_path):
        return tmp_path / "workspace"


class SecuredTwice(Secured):
    """What each wrapper does is the same around every store; so here they come together."""

    @pytest.fixture(params=[WAYS["both"]], ids=["both"])
    def way(self, request):
        return request.param


class TestAroundSqlite(SecuredTwice):
    @pytest.fixture
    def url(self, tmp_path):
        return f"sqlite:///{tmp_path}/store.db"


class TestAroundPostgres(SecuredTwice):
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


@pytest.mark.parametrize("keys", WAYS.values(), ids=WAYS)
def test_a_wrapper_serves_many_at_once_only_where_the_store_in_it_does(keys):
    class OneByOne(Wrapped):
        """A store like that of somebody else, which has the port and nothing besides."""

        def __init__(self, inner):
            self.inner = inner

    assert isinstance(secured(MemoryStore(), *keys), ManyAtOnce)
    assert not isinstance(secured(OneByOne(MemoryStore()), *keys), ManyAtOnce)


@pytest.mark.parametrize("kind", [SealedStore, SignedStore])
def test_a_wrapper_forgets_the_ends_of_logs_that_are_given_back_together(kind):
    store = kind(MemoryStore(), Keys.of(KEY))
    leases = store.acquire_many(["tasks/a", "tasks/b"], "me", 60)
    for lease in leases:
        store.append(lease, 0, [b'{"seq":1,"sum":"0123456789abcdef"}'])
    assert store.sync_many(leases) == [None, None]
    assert set(store._ends) == set(leases)
    store.release_many(leases)
    assert not store._ends
    assert store.holder("tasks/a") is None


def test_the_keys_of_an_encrypted_store_are_not_taken_among_many():
    store = SealedStore(MemoryStore(), Keys.of(KEY))
    with pytest.raises(BadInput, match="has its keys"):
        store.acquire_many(["tasks/a", f"{KEYS}root"], "me", 60)
    assert store.holder("tasks/a") is None
