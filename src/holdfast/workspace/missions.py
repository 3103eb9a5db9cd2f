"""What is known of a mission: its text, its plan, and the tasks that do the items of it.

Each item is done in a task of its own, a new one for each try. What is to be done with an item
follows from its mark in the plan and from how its last try stands: see `decided`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Literal

from msgspec import Raw

from holdfast.app import Holdfast
from holdfast.decoding import Illegible, decode
from holdfast.errors import LeaseLost, TaskBusy, TaskNotFound
from holdfast.events import AnyEvent, PlanItem, PlanProgressed, PlanStatus
from holdfast.plan import ready
from holdfast.reading import read_state, stream_of, value_in
from holdfast.state import FINISHED, State
from holdfast.views import TaskView
from holdfast.workspace.commands import Ran

_OVER: frozenset[str] = frozenset({"done", "skipped"})
_PATIENCE_S, _POLL_S = 30.0, 0.02
MOST_SAID = 300
MOST_ID = 200
"""How long the id of a mission may be: those of its items' tasks are longer."""
_LONGEST_ID = 32

# Asking where it stands


def mission_text(view: TaskView) -> str:
    """What a mission is about: as it was given, or as somebody has edited it since."""
    if isinstance(view.state.mission, Raw):
        return str(view.value(view.state.mission))
    given = view.input
    return str(given.get("text", given)) if isinstance(given, dict) else str(given)


def last_try(hf: Holdfast, mission: str, item: PlanItem) -> tuple[int, State]:
    """The newest task made for an item, and its number; one of `seq` 0 if there is none."""
    number, last = 0, read_state(hf.store, stream_of(id_of(mission, item, 0)))
    while last.status in FINISHED:
        after = read_state(hf.store, stream_of(id_of(mission, item, number + 1)))
        if after.seq == 0:
            break
        number, last = number + 1, after
    return number, last


def result_of(hf: Holdfast, mission: str, item: PlanItem) -> Ran | None:
    """What came of an item that is done; None if nobody ran anything for it."""
    state = last_try(hf, mission, item)[1]
    if state.status != "completed" or not isinstance(state.result, Raw):
        return None
    with suppress(Illegible):
        return decode(value_in(hf.store, state, state.result), Ran)
    return None


def told_of(plan: Sequence[PlanItem], item: PlanItem, most: int) -> list[PlanItem]:
    """The done items whose results the one who does `item` is told: what matters most comes last.

    That is what it comes after, and then what stands near the end of the plan.

    >>> plan = [PlanItem(name, name, "done") for name in "abcd"]
    >>> [each.id for each in told_of(plan, PlanItem("e", "e", after=("b",)), 3)]
    ['c', 'd', 'b']
    """
    after = set(item.after)
    for each in reversed(plan):
        if each.id in after:
            after.update(each.after)
    done = [each for each in plan if each.status == "done"]
    return sorted(done, key=lambda each: each.id in after)[-most:]


def files_of(view: TaskView, done: Sequence[Ran]) -> list[str]:
    """The files that the mission has, and those that were changed by what is done: the newest."""
    changed = [each.name for ran in done for each in ran.changed if each.how != "removed"]
    return list(dict.fromkeys([*view.state.files, *reversed(changed)]))[:50]


def id_of(mission: str, item: PlanItem, number: int) -> str:
    """The id of the task that does an item. An item in other words is another piece of work."""
    words = sha256(item.text.encode()).hexdigest()[:8]
    again = f".{number + 1}" if number else ""
    is_short = len(item.id) <= _LONGEST_ID and item.id.isprintable()
    own = item.id if is_short else sha256(item.id.encode()).hexdigest()[:_LONGEST_ID]
    return f"{mission}.{own}.{words}{again}"


def left_of(plan: Sequence[PlanItem]) -> int:
    """How many items are not over."""
    return sum(item.status not in _OVER for item in plan)


def candidates(plan: Sequence[PlanItem], *, retry: bool = False) -> list[PlanItem]:
    """The items that may be begun or gone on with, in the order of the plan.

    >>> plan = (PlanItem("a", "1", "doing"), PlanItem("b", "2", after=("1",)), PlanItem("c", "3"))
    >>> [item.id for item in candidates(plan)]
    ['1', '3']
    """
    can_begin = {item.id for item in ready(plan)}
    wanted = ("doing", "failed") if retry else ("doing",)
    return [item for item in plan if item.id in can_begin or item.status in wanted]


Deed = Literal["go on", "anew", "done", "failed", "leave"]
"""What is to be done with an item: its last try, another try, a mark in the plan, or nothing."""

FOUND: dict[Deed, PlanStatus] = {"done": "done", "failed": "failed"}


def decided(marked: PlanStatus, tried: State, *, retry: bool = False) -> Deed:
    """What is to be done with an item, by its mark and its last try.

    The mark has to be read after the try: then an item whose try is over and that is still marked
    as being done was left by one who died before he could say so; and one that is marked as pending
    was marked so by a person, who wants it done again.

    >>> from holdfast.state import State
    >>> decided("doing", State(status="completed", seq=9)), decided("pending", State(seq=0))
    ('done', 'go on')
    """
    if marked in _OVER or (marked == "failed" and not retry):
        return "leave"
    if tried.status not in FINISHED:
        return "go on"
    if marked == "doing":
        return "done" if tried.status == "completed" else "failed"
    return "anew"


# Writing to the mission's log


def mark(
    hf: Holdfast, id: str, item: str, status: PlanStatus, because: str = ""
) -> tuple[PlanItem, ...]:
    """Say in the mission's plan what became of an item, if it does not say so already."""

    def change(state: State) -> PlanProgressed | None:
        known = {each.id: each.status for each in state.plan}
        if known.get(item) in (None, status) or (known[item] == "done" and status == "doing"):
            return None
        return PlanProgressed(id=item, status=status, because=because[:MOST_SAID])

    return write(hf, id, change).plan


def write(hf: Holdfast, id: str, make: Callable[[State], AnyEvent | None]) -> State:
    """Append to a mission's log what is made of its state, durably; the state after that.

    Nobody holds a mission for long, so who finds it held waits for his turn.
    """
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        try:
            with hf._holding.hold(id) as log:
                if log.state.seq == 0:
                    raise TaskNotFound(f"no task {id!r} in {hf.store.url}")
                if log.state.status not in FINISHED and log.append(make):
                    log.sync()
                return log.state
        except (TaskBusy, LeaseLost):
            if time.monotonic() > give_up_at:
                raise
        time.sleep(_POLL_S)


def said(ran: Ran) -> str:
    """What an agent had to say, in short: the end of what it printed."""
    text = (ran.stdout.text or ran.stderr.text).strip()
    return text if len(text) <= MOST_SAID else f"…{text[-MOST_SAID:]}"
