"""A step of a script: as the command line asks for it, and as its log knows it."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Callable, Iterable, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Any, Literal

from msgspec import Raw, Struct

from holdfast.codec import args_hash, shape_of
from holdfast.core.decoding import decode
from holdfast.core.spec import ONCE, Retry
from holdfast.core.state import State
from holdfast.core.words import checked_id, is_utf8
from holdfast.errors import BadInput, CodeChanged, HoldfastError
from holdfast.log.artifacts import PART_BYTES, Artifact, kept, opened
from holdfast.log.reading import value_in
from holdfast.log.values import Blobs
from holdfast.stores.port import Store
from holdfast.workspace.process import MAX_OUTPUT_BYTES, RecordedOutput, write_all
from holdfast.workspace.script import STEP

# What a command made: its output and the files it declares, kept in the store and given back.
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
    """What a command printed, as it goes into the log."""
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
            os.fsync(file.fileno())
        os.replace(scratch, place)
    except BaseException:
        os.unlink(scratch)
        raise


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
