"""Two who change one plan: what each did is found by the version they both began with.

`base` is that version, `ours` is what the log has by now, `theirs` is what somebody made of `base`
meanwhile, in a file or in code. What only one of them changed is as they want it. What both
changed, each in another way, is a conflict: it is told, and nobody's is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from holdfast.errors import Conflict
from holdfast.plan import Plan, PlanItem, circle_in

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
    """What is different, in words, one line for each.

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
    """What becomes of one item; None if it is gone."""
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
    """The order of whoever changed it; what only the other has follows what it followed there."""
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
