"""A script and its steps: what each run of it has begun, and how each step ended.

Each step is a task of its own, a child of the script's, so that two can run at once; in the
script's task they are in order, each a call by the number of its first run. Nobody drives the task
of a script. A process that runs a step takes hold of it for a moment before and after.
"""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any, Literal

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.api.app import Holdfast
from holdfast.codec import args_hash, shape_of
from holdfast.core.decoding import decode
from holdfast.core.events import (
    FORMAT,
    NEWEST_FORMAT,
    ChildEnded,
    ChildStarted,
    Claimed,
    Parked,
    TaskCompleted,
    TaskCreated,
)
from holdfast.core.journal import Returned
from holdfast.core.spec import ONCE, SCRIPT, SCRIPT_STEP, Retry
from holdfast.core.state import FINISHED, Call, State
from holdfast.core.words import checked_id, is_utf8
from holdfast.engines.control import end_of
from holdfast.engines.holder import Holding
from holdfast.errors import (
    BadInput,
    CodeChanged,
    HoldfastError,
    TaskBusy,
    TaskCancelled,
    TaskPaused,
)
from holdfast.log.artifacts import PART_BYTES, Artifact, kept, opened
from holdfast.log.log import Log
from holdfast.log.reading import first_event, no_task, stream_of, value_in
from holdfast.log.states import load
from holdfast.log.values import Blobs
from holdfast.stores import system
from holdfast.stores.port import Store
from holdfast.workspace.process import MAX_OUTPUT_BYTES, RecordedOutput, write_all

_PATIENCE_S, _FIRST_WAIT_S, _LONGEST_WAIT_S = 30.0, 0.002, 0.05


def child_of(hf: Holdfast, script: str, name: str) -> str:
    """The id of the task of a step, or of the one that it will have."""
    call = _call_of(load(hf.store, script, missing_ok=True), name)
    return f"{script}:{name}" if call is None else call.child


def begin_step(hf: Holdfast, script: str, name: str, child: str, args: bytes) -> str:
    """Record that a step of a script begins (again); returns its number."""
    with _held(hf._holding, script) as log:
        _begin(log, script, hf._holding.owner)
        call = _call_of(log.state, name)
        if call is not None and call.child == child and call.status == "running":
            return call.path
        path = call.path if call is not None else str(len(log.state.calls) + 1)
        raw, digest = log.stow_alone(args), args_hash(args)
        log.append(ChildStarted(path=path, id=child, name=name, args=raw, args_hash=digest))
        log.sync()
        return path


def end_step(hf: Holdfast, step: State) -> None:
    """See to it that it is recorded how a step of a script ended.

    The step's driver has recorded that, unless it died just then.
    """
    outcome = end_of(step)
    known = load(hf.store, step.parent, missing_ok=True)
    if (
        outcome is None
        or known.status in FINISHED
        or (known.parked and not _open_call(known, step.id))
    ):
        return
    with _held(hf._holding, step.parent) as log:
        if call := _open_call(log.state, step.id):
            ended = ChildEnded(path=call.path)
            if isinstance(outcome, Returned):
                log.append(replace(ended, result=outcome.raw))
            else:
                log.append(replace(ended, failure=outcome.failure))
        log.append(_waits())
        log.sync()


def end_script(hf: Holdfast, script: str) -> None:
    """Record that a script has ended. Of one that has, nothing changes."""
    if first_event(hf.store, stream_of(script)) is None:
        raise no_task(hf.store, script, ": no step of it was ever run")
    with _held(hf._holding, script) as log:
        _must_be_a_script(log.state)
        if log.state.status == "completed":
            return
        for call in log.state.calls.values():
            if call.status == "running" and hf.store.holder(stream_of(call.child)) is not None:
                raise BadInput(
                    f"task {script!r} can't be done yet: its step {call.name!r} is running"
                )
        log.append(TaskCompleted(result=Raw(b"null")))
        log.sync()


def _begin(log: Log, script: str, owner: str) -> None:
    """Make the task of a script, or see whether another step may be run in it."""
    state = log.state
    if state.seq == 0:
        nothing = b"{}"
        log.append(
            TaskCreated(
                format=FORMAT,
                id=script,
                task=SCRIPT,
                args=Raw(nothing),
                args_hash=args_hash(nothing),
            )
        )
        log.append(Claimed(format=NEWEST_FORMAT, epoch=log.lease.epoch, owner=owner))
        log.append(_waits())
        return
    _must_be_a_script(state)
    if state.status == "paused":
        raise TaskPaused(script, state.because)
    if state.status == "cancelled" or state.cancelling:
        raise TaskCancelled(script, state.because)
    if state.status == "completed":
        raise BadInput(
            f"task {script!r} was ended with `holdfast once --done`, and this step was never "
            f"recorded in it: run the script under another id (HOLDFAST_TASK, or --task)"
        )


