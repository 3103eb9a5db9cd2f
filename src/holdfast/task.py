"""`@task`, and what a task's function can say while it runs."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from msgspec import UNSET, Struct

from holdfast.codec import shape_of, shape_of_value
from holdfast.engines.execution import beyond, must_have_restored
from holdfast.errors import BadInput, CodeChanged, HoldfastError, NotATask, Undecodable
from holdfast.events import AnyEvent, Decided, Noted, Patched, Planned, Progressed
from holdfast.scope import Scope, inside
from holdfast.spec import IdempotencyKey, Spec, make_spec, registry
from holdfast.state import State, scope_of
from holdfast.step import mark_async
from holdfast.words import must_be_texts

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

RESERVED = frozenset({"id", "user", "session", "labels"})
"""Options of `Holdfast.run`, which a task's own parameters can't be named."""

_any = shape_of(Any)

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
    taken = RESERVED.intersection(spec.signature.names)
    if taken:
        raise BadInput(
            f"{spec.name}: hf.run has an option {sorted(taken)[0]!r} of its own: "
            f"rename the task's parameter"
        )
    registry.add(spec)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    if spec.is_async:
        mark_async(call)
    call.holdfast_spec = spec  # type: ignore[attr-defined]
    return call


def task_spec(fn: Any) -> Spec:
    """The spec of a decorated task, or `NotATask`."""
    spec = getattr(fn, "holdfast_spec", None)
    if not isinstance(spec, Spec) or spec.kind != "task":
        name = getattr(fn, "__name__", None) or repr(fn)
        kind = f"a {spec.kind}, not a task" if isinstance(spec, Spec) else "not a task"
        raise NotATask(f"{name} is {kind}: decorate it with @task")
    return spec


class Current(Struct, frozen=True):
    """Where the running code stands: which task, which call, which try of it."""

    task_id: str
    path: str
    name: str
    attempt: int
    key: IdempotencyKey
    at: datetime | None
    version: int
    """That of the code which started the task."""

    def plan(self, items: Iterable[str]) -> None:
        """Say what the task intends to do, so that "step 6 of 9" can be told.

        The newest plan counts; a replay does not say it again.
        """
        if isinstance(items, str):
            raise BadInput("a plan is a list of texts, not one text")
        scope = inside("current().plan")
        mark = scope.named_path("plan", "!")
        if mark not in scope.run.log.state.marks:
            text = scope.run.log.redact.text
            _record(scope, Planned(items=tuple(text(str(item)) for item in items), mark=mark))


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


def decide(name: str, choice: T, *, options: Any = UNSET, because: str = "") -> T:
    """Record what was chosen at a branch point, from what, and why; returns the choice.

    On a replay the recorded choice is returned, so a choice that a model or a person made stays.

    >>> from holdfast import Holdfast
    >>> @task
    ... def pick() -> str:
    ...     return decide("room", "attic", options=["attic", "cellar"], because="has a window")
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(pick, id="pick-1")
    ...     hf.task("pick-1").decisions[0].because
    'has a window'
    """
    must_be_texts("decide()", name=name, because=because)
    scope = inside("decide()")
    run = scope.run
    run.must_go_on_in(scope)
    path = scope.named_path(name, "?")
    must_have_restored(run, path, f"decides {name!r}")
    shape = shape_of_value(choice)
    record = run.log.state.calls.get(path)
    if record is None:
        if run.is_rehearsal:
            run.park(path, beyond(run, path))
        raw, choice = shape.settle(choice)
        event = Decided(
            path=path,
            name=name,
            choice=run.log.stow(raw),
            options=UNSET
            if options is UNSET
            else run.log.stow(run.log.redact.data(_plain(options))),
            because=because,
        )
        _record(scope, event)
        return choice
    try:
        return cast("T", shape.load(run.log.fetch(record.result)))
    except Undecodable as error:
        asked = f"chooses something of another type ({error})"
        raise run.halted(CodeChanged(run.task_id, path, f"the decision {name!r}", asked)) from None


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
    raw = b"" if data is UNSET else redact.data(_plain(data))
    mark = scope.named_path(sha256(text.encode() + b"\0" + raw).hexdigest()[:16], "!")
    if mark in run.log.state.marks:
        return
    event = Noted(scope=scope.path, mark=mark, text=text, data=run.log.stow(raw) if raw else UNSET)
    _record(scope, event)


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
    if (before is None or before.number < number) and not scope.run.is_rehearsal:
        event = Progressed(scope=name, number=number, text=text, done=done, total=total)
        _append(scope, event)


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
    _record(scope, Patched(mark=mark))
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


def _record(scope: Scope, event: AnyEvent) -> None:
    if scope.run.is_rehearsal:
        return
    _append(scope, event)
    scope.run.sync()


def _append(scope: Scope, event: AnyEvent) -> None:
    try:
        scope.run.log.append(event, scope)
    except BadInput:
        raise  # the caller's mistake, and nothing was written
    except HoldfastError as error:
        scope.run.halt(error)


def _plain(value: Any) -> bytes:
    # Options and data are for people and views: classes are shown as their fields.
    try:
        return _any.dump(value)
    except HoldfastError:
        import msgspec

        try:
            return msgspec.json.encode(value, enc_hook=repr)
        except (UnicodeError, ValueError) as error:
            raise BadInput(f"{value!a:.60} can't be recorded: {error}") from None
