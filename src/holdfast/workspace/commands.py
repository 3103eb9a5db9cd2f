"""Running an agent that is a command: any program that takes a prompt, and does its work.

The prompt goes to its standard input, or to a file (`{prompt_file}` in the command stands for its
name). Its output is kept, whatever that is and however much; so is what it changed in its folder,
by name and content hash.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.flow import once
from holdfast.core.scope import inside, scope_var
from holdfast.core.words import is_utf8
from holdfast.errors import BadInput
from holdfast.log.artifacts import Artifact, kept

MOST_SHOWN = 16 * 1024
"""So much of an output stands in the log; the whole of a longer one is kept beside it."""

MOST_KEPT = 64 * 1024 * 1024
"""Of an output that is even longer, the beginning and the end are kept."""

_GUARD = Path(__file__).with_name("guard.py")
_LEFT_ALONE = {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv"}
_MOST_FILES = 20_000


class CommandOutput(Struct, frozen=True):
    """The output of a command: the end of it as text, and all of it, if that is more."""

    text: str = ""
    size_bytes: int = 0
    whole: Artifact | None = None


class ChangedFile(Struct, frozen=True):
    """A file that is other than before."""

    name: str
    how: str
    size_bytes: int = 0
    sha256: str = ""


class RanCommand(Struct, frozen=True):
    """How a command ended, and what came of it."""

    exit_code: int
    seconds: float
    stdout: CommandOutput = CommandOutput()
    stderr: CommandOutput = CommandOutput()
    changed: tuple[ChangedFile, ...] = ()
    timed_out: bool = False


def run_command(
    command: str, prompt: str, folder: Path, *, timeout_s: float | None = None,
    environment: dict[str, str] | None = None, beside: Sequence[Path] = (),
) -> RanCommand:  # fmt: skip
    """Run a command with a prompt in a folder, to its end. It does not look at files that lie
    `beside`."""
    before = _first_seen(folder, beside)
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-") as place,
        open(Path(place) / "stdout", "w+b") as stdout,
        open(Path(place) / "stderr", "w+b") as stderr,
    ):
        prompt_file = Path(place) / "prompt.md"
        prompt_file.write_text(prompt, encoding="utf-8")
        words = arguments(command, prompt_file)
        given = {**os.environ, **(environment or {}), "HOLDFAST_PROMPT_FILE": str(prompt_file)}
        with open(prompt_file, "rb") as stdin:
            process, timed_out = _guarded(words, folder, given, stdin, stdout, stderr, timeout_s)
        after = snapshot(folder, beside)
        return RanCommand(
            exit_code=process.returncode,
            seconds=round(time.monotonic() - began, 3),
            stdout=kept_output(stdout, "stdout"),
            stderr=kept_output(stderr, "stderr"),
            changed=tuple(_known_by_content(folder, each) for each in differences(before, after)),
            timed_out=timed_out,
        )


def _first_seen(folder: Path, beside: Sequence[Path]) -> dict[str, tuple[int, int, int]]:
    """The folder as it was before the first attempt of this call: what an attempt changed that was
    killed counts as changed, too."""
    now = snapshot(folder, beside)
    told = {name: about for name, about in now.items() if is_utf8(name)}
    first = once("folder", lambda key, path: told, dict[str, tuple[int, int, int]])
    if (scope := scope_var.get()) is not None:
        scope.run.sync()  # before the command touches anything
    return {name: about for name, about in now.items() if name not in told} | first


def arguments(command: str, prompt_file: Path) -> list[str]:
    """The words of a command, with the prompt's file in its place.

    >>> arguments("assistant --file {prompt_file} 'two words'", Path("/tmp/p.md"))
    ['assistant', '--file', '/tmp/p.md', 'two words']
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise BadInput(f"the agent {command!r:.80} is no command: {error}") from None
    if not words:
        raise BadInput("the agent is an empty command: give a program, such as 'assistant -p'")
    return [word.replace("{prompt_file}", str(prompt_file)) for word in words]


