"""One measurement, in its own process: `python -m bench.child CONTENDER N PLACE [WHAT [TASKS]]`.

WHAT is a function of the contender, `run` if nothing is said; PLACE a folder, or a database's URL.
Prints one JSON object: seconds, the most memory that it took, and notes; or why the contender
can't be imported.
"""

import importlib
import json
import resource
import sys
from pathlib import Path


def main() -> None:
    contender, n, place, what, *tasks = [*sys.argv[1:], *(["run"] if len(sys.argv) == 4 else [])]
    try:
        peer = importlib.import_module(f"bench.peers.{contender}")
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    where = place if "://" in place else Path(place)
    seconds = getattr(peer, what)(*map(int, tasks), int(n), where)
    notes = "; ".join(peer.notes)
    print(json.dumps({"seconds": seconds, "megabytes": megabytes(), "notes": notes}))


def megabytes() -> float:
    """The most memory that this process took since its program began."""
    try:
        # The system hands the peak of the process that started us on: `ru_maxrss` is never less.
        status = Path("/proc/self/status").read_text()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
