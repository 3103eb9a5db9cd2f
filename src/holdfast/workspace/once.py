"""`holdfast once`: a command of a shell script as a durable step.

One run of a script is a task; each of its steps, known by a name, is a task of its own with one
tool call in it, the command. So a step has what every tool call has: an intent on disk before the
command starts, a record of every attempt, retries whose waits outlive the process, a policy for
what was killed half-way, and one process at a time. When the script is run again, a step that has
ended well prints what it printed and is not run; one that failed is.
"""

from __future__ import annotations

import os
import subprocess
from itertools import count
from typing import IO

from msgspec.structs import replace

from holdfast.api.app import Holdfast
from holdfast.api.steps import wrapped
from holdfast.api.tasks import current
from holdfast.codec import args_hash, shape_of
from holdfast.core.events import FORMAT, Noted, TaskCreated, TaskRetried
from holdfast.core.scope import inside
from holdfast.core.spec import SCRIPT_STEP, Spec
from holdfast.core.words import checked_id
from holdfast.engines.functions import make_spec
from holdfast.engines.local.tasks import Begin
from holdfast.engines.run import record
from holdfast.errors import HoldfastError, TaskFailed
from holdfast.log.log import Log
from holdfast.log.reading import stream_of
from holdfast.log.states import load
from holdfast.log.store_calls import streams_in
from holdfast.workspace.process import RanProcess, RecordedOutput, Signals, run_command
from holdfast.workspace.script import (
    COMMAND,
    COMMIT,
    KeptOutput,
    NotMade,
    Outcome,
    Say,
    Step,
    begin_step,
    child_of,
    end_step,
    keep_files,
    must_be_recordable,
    must_be_the_same,
    print_again,
    recorded_outcome,
    restore_files,
    stored,
)

_MOST_SHOWN = 1000


class CommandFailed(HoldfastError):
    """A command ended with an exit code other than 0."""

    def __init__(self, exit_code: int, message: str) -> None:
        self.exit_code = exit_code
        super().__init__(message)


class CommandInterrupted(CommandFailed):
    """A command ended because somebody ended us both: not to be tried again just now."""


def once(
    hf: Holdfast,
    step: Step,
    *,
    stdin: IO[bytes] | None = None,
    stdout: int = 1,
    stderr: int = 2,
    signals: Signals | None = None,
    say: Say = lambda text: None,
) -> int:
    """Run a step of a script, unless it has ended well before; its exit code.

    Either way its output goes to the descriptors, and the files that it declares are there.

    >>> import os
    >>> step = Step(script="hello-once", name="greet", command=("echo", "hi"))
    >>> nowhere = os.open(os.devnull, os.O_WRONLY)
    >>> with Holdfast("memory://") as hf:
    ...     code = once(hf, step, stdout=nowhere)
    ...     again = once(hf, step, stdout=nowhere)
    ...     [(call.name, call.status) for call in hf.task("hello-once").calls], code, again
    ([('greet', 'completed')], 0, 0)
    """
    must_be_recordable(step)
    running = _Running(hf, step, stdin, (stdout, stderr), signals, say)
    if load(hf.store, running.id, missing_ok=True).status != "completed":
        failed = running.drive()
        end_step(hf, load(hf.store, running.id, missing_ok=True))
        if failed is not None:
            return failed
    state = load(hf.store, running.id, missing_ok=True)
    end_step(hf, state)
    outcome = recorded_outcome(hf.store, state)
    if not running.has_printed:
        print_again(hf.store, outcome.stdout, stdout)
        print_again(hf.store, outcome.stderr, stderr)
        restore_files(hf.store, outcome.files, overwrite=step.restore, say=say)
    for stream, size in outcome.left_out_bytes.items():
        say(f"step {step.name!r}: the last {size:,} bytes of its {stream} are not recorded")
    return outcome.exit_code


