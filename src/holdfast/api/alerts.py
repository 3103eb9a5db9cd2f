"""Alerts: somebody is told when a task fails, gets stuck, is in doubt, asks, or takes too long.

The delivery of an alert is a task of its own, named after what it is about. So an alert is made
once however many workers look; it is delivered at least once, with retries that outlive a crash;
and it is recorded, as every task is (`holdfast ls --type holdfast_alert`). A hook (a function, a
command, a webhook) stands in memory only: no secret of it is in a log.

A worker looks for reasons every few seconds, by the index of the store. Nothing is told of what
happened before the first worker with a hook looked, or is older than a week.
"""

from __future__ import annotations

import hmac
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from holdfast.api.steps import tool
from holdfast.api.tasks import task
from holdfast.core.spec import IdempotencyKey, Retry, task_spec
from holdfast.core.state import FINISHED, Status
from holdfast.errors import BadInput, HoldfastError, StoreError
from holdfast.stores.listing import TaskRecord, page_of_tasks
from holdfast.stores.port import LONGEST_PAGE

if TYPE_CHECKING:
    from holdfast.api.app import Holdfast

Reason = Literal["failed", "stuck", "in_doubt", "asks", "overdue"]
REASONS: tuple[Reason, ...] = get_args(Reason)

ALERT = "holdfast_alert"
"""The type of the tasks that deliver alerts."""
HOOK = "hook"
"""The label of such a task: the name of the hook that it tells."""
BEGAN = "holdfast-alerts"
"""The id of the task by whose beginning it is known since when alerts are wanted."""

WATCHED = ("failed", "stuck", "awaiting_user")
_OLDEST = timedelta(days=7)
_WEBHOOK_S, _COMMAND_S = 10.0, 60.0
_MOST_SEEN = 10_000


class Alert(Struct, frozen=True):
    """Why somebody should look at a task. A hook is given it.

    >>> Alert(reason="failed", task="trip-42", type="plan_trip", text="RuntimeError: storm").task
    'trip-42'
    """

    reason: Reason
    task: str
    type: str
    text: str
    """The fault or the question, in a line."""
    at: str = ""
    """Since when, as ISO 8601."""
    user: str = ""
    labels: dict[str, str] = {}


class Hook(Struct, frozen=True, kw_only=True):
    """A hook: the reasons and the receiver. Made by `hf.on`."""

    name: str
    reasons: tuple[Reason, ...]
    tell: Callable[[Alert, str], None]
    """Given the alert, and a key that is the same each time it is delivered."""
    older_than: timedelta | None = None
    types: tuple[str, ...] = ()

    def wants(self, alert: Alert) -> bool:
        """Whether it is to be told of this alert."""
        return alert.reason in self.reasons and (not self.types or alert.type in self.types)


_hooks: dict[str, Hook] = {}


def hook_of(
    reasons: Sequence[str],
    do: Callable[[Alert], object] | None = None,
    *,
    command: Sequence[str] | None = None,
    webhook: str | None = None,
    secret: str | None = None,
    older_than: timedelta | None = None,
    type: str | Sequence[str] = (),
    name: str = "",
) -> Hook:
    """A hook of what `hf.on` was given, checked."""
    wrong = [reason for reason in reasons if reason not in REASONS]
    if wrong or not reasons:
        raise BadInput(f"on({', '.join(map(repr, reasons))}): give some of {', '.join(REASONS)}")
    if ("overdue" in reasons) != (older_than is not None):
        raise BadInput("on('overdue', older_than=…): the two go together")
    if sum(each is not None for each in (do, command, webhook)) != 1:
        raise BadInput("on(…) needs one of a function, command=[…] and webhook='https://…'")
    if secret is not None and webhook is None:
        raise BadInput("on(…, secret=…): only a webhook is signed")
    tell: Callable[[Alert, str], None]
    if do is not None:
        function = do

        def call(alert: Alert, key: str) -> None:
            function(alert)

        tell, said = call, f"{getattr(do, '__module__', '')}.{getattr(do, '__qualname__', do)}"
    elif command is not None:
        argv = _checked_command(command)
        tell, said = (lambda alert, key: run_command(argv, alert, key)), "\0".join(argv)
    else:
        url = _checked_url(webhook or "")
        tell, said = (lambda alert, key: post(url, secret, alert, key)), url
    named = name or sha256(said.encode()).hexdigest()[:12]
    types = (type,) if isinstance(type, str) else tuple(type)
    return Hook(
        name=named, reasons=tuple(reasons), tell=tell, older_than=older_than, types=types  # type: ignore[arg-type]
    )  # fmt: skip


