"""Run the research agent: `python -m examples.research`. Kill it, and run it again: it goes on."""

from __future__ import annotations

from pathlib import Path

from examples.research.agent import SESSION, TASK, attend, make_agent, work_in
from examples.trip.client import World, start_world
from holdfast import Holdfast
from holdfast.agent import transcript


def main() -> None:
    """Once, in a folder beside you."""
    folder = Path("research")
    folder.mkdir(exist_ok=True)
    with start_world(folder / "world.db") as (_, url), Holdfast(folder / "workspace") as hf:
        work_in(World(url))
        print(attend(hf, make_agent()).answer)
        print(transcript(hf.session(SESSION).messages()))
        print(hf.task(TASK).status, World(url).counts())


if __name__ == "__main__":
    main()
