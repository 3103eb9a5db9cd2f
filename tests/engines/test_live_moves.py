"""A task that is half done goes on elsewhere: with its question, its retries, and its child."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, Worker
from holdfast.core.events import Moved
from holdfast.testing.servers import free_ports
from tests.engines.movers import house
from tests.engines.serve import engine_of
from tests.engines.working import driving, until


def waits(hf: Holdfast, question: str, call: str) -> bool:
    """Whether a question is open, and a call failed at least twice and backs off."""
    calls = hf.task("h").state.calls.values()
    asked = any(c.key == question and c.status == "waiting" for c in calls)
    dialled = [c for c in calls if c.name == "moved_dial" and c.path.startswith(call)]
    return asked and any(c.failures >= 2 and c.status == "backing_off" for c in dialled)


def failures(hf: Holdfast, call: str) -> int:
    calls = hf.task("h").state.calls.values()
    return max(c.failures for c in calls if c.name == "moved_dial" and c.path.startswith(call))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AGENT_WORLD_FOLDER", str(tmp_path))
    return tmp_path


def where(engine: str, server: Any) -> list[str]:
    if engine == "temporal":
        return ["temporal", server.address, "moves"]
    return ["restate", server.url, server.admin_url, f"127.0.0.1:{next(free_ports())}"]


def carried_out(hf: Holdfast, world: Path, moves: list[str]) -> None:
    """What must be true of the task at its end, wherever it was driven."""
    paid = (world / "paid").read_text().split()
    assert len(paid) == len(set(paid)) == 2
    view = hf.task("h")
    assert [e.engine for e in view.state.trail if isinstance(e, Moved)] == moves
    for call in view.state.calls.values():
        numbers = [attempt.number for attempt in call.attempts]
        assert numbers == list(range(1, len(numbers) + 1))
    assert hf.verify("h").sound


@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ["temporal", "restate"])
def test_a_task_goes_from_here_to_an_engine_and_back_with_all_that_it_waits_for(
    engine: str, request: pytest.FixtureRequest, world: Path
) -> None:
    server = request.getfixturevalue(engine)
    store, remote = f"sqlite:///{world}/store.db", engine_of(*where(engine, server))
    with Holdfast(store) as hf, Holdfast(store, engine=remote) as there:
        with driving(remote.worker(there)):
            with driving(Worker(hf, patience_s=0.1)):
                hf.start(house, id="h")
                until(lambda: waits(hf, "left", "2."))
                before = failures(hf, "2.")
                assert there.move("h") == ("h",)
                assert hf.task("h").state.driver == engine
            until(lambda: failures(hf, "2.") > before)  # its attempts go on there
            (world / "one").touch()
            there.answer("h", True, question="left")
            until(lambda: waits(hf, "right", "4."))
            assert set(there.move("h", "local")) == {"h", "h.3"}
            before = failures(hf, "4.")
        with driving(Worker(hf, patience_s=0.1)):
            until(lambda: failures(hf, "4.") > before)
            hf.answer("h.3", True)
            (world / "two").touch()
            hf.answer("h", False, question="right")
            until(lambda: hf.task("h").status == "completed")
        assert hf.resume("h") == {
            "paid": "paid the van",
            "first": [True, "one answered"],
            "second": [False, "two answered"],
            "child": True,
        }
        carried_out(hf, world, [engine, ""])
