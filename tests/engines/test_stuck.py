"""A task that ends its workers is set aside, and holds up no other one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast, TaskBusy, TaskStuck, Worker
from holdfast.core.events import Claimed, DriverDied, SetAside
from holdfast.engines.remote import host as hosts
from tests.engines import fleet_tasks as fleet
from tests.engines.toy import Toy
from tests.flavors import eventually

ROOT = Path(__file__).parents[2]


def drive(folder: Path, *, max_crashes: int = 5) -> int:
    """One worker process, until it has nothing to do or is ended; its exit code."""
    command = [
        *(sys.executable, "-m", "holdfast", "worker", "--app", "tests.engines.fleet_tasks"),
        *("--until-idle", "-q", "--max-crashes", str(max_crashes)),
        *("--url", f"sqlite:///{folder / 'fleet.db'}"),
    ]
    env = {**os.environ, "FLEET_FOLDER": str(folder)}
    return subprocess.run(command, cwd=ROOT, env=env, timeout=120, check=False).returncode


@pytest.mark.parametrize(
    ("guilty", "path", "name"), [(fleet.poisoned, "1", "poison"), (fleet.poisoned_at_once, "", "")]
)
def test_a_task_that_ends_its_workers_is_set_aside(tmp_path, monkeypatch, guilty, path, name):
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    with Holdfast(f"sqlite:///{tmp_path}/fleet.db") as hf:
        hf.start(guilty, id="bad")
        hf.start(fleet.plain, 1, id="good")
        ends = [drive(tmp_path, max_crashes=3) for _ in range(4)]
        assert ends == [9, 9, 9, 0]
        assert hf.task("good").result == 1
        view = hf.task("bad")
        assert view.status == "stuck"
        events = list(view.events())
        died = [event for event in events if isinstance(event, DriverDied)]
        assert [(event.path, event.name, event.deaths) for event in died] == [
            ("", "", 1), (path, name, 2), (path, name, 3),
        ]  # fmt: skip
        claims = [event for event in events if isinstance(event, Claimed)]
        assert [event.owner for event in died] == [event.owner for event in claims]
        (aside,) = (event for event in events if isinstance(event, SetAside))
        assert (aside.owner, aside.path, aside.deaths) == (claims[-1].owner, path, 3)
        assert [task.id for task in hf.tasks(status="stuck")] == ["bad"]
        with pytest.raises(TaskStuck, match="3 drivers died"):
            hf.run(guilty, id="bad")
        assert drive(tmp_path) == 0, "nobody takes it up"


def test_a_stuck_task_goes_on_when_it_is_told_and_is_counted_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    with Holdfast(f"sqlite:///{tmp_path}/fleet.db") as hf:
        hf.start(fleet.poisoned, id="bad")
        for _ in range(2):
            drive(tmp_path, max_crashes=1)
        assert hf.task("bad").status == "stuck"
        hf.unpause("bad")
        assert [drive(tmp_path, max_crashes=2) for _ in range(3)] == [9, 9, 0]
        assert hf.task("bad").status == "stuck"
        monkeypatch.setattr(fleet.os, "_exit", lambda code: None)  # the cause is mended
        assert hf.resume("bad") is None
        assert hf.task("bad").status == "completed"
        assert hf.task("bad").state.deaths == {}


def test_a_worker_that_was_told_to_end_has_not_died(tmp_path, monkeypatch):
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    url = f"sqlite:///{tmp_path}/fleet.db"
    with Holdfast(url) as first:
        first.start(fleet.with_timer, 1, id="timer")
        Worker(first).run_until_idle()
    with Holdfast(url) as second:
        view = second.task("timer")
        assert view.status == "in_progress"
        assert second.resume("timer") == 1
        assert not any(isinstance(event, DriverDied) for event in view.events())


def test_workers_of_an_engine_that_die_while_a_task_only_waits_do_not_set_it_aside(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(hosts, "_SOON", 0.0001)
    engine = Toy()
    with Holdfast(f"sqlite:///{tmp_path}/fleet.db", engine=engine) as hf:
        hf.start(fleet.plain, 1, id="waits")
        for number in range(7):
            host = hosts.Host(hf._driving, engine.name, linger_s=3600)
            hf._holding.process = f"worker {number}"
            with host.hub.hold("waits") as log:
                pass  # its function goes on, up to where it waits
            if number == 0:  # this one is killed in the middle of that
                host.hub._held.clear()
                hf._holding._heartbeat.remove(log)
                hf.store.release([log.lease])
            else:
                eventually(lambda host=host: not host.hub.holds("waits"))
            host.close()
        view = hf.task("waits")
        died = [event for event in view.events() if isinstance(event, DriverDied)]
        assert [event.deaths for event in died] == [1]
        assert view.status == "in_progress"


def test_an_engine_drives_two_suspects_one_after_the_other_so_the_innocent_gets_on(
    tmp_path, monkeypatch
):
    """Whenever a poisoned task ends a worker, all that it had in hand is delivered to the next."""
    monkeypatch.setattr(hosts, "_SOON", 0.0001)
    monkeypatch.setattr(hosts, "BUSY_S", 0.0)
    engine = Toy()
    with Holdfast(f"sqlite:///{tmp_path}/fleet.db", engine=engine) as hf:
        for id in ("guilty", "innocent"):
            hf.start(fleet.plain, 1, id=id)
        for number in range(3):
            host = hosts.Host(hf._driving, engine.name, linger_s=3600)
            hf._holding.process = f"worker {number}"
            with host.hub.hold("guilty") as first:
                if number < 2:
                    with host.hub.hold("innocent") as second:
                        pass
                    for log in (first, second):  # it is killed with both in hand
                        hf._holding._heartbeat.remove(log)
                        hf.store.release([log.lease])
                else:
                    with pytest.raises(TaskBusy, match="'innocent' waits for its turn"):
                        host.hub.take("innocent", 0)
                    with monkeypatch.context() as closed:  # it need not look again to know
                        closed.setattr(hf._holding, "open", None)
                        with pytest.raises(TaskBusy, match="'innocent' waits for its turn"):
                            host.hub.take("innocent", 0)
                        with pytest.raises(TaskBusy, match="'innocent' waits for its turn"):
                            asyncio.run(host.hub.taken("innocent", 0))
            if number < 2:
                host.hub._held.clear()
            else:
                eventually(lambda host=host: not host.hub.holds("guilty"))
                asyncio.run(host.hub.taken("innocent", 0))
                assert host.hub.holds("innocent")
            host.close()
        died = [e.deaths for e in hf.task("innocent").events() if isinstance(e, DriverDied)]
        assert died == [1, 2]


def test_who_waits_for_a_log_holds_up_nobody_who_wants_another(tmp_path):
    """Another worker keeps the log of one task for long: all others of this one go on."""
    with (
        Holdfast(f"sqlite:///{tmp_path}/fleet.db", engine=Toy()) as hf,
        Holdfast(f"sqlite:///{tmp_path}/fleet.db", engine=Toy()) as other,
    ):
        for id in ("kept", "free"):
            hf.start(fleet.plain, 1, id=id)
        host = hosts.Host(hf._driving, "toy", linger_s=3600)
        kept = other._holding.open("kept")

        async def both() -> list[str]:
            ended: list[str] = []

            async def take(id: str) -> None:
                await host.hub.taken(id, 0, 60.0)
                ended.append(id)

            waiting = asyncio.create_task(take("kept"))
            await asyncio.sleep(0.1)
            await take("free")
            other._holding.release(kept)
            await waiting
            return ended

        assert asyncio.run(both()) == ["free", "kept"]
        assert host.hub.holds("kept")
        assert host.hub.holds("free")
        host.close()
        assert not host.hub._held, "what was released is forgotten"
