"""How soon the states of a long log open: `python -m bench.snapshots EVENTS URL` says it.

A task of that many events is run, and then 200 of its states are opened, each after an event chosen
at random: by the waypoints that the writer left, in a store opened anew. Printed are the median and
the slowest, how long folding the whole log takes, and what the waypoints take beside the log.

`python -m bench.snapshots writer STEPS URL` runs a task of that many steps five times with
waypoints and five times without, by turns, and prints the ratio of the medians.
"""

import json
import random
import statistics
import sys
import time

from holdfast import Holdfast, decide, note, step, task
from holdfast.core.kinds import id_of
from holdfast.log.states import load, state_upto
from holdfast.log.trail import WaypointWriter
from holdfast.stores.port import Store

OPENED = 200
TURNS = 5


@step
def look(number: int, text: str) -> str:
    return f"{number}: {text}"


@task
def long_task(steps: int) -> int:
    for number in range(steps):
        look(number, "a room with a desk" * (1 + number % 40))
        if number % 50 == 0:
            note(f"looked at {number}", data={"number": number})
            decide("next", number + 1, options=[number, number + 1], because="it is the next")
    return steps


@task
def plain_steps(steps: int) -> int:
    for number in range(steps):
        look(number, "a room with a desk")
    return steps


def opened(events: int, url: str) -> dict[str, object]:
    """How soon states open."""
    steps = int(events / 2.04)
    with Holdfast(url, projections=False) as hf:
        hf.run(long_task, steps, id="long")
    with Holdfast(url, projections=False) as hf:
        stream = "tasks/long"
        start = time.perf_counter()
        last = load(hf.store, id_of(stream), missing_ok=True).seq
        folded_s = time.perf_counter() - start
        took = []
        for seq in random.Random(7).choices(range(1, last + 1), k=OPENED):
            start = time.perf_counter()
            state = state_upto(hf.store, stream, seq)
            took.append(time.perf_counter() - start)
            if state.seq != seq:
                raise SystemExit(f"asked for {seq}, got {state.seq}")
        return {
            "events": last,
            "folded_ms": round(folded_s * 1000),
            "median_ms": round(statistics.median(took) * 1000, 1),
            "worst_ms": round(max(took) * 1000, 1),
            "log_bytes": sum(len(line) + 1 for line in hf.store.read(stream)),
            "waypoint_bytes": waypoint_bytes(hf.store, stream),
            "url": url.split(":")[0] if ":" in url else "files",
        }


def waypoint_bytes(store: Store, stream: str) -> int:
    """What the waypoints of a stream take."""
    return sum(len(row.data) for row in store.get_side([stream], "derived"))


def writing(steps: int, url: str) -> dict[str, object]:
    """What they cost the writer: in time, and in CPU time, which others disturb less."""
    took: dict[str, list[tuple[float, float]]] = {"with": [], "without": []}
    caught_up = WaypointWriter.catch_up
    with Holdfast(url, projections=False) as hf:
        hf.run(plain_steps, 100, id="warm")
        for turn in range(TURNS):
            for how, seconds in took.items():
                leave = caught_up if how == "with" else (lambda *given: None)
                WaypointWriter.catch_up = leave  # type: ignore[method-assign]
                wall, cpu = time.perf_counter(), time.process_time()
                hf.run(plain_steps, steps, id=f"{how}-{turn}")
                seconds.append((time.perf_counter() - wall, time.process_time() - cpu))
    WaypointWriter.catch_up = caught_up  # type: ignore[method-assign]
    wall_of, cpu_of = (
        {how: statistics.median(each[n] for each in found) for how, found in took.items()}
        for n in (0, 1)
    )
    return {
        "steps": steps,
        "step_us": round(wall_of["without"] / steps * 1e6, 1),
        "ratio": round(wall_of["with"] / wall_of["without"], 3),
        "cpu_ratio": round(cpu_of["with"] / cpu_of["without"], 3),
        "cpu_us_a_step": round((cpu_of["with"] - cpu_of["without"]) / steps * 1e6, 2),
    }


def main() -> None:
    if sys.argv[1] == "writer":
        print(json.dumps(writing(int(sys.argv[2]), sys.argv[3])))
    else:
        print(json.dumps(opened(int(sys.argv[1]), sys.argv[2])))


if __name__ == "__main__":
    main()
