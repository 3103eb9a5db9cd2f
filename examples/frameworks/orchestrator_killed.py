"""Kill an agent of Holdfast itself, and count the effects.

python -m examples.frameworks.orchestrator_killed
"""

from __future__ import annotations

from pathlib import Path

from openai import OpenAI

from examples.frameworks.killed import QUESTION, Effects, main
from holdfast import Holdfast
from holdfast.agent import Orchestrator
from holdfast.agent.adapters import OpenAIChat


def ours(folder: Path, effects: Effects, url: str) -> None:
    """An `Orchestrator`: its two first calls run side by side."""
    with OpenAI(api_key="any", base_url=url) as client, Holdfast(folder / "workspace") as hf:
        agent = Orchestrator("trip", OpenAIChat(client, "scripted"), [effects.tool()], plan=False)
        agent.run(hf.session("trip"), QUESTION, id="trip")


if __name__ == "__main__":
    main("holdfast", {"Orchestrator": ours})