def _guarded(
    words: Sequence[str], folder: Path, environment: dict[str, str], stdin: BinaryIO,
    stdout: BinaryIO, stderr: BinaryIO, timeout_s: float | None,
) -> tuple[subprocess.Popen[bytes], bool]:  # fmt: skip
    """Run a command that does not outlive us: see `guard`."""
    if not hasattr(os, "fork"):
        raise BadInput(
            "an agent that is a command is ended with us by a process that forks, which this "
            "system can't: give a Python function (--python), or run it under Linux or macOS"
        )
    theirs, ours = os.pipe()
    try:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), str(theirs), *words], cwd=folder,
                env=environment, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=(theirs,),
                start_new_session=True,
            )  # fmt: skip
        finally:
            os.close(theirs)
        return process, _follow(process, ours, timeout_s)
    finally:
        os.close(ours)


def must_be_there(command: str, folder: Path) -> None:
    """Refuse a command that can't be run, before anything is begun or recorded."""
    program = arguments(command, Path())[0]
    found = folder / program if os.sep in program else program
    if shutil.which(found) is None:
        raise BadInput(
            f"the agent {command!r:.80} can't be run: there is no program {program!r:.80}. "
            f"Give the name of one, or its whole path"
        )


def _follow(process: subprocess.Popen[bytes], guard: int, timeout_s: float | None) -> bool:
    """Wait for a command and all that it started; whether its time was up."""
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return True
    finally:
        if process.poll() is None:  # its time is up, or we are interrupted
            with suppress(BrokenPipeError):
                os.write(guard, b"t")
            process.wait()
    return False


def kept_output(file: BinaryIO, name: str) -> CommandOutput:
    """The output in a file: the end of it as text, and if that is not all, the whole."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_SHOWN))
    text = file.read().decode("utf-8", "replace").replace("\0", "\ufffd")
    if size <= MOST_SHOWN:
        return CommandOutput(text, size)
    store = inside("an agent").run.log.store
    return CommandOutput(text, size, kept(store, _pieces(file, size), f"{name}.txt"))


def _pieces(file: BinaryIO, size: int) -> Iterator[bytes]:
    """The content of a file; of a very long one its beginning and its end."""
    half = MOST_KEPT // 2
    spans = [(0, size)] if size <= MOST_KEPT else [(0, half), (size - half, size)]
    for number, (start, end) in enumerate(spans):
        if number:
            yield f"\n[… {size - MOST_KEPT:,} bytes are left out here …]\n".encode()
        file.seek(start)
        left = end - start
        while left > 0 and (piece := file.read(min(left, 1024 * 1024))):
            left -= len(piece)
            yield piece


def snapshot(folder: Path, beside: Sequence[Path] = ()) -> dict[str, tuple[int, int, int]]:
    """The files in a folder: their names, and by what it is seen that one was changed."""
    found: dict[str, tuple[int, int, int]] = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name for name in folders
            if name not in _LEFT_ALONE and Path(place, name).resolve() not in beside
        ]  # fmt: skip
        for name in files:
            path = Path(place, name)
            try:
                about = path.lstat()
            except OSError:
                continue
            if path not in beside:
                key = (about.st_size, about.st_mtime_ns, about.st_ino)
                found[str(path.relative_to(folder))] = key
        if len(found) > _MOST_FILES:  # that is no project: what changed in it is not told
            return {}
    return found


def differences(
    before: dict[str, tuple[int, int, int]], after: dict[str, tuple[int, int, int]]
) -> Iterator[ChangedFile]:
    """The differences after against before."""
    for name in sorted({*before, *after}):
        if name not in after:
            yield ChangedFile(name, "removed")
        elif before.get(name) != after[name]:
            how = "changed" if name in before else "made"
            yield ChangedFile(name, how, after[name][0])


def _known_by_content(folder: Path, changed: ChangedFile) -> ChangedFile:
    path = folder / changed.name
    # A name that is no UTF-8 can't stand in the log as it is.
    told = replace(changed, name=os.fsencode(changed.name).decode("utf-8", "backslashreplace"))
    if changed.how == "removed" or not path.is_file() or path.is_symlink():
        return told
    with suppress(OSError):
        return replace(told, sha256=digest_of(path))
    return told


def digest_of(path: Path) -> str:
    """The sha256 of a file, to know it again by."""
    total = sha256()
    with open(path, "rb") as file:
        while piece := file.read(1024 * 1024):
            total.update(piece)
    return total.hexdigest()
