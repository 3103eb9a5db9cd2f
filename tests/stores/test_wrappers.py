"""Encrypted and signed stores keep the contract of those they are around."""

from __future__ import annotations

import inspect

import pytest

from holdfast.errors import BadInput, LeaseLost, TaskBusy
from holdfast.log import chain
from holdfast.log.store_calls import facts_of_all, holder_of, inbox_of, post_to, streams_in, unpost
from holdfast.stores import open_store, secured
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Facts, PagePlace, Query, Store
from holdfast.stores.sealed.keys import KEYS, Keys
from holdfast.stores.sealed.signed import SignedStore
from holdfast.stores.sealed.store import SealedStore
from holdfast.stores.wrapped import Wrapped
from holdfast.testing.stores import StoreContract
from tests.stores.databases import AT
from tests.stores.postgres_server import postgres_server, postgres_url
from tests.thorough import THOROUGH

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


class SecuredTwice(Secured):
    """Each wrapper does the same around every store; so here they come together."""

    @pytest.fixture(params=list(WAYS.values()) if THOROUGH else [WAYS["both"]])
    def way(self, request):
        return request.param


class TestAroundFiles(SecuredTwice):
    @pytest.fixture
    def url(self, tmp_path):
        return tmp_path / "workspace"


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


@pytest.mark.parametrize("kind", [SealedStore, SignedStore])
def test_a_wrapper_forgets_the_ends_of_logs_that_are_given_back_together(kind):
    store = kind(MemoryStore(), Keys.of(KEY))
    leases = store.acquire(["tasks/a", "tasks/b"], "me", 60)
    for lease in leases:
        store.append(lease, 0, [b'{"seq":1,"sum":"0123456789abcdef"}'])
    assert store.sync(leases) == [None, None]
    assert set(store._ends) == set(leases)
    store.release(leases)
    assert not store._ends
    assert store.holder("tasks/a") is None


def test_the_keys_of_an_encrypted_store_are_not_taken_among_many():
    store = SealedStore(MemoryStore(), Keys.of(KEY))
    with pytest.raises(BadInput, match="has its keys"):
        store.acquire(["tasks/a", f"{KEYS}root"], "me", 60)
    assert store.holder("tasks/a") is None


@pytest.mark.parametrize("way", list(WAYS.values()), ids=list(WAYS))
def test_sessions_keep_the_port_too_though_their_names_are_others_below(way, tmp_path):
    store = secured(open_store(tmp_path / "w"), *way)
    streams = [f"sessions/S {n}" for n in range(5)]
    leases = store.acquire(streams, "me", 60.0)
    assert [lease.stream for lease in leases] == streams
    assert [holder_of(store, stream) for stream in streams] == ["me"] * 5
    assert isinstance(store.acquire(streams[:1], "you", 60.0)[0], TaskBusy)
    for n, lease in enumerate(leases):
        store.append(lease, 0, [chain.seal(chain.ROOT, b'{"seq":1,"id":"S %d"}' % n)[0]],
                     Facts(user="ada", session=f"S {n}", created_at=AT))  # fmt: skip
    assert list(store.sync(leases)) == [None] * 5
    assert post_to(store, streams[1], "note", b"hi") and not post_to(
        store, streams[1], "note", b"again"
    )
    assert [(post.stream, post.data) for post in inbox_of(store, streams)] == [(streams[1], b"hi")]
    unpost(store, streams[1], "note")
    assert list(inbox_of(store, streams)) == []
    # A page goes by the names that are shown, also of those that were made at the same moment.
    seen, beyond = [], None
    while True:
        page = store.find(Query(prefix="sessions/", user="ada", limit=2, beyond=beyond))
        seen += [stream for stream, _ in page.found]
        if not page.more:
            break
        beyond = PagePlace(AT, seen[-1])
    assert seen == streams[::-1]
    assert store.find(Query(prefix="sessions/S 3")).found[0][0] == streams[3]
    store.delete(leases[0])
    store.release(leases[1:])
    assert sorted(streams_in(store, "sessions/")) == streams[1:]
    assert dict(facts_of_all(store, "sessions/"))[streams[1]].session == "S 1"
    with pytest.raises(LeaseLost):
        store.append(leases[1], 1, [b"late"])
    store.close()
