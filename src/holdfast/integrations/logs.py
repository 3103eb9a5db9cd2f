"""Log records that know their task: fields for the `logging` of the standard library.

What your code logs inside a task says nothing of the task by itself. `TaskFields` is a filter that
gives each record the task, the call and the attempt in which it was made, as attributes, which any
formatter can print and every formatter of JSON does by itself.

Public, by the names in `__all__`.
"""

from __future__ import annotations

import logging

from holdfast.core.scope import scope_var

__all__ = ["TaskFields"]


class TaskFields(logging.Filter):
    """Gives each record the fields of the task that it was made in. It lets every record through.

    `holdfast_task` and `holdfast_type` are the task and its function, '' outside of a task.
    `holdfast_call`, `holdfast_path` and `holdfast_attempt` are the step or tool, its path and the
    number of its attempt; '' and 0 in the task's own code.

    Add it to a handler: a filter of a logger sees no records of the loggers below it. Of a
    `QueueHandler` it has to be added to that, because the records change threads there.

    >>> import sys
    >>> from holdfast import Holdfast, step, task
    >>> handler = logging.StreamHandler(sys.stdout)
    >>> handler.addFilter(TaskFields())
    >>> handler.setFormatter(logging.Formatter("%(holdfast_task)s %(holdfast_call)s: %(message)s"))
    >>> log = logging.getLogger("trips")
    >>> log.addHandler(handler)
    >>> @step
    ... def find_room(city: str) -> str:
    ...     log.warning("only one room left in %s", city)
    ...     return f"{city} Inn"
    >>> @task
    ... def plan(city: str) -> str:
    ...     return find_room(city)
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(plan, "Oslo", id="trip-42")
    trip-42 find_room: only one room left in Oslo
    'Oslo Inn'
    >>> log.removeHandler(handler)
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields. A record that has them already, as from another thread, keeps them."""
        if hasattr(record, "holdfast_task"):
            return True
        scope = scope_var.get()
        call = None if scope is None else scope.call
        record.holdfast_task = "" if scope is None else scope.run.task_id
        record.holdfast_type = "" if scope is None else scope.run.log.state.task
        record.holdfast_call = "" if call is None else call.name
        record.holdfast_path = "" if call is None else call.path
        record.holdfast_attempt = call.attempts[-1].number if call and call.attempts else 0
        return True
