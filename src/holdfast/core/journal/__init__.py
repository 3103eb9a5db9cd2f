"""The journal: what has to happen for a call to be made once and only once.

Each flow is a generator that yields what it wants done and is told the answer; it has no clock,
disk or event loop. A driver carries the requests out: one for sync code, one for async code, one
inside each remote engine. So the decisions are written here, once.

A flow always goes by the call's record in the log, never by what it remembers: after a crash the
next one finds the same record and takes the same way. For a call of a tool that way is

    no record ──▶ Started (synced) ──▶ body ──▶ Completed (synced)
                     │                  └─raises─▶ AttemptFailed ──▶ wait ──▶ Started …
                     └─ died here: the call is in doubt
                          retry: Started again, with the same key
                          check: ask the outside system by key ──▶ Settled
                          ask:   Doubted, and the task waits for a person ──▶ Settled
"""

from holdfast.core.journal.calls import perform, settle
from holdfast.core.journal.requests import (
    Admit,
    Append,
    Asked,
    Await,
    CancelChildren,
    Check,
    DriveChild,
    Flow,
    Leave,
    Look,
    LookAtChild,
    MayStart,
    Now,
    Park,
    Raised,
    Request,
    Returned,
    RunBody,
    Sleep,
    StartChild,
    Stopped,
    Undo,
    describe,
    in_doubt,
    key_of,
    misfit,
    must_match,
    step_failed,
    unanswered,
)
from holdfast.core.journal.task import conduct
from holdfast.core.journal.waits import ask, await_child, receive, sleep, start_child

__all__ = [
    "Admit",
    "Append",
    "Asked",
    "Await",
    "CancelChildren",
    "Check",
    "DriveChild",
    "Flow",
    "Leave",
    "Look",
    "LookAtChild",
    "MayStart",
    "Now",
    "Park",
    "Raised",
    "Request",
    "Returned",
    "RunBody",
    "Sleep",
    "StartChild",
    "Stopped",
    "Undo",
    "ask",
    "await_child",
    "conduct",
    "describe",
    "in_doubt",
    "key_of",
    "misfit",
    "must_match",
    "perform",
    "receive",
    "settle",
    "sleep",
    "start_child",
    "step_failed",
    "unanswered",
]
