"""A call as the code asks for it, beside what the log holds of it.

Code that asks for something else than it once did can't go on with the log: everything that finds
that out halts the task and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from holdfast.codec import args_hash, is_complete
from holdfast.decoding import decode
from holdfast.engines.failures import failure_of
from holdfast.engines.run import Run
from holdfast.errors import CodeChanged, Halt, HoldfastError, Unserializable
from holdfast.events import AnyEvent
from holdfast.journal import Asked, describe, key_of, must_match
from holdfast.spec import Spec
from holdfast.state import UNDO, Call, State


def must_hold_no_call(run: Run, path: str, what: str) -> None:
    """Halt if the log holds a call where the code now makes branches."""
    must_have_restored(run, path, f"makes branches with {what}")
    record = run.log.state.calls.get(path)
    if record is not None:
        run.halt(CodeChanged(run.task_id, path, describe(record), f"makes branches with {what}"))


def must_have_restored(run: Run, path: str, asked: str) -> None:
    """Halt if the log goes on from a checkpoint, and the code does not."""
    if run.checkpoints_passed and not run.root.path and not path.startswith(UNDO):
        recorded = f"checkpoint {run.checkpoints_passed}"
        run.halt(CodeChanged(run.task_id, path or "0", recorded, f"{asked} before restore()"))


def must_have_made_every_call(run: Run, error: BaseException | None = None) -> None:
    """Halt if the body ended before it made the calls that the log holds."""
    must_have_restored(run, "", "ends")
    made = run.root.calls
    state = run.log.state
    # After a checkpoint only what came after it counts.
    root = f"{run.root.path}." if run.root.path else ""
    last = state.last.get(run.root.path, "")
    if not root and not state.inner and (not last or int(last) <= made):
        return
    missing = [
        (int(number), path)
        for path in state.calls
        if path.startswith(root)
        and (number := path[len(root) :].split(".")[0]).isdigit()
        and int(number) > made
    ]
    if not missing:
        return
    record = state.calls[min(missing)[1]]
    asked = "ends without that call"
    if error is not None:
        asked = f"raises {failure_of(error, run.log.redact).summary()} before it"
    run.stop = Halt(CodeChanged(run.task_id, record.path, describe(record), asked))
    raise run.stop from error


def older_code(state: State, spec: Spec) -> CodeChanged:
    """The error for code that is older than what it is to go on with."""
    version = max(state.version, state.checkpoint_version)
    recorded, asked = f"a task of version {version}", f"is version {spec.version} of {spec.name}"
    return CodeChanged(state.id, "0", recorded, asked)


def look_up(run: Run, path: str, spec: Spec, data: bytes) -> tuple[Asked, Call | None]:
    """The call as asked for, and its record. Halts where the two don't match."""
    state = run.log.state
    if run.checkpoints_passed:
        must_have_restored(run, path, f"calls {spec.name}")
    shown, hidden = run.log.redact.arguments(spec.signature, spec.redact, data)
    digest = args_hash(shown)
    key = key_of(run.task_id, path, spec.name, digest, state.rewinds) if spec.is_tool else ""
    record = state.calls.get(path)
    if run.answers is not None:
        record = answered(run, path, spec, shown, digest, record)
    if record is not None:
        if record.args_hash != digest and record.name == spec.name:
            shown, digest = as_recorded(run, spec, record, data)
        # The key in the log is the one that went out, whatever the task is called today.
        asked = Asked(run.task_id, path, spec, Raw(shown), digest, record.key or key, hidden)
        try:
            must_match(asked, record)
        except CodeChanged as error:
            run.halt(error, path)
        return asked, record
    if path in state.inner:
        run.halt(CodeChanged(run.task_id, path, "branches", f"calls {spec.name}"), path)
    try:
        stowed = run.log.stow(shown)
        ttl_s = _lifetime(spec, data, shown) if spec.ttl_s else 0
        return Asked(run.task_id, path, spec, stowed, digest, key, hidden, ttl_s), None
    except Unserializable as error:
        raise type(error)(f"{spec.name} (step {path}) was called with: {error}") from None
    except HoldfastError as error:
        run.halt(error)


def seen_before(run: Run, path: str) -> Call | None:
    """The record of something that the task read, such as the time; None if it has not yet."""
    if run.answers is not None:
        run.answers.seen(path)
    return run.log.state.calls.get(path)


def altered(run: Run, path: str, spec: Spec, data: bytes) -> bytes:
    """The arguments of a call, with those that are others in this fork."""
    fork = run.log.state.fork
    if fork is None or spec.name not in fork.arguments:
        return data
    record = run.log.state.calls.get(path)
    if record is not None and record.seq <= fork.seq:
        return data
    given = decode(data, dict[str, Raw])
    return msgspec.json.encode(given | fork.arguments[spec.name])


def answered(
    run: Run, path: str, spec: Spec, shown: bytes, digest: str, record: Call | None
) -> Call | None:
    """The record of a call, also of one that need not be made: somebody knows its outcome."""
    if run.answers is None:
        return record
    try:
        asked = Asked(run.task_id, path, spec, Raw(shown), digest, "")
        run.answers.passing(asked)
        if record is not None and record.status in ("completed", "failed"):
            return record
        asked.args = run.log.stow(shown)
        adopted = run.answers.find(asked, run.log)
    except HoldfastError as error:
        run.halt(error, path)
    return record if adopted is None else _adopt(run, path, adopted)


def _adopt(run: Run, path: str, events: Sequence[AnyEvent]) -> Call:
    for event in events:
        run.append(event)
    return run.log.state.calls[path]


def _lifetime(spec: Spec, data: bytes, shown: bytes) -> float:
    """For how long another read of the same name and hash may answer for this one.

    Where an argument was left out of the log, or only its place is written, two reads with other
    arguments look the same there: one user's account must not answer for another's.
    """
    return spec.ttl_s if shown == data and is_complete(data) else 0


def as_recorded(run: Run, spec: Spec, record: Call, data: bytes) -> tuple[bytes, str]:
    """The arguments without those that the record leaves out, and their hash.

    What is hidden by name may be another than it was when the call was made.
    """
    recorded = run.log.fetch(record.args) if isinstance(record.args, Raw) else b"{}"
    left_out = spec.signature.left_out(recorded)
    shown, _ = spec.signature.without(data, left_out.__contains__)
    return shown, args_hash(shown if left_out else data)
