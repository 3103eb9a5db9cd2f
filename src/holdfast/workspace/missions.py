"""The facts about a mission: its text, its plan, and the tasks that do the items of it.

Each item is done in a task of its own, a new one for each try. The next thing to do with an item
follows from its mark in the plan and from its last try: see `decided`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Literal

from msgspec import Raw, Struct

from holdfast.agent.compaction import cut_text
from holdfast.api.app import Holdfast
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import AnyEvent, PlanItem, PlanProgressed, PlanStatus
from holdfast.core.plan import ready
from holdfast.core.state import FINISHED, State
from holdfast.errors import LeaseLost, TaskBusy
from holdfast.log.reading import no_task, value_in
from holdfast.log.states import load
from holdfast.log.tokens import estimated
from holdfast.views.task import TaskView
from holdfast.workspace.checklist import PLAN_HEADING
from holdfast.workspace.commands import RanCommand

_OVER: frozenset[str] = frozenset({"done", "skipped"})
_PATIENCE_S, _POLL_S = 30.0, 0.02
MOST_SAID = 300
MOST_ID = 200
"""How long the id of a mission may be: those of its items' tasks are longer."""
_LONGEST_ID = 32

# Asking where it stands


def mission_text(view: TaskView) -> str:
    """The subject of a mission: as it was given, or as somebody has edited it since."""
    if isinstance(view.state.mission, Raw):
        return str(view.value(view.state.mission))
    given = view.input
    return str(given.get("text", given)) if isinstance(given, dict) else str(given)


def last_try(hf: Holdfast, mission: str, item: PlanItem) -> tuple[int, State]:
    """The newest task made for an item, and its number; one of `seq` 0 if there is none."""
    number, last = 0, load(hf.store, id_of(mission, item, 0), missing_ok=True)
    while last.status in FINISHED:
        after = load(hf.store, id_of(mission, item, number + 1), missing_ok=True)
        if after.seq == 0:
            break
        number, last = number + 1, after
    return number, last


def result_of(hf: Holdfast, mission: str, item: PlanItem) -> RanCommand | None:
    """The outcome of an item that is done; None if nobody ran anything for it."""
    state = last_try(hf, mission, item)[1]
    if state.status != "completed" or not isinstance(state.result, Raw):
        return None
    with suppress(Illegible):
        return decode(value_in(hf.store, state, state.result), RanCommand)
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


def files_of(view: TaskView, done: Sequence[RanCommand]) -> list[str]:
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
"""The next thing to do with an item: its last try, another try, a mark in the plan, or nothing."""

FOUND: dict[Deed, PlanStatus] = {"done": "done", "failed": "failed"}


def decided(marked: PlanStatus, tried: State, *, retry: bool = False) -> Deed:
    """The next thing to do with an item, by its mark and its last try.

    The mark has to be read after the try: then an item whose try is over and that is still marked
    as being done was left by one who died before he could say so; and one that is marked as pending
    was marked so by a person, who wants it done again.

    >>> from holdfast.core.state import State
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
                    raise no_task(hf.store, id)
                if log.state.status not in FINISHED and log.append(make):
                    log.sync()
                return log.state
        except (TaskBusy, LeaseLost):
            if time.monotonic() > give_up_at:
                raise
        time.sleep(_POLL_S)


def said(ran: RanCommand) -> str:
    """The words of an agent, in short: the end of what it printed."""
    text = (ran.stdout.text or ran.stderr.text).strip()
    return text if len(text) <= MOST_SAID else f"…{text[-MOST_SAID:]}"


# The prompt of an agent that does one item of a plan, and knows nothing else.
#
# Pure: texts in, a text out, within a budget of tokens. Where it would be too long, the longest
# sections are cut; of what was done before, the oldest.
#
# The words of others (the mission, results, decisions) are quoted, every line of them, so that
# nothing in them looks like a section of ours; and they have no control characters.


_PLANNING = """\
Write the plan for this mission: the steps that lead to it, each one a piece of work that somebody
can do who knows only the mission, the plan and the files. Do nothing else yet.

Print the plan as a Markdown checklist, one item a line, and nothing after it:

- [ ] 1. what is to be done
- [ ] 2. what comes next (after: 1)

