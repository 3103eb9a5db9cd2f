"""Why a task does not move is in its log, once; and no end of a child goes unheard."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from holdfast import Holdfast, Worker, start, step, task
from holdfast.core.events import Claimed, Hindered
from holdfast.engines.weather import WakeUps, Weather
from holdfast.errors import BadInput, StorageFailed
from holdfast.integrations.prometheus import Monitor
from holdfast.stores.postgres.database import address_of
from tests.stores.postgres_server import own_server

mode = {"changed": False}


@step
def weather_one() -> int:
    return 1


@step
def weather_two() -> int:
    return 2


@step
def weather_three() -> int:
    return 3


@task
def weather_changing() -> int:
    first = weather_two() if mode["changed"] else weather_one()
    if not mode["changed"]:
        raise KeyboardInterrupt  # its process is interrupted here
    return first + weather_three()


@task
def weather_child() -> int:
    return 7


@task
def weather_parent() -> int:
    return start(weather_child, id="the-child").result()


@step
def weather_slow(number: int) -> int:
    time.sleep(0.02)
    return number


@task
def weather_long(steps: int) -> int:
    return sum(weather_slow(number) for number in range(steps))


@contextmanager
def working(hf: Holdfast) -> Iterator[tuple[Worker, list[str]]]:
    """A worker in a thread, and what it says."""
    said: list[str] = []
    worker = Worker(hf, say=said.append)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield worker, said
    finally:
        worker.stop()
        thread.join()


def wait_for(is_so: Callable[[], object]) -> None:
    give_up_at = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def of_the_weather(said: list[str]) -> list[str]:
    return [line for line in said if line.startswith(("the store", "upkeep"))]


def test_a_database_that_takes_no_writes_is_weather_and_said_once():
    with own_server() as server:
        url = server.new_database()

        def set_read_only(value: str) -> None:
            with psycopg.connect(url, autocommit=True) as conn:
                conn.execute("set default_transaction_read_only = off")
                conn.execute(f"alter system set default_transaction_read_only = {value}".encode())
                conn.execute("select pg_reload_conf()")

        with (
            Holdfast(url) as hf,
            working(hf) as (worker, said),
            Monitor(hf, ":0", hindered=lambda: worker.weather.why) as monitor,
        ):
            for number in range(3):
                hf.start(weather_long, 300, id=f"long-{number}")
            wait_for(lambda: len(worker.active) == 3)
            set_read_only("on")
            wait_for(lambda: not worker.weather.is_fair and not worker.active)
            wait_for(lambda: monitor.page("/readyz")[0] == 503)
            before = len(said)
            time.sleep(3.0)  # it tries again and again, and says nothing
            assert said[before:] == []
            assert not worker.weather.is_fair
            assert b"read-only" in monitor.page("/readyz")[2]
            set_read_only("off")
            wait_for(lambda: worker.weather.is_fair and len(worker.active) == 3)
            wait_for(lambda: monitor.page("/readyz")[0] == 200)
            assert len([line for line in said if "the store" in line]) == 2, said
            assert len([line for line in said if line.startswith("upkeep")]) <= 1, said
            for number in range(3):
                assert hf.handle(f"long-{number}").result(timeout_s=60) == sum(range(300))


def test_a_task_that_the_store_fails_alone_holds_up_no_other(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/w.db"
    with Holdfast(url) as hf:
        whole = type(hf.store).acquire

        def acquire(store, streams, owner, lease_s):
            given = whole(store, streams, owner, lease_s)
            if list(streams) == ["tasks/bad"]:
                store.release(given)
                return [StorageFailed("its pages can't be read")]
            return given

        hf.start(weather_long, 1, id="bad")
        monkeypatch.setattr(type(hf.store), "acquire", acquire)
        with working(hf) as (worker, said):
            wait_for(lambda: any(line.startswith("bad: StorageFailed") for line in said))
            before = len(said)
            assert hf.start(weather_long, 3, id="good").result(timeout_s=60) == 3
            wait_for(lambda: worker.weather.is_fair)
            assert of_the_weather(said[before:]) == []


def test_changed_code_is_recorded_once_and_each_new_worker_tries_once(tmp_path):
    url = f"sqlite:///{tmp_path}/w.db"
    mode["changed"] = False
    with Holdfast(url) as hf, pytest.raises(KeyboardInterrupt):
        hf.run(weather_changing, id="t")
    mode["changed"] = True
    with Holdfast(url) as hf:
        for _ in range(2):  # the same worker, asked twice, does not try again
            worker = Worker(hf)
            worker.run_until_idle()
            worker.run_until_idle()
        view = hf.task("t")
        assert view.state.hindrance is not None
        assert view.state.hindrance.error == "CodeChanged"
        assert "fork" in view.state.hindrance.why, "it says what to do"
        events = list(view.events())
        assert sum(isinstance(event, Hindered) for event in events) == 2
        assert sum(isinstance(event, Claimed) for event in events) == 3
        rows = hf.sql("select hindrance, last_error, crashes, at_work from tasks").rows
        assert "CodeChanged" in rows[0][1]
        mode["changed"] = False
        with pytest.raises(KeyboardInterrupt):
            hf.resume("t")
        assert hf.task("t").state.hindrance is None, "a claim says that it goes on"


def test_a_parent_hears_of_a_child_whose_end_nobody_could_tell(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/w.db"
    with Holdfast(url) as hf:
        monkeypatch.setattr(hf._driving, "tell_parent", lambda state: None)  # it died before that
        hf.start(weather_parent, id="parent")
        worker = Worker(hf, patience_s=0)
        worker.run_until_idle()
        assert hf.task("the-child").status == "completed"
        assert hf.task("parent").status == "in_progress"
    with Holdfast(url) as hf:
        WakeUps(hf._holding).step()
        Worker(hf).run_until_idle()
        assert hf.task("parent").result == 7


def test_the_weather_is_said_once_and_a_wait_is_never_long():
    said: list[str] = []
    weather = Weather(said.append)
    waits = [weather.fails(StorageFailed("gone")) for _ in range(50)]
    assert all(0 < wait <= 2 for wait in waits)
    assert weather.why == "gone"
    assert weather.clears() and not weather.clears()
    assert not weather.why and [text.partition(":")[0] for text in said] == [
        "the store does not answer",
        said[1].partition(":")[0],
    ]
    assert len(said) == 2


@pytest.mark.parametrize("size", ["0", "-1", "x", "", "1001", "²"])
def test_a_pool_size_that_is_no_number_of_connections_is_refused(size):
    with pytest.raises(BadInput, match="pool_size"):
        address_of(f"postgresql://db/trips?pool_size={size}")
