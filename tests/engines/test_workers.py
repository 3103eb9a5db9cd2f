"""Several workers of Temporal in one process."""

from __future__ import annotations

from pathlib import Path

from holdfast import Holdfast, step, task
from holdfast.testing.servers import TemporalServer
from tests.engines.temporally import PATIENCE_S, temporal_at, until, working


@step
def workers_step(name: str) -> str:
    return f"hi {name}"


@task
def workers_greet(name: str) -> str:
    return workers_step(name)


def test_a_worker_goes_on_when_another_of_its_queue_in_the_same_process_has_ended(
    temporal: TemporalServer, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Holdfast(url, engine=temporal_at(temporal, "shared")) as hf, working(hf) as said:
        until(lambda: said)
        with (
            Holdfast(url, engine=temporal_at(temporal, "shared")) as other,
            working(other) as said_by_other,
        ):
            until(lambda: said_by_other)
        greeting = hf.start(workers_greet, "Ada", id="workers-1")
        assert greeting.result(timeout_s=PATIENCE_S) == "hi Ada"
