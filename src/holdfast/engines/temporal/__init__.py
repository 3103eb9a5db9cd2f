"""Temporal: a task is a workflow, each of its calls an activity, what it waits for a timer or a
signal. The log stays in the store of the workers.

    engine    the cluster, seen from outside: start, tell, cancel, query
    worker    drives tasks in this process
    flow      the workflow: one for every type of task
    carrier   what it asks of Temporal for a task
    activity  a call, made
    codec     what Temporal keeps, encrypted
"""

from holdfast.engines.temporal.engine import Temporal

__all__ = ["Temporal"]