def _checked_command(command: Sequence[str]) -> list[str]:
    if isinstance(command, str) or not command or not all(isinstance(w, str) for w in command):
        raise BadInput(f"on(command={command!r:.60}) must be a list of words: ['notify', '-x']")
    return list(command)


def _checked_url(url: str) -> str:
    if not url.startswith(("https://", "http://")):
        raise BadInput(f"on(webhook={url!r:.60}) must be the URL of a web server: https://…")
    return url


# Delivering: a task for each alert, with a tool that may be called again.


@tool(
    name="holdfast_deliver",
    in_doubt="retry",
    retry=Retry(attempts=150, delay_s=1, max_delay_s=600),  # for about a day
)
def deliver(alert: Alert, hook: str, *, key: IdempotencyKey = IdempotencyKey()) -> None:  # noqa: B008
    """Tell somebody, at least once."""
    if why := _lacks({HOOK: hook}):
        raise HoldfastError(why)
    _hooks[hook].tell(alert, key)


@task(name=ALERT)
def holdfast_alert(alert: Alert, hook: str) -> str:
    """The delivery of one alert to one hook."""
    deliver(alert, hook)
    return f"told of {alert.task}: {alert.reason}"


def _lacks(labels: Mapping[str, str]) -> str:
    """Why this process can't deliver an alert: it would spend the attempts of one that can."""
    hook = labels.get(HOOK, "")
    if hook in _hooks:
        return ""
    return f"this process has no hook {hook!r}: hf.on(…) or [tool.holdfast] has it"


force_setattr(task_spec(holdfast_alert), "lacks", _lacks)


@task(name="holdfast_alerts_began")
def alerts_began() -> None:
    """Marks since when alerts are wanted."""


