"""`Holdfast`: one store, and everything that can be done with the tasks in it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from holdfast import control
from holdfast.above import door
from holdfast.beginning import Given
from holdfast.driving import Driving
from holdfast.engines.handing import try_to_let_know, try_to_start
from holdfast.engines.holding import Holding
from holdfast.engines.port import Engine, KeepsValues
from holdfast.errors import BadInput, TaskCancelled, TaskFailed
from holdfast.going import Going
from holdfast.handle import Handle
from holdfast.inspection import Inspection
from holdfast.keys import KeySource
from holdfast.listing import Filters, TaskPage, page_of_tasks
from holdfast.locally import Local
from holdfast.moving import Moving
from holdfast.redact import Redact
from holdfast.secret import Secrets
from holdfast.spec import task_spec
from holdfast.store import Store
from holdfast.stores import box_for_engines, open_store, secured, whole_store
from holdfast.talking import Talking
from holdfast.travelling import Travelling
from holdfast.upkeep.housekeeping import Housekeeping
from holdfast.values import MAX_VALUE_BYTES
from holdfast.views import Tasks, TaskView, list_tasks, view_task
from holdfast.words import checked_id

if TYPE_CHECKING:
    from holdfast.engines.rehearsal import Rehearsal
    from holdfast.workspace.projector import Projector

R = TypeVar("R")
_now = partial(datetime.now, UTC)


class Holdfast(Inspection, Housekeeping, Moving, Talking, Travelling):
    """A store of tasks, opened. Use it as a context manager, or call `close`.

    `url` is a folder (made if it is not there), `sqlite:///trips.db`, `postgresql://…` or
    `memory://`. A task is driven under a lease of `lease_s` seconds that is renewed while this
    process lives; when it hangs for longer, another may take the task over and this one is
    refused. `redact` says what is kept out of the log, `secrets` (a dict, or a function of the
    name) what `Secret.named` stands for. With a `key` (see `Keys`) everything in the store is
    encrypted; with a `sign_key` no log can be changed without it. In a folder, readable files
    are kept beside each log (`status.md` and others), unless it is encrypted or `projections` is
    False. With an `engine`, new tasks are driven by it (`Temporal`, `Restate`); without, locally.

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
        redact: Redact | None = None,
        secrets: Secrets | None = None,
        key: KeySource | None = None,
        sign_key: KeySource | None = None,
        projections: bool | None = None,
        engine: Engine | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        if not lease_s > 0:
            raise BadInput(f"lease_s={lease_s} must be more than 0")
        if isinstance(url, str | os.PathLike):
            store = open_store(url, sync=sync)
            kept = projections if projections is not None else (sync and key is None)
        else:
            store, kept = whole_store(url), bool(projections)
        self.store = secured(store, key, sign_key)
        self.projections: Projector | None = None
        """What keeps readable files in step with the logs, if anything does."""
        if kept:
            must = projections is not None
            self.projections = door("projections").projector_of(
                store, self.store, must=must, sealed=key is not None
            )
        self._keys = (key, sign_key)
        owner = f"{os.uname().nodename} process {os.getpid()}"
        self._holding = Holding(
            self.store, owner, lease_s, clock or _now, max_value_bytes, redact, secrets
        )
        self._driving = Driving(self._holding)
        self.engine: Engine = Local() if engine is None else engine
        """What drives the tasks that are made here."""
        if isinstance(self.engine, Local):
            self.engine.store = self.store
        if isinstance(self.engine, KeepsValues):
            self.engine.encrypt_with(box_for_engines(self.store))
        self._holding.poke = partial(try_to_let_know, self.store, self.engine, owner)
        self._holding.start = partial(try_to_start, self.store, self.engine, owner)
        self._going = Going(self._driving, self.engine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back every task this object holds. Unfinished ones can be resumed by anyone."""
        self._holding.close()
        self.engine.close()
        if self.projections is not None:
            self.projections.close()
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
        given = Given(id=id, user=user, session=session, labels=labels, engine=self._going.driver)
        return self._going.go(self._driving.starting(task_spec(fn), args, kwargs, given))

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
        given = Given(id=id, user=user, session=session, labels=labels, engine=self._going.driver)
        return await self._going.ago(self._driving.starting(task_spec(fn), args, kwargs, given))

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
        return self._going.go(self._driving.resuming(id))

    async def aresume(self, id: str) -> Any:
        """`resume` for async code.

        >>> Holdfast.aresume.__name__
        'aresume'
        """
        return await self._going.ago(self._driving.resuming(id))

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
        return self._going.go(self._driving.retrying(id))

    async def aretry(self, id: str) -> Any:
        """`retry` for async code.

        >>> Holdfast.aretry.__name__
        'aretry'
        """
        return await self._going.ago(self._driving.retrying(id))

    # Leaving tasks to a worker, and telling them things

    def start(
        self,
        fn: Callable[..., Any],
        /,
        *args: Any,
        id: str | None = None,
        user: str = "",
        session: str = "",
        labels: dict[str, str] | None = None,
        **kwargs: Any,
    ) -> Handle[Any]:
        """Make a task and leave it to a worker (`holdfast worker`, or `Worker`).

        The task is on disk when this returns. With the `id` of a task that exists it is that one.

        >>> from holdfast import Worker, task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     handle = hf.start(hello, id="hello-5")
        ...     Worker(hf).run_until_idle()
        ...     handle.result()
        'hi'
        """
        spec = task_spec(fn)
        given = Given(id=id, user=user, session=session, labels=labels, engine=self._going.driver)
        return Handle(self, self._going.start(spec, args, kwargs, given), spec)

    def pause(self, id: str, *, because: str = "", by: str = "") -> None:
        """Stop a task at its next step, until `resume` (which drives it here) or `unpause`.

        The step in hand comes to its end and is recorded.

        >>> with Holdfast("memory://") as hf:
        ...     hf.pause("nobody")
        Traceback (most recent call last):
        holdfast.errors.TaskNotFound: no task 'nobody' in memory://
        """
        control.pause(self._holding, id, because, by)

    def unpause(self, id: str, *, by: str = "") -> None:
        """Let a paused task go on, driven by a worker.

        >>> with Holdfast("memory://") as hf:
        ...     hf.unpause("nobody")
        Traceback (most recent call last):
        holdfast.errors.TaskNotFound: no task 'nobody' in memory://
        """
        control.unpause(self._holding, id, by)

    def cancel(self, id: str, *, because: str = "", by: str = "") -> str:
        """Ask a task to end at its next step; returns its status after that.

        A running async step is cancelled, a sync one runs to its end. What the task did is undone
        if it was declared so. A task that nobody drives ends at once, unless it has something to
        undo: then a worker, or `resume`, does that and ends it.

        >>> from holdfast import task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.start(hello, id="hello-6")
        ...     hf.cancel("hello-6")
        'cancelled'
        """
        return control.cancel(self._holding, id, because, by)

    def compensate(self, id: str) -> TaskView:
        """Undo what a failed or cancelled task did, or finish doing so; returns its view.

        What could not be undone before is tried again. See `TaskView.compensation`.

        >>> with Holdfast("memory://") as hf:
        ...     hf.compensate("nobody")
        Traceback (most recent call last):
        holdfast.errors.TaskNotFound: no task 'nobody' in memory://
        """
        with suppress(TaskFailed, TaskCancelled):
            self._going.go(self._driving.compensating(id))
        return self.task(id)

    def check(self, id: str) -> Rehearsal:
        """Whether the code that is loaded fits the log of a task. Nothing is called or written.

        The task's function runs from its top with the recorded results, as far as they go. For
        all unfinished tasks, before a deploy: `holdfast check`.

        >>> from holdfast import ask, task
        >>> @task
        ... def sure_of_it() -> bool:
        ...     return ask("Sure?", bool)
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.start(sure_of_it, id="sure_of_it-2")
        ...     hf.check("sure_of_it-2").fits
        True
        """
        from holdfast.engines.rehearsal import rehearse

        return rehearse(self._holding, id, self._driving.spec_of(id))

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

    def tasks(self, *, limit: int | None = None, **filters: Unpack[Filters]) -> Tasks:
        """The views of the tasks that match (the newest so many), oldest first. See `page`.

        The logs of those, and of no others, are read; those that can't be are in `unreadable`.

        >>> Holdfast("memory://").tasks(status=["failed", "cancelled"], limit=10)
        []
        """
        return list_tasks(self.store, filters, limit)

    def page(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[Filters]
    ) -> TaskPage:
        """A page of the tasks that match, the newest first, without reading their logs.

        `status` (one, or several), `type`, `user`, `session`, `parent`, `labels` (all of them),
        `created_after`, `created_before`, `updated_after`, `updated_before`. The `next` of a page
        is the `cursor` of the one after it.

        >>> Holdfast("memory://").page(user="ada", labels={"team": "travel"})
        TaskPage(tasks=(), next=None, unreadable=())
        """
        return page_of_tasks(self.store, filters, limit, cursor)

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
        control.resolve(self._holding, id, path, happened, result, because, by)

    def answer(self, id: str, answer: Any, *, question: str | None = None, by: str = "") -> None:
        """Answer a question that a task asked. The task is not driven: `resume` it afterwards.

        `question` is the question's id; it may be left out while only one is open. The answer is
        checked against the type the question asks for, and a question is answered once.

        >>> with Holdfast("memory://") as hf:
        ...     hf.answer("nobody", "yes")
        Traceback (most recent call last):
        holdfast.errors.TaskNotFound: no task 'nobody' in memory://
        """
        control.answer(self._holding, id, answer, question, by)
