"""Tasks that are moved between stores, and a process that is killed while it moves them.

python -m tests.upkeep.movers <source URL> <target URL> <folder> <copy|move> <first> <every>

For each call that changes a store: a task is left half-done, a copy of it is killed at that call
(every other time just after it), and then whoever looks for work at either place does it. In the
end everything must have been done, once. Each part is a process of its own, forked from one that
has no threads.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import Holdfast, TaskNotFound, Worker, ask, start, step, task, tool
from holdfast.core.state import FINISHED
from holdfast.log.store_calls import streams_in
from holdfast.stores import open_store
from holdfast.upkeep import transfer

CHANGES = {
    *("acquire", "append", "sync", "rename", "delete", "release"),
    *("put_blob", "remember", "post", "unpost"),
}


def did(folder: str) -> list[str]:
    path = Path(folder) / "did"
    return path.read_text().splitlines() if path.exists() else []


@tool(in_doubt="retry", name="moved_do")
def do(folder: str, what: str) -> str:
    with open(Path(folder) / "did", "a") as file:
        file.write(f"{what}\n")
    return what


@step(name="moved_bulk")
def bulk(size: int) -> str:
    return "x" * size


@task(name="moved_kid")
def kid(folder: str, name: str) -> str:
    return do(folder, f"{name} kid")


@task(name="moved_half")
def half(folder: str, name: str) -> int:
    do(folder, f"{name} first")
    size = len(bulk(100_000))
    child = start(kid, folder, name)
    if not (Path(folder) / "go").exists():
        raise KeyboardInterrupt
    do(folder, f"{name} second")
    child.result()
    do(folder, f"{name} third")
    return size


@task(name="moved_asking")
def asking(folder: str) -> list[Any]:
    do(folder, "before")
    text = bulk(100_000)
    child = start(kid, folder, "its")
    yes = ask("Go on?", bool)
    do(folder, "after")
    return [len(text), child.result(), yes]


@task(name="moved_leaving")
def leaving() -> str:
    return start(kid, "", "nobody's", on_cancel="leave").id


@task(name="moved_mendable")
def mendable(folder: str) -> bool:
    if not (Path(folder) / "mended").exists():
        raise RuntimeError("it is broken")
    return ask("Sure?", bool)


def give_back(result: str) -> None:
    raise RuntimeError("nobody takes it back")


@tool(in_doubt="retry", name="moved_booking", undo=give_back)
def book(what: str) -> str:
    return what


@task(name="moved_booking_task")
def booking(what: str) -> bool:
    book(what)
    return ask("Sure?", bool)


class Mortal:
    """A store that kills its process at a call that changes something."""

    def __init__(self, store: Any, deaths: list[int]) -> None:
        self._store = store
        self._deaths = deaths

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in CHANGES:
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            self._deaths[0] -= 1
            if self._deaths[0] == 0:
                if self._deaths[1] % 2:
                    found(*args, **kwargs)
                os.kill(os.getpid(), signal.SIGKILL)
            return found(*args, **kwargs)

        return call


def in_a_process(act: Callable[..., None], *given: Any) -> int:
    """How a process ended that did something: 0, 1, or minus the signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        act(*given)
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def leave_half_done(url: str, folder: str, id: str) -> None:
    (Path(folder) / "go").unlink(missing_ok=True)
    with Holdfast(url) as hf, suppress(KeyboardInterrupt):
        hf.run(half, folder, id, id=id)


def copy_and_die(source: str, target: str, id: str, move: bool, at: int) -> None:
    transfer._BATCH_LINES = 2
    deaths = [at, at]
    with (
        Holdfast(Mortal(open_store(source), deaths)) as here,
        Holdfast(Mortal(open_store(target), deaths)) as there,
    ):
        here.copy_to(there, id, move=move)


def statuses(hf: Holdfast, id: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in (id, f"{id}.3"):
        try:
            found[name] = hf.task(name).status
        except TaskNotFound:
            found[name] = "not there"
    return found


def settle(source: str, target: str, folder: str, id: str, move: bool) -> None:
    """Let everybody work at both places, and copy again; then look what was done."""
    with Holdfast(source) as here, Holdfast(target) as there:
        ours, theirs = statuses(here, id), statuses(there, id)
        for name in ours:
            both = (ours[name], theirs[name])
            by_itself = [s for s in both if s not in ("not there", "paused", *FINISHED)]
            assert len(by_itself) <= 1, f"{name} could go on at both places: {both}"
            assert both != ("not there", "not there"), f"{name} is gone"
        (Path(folder) / "go").touch()
        for hf in (here, there):
            Worker(hf).run_until_idle()
        try:
            copied = here.copy_to(there, id, move=move)
            assert copied.refused == (), copied.refused
        except TaskNotFound:
            assert move, "a copy deletes nothing"
        for hf in (here, there):
            Worker(hf).run_until_idle()
        assert set(statuses(there, id).values()) == {"completed"}, statuses(there, id)
        assert there.task(id).result == 100_000
        left = statuses(here, id).values()
        assert set(left) <= ({"not there"} if move else {"paused", "completed"}), left
        assert list(streams_in(there.store, "copies/")) == []
    mine = Counter(line for line in did(folder) if line.startswith(f"{id} "))
    expected = {f"{id} {what}": 1 for what in ("first", "second", "kid", "third")}
    assert mine == expected, mine


def main(source: str, target: str, folder: str, how: str, first: str, every: str) -> int:
    move, at, wrong, died = how == "move", int(first), 0, 0
    while True:
        id = f"m{at}"
        assert in_a_process(leave_half_done, source, folder, id) == 0
        ended = in_a_process(copy_and_die, source, target, id, move, at)
        if in_a_process(settle, source, target, folder, id, move):
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
