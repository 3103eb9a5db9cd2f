"""Where time, tokens, money and retries go, and what resuming saved: from the logs alone."""

from holdfast.views.stats.measuring import Saved, Spent
from holdfast.views.stats.totals import CallStats, Durations, ModelStats, Stats, TypeStats, stats

__all__ = [
    "CallStats",
    "Durations",
    "ModelStats",
    "Saved",
    "Spent",
    "Stats",
    "TypeStats",
    "stats",
]
