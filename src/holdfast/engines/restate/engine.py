"""A Restate server, seen from outside."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast.engines.port import Driven, EngineWorker, Job, NotServed, RunOver
from holdfast.engines.restate.http import (
    LOG,
    RUN,
    TELL,
    Address,
    HttpReply,
    is_service,
    key_of,
    path_of,
    service_of,
)
from holdfast.errors import BadInput, EngineConflict, EngineError

_KILLED = "[409] killed"
"""The words of Restate about an invocation that somebody killed."""


class Restate:
    """Tasks as workflows of a Restate server. Give it to `Holdfast(…, engine=…)`.

    `url` is where the server takes requests (its ingress), `admin` where it is managed. A worker
    listens at `listen`, and the server has to reach it there; where it is another address for the
    server, `advertise` is its URL. Workers that share a store may listen at the same address of
    a machine, or behind one. `prefix` goes before the names of services: two stores on one server
    need two. `token` is sent along with each request. After `renew_after` calls a task goes on in a
    new invocation, with an empty journal. Needs `pip install 'holdfast[restate]'`.

    >>> Restate("http://restate:8080", admin="http://restate:9070").name
    'restate'
    """

    name = "restate"

    def __init__(
        self,
        url: str = "http://127.0.0.1:8080",
        *,
        admin: str = "http://127.0.0.1:9070",
        listen: str = "127.0.0.1:9080",
        advertise: str = "",
        prefix: str = "",
        token: str = "",
        renew_after: int = 10_000,
    ) -> None:
        if type(renew_after) is not int or renew_after < 1:
            raise BadInput(f"Restate(renew_after={renew_after!r:.60}) must be 1 or more")
        self.ingress: Address = Address(url, "url", token)
        self.admin: Address = Address(admin, "admin", token)
        self.listen: tuple[str, int] = _host_and_port(listen)
        self.advertise: str = Address(advertise, "advertise").url if advertise else ""
        if prefix and not is_service(prefix):
            raise BadInput(
                f"Restate(prefix={prefix!r:.60}) must be letters, digits, '.', '_' and '-', begin "
                f"with a letter, and not with 'restate' or 'openapi'"
            )
        self.prefix = prefix
        self.renew_after = renew_after

    def __repr__(self) -> str:
        return f"Restate({self.ingress.url!r}, admin={self.admin.url!r})"

    # What tasks are told

    def start(self, job: Job) -> None:
        """See to it that a task is driven."""
        self._started(job)

    def _started(self, job: Job) -> str:
        """Start the workflow of a task, if it is not there yet; returns its invocation."""
        body = {"id": job.id, "task": job.task, "seq": job.seq, "log": job.log}
        said = self._asked(job, f"{RUN}/send", body)
        if said.get("status") == "PreviouslyAccepted":
            known = self.query(job)
            if known is not None and known.status != "running":
                # Purged, and sent again, it would have the same id, and hear what came too late
                # for the first: timers that ring, calls that return.
                raise RunOver(f"task {job.id!r}: its workflow {key_of(job)!r} at Restate is over")
        return str(said.get("invocationId", ""))

    def tell(self, job: Job, message: str) -> None:
        """A message was left for a task."""
        # Told again, of the same message, Restate does nothing.
        once = {"idempotency-key": message.encode("ascii", "backslashreplace").decode()}
        self._asked(job, f"{TELL}/send", {"name": message}, once)

    def cancel(self, job: Job) -> None:
        """A message that asks it to end was left for a task."""
        known = self.query(job)
        if known is None or known.status == "stopped":
            self.end(self._started(job), "cancel")
        elif known.status == "running":
            self.end(known.run, "cancel")

    def stop(self, job: Job) -> None:
        """Drive a task no longer."""
        known = self.query(job)
        if known is not None and known.status == "running":
            self.end(known.run, "kill")

    def end(self, run: str, how: Literal["cancel", "kill"]) -> None:
        """End one invocation; harmless if it has ended."""
        reply = self.admin.ask("PATCH", f"/invocations/{run}/{how}")
        if reply.status >= 300 and reply.status not in (404, 409):
            raise self.admin.trouble(reply, "admin API")

    def query(self, job: Job) -> Driven | None:
        """The knowledge of the server about a task; None if nothing."""
        self._must_be_ours(job)
        found = self._select(
            "id, status, completion_result, completion_failure, created_at from sys_invocation "
            f"where {self._where(job, 'target_service')} and target_handler_name = '{RUN}'"
        )
        if not found:
            return None
        row = found[0]
        is_over = row.get("status") == "completed"
        is_stopped = row.get("completion_failure") == _KILLED
        detail = row.get("completion_failure") or row.get("completion_result") or row.get("status")
        return Driven(
            job.id,
            "stopped" if is_stopped else "ended" if is_over else "running",
            self.name,
            run=str(row.get("id", "")),
            started_at=_time(row.get("created_at")),
            detail=str(detail or ""),
        )

    def _must_be_ours(self, job: Job) -> None:
        kept = self._select(f"value_utf8 from state where {self._where(job)} and key = '{LOG}'")
        if kept and job.log and kept[0].get("value_utf8") != f'"{job.log}"':
            raise EngineConflict(
                f"task {job.id!r}: Restate at {self.ingress.url} has a workflow "
                f"{service_of(job.task, self.prefix)}/{key_of(job)} that is not this task's, but "
                f"that of a task of another store. Start the task under another id, or give the "
                f"stores prefixes of their own (Restate(prefix=…))"
            )

    def _where(self, job: Job, what: str = "service") -> str:
        service, key = service_of(job.task, self.prefix), key_of(job).replace("'", "''")
        return f"{what}_name = '{service}' and {what}_key = '{key}'"

    def _asked(
        self, job: Job, handler: str, body: Any, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        reply = self.ingress.ask("POST", path_of(job, handler, self.prefix), body, headers)
        said = reply.json()
        if reply.status >= 300 or not isinstance(said, dict):
            raise self._trouble(job, reply)
        return said

    def _trouble(self, job: Job, reply: HttpReply) -> EngineError:
        if reply.status == 404 and "not found" in reply.message:
            return NotServed(
                f"task {job.id!r}: no worker has registered {job.task!r} at Restate, "
                f"{self.ingress.url}. Start one that has its code (holdfast worker --engine "
                f"restate …)",
                job.task,
            )
        return self.ingress.trouble(reply, "ingress")

    def _select(self, what: str) -> list[dict[str, Any]]:
        reply = self.admin.ask("POST", "/query", {"query": f"select {what}"})
        said = reply.json()
        if reply.status != 200 or not isinstance(said, dict):
            raise self.admin.trouble(reply, "admin API")
        rows: list[dict[str, Any]] = said.get("rows", [])
        return rows

    # Driving

    def worker(
        self, hf: Any, *, concurrency: int = 16, say: Callable[[str], None] | None = None
    ) -> EngineWorker:
        """The worker that drives its tasks in this process."""
        try:
            from holdfast.engines.restate.worker import RestateWorker
        except ModuleNotFoundError as error:
            raise BadInput(
                f"a worker of Restate needs {error.name}: pip install 'holdfast[restate]'"
            ) from error
        return RestateWorker(self, hf, concurrency=concurrency, say=say)

    def close(self) -> None:
        """Let go of what it holds: nothing."""


def _host_and_port(listen: str) -> tuple[str, int]:
    host, _, port = str(listen).rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise BadInput(f"Restate(listen={listen!r:.60}) must be like '127.0.0.1:9080'")
    return host.strip("[]"), int(port)


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
