"""How soon a long task is forked, and what that takes: `python -m bench.forks EVENTS URL` says it.

A task of that many events is run. In a store opened anew it is forked before random steps, and a
snapshot of each fork is opened. Printed are the median and the slowest of both, and the bytes that
a fork adds to the store.
"""

import json
import random
import statistics
import sys
import time

from bench.snapshots import long_task
from holdfast import Holdfast
from holdfast.log.states import load_sound

FORKS = 40


def forked(events: int, url: str) -> dict[str, object]:
    """The figures of one store."""
    steps = int(events / 2.04)
    with Holdfast(url, projections=False) as hf:
        hf.run(long_task, steps, id="long")
    chosen = random.Random(7)
    made, opened, sizes = [], [], []
    with Holdfast(url, projections=False) as hf:
        last = load_sound(hf.store, "long").seq
        for number in range(FORKS):
            start = time.perf_counter()
            fork = hf.fork("long", at=chosen.randint(1, steps), effects="live", new_id=f"f{number}")
            made.append(1000 * (time.perf_counter() - start))
            sizes.append(sum(len(line) + 1 for line in hf.store.read(f"tasks/{fork.id}")))
            seq = chosen.randint(1, fork.seq)
            start = time.perf_counter()
            hf.snapshot(fork.id, seq=seq)
            opened.append(1000 * (time.perf_counter() - start))
    return {
        "events": last,
        "fork_ms": {"median": round(statistics.median(made), 1), "worst": round(max(made), 1)},
        "fork_bytes": max(sizes),
        "open_ms": {"median": round(statistics.median(opened), 1), "worst": round(max(opened), 1)},
    }


if __name__ == "__main__":
    print(json.dumps(forked(int(sys.argv[1]), sys.argv[2])))
