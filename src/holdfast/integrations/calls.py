"""Calls of a framework as steps and tools of the task around them.

A framework hands over a name, the arguments and a coroutine to run. Here they become a call of the
running task: it has a path, a record, retries, and, as a tool, a key, an intent and a policy for
doubt. Where no task runs, `Piece` makes one of a piece of the framework's program. Integrations use
this module, and users don't.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from copy import copy
from keyword import iskeyword
from typing import Any, Literal, NoReturn, ParamSpec, TypedDict, TypeVar, cast
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from holdfast.api.app import Holdfast
from holdfast.api.steps import wrapped
from holdfast.codec import shape_of
from holdfast.codec.signature import Signature, hints_of
from holdfast.core.events import QuestionAnswered, Settled
from holdfast.core.scope import Scope, inside, scope_var
from holdfast.core.spec import Doubt, Retry, Spec, registry
from holdfast.engines import async_driver, streams
from holdfast.engines.execution import must_be_open
from holdfast.engines.functions import make_spec
from holdfast.errors import (
    BadInput,
    InDoubt,
    StepFailed,
    Suspend,
    TaskReleased,
    TaskWaiting,
    Unanswered,
    Unserializable,
)
from holdfast.log.artifacts import Artifact, kept
from holdfast.log.reading import read_events, stream_of

P = ParamSpec("P")
R = TypeVar("R")

Kind = Literal["step", "tool"]
"""Whether a call touches the outside world."""


class CallOptions(TypedDict, total=False):
    """How one call of a framework is journaled: the options of `@tool`, or of `@step`.

    `kind` is `"tool"` if it is left out. A `"step"` runs again after a crash, without a question.
    """

    kind: Kind
    retry: Retry | None
    timeout_s: float | None
    in_doubt: Doubt | None
    check: Callable[..., Any] | None
    key_ttl_s: float | None
    approve: bool


_NAMES = re.compile(r"[^\w-]+")
_OF_TOOLS = ("in_doubt", "check", "key_ttl_s", "approve")


def in_task() -> bool:
    """Whether the code runs inside a task."""
    return scope_var.get() is not None


def call_name(*parts: str) -> str:
    """A name that a step may have, made of names that frameworks allow.

    >>> call_name("support agent", "model.request")
    'support_agent_model_request'
    """
    joined = "_".join(_NAMES.sub("_", part).strip("_") for part in parts if part)
    return joined or "nameless"


def checked_options(what: str, given: object) -> CallOptions:
    """Options as somebody wrote them into a framework's metadata; `BadInput` if they are none."""
    if not isinstance(given, Mapping):
        raise BadInput(f"{what}: its Holdfast options must be a dict, not {type(given).__name__}")
    known = CallOptions.__annotations__
    unknown = sorted(str(name) for name in given if name not in known)
    if unknown:
        raise BadInput(f"{what}: Holdfast has no option {unknown[0]!r}; it has {', '.join(known)}")
    kind = given.get("kind", "tool")
    if kind not in ("step", "tool"):
        raise BadInput(f"{what}: kind={kind!r:.60} must be 'step' or 'tool'")
    useless = [name for name in _OF_TOOLS if kind == "step" and given.get(name)]
    if useless:
        raise BadInput(f"{what}: {useless[0]} is an option of a tool, and it is a step")
    return cast("CallOptions", dict(given))


# Where calls stand.
#
# A framework makes asyncio tasks of its own, and their number changes with its version. If calls
# were counted in those, an upgrade would move them to other places, and a resumed task would not
# find its effects there. So each run of an agent counts its own calls: requests to the model in
# their order, and tools by the id that the model gave the call.


def begin_run(name: str) -> Scope:
    """A place for the calls of one run of an agent, under the code that runs it."""
    scope = inside(f"a run of {name}")
    made = scope.branch(call_name(name))
    made.is_async = True
    return made


def base_scope(what: str) -> Scope:
    """The strand of the task's function, or of the step that the code is in, whichever asyncio task
    of a framework it has come to. Calls that stand there need labels of their own."""
    scope = inside(what)
    while scope.parent is not None and scope.parent.call is scope.call:
        scope = scope.parent
    return scope


