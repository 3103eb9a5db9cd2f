"""Everything Holdfast raises.

    HoldfastError                   what a caller may catch
    ├── BadInput                    refused before anything was written
    │   ├── BadId                   an id that can't name a task
    │   ├── NotATask                not decorated, or decorated as something else
    │   ├── WrongArguments          the id exists, with other arguments or another function
    │   └── WrongKey                the store needs a key, or another one than was given
    ├── Unserializable              a value that can't be stored faithfully
    │   ├── HoldsSecret             a value that would take a secret into the log
    │   └── TooLarge                a value above the size limit
    ├── Undecodable                 a stored value that doesn't fit the type asked for
    ├── TaskNotFound                no task of that id in this store
    ├── SessionNotFound             no session of that id in this store
    ├── TaskFailed                  the task ended in a failure, which is recorded
    ├── TaskCancelled               the task ended because somebody asked for it
    ├── StepFailed                  a step failed for good (raised inside the task)
    ├── StreamBroken                a step that was followed never came to its end
    ├── ReplyLost                   raised by a tool that can't know whether it happened
    ├── EachFailed                  too many items of an `each` failed (raised inside the task)
    ├── TaskWaiting                 the task can't go on now; what it waits for is recorded
    │   ├── TaskPaused              it waits for somebody to let it go on
    │   ├── TaskStuck               its drivers died too often: it was set aside
    │   ├── TaskReleased            its process was asked to end; anyone may go on with it
    │   ├── InDoubt                 it waits for a person to say whether a call happened
    │   └── Unanswered              it waits for a person to answer a question
    ├── AlreadyAnswered             the question has its answer
    ├── IllegalTransition           a phase that may not follow the one an agent is in
    ├── CodeMissing                 the log names a function this process does not have
    ├── CodeChanged                 the code asks for something else than the log holds
    ├── NotAnswered                 a call that must not be made, and has no recorded answer
    ├── EngineError                 an engine can't be reached, or refuses
    │   └── EngineConflict          the engine knows another task by that id
    └── StoreError                  the store refused or failed; nothing was acknowledged
        ├── TaskBusy                another process is driving this task
        │   └── DrivenElsewhere     an engine drives it, and nobody else may
        ├── LeaseLost               another process took this task over
        ├── Conflict                the log's head, or a file, is not what the writer thought
        ├── LogDamaged              a log whose bytes are not what was written
        ├── ArchiveDamaged          an archive that is not what was written, or none at all
        ├── NewerFormat             a log written by a newer Holdfast
        ├── MigrationNeeded         a database made by an older Holdfast
        └── StorageFailed           the disk failed, or is full

    NotDurable                      a warning: a step was called, and the log does not know of it

Signals are apart. They travel through the user's function to stop it, and derive from
`BaseException` so that an `except Exception` there can't swallow them:

    Signal
    ├── Suspend                     stop here, go on later: carries a TaskWaiting
    ├── Stop                        stop here, for good: the task was cancelled, or its time is up
    └── Halt                        stop here, something is wrong: carries a HoldfastError
"""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from holdfast.api.branches import ItemFailed, Results
    from holdfast.core.events import Failure


class NotDurable(RuntimeWarning):
    """A step was called in a way that leaves no trace in the log: never awaited, or in a thread
    that knows of no task.

    A thread counts if it is newer than a task that runs in this process, since that task may have
    started it. A program that starts threads of its own beside its tasks, and calls steps there as
    plain functions, is warned too: filter the warning out there.

    >>> import warnings
    >>> warnings.simplefilter("error", NotDurable)  # and the task fails
    """


class HoldfastError(Exception):
    """The root of every error that Holdfast raises.

    >>> issubclass(TaskFailed, HoldfastError) and issubclass(StoreError, HoldfastError)
    True
    """


class BadInput(HoldfastError):
    """Something given to Holdfast was refused, and nothing was written.

    >>> issubclass(BadId, BadInput)
    True
    """


class BadId(BadInput):
    """An id that can't name a task.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def hello() -> str:
    ...     return "hi"
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(hello, id="")
    Traceback (most recent call last):
    holdfast.errors.BadId: an id can't be empty: give 1 to 255 characters, or leave it out
    """


class NotATask(BadInput):
    """A function was given where one decorated with `@task` was expected.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(print, "hello")
    Traceback (most recent call last):
    holdfast.errors.NotATask: print is not a task: decorate it with @task
    """


