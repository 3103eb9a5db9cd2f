"""What tasks are called at Restate: a service for each type of task, and a key for each task."""

from __future__ import annotations

import re
from hashlib import sha256
from urllib.parse import quote

from holdfast.engines.port import Job

RUN, TELL = "run", "tell"
"""The handlers of a task's workflow: its course, and what it is told."""

LOG = "log"
"""Where a workflow keeps which log it drives."""


_SERVICE = re.compile(r"([a-zA-Z]|_[a-zA-Z0-9])[a-zA-Z0-9._-]*", re.ASCII)
_TAKEN = ("restate", "openapi")
"""How the names of services may not begin: Restate has its own there."""


def service_of(task: str, prefix: str = "") -> str:
    """The service of a type of task. A name that Restate does not allow is changed, and gets a
    few digits that tell it from others that look the same then.

    >>> service_of("plan_trip"), service_of("plan_trip", "staging."), service_of("a trip")
    ('plan_trip', 'staging.plan_trip', 'a_trip-05a503')
    """
    name = f"{prefix}{task}"
    if is_service(name):
        return name
    plain = re.sub(r"[^a-zA-Z0-9._-]", "_", name)
    if not is_service(plain):
        plain = f"task-{plain}"
    return f"{plain}-{sha256(name.encode()).hexdigest()[:6]}"


def is_service(name: str) -> bool:
    """Whether Restate allows a service to be called so."""
    return _SERVICE.fullmatch(name) is not None and not name.lower().startswith(_TAKEN)


def key_of(job: Job) -> str:
    """The key of a task. A workflow runs once for each: one that goes on from a later event, in a
    new run or after it was moved or tried again, has that in its key.

    >>> key_of(Job("trip-42", "plan_trip", 1)), key_of(Job("trip-42", "plan_trip", 17))
    ('trip-42', 'trip-42@17')
    >>> key_of(Job("trip@17", "plan_trip", 1)), key_of(Job("..", "plan_trip", 1))
    ('trip@17@1', '..@1')
    """
    if job.seq == 1 and "@" not in job.id and job.id not in (".", ".."):
        return job.id
    return f"{job.id}@{job.seq}"


def path_of(job: Job, handler: str, prefix: str = "") -> str:
    """Where requests for a task go.

    >>> path_of(Job("a/b", "plan_trip", 1), "run")
    '/plan_trip/a%2Fb/run'
    """
    return f"/{service_of(job.task, prefix)}/{quote(key_of(job), safe='')}/{handler}"
