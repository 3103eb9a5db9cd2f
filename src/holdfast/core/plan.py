"""Plans: what a task intends to do, what of it is done, and what can be done next.

A plan is a tuple of `PlanItem`s. Everything here is a function from one plan to another, so a plan
that a task was given never changes under it. A task's changes to its plan are recorded by
`current().plan` and `current().mark`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, cast, get_args

from msgspec.structs import replace

from holdfast.core.events import PlanItem, PlanStatus
from holdfast.errors import BadInput, Conflict

__all__ = ["Plan", "PlanItem", "PlanStatus", "marked", "ready", "revised"]

Plan = tuple[PlanItem, ...]

STATUSES: tuple[PlanStatus, ...] = get_args(PlanStatus)
_SETTLED = ("done", "skipped")
"""The items that a later item waits for."""


def ready(plan: Iterable[PlanItem]) -> Plan:
    """The items that can be begun: pending, and all that they come after is done or skipped.

    >>> plan = revised((), ["search", PlanItem("book", after=("1",)), "pack"])
    >>> (
    ...     [item.text for item in ready(plan)],
    ...     [item.text for item in ready(marked(plan, "1", "done"))],
    ... )
    (['search', 'pack'], ['book', 'pack'])
    """
    items = tuple(plan)
    settled = {item.id for item in items if item.status in _SETTLED}
    return tuple(i for i in items if i.status == "pending" and settled.issuperset(i.after))


def marked(plan: Plan, id: str, status: PlanStatus) -> Plan:
    """The plan with another status for one item; `BadInput` if there is no such item or status.

    >>> marked(revised((), ["search", "book"]), "2", "skipped")[1].status
    'skipped'
    """
    if status not in STATUSES:
        raise BadInput(f"item {id!a:.60}: status={status!a:.60} is none of {', '.join(STATUSES)}")
    if all(item.id != id for item in plan):
        known = f"it has {_listed(plan)}" if plan else "there is none: say it with current().plan"
        raise BadInput(f"the plan has no item {id!a:.60}: {known}")
    return with_status(plan, id, status)


def revised(before: Plan, items: Iterable[str | PlanItem]) -> Plan:
    """A new plan, in which items that stay keep their status.

    An item stays if its id is that of one before; without an id, if its text is. It keeps its
    status unless it is given one: to begin it anew, mark it pending.

    >>> before = marked(revised((), ["search", "book"]), "1", "done")
    >>> [(item.id, item.text, item.status) for item in revised(before, ["search", "call", "book"])]
    [('1', 'search', 'done'), ('2', 'call', 'pending'), ('3', 'book', 'pending')]
    """
    by_id = {item.id: item.status for item in before}
    by_text: dict[str, list[PlanStatus]] = {}
    for item in before:
        by_text.setdefault(item.text, []).append(item.status)
    plan = []
    for number, item in enumerate(given(items), 1):
        status = item.status
        if status == "pending":
            same = by_text.get(item.text)
            kept = by_id.get(item.id) if item.id else same.pop(0) if same else None
            status = kept or status
        plan.append(replace(item, id=item.id or str(number), status=status))
    _must_have_their_own_ids(plan)
    _must_come_to_an_end(plan)
    return tuple(plan)


def given(items: Any) -> list[PlanItem]:
    """A user's plan as items; `BadInput` if it is none."""
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise BadInput(f"a plan is a list of texts and PlanItems, not {items!a:.60}")
    return [_given(item, number) for number, item in enumerate(items, 1)]


def _given(item: Any, number: int) -> PlanItem:
    if isinstance(item, str):
        return PlanItem(item)
    if not isinstance(item, PlanItem):
        raise BadInput(f"item {number} of the plan must be a text or a PlanItem, not {item!a:.60}")
    text, id, after = (cast("Any", field) for field in (item.text, item.id, item.after))
    if not isinstance(text, str) or not isinstance(id, str):
        raise BadInput(f"item {number} of the plan: its text and id must be texts: {item!a:.100}")
    if isinstance(after, str) or not all(isinstance(id, str) for id in after):
        raise BadInput(f"item {number} of the plan: after={after!a:.60} must be ids of items")
    if item.status not in STATUSES:
        wanted = ", ".join(STATUSES)
        raise BadInput(f"item {number} of the plan: {item.status!a:.60} is none of {wanted}")
    return replace(item, after=tuple(after))


def _must_have_their_own_ids(plan: Sequence[PlanItem]) -> None:
    seen: dict[str, int] = {}
    for number, item in enumerate(plan, 1):
        first = seen.setdefault(item.id, number)
        if first != number:
            raise BadInput(
                f"items {first} and {number} of the plan have the same id {item.id!a:.60} "
                f"(an item without one is known by its place): give each its own"
            )