class WrongArguments(BadInput):
    """The id exists, but was started with other arguments or another task function.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def greet(name: str) -> str:
    ...     return f"hi {name}"
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(greet, "Ada", id="g-1")
    ...     hf.run(greet, "Bob", id="g-1")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    holdfast.errors.WrongArguments: task 'g-1' was started as greet({"name":"Ada"})...
    """


class WrongKey(BadInput):
    """The store is encrypted or signed, and the key for it was not given, or another one was.

    >>> from holdfast import Holdfast, Keys
    >>> from holdfast.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> Holdfast(store, key=Keys.new()).close()
    >>> Holdfast(store)
    Traceback (most recent call last):
    holdfast.errors.WrongKey: memory:// is encrypted, and no key was given. Nothing was read or
    changed: open it with Holdfast(…, key=…), or holdfast --key-file FILE
    """


class Unserializable(HoldfastError):
    """A value can't be stored so that it comes back as it was.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def connect():
    ...     return object()
    >>> @task
    ... def broken() -> None:
    ...     connect()
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(broken)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    holdfast.errors.TaskFailed: task ... failed: ... Unserializable: ...
    """


class HoldsSecret(Unserializable):
    """A value that would take a secret into the log: nothing was written.

    Refer to it by name, `Secret.named(…)`, or read it inside the step that uses it.

    >>> issubclass(HoldsSecret, Unserializable)
    True
    """


class TooLarge(Unserializable):
    """A value is larger than the store takes (`Holdfast(max_value_bytes=…)`).

    >>> issubclass(TooLarge, Unserializable)
    True
    """


class Undecodable(HoldfastError):
    """A stored value does not fit the type that the code now asks for.

    >>> issubclass(Undecodable, HoldfastError)
    True
    """


class TaskNotFound(HoldfastError):
    """No task of that id is in this store.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     hf.task("nobody")
    Traceback (most recent call last):
    holdfast.errors.TaskNotFound: no task 'nobody' in memory://
    """


class SessionNotFound(HoldfastError):
    """There is no session of that id in this store.

    >>> from holdfast import Holdfast
    >>> from holdfast.agent import open_session
    >>> with Holdfast("memory://") as hf:
    ...     open_session(hf.store, "nobody")
    Traceback (most recent call last):
    holdfast.errors.SessionNotFound: no session 'nobody' in memory://
    """


class TaskFailed(HoldfastError):
    """The task's function raised; the failure is recorded and the task can be retried.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def broken() -> None:
    ...     raise ValueError("no rooms")
    >>> with Holdfast("memory://") as hf:
    ...     try:
    ...         hf.run(broken, id="t-1")
    ...     except TaskFailed as failed:
    ...         print(failed.failure.type, "|", failed.failure.message)
    ValueError | no rooms
    """

    def __init__(self, task_id: str, failure: Failure, *, undone: bool = False) -> None:
        self.task_id = task_id
        self.failure = failure
        advice = (
            "What it did was undone: start a new one under another id"
            if undone
            else f"Mend the cause, then retry it: hf.retry({task_id!r}) or "
            f"`holdfast retry {_in_shell(task_id)} --app MODULE` (recorded steps are kept)"
        )
        super().__init__(f"task {task_id!r} failed: {failure.summary()}. {advice}")


class TaskCancelled(HoldfastError):
    """The task was cancelled, at somebody's request.

    >>> from holdfast import Holdfast, TaskCancelled, task
    >>> @task
    ... def errand() -> None: ...
    >>> with Holdfast("memory://") as hf:
    ...     handle = hf.start(errand, id="errand-1")
    ...     handle.cancel(because="it rains")
    ...     try:
    ...         handle.result()
    ...     except TaskCancelled as cancelled:
    ...         print(cancelled)
    task 'errand-1' was cancelled, because it rains
    """

    def __init__(self, task_id: str, because: str = "") -> None:
        self.task_id = task_id
        self.because = because
        why = f", because {because}" if because else ""
        super().__init__(f"task {task_id!r} was cancelled{why}")


class StepFailed(HoldfastError):
    """A step failed for good. Raised inside the task, the same on first run and on replay.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def flaky() -> int:
    ...     raise ConnectionError("no route")
    >>> @task
    ... def careful() -> str:
    ...     try:
    ...         return str(flaky())
    ...     except StepFailed as failed:
    ...         return f"{failed.name} at {failed.path}: {failed.failure.type}"
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(careful)
    'flaky at 1: ConnectionError'
    """

    def __init__(self, path: str, name: str, failure: Failure, attempts: int = 1) -> None:
        self.path = path
        self.name = name
        self.failure = failure
        self.attempts = attempts
        times = f" after {attempts} attempts" if attempts > 1 else ""
        super().__init__(f"step {path}, {name}, failed{times}: {failure.summary()}")


