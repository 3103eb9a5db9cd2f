"""The research agent of the examples, as the workers of an engine load it."""

from __future__ import annotations

import os

from examples.research import agent as research
from examples.trip.client import World

if url := os.environ.get("AGENT_WORLD"):
    research.work_in(World(url))

agent = research.make_agent()
