"""Why a task does not move is in its log, once; and no end of a child goes unheard."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, Worker, start, step, task
from holdfast.core.events import Claimed, Hindered
from holdfast.engines.weather import WakeUps, Weather
from holdfast.errors import BadInput, StorageFailed
from holdfast.stores.postgres.database import with_pool_size

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
    assert not weather.is_fair and weather.why == "gone"
    assert weather.clears() and not weather.clears()
    assert weather.is_fair and [text.partition(":")[0] for text in said] == [
        "the store does not answer",
        said[1].partition(":")[0],
    ]
    assert len(said) == 2


@pytest.mark.parametrize("size", ["0", "-1", "x", "", "1001", "²"])
def test_a_pool_size_that_is_no_number_of_connections_is_refused(size):
    with pytest.raises(BadInput, match="pool_size"):
        with_pool_size(f"postgresql://db/trips?pool_size={size}")
