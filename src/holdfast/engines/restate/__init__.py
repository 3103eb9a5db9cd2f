"""Restate: a task is a workflow keyed by its id, each of its calls a `ctx.run`, what it waits for a
durable timer or promise. The log stays in the store of the workers.

    engine    the server, seen from outside: start, tell, cancel, query
    http      how the server is asked, and what tasks are called there
    worker    drives tasks in this process: the workflows, one for each type of task
    carrier   what a task asks of Restate
    calls     calls, made in threads, each by one of them at a time
"""

from holdfast.engines.restate.engine import Restate

__all__ = ["Restate"]
