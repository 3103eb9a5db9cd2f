"""Run a command: its output is passed on as it comes, and recorded.

The output is held in memory only while it is small; then in a temporary file (where TMPDIR says),
and never more of it than a limit. The command gets what it would get without us: our standard
error and output, as pipes; the signals that we get; and our end. If we are killed the system kills
it too (on Linux), because the next driver would run it a second time beside itself.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from tempfile import SpooledTemporaryFile
from types import FrameType
from typing import IO, Self

from msgspec import Struct

MAX_OUTPUT_BYTES = 1 << 30
"""How much of each stream is recorded. The rest is passed on, and counted."""

TIMED_OUT, CANNOT_RUN, NOT_FOUND = 124, 126, 127
"""The exit codes that shells have for a command that ran out of time, or did not start."""

_IN_MEMORY = 1 << 20
_AT_ONCE = 1 << 16
_LOOK_EVERY_S = 0.1
_LINGER_S = 0.5
"""How long to go on reading after the command has ended, if something it started has its pipe."""
_GRACE_S = 5.0
"""How long a command that is out of time has to clean up before it is killed."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PDEATHSIG = 1


class RecordedOutput:
    """One stream of output: passed on, and kept up to a limit."""

    def __init__(self, onto: int | None, max_bytes: int) -> None:
        self.file: IO[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115
        self.size_bytes: int = 0
        self.left_out_bytes: int = 0
        self._onto = onto
        self._max_bytes = max_bytes

    def write(self, data: bytes) -> None:
        """Take what the command printed. Raises if the one it is passed on to went away."""
        kept = data[: max(self._max_bytes - self.size_bytes, 0)]
        self.file.write(kept)
        self.size_bytes += len(kept)
        self.left_out_bytes += len(data) - len(kept)
        if self._onto is not None:
            write_all(self._onto, data)


class RanProcess(Struct):
    """How a command ended, and what it printed. A context manager: at its end the output goes."""

    exit_code: int
    stdout: RecordedOutput
    stderr: RecordedOutput
    duration_s: float = 0.0
    timed_out: bool = False
    interrupted: int = 0
    """The signal that we were sent while it ran, if any."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stdout.file.close()
        self.stderr.file.close()


class Signals:
    """We send the signals that we get on to the command; while there is none, it interrupts us."""

    def __init__(self) -> None:
        self.got: int = 0
        self.send: Callable[[int], None] | None = None

    def _heard(self, number: int, frame: FrameType | None) -> None:
        self.got = number
        if self.send is None:
            raise KeyboardInterrupt
        self.send(number)

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Hear them until the block ends. Signals that we were told to ignore stay ignored."""
        before = {
            number: signal.signal(number, self._heard)
            for number in _SIGNALS
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def die_by(number: int) -> None:
    """End as if we had not heard a signal: shells go by that, and stop their script too."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def write_all(descriptor: int, data: bytes) -> None:
    """Write to a descriptor, past every buffer: output of others may stand before and after it."""
    while data:
        data = data[os.write(descriptor, data) :]


def run_command(
    command: Sequence[str],
    *,
    stdin: IO[bytes] | int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    signals: Signals | None = None,
) -> RanProcess:
    """Run a command to its end, whatever that is; one that can't be started is one that failed.

    Its output is passed on to the descriptors `stdout` and `stderr`, where they are given. With a
    timeout it is started in a process group of its own, as by `timeout`, which is ended whole.

    >>> with run_command(["sh", "-c", "echo out; echo err >&2; exit 3"]) as ran:
    ...     _ = ran.stdout.file.seek(0), ran.stderr.file.seek(0)
    ...     ran.exit_code, ran.stdout.file.read(), ran.stderr.file.read()
    (3, b'out\\n', b'err\\n')
    """
    signals = signals or Signals()
    ran = RanProcess(
        0, RecordedOutput(stdout, max_output_bytes), RecordedOutput(stderr, max_output_bytes)
    )
    alone = timeout_s is not None
    began = time.monotonic()
    # The command may run, and we may be told to end, before Popen returns: it hears that too.
    early: list[int] = []
    signals.send = early.append
    try:
        process = subprocess.Popen(
            list(command),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
            process_group=0 if alone else None,
            preexec_fn=_ends_with_us(),  # noqa: PLW1509 (it calls nothing that could wait)
        )
    except (OSError, ValueError) as error:
        signals.send = None
        if early:
            ran.__exit__()
            raise KeyboardInterrupt from None
        ran.exit_code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
        with suppress(BrokenPipeError):
            ran.stderr.write(
                f"holdfast: can't run {command[0]}: {error}\n".encode(errors="replace")
            )
        return ran
    with process:
        signals.send = lambda number: _send_on(process, number, alone)
        for number in early:
            signals.send(number)
        try:
            ran.timed_out = _follow(process, ran, timeout_s)
        except BaseException:
            _send(process, signal.SIGKILL, alone)
            ran.__exit__()
            raise
        finally:
            signals.send = None
    ran.exit_code = TIMED_OUT if ran.timed_out else _as_in_a_shell(process.returncode)
    ran.duration_s, ran.interrupted = time.monotonic() - began, signals.got
    return ran


def _follow(process: subprocess.Popen[bytes], ran: RanProcess, timeout_s: float | None) -> bool:
    """Take what a command prints until it has ended; returns whether its time was up first."""
    began = time.monotonic()
    told_at: float | None = None
    quiet_since = began
    with selectors.DefaultSelector() as selector:
        for pipe, recorded in ((process.stdout, ran.stdout), (process.stderr, ran.stderr)):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, (pipe, recorded))
        while selector.get_map() or process.poll() is None:
            now = time.monotonic()
            if process.poll() is None:
                quiet_since = now
                told_at = _hurry(process, now, began, timeout_s, told_at)
            elif now - quiet_since > _LINGER_S:
                break
            if not selector.get_map():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_LOOK_EVERY_S)
            for key, _ in selector.select(_LOOK_EVERY_S) if selector.get_map() else ():
                pipe, recorded = key.data
                if _pass_on(pipe, recorded):
                    quiet_since = now
                else:
                    selector.unregister(pipe)
                    pipe.close()
    return told_at is not None


def _pass_on(pipe: IO[bytes], recorded: RecordedOutput) -> bool:
    """Take a piece of output; False if there is no more, or nobody wants it."""
    data = os.read(pipe.fileno(), _AT_ONCE)
    if not data:
        return False
    try:
        recorded.write(data)
    except BrokenPipeError:  # as it would be told without us, the command finds its pipe closed
        return False
    return True


def _hurry(
    process: subprocess.Popen[bytes],
    now: float,
    began: float,
    timeout_s: float | None,
    told_at: float | None,
) -> float | None:
    """End a command that is out of time: ask first. Returns when it was asked."""
    if timeout_s is None or now - began < timeout_s:
        return told_at
    if told_at is None:
        _send(process, signal.SIGTERM, True)
        return now
    if now - told_at >= _GRACE_S:
        _send(process, signal.SIGKILL, True)
    return told_at


def _send_on(process: subprocess.Popen[bytes], number: int, group: bool) -> None:
    """Send on what we were sent."""
    if group or number == signal.SIGTERM or not _terminal_tells_all():
        _send(process, number, group)


def _send(process: subprocess.Popen[bytes], number: int, group: bool) -> None:
    with suppress(ProcessLookupError):
        if group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)


def _as_in_a_shell(code: int) -> int:
    return 128 - code if code < 0 else code


def _terminal_tells_all() -> bool:
    # A key typed there is sent to the whole foreground: the command has heard it already.
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _ends_with_us() -> Callable[[], None] | None:
    """The first thing that the command does, so that it does not outlive us. Only Linux knows of
    that."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # too late: nobody will tell it any more
            os._exit(CANNOT_RUN)

    return bind
