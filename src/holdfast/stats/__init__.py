"""Where time, tokens, money and retries go, and what resuming saved: from the logs alone."""

from holdfast.stats.measuring import Saved
from holdfast.stats.reading import stats
from holdfast.stats.totals import CallStats, Durations, ModelStats, Stats, TypeStats
from holdfast.stats.usage import Spent

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
