"""Kill the agents of every framework, alone and on Holdfast, and print one table.

    python -m examples.frameworks.all_killed

Each is killed by its own module, in a process of its own: see `examples.frameworks.killed`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

from msgspec import Struct

FRAMEWORKS = {
    "Holdfast": "orchestrator_killed",
    "Pydantic AI": "pydantic_ai_killed",
    "OpenAI Agents SDK": "openai_agents_killed",
    "LangGraph": "langgraph_killed",
    "LangChain": "langchain_killed",
    "Google ADK": "adk_killed",
}

_LINE = re.compile(
    r"(?P<package>\S+) (?P<version>\S+): killed at (?P<moments>\d+) moments, "
    r"(?P<needed>\d+) effects were to be made; (?P<made>.*)"
)
_MADE = re.compile(r"(?:^|, )(.+?) made (\d+)")


class Row(Struct, frozen=True):
    """What became of the agent of a framework."""

    name: str
    version: str
    moments: int
    needed: int
    made: tuple[tuple[str, int], ...]
    """How many effects were made: by what the framework has itself, and on Holdfast."""


def killed(name: str, moments: Sequence[int] = ()) -> Row:
    """Kill the agent of a framework at these moments, or at all."""
    command = [sys.executable, "-m", f"examples.frameworks.{FRAMEWORKS[name]}"]
    done = subprocess.run(
        [*command, *map(str, moments)], capture_output=True, text=True, check=False
    )
    found = _LINE.search(done.stdout)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr or done.stdout}")
    made = tuple((way, int(count)) for way, count in _MADE.findall(found["made"]))
    return Row(name, found["version"], int(found["moments"]), int(found["needed"]), made)


def table(rows: Sequence[Row]) -> str:
    """The rows as a table in Markdown."""
    lines = ["| | version | killed at | to be made | made alone | made on Holdfast |"]
    lines.append("|---|---|---|---|---|---|")
    for row in rows:
        (ours, count), alone = row.made[-1], row.made[:-1]
        by_itself = ", ".join(f"{made} (`{way}`)" for way, made in alone) or "–"
        lines.append(
            f"| {row.name} | {row.version} | {row.moments} moments | {row.needed} effects "
            f"| {by_itself} | {count} (`{ours}`) |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table([killed(name) for name in FRAMEWORKS]))