def _must_be_a_script(state: State) -> None:
    if state.task != SCRIPT:
        raise BadInput(
            f"task {state.id!r} is a {state.task}, and no script: give the script an id of its own "
            f"(HOLDFAST_TASK, or --task)"
        )


def _call_of(state: State, name: str) -> Call | None:
    return next((call for call in state.calls.values() if call.name == name), None)


def _open_call(state: State, child: str) -> Call | None:
    calls = state.calls.values()
    return next((call for call in calls if call.child == child and call.status == "running"), None)


def _waits() -> Parked:
    return Parked(why="the script runs its steps")  # so that no worker takes it for an orphan


@contextmanager
def _held(holding: Holding, id: str) -> Iterator[Log]:
    """Hold the task of a script for a moment; others do so too, and are waited for."""
    with ExitStack() as stack:
        give_up_at, wait_s = time.monotonic() + _PATIENCE_S, _FIRST_WAIT_S
        log: Log | None = None
        while log is None:
            try:
                log = stack.enter_context(holding.hold(id))
            except TaskBusy:
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        yield log


# A step of a script: as the command line asks for it, and as its log knows it.


# The output of a command and the files it declares, kept in the store and given back.
#
# Short output that is text stands in the log as text, so that it can be read there. All else is an
# `Artifact`. Files are given back only at the paths that the command line names today; a log can't
# name a place to write to.


_IN_THE_LOG = 8 * 1024
"""How long a text may be that stands in the log itself."""

Say = Callable[[str], None]
Output = str | Artifact


class KeptOutput(Struct, frozen=True):
    """A file that a command made."""

    file: Artifact
    mode: int
    """Its permissions."""


def stored(store: Blobs, recorded: RecordedOutput, name: str) -> Output:
    """The output of a command, as it goes into the log."""
    recorded.file.seek(0)
    if recorded.size_bytes <= _IN_THE_LOG:
        try:
            return recorded.file.read().decode()
        except UnicodeDecodeError:
            recorded.file.seek(0)
    return kept(store, iter(lambda: recorded.file.read(PART_BYTES), b""), name)


def print_again(store: Blobs, output: Output, descriptor: int) -> None:
    """Print what a command printed, byte for byte."""
    if isinstance(output, str):
        write_all(descriptor, output.encode())
        return
    with opened(store, output) as file:
        while part := file.read(PART_BYTES):
            write_all(descriptor, part)


def keep_files(store: Blobs, names: Iterable[str]) -> dict[str, KeptOutput]:
    """The files that a command said it would make, or an error that says which it did not."""
    found = {}
    for name in names:
        try:
            with open(name, "rb") as file:
                mode = os.fstat(file.fileno()).st_mode & 0o777
                found[name] = KeptOutput(kept(store, file, Path(name).name), mode)
        except OSError as error:
            raise NotMade(
                f"it ended well, but the file it declares can't be kept: {name} "
                f"({error.strerror or error})"
            ) from None
    return found


class NotMade(HoldfastError):
    """A command did not make a file that it declares."""


def restore_files(
    store: Blobs, files: Mapping[str, KeptOutput], *, overwrite: bool, say: Say
) -> None:
    """Give back the files that are missing, and with `overwrite` those that were changed."""
    for name, made in files.items():
        standing = _standing(name, made)
        if standing == "same":
            continue
        if standing == "changed" and not overwrite:
            say(
                f"{name} is not what this step made, and was left as it is (--restore puts the "
                f"step's file in its place)"
            )
            continue
        _write(store, name, made)
        say(f"{name} was {standing}: restored as this step made it")


def _standing(name: str, made: KeptOutput) -> Literal["same", "changed", "missing"]:
    try:
        with open(name, "rb") as file:
            if os.fstat(file.fileno()).st_size != made.file.size_bytes:
                return "changed"
            same = file_digest(file, "sha256").hexdigest() == made.file.sha256
            return "same" if same else "changed"
    except FileNotFoundError:
        return "missing"
    except IsADirectoryError:
        raise HoldfastError(
            f"{name} was made as a file by this step, and is a folder now: move it away"
        ) from None