def place_of(run: Scope, label: str) -> str:
    """The path of a call that is known by a label, such as a tool call by its id."""
    return run.named_path(label[:64], "~") + ".1"


@contextmanager
def standing_at(run: Scope, label: str) -> Iterator[None]:
    """Let the calls that code makes by itself stand where a call with a label would."""
    token = scope_var.set(run.branch(label[:64]))
    try:
        yield
    finally:
        scope_var.reset(token)


async def journaled(
    scope: Scope,
    path: str,
    name: str,
    arguments: Mapping[str, Any],
    body: Callable[[], Awaitable[Any]],
    options: CallOptions,
) -> Any:
    """Run `body` as the call at a path, or return what the log holds of it.

    The arguments say what the call is: on a resume they must be what they were.
    """
    must_be_open(scope)
    given, spec = _called(name, arguments, options)
    data = spec.signature.dump_call((), given, scope.run.log.growing)

    async def run(**arguments: Any) -> Any:
        return await body()

    return await async_driver.call_at(scope.run, path, replace(spec, fn=run), data)


def streamed(
    scope: Scope,
    name: str,
    arguments: Mapping[str, Any],
    body: Callable[[], AsyncIterator[Any]],
    options: CallOptions,
) -> AsyncIterator[Any]:
    """The parts of a call that streams, as plain data, in the order of the run's calls. They come
    as they are made, and on a resume from the log."""

    async def run(**arguments: Any) -> Any:
        async for part in body():
            yield part

    given, spec = _called(name, arguments, options)
    spec = replace(spec, fn=run, streams=True, signature=_listing(spec.signature))
    parts: AsyncIterator[Any] = streams.stream(scope, spec, (), given)
    return parts


def _listing(signature: Signature) -> Signature:
    made = copy(signature)
    made.returns = shape_of(list[Any])
    return made


def _called(
    name: str, arguments: Mapping[str, Any], options: CallOptions
) -> tuple[dict[str, Any], Spec]:
    """A call of a function that has these arguments as its parameters. A model may give some that
    no function can have, such as `from`: then they are one."""
    registry.add_foreign(name)
    given = dict(arguments)
    if not all(each.isidentifier() and not iskeyword(each) for each in given):
        given = {"arguments": given}
    typed = tuple((each, _type_of(value)) for each, value in given.items())
    return given, _spec(name, typed, _Options(options))


def _type_of(value: Any) -> Any:
    return Artifact if isinstance(value, Artifact) else Any


class _Options:
    """Options that can be looked up: two are the same if they hold the same things."""

    def __init__(self, given: CallOptions) -> None:
        self.given = given
        self._items = tuple(sorted((key, id(value)) for key, value in given.items()))

    def __hash__(self) -> int:
        return hash(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Options) and other._items == self._items


@functools.lru_cache(maxsize=512)
def _spec(name: str, parameters: tuple[tuple[str, Any], ...], options: _Options) -> Spec:
    """The spec of a function with these parameters. They are kept one by one, so that the log
    holds a list that grows, such as a conversation, by what is new in it."""

    async def call() -> Any: ...

    listed = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each, _ in parameters]
    call.__annotations__ = dict(parameters)
    call.__signature__ = inspect.Signature(listed)  # type: ignore[attr-defined]
    given: dict[str, Any] = {**options.given}
    kind: Kind = given.pop("kind", "tool")
    return make_spec(call, kind, name=name, **given)


