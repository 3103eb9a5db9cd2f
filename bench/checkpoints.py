"""A task that loops over explicit state: what its log weighs, and how fast it goes on.

`python -m bench.checkpoints record 1000000 DIR` runs a loop of so many checkpoints and is stopped
in the last turn; `… resume 1000000 DIR` goes on with it, in a process of its own. The state is a
counter and a window over the last messages of 1 KB; each turn changes the counter, drops the
oldest message and adds one. That, written as plain JSON, is the change.
"""

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast import Holdfast, checkpoint, restore, task

WINDOW, MESSAGE_BYTES = 5, 1024


@dataclass
class State:
    """What the loop goes on from."""

    turn: int
    window: list[str]


class Killed(BaseException):
    """The process ends here."""


stop_at = 0


def message(turn: int) -> str:
    return f"{turn:012} ".ljust(MESSAGE_BYTES, "x")


@task
def loop(turns: int) -> int:
    state = restore(State(0, []))
    while state.turn < turns:
        turn = state.turn + 1
        if turn == stop_at:
            raise Killed
        state = checkpoint(State(turn, [*state.window[1 - WINDOW :], message(turn)]))
    return state.turn


def main(verb: str, turns: int, folder: Path) -> dict[str, float]:
    global stop_at
    stop_at = turns if verb == "record" else 0
    with Holdfast(folder / "w", sync=False) as hf:
        start = time.perf_counter()
        with suppress(Killed):
            hf.run(loop, turns, id="loop")
        seconds = time.perf_counter() - start
    log = folder / "w" / "tasks" / "loop" / "events.jsonl"
    change = sum(len(json.dumps([turn, message(turn)])) for turn in (1, turns)) / 2 * turns
    return {"seconds": seconds, "log_bytes": log.stat().st_size, "change_bytes": change}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