def run_command(argv: Sequence[str], alert: Alert, key: str) -> None:
    """Run a command with the alert as JSON on its standard input; it fails if that does."""
    told = {"HOLDFAST_ALERT": alert.reason, "HOLDFAST_ALERT_TASK": alert.task}
    done = subprocess.run(
        argv, input=_body(alert, key), env={**os.environ, **told, "HOLDFAST_ALERT_KEY": key},
        capture_output=True, timeout=_COMMAND_S, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()[-500:]
        raise HoldfastError(f"{argv[0]} ended with {done.returncode}: {said}")


def post(url: str, secret: str | None, alert: Alert, key: str) -> None:
    """Send the alert to a web server as JSON, signed if there is a secret.

    The header `Holdfast-Signature` is `t=TIME,v1=HMAC`: the HMAC-SHA256, by the secret, of the
    time, a dot and the body. The receiver makes it again and compares.
    """
    from urllib.request import Request, urlopen

    body = _body(alert, key)
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    if secret is not None:
        headers["Holdfast-Signature"] = signature(secret, body, int(time.time()))
    request = Request(url, body, headers, method="POST")
    with urlopen(request, timeout=_WEBHOOK_S) as reply:
        reply.read(1024)


def signature(secret: str, body: bytes, at: int) -> str:
    """The signature of a webhook.

    >>> signature("s", b"{}", 1)[:9]
    't=1,v1=b2'
    """
    made = hmac.new(secret.encode(), b"%d.%b" % (at, body), sha256).hexdigest()
    return f"t={at},v1={made}"


def _body(alert: Alert, key: str) -> bytes:
    return json.dumps({**msgspec.to_builtins(alert), "key": key}).encode()


# Looking for reasons.


class Watch:
    """Looks for what hooks are to be told of, and starts a task for each."""

    def __init__(self, hf: Holdfast, hooks: Sequence[Hook]) -> None:
        self._hf, self._hooks = hf, tuple(hooks)
        self._seen: set[str] = set()
        self._since: datetime | None = None
        for hook in hooks:
            _hooks[hook.name] = hook

    def look(self) -> int:
        """Start a task for every alert that is new; returns how many there were."""
        if not self._hooks:
            return 0
        now = self._hf._holding.clock()
        if self._since is None:
            self._hf.start(alerts_began, id=BEGAN)
            self._since = self._hf.task(BEGAN).state.created_at
        since = max(self._since, now - _OLDEST)
        ages = [hook.older_than for hook in self._hooks if hook.older_than is not None]
        if len(self._seen) > _MOST_SEEN:
            self._seen.clear()
        return sum(
            self._start(alert, hook, key)
            for alert, key in reasons_in(self._hf, since, now, min(ages, default=None), self._seen)
            for hook in self._hooks
            if hook.wants(alert)
        )

    def _start(self, alert: Alert, hook: Hook, key: str) -> int:
        # Named after what it is about: somebody else may have started it already.
        digest = sha256(f"{hook.name}\n{alert.task}\n{key}".encode()).hexdigest()[:20]
        labels = {"alert": alert.reason, HOOK: hook.name}
        self._hf.options(id=f"alert-{digest}", labels=labels).start(
            holdfast_alert, alert, hook.name
        )
        return 1


def reasons_in(
    hf: Holdfast,
    since: datetime,
    now: datetime,
    older_than: timedelta | None = None,
    seen: set[str] | None = None,
) -> Iterator[tuple[Alert, str]]:
    """Why somebody should look at tasks, since then; each with what tells it from another one.

    It leaves out the alerts in `seen`, and adds those that it told of.
    """
    seen = set() if seen is None else seen
    for record in _records(hf, {"status": WATCHED, "updated_after": since}):
        mark = f"{record.id}\n{record.status} {record.updated_at.isoformat()}"
        if not _is_ours(record) and mark not in seen:
            yield from _alerts(hf, record)
            seen.add(mark)  # only now: if somebody could not be told, it is told of again
    if older_than is None:
        return
    unfinished = tuple(status for status in get_args(Status) if status not in FINISHED)
    for record in _records(hf, {"status": unfinished, "created_before": now - older_than}):
        mark = f"{record.id}\noverdue"
        if not _is_ours(record) and mark not in seen:
            # Not how it stands: the alert is the same whenever it is made.
            text = f"it was made {record.created_at.isoformat()}, and has not ended"
            yield _alert(record, "overdue", text, record.created_at), "overdue"
            seen.add(mark)


def _is_ours(record: TaskRecord) -> bool:
    return record.type == ALERT or record.id == BEGAN


def _records(hf: Holdfast, filters: dict[str, object]) -> Iterator[TaskRecord]:
    cursor: str | None = None
    while True:
        page = page_of_tasks(hf.store, filters, limit=LONGEST_PAGE, cursor=cursor)
        yield from page.tasks
        cursor = page.next
        if cursor is None:
            return


def _alerts(hf: Holdfast, record: TaskRecord) -> Iterator[tuple[Alert, str]]:
    try:
        view = hf.task(record.id)
    except StoreError:
        return
    at, ended = record.updated_at, f"{record.status} {record.updated_at.isoformat()}"
    if view.status == "failed" and view.failure is not None:
        yield _alert(record, "failed", view.failure.summary(), at), ended
    elif view.status == "stuck":
        yield _alert(record, "stuck", view.state.because or "its processes keep dying", at), ended
    elif view.status == "awaiting_user":
        for call in view.doubts:
            if call.status == "in_doubt":
                text = f"call {call.path}, {call.name}, may or may not have happened"
                yield _alert(record, "in_doubt", text, call.at), f"doubt {call.path} {call.seq}"
        for call in view.questions:
            yield _alert(record, "asks", call.why, call.at), f"asks {call.path} {call.seq}"


def _alert(record: TaskRecord, reason: Reason, text: str, at: datetime) -> Alert:
    line = text.partition("\n")[0][:500]
    return Alert(
        reason, record.id, record.type, line, at.isoformat(), record.user, dict(record.labels)
    )
