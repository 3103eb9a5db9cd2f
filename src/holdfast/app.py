"""`Holdfast`: one store, and everything that can be done with the tasks in it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from msgspec import UNSET, Raw

from holdfast.codec import args_hash
from holdfast.engines import local
from holdfast.engines.holding import Holding
from holdfast.errors import (
    BadInput,
    StorageFailed,
    StoreError,
    TaskBusy,
    TaskFailed,
    Undecodable,
    Unserializable,
    WrongArguments,
)
from holdfast.events import (
    FORMAT,
    Claimed,
    QuestionAnswered,
    Settled,
    TaskCreated,
    TaskRetried,
)
from holdfast.journal import Raised, Returned
from holdfast.log import MAX_VALUE_BYTES, Log, fetch, read_state, stream_of
from holdfast.people import checked_answer, may_be_settled, open_question, result_given
from holdfast.spec import Spec, registry
from holdfast.state import State
from holdfast.store import Store
from holdfast.stores import open_store
from holdfast.task import task_spec
from holdfast.views import Tasks, TaskView, list_tasks, view_task
from holdfast.words import checked_id, must_be_texts

R = TypeVar("R")
ENDED = ("completed", "failed")


class Prepare:
    """What is done to a task before it is driven: `run` makes it, `retry` opens it again."""

    def __init__(self, begin: Callable[[Log], None], ends_with: Callable[[State], bool]) -> None:
        self.begin = begin
        self.ends_with = ends_with
        """Whether the recorded end of a task is what the caller asked for."""


class Holdfast:
    """A store of tasks, opened. Use it as a context manager, or call `close`.

    `url` is a folder (made if it is not there) or `memory://`. A task is driven under a lease of
    `lease_s` seconds that is renewed while this process lives; when it hangs for longer, another
    process may take the task over and this one is refused.

    >>> from holdfast import task
    >>> @task
    ... def hello() -> str:
    ...     return "hi"
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(hello, id="hello-2"), [t.id for t in hf.tasks()]
    ('hi', ['hello-2'])
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | Store = "workspace",
        *,
        sync: bool = True,
        lease_s: float = 30.0,
        max_value_bytes: int = MAX_VALUE_BYTES,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        if not lease_s > 0:
            raise BadInput(f"lease_s={lease_s} must be more than 0")
        named = isinstance(url, str | os.PathLike)
        self.store: Store = open_store(url, sync=sync) if named else url  # type: ignore[arg-type,assignment]
        self._clock = clock or _utc_now
        self._owner = f"{os.uname().nodename} process {os.getpid()}"
        self._holding = Holding(self.store, self._owner, lease_s, self._clock, max_value_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back every task this object holds. Unfinished ones can be resumed by anyone."""
        self._holding.close()
        self.store.close()

    # Driving tasks

    @overload
    def run(
        self, fn: Callable[..., Awaitable[R]], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> R: ...  # fmt: skip
    @overload
    def run(
        self, fn: Callable[..., R], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> R: ...  # fmt: skip
    def run(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        user: str = "",
        session: str = "",
        labels: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Run a task, or go on with it: the same call does both.

        With the `id` of a task that exists it resumes it; of a finished one it returns the
        recorded result; of a failed one it raises `TaskFailed`. Other arguments, or another
        function, than the task was started with are an error. An async task is run on an event
        loop of its own; inside one, use `await hf.arun(…)`.

        >>> from holdfast import step, task
        >>> calls = []
        >>> @step
        ... def charge(amount: int) -> str:
        ...     calls.append(amount)
        ...     return f"charged {amount}"
        >>> @task
        ... def checkout(amount: int) -> str:
        ...     return charge(amount)
        >>> with Holdfast("memory://") as hf:
        ...     first = hf.run(checkout, 5, id="order-1")
        ...     again = hf.run(checkout, 5, id="order-1")
        >>> first, again, calls
        ('charged 5', 'charged 5', [5])
        """
        spec = task_spec(fn)
        task_id, prepare = self._starting(spec, args, kwargs, id, user, session, labels)
        return self._drive(task_id, prepare, spec)

    @overload
    async def arun(
        self, fn: Callable[..., Awaitable[R]], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> R: ...  # fmt: skip
    @overload
    async def arun(
        self, fn: Callable[..., R], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> R: ...  # fmt: skip
    async def arun(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        user: str = "",
        session: str = "",
        labels: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """`run` for async code: an async task runs on this loop, a sync one in a thread.

        >>> import asyncio
        >>> from holdfast import step, task
        >>> @step
        ... async def double(x: int) -> int:
        ...     return 2 * x
        >>> @task
        ... async def doubles() -> list[int]:
        ...     return await asyncio.gather(double(1), double(2))
        >>> async def main() -> list[int]:
        ...     with Holdfast("memory://") as hf:
        ...         return await hf.arun(doubles)
        >>> asyncio.run(main())
        [2, 4]
        """
        spec = task_spec(fn)
        task_id, prepare = self._starting(spec, args, kwargs, id, user, session, labels)
        return await self._adrive(task_id, prepare, spec)

    def resume(self, id: str) -> Any:
        """Go on with a task by its id alone. Its code must have been imported.

        >>> from holdfast import task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-3")
        ...     hf.resume("hello-3")
        'hi'
        """
        return self._drive(*self._resuming(id))

    async def aresume(self, id: str) -> Any:
        """`resume` for async code.

        >>> Holdfast.aresume.__name__
        'aresume'
        """
        return await self._adrive(*self._resuming(id))

    def retry(self, id: str) -> Any:
        """Try a failed task again. Recorded steps are kept; the one that failed runs anew.

        >>> from holdfast import task
        >>> weather = ["storm"]
        >>> @task
        ... def sail() -> str:
        ...     if weather[0] == "storm":
        ...         raise RuntimeError("stay in port")
        ...     return "sailed"
        >>> with Holdfast("memory://") as hf:
        ...     try:
        ...         hf.run(sail, id="sail-1")
        ...     except TaskFailed:
        ...         weather[0] = "calm"
        ...     hf.retry("sail-1")
        'sailed'
        """
        return self._drive(*self._retrying(id))

    async def aretry(self, id: str) -> Any:
        """`retry` for async code.

        >>> Holdfast.aretry.__name__
        'aretry'
        """
        return await self._adrive(*self._retrying(id))

    # Asking about tasks

    def task(self, id: str) -> TaskView:
        """What the log says of a task: position, outputs, decisions, retries, failures.

        >>> from holdfast import task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-4", user="ada")
        ...     hf.task("hello-4").status
        'completed'
        """
        return view_task(self.store, checked_id(id))

    def tasks(
        self,
        *,
        status: str | None = None,
        type: str | None = None,
        user: str | None = None,
        session: str | None = None,
        labels: dict[str, str] | None = None,
    ) -> Tasks:
        """The tasks that match, oldest first. Those whose log can't be read are in `unreadable`.

        >>> with Holdfast("memory://") as hf:
        ...     hf.tasks(status="failed")
        []
        """
        return list_tasks(self.store, status, type, user, session, labels)

    def resolve(
        self,
        id: str,
        path: str,
        *,
        happened: bool,
        result: Any = None,
        because: str = "",
        by: str = "",
    ) -> None:
        """Settle a call in doubt by hand: it happened, with this result, or it did not happen.

        The task is not driven: `resume` it afterwards. `result` is what the tool would have
        returned; where the tool's code is loaded it is checked against its return type.

        >>> with Holdfast("memory://") as hf:
        ...     hf.resolve("nobody", "6", happened=False)
        Traceback (most recent call last):
        holdfast.errors.TaskNotFound: no task 'nobody' in memory://
        """
        self.task(id)
        must_be_texts("resolve", because=because, by=by)
        with self._holding.hold(id) as log:
            call = log.state.calls.get(path)
            if call is None:
                raise BadInput(f"task {id!r} has made no call {path}: see `holdfast doubt`")
            if not may_be_settled(log.state, call):
                raise BadInput(
                    f"task {id!r}, call {path}, {call.name}, is not in doubt: it is {call.status}"
                )
            raw: Raw | Any = UNSET
            if happened:
                raw = log.stow(result_given(call.name, result))
            elif result is not None:
                raise BadInput("a call that did not happen has no result")
            log.append(
                Settled(
                    path=path,
                    verdict="happened" if happened else "did_not_happen",
                    by=by or f"hand, {self._owner}",
                    result=raw,
                    because=because,
                )
            )
            log.sync()

    def answer(self, id: str, answer: Any, *, question: str | None = None, by: str = "") -> None:
        """Answer a question that a task asked. The task is not driven: `resume` it afterwards.

        `question` is the question's id; it may be left out while only one is open. The answer is
        checked against the type the question asks for, and a question is answered once.

        >>> with Holdfast("memory://") as hf:
        ...     hf.answer("nobody", "yes")
        Traceback (most recent call last):
        holdfast.errors.TaskNotFound: no task 'nobody' in memory://
        """
        self.task(id)
        must_be_texts("answer", by=by)
        with self._holding.hold(id) as log:
            call = open_question(log.state, question)
            raw = log.stow(checked_answer(call, answer))
            answered = QuestionAnswered(path=call.path, answer=raw, by=by or self._owner)
            log.append(answered)
            log.sync()

    # How it is done

    def _starting(
        self,
        spec: Spec,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        id: str | None,
        user: str,
        session: str,
        labels: dict[str, str] | None,
    ) -> tuple[str, Prepare]:
        try:
            data = spec.signature.dump(args, kwargs)
            spec.signature.load(data)
        except Undecodable as error:
            raise Unserializable(f"{spec.name} can't be started: {error}") from None
        digest = args_hash(data)
        task_id = checked_id(id) if id is not None else new_id(spec.name, self._clock())
        must_be_texts(spec.name, user=user, session=session)
        if labels is not None and not isinstance(labels, dict):
            raise BadInput(f"{spec.name}: labels={labels!r:.60} must be a dict of texts")
        for name, text in (labels or {}).items():
            must_be_texts(f"{spec.name}: labels", name=name, **{str(name): text})

        def begin(log: Log) -> None:
            if log.state.seq:
                _must_be_the_same(log.state, spec, data, digest)
                return
            log.append(
                TaskCreated(
                    format=FORMAT,
                    id=task_id,
                    task=spec.name,
                    args=log.stow(data),
                    args_hash=digest,
                    user=user,
                    session=session,
                    labels=labels or {},
                )
            )

        def ends_with(state: State) -> bool:
            return state.status in ENDED and (state.task, state.args_hash) == (spec.name, digest)

        return task_id, Prepare(begin, ends_with)

    def _resuming(self, id: str) -> tuple[str, Prepare, Spec]:
        spec = registry.task(self.task(id).type)
        return id, Prepare(lambda log: None, lambda state: state.status in ENDED), spec

    def _retrying(self, id: str) -> tuple[str, Prepare, Spec]:
        view = self.task(id)
        spec = registry.task(view.type)

        def begin(log: Log) -> None:
            if log.state.status == "completed":
                raise BadInput(f"task {id!r} is completed: there is nothing to retry")
            if log.state.status == "failed":
                log.append(TaskRetried(by=self._owner))
                log.sync()

        return id, Prepare(begin, lambda state: False), spec

    def _drive(self, task_id: str, prepare: Prepare, spec: Spec) -> Any:
        if spec.is_async:
            return _in_own_loop(self._adrive(task_id, prepare, spec))
        try:
            with self._holding.hold(task_id) as log:
                prepare.begin(log)
                if log.state.status in ENDED:
                    return recorded_end(log.store, log.state, spec)
                outcome = local.run_task(log, task_id, spec, self._claim(log))
                return live_end(task_id, outcome)
        except (TaskBusy, StorageFailed) as error:
            return self._end_of_finished(task_id, prepare, spec, error)

    async def _adrive(self, task_id: str, prepare: Prepare, spec: Spec) -> Any:
        import asyncio

        from holdfast.engines import aio

        if not spec.is_async:
            return await asyncio.to_thread(self._drive, task_id, prepare, spec)
        try:
            async with aio.held(self._holding, task_id) as log:
                await asyncio.to_thread(prepare.begin, log)
                if log.state.status in ENDED:
                    return recorded_end(log.store, log.state, spec)
                outcome = await aio.run_task(log, task_id, spec, self._claim(log))
                return live_end(task_id, outcome)
        except (TaskBusy, StorageFailed) as error:
            return await asyncio.to_thread(self._end_of_finished, task_id, prepare, spec, error)

    def _end_of_finished(
        self, task_id: str, prepare: Prepare, spec: Spec, error: StoreError
    ) -> Any:
        """What a finished task ended with, which takes no lease to tell; else the error stands."""
        state = read_state(self.store, stream_of(task_id))
        if not prepare.ends_with(state):
            raise error
        return recorded_end(self.store, state, spec)

    def _claim(self, log: Log) -> Claimed:
        epoch = max(log.lease.epoch, log.state.epoch + 1)
        return Claimed(format=FORMAT, epoch=epoch, owner=self._owner)


def recorded_end(store: Store, state: State, spec: Spec) -> Any:
    """What a finished task returned or raised, from its log."""
    if state.failure is not None:
        raise TaskFailed(state.id, state.failure)
    raw = state.result if isinstance(state.result, Raw) else Raw(b"null")
    return spec.signature.returns.load(fetch(store, raw))


def _in_own_loop(drive: Coroutine[Any, Any, R]) -> R:
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(drive)
    drive.close()
    raise BadInput("this is an async task, and an event loop runs here: use await hf.arun(…)")


def live_end(task_id: str, outcome: Returned | Raised) -> Any:
    """What a task that ended just now returned or raised."""
    if isinstance(outcome, Raised):
        raise TaskFailed(task_id, outcome.failure)
    return outcome.value


def new_id(name: str, now: datetime) -> str:
    """An id for a task that was given none: sorts by time, and says what it is."""
    readable = "".join(c if c.isalnum() else "-" for c in name.lower())[:60].strip("-")
    return f"{readable or 'task'}-{now:%Y%m%d-%H%M%S}-{os.urandom(3).hex()}"


def _must_be_the_same(state: State, spec: Spec, data: bytes, digest: str) -> None:
    if state.task == spec.name and state.args_hash == digest:
        return
    started = bytes(state.args).decode() if isinstance(state.args, Raw) else ""
    raise WrongArguments(
        f"task {state.id!r} was started as {state.task}({started:.300}), not "
        f"{spec.name}({data.decode():.300}): go on with it as it was (hf.resume({state.id!r})), "
        f"or give the new task another id"
    )


def _utc_now() -> datetime:
    return datetime.now(UTC)
