"""Replay: a task's code runs over its log, with no effect at all.

Recorded calls answer from the log and the log is left as it is: everything happens in a store
aside, in memory. What is not recorded goes to a stub, or stops the replay. (*Resume* goes on with a
task, and *fork* makes a new one: both do things. Replay does not.)
"""

from holdfast.history.replay.outcome import ReplayDivergence, Replayed
from holdfast.history.replay.recorded import REAL
from holdfast.history.replay.running import replay

__all__ = ["REAL", "ReplayDivergence", "Replayed", "replay"]
