"""A process that is killed while it cleans up, and one that looks at what is left.

python -m tests.upkeep.sweepers <URL> <folder> <first> <every>

For each call that changes the store: some tasks are made, a clean-up with an archive is killed at
that call, and what is left must be whole. In the end all that may go is gone, and in an archive.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from holdfast import Holdfast, Retention, Unanswered
from holdfast.core.state import FINISHED
from holdfast.stores import open_store
from tests.stores import agents
from tests.upkeep import movers
from tests.upkeep.movers import CHANGES, Mortal, in_a_process

POLICY = Retention(keep_last=0, grace=timedelta())

CHANGES.update(("delete_blob", "sweep"))


def prepare(url: str, folder: str, at: int) -> None:
    with Holdfast(url) as hf:
        hf.run(agents.hoarding, 1, id=f"big-{at}")
        hf.run(agents.family, [1, 2], id=f"family-{at}")
        with suppress(Unanswered):
            hf.run(movers.asking, folder, id=f"open-{at}")


def clean_up_and_die(url: str, folder: str, at: int) -> None:
    with Holdfast(Mortal(open_store(url), [at, at])) as hf:
        hf.gc(POLICY, archive=Path(folder) / f"{at}.hfa")


def look(url: str, folder: str, at: int) -> None:
    archive = Path(folder) / f"{at}.hfa"
    with Holdfast(url) as hf, Holdfast("memory://") as archived:
        if archive.exists():
            archived.restore_from(archive)
        mine = [f"big-{at}", f"family-{at}", f"family-{at}.1", f"family-{at}.2"]
        here = {view.id for view in hf.tasks()}
        there = {view.id for view in archived.tasks()}
        assert set(mine) <= here | there, f"gone: {set(mine) - here - there}"
        assert {f"open-{at}", f"open-{at}.3"} <= here, "an unfinished task is gone"
        assert hf.tasks().unreadable == []
        for view in (*hf.tasks(), *archived.tasks()):
            assert view.outputs is not None  # which reads its blobs
        swept = hf.gc(POLICY, archive=Path(folder) / f"{at}-again.hfa")
        assert swept.kept == () and swept.unreadable == ()
        assert [view.id for view in hf.tasks() if view.status in FINISHED] == []
        assert len(list(hf.store.blobs())) == 1, "that of the unfinished ones"


def main(url: str, folder: str, first: str, every: str) -> int:
    at, wrong, died = int(first), 0, 0
    while True:
        assert in_a_process(prepare, url, folder, at) == 0
        ended = in_a_process(clean_up_and_die, url, folder, at)
        if in_a_process(look, url, folder, at):
            print(f"killed at call {at}: see above", flush=True)
            wrong += 1
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, ended
        died += 1
        at += int(every)
    print(f"killed {died} times, up to call {at}, {wrong} wrong", flush=True)
    return 1 if wrong or not died else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
