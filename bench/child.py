"""One measurement in a process of its own: `python -m bench.child CONTENDER N FOLDER`.

Prints one JSON object: seconds and notes, or why the contender can't be imported.
"""

import importlib
import json
import sys
from pathlib import Path


def main() -> None:
    contender, n, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    try:
        peer = importlib.import_module(f"bench.peers.{contender}")
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    seconds = peer.run(n, folder)
    print(json.dumps({"seconds": seconds, "notes": "; ".join(peer.notes)}))


if __name__ == "__main__":
    main()