class StreamBroken(HoldfastError):
    """The task ended while a step of it was streaming, so what was streamed is no result.

    Raised by `hf.stream`, after the parts that were told.

    >>> from collections.abc import Iterator
    >>> from holdfast import Holdfast, StreamBroken, step, task
    >>> @step
    ... def dictate() -> Iterator[str]:
    ...     yield "Dear"
    ...     raise KeyboardInterrupt
    >>> @task
    ... def letter() -> str:
    ...     return " ".join(dictate())
    >>> with Holdfast("memory://") as hf:
    ...     try:
    ...         hf.run(letter, id="letter-1")
    ...     except KeyboardInterrupt:
    ...         status = hf.cancel("letter-1")
    ...     try:
    ...         list(hf.stream("letter-1", "dictate"))
    ...     except StreamBroken as error:
    ...         print(error)
    task 'letter-1' is cancelled, and its step 1, dictate, did not come to its end
    """


class ReplyLost(HoldfastError):
    """Raise it in a tool whose request went out and whose reply did not come back.

    Another exception says that the tool failed, and did nothing. After this one nobody knows, as
    after a timeout: the call is in doubt, and its policy applies.

    >>> issubclass(ReplyLost, HoldfastError)
    True
    """


class EachFailed(HoldfastError):
    """More items of an `each` failed than it tolerates.

    >>> from holdfast import EachFailed, Holdfast, each, step, task
    >>> @step
    ... def halve(x: int) -> int:
    ...     if x % 2:
    ...         raise ValueError("odd")
    ...     return x // 2
    >>> @task
    ... def halves() -> list[int]:
    ...     try:
    ...         return each(halve, [2, 3, 4])
    ...     except EachFailed as failed:
    ...         return [item.item for item in failed.failures]
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(halves)
    [3]
    """

    def __init__(self, path: str, name: str, results: Results[Any], tolerated: int) -> None:
        self.path = path
        self.results = results
        self.failures: list[ItemFailed[Any]] = results.failures
        first = self.failures[0]
        super().__init__(
            f"each({name}): {len(self.failures)} of {len(results)} items failed, {tolerated} are "
            f"tolerated. The first: item {first.index}, {first.item!r:.100}: "
            f"{first.failure.summary()}"
        )


class TaskWaiting(HoldfastError):
    """The task can't go on now; what it waits for is recorded, and it can be resumed.

    >>> issubclass(InDoubt, TaskWaiting)
    True
    """

    def __init__(self, task_id: str, message: str, until: datetime | None = None) -> None:
        self.task_id = task_id
        self.until = until
        """When it goes on by itself, if it does."""
        super().__init__(message)


class TaskPaused(TaskWaiting):
    """The task was paused, and stays so until somebody lets it go on.

    >>> from holdfast import Holdfast, TaskPaused, task
    >>> @task
    ... def errand_to_pause() -> str:
    ...     return "done"
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.start(errand_to_pause, id="errand_to_pause-1")
    ...     hf.pause("errand_to_pause-1")
    ...     try:
    ...         hf.run(errand_to_pause, id="errand_to_pause-1")
    ...     except TaskPaused:
    ...         print(hf.resume("errand_to_pause-1"))
    done
    """

    def __init__(self, task_id: str, because: str = "") -> None:
        self.because = because
        why = f" ({because})" if because else ""
        super().__init__(
            task_id,
            f"task {task_id!r} is paused{why}. To let it go on: hf.resume({task_id!r}) or "
            f"`holdfast resume {_in_shell(task_id)} --app MODULE`",
        )


class TaskStuck(TaskWaiting):
    """Processes that drove the task died too often at one place, so it was set aside.

    >>> print(TaskStuck("trip-42", "5 drivers died during call 3, book"))
    task 'trip-42' is stuck: 5 drivers died during call 3, book. Mend what ended them, then let it \
go on: hf.resume('trip-42') or `holdfast resume trip-42 --app MODULE`
    """

    def __init__(self, task_id: str, because: str = "") -> None:
        self.because = because
        super().__init__(
            task_id,
            f"task {task_id!r} is stuck: {because or 'its drivers died'}. Mend what ended them, "
            f"then let it go on: hf.resume({task_id!r}) or "
            f"`holdfast resume {_in_shell(task_id)} --app MODULE`",
        )


