"""What an agent is told that does one item of a plan, and knows nothing else.

Pure: texts in, a text out, within a budget of tokens. Where it would be too long, the longest
sections are cut; of what was done before, the oldest.

What others said (the mission, results, decisions) is quoted, every line of it, so that nothing in
it looks like a section of ours; and it has no control characters.
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
    """What there is to tell of the item at hand."""

    mission: str
    plan: str
    item: str
    done: Sequence[tuple[str, str]] = ()
    """What was done before, and what came of it: the newest last."""
    decisions: Sequence[str] = ()
    files: Sequence[str] = ()
    folder: str = ""
    """Where the mission's own files are: the whole of what is cut here."""


def planning_prompt(mission: str, budget_tokens: int) -> str:
    """What an agent is told that writes the plan.

    >>> print(planning_prompt("# Tidy up", 1000)[:24])
    # Mission
    <BLANKLINE>
    > # Tidy up
    """
    return _within([("Mission", quoted(mission))], _PLANNING, budget_tokens)


def item_prompt(doing: Doing, budget_tokens: int) -> str:
    """What an agent is told that does an item.

    >>> prompt = item_prompt(Doing("Tidy up", "- [~] 1. sweep", "1. sweep"), 1000)
    >>> "# Your item\\n\\n1. sweep" in prompt
    True
    """
    done = [f"{_one_line(item)}:\n\n{quoted(_end_of(result))}" for item, result in doing.done]
    sections = [
        ("Mission", quoted(doing.mission)),
        ("Plan", _indented(doing.plan)),
        ("What is done", "\n\n".join(done)),
        ("Decisions", "\n".join(quoted(line) for line in doing.decisions)),
        ("Files", "\n".join(f"- {_one_line(name)}" for name in doing.files)),
        ("Your item", _indented(doing.item)),
    ]
    told = [(head, text) for head, text in sections if text]
    return _within(told, _DOING, budget_tokens, doing.folder)


def quoted(text: str) -> str:
    """What somebody said, every line of it marked as such.

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