class _Running:
    """A step while it is run."""

    def __init__(
        self,
        hf: Holdfast,
        step: Step,
        stdin: IO[bytes] | None,
        output: tuple[int, int],
        signals: Signals | None,
        say: Say,
    ) -> None:
        self.hf = hf
        self.step = step
        self.stdin = stdin
        self.output = output
        self.signals = signals or Signals()
        self.say = say
        self.exit_code = 0
        self.has_printed = False
        self.has_tried = False
        """Whether anything was done here, and not only found to have failed before."""
        self.spec = self._spec()
        self.args = self.spec.signature.dump((), step.identity())
        self.id = self._located()

    def _located(self) -> str:
        """The id of the step's task. A step that failed and was mended is begun anew, as another
        task: its command is not the one that failed."""
        script, name, store = self.step.script, self.step.name, self.hf.store
        id = checked_id(child_of(self.hf, script, name))
        state = load(store, id, missing_ok=True)
        if state.seq == 0:
            return id
        if state.status == "failed" and state.args_hash != args_hash(self.args):
            taken = {stream_of(id)} | set(streams_in(store, stream_of(f"{script}:{name}~")))
            return next(
                free
                for number in count(2)
                if stream_of(free := checked_id(f"{script}:{name}~{number}")) not in taken
            )
        must_be_the_same(state, self.step, self.args)
        return id

    def drive(self) -> int | None:
        """Run the step; the exit code of one that failed, None if its record has all there is."""
        step = self.step
        number = begin_step(self.hf, step.script, step.name, self.id, self.args)
        task = Begin(self.id, self.spec, lambda log: self._begin(log, number), lambda state: False)
        while True:
            try:
                self.hf._driving.drive(task)
                return None
            except TaskFailed as failed:
                if self.has_tried:
                    return self._failed(failed)
                # It had failed when its process died, before that was recorded to the end.
                self.has_tried = True

    def _failed(self, failed: TaskFailed) -> int:
        name = self.step.name
        self.say(f"step {name!r} failed: {_cause(failed)}. It is run again when the script is")
        return self.exit_code or 1  # where the command went well, and what came after it did not

    def _begin(self, log: Log, number: str) -> None:
        if log.state.seq:
            must_be_the_same(log.state, self.step, self.args)
            if log.state.status == "failed":
                log.append(TaskRetried(by=self.hf._holding.owner))
                log.sync()
            return
        log.append(
            TaskCreated(
                format=FORMAT,
                id=self.id,
                task=SCRIPT_STEP,
                args=log.stow_alone(self.args),
                args_hash=args_hash(self.args),
                parent=self.step.script,
                parent_path=number,
            )
        )

    def _spec(self) -> Spec:
        """The task of a step: made for this one, and known to no worker, which would run the
        command somewhere else."""
        run, save = (
            wrapped(self._command()),
            wrapped(make_spec(self._commit, "step", name="commit")),
        )

        def once(
            command: list[str] | None = None,
            known_by: str = "",
            files: list[str] | None = None,
            stdin: str = "",
        ) -> int:
            outcome: Outcome = run(**self.step.identity())
            if self.step.git or COMMIT in inside("once").run.log.state.calls:
                save()
            return outcome.exit_code

        return make_spec(once, "task", name=SCRIPT_STEP)

    def _command(self) -> Spec:
        def command(
            command: list[str] | None = None,
            known_by: str = "",
            files: list[str] | None = None,
            stdin: str = "",
        ) -> Outcome:
            return self._attempt()

        step = self.step
        retry = replace(step.retry, unless=(CommandInterrupted,))
        return make_spec(command, "tool", retry=retry, in_doubt=step.in_doubt)

    def _attempt(self) -> Outcome:
        """Run the command once; its outcome, or the exception that says how it failed."""
        self.has_tried = self.has_printed = True
        with self._ran() as ran:
            outcome = self._outcome(ran)
            self.exit_code = ran.exit_code
            if ran.exit_code == 0:
                return replace(outcome, files=self._files())
            is_last = self._failures() + 1 >= self.step.retry.attempts
            if self.step.keep_failure and is_last and not ran.interrupted:
                return outcome
            self._note(outcome)
            raise self._failure(ran)

    def _files(self) -> dict[str, KeptOutput]:
        try:
            return keep_files(self.hf.store, sorted(set(self.step.files)))
        except NotMade as error:
            self.exit_code = 1
            raise CommandFailed(1, str(error)) from None

    def _failure(self, ran: RanProcess) -> CommandFailed:
        said = f"exit code {ran.exit_code}"
        if ran.interrupted:
            return CommandInterrupted(ran.exit_code, f"{said}, interrupted by a signal")
        late = f" after {self.step.timeout_s:g} s" if ran.timed_out else ""
        return CommandFailed(ran.exit_code, f"{said}{late}{_last_words(ran)}")

    def _ran(self) -> RanProcess:
        step, here = self.step, current()
        given: IO[bytes] | int | None = None if os.isatty(0) else subprocess.DEVNULL
        if self.stdin is not None:
            self.stdin.seek(0)
            given = self.stdin
        ours = {
            "HOLDFAST_TASK": step.script,
            "HOLDFAST_STEP": step.name,
            "HOLDFAST_ATTEMPT": str(here.attempt),
            "HOLDFAST_IDEMPOTENCY_KEY": here.key,
        }
        return run_command(
            step.command,
            stdin=given,
            stdout=self.output[0],
            stderr=self.output[1],
            env={**os.environ, **ours},
            timeout_s=step.timeout_s,
            max_output_bytes=step.max_output_bytes,
            signals=self.signals,
        )

    def _outcome(self, ran: RanProcess) -> Outcome:
        streams = {"stdout": ran.stdout, "stderr": ran.stderr}
        shown = [word.encode(errors="backslashreplace").decode() for word in self.step.command]
        return Outcome(
            exit_code=ran.exit_code,
            stdout=stored(self.hf.store, ran.stdout, "stdout"),
            stderr=stored(self.hf.store, ran.stderr, "stderr"),
            duration_s=round(ran.duration_s, 3),
            left_out_bytes={n: s.left_out_bytes for n, s in streams.items() if s.left_out_bytes},
            ran=shown if self.step.known_by else [],
        )

    def _note(self, outcome: Outcome) -> None:
        """Keep what a failed attempt printed: the failure itself has only the end of it."""
        scope = inside("once")
        log, attempt = scope.run.log, current().attempt
        record(
            scope,
            Noted(
                scope=scope.path,
                mark=f"attempt {attempt}",
                text=f"attempt {attempt}: exit code {outcome.exit_code}",
                data=log.stow(shape_of(Outcome).dump(outcome)),
            ),
        )

    def _failures(self) -> int:
        call = inside("once").call
        return 0 if call is None else call.failures

    def _commit(self) -> str | None:
        """Commit the folder; nothing, where the step was begun with --git and goes on without."""
        from holdfast.workspace.git import commit_workspace, step_message

        self.has_tried = True
        step = self.step
        if not step.git:
            return None
        key = inside("once").run.log.state.calls[COMMAND].key
        message = step_message(step.script, step.name, COMMAND, key)
        return commit_workspace(step.git, message, init=step.git_init)


def _last_words(ran: RanProcess) -> str:
    """The end of what a failed command said, for those who look at failures."""
    for recorded in (ran.stderr, ran.stdout):
        if words := _end_of(recorded).strip():
            return f": {words}"
    return ""


def _end_of(recorded: RecordedOutput) -> str:
    recorded.file.seek(max(recorded.size_bytes - _MOST_SHOWN, 0))
    return recorded.file.read().decode(errors="replace")


def _cause(failed: TaskFailed) -> str:
    """The failure, in its first line: the rest was printed, or is in the log."""
    message = failed.failure.message.partition(", failed: ")[2] or failed.failure.message
    return message.partition(": ")[2].partition("\n")[0].rstrip(".") or message