class TaskReleased(TaskWaiting):
    """The process that drove the task was asked to end. Anyone may go on with it.

    >>> issubclass(TaskReleased, TaskWaiting)
    True
    """


class InDoubt(TaskWaiting):
    """A tool call may or may not have happened, and a person has to say which.

    The message names the call, its key, and the two commands that settle it.

    >>> issubclass(InDoubt, HoldfastError)
    True
    """

    def __init__(self, task_id: str, path: str, name: str, key: str, why: str) -> None:
        self.path = path
        self.name = name
        self.key = key
        self.why = why
        command = f"holdfast resolve {_in_shell(task_id)} {_in_shell(path)}"
        super().__init__(
            task_id,
            f"task {task_id!r} waits for a person: call {path}, {name}, is in doubt ({why}). "
            f"Look for its key in the outside system: {key}\n"
            f"  it happened:        {command} --happened --result JSON --app MODULE\n"
            f"  it did not happen:  {command} --did-not-happen",
        )


class Unanswered(TaskWaiting):
    """The task asked a person something, and waits for the answer.

    >>> from holdfast import Holdfast, ask, task
    >>> @task
    ... def careful() -> str:
    ...     return "booked" if ask("Book it?", bool) else "left it"
    >>> with Holdfast("memory://") as hf:
    ...     try:
    ...         hf.run(careful, id="careful-1")
    ...     except Unanswered as waiting:
    ...         print(waiting.question, waiting.expects)
    Book it? bool
    """

    def __init__(
        self,
        task_id: str,
        id: str,
        question: str,
        expects: str,
        until: datetime | None,
        refused: str = "",
    ) -> None:
        self.id = id
        self.refused = refused
        self.question = question
        self.expects = expects
        by = f", by {until:%Y-%m-%d %H:%M:%S %Z}" if until else ""
        super().__init__(
            task_id,
            f"task {task_id!r} asks ({expects}{by}): {question}\n"
            + (f"  the last answer did not fit: {refused}\n" if refused else "")
            + f"  answer it:  holdfast answer {_in_shell(task_id)} {_in_shell(id)} JSON",
            until,
        )


class AlreadyAnswered(HoldfastError):
    """The question has its answer, and keeps it.

    >>> issubclass(AlreadyAnswered, HoldfastError)
    True
    """


class IllegalTransition(HoldfastError):
    """An agent was to go to a phase that may not follow the one it is in. Nothing was changed.

    >>> from holdfast.agent.state import AGENT
    >>> try:
    ...     AGENT.move("planning", "done")
    ... except IllegalTransition as error:
    ...     error.allowed
    ('executing', 'error')
    """

    def __init__(self, now: str, to: str, allowed: Sequence[str]) -> None:
        ways = f"allowed is {', '.join(allowed)}" if allowed else f"{now!r} is final"
        super().__init__(f"from {now!r} to {to!r:.60}: {ways}")
        self.now = now
        self.to = to
        self.allowed: tuple[str, ...] = tuple(allowed)


class CodeMissing(HoldfastError):
    """The log names a task or a step that this process has no function for.

    >>> issubclass(CodeMissing, HoldfastError)
    True
    """


class CodeChanged(HoldfastError):
    """The code asks for something else than the log holds at the same place.

    Holdfast stops rather than go on: nothing was called, nothing was written.

    >>> issubclass(CodeChanged, HoldfastError)
    True
    """

    def __init__(
        self, task_id: str, path: str, recorded: str, asked: str, why: str = "", do: str = ""
    ) -> None:
        self.task_id = task_id
        self.path = path
        self.recorded = recorded
        self.asked = asked
        place = "STEP" if path == "0" else quote(path)
        do = do or (
            "run the version of the code that started it, or let the new code go its own way "
            f"from before it (holdfast fork {quote(task_id)} --at {place} --effects reuse)"
        )
        super().__init__(
            f"task {task_id!r}, step {path}: the log holds {recorded}, your code now {asked}. "
            + (why or "The task's code changed under it")
            + f": {do}"
        )


class NotAnswered(HoldfastError):
    """A call of a replay, or of a fork without effects, that nobody knows the outcome of.

    Nothing was called. `call` is what the code asks for, with its arguments.

    >>> NotAnswered("trip-42", "6", "book({})").path
    '6'
    """

    def __init__(self, task_id: str, path: str, call: str, why: str = "") -> None:
        self.task_id = task_id
        self.path = path
        self.call = call
        super().__init__(
            f"task {task_id!r}, step {path}: {call} is "
            + (why or "not recorded, and may not be called here: give a stub for it")
        )


