"""`@task`, the words of a task's function while it runs, and `start`, which makes a child."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Generator, Iterable
from datetime import datetime
from hashlib import sha256
from operator import attrgetter
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, overload

from msgspec import UNSET, Struct
from msgspec.structs import replace

from holdfast.api.steps import mark_async
from holdfast.core.events import (
    AnyEvent,
    Noted,
    OnCancel,
    Patched,
    PlanItem,
    Planned,
    PlanProgressed,
    PlanStatus,
    Progressed,
)
from holdfast.core.journal import Asked, Flow, await_child, start_child
from holdfast.core.plan import Plan, given, marked, merged_for_ours, recorded, revised, with_status
from holdfast.core.scope import Scope, inside
from holdfast.core.spec import IdempotencyKey, Spec, registry, task_spec
from holdfast.core.state import Call, State, scope_of
from holdfast.core.words import checked_id, must_be_texts
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import conclude, must_be_open
from holdfast.engines.functions import make_spec
from holdfast.engines.run import Run, append, plain, record
from holdfast.errors import BadInput

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_NUMBERED = re.compile(r"(.*~)?(\d+)")
"""The last part of a path that tells how far the code is: of a call, or of a branch by its name.
Decisions and readings don't: they may come and go."""


@overload
def task(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def task(
    *,
    name: str | None = None,
    version: int = 0,
    upcast: Callable[[Any, int], Any] | None = None,
    timeout_s: float | None = None,
    compensate: Compensate = "cancelled",
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def task(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    version: int = 0,
    upcast: Callable[[Any, int], Any] | None = None,
    timeout_s: float | None = None,
    compensate: Compensate = "cancelled",
) -> Any:
    """Make a function a task: something `Holdfast.run` drives, and goes on with after a crash.

    Its body runs again from the top on every resume, and the steps in it answer from the log. So
    what decides which step comes next has to come from its arguments and from steps.

    `timeout_s` counts from its start: a task that has not ended by then fails at its next step.
    `compensate` says when the tools it called are undone (`@tool(undo=…)`): "cancelled",
    "failed", "always" or "never". `version` is that of the code: a task is never driven by older
    code than started it. `upcast(data, version)` brings a checkpoint of an older version, as
    plain data, up to date.

    >>> from holdfast import Holdfast
    >>> @task
    ... def hello(name: str) -> str:
    ...     return f"hello {name}"
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(hello, "Ada", id="hello-1")
    'hello Ada'
    """
    options = {
        "name": name,
        "version": version,
        "upcast": upcast,
        "timeout_s": timeout_s,
        "undo_when": _undo_when(compensate),
    }
    if fn is None:
        return functools.partial(_task, options=options)
    return _task(fn, options)


Compensate = Literal["cancelled", "failed", "always", "never"]

_UNDO_WHEN: dict[Any, frozenset[str]] = {
    "cancelled": frozenset({"cancelled"}),
    "failed": frozenset({"failed"}),
    "always": frozenset({"cancelled", "failed"}),
    "never": frozenset(),
}


def _undo_when(compensate: Any) -> frozenset[str]:
    try:
        return _UNDO_WHEN[compensate]
    except (KeyError, TypeError):
        raise BadInput(
            f"@task(compensate={compensate!r:.60}) must be one of {', '.join(_UNDO_WHEN)}"
        ) from None


def _task(fn: Callable[..., Any], options: dict[str, Any]) -> Any:
    if not callable(fn):
        raise BadInput(f"@task decorates a function, not {fn!r:.100}")
    spec = make_spec(fn, "task", **options)
    registry.add(spec)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    if spec.is_async:
        mark_async(call)
    call.holdfast_spec = spec  # type: ignore[attr-defined]
    return call


class Current(Struct, frozen=True):
    """Where the running code stands: which task, which call, which try of it."""

    task_id: str
    path: str
    name: str
    attempt: int
    key: IdempotencyKey
    at: datetime | None
    version: int
    """The version of the code that started the task."""

    def plan(self, items: Iterable[str | PlanItem]) -> Plan:
        """Say what the task intends to do, so that "step 6 of 9" can be told; returns the plan.

        To revise it, say it again: items that stay keep their status, and the plan before stays
        in the log. A replay does not say it again.

        >>> from holdfast import Holdfast, PlanItem
        >>> @task
        ... def errand() -> str:
        ...     plan = current().plan(["go", PlanItem("buy milk", id="milk", after=("1",))])
        ...     plan = current().mark("1", "done")
        ...     return plan[0].status
        >>> with Holdfast("memory://") as hf:
        ...     hf.run(errand, id="errand-1"), str(hf.task("errand-1").position)
        ('done', 'step 1 of 2')
        """
        scope = inside("current().plan")
        mark = scope.named_path("plan", "!")
        text = scope.run.log.redact.text
        wanted = [replace(item, text=text(item.text)) for item in given(items)]

        def change(before: Plan) -> tuple[Planned, Plan]:
            after = revised(before, wanted)
            return Planned(items=recorded(after), mark=mark), after

        return _plan_after(scope, mark, change)

    def mark(self, item: str, status: PlanStatus, *, because: str = "") -> Plan:
        """Say what became of an item of the plan, by its id; returns the plan.

        An item is pending, doing, done, failed or skipped.
        """
        must_be_texts("current().mark", item=item, status=status, because=because)
        scope = inside("current().mark")
        mark = scope.named_path(f"plan {item} {status}", "!")

        def change(before: Plan) -> tuple[PlanProgressed, Plan]:
            after = marked(before, item, status)
            return PlanProgressed(id=item, status=status, because=because, mark=mark), after

        return _plan_after(scope, mark, change)


def _plan_after(scope: Scope, mark: str, change: Callable[[Plan], tuple[AnyEvent, Plan]]) -> Plan:
    """Record a change of the plan, once. It is made from the plan at this place in the code: on a
    replay the log may know of a later one."""
    run: Run = scope.run
    run.must_go_on_in(scope)
    state: State = run.log.state
    if mark in state.marks:
        place = bisect_left(state.plans, state.marks[mark], key=attrgetter("seq"))
        run.plan, run.plan_seq = state.plans[place].items, state.marks[mark]
        return run.plan

    def changed(state: State) -> AnyEvent:
        before = state.checkpoint_plan if run.plan is None else run.plan
        event, run.plan = change(before)
        newest = bisect_right(state.plans, run.plan_seq, key=attrgetter("seq"))
        if any(version.by for version in state.plans[newest:]):
            event, run.plan = _with_edits(before, event, run.plan, state.plan)
        run.plan_seq = state.seq + 1
        return event

    earlier, earlier_seq = run.plan, run.plan_seq
    try:
        if run.driver.writes:
            record(scope, changed)
        else:
            changed(state)
    except BadInput:
        run.plan, run.plan_seq = earlier, earlier_seq
        raise
    return cast("Plan", run.plan)


def _with_edits(before: Plan, event: AnyEvent, after: Plan, edited: Plan) -> tuple[AnyEvent, Plan]:
    """The plan of the code, merged with the changes that somebody else made since the code last
    looked. A person who edits it knows what the code said, so their word counts."""
    if isinstance(event, PlanProgressed):
        return event, with_status(edited, event.id, event.status)
    after = merged_for_ours(before, edited, after)
    return replace(cast("Planned", event), items=recorded(after)), after


def current() -> Current:
    """The task and the call that the code runs in.

    >>> from holdfast import Holdfast, step
    >>> @step
    ... def where() -> str:
    ...     return f"{current().task_id} {current().path} try {current().attempt}"
    >>> @task
    ... def look() -> str:
    ...     return where()
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(look, id="look-1")
    'look-1 1 try 1'
    """
    scope = inside("current()")
    call = scope.call
    if call is None:
        version = scope.run.log.state.version
        return Current(scope.run.task_id, scope.path, "", 0, IdempotencyKey(), None, version)
    return Current(
        scope.run.task_id,
        call.path,
        call.name,
        call.attempts[-1].number,
        IdempotencyKey(call.key),
        call.at,
        scope.run.log.state.version,
    )


def note(text: str, data: Any = UNSET) -> None:
    """Record something worth remembering. A replay does not record it again.

    Notes have no place in the order of calls: adding one to the code changes nothing else.

    >>> from holdfast import Holdfast
    >>> @task
    ... def look() -> None:
    ...     note("the lobby is closed", {"until": "Monday"})
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(look, id="look-2")
    ...     hf.task("look-2").notes[0].text
    'the lobby is closed'
    """
    must_be_texts("note()", text=text)
    scope = inside("note()")
    run = scope.run
    run.must_go_on_in(scope)
    redact = run.log.redact
    text = redact.text(text)  # first, so that not even the mark is made of a secret
    raw = b"" if data is UNSET else redact.data(plain(data))
    mark = scope.named_path(sha256(text.encode() + b"\0" + raw).hexdigest()[:16], "!")
    if mark in run.log.state.marks:
        return
    event = Noted(scope=scope.path, mark=mark, text=text, data=run.log.stow(raw) if raw else UNSET)
    record(scope, event)


def progress(text: str = "", *, done: float | None = None, total: float | None = None) -> None:
    """Say how far the task is, for those who watch it: `hf.task(id).follow()`, `holdfast log -f`.

    It is written, but not waited for; a replay does not say it again.

    >>> from holdfast import Holdfast
    >>> @task
    ... def index() -> None:
    ...     progress("indexed", done=3, total=10)
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(index, id="index-1")
    ...     hf.task("index-1").state.progress[""].done
    3.0
    """
    must_be_texts("progress()", text=text)
    scope = inside("progress()")
    number = scope.said = scope.said + 1
    name = scope.path
    if scope.call is not None and scope.call.path == scope.path:
        name = f"{name}#{scope.call.attempts[-1].number}"  # each attempt speaks for itself
    before = scope.run.log.state.progress.get(name)
    if (before is None or before.number < number) and scope.run.driver.writes:
        event = Progressed(scope=name, number=number, text=text, done=done, total=total)
        append(scope, event)


def patched(name: str) -> bool:
    """Whether to take the new way at a place where the code of a task was changed.

    True for tasks that had not come to this place when the change was deployed, and they stay on
    it; False for those that had, so that they go on as their log says.

    >>> from holdfast import Holdfast, step
    >>> @step
    ... def greet() -> str:
    ...     return "hi"
    >>> @task
    ... def polite() -> str:
    ...     if patched("ask-first"):
    ...         return greet() + "?"
    ...     return greet()
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(polite)
    'hi?'
    """
    must_be_texts("patched()", name=name)
    scope = inside("patched()")
    run = scope.run
    run.must_go_on_in(scope)
    mark = scope.named_path(name, "^")
    state = run.log.state
    if mark in state.marks:
        return True
    if _went_past(scope, state):
        return False
    record(scope, Patched(mark=mark))
    return True


def _went_past(scope: Scope, state: State) -> bool:
    """Whether the log holds anything of this strand that the code has not come to yet."""
    for path in (*state.calls, *state.inner):
        if scope_of(path) != scope.path:
            continue
        found = _NUMBERED.fullmatch(path.rpartition(".")[2])
        if found is not None:
            label, number = found.groups()
            made = (scope.named or {}).get(label, 0) if label else scope.calls
            if int(number) > made:
                return True
    return False


# `start`, inside a task: another task, which is its child.


class Child(Generic[R]):
    """A task that was started by another. In a sync task `result()`, in an async one `await` it.

    >>> Child.__name__
    'Child'
    """

    def __init__(self, scope: Scope, path: str, id: str, spec: Spec, starting: Any) -> None:
        self.id = id
        self._scope = scope
        self._path = path
        self._spec = spec
        self._starting = starting
        self._has_started: Any = None

    def result(self) -> R:
        """Wait for the child and return its result. A child that failed raises `StepFailed`."""
        if self._scope.is_async:
            raise BadInput(f"task {self.id!r}: in an async task a child is awaited")
        run: Run = self._scope.run
        run.must_go_on(self._path)
        run.driver.end_child(run, self._path)
        record = local.drive(await_child(self._path), run, self._path, local.nothing, local.nothing)
        return self._end(run, record)

    def __await__(self) -> Generator[Any, Any, R]:
        return self._aresult().__await__()

    async def _aresult(self) -> R:
        from holdfast.engines import async_driver as aio

        run: Run = self._scope.run
        await self.started()
        run.must_go_on(self._path)
        await run.driver.aend_child(run, self._path)
        flow = await_child(self._path)
        return self._end(run, await aio.drive(flow, run, self._path, aio.nothing, aio.nothing))

    async def started(self) -> Child[R]:
        """The child, when it was started. `await` does that too; this starts it and goes on."""
        import asyncio

        if self._starting is not None:
            starting, self._starting = self._starting, None
            self._has_started = asyncio.get_running_loop().create_future()
            try:
                await starting
            finally:
                self._has_started.set_result(None)
        elif self._has_started is not None:  # somebody else awaits it too
            await asyncio.wait([self._has_started])
        return self

    def _end(self, run: Run, record: Any) -> R:
        result: R = conclude(run, self._spec, record)
        return result


@overload
def start(
    fn: Callable[..., Awaitable[R]], /, *args: Any, id: str | None = ...,
    on_cancel: OnCancel = ..., **kwargs: Any
) -> Child[R]: ...  # fmt: skip
@overload
def start(
    fn: Callable[..., R], /, *args: Any, id: str | None = ..., on_cancel: OnCancel = ...,
    **kwargs: Any
) -> Child[R]: ...  # fmt: skip
def start(
    fn: Callable[..., Any],
    /,
    *args: Any,
    id: str | None = None,
    on_cancel: OnCancel = "cancel",
    **kwargs: Any,
) -> Child[Any]:
    """Start another task from inside a task: a child, with a log of its own.

    A worker drives it, or the parent does while it waits: `start(f, x).result()`, in an async task
    `await start(f, x)`. Left without an id it is called after its parent and its place there. When
    the parent is cancelled its children are too, unless `on_cancel="leave"`.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def research(topic: str) -> str:
    ...     return f"all about {topic}"
    >>> @task
    ... def report(topics: list[str]) -> list[str]:
    ...     children = [start(research, topic) for topic in topics]
    ...     return [child.result() for child in children]
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(report, ["eels", "tides"], id="report-1"), [t.id for t in hf.tasks()]
    (['all about eels', 'all about tides'], ['report-1', 'report-1.1', 'report-1.2'])
    """
    spec = task_spec(fn)
    if on_cancel not in ("cancel", "leave"):
        raise BadInput(f"start(on_cancel={on_cancel!r:.60}) must be 'cancel' or 'leave'")
    scope = inside("start()")
    run: Run = scope.run
    must_be_open(scope)
    path = scope.next_path()
    data = spec.signature.dump(args, kwargs)
    child = checked_id(id if id is not None else f"{run.log.state.name}.{path}")
    if path not in run.log.state.calls:
        run.log.redact.must_be_readable(spec.name, spec.signature, data)
    if scope.is_async:
        return Child(scope, path, child, spec, _astart(run, path, spec, data, child, on_cancel))

    def flow(asked: Asked, record: Call | None) -> Flow:
        return start_child(asked, record, child, data, on_cancel)

    record = _record(local.operate(run, path, spec, data, flow))
    return Child(scope, path, record.child, spec, None)


async def _astart(
    run: Run, path: str, spec: Spec, data: bytes, child: str, on_cancel: OnCancel
) -> None:
    from holdfast.engines import async_driver as aio

    def flow(asked: Any, record: Call | None) -> Any:
        return start_child(asked, record, child, data, on_cancel)

    await aio.operate(run, path, spec, data, flow, lambda run, record: None)


def _record(ended: Any) -> Call:
    if not isinstance(ended, Call):
        raise TypeError(f"starting a child ended with {ended!r}")
    return ended
