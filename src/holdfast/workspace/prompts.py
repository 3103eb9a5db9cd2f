"""What an agent is told that does one item of a plan, and knows nothing else.

Pure: texts in, a text out, within a budget of tokens. The item and the mission are always there;
what was done before is cut first, the oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from holdfast.agent.cutting import cut_text
from holdfast.agent.tokens import estimated

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
half-way before. When you are done, print in a few lines what you did and what the next one has to
know. If it can't be done, print why, and exit with an error.
"""

_SHORTEST = 200


class Doing(Struct, frozen=True):
    """What there is to tell of the item at hand."""

    mission: str
    plan: str
    item: str
    done: Sequence[tuple[str, str]] = ()
    """What was done before, and what came of it: the newest last."""
    decisions: Sequence[str] = ()
    files: Sequence[str] = ()


def planning_prompt(mission: str, budget_tokens: int) -> str:
    """What an agent is told that writes the plan."""
    return _within([("Mission", mission)], _PLANNING, budget_tokens)


def item_prompt(doing: Doing, budget_tokens: int) -> str:
    """What an agent is told that does an item.

    >>> prompt = item_prompt(Doing("Tidy up", "- [~] 1. sweep", "1. sweep"), 1000)
    >>> "# Your item\\n\\n1. sweep" in prompt
    True
    """
    done = [f"## {item}\n\n{result.strip() or '(nothing was said)'}" for item, result in doing.done]
    sections = [
        ("Mission", doing.mission),
        ("Plan", doing.plan),
        ("What is done", "\n\n".join(done)),
        ("Decisions", "\n".join(f"- {line}" for line in doing.decisions)),
        ("Files", "\n".join(f"- {name}" for name in doing.files)),
        ("Your item", doing.item),
    ]
    return _within([(head, text) for head, text in sections if text], _DOING, budget_tokens)


def _within(sections: Sequence[tuple[str, str]], last: str, budget_tokens: int) -> str:
    """The sections as one text; if they are too much, the longest ones are cut."""
    limit = max(len(text) for _, text in sections)
    while True:
        text = "\n".join(
            [*(f"# {head}\n\n{_cut(head, body, limit)}\n" for head, body in sections), last]
        )
        if estimated(text) <= budget_tokens or limit <= _SHORTEST:
            return text
        limit = max(limit * 3 // 4, _SHORTEST)


def _cut(head: str, body: str, limit: int) -> str:
    if head != "What is done" or len(body) <= limit:
        return cut_text(body, limit) if head != "Your item" else body
    # The newest results are what the next one needs most.
    return f"[… {len(body) - limit:,} characters of older results are left out …]\n{body[-limit:]}"