def _write(store: Blobs, name: str, made: KeptOutput) -> None:
    """A file in one piece, or not at all."""
    place = Path(name)
    place.parent.mkdir(parents=True, exist_ok=True)
    descriptor, scratch = tempfile.mkstemp(prefix=".holdfast-", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file, opened(store, made.file) as content:
            while part := content.read(PART_BYTES):
                file.write(part)
            os.fchmod(file.fileno(), made.mode & 0o777)
            file.flush()
            system.sync_all(file.fileno())
        os.replace(scratch, place)
    except BaseException:
        os.unlink(scratch)
        raise


COMMAND, COMMIT = "1", "2"
"""The calls of a step: their paths."""
_MOST_SHOWN = 1000


class Outcome(Struct, frozen=True):
    """The outcome of a command, as the log holds it."""

    exit_code: int
    stdout: Output = ""
    stderr: Output = ""
    files: dict[str, KeptOutput] = {}
    duration_s: float = 0.0
    left_out_bytes: dict[str, int] = {}
    """How much of each stream was passed on, but is too much to be recorded."""
    ran: list[str] = []
    """The command, where it is not what the step is known by."""


class Step(Struct, frozen=True, kw_only=True):
    """A step of a script, as the command line asks for it.

    >>> Step(script="nightly", name="fetch", command=("curl", "example.org")).identity()
    {'command': ['curl', 'example.org']}
    """

    script: str
    name: str
    command: tuple[str, ...]
    known_by: str = ""
    """The name that tells it from another step of the same name, instead of the command."""
    files: tuple[str, ...] = ()
    stdin: str = ""
    """The digest of its standard input, if it was given one."""
    retry: Retry = ONCE
    timeout_s: float | None = None
    in_doubt: Literal["retry", "ask"] = "retry"
    keep_failure: bool = False
    max_output_bytes: int = MAX_OUTPUT_BYTES
    restore: bool = False
    git: str = ""
    """A folder to commit after it, in its git repository."""
    git_init: bool = False

    def identity(self) -> dict[str, Any]:
        """The parts that have to be the same on every run: the arguments of its task."""
        what = {
            "command": [] if self.known_by else list(self.command),
            "known_by": self.known_by,
            "files": sorted(set(self.files)),
            "stdin": self.stdin,
        }
        return {name: value for name, value in what.items() if value}


def recorded_outcome(store: Store, state: State) -> Outcome:
    """The outcome of the command of a step that has ended."""
    result = state.calls[COMMAND].result
    raw = result if isinstance(result, Raw) else Raw(b"null")
    outcome: Outcome = shape_of(Outcome).load(value_in(store, state, raw))
    return outcome


def must_be_recordable(step: Step) -> None:
    """Refuse what can't be written down, before anything is."""
    checked_id(step.script)
    checked_id(step.name)
    if not step.command:
        raise BadInput(f"step {step.name!r} has no command: holdfast once {step.name} -- COMMAND …")
    named = {"--key": (step.known_by,), "--file": step.files}
    named |= {} if step.known_by else {"the command (give the step a --key)": step.command}
    for what, words in named.items():
        for word in words:
            if not is_utf8(word):
                raise BadInput(f"step {step.name!r}, {what}: {word!a:.60} is not text in UTF-8")


def must_be_the_same(state: State, step: Step, args: bytes) -> None:
    """Raise `CodeChanged` unless the log is of the step that the script asks for now."""
    if state.task != SCRIPT_STEP or state.parent != step.script:
        raise BadInput(
            f"task {state.id!r} exists, and is no step of {step.script!r}: give the step another "
            f"name, or the script another id"
        )
    if state.args_hash == args_hash(args):
        return
    before = bytes(state.args) if isinstance(state.args, Raw) else b"{}"
    why = "The script changed under it"
    do = "run it as it was, give the step another name, or begin a new run with another "
    do += "HOLDFAST_TASK. A command that differs on every run needs a --key, which stands for it"
    raise CodeChanged(step.script, step.name, _shown(before), f"asks for {_shown(args)}", why, do)


def _shown(args: bytes) -> str:
    """A step's identity as one would type it."""
    what = decode(args)
    words = [shlex.join(what["command"])] if "command" in what else []
    words += [f"--key {shlex.quote(what['known_by'])}"] if "known_by" in what else []
    words += [f"--file {shlex.quote(name)}" for name in what.get("files", ())]
    words += [f"--stdin (sha256 {what['stdin'][:12]}…)"] if "stdin" in what else []
    text = " ".join(words)
    return f"`{text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '…'}`"
