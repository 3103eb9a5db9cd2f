"""A store that somebody made is taken if it has the whole port, and refused at once if not."""

from __future__ import annotations

import pytest

from holdfast import BadInput, Holdfast
from holdfast.stores.memory import MemoryStore
from holdfast.stores.port import Store
from holdfast.stores.wrapped import Wrapped

PORT = [name for name in vars(Store) if not name.startswith("_")]


class Without:
    """The memory store, without some of its methods."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._inner = MemoryStore()

    def __getattr__(self, name: str) -> object:
        if name in self._names:
            raise AttributeError(name)
        return getattr(self._inner, name)


@pytest.mark.parametrize("store", [MemoryStore(), Wrapped(MemoryStore()), Without()])
def test_a_store_with_the_whole_port_is_taken(store):
    with Holdfast(store) as hf:
        assert list(hf.tasks()) == []


@pytest.mark.parametrize("name", PORT)
def test_a_store_that_lacks_a_method_is_refused_by_the_name_of_it(name):
    with pytest.raises(BadInput, match=f"^Without is no store, it lacks {name}: give a folder"):
        Holdfast(Without(name))


def test_all_that_is_missing_is_named():
    with pytest.raises(BadInput, match="lacks find, rename, sweep: "):
        Holdfast(Without("sweep", "find", "rename"))


def test_what_is_only_inherited_from_the_protocol_is_missing():
    class Half(Store):
        url = "half:"

        def read(self, stream, after_seq=0):
            return iter(())

    with pytest.raises(BadInput, match="Half is no store, it lacks acquire, ") as refused:
        Holdfast(Half())
    lacks = str(refused.value).partition(" lacks ")[2].partition(":")[0].split(", ")
    assert lacks == [name for name in PORT if name not in ("url", "read")]


@pytest.mark.parametrize("thing", [None, 42, MemoryStore, object()])
def test_what_is_no_store_is_refused(thing):
    with pytest.raises(BadInput, match="is no store: give a folder, a URL, or an object"):
        Holdfast(thing)
