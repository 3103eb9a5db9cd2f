"""A task that has no event yet is held for a moment only: whoever starts it waits."""

from __future__ import annotations

import threading

from holdfast import Holdfast, task
from holdfast.log.reading import stream_of


@task
def greet_begun_elsewhere(name: str) -> str:
    return f"hello {name}"


def test_a_start_waits_for_one_that_holds_the_task_before_its_first_event(tmp_path):
    with Holdfast(tmp_path / "w") as hf:
        (lease,) = hf.store.acquire([stream_of("greeting")], "a worker that looks", 30.0)
        release = threading.Timer(0.2, lambda: hf.store.release([lease]))
        release.start()
        assert hf.options(id="greeting").start(greet_begun_elsewhere, "Ada").id == "greeting"
        release.join()
        assert hf.run(greet_begun_elsewhere, "Ada", id="greeting") == "hello Ada"
