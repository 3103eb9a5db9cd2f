"""Nothing blocks an event loop: each method that may wait has an async form, made by one means."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

from holdfast import Handle, Holdfast, TaskNotFound, Unanswered, ask, step, task
from holdfast.stores.memory import MemoryStore

AT_ONCE = {"options", "follow", "memory", "on", "stream", "values"}
"""They read nothing and write nothing: what they return does."""


def test_every_method_that_may_wait_has_an_async_form():
    public = {name for name in vars(Holdfast) if not name.startswith("_")}
    forms = {name for name in public if inspect.iscoroutinefunction(getattr(Holdfast, name))}
    plain = public - forms - AT_ONCE - {"from_env"}
    assert {f"a{name}" for name in plain} == forms


@pytest.mark.parametrize("name", ["answer", "tasks", "fork", "gc"])
def test_a_form_has_the_parameters_of_its_method(name):
    form, method = getattr(Holdfast, f"a{name}"), getattr(Holdfast, name)
    assert inspect.signature(form) == inspect.signature(method)
    assert (form.__name__, form.__qualname__) == (f"a{name}", f"Holdfast.a{name}")
    assert f"`{name}`" in form.__doc__


@step
def shout(word: str) -> str:
    return word.upper()


@task
def greeting(name: str) -> str:
    return shout(name) if ask("Loud?", bool, id="loud") else name


def test_a_web_server_can_do_all_of_it_on_its_loop(tmp_path):
    async def main() -> None:
        with Holdfast(tmp_path / "w", sync=False) as hf:
            handle = await hf.astart(greeting, "ada", id="g-1", user="ada")
            assert isinstance(handle, Handle)
            with pytest.raises(Unanswered):
                await hf.aresume("g-1")
            assert [view.id for view in await hf.atasks(user="ada")] == ["g-1"]
            assert (await hf.atask("g-1")).questions[0].key == "loud"
            await hf.aanswer("g-1", True)
            assert await hf.aresume("g-1") == "ADA" == await handle.aresult()
            fork = await hf.afork("g-1", at=2, results={"2": "ada!"}, effects="live")
            await hf.apause(fork.id)
            assert (await hf.atask(fork.id)).status == "paused"
            assert await hf.acancel(fork.id) == "cancelled"
            other = await hf.options(id="g-2").astart(greeting, name="bob")
            await other.acancel("enough")
            assert (await hf.averify()).sound
            with pytest.raises(TaskNotFound):
                await hf.ahandle("nobody")

    asyncio.run(main())


class Watched(MemoryStore):
    """Notes the threads that it is called in."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_") and name not in ("threads", "url"):
            self.threads.add(threading.get_ident())
        return super().__getattribute__(name)


def test_no_form_touches_the_store_in_the_thread_of_the_loop():
    store = Watched()

    async def main() -> None:
        with Holdfast(store) as hf:
            store.threads.clear()
            await hf.astart(greeting, "ada", id="g-1")
            with pytest.raises(Unanswered):
                await hf.aresume("g-1")
            await hf.aanswer("g-1", False)
            await hf.atasks()
            await hf.apage()
            await hf.aresume("g-1")
            await hf.averify()
            async for _ in hf.follow("g-1"):
                pass
            assert threading.get_ident() not in store.threads
            assert store.threads  # it was asked, elsewhere

    asyncio.run(main())
