"""What goes wrong around Restate is said, loses nothing, and goes on when it is mended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, task
from holdfast.engines.restate import Restate
from holdfast.engines.routing import job_for
from holdfast.errors import EngineError
from holdfast.testing.servers import RestateServer, free_ports
from tests.engines.ill import (
    HOSTILE,
    Full,
    begin_anew,
    define,
    go_on,
    ill_ask,
    ill_greet,
    ill_large,
    ill_name,
    ill_wait,
    made,
    without,
)
from tests.engines.restately import last_failure
from tests.engines.working import driving, until

NOBODY = "http://127.0.0.1:1"
PATIENCE_S = 30.0
_prefixes = count(1)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    begin_anew()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/state.db"


def restate_at(server: RestateServer) -> Restate:
    """A Restate with services and an address of its own."""
    listen = f"127.0.0.1:{next(free_ports())}"
    prefix = f"sick{next(_prefixes)}."
    return Restate(server.url, admin=server.admin_url, listen=listen, prefix=prefix)


@contextmanager
def working(hf: Holdfast, until_it_says: str = "drives tasks") -> Iterator[list[str]]:
    """A worker in a thread; yields what it says, when it has said that."""
    said: list[str] = []
    worker: Any = hf.engine.worker(hf, say=said.append)
    with driving(worker):
        until(lambda: worker._trouble is not None or any(until_it_says in text for text in said))
        assert worker._trouble is None, worker._trouble
        assert bool(worker.hindered) == (until_it_says != "drives tasks")
        yield said


def until_said(said: list[str], *words: str) -> None:
    try:
        until(lambda: any(all(word in text for word in words) for text in said))
    except AssertionError:
        raise AssertionError(said) from None


# No server


def test_without_a_server_a_task_is_safe_and_is_started_when_there_is_one(
    restate: RestateServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
    down = Restate(NOBODY, admin=NOBODY, listen="127.0.0.1:0")
    with Holdfast(url, engine=down) as hf:
        with pytest.raises(EngineError, match=f"{NOBODY} can't be reached.*is safe in sqlite"):
            hf.run(ill_greet, "Ada", id="down-1")
        assert hf.start(ill_ask, "Bob", id="down-2").status == "pending"
        hf.pause("down-2")
        hf.cancel("down-2", because="not needed")
        with working(hf, "can't be reached"):
            pass
    with Holdfast(url, engine=restate_at(restate)) as hf, working(hf) as said:
        until_said(said, "down-1: started, as restate did not drive it")
        until(lambda: [hf.task(f"down-{n}").status for n in (1, 2)] == ["completed", "cancelled"])
        assert hf.task("down-1").result == "hi Ada"
        assert hf.task("down-2").state.because == "not needed"
    assert made.count("Ada") == 1


# The code


def test_a_worker_without_the_code_of_some_tasks_drives_the_others_and_one_with_it_goes_on(
    restate: RestateServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "holdfast")
    with Holdfast(url, engine=restate_at(restate)) as hf:
        lost = [hf.start(ill_ask, "Ada", id=f"a-{n}") for n in range(5)]
        others = [hf.start(ill_greet, f"Bob {n}", id=f"b-{n}") for n in range(5)]
        with without("ill_ask"), working(hf) as said:
            for n, other in enumerate(others):
                assert other.result(PATIENCE_S) == f"hi Bob {n}"
            until_said(said, "'a-0': no worker has registered 'ill_ask'")
            assert hf.start(ill_greet, "Cy", id="a-9").result(PATIENCE_S) == "hi Cy"
            assert {each.status for each in lost} == {"pending"}
        with working(hf):
            for each in lost:
                until(lambda each=each: each.status == "awaiting_user")  # type: ignore[misc]
                hf.answer(each.id, True)
                assert each.result(PATIENCE_S) == "Ada: True"


def test_a_task_under_way_waits_while_its_worker_lacks_the_code(
    restate: RestateServer, url: str
) -> None:
    with Holdfast(url, engine=restate_at(restate)) as hf:
        with working(hf):
            handle = hf.start(ill_ask, "Ada", id="code-1")
            until(lambda: handle.status == "awaiting_user")
        with without("ill_ask"), working(hf):
            hf.answer("code-1", True)
            until(lambda: last_failure(hf, "code-1"))
            assert handle.status == "awaiting_user"
        with working(hf):
            assert handle.result(PATIENCE_S) == "Ada: True"
    assert made == ["Ada"]


def test_of_two_versions_the_older_refuses_what_the_newer_began(
    restate: RestateServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Holdfast(url, engine=restate_at(restate)) as hf:
        handle = hf.start(define(2), "Ada", id="code-3")
        define(1)
        with working(hf):
            until(lambda: "version 2" in caplog.text)
        assert made == []
        define(2)
        with working(hf):
            until(lambda: handle.status == "awaiting_user")
            hf.answer("code-3", True)
            assert handle.result(PATIENCE_S) == "hi Ada True 2"


# Values and names


@task
def ill_returns(size: int) -> str:
    return ill_large(size)


def test_a_result_that_is_larger_than_a_message_of_restate_may_be(
    restate: RestateServer, url: str
) -> None:
    size = 40 * 1024 * 1024
    with (
        Holdfast(url, engine=restate_at(restate), max_value_bytes=2 * size) as hf,
        working(hf),
    ):
        assert len(hf.run(ill_returns, size, id="large-1")) == size


def test_ids_and_names_of_all_kinds(restate: RestateServer, url: str) -> None:
    with Holdfast(url, engine=restate_at(restate)) as hf, working(hf):
        for id in [*HOSTILE, ".."]:
            assert hf.run(ill_name, id, id=id) == id
            job = job_for(hf.task(id).state)
            until(lambda job=job: getattr(hf.engine.query(job), "status", "") == "ended")  # type: ignore[misc]
    assert made == [*HOSTILE, ".."]


# The store


def test_a_disk_that_is_full_for_a_while_stops_nothing_for_good(
    restate: RestateServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = Full()
    with Holdfast(store, engine=restate_at(restate)) as hf, working(hf):
        handle = hf.start(ill_wait, "Ada", id="full-1")
        until(lambda: made)
        store.is_full = True
        go_on.set()
        until(lambda: "no space left" in caplog.text)
        store.is_full = False
        assert handle.result(PATIENCE_S) == "hi Ada after"
    assert made.count("Ada after") == 1