"(after: N)" names the items that must be done before; those without it may be done at any time.
"""

_DOING = """\
Do exactly this one item of the plan now, completely, and nothing else. Others may be at work on
other items at the same time. Whatever you do must be safe to do again: you may have been stopped
half-way before. Lines that begin with ">" are quoted: the mission, and what others reported. When
you are done, print in a few lines what you did and what the next one has to know. If it can't be
done, print why, and exit with an error.
"""

_SHORTEST = 200
_CONTROL = {
    number: "\ufffd" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"
}
_OF_RESULT = 4_000
"""So much is told of what came of one item: the end."""


class Doing(Struct, frozen=True):
    """The facts about the item at hand."""

    mission: str
    plan: str
    item: str
    done: Sequence[tuple[str, str]] = ()
    """The items done before, and what came of each: the newest last."""
    decisions: Sequence[str] = ()
    files: Sequence[str] = ()
    folder: str = ""
    """Where the mission's own files are: the whole of what is cut here."""


def planning_prompt(mission: str, budget_tokens: int) -> str:
    """The prompt of the agent that writes the plan.

    >>> print(planning_prompt("# Tidy up", 1000)[:24])
    # Mission
    <BLANKLINE>
    > # Tidy up
    """
    return _within([("Mission", quoted(mission))], _PLANNING, budget_tokens)


def item_prompt(doing: Doing, budget_tokens: int) -> str:
    """The prompt of the agent that does an item.

    >>> prompt = item_prompt(Doing("Tidy up", "- [~] 1. sweep", "1. sweep"), 1000)
    >>> "# Your item\\n\\n1. sweep" in prompt
    True
    """
    done = [f"{_one_line(item)}:\n\n{quoted(_end_of(result))}" for item, result in doing.done]
    sections = [
        ("Mission", quoted(doing.mission)),
        ("Plan", _indented(doing.plan.removeprefix(PLAN_HEADING))),
        ("What is done", "\n\n".join(done)),
        ("Decisions", "\n".join(quoted(line) for line in doing.decisions)),
        ("Files", "\n".join(f"- {_one_line(name)}" for name in doing.files)),
        ("Your item", _indented(doing.item)),
    ]
    told = [(head, text) for head, text in sections if text]
    return _within(told, _DOING, budget_tokens, doing.folder)


def quoted(text: str) -> str:
    """The words of somebody, with every line marked as such.

    >>> quoted("done\\n# Your item\\r\\n")
    '> done\\n> # Your item'
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROL).strip().splitlines()
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _indented(text: str) -> str:
    """A text of ours with words of others in it: a line of theirs never looks like a heading."""
    lines = text.translate(_CONTROL).strip().splitlines()
    return "\n".join(
        f"    {line}" if line.lstrip().startswith(("#", ">")) else line for line in lines
    )


def _one_line(text: str) -> str:
    return " ".join(text.translate(_CONTROL).split())


def _end_of(result: str) -> str:
    text = result.strip() or "(nothing was said)"
    return text if len(text) <= _OF_RESULT else f"[…]{text[-_OF_RESULT:]}"


def _within(
    sections: Sequence[tuple[str, str]], last: str, budget_tokens: int, folder: str = ""
) -> str:
    """The sections as one text; if they are too much, the longest ones are cut."""
    limit = max(len(text) for _, text in sections)
    note = f"What is left out here is in {folder}.\n\n" if folder else ""
    is_cut = False
    while True:
        parts = [f"# {head}\n\n{_cut(head, body, limit)}\n" for head, body in sections]
        text = "\n".join([*parts, f"{note if is_cut else ''}{last}"])
        if limit <= _SHORTEST or (
            len(text) < 8 * budget_tokens and estimated(text) <= budget_tokens
        ):
            return text
        limit, is_cut = max(limit * 3 // 4, _SHORTEST), True


def _cut(head: str, body: str, limit: int) -> str:
    if len(body) <= limit:
        return body
    if head != "What is done":
        # The item itself gets more room than the others, but not without end.
        return cut_text(body, 4 * limit if head == "Your item" else limit)
    # The newest results are what the next one needs most.
    left_out = f"[… {len(body) - limit:,} characters of older results are left out …]"
    return f"{left_out}\n> …{body[-limit:]}"
