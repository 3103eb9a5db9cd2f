"""Asks Restate by JSON over HTTP, with what Python has. Only workers need its SDK."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct

from holdfast.engines.port import Job
from holdfast.errors import BadInput, EngineError

PATIENCE_S = 10.0


class HttpReply(Struct, frozen=True):
    """The answer of the server."""

    status: int
    text: str

    def json(self) -> Any:
        """The answer, read; None if that is no JSON."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def message(self) -> str:
        """The fault that it names."""
        said = self.json()
        found = said.get("message") if isinstance(said, dict) else None
        return str(found or self.text or f"HTTP {self.status}")[:500]


class Address:
    """One of the addresses of a server."""

    def __init__(self, url: str, what: str, token: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"Restate({what}={url!r:.200}) must be like 'http://127.0.0.1:8080'")
        self.url: str = url.rstrip("/")
        self._what = what
        self._token = token
        self._is_safe = parts.scheme == "https"
        self._host, self._port, self._path = parts.hostname, parts.port, parts.path.rstrip("/")

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Send a request; `EngineError` if nothing comes back."""
        said = {"accept": "application/json", **(headers or {})}
        if body is not None:
            said["content-type"] = "application/json"
        if self._token:
            said["authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, f"{self._path}{path}", data, said)
            response = connection.getresponse()
            return HttpReply(response.status, response.read().decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException) as error:
            raise EngineError(
                f"Restate at {self.url} can't be reached ({error}): start its server, or correct "
                f"Restate({self._what}=…)"
            ) from error
        finally:
            connection.close()

    def trouble(self, reply: HttpReply, part: str) -> EngineError:
        """The fault, if the server did not do what it was asked for."""
        said = f"answered {reply.status} ({reply.message:.200})"
        if reply.status in (401, 403):
            return EngineError(f"Restate at {self.url} {said}: give Restate(token=…)")
        if reply.status >= 500:
            return EngineError(f"Restate at {self.url} {said}: it may do better in a moment")
        return EngineError(
            f"what listens at {self.url} {said}: is it Restate's {part}? "
            f"Restate({self._what}=…) says where that is"
        )

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_safe:
            return http.client.HTTPConnection(self._host, self._port, timeout=PATIENCE_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=PATIENCE_S, context=ssl.create_default_context()
        )


# The names of tasks at Restate: a service for each type of task, and a key for each task.


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