def settled(value: Any) -> Any:
    """A value in the form in which it is compared on a resume: a set has no order of its own.

    >>> settled({"tags": {"b", "a"}})
    {'tags': ['a', 'b']}
    """
    if isinstance(value, Mapping):
        return {key: settled(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted((settled(each) for each in value), key=repr)
    if isinstance(value, list | tuple):
        return [settled(each) for each in value]
    return value


def plain(value: Any) -> Any:
    """A value as JSON that is the same each time it is written; for frameworks with pydantic."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(settled(value))
    except PydanticSerializationError as error:
        raise Unserializable(f"it can't be written to the log: {error}") from None


_kept: WeakKeyDictionary[Any, dict[bytes, Artifact]] = WeakKeyDictionary()


def kept_once(data: bytes, name: str) -> Artifact:
    """Data that many calls of the running task are made with, such as the tools of an agent: it
    stands in the store once, and a call names it."""
    run = inside("a call of a model").run
    known = _kept.setdefault(run, {})
    if data not in known:
        known[data] = kept(run.log.store, [data], name)
    return known[data]


def for_models(fn: Callable[P, R], unless: tuple[type[BaseException], ...]) -> Callable[P, R]:
    """A decorated tool as a framework is to see it: without the parameter that Holdfast fills in.

    An error of a type in `unless` speaks to the model, so it is raised as itself and not retried.
    """
    spec = getattr(fn, "holdfast_spec", None)
    if not isinstance(spec, Spec) or spec.kind == "task" or spec.streams:
        name = getattr(fn, "__name__", None) or repr(fn)
        raise BadInput(f"{name:.60} is no tool of ours: decorate it with @tool or @step")
    call = wrapped(replace(spec, retry=replace(spec.retry, unless=(*spec.retry.unless, *unless))))
    by_name = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in unless}

    def raise_as_itself(failed: StepFailed) -> NoReturn:
        kind = by_name.get(f"{failed.failure.module}.{failed.failure.type}")
        if kind is None:
            raise failed
        raise kind(failed.failure.message) from failed

    async def acall_tool(*args: Any, **kwargs: Any) -> Any:
        try:
            return await call(*args, **kwargs)
        except StepFailed as failed:
            raise_as_itself(failed)

    def call_tool(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except StepFailed as failed:
            raise_as_itself(failed)

    shown: Any = acall_tool if spec.is_async else call_tool
    plain = inspect.signature(spec.fn)
    left = [each for name, each in plain.parameters.items() if name not in spec.signature.injected]
    shown.__signature__ = plain.replace(parameters=left)
    hints = hints_of(spec.fn)
    shown.__annotations__ = {n: h for n, h in hints.items() if n not in spec.signature.injected}
    shown.__name__ = shown.__qualname__ = spec.name
    shown.__doc__, shown.__module__ = spec.fn.__doc__, spec.fn.__module__
    shown.holdfast_spec = spec
    return cast("Callable[P, R]", shown)


# Pieces of a program that a framework runs again by itself.
#
# A framework runs a function of the user (a node, a tool call, a model call) and runs it again
# after a crash. `Piece` makes one run of it a task of ours with an id that is the same the second
# time, so that what it did is in the log. Where the framework itself runs inside a task of ours,
# the piece is a branch of that task, named so that the order in which pieces run does not matter.
#
# A function that raises is not a failed task: the framework decides whether it is tried again. So
# the task is released, and the next run goes on with it.


_LONGEST = 200
_BY = "interrupt"
"""The person who answered, where the framework passes on what a person said."""

Settle = Callable[[dict[str, Any]], Any]
"""Asks a person through the framework: takes what to show, returns the answer, or stops."""


class Piece:
    """One run of a function, as a task of ours, or as a branch of the task that it runs in."""

    def __init__(self, hf: Holdfast, name: str, id: str, session: str = "") -> None:
        self._hf = hf
        self._name = call_name(name)
        self._id = id if len(id) <= _LONGEST else _cut(id)
        self._session = session
        self._raised: BaseException | None = None
        self._has_passed = False

    def run(self, body: Callable[[], Any], settle: Settle) -> Any:
        """The result of the body, as plain data: now, or when it ran before."""
        if (scope := scope_var.get()) is not None:
            return self._branch(scope, body)
        task = self._task(body)
        while True:
            try:
                return self._options().run(task)
            except TaskReleased as released:
                raise self._raised or released from None
            except TaskWaiting as waiting:
                self._settle(waiting, settle)

    async def arun(self, body: Callable[[], Awaitable[Any]], settle: Settle) -> Any:
        """The same for async code."""
        if (scope := scope_var.get()) is not None:
            return await self._branch(scope, body)
        task = self._task(body)
        while True:
            try:
                return await self._options().arun(task)
            except TaskReleased as released:
                raise self._raised or released from None
            except TaskWaiting as waiting:
                self._settle(waiting, settle)

    def _settle(self, waiting: TaskWaiting, settle: Settle) -> None:
        """Ask a person. A framework hands out its answers in their order, and those of an earlier
        run of the piece come first: they are in our log, so they are passed over."""
        if not self._has_passed:
            self._has_passed = True
            for event in read_events(self._hf.store, stream_of(waiting.task_id)):
                if isinstance(event, QuestionAnswered | Settled) and event.by == _BY:
                    settle({"answered": True})
        _ask_person(self._hf, waiting, settle)

    def _options(self) -> Any:
        return self._hf.options(id=self._id, session=self._session)

    def _task(self, body: Callable[[], Any]) -> Any:
        def release(error: Exception) -> Suspend:
            self._raised = error
            why = f"task {self._id!r}: {type(error).__name__}: {error}"
            return Suspend(TaskReleased(self._id, why))

        def piece() -> Any:
            try:
                return body()
            except Exception as error:
                raise release(error) from error

        async def apiece() -> Any:
            try:
                return await body()
            except Exception as error:
                raise release(error) from error

        fn: Any = apiece if inspect.iscoroutinefunction(body) else piece
        # Not in the registry: no worker has what the framework gives the function.
        fn.holdfast_spec = make_spec(fn, "task", name=self._name)
        return fn

    def _branch(self, scope: Scope, body: Callable[[], Any]) -> Any:
        strand = scope.strand(scope.named_path(f"{self._name} {_short(self._id)}", "~"))
        strand.fresh = False
        context = copy_context()
        context.run(scope_var.set, strand)
        if not inspect.iscoroutinefunction(body):
            return context.run(body)

        async def within() -> Any:
            token = scope_var.set(strand)
            try:
                return await body()
            finally:
                scope_var.reset(token)

        return within()


def journaled_call(
    name: str,
    kind: Kind,
    body: Callable[[Any], Any],
    policy: CallOptions | None = None,
) -> Callable[[Any], Any]:
    """A function of plain data that returns plain data, as a step or a tool of ours."""
    options: dict[str, Any] = {**(policy or {})}
    kind, name = options.pop("kind", kind), call_name(name)
    registry.add_foreign(name)

    def call(args: Any) -> Any:
        return body(args)

    async def acall(args: Any) -> Any:
        return await body(args)

    fn = acall if inspect.iscoroutinefunction(body) else call
    made: Callable[[Any], Any] = wrapped(make_spec(fn, kind, name=name, **options))
    return made


def _ask_person(hf: Holdfast, waiting: TaskWaiting, settle: Settle) -> None:
    """Ask a person what a task waits for, and tell the task. Other waits are raised."""
    match waiting:
        case InDoubt():
            answer = settle(
                {
                    "in_doubt": waiting.name,
                    "task": waiting.task_id,
                    "path": waiting.path,
                    "key": waiting.key,
                    "why": waiting.why,
                    "answer_with": {"happened": "true or false", "result": "if it happened"},
                }
            )
            if not isinstance(answer, Mapping) or not isinstance(answer.get("happened"), bool):
                raise BadInput(
                    f'the call {waiting.name} is in doubt: resume with {{"happened": True, '
                    f'"result": …}} or {{"happened": False}}, not {answer!a:.80}'
                )
            hf.resolve(
                waiting.task_id,
                waiting.path,
                happened=answer["happened"],
                result=answer.get("result"),
                by=_BY,
            )
        case Unanswered():
            answer = settle({"question": str(waiting), "task": waiting.task_id})
            hf.answer(waiting.task_id, answer, by=_BY)
        case _:
            raise waiting


def _cut(id: str) -> str:
    return f"{id[:_LONGEST]}~{hashlib.sha256(id.encode()).hexdigest()[:16]}"


def _short(id: str) -> str:
    return hashlib.sha256(id.encode()).hexdigest()[:12]
