"""`Holdfast`: one store, and everything that can be done with the tasks in it.

The class holds no logic of its own. Each method says what it promises, and hands the work to the
room that does it: `engines` drives and controls tasks, `views` and `history` look at them, `upkeep`
copies and deletes them. Rooms that few programs need are imported when they are asked for.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal, Self, TypeVar, Unpack, overload

from msgspec import UNSET, Struct

from holdfast.api.async_forms import away, off_the_loop
from holdfast.api.handle import Handle, Options, must_fit_engine, not_before
from holdfast.codec.redact import Redact
from holdfast.codec.secret import Secrets
from holdfast.core.crashes import MAX_CRASHES
from holdfast.core.events import VERSION, Effects
from holdfast.core.words import checked_id
from holdfast.engines import control
from holdfast.engines.follow import Follow, Going
from holdfast.engines.holder import Holding
from holdfast.engines.local.tasks import Driving, TaskOptions
from holdfast.engines.local.worker import Local
from holdfast.engines.port import Engine, KeepsValues
from holdfast.engines.routing import try_to_let_know, try_to_start
from holdfast.errors import BadInput, TaskCancelled, TaskFailed
from holdfast.log.artifacts import Artifact, opened
from holdfast.log.states import load_sound
from holdfast.log.values import MAX_VALUE_BYTES
from holdfast.stores import box_for_engines, open_store, secured, whole_store
from holdfast.stores.listing import (
    Filters,
    SessionFilters,
    SessionPage,
    TaskPage,
    page_of_sessions,
    page_of_tasks,
)
from holdfast.stores.port import Store
from holdfast.stores.sealed.keys import KeySource
from holdfast.stores.system import host_name
from holdfast.upkeep.retention import Retention
from holdfast.views.task import Tasks, TaskView, list_tasks, view_task

if TYPE_CHECKING:
    from holdfast.agent.memories import Memory
    from holdfast.agent.sessions import Session
    from holdfast.agent.values import Values
    from holdfast.api.alerts import Alert, Hook, Reason, Watch
    from holdfast.api.batches import BatchHandle, BatchInfo, QueueHandle
    from holdfast.api.schedules import ScheduleHandle
    from holdfast.core.limits import Limit
    from holdfast.core.queues import Queue
    from holdfast.core.usage import Prices
    from holdfast.engines.limits import LimitInfo
    from holdfast.engines.rehearsal import Rehearsal
    from holdfast.engines.schedules import CatchUp, Overlap
    from holdfast.engines.stream_follow import StreamFollow
    from holdfast.history.comparison import Comparison, Experiment, Variant
    from holdfast.history.forks import Effect
    from holdfast.history.replay import Replayed
    from holdfast.history.snapshots import Snapshot
    from holdfast.log.places import When
    from holdfast.log.verify import Head, Verified
    from holdfast.upkeep.families import Archived, Copied, Swept, TaskChoice, Tell
    from holdfast.views.audit import Audit
    from holdfast.views.sql import Selected
    from holdfast.views.stats import Stats
    from holdfast.workspace.projector import Projector
    from holdfast.workspace.task_files import TaskFiles

R = TypeVar("R")
_now = partial(datetime.now, UTC)


class Rewind(Struct, frozen=True):
    """A task that was rewound, and what it had done outside since then."""

    task: TaskView
    effects: tuple[Effect, ...]


class Holdfast:
    """A store of tasks, opened. Use it as a context manager, or call `close`.

    `url` is a folder (made if it is not there), `sqlite:///trips.db`, `postgresql://…` or
    `memory://`. A task is driven under a lease of `lease_s` seconds that is renewed while this
    process lives; when it hangs for longer, another may take the task over and this one is
    refused. A task whose drivers died `max_crashes` times at one place is set aside: it is
    `stuck`, until somebody resumes it. `redact` says what is kept out of the log, `secrets` (a
    dict, or a function of the name) what `Secret.named` stands for. With a `key` (see `Keys`)
    everything in the store is encrypted; with a `sign_key` no log can be changed without it. In a
    folder, readable files are kept beside each log (`status.md` and others), unless it is
    encrypted or `projections` is False. With an `engine`, new tasks are driven by it (`Temporal`,
    `Restate`); without, locally.
    By a `retention` workers delete old tasks in the background, one worker at a time.

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
        max_crashes: int = MAX_CRASHES,
        max_value_bytes: int = MAX_VALUE_BYTES,
        redact: Redact | None = None,
        secrets: Secrets | None = None,
        key: KeySource | None = None,
        sign_key: KeySource | None = None,
        projections: bool | None = None,
        engine: Engine | None = None,
        retention: Retention | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        if not lease_s > 0:
            raise BadInput(f"lease_s={lease_s} must be more than 0")
        if type(max_crashes) is not int or max_crashes < 1:
            raise BadInput(f"max_crashes={max_crashes!r:.60} must be a whole number, 1 or more")
        if isinstance(url, str | os.PathLike):
            store = open_store(url, sync=sync)
            kept = projections if projections is not None else (sync and key is None)
        else:
            store, kept = whole_store(url), bool(projections)
        self.store: Store = secured(store, key, sign_key)
        self.projections: Projector | None = None
        """Keeps readable files in step with the logs; None if nothing does."""
        if kept:
            must = projections is not None
            self.projections = door("projections").projector_of(
                store, self.store, must=must, sealed=key is not None
            )
        self._keys = (key, sign_key)
        self.retention = retention
        self.hooks: list[Hook] = []
        """The hooks of `on`: each names the reasons and the receiver."""
        owner = f"{host_name()} process {os.getpid()}"
        self._holding = Holding(
            self.store, owner, lease_s, clock or _now, max_value_bytes, redact, secrets
        )
        self._holding.max_crashes = max_crashes
        self._driving = Driving(self._holding)
        self.engine: Engine = Local() if engine is None else engine
        """The engine that drives the tasks made here."""
        if isinstance(self.engine, Local):
            self.engine.store = self.store
        if isinstance(self.engine, KeepsValues):
            self.engine.encrypt_with(box_for_engines(self.store))
        self._holding.poke = partial(try_to_let_know, self.store, self.engine, owner)
        self._holding.start = partial(try_to_start, self.store, self.engine, owner)
        self._going = Going(self._driving, self.engine)

    @classmethod
    def from_env(
        cls,
        *,
        sync: bool = True,
        lease_s: float = 30.0,
        max_value_bytes: int = MAX_VALUE_BYTES,
        projections: bool | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> Self:
        """The store that the command line would open here: the settings are the same.

        `HOLDFAST_URL`, `HOLDFAST_KEY`, `HOLDFAST_ENGINE` and the others come first, then
        `[tool.holdfast]` in the nearest pyproject.toml. `redact`, `secrets` and `engine` may name
        code, which is imported. If a pyproject.toml above the current folder names it, you are
        warned, and it is refused unless the folder is yours alone to write to. The modules of
        `app` are for commands and are not imported.

        >>> import os
        >>> os.environ["HOLDFAST_URL"] = "memory://"
        >>> with Holdfast.from_env() as hf:
        ...     hf.store.url
        'memory://'
        >>> del os.environ["HOLDFAST_URL"]
        """
        from holdfast.api.settings import Settings, options_of, url_of

        # As the code of a program that writes: all that keeps secrets out, and what drives tasks.
        given = Settings(imports=("redact", "secrets", "engine"))
        return cls(
            url_of(given, os.environ, Path.cwd()),
            sync=sync,
            lease_s=lease_s,
            max_value_bytes=max_value_bytes,
            projections=projections,
            clock=clock,
            **options_of(given, partial(warnings.warn, stacklevel=5)),
        )

    def __repr__(self) -> str:
        return f"Holdfast({self.store.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release every task this object holds. Unfinished ones can be resumed by anyone."""
        self._holding.close()
        self.engine.close()
        if self.projections is not None:
            self.projections.close()
        self.store.close()

    # Driving tasks

    def options(
        self,
        *,
        id: str | None = None,
        user: str = "",
        session: str = "",
        labels: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        queue: str = "",
        key: str = "",
        priority: int = 0,
        at: datetime | None = None,
        delay_s: float | None = None,
    ) -> Options:
        """How a task is to be started: `hf.options(…).run(fn, …)`, or `arun`, or `start`.

        The arguments after the function are checked by type checkers against its parameters, which
        may have any names. `timeout_s` takes the place of that of `@task`.

        `start` alone takes the others: the `queue` that the task waits in, with the `key` whose
        turn it is then and its `priority` (see `queue`); and when it may begin at the earliest,
        `at` a time or in `delay_s` seconds.

        >>> from holdfast import task
        >>> @task
        ... def rename(id: str, user: str) -> str:
        ...     return f"{id} is {user}'s"
        >>> with Holdfast("memory://") as hf:
        ...     hf.options(id="rename-1", user="ada").run(rename, id="boat 3", user="Bob")
        "boat 3 is Bob's"
        """
        given = TaskOptions(
            id=id, user=user, session=session, timeout_s=timeout_s, engine=self._going.driver,
            labels=dict(labels) if isinstance(labels, Mapping) else labels,
            queue=queue, key=key, priority=priority,
            not_before=not_before(at, delay_s, self._holding.clock()),
        )  # fmt: skip
        must_fit_engine(given, self.engine.name)
        return Options(self, given)

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
    def run(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Any:
        """Run a task, or go on with it: the same call does both.

        With the `id` of a task that exists it resumes it; of a finished one it returns the
        recorded result; of a failed one it raises `TaskFailed`. Other arguments, or another
        function, than the task was started with are an error. An async task is run on an event
        loop of its own; inside one, use `await hf.arun(…)`.

        `id`, `user`, `session` and `labels` are about the task; all other arguments are the
        function's. For a function whose parameters have one of these names, see `options`.

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
        options, kwargs = self._told(fn, given)
        return options.run(fn, *args, **kwargs)

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
    async def arun(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Any:
        """`run` for async code: an async task runs on this loop, a sync one in a thread."""
        options, kwargs = self._told(fn, given)
        return await options.arun(fn, *args, **kwargs)

    @overload
    def start(
        self, fn: Callable[..., Awaitable[R]], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> Handle[R]: ...  # fmt: skip
    @overload
    def start(
        self, fn: Callable[..., R], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> Handle[R]: ...  # fmt: skip
    def start(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Handle[Any]:
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
        options, kwargs = self._told(fn, given)
        return options.start(fn, *args, **kwargs)

    @overload
    async def astart(
        self, fn: Callable[..., Awaitable[R]], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> Handle[R]: ...  # fmt: skip
    @overload
    async def astart(
        self, fn: Callable[..., R], /, *args: Any, id: str | None = ...,
        user: str = ..., session: str = ..., labels: dict[str, str] | None = ..., **kwargs: Any
    ) -> Handle[R]: ...  # fmt: skip
    async def astart(self, fn: Callable[..., Any], /, *args: Any, **given: Any) -> Handle[Any]:
        """`start` for async code: it runs in a thread, off the event loop."""
        options, kwargs = self._told(fn, given)
        return await options.astart(fn, *args, **kwargs)

    def _told(self, fn: Any, given: dict[str, Any]) -> tuple[Options, dict[str, Any]]:
        """The options of the task in the arguments of `run` or `start`, and the function's own."""
        about = {name: given.pop(name) for name in _ABOUT_TASKS & given.keys()}
        spec = getattr(fn, "holdfast_spec", None)
        if spec is not None and (taken := sorted(about.keys() & set(spec.signature.names))):
            raise BadInput(
                f"{spec.name} has a parameter {taken[0]!r}, and so has hf.run: say which is meant "
                f"by hf.options({taken[0]}=…).run({spec.name}, {taken[0]}=…)"
            )
        return self.options(**about), given

    def resume(self, id: str) -> Any:
        """Go on with a task by its id alone. Its code must have been imported."""
        return self._going.go(self._driving.resuming(id))

    async def aresume(self, id: str) -> Any:
        """`resume` for async code: an async task runs on this loop, a sync one in a thread."""
        return await self._going.ago(await away(self._driving.resuming, id))

    def retry(self, id: str, *, worker: bool = False) -> Any:
        """Try a failed task again. Recorded steps are kept; the one that failed runs anew.

        With `worker` the task is not driven here but left to a worker, and no code is needed.
        """
        if worker:
            return control.reopen(self._holding, id, "")
        return self._going.go(self._driving.retrying(id))

    async def aretry(self, id: str) -> Any:
        """`retry` for async code: an async task runs on this loop, a sync one in a thread."""
        return await self._going.ago(await away(self._driving.retrying, id))

    def compensate(self, id: str) -> TaskView:
        """Undo what a failed or cancelled task did, or finish doing so; returns its view.

        An undo that failed before is tried again. See `TaskView.compensation`.
        """
        with suppress(TaskFailed, TaskCancelled):
            self._going.go(self._driving.compensating(id))
        return self.task(id)

    def check(self, id: str) -> Rehearsal:
        """Whether the code that is loaded fits the log of a task. Nothing is called or written.

        The task's function runs from its top with the recorded results, as far as they go. For
        all unfinished tasks, before a deploy: `holdfast check`.
        """
        from holdfast.engines.rehearsal import rehearse

        return rehearse(self._holding, id, self._driving.spec_of(id))

    # Telling tasks things

    def send(self, task: str, name: str, value: Any = None, *, id: str = "", by: str = "") -> bool:
        """Send a message to a task, which gets it by `receive`. It is durable when this returns.

        Messages of one name reach the task in the order in which they were sent. With an `id`, a
        message that is sent twice counts once, and the second call returns False. A task that has
        ended is refused with `BadInput`.

        >>> from holdfast import Holdfast, receive, task
        >>> @task
        ... def countdown() -> list[int]:
        ...     return [receive("number", int), receive("number", int)]
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.start(countdown, id="countdown-1")
        ...     sent = [hf.send("countdown-1", "number", n, id=f"n{n}") for n in (3, 2, 2)]
        ...     sent, hf.resume("countdown-1")
        ([True, True, False], [3, 2])
        """
        return control.send(self._holding, checked_id(task), name, value, id, by)

    def pause(self, id: str, *, because: str = "", by: str = "") -> None:
        """Stop a task at its next step, until `resume` (which drives it here) or `unpause`.

        The step in hand runs to its end and is recorded.
        """
        control.pause(self._holding, id, because, by)

    def unpause(self, id: str, *, by: str = "") -> None:
        """Let a paused task go on, driven by a worker."""
        control.unpause(self._holding, id, by)

    def cancel(self, id: str, *, because: str = "", by: str = "") -> str:
        """Ask a task to end at its next step; returns its status after that.

        A running async step is cancelled, a sync one runs to its end. The effects of the task are
        undone if it was declared so. A task that nobody drives ends at once, unless it has
        something to undo: then a worker, or `resume`, does that and ends it.
        """
        return control.cancel(self._holding, id, because, by)

    def answer(self, id: str, answer: Any, *, question: str | None = None, by: str = "") -> None:
        """Answer a question that a task asked. The task is not driven: `resume` it afterwards.

        `question` is the question's id; it may be left out while only one is open. A plain type is
        checked at once, any other when the task goes on: an answer that does not fit leaves the
        question open and says why. A question is answered once.
        """
        control.answer(self._holding, id, answer, question, by)

    def resolve(
        self,
        id: str,
        path: str,
        *,
        happened: bool,
        result: Any = None,
        because: str = "",
        by: str = "",
        unchecked: bool = False,
    ) -> None:
        """Settle a call in doubt by hand: it happened, with this result, or it did not happen.

        The task is not driven: `resume` it afterwards. `result` is what the tool would have
        returned; where the tool's code is loaded it is checked against its return type, unless you
        say `unchecked`. The functions that a framework calls have no type that is checked.
        """
        control.resolve(self._holding, id, path, happened, result, because, by, unchecked)

    def move(
        self,
        id: str,
        engine: Engine | Literal["local"] | None = None,
        *,
        by: str = "",
        timeout_s: float = 30.0,
        force: bool = False,
    ) -> tuple[str, ...]:
        """Give a task that is under way to another engine; returns the ids of what was moved.

        It goes to the engine of this object if none is named, or with "local" to this process and
        any worker. The process that drives the task finishes the step in hand first. Everything it
        waits for (answers, times, retries, children) goes along, and so do its open children. None
        are returned if it is there already. `EngineError` if its driver has not heard of it after
        `timeout_s`.

        With `force` the engine that drives it is not asked: for one that is gone, or that can't go
        on with the task because its code no longer fits. The run that is left there may do nothing
        more for the task, and is ended if that engine can be told. Given the engine that has it, it
        begins anew there. A task that failed can be taken too, and then be tried again elsewhere.
        """
        from holdfast.engines.moves import move

        return move(
            self._holding, self.engine, id, engine, by=by, timeout_s=timeout_s, force=force
        )  # fmt: skip

    # Asking about tasks

    def task(self, id: str) -> TaskView:
        """A task as its log tells it: position, outputs, decisions, retries, failures."""
        return view_task(self.store, checked_id(id))

    def tasks(self, *, limit: int | None = None, **filters: Unpack[Filters]) -> Tasks:
        """The views of the tasks that match (the newest so many), oldest first. See `page`.

        The logs of those, and of no others, are read; those that can't be are in `unreadable`.
        """
        return list_tasks(self.store, filters, limit)

    def handle(self, id: str) -> Handle[Any]:
        """The handle of a task that exists, as `start` returned it: to wait for it, or to tell it
        things.

        >>> from holdfast import task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-13")
        ...     hf.handle("hello-13").result()
        'hi'
        """
        control.must_be_there(self.store, id)
        return Handle(self, id)

    def follow(self, id: str, *, after: int = 0, poll_s: float = 0.1) -> Follow:
        """The events of a task after the event `after`, as they come, until it has ended.

        On an event loop read it with `async for`: nothing blocks there. A reader that comes back
        gives the `seq` of the last event it saw.

        >>> from holdfast import task
        >>> @task
        ... def hello() -> str:
        ...     return "hi"
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(hello, id="hello-14")
        ...     [type(event).__name__ for event in hf.follow("hello-14", after=1)]
        ['Claimed', 'TaskCompleted']
        """
        return Follow(self.store, checked_id(id), after, poll_s)

    def stream(
        self, id: str, call: str | int, *, after: str | int = 0, poll_s: float = 0.1
    ) -> StreamFollow:
        """The parts that a step of a task streams, as they come, until it has ended: from any
        process, while the step runs and after.

        `call` is the path of the step, or its name: then it is the newest call of it, or the first
        to come. A reader that comes back gives the `id` of the last part it has, or how many it
        has. If the step began anew (its process died), a part of number 0 says so: forget those
        before it. The step of an agent's model gives the pieces of its text. On an event loop read
        it with `async for`. Raises `StepFailed` if the step failed, and `StreamBroken` if the task
        ended without it.

        >>> from collections.abc import Iterator
        >>> from holdfast import step, task
        >>> @step
        ... def count_up() -> Iterator[int]:
        ...     yield from (1, 2, 3)
        >>> @task
        ... def total() -> int:
        ...     return sum(count_up())
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(total, id="total-1")
        ...     [(part.number, part.value) for part in hf.stream("total-1", "count_up", after=1)]
        [(2, 2), (3, 3)]
        """
        from holdfast.engines.stream_follow import StreamFollow

        return StreamFollow(self.store, checked_id(id), call, after, poll_s)

    def page(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[Filters]
    ) -> TaskPage:
        """A page of the tasks that match, the newest first, without reading their logs.

        `status` (one, or several), `type`, `user`, `session`, `parent`, `labels` (all of them),
        `created_after`, `created_before`, `updated_after`, `updated_before`. The `next` of a page
        is the `cursor` of the one after it.
        """
        return page_of_tasks(self.store, filters, limit, cursor)

    def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] = (),
        *,
        limit: int | None = None,
        timeout_s: float = 60.0,
        **filters: Unpack[Filters],
    ) -> Selected:
        """The rows that a select finds in the logs, in `tasks`, `steps`, `messages` and others.

        It is SQLite's SQL, and only reads. The logs of all tasks are read for it, or with the
        `filters` of `page` those of the tasks that match. `limit` is how many rows are wanted at
        most, `timeout_s` how long the query itself may take. `views.sql.tables` has all tables.
        """
        from holdfast.views.sql import rows_of

        return rows_of(
            self.store, query, parameters, limit=limit, timeout_s=timeout_s, filters=filters
        )

    def stats(
        self,
        *,
        prices: Mapping[str, Prices | tuple[float, float]] | None = None,
        progress: Callable[[int, int, str], None] = lambda done, of, id: None,
        **filters: Unpack[Filters],
    ) -> Stats:
        """Where time, tokens, money and retries went, by type of task and by call, and what was
        saved by resuming: of the tasks that match, as for `page`.

        `prices` are what a million tokens of a model cost (`"*"`: of any other), for calls whose
        cost was not recorded. `progress` is told how many tasks were read, of how many, and which
        comes next.
        """
        from holdfast.views.stats import stats

        return stats(self.store, filters, prices or {}, progress)

    def verify(
        self,
        id: str | None = None,
        *,
        against: Iterable[Head] = (),
        progress: Callable[[int, int], None] = lambda done, of: None,
    ) -> Verified:
        """Whether a task's log, or every log, is what was written: each event, sum and blob.

        Every log is those of sessions and memories too. With the `heads` of an earlier time it
        also shows what was cut off since. `progress` is told how many logs were checked, and of
        how many.
        """
        from holdfast.log.verify import verify

        return verify(self.store, () if id is None else (id,), against, progress)

    def heads(self, *ids: str) -> list[Head]:
        """How far the logs of these tasks go, or all logs: to be kept elsewhere, for `verify`."""
        from holdfast.log.verify import heads

        return heads(self.store, ids)

    def audit(self, id: str, *, against: Iterable[Head] = ()) -> Audit:
        """The report of a task: each act with its author, time, input and output; and whether
        the log is as it was written. A damaged log is reported up to the damage.

        `against` are heads that were noted before, as for `verify`.
        """
        from holdfast.views.audit import audit

        return audit(self.store, id, datetime.now(UTC), against)

    # Artifacts, files, and conversations

    def open(self, artifact: Artifact) -> BinaryIO:
        """The content of an artifact, to be read from any place in it."""
        return opened(self.store, artifact)

    def files(self, id: str, *, at: int | None = None) -> TaskFiles:
        """The files of a task: to be read, and written by people. With `at` as they were then,
        after the event of that number.
        """
        found: TaskFiles = door("files").TaskFiles(self._holding, id, at)
        return found

    def session(
        self,
        id: str | None = None,
        *,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Session:
        """A session: begun if there is none of that id, else the one that is there.

        It owns a conversation and starts tasks. Without an `id` it gets one of its own; the `user`
        of a session that exists may be left out, and must be right if it is given.
        """
        found: Session = door("sessions").begin_session(self, self._holding, id, user, labels)
        return found

    def sessions(
        self, *, limit: int = 50, cursor: str | None = None, **filters: Unpack[SessionFilters]
    ) -> SessionPage:
        """A page of the sessions that match, the newest first. No log is read for it.

        >>> with Holdfast("memory://") as hf:
        ...     for name in ("ada", "bob", "ada"):
        ...         _ = hf.session(user=name).say("Hello")
        ...     page = hf.sessions(user="ada", limit=10)
        >>> [session.user for session in page.sessions], page.next
        (['ada', 'ada'], None)
        """
        return page_of_sessions(self.store, filters, limit, cursor)

    @cached_property
    def memory(self) -> Memory:
        """The long-term memory: short entries that outlive sessions, found by what they say."""
        held = self._holding
        found: Memory = door("memories").open_memory(
            held.store, held.owner, held.clock, held.redact
        )
        return found

    @overload
    def values(self, namespace: str) -> Values[Any]: ...
    @overload
    def values(self, namespace: str, of: type[R]) -> Values[R]: ...
    def values(self, namespace: str, of: Any = Any) -> Values[Any]:
        """Values under keys: a durable key-value store with history, usable outside of tasks.

        `of` is the type of the values, which are checked against it. Left out, any value that the
        codec knows will do.
        """
        found: Values[Any] = door("values").open_values(self._holding, namespace, of)
        return found

    # Going back in time, and another way

    def snapshot(
        self,
        id: str,
        step: str | int | None = None,
        when: When | None = None,
        *,
        seq: int | None = None,
    ) -> Snapshot:
        """The knowledge of a task before a step (or `after` it), or after the event `seq`; at its
        end, if no place is named.

        As `hf.task(id).at(…)`, but nothing more is read than it takes: quick in a long log, and
        also where a log is damaged further on.

        >>> from holdfast import step, task
        >>> @step
        ... def count_beds(room: str) -> int:
        ...     return 2
        >>> @task
        ... def beds_of(room: str) -> int:
        ...     return count_beds(room)
        >>> with Holdfast("memory://") as hf:
        ...     _ = hf.run(beds_of, "attic", id="beds-1")
        ...     hf.snapshot("beds-1", 1, "after").content["calls"]["1"]["output"]
        2
        """
        from holdfast.history.snapshots import snapshot_of

        state = load_sound(self.store, checked_id(id))
        if step is None and seq is None:
            seq = state.seq
        return snapshot_of(self.store, state, step, when, seq)

    def fork(
        self,
        id: str,
        *,
        at: str | int | None = None,
        effects: Effects,
        when: When | None = None,
        seq: int | None = None,
        new_id: str | None = None,
        results: Mapping[str, Any] | None = None,
        input: Mapping[str, Any] | None = None,
        state: Any = UNSET,
        task: Callable[..., Any] | str | None = None,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
        stubs: Mapping[str, Any] | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        by: str = "",
        because: str = "",
    ) -> TaskView:
        """A new task that shares the past of another one up to a step, and goes its own way.

        It leaves `before` the step `at` (or `after` it), or after the event `seq`. Nothing is
        copied, and nothing is run: `hf.resume(view.id)` does that, or a worker. `effects` says what
        becomes of the tools it calls then: `live`, they are called; `reuse`, one that the original
        called with the same arguments is answered by what it returned; `stub`, none is called, and
        one that is neither in the original nor in `stubs` stops the task.

        The things that can be other: `results` of steps before the fork, by path; `input`,
        arguments of the task; `state`, that of the last checkpoint; `task`, the function;
        `arguments` of steps after the fork, by the name of the step (`{"ask_model": {"model":
        "other"}}`); and `stubs`, what steps and tools return without being called, by name.
        """
        from holdfast.history.forks import ForkChanges, WantedFork, by_path, fork

        wanted = WantedFork(
            at=at, when=when, seq=seq, effects=effects, new_id=new_id, user=user, labels=labels,
            by=by, because=because,
        )  # fmt: skip
        changes = ForkChanges(
            input=input or {}, results=by_path(results or {}), state=state, task=task,
            arguments=arguments or {}, stubs=stubs or {},
        )  # fmt: skip
        return TaskView(self.store, fork(self._holding, id, wanted, changes))

    def compare(self, *ids: str) -> Comparison:
        """Two tasks or more beside each other: call by call up to where they first differ, and
        what each came to, took and cost.
        """
        from holdfast.history.comparison import compare

        return compare(self.store, ids)

    def experiment(
        self,
        /,
        id: str,
        variants: Mapping[str, Mapping[str, Any]],
        *,
        progress: Callable[[Variant], None] = lambda variant: None,
        **fork: Any,
    ) -> Experiment:
        """Fork a task at one place several times, run the forks side by side, and compare them.

        `variants` says by name what is to be other in each, as arguments of `fork`; what they have
        in common is given once. All are made before the first one runs.
        """
        from holdfast.history.comparison import experiment

        return experiment(self, id, variants, fork, progress)

    def replay(
        self,
        id: str,
        *,
        start: str | int | None = None,
        to: str | int | None = None,
        stubs: Mapping[str, Any] | None = None,
        on_reached: Callable[[], bool] | None = None,
    ) -> Replayed:
        """Run the code that is loaded over the log of a task, with no effect at all.

        Recorded calls answer from the log, and nothing is written; only the code between the
        calls runs. It begins at the task's beginning, or before the step `start` with what was
        known there, and goes on to the end of the log, or to the call `to`. A call that is not
        recorded stops it.

        `stubs` answer, by name, instead of the log: with a value, with what a function returns for
        the arguments, or for real, with `REAL` of `history.replay`. `on_reached` is called where
        the code makes the call `to`, and returns whether to go on.
        """
        from holdfast.history.replay import WantedReplay, replay

        wanted = WantedReplay(start=start, to=to, stubs=stubs or {}, on_reached=on_reached)
        return replay(self._holding, id, wanted)

    def rewind(
        self,
        id: str,
        *,
        to: str | int | None = None,
        when: When | None = None,
        seq: int | None = None,
        undo: bool = False,
        effects: Effects = "reuse",
        by: str = "",
        because: str = "",
    ) -> Rewind:
        """Rewind a task to before a step (or after it): state, conversation and files as one.

        Nothing is deleted: an event says so, and a rewind can be rewound. It returns the effects of
        the task outside since then; with `undo` what has an undo is undone first. The task is
        paused then, and `hf.resume(id)` goes on from there. A tool that it calls again with the
        same arguments is answered by what it returned before, unless that was undone, or `effects`
        is `live`.
        """
        from holdfast.history.forks import WantedRewind, rewind

        wanted = WantedRewind(
            to=to, when=when, seq=seq, undo=undo, effects=effects, by=by, because=because
        )
        done = rewind(self._driving, id, wanted)
        return Rewind(view_task(self.store, id), done)

    def on(
        self,
        *reasons: Reason,
        do: Callable[[Alert], object] | None = None,
        command: Sequence[str] | None = None,
        webhook: str | None = None,
        secret: str | None = None,
        older_than: timedelta | None = None,
        type: str | Sequence[str] = (),
        name: str = "",
    ) -> Any:
        """Have somebody told when a task `failed`, is `stuck`, is `in_doubt`, `asks` a person, or
        is `overdue` (`older_than` that). A worker of this object looks, and tells.

        Told is a function (`do`, or what this decorates), a `command` that gets the alert as JSON
        on its standard input, or a `webhook`, signed by a `secret`. Each alert is delivered at
        least once, with retries, and recorded as a task of type `holdfast_alert`.

        >>> from holdfast import Worker, task
        >>> @task
        ... def sinks() -> None:
        ...     raise RuntimeError("a leak")
        >>> with Holdfast("memory://") as hf:
        ...
        ...     @hf.on("failed")
        ...     def page_somebody(alert):
        ...         print(alert.task, alert.text)
        ...
        ...     hf.watch()
        ...     _ = hf.start(sinks, id="boat-1")
        ...     Worker(hf).run_until_idle()
        ...     found = hf.watch()
        ...     Worker(hf).run_until_idle()
        0
        boat-1 RuntimeError: a leak
        """
        from holdfast.api.alerts import hook_of

        def add(do: Callable[[Alert], object] | None) -> Callable[[Alert], object] | None:
            self.hooks.append(
                hook_of(
                    reasons, do, command=command, webhook=webhook, secret=secret,
                    older_than=older_than, type=type, name=name,
                )
            )  # fmt: skip
            return do

        return add if do is None and command is None and webhook is None else add(do)

    def queue(self, queue: Queue | str) -> QueueHandle:
        """Declare a queue, or name one that was declared. It is kept in the store, so every worker
        and every `start` knows it; declared again, it has the new limits.

        >>> from holdfast import Queue, Worker, task
        >>> @task
        ... def report(day: int) -> str:
        ...     return f"day {day}"
        >>> with Holdfast("memory://") as hf:
        ...     reports = hf.queue(Queue("reports", concurrency=2))
        ...     last = hf.options(queue="reports", priority=-1).start(report, 2)
        ...     first = hf.options(queue="reports").start(report, 1)
        ...     waiting = reports.info().waiting
        ...     Worker(hf).run_until_idle()
        ...     waiting, first.result(), last.result(), reports.info().running
        (2, 'day 1', 'day 2', 0)
        """
        from holdfast.api.batches import open_queue

        return open_queue(self._holding, queue)

    def queues(self) -> list[QueueHandle]:
        """The queues that were declared, by name."""
        from holdfast.api.batches import all_queues

        return all_queues(self._holding)

    def batch(
        self,
        fn: Callable[..., Any],
        /,
        *,
        max: int = 100,
        wait_s: float = 5.0,
        name: str = "",
        user: str = "",
        queue: str = "",
        key: str = "",
        priority: int = 0,
    ) -> BatchHandle:
        """Collect items, and start the task `fn` with a list of them: when there are `max`, or when
        the first one has waited for `wait_s`. A worker has to run for the latter.

        >>> from holdfast import task
        >>> @task
        ... def index_pages(pages: list[str]) -> int:
        ...     return len(pages)
        >>> with Holdfast("memory://") as hf:
        ...     pages = hf.batch(index_pages, max=2, wait_s=60)
        ...     [pages.add(page) for page in ("a", "b", "c")]
        ['index_pages@batch-1', 'index_pages@batch-1', 'index_pages@batch-2']
        """
        from holdfast.api.batches import open_batch

        given = {"user": user, "queue": queue, "key": key, "priority": priority}
        return open_batch(self, fn, name, max, wait_s, given)

    def batches(self) -> list[BatchInfo]:
        """The batches of this store, by name: what they have collected."""
        from holdfast.api.batches import all_batches

        return all_batches(self)

    def limits(self) -> list[LimitInfo]:
        """The limits that calls in this store were made under, as they are now.

        >>> from holdfast import Limit, step, task
        >>> @step(limit=Limit("greetings", per_minute=60))
        ... def greet_slowly(name: str) -> str:
        ...     return f"hi {name}"
        >>> @task
        ... def greets_slowly(name: str) -> str:
        ...     return greet_slowly(name)
        >>> with Holdfast("memory://") as hf:
        ...     hf.run(greets_slowly, "Ada")
        ...     [limit.name for limit in hf.limits()]
        'hi Ada'
        ['greetings']
        """
        from holdfast.engines.limits import all_limits

        return list(all_limits(self.store, self._holding.owner, self._holding.clock))

    def set_limit(self, limit: Limit | str) -> Limit | None:
        """Have this limit hold for all workers, within a second, in place of the one of its name in
        the code. Given a name, the limit of the code holds again. Returns the limit that holds.

        >>> from holdfast import Limit
        >>> with Holdfast("memory://") as hf:
        ...     hf.set_limit(Limit("openai", per_minute=50)).per_minute
        50
        """
        from holdfast.core.limits import Limit
        from holdfast.engines.limits import set_limit

        if not isinstance(limit, str | Limit):
            raise BadInput(f"hf.set_limit({limit!r:.60}) takes a Limit, or the name of one")
        return set_limit(self.store, limit, self._holding.owner, self._holding.clock)

    def schedule(
        self,
        fn: Callable[..., Any] | str,
        /,
        *args: Any,
        cron: str = "",
        tz: str = "UTC",
        every_s: float | None = None,
        at: datetime | None = None,
        name: str = "",
        overlap: Overlap = "skip",
        catch_up: CatchUp = "last",
        window_s: float = 86400.0,
        jitter_s: float = 0.0,
        user: str = "",
        queue: str = "",
        key: str = "",
        priority: int = 0,
        **kwargs: Any,
    ) -> ScheduleHandle:
        """Have a task start by itself: by `cron` in the time zone `tz`, every `every_s` seconds, or
        once `at` a time. Or name a schedule that was declared.

        It is kept in the store, under the `name` (that of the task, if none is given). Workers
        start what is due, once for each due time: the task is named after it. `overlap` says what
        happens if the one before has not ended: `skip`, `allow` both, or `cancel` that one. After
        an outage, `catch_up` with the `last` due time that was missed, with `all` or `none` of
        them, as far back as `window_s`. `jitter_s` spreads starts. `cron` needs the extra
        `schedules`.

        >>> from holdfast import task
        >>> @task
        ... def morning_report(city: str) -> None: ...
        >>> with Holdfast("memory://") as hf:
        ...     handle = hf.schedule(morning_report, "Oslo", cron="0 7 * * 1-5", tz="Europe/Oslo")
        ...     handle.name, len(handle.next(3))
        ('morning_report', 3)
        """
        from holdfast.api.schedules import ScheduleHandle, declare_schedule, schedule_of

        if isinstance(fn, str):
            handle = ScheduleHandle(self, fn)
            _ = handle.schedule  # there is one
            return handle
        made = schedule_of(
            fn, args, kwargs, name=name, cron=cron, tz=tz, every_s=every_s, at=at, overlap=overlap,
            catch_up=catch_up, window_s=window_s, jitter_s=jitter_s, user=user, queue=queue,
            key=key, priority=priority,
        )  # fmt: skip
        return declare_schedule(self, made)

    def schedules(self) -> list[ScheduleHandle]:
        """The schedules that were declared, by name."""
        from holdfast.api.schedules import ScheduleHandle, all_schedules

        return [ScheduleHandle(self, each.name) for each in all_schedules(self)]

    def watch(self) -> int:
        """Look once for what the hooks of `on` are to be told of; returns how many alerts there
        are. Workers do so every few seconds.

        >>> with Holdfast("memory://") as hf:
        ...     hf.watch()
        0
        """
        return self._watch.look()

    @cached_property
    def _watch(self) -> Watch:
        from holdfast.api.alerts import Watch

        return Watch(self, self.hooks)

    def _beside(self, say: Callable[[str], None]) -> AbstractContextManager[object]:
        """While it lasts, do in the background what a worker does beside driving tasks."""
        from holdfast.api.schedules import Background

        return Background(self, say)

    # Many tasks at once

    def copy_to(
        self,
        url: str | os.PathLike[str] | Store | Holdfast,
        ids: str | Iterable[str] | None = None,
        *,
        move: bool = False,
        paused: bool = False,
        dry_run: bool = False,
        progress: Tell | None = None,
        **filters: Unpack[TaskChoice],
    ) -> Copied:
        """Copy tasks to another store, all of them or those that are meant; `move` deletes them
        here afterwards. A copy that was interrupted goes on when it is made again.

        The tasks are meant by `ids`, or by `status`, `type`, `user`, `session` and `labels`. A
        family goes together: with a parent its children, with a child its parent, with any of
        them its session. All includes sessions without a task, and memories. An unfinished task
        goes on in the copy, and is paused here, so that nothing is done twice; with `paused` it
        goes on here, and the copy arrives paused. A task that somebody drives is refused.

        A store that is named by a URL is opened with the keys of this one; to use others, or none,
        give a `Holdfast` that was opened with them.
        """
        from holdfast.upkeep.copies import copy_tasks
        from holdfast.upkeep.families import nothing, wanted

        target = url.store if isinstance(url, Holdfast) else url
        key, sign_key = self._keys
        return copy_tasks(
            self._holding, target, wanted(ids, **filters), move=move, paused=paused,
            dry_run=dry_run, tell=progress or nothing,
            secure=lambda store: secured(store, key, sign_key),
        )  # fmt: skip

    def archive_to(
        self,
        path: str | os.PathLike[str],
        ids: str | Iterable[str] | None = None,
        *,
        plain: bool = False,
        progress: Tell | None = None,
        **filters: Unpack[TaskChoice],
    ) -> Archived:
        """Write tasks to a compressed file, with all that belongs to them: families, sessions, and,
        of everything, memories. They stay in the store. Which are meant is said as for `copy_to`.

        The file is read back before it gets its name. If `path` is a folder, a new file is made in
        it. `restore_from` brings tasks back from it. An archive is not encrypted: from a store that
        is, one is made only if `plain` says so.
        """
        from holdfast.upkeep.archive import archive_tasks
        from holdfast.upkeep.families import nothing, wanted

        meant = wanted(ids, **filters)
        self._may_be_written_in_the_clear(plain)
        return archive_tasks(self._holding, Path(path), meant, progress or nothing)

    def _may_be_written_in_the_clear(self, plain: bool) -> None:
        if self._keys[0] is not None and not plain:
            raise BadInput(
                "an archive is not encrypted, and this store is: copy the tasks to another "
                "encrypted store, or say plain=True (--plain) and look after the file yourself"
            )

    def restore_from(
        self,
        path: str | os.PathLike[str],
        ids: str | Iterable[str] | None = None,
        *,
        max_bytes: int | None = None,
        dry_run: bool = False,
        progress: Tell | None = None,
    ) -> Copied:
        """Bring tasks back from an archive: all of them, or those that are named.

        A task that is there already is left as it is. An unfinished task arrives paused, because
        the original may have gone on since. An archive that would unpack to more than `max_bytes`
        (64 GiB) is refused.
        """
        from holdfast.upkeep.archive import MAX_BYTES, Archive
        from holdfast.upkeep.families import nothing, wanted
        from holdfast.upkeep.restore import restore_tasks

        most = MAX_BYTES if max_bytes is None else max_bytes
        with Archive(Path(path), max_bytes=most) as archive:
            return restore_tasks(
                archive, self._holding, wanted(ids), dry_run=dry_run, tell=progress or nothing
            )

    def gc(
        self,
        policy: Retention | None = None,
        *,
        archive: str | os.PathLike[str] | None = None,
        plain: bool = False,
        compact: bool = False,
        dry_run: bool = False,
        progress: Tell | None = None,
    ) -> Swept:
        """Delete finished tasks and idle sessions as a policy says, blobs that no log names any
        more, and what crashed writers left. Without a policy, only the latter two.

        With `archive` (a file, or a folder for a new one) what goes is archived first; if the store
        is encrypted, only where `plain` says that the archive need not be. `dry_run`
        says what would go. `compact` gives the space back to the disk (SQLite).
        """
        from holdfast.upkeep.families import nothing
        from holdfast.upkeep.sweep import Sweep

        tell = progress or nothing
        sweep = Sweep(self._holding, policy or Retention(), dry_run=dry_run, tell=tell)
        place = Path(archive) if archive is not None else None
        if place is not None:
            self._may_be_written_in_the_clear(plain)
        return sweep.run(place, VERSION, compact=compact)

    # The async form of each method that may wait. `arun`, `aresume` and `aretry` are above: they
    # drive a task on the caller's loop. You read the results of `follow` and `stream` with `for` or
    # `async for`.

    aclose: Final = off_the_loop(close)
    acompensate: Final = off_the_loop(compensate, is_long=True)
    acheck: Final = off_the_loop(check, is_long=True)
    apause: Final = off_the_loop(pause)
    aunpause: Final = off_the_loop(unpause)
    acancel: Final = off_the_loop(cancel)
    aanswer: Final = off_the_loop(answer)
    aresolve: Final = off_the_loop(resolve)
    asend: Final = off_the_loop(send)
    amove: Final = off_the_loop(move, is_long=True)
    atask: Final = off_the_loop(task)
    atasks: Final = off_the_loop(tasks)
    ahandle: Final = off_the_loop(handle)
    apage: Final = off_the_loop(page)
    asql: Final = off_the_loop(sql, is_long=True)
    astats: Final = off_the_loop(stats, is_long=True)
    averify: Final = off_the_loop(verify, is_long=True)
    aheads: Final = off_the_loop(heads, is_long=True)
    aaudit: Final = off_the_loop(audit)
    aopen: Final = off_the_loop(open)
    afiles: Final = off_the_loop(files)
    asession: Final = off_the_loop(session)
    asessions: Final = off_the_loop(sessions)
    asnapshot: Final = off_the_loop(snapshot)
    afork: Final = off_the_loop(fork)
    acompare: Final = off_the_loop(compare)
    aexperiment: Final = off_the_loop(experiment, is_long=True)
    areplay: Final = off_the_loop(replay, is_long=True)
    arewind: Final = off_the_loop(rewind)
    acopy_to: Final = off_the_loop(copy_to, is_long=True)
    aarchive_to: Final = off_the_loop(archive_to, is_long=True)
    arestore_from: Final = off_the_loop(restore_from, is_long=True)
    agc: Final = off_the_loop(gc, is_long=True)
    awatch: Final = off_the_loop(watch)
    aqueue: Final = off_the_loop(queue)
    aqueues: Final = off_the_loop(queues)
    alimits: Final = off_the_loop(limits)
    aset_limit: Final = off_the_loop(set_limit)
    abatch: Final = off_the_loop(batch)
    abatches: Final = off_the_loop(batches)
    aschedule: Final = off_the_loop(schedule)
    aschedules: Final = off_the_loop(schedules)


_ABOUT_TASKS = frozenset({"id", "user", "session", "labels"})
"""The arguments that `run` and `start` take for themselves; `options` takes more."""


# Doors to rooms that are built on top of `Holdfast`: sessions, memories, readable files.
#
# `Holdfast` offers them, and they need `Holdfast`. Imported from here, each would import the other.
# So `holdfast/__init__.py`, which knows every room, names the module behind each door, and `door`
# loads that module when it is first asked for.

_behind: dict[str, str] = {}


def lead_to(**modules: str) -> None:
    """Say which module is behind each door."""
    _behind.update(modules)


def door(name: str) -> Any:
    """The module behind a door."""
    return import_module(_behind[name])
