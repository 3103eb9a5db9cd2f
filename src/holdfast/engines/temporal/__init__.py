"""Temporal: a task is a workflow, each of its calls an activity, what it waits for a timer or a
signal. The log stays in the store of the workers.

    engine    the cluster, seen from outside: start, tell, cancel, query; what it keeps, encrypted
    worker    drives tasks in this process
    flow      the workflow: one for every type of task, and what it asks of Temporal
    served    how the workflows and activities of a worker find each other
"""

from holdfast.engines.temporal.engine import Temporal

__all__ = ["Temporal"]