def _must_come_to_an_end(plan: Sequence[PlanItem]) -> None:
    """Refuse an item that waits for one that is not there, or for itself."""
    graph = {item.id: item.after for item in plan}
    for id, after in graph.items():
        if unknown := [other for other in after if other not in graph]:
            raise BadInput(
                f"item {id!a:.60} of the plan comes after {unknown[0]!a:.60}, which is no item of "
                f"it: it has {_listed(plan)}"
            )
    if circle := circle_in(plan):
        told = " before ".join(f"{id!a:.40}" for id in circle[:12])
        raise BadInput(f"items of the plan wait for each other: {told}")


def circle_in(plan: Iterable[PlanItem]) -> list[str]:
    """The ids of items that wait for each other, the first of them also last; mostly none.

    >>> circle_in([PlanItem("egg", id="1", after=("2",)), PlanItem("hen", id="2", after=("1",))])
    ['1', '2', '1']
    """
    try:
        TopologicalSorter({item.id: item.after for item in plan}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _listed(plan: Sequence[PlanItem]) -> str:
    ids = [f"{item.id!a:.40}" for item in plan[:12]]
    return ", ".join(ids) + (", …" if len(plan) > len(ids) else "")


def with_status(plan: Plan, id: str, status: PlanStatus) -> Plan:
    """The same without a check: for what is in a log."""
    # A log has this once or twice for each item of a plan, so it copies no item but the one.
    for place, item in enumerate(plan):
        if item.id == id:
            return (*plan[:place], replace(item, status=status), *plan[place + 1 :])
    return plan


def numbered(items: Iterable[str | PlanItem]) -> Plan:
    """A plan as it was recorded, with an id for every item."""
    given = (PlanItem(item) if isinstance(item, str) else item for item in items)
    return tuple(
        item if item.id else replace(item, id=str(number)) for number, item in enumerate(given, 1)
    )


def recorded(plan: Plan) -> tuple[str | PlanItem, ...]:
    """A plan as it is recorded: an item that is nothing but a text at its place is that text.

    >>> recorded(revised((), ["search", PlanItem("book", id="book")]))
    ('search', PlanItem(text='book', id='book', status='pending', after=()))
    """
    return tuple(
        item.text if item == PlanItem(item.text, str(number)) else item
        for number, item in enumerate(plan, 1)
    )


WORKED_OFF = ("mission", "script")
"""Tasks that nobody drives: their work is done in tasks of their own, which name them as parent."""


def place_in(plan: Plan, *, is_over: bool, is_worked_off: bool = False) -> int | None:
    """The number of the item that a task is on; None if it never said what became of any.

    That is the one it is doing, or else the next; of a task that is over, the last it came to.
    `is_worked_off`: the items are done in other tasks, so it is on an item from the beginning.

    >>> place_in(marked(revised((), ["search", "book", "pack"]), "1", "done"), is_over=False)
    2
    """
    touched = [n for n, item in enumerate(plan, 1) if item.status != "pending"]
    if not touched and not (is_worked_off and plan):
        return None
    last = touched[-1] if touched else 1
    doing = [n for n in touched if plan[n - 1].status == "doing"]
    if doing or is_over:
        return doing[0] if doing else last
    next_ids = {item.id for item in ready(plan)}
    waiting = [n for n, item in enumerate(plan, 1) if item.status == "pending"]
    return next((n for n in waiting if plan[n - 1].id in next_ids), last)


# Two who change one plan: what each did is found by the version they both began with.
#
# `base` is that version, `ours` is what the log has by now, `theirs` is what somebody made of
# `base` meanwhile, in a file or in code. An item that only one of them changed is as they want it.
# An item that both changed, each in another way, is a conflict: it is told, and nobody's is dropped
# in silence.


_Items = dict[str, PlanItem]


def merged(base: Plan, ours: Plan, theirs: Plan) -> Plan:
    """`ours` with what `theirs` changed of `base`; `Conflict` names what can't be brought together.

    How far an item is, is what `ours` says, unless `theirs` changed that very mark.

    >>> base = (PlanItem("look", "1"), PlanItem("book", "2"))
    >>> ours = (PlanItem("look", "1", "done"), PlanItem("book", "2"))
    >>> theirs = (PlanItem("look", "1"), PlanItem("book a room", "2"), PlanItem("pack", "3"))
    >>> [(item.text, item.status) for item in merged(base, ours, theirs)]
    [('look', 'done'), ('book a room', 'pending'), ('pack', 'pending')]
    """
    plan, conflicts = _merge(base, ours, theirs)
    if circle := circle_in(plan):
        told = " before ".join(f"{id!a:.40}" for id in circle[:12])
        conflicts.append(f"together, items wait for each other: {told}")
    if conflicts:
        raise Conflict("; ".join(conflicts))
    return plan


def merged_for_ours(base: Plan, ours: Plan, theirs: Plan) -> Plan:
    """The same, with `ours` where both changed something."""
    plan, _ = _merge(base, ours, theirs)
    return ours if circle_in(plan) else plan


def told_changes(before: Plan, after: Plan) -> Iterator[str]:
    """The differences in words, one line each.

    >>> before = (PlanItem("look", "1", "done"), PlanItem("book", "2"))
    >>> list(told_changes(before, (PlanItem("book it", "2", "doing"), PlanItem("pack", "3"))))
    ["removed 1, which was done: 'look'", "2 is now 'book it'; it was 'book'", \
'2: pending, now doing', "added 3: 'pack'"]
    """
    was, now = _by_id(before), _by_id(after)
    for id in (id for id in was if id not in now):
        yield f"removed {id}, which was {was[id].status}: {was[id].text!r}"
    for id, item in now.items():
        if id not in was:
            mark = "" if item.status == "pending" else f", {item.status}"
            yield f"added {id}{mark}: {item.text!r}"
            continue
        if item.text != was[id].text:
            yield f"{id} is now {item.text!r}; it was {was[id].text!r}"
        if item.status != was[id].status:
            yield f"{id}: {was[id].status}, now {item.status}"
        if item.after != was[id].after:
            yield f"{id} comes after {', '.join(item.after) or 'nothing'}"
    if _kept(was, now) != _kept(now, was):
        yield f"the order is now {', '.join(now)}"


def _merge(base: Plan, ours: Plan, theirs: Plan) -> tuple[Plan, list[str]]:
    was, log, said = _by_id(base), _by_id(ours), _by_id(theirs)
    said = _renumbered(was, log, said)
    conflicts: list[str] = []
    items: _Items = {}
    for id in (*log, *(id for id in said if id not in log)):
        item = _one(was.get(id), log.get(id), said.get(id), conflicts)
        if item is not None:
            items[id] = item
    order = _order(was, log, said, items)
    return tuple(_without_the_gone(items[id], items) for id in order), conflicts


def _one(
    was: PlanItem | None, log: PlanItem | None, said: PlanItem | None, conflicts: list[str]
) -> PlanItem | None:
    """One item after the merge; None if it is gone."""
    if was is None:
        return log or said  # new; the same item from both is one
    if log is None:
        if said is not None and said != was:
            conflicts.append(f"item {was.id!a:.60} was changed to {said.text!r}, and is gone")
        return None
    if said is None:
        if (log.text, log.after) != (was.text, was.after):
            conflicts.append(f"item {was.id!a:.60} was removed, and is now {log.text!r}")
            return log
        return None
    text = _either(was.text, log.text, said.text)
    if text is None:
        conflicts.append(f"item {was.id!a:.60} is {said.text!r} in one and {log.text!r} in another")
    return PlanItem(
        log.text if text is None else text,
        was.id,
        said.status if said.status != was.status else log.status,
        _after(was.after, log.after, said.after),
    )


def _either(was: str, log: str, said: str) -> str | None:
    if said in (was, log):
        return log
    return said if log == was else None


def _after(was: tuple[str, ...], log: tuple[str, ...], said: tuple[str, ...]) -> tuple[str, ...]:
    if said == was:
        return log
    if log == was:
        return said
    kept = [id for id in said if id in log or id not in was]
    return (*kept, *(id for id in log if id not in was and id not in kept))


def _renumbered(was: _Items, log: _Items, said: _Items) -> _Items:
    """`said`, in which a new item has another id than another new item of the log."""
    taken = {*was, *log, *said}
    new_ids: dict[str, str] = {}
    for id, item in said.items():
        if id not in was and id in log and item.text != log[id].text:
            new_ids[id] = _free(id, taken)
            taken.add(new_ids[id])
    return {
        new_ids.get(id, id): replace(
            item,
            id=new_ids.get(id, id),
            after=tuple(new_ids.get(each, each) for each in item.after),
        )
        for id, item in said.items()
    }


def _free(id: str, taken: set[str]) -> str:
    head, dot, last = id.rpartition(".")
    if not (last.isdecimal() and last.isascii()):
        head, dot, last = id, ".", "1"
    number = int(last)
    while f"{head}{dot}{number}" in taken:
        number += 1
    return f"{head}{dot}{number}"


def _order(was: _Items, log: _Items, said: _Items, items: _Items) -> list[str]:
    """The order of the side that changed it; an item of the other side alone keeps its place."""
    moved = _kept(was, said) != _kept(said, was)
    first, second = (list(said), list(log)) if moved else (list(log), list(said))
    found = [id for id in first if id in items]
    place_of = set(found)
    previous: str | None = None
    for id in second:
        if id in items and id not in place_of:
            found.insert(found.index(previous) + 1 if previous is not None else 0, id)
            place_of.add(id)
        if id in place_of:
            previous = id
    return found


def _kept(one: _Items, other: _Items) -> list[str]:
    return [id for id in one if id in other]


def _without_the_gone(item: PlanItem, items: _Items) -> PlanItem:
    return replace(item, after=tuple(id for id in item.after if id in items))


def _by_id(plan: Sequence[PlanItem]) -> _Items:
    return {item.id: item for item in plan}
