"""A task whose code is deployed anew while it waits. Which version it is, says the environment."""

from __future__ import annotations

import os

from holdfast import ask, step, task

BUILD = os.environ.get("AGENT_BUILD", "v1")


@step(name="versioned_greet")
def greet(name: str) -> str:
    return f"{name} by {BUILD}"


@step(name="versioned_part")
def part(name: str) -> str:
    return f"farewell to {name} by {BUILD}"


if BUILD == "v1":

    @task(name="versioned_visit")
    def visit(name: str) -> list[str]:
        said = greet(name)
        ask("Go on?", bool)
        return [said, greet(name)]

else:

    @task(name="versioned_visit")
    def visit(name: str) -> list[str]:
        return [part(name), greet(name)]