class StoreError(HoldfastError):
    """The store refused or failed. Nothing was acknowledged.

    >>> issubclass(StorageFailed, StoreError)
    True
    """


class EngineError(HoldfastError):
    """An engine can't be reached, or refuses. The message for it is safe in the store.

    >>> issubclass(EngineConflict, EngineError)
    True
    """


class EngineConflict(EngineError):
    """The engine already has something else under the id of the task.

    >>> issubclass(EngineConflict, EngineError)
    True
    """


class TaskBusy(StoreError):
    """Another process (or thread) is driving this task right now.

    >>> issubclass(TaskBusy, StoreError)
    True
    """


class DrivenElsewhere(TaskBusy):
    """An engine drives this task, and nobody else may: go on with it there, or move it.

    >>> issubclass(DrivenElsewhere, TaskBusy)
    True
    """


class LeaseLost(StoreError):
    """Another process took this task over; this one may write no more of it.

    >>> issubclass(LeaseLost, StoreError)
    True
    """


class Conflict(StoreError):
    """The log's head is not where the writer thought it was, or a file of a task is not in the
    version that was expected; nothing was written.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def idle_task() -> None: ...
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(idle_task, id="idle-1")
    ...     _ = hf.files("idle-1").write("a.md", "one", by="ada")
    ...     hf.files("idle-1").write("a.md", "two", expected=None)
    Traceback (most recent call last):
    holdfast.errors.Conflict: task 'idle-1', file 'a.md': no such file was expected, and version 4
    is there, written by ada at ...
    """


class LogDamaged(StoreError):
    """A log's bytes are not what was written. Nothing is dropped or guessed.

    >>> issubclass(LogDamaged, StoreError)
    True
    """

    def __init__(self, stream: str, seq: int, what: str) -> None:
        self.stream = stream
        self.seq = seq
        self.what = what
        where = f"event {seq} is damaged" if seq else "it is damaged"
        intact = " Everything before it is intact." if seq else ""
        super().__init__(
            f"{stream}: {where}: {what}.{intact} "
            f"Restore the log from a backup, or look with: holdfast doctor"
        )


class ArchiveDamaged(StoreError):
    """An archive is cut short, was changed, or is none. Nothing of it was taken.

    >>> from holdfast import Holdfast
    >>> with Holdfast("memory://") as hf:
    ...     hf.restore_from("/dev/null")
    Traceback (most recent call last):
    holdfast.errors.ArchiveDamaged: /dev/null: it is cut short, or no archive (...)
    """


class NewerFormat(StoreError):
    """A log was written by a newer Holdfast than this one.

    >>> issubclass(NewerFormat, StoreError)
    True
    """


class MigrationNeeded(StoreError):
    """A database was made by an older Holdfast, and nobody migrated it yet: `holdfast migrate`.

    >>> issubclass(MigrationNeeded, StoreError)
    True
    """


class StorageFailed(StoreError):
    """The disk failed or is full. All that was acknowledged before is safe.

    >>> issubclass(StorageFailed, StoreError)
    True
    """


class Signal(BaseException):
    """Stops a task's function from inside; never meant to be caught by it."""


class Suspend(Signal):
    """The task waits: stop the function here and go on later."""

    def __init__(self, waiting: TaskWaiting) -> None:
        self.waiting = waiting
        super().__init__(str(waiting))


class Stop(Signal):
    """The task is to end here: somebody cancelled it, or (with a failure) its time is up."""

    def __init__(self, why: str, failure: Failure | None = None) -> None:
        self.failure = failure
        super().__init__(why)


class Halt(Signal):
    """Something is wrong with the run itself (not with the task): stop, record nothing."""

    def __init__(self, error: HoldfastError) -> None:
        self.error = error
        super().__init__(str(error))


def _in_shell(word: str) -> str:
    # Messages are copied into shells, and an id may be anything.
    return f"-- {quote(word)}" if word.startswith("-") else quote(word)


def failed_paths(error: BaseException) -> Sequence[str]:
    """The paths of the failed calls that led to `error`: itself, its causes, its group's members.

    `6.*` stands for the failed items of the `each` at 6.
    """
    found: list[str] = []
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        this = todo.pop()
        if this is None or id(this) in seen:
            continue
        seen.add(id(this))
        if isinstance(this, StepFailed):
            found.append(this.path)
        if isinstance(this, EachFailed):
            found.append(f"{this.path}.*")
        if isinstance(this, BaseExceptionGroup):
            todo.extend(this.exceptions)
        todo.extend((this.__cause__, this.__context__))
    return found
