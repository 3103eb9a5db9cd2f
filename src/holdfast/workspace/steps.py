"""A step of a script: as the command line asks for it, and as its log knows it."""

from __future__ import annotations

import shlex
from typing import Any, Literal

from msgspec import Raw, Struct

from holdfast.codec import args_hash, shape_of
from holdfast.decoding import decode
from holdfast.errors import BadInput, CodeChanged
from holdfast.reading import value_in
from holdfast.spec import ONCE, Retry
from holdfast.state import State
from holdfast.store import Store
from holdfast.words import checked_id, is_utf8
from holdfast.workspace.outputs import KeptOutput, Output
from holdfast.workspace.process import MAX_OUTPUT_BYTES
from holdfast.workspace.script import STEP

COMMAND, COMMIT = "1", "2"
"""The calls of a step: their paths."""
_MOST_SHOWN = 1000


class Outcome(Struct, frozen=True):
    """What a command came to, as it stands in the log."""

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
    """What tells it from another step of the same name, instead of the command."""
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
        """What has to be the same on every run: the arguments of its task."""
        what = {
            "command": [] if self.known_by else list(self.command),
            "known_by": self.known_by,
            "files": sorted(set(self.files)),
            "stdin": self.stdin,
        }
        return {name: value for name, value in what.items() if value}


def recorded_outcome(store: Store, state: State) -> Outcome:
    """What the command of a step came to that has ended."""
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
    if state.task != STEP or state.parent != step.script:
        raise BadInput(
            f"task {state.id!r} exists, and is no step of {step.script!r}: give the step another "
            f"name, or the script another id"
        )
    if state.args_hash == args_hash(args):
        return
    before = bytes(state.args) if isinstance(state.args, Raw) else b"{}"
    why = "The script changed under it (a step of another name is another step; so is one of "
    why += "another --key, which stands for the command)"
    raise CodeChanged(step.script, step.name, _shown(before), f"asks for {_shown(args)}", why)


def _shown(args: bytes) -> str:
    """A step's identity as one would type it."""
    what = decode(args)
    words = [shlex.join(what["command"])] if "command" in what else []
    words += [f"--key {shlex.quote(what['known_by'])}"] if "known_by" in what else []
    words += [f"--file {shlex.quote(name)}" for name in what.get("files", ())]
    words += [f"--stdin (sha256 {what['stdin'][:12]}…)"] if "stdin" in what else []
    text = " ".join(words)
    return f"`{text if len(text) <= _MOST_SHOWN else text[:_MOST_SHOWN] + '…'}`"
