"""What Holdfast adds to an engine: `python -m bench.overhead ENGINE STEPS ROUNDS FOLDER`.

Prints JSON: the ratios of its time to that of the bare SDK, for steps one after the other and for
the items of `each`, in rounds against the same server.
"""

import json
import sys
import tempfile
from pathlib import Path

from bench import engines


def main() -> None:
    engine, n, rounds, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    found: dict[str, list[float]] = {"steps": [], "items": []}
    with (
        tempfile.TemporaryDirectory(dir=folder) as place,
        engines.both(engine, "sqlite", Path(place), durable=True) as both,
    ):
        for do in both:
            do("count", 20, "warm")
            do("spread", 20, "warm-too")
        for number in range(rounds):
            for what, task in (("steps", "count"), ("items", "spread")):
                turn = both if number % 2 else both[::-1]
                spent = {
                    do: engines.timed(do, task, n, f"{what}-{number}")["seconds"] for do in turn
                }
                found[what].append(spent[both[0]] / spent[both[1]])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
