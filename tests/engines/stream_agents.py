"""A task that streams, in a process that may be killed: `python -m … STORE [stay]`. With `stay` it
goes on for half of the way, and waits there for its end."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator

from holdfast import Holdfast, TaskBusy, step, task

PARTS = 400
STAYS = sys.argv[2:] == ["stay"]


@step
def tell(parts: int) -> Iterator[str]:
    """No two processes tell the same."""
    for k in range(1, parts + 1):
        if STAYS and k > parts // 2:
            threading.Event().wait()
        time.sleep(0.002)
        yield f"{os.getpid()}: {k}"


@task
def talking(parts: int) -> int:
    return len(list(tell(parts)))


if __name__ == "__main__":
    with Holdfast(sys.argv[1], lease_s=2) as hf:
        while True:
            try:
                hf.run(talking, PARTS, id="t")
                break
            except TaskBusy:  # the process before this one was killed, and its lease runs out
                time.sleep(0.1)
