"""The things that a task waits for and reads from the world around it: time, chance, people and
messages.

All of it is in the log or derived from the call's place, so a replay sees what the first run saw.
In an async task `sleep`, `ask` and `receive` are awaited.
"""

from __future__ import annotations

import typing
import weakref
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar, overload
from uuid import UUID

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from holdfast.api.steps import step
from holdfast.codec import Shape, shape_of, shape_of_value, without_veto
from holdfast.codec.scalars import decode, name_of
from holdfast.codec.secret import Secret
from holdfast.codec.tags import has_tags
from holdfast.core.events import MessageAwaited, Observed, QuestionAsked
from holdfast.core.journal import Asked, Flow, describe
from holdfast.core.journal import ask as ask_flow
from holdfast.core.journal import receive as receive_flow
from holdfast.core.journal import sleep as sleep_flow
from holdfast.core.scope import Scope, inside
from holdfast.core.spec import Spec
from holdfast.core.state import Call, State
from holdfast.core.words import must_be_texts
from holdfast.engines import sync_driver as local
from holdfast.engines.control import message_name
from holdfast.engines.execution import conclude, family_of, must_be_open, seen_before
from holdfast.engines.functions import make_spec
from holdfast.engines.run import Run
from holdfast.errors import BadInput, CodeChanged, HoldsSecret, Undecodable, Unserializable

_times = shape_of(datetime)
_LONGEST_QUESTION = 16 * 1024
_LONGEST_SCHEMA = 16 * 1024


class Done:
    """The result of `sleep` in a sync task: it is over, and may be awaited all the same."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


def sleep(seconds: float) -> Awaitable[None]:
    """Sleep for a while that outlives the process. In an async task: `await sleep(…)`.

    The time to wake is in the log, so after a crash only the rest is slept.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def nap() -> str:
    ...     sleep(0.01)
    ...     return "awake"
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(nap)
    'awake'
    """
    if not 0 <= seconds < float("inf"):
        raise BadInput(f"sleep({seconds}): give a number of seconds, 0 or more")
    flow = _Operation(_SLEEP, {"seconds": float(seconds)})
    done = flow.perform(lambda asked, record: sleep_flow(asked, record, seconds))
    return done if done is not None else Done()


def now() -> datetime:
    """The time, with its zone (UTC); a replay sees the time of the first run.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def when() -> bool:
    ...     return now() <= now()
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(when)
    True
    """
    scope = inside("now()")
    run: Run = scope.run
    run.must_go_on_in(scope)
    path = scope.named_path("now", "=")
    record = seen_before(run, path)
    if record is None:
        at = run.log.clock()
        if run.driver.writes:
            # Not synced: nothing that followed from it can be durable without it.
            run.append(Observed(path=path, name="now", value=Raw(_times.dump(at))))
        return at
    seen: datetime = _times.load(run.log.fetch(_raw(record)))
    return seen


def uuid() -> UUID:
    """A unique id that stays the same on every replay, derived from the task and the call's place.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def two() -> bool:
    ...     return uuid() == uuid()
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(two)
    False
    """
    return UUID(bytes=_seed("uuid")[:16], version=4)


def random() -> float:
    """A number from 0 up to 1 that stays the same on every replay; `random.random`, made durable.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def roll() -> bool:
    ...     return 0 <= random() < 1
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(roll)
    True
    """
    return (int.from_bytes(_seed("random")[:8]) >> 11) * 2.0**-53


T = TypeVar("T")


@overload
def ask(
    question: str, *, id: str | None = ..., timeout_s: float | None = ..., default: str = ...
) -> str: ...
@overload
def ask(
    question: str,
    type: type[T],
    *,
    id: str | None = ...,
    timeout_s: float | None = ...,
    default: T = ...,
) -> T: ...
@overload
def ask(
    question: str,
    type: Any,
    *,
    id: str | None = ...,
    timeout_s: float | None = ...,
    default: Any = ...,
) -> Any: ...
def ask(
    question: str,
    type: Any = str,
    *,
    id: str | None = None,
    timeout_s: float | None = None,
    default: Any = UNSET,
) -> Any:
    """Ask a person. The task waits, and the process may end; `hf.answer` lets it go on.

    The answer is of the given type. When `timeout_s` is over it is the `default`, or the task sees
    a `StepFailed` if there is none. In an async task it is awaited: `await ask(…)`, or, for type
    checkers, `await aask(…)`.

    >>> from holdfast import Holdfast, Unanswered, task
    >>> @task
    ... def book_or_not() -> str:
    ...     return "booked" if ask("Book it?", bool, id="book") else "left it"
    >>> with Holdfast("memory://") as hf:
    ...     try:
    ...         hf.run(book_or_not, id="book-2")
    ...     except Unanswered:
    ...         hf.answer("book-2", True, question="book")
    ...     hf.resume("book-2")
    'booked'
    """
    scope = inside("ask()")
    if timeout_s is not None and not timeout_s > 0:
        raise BadInput(f"ask(timeout_s={timeout_s}): give a number of seconds above 0")
    if scope.call is not None and scope.call.kind == "tool":
        # It would be in doubt when the answer comes: was the effect made before the question?
        raise BadInput(
            f"{scope.call.name} is a tool and asks a question: ask before the tool is called"
        )
    _must_be_askable(question, type)
    shape = shape_of(type)
    operation = _Operation(_ASK, {"question": question, "expects": name_of(type)}, shape)
    asked = QuestionAsked(
        path="",
        id=id or "",
        question=question,
        args_hash="",
        expects=name_of(type),
        schema=_schema(type),
        default=_stowed(scope, "ask()", shape, default),
    )

    def flow(call: Asked, record: Call | None) -> Flow:
        placed = replace(asked, path=call.path, id=id or call.path, args_hash=call.args_hash)
        return ask_flow(call, record, placed, timeout_s, partial(_misfit, scope, shape))

    return operation.perform(flow)


def _schema(type: Any) -> Raw | UnsetType:
    """The schema of an answer, for those who make a form of it. The name says it all for plain
    types, and a schema that is too long is left out."""
    if type in (str, bool, int, float, list[str], list[int]):
        return UNSET
    from holdfast.codec.classes import schema_of

    data = msgspec.json.encode(schema_of(type))
    return Raw(data) if len(data) <= _LONGEST_SCHEMA else UNSET


@overload
def aask(
    question: str, *, id: str | None = ..., timeout_s: float | None = ..., default: str = ...
) -> Awaitable[str]: ...
@overload
def aask(
    question: str,
    type: type[T],
    *,
    id: str | None = ...,
    timeout_s: float | None = ...,
    default: T = ...,
) -> Awaitable[T]: ...
@overload
def aask(
    question: str,
    type: Any,
    *,
    id: str | None = ...,
    timeout_s: float | None = ...,
    default: Any = ...,
) -> Awaitable[Any]: ...
def aask(question: str, type: Any = str, **options: Any) -> Awaitable[Any]:
    """`ask` in an async task, as type checkers know it: `await aask("Book it?", bool)` is a bool.

    >>> import asyncio
    >>> from holdfast import Holdfast, Unanswered, task
    >>> @task
    ... async def booking() -> str:
    ...     return "booked" if await aask("Book it?", bool) else "left it"
    >>> with Holdfast("memory://") as hf:
    ...     try:
    ...         hf.run(booking, id="booking-2")
    ...     except Unanswered:
    ...         hf.answer("booking-2", True)
    ...     hf.run(booking, id="booking-2")
    'booked'
    """
    if not inside("aask()").is_async:
        raise BadInput("aask() is awaited, in an async task: in a sync one use ask()")
    awaited: Awaitable[Any] = ask(question, type, **options)
    return awaited


@overload
def receive(name: str, *, timeout_s: float | None = ..., default: Any = ...) -> Any: ...
@overload
def receive(name: str, type: type[T], *, timeout_s: float | None = ..., default: T = ...) -> T: ...
@overload
def receive(name: str, type: Any, *, timeout_s: float | None = ..., default: Any = ...) -> Any: ...
def receive(
    name: str, type: Any = Any, *, timeout_s: float | None = None, default: Any = UNSET
) -> Any:
    """Wait for a message of a name, sent by `hf.send`, by `send` or by `holdfast send`.

    Messages of one name come in the order in which they were sent, each to one call; those that
    were sent before the task asks are waiting for it. The message is of the given type: one that
    does not fit is refused, which the log says, and the next one is waited for. When `timeout_s` is
    over it is the `default`, or the task sees a `StepFailed` if there is none. The wait outlives
    the process. In an async task it is awaited: `await receive(…)`, or, for type checkers,
    `await areceive(…)`.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def parcel() -> str:
    ...     return f"left at {receive('where', str)}"
    >>> with Holdfast("memory://") as hf:
    ...     handle = hf.start(parcel, id="parcel-1")
    ...     _ = hf.send("parcel-1", "where", "the door")
    ...     hf.resume("parcel-1")
    'left at the door'
    """
    scope = inside("receive()")
    if timeout_s is not None and not timeout_s > 0:
        raise BadInput(f"receive(timeout_s={timeout_s}): give a number of seconds above 0")
    if scope.call is not None and scope.call.kind == "tool":
        raise BadInput(
            f"{scope.call.name} is a tool and waits for a message: receive it before the tool is "
            f"called"
        )
    message_name(name)
    _must_be_no_secret("receive()", type)
    shape = shape_of(type)
    expects = name_of(type)
    given = _stowed(scope, "receive()", shape, default)
    operation = _Operation(_RECEIVE, {"name": name, "expects": expects}, shape)

    def flow(call: Asked, record: Call | None) -> Flow:
        awaited = MessageAwaited(
            path=call.path, name=name, args_hash=call.args_hash, expects=expects, default=given
        )
        return receive_flow(call, record, awaited, timeout_s, partial(_misfit, scope, shape))

    return operation.perform(flow)


@overload
def areceive(name: str, *, timeout_s: float | None = ..., default: Any = ...) -> Awaitable[Any]: ...
@overload
def areceive(
    name: str, type: type[T], *, timeout_s: float | None = ..., default: T = ...
) -> Awaitable[T]: ...
@overload
def areceive(
    name: str, type: Any, *, timeout_s: float | None = ..., default: Any = ...
) -> Awaitable[Any]: ...
def areceive(name: str, type: Any = Any, **options: Any) -> Awaitable[Any]:
    """`receive` in an async task, as type checkers know it: `await areceive("n", int)` is an int.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... async def counting_by() -> int:
    ...     return await areceive("by", int) + 1
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.start(counting_by, id="counting-1"), hf.send("counting-1", "by", 2)
    ...     hf.resume("counting-1")
    3
    """
    if not inside("areceive()").is_async:
        raise BadInput("areceive() is awaited, in an async task: in a sync one use receive()")
    awaited: Awaitable[Any] = receive(name, type, **options)
    return awaited


def send(task_id: str, name: str, value: Any) -> bool:
    """Send a message from one task to another, once, whatever happens to this process.

    Outside of a task use `hf.send`. Returns False if the log shows that it was sent before.

    >>> from holdfast import Holdfast, task
    >>> @task
    ... def waiter() -> int:
    ...     return receive("tip", int)
    >>> @task
    ... def guest() -> None:
    ...     send("waiter-1", "tip", 5)
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.start(waiter, id="waiter-1"), hf.run(guest)
    ...     hf.resume("waiter-1")
    5
    """
    inside("send()")
    return _send(task_id, name, _sent(value))


def _sent(value: Any) -> Any:
    """A message as a step takes one: an object of a class is the data that its type writes."""
    try:
        shape_of(Any).dump(value)
        return value
    except HoldsSecret:
        raise
    except Unserializable:
        data = decode(shape_of_value(value).dump(value))
        if has_tags(data):  # it would not be the same object for `receive`
            raise
        return data


@step(name="holdfast_send")  # not "send": a user may have a step of that name
def _send(task_id: str, name: str, value: Any) -> bool:
    scope = inside("send()")
    run: Run = scope.run
    key = f"{run.log.state.name}:{scope.path}"
    return family_of(run).send(task_id, name, value, key, f"task {run.task_id!r}")


def _misfit(scope: Scope, shape: Shape, record: Call) -> str:
    if _has_gone_on(scope, record):
        return ""  # it was let in: to ask again would change what later calls were made of
    try:
        shape.accept(scope.run.log.fetch(_raw(record)))
    except Undecodable as error:
        return str(error)
    return ""


def _has_gone_on(scope: Scope, record: Call) -> bool:
    """Whether the task made a call because of an answer or a message, which it then took.

    That is a later call of the same strand which began after the answer came. A branch counts if
    it began after the answer too: others of its calls may have been made meanwhile.
    """
    prefix = f"{scope.path}." if scope.path else ""
    number = int(record.path[len(prefix) :])
    branches: set[str] = set()
    for call in reversed(scope.run.log.state.calls.values()):
        if not call.path.startswith(prefix):
            continue
        place = call.path[len(prefix) :].partition(".")[0]
        if call.seq <= record.ended_seq:
            if not branches:
                return False
            branches.discard(place)
        elif not place.isdigit():
            branches.add(place)
        elif int(place) > number:
            return True
    return bool(branches)


def _stowed(scope: Scope, what: str, shape: Shape, default: Any) -> Any:
    """The default of a wait as it goes into the log."""
    if default is UNSET:
        return UNSET
    try:
        return scope.run.log.stow(shape.settle(default)[0])
    except Unserializable as error:
        expected = name_of(shape.annotation)
        hint = f"; to allow None, expect {expected} | None" if default is None else ""
        said = f"{what}: its default {default!r:.60} is no {expected}{hint}: {error}"
        raise type(error)(said) from error.__cause__


def _must_be_askable(question: Any, type: Any) -> None:
    must_be_texts("ask()", question=question)
    if len(question) > _LONGEST_QUESTION:
        raise BadInput(f"ask(): a question of {len(question):,} characters is too long to be read")
    _must_be_no_secret("ask()", type)


def _must_be_no_secret(what: str, type: Any) -> None:
    if Secret in (type, *typing.get_args(type)):
        raise BadInput(
            f"{what} of a Secret: what comes from outside is written to the log. Let the name of "
            f"the secret come, and look it up: Secret.named(…)"
        )


class _Operation:
    """A call of one of the functions here: it has a path and a record like any other."""

    def __init__(self, spec: Spec, args: dict[str, Any], returns: Shape | None = None) -> None:
        self.scope = inside(f"{spec.name}()")
        self.spec = spec
        self.data = spec.signature.dump((), args)
        self.returns = returns

    def perform(self, flow_of: Callable[[Asked, Call | None], Flow]) -> Any:
        """Carry it out here, or return the coroutine that does in an async task."""
        run: Run = self.scope.run
        must_be_open(self.scope)
        path = self.scope.next_path()
        if self.scope.is_async:
            from holdfast.engines import async_driver as aio

            made = aio.operate(run, path, self.spec, self.data, flow_of, self.end)
            run.unawaited[path] = (self.spec.name, weakref.ref(made))
            return made
        return self.end(run, local.operate(run, path, self.spec, self.data, flow_of))

    def end(self, run: Run, record: Any) -> Any:
        """The value for the task, from the record that a flow ended with."""
        if self.returns is None or record.status == "failed":
            return conclude(run, self.spec, record) if record.status == "failed" else None
        try:
            with without_veto():  # it was let in, and is recorded
                return self.returns.accept(run.log.fetch(_raw(record)))
        except Undecodable as error:
            asked = f"expects a value of another type ({error})"
            got = f"a value for {describe(record)}"
            run.halt(CodeChanged(run.task_id, record.path, got, asked), record.path)


def _raw(record: Call) -> Raw:
    return record.result if isinstance(record.result, Raw) else Raw(b"null")


def _seed(name: str) -> bytes:
    scope = inside(f"{name}()")
    run: Run = scope.run
    of = _age(run.log.state, scope)
    return sha256(f"{of}:{scope.named_path(name, '=')}".encode()).digest()


def _age(state: State, scope: Scope) -> str:
    """The text that seeds are made of at this place of the code.

    A fork, or a rewound task, runs through its past anew and has to see there what was
    seen then; from where it left it on, its ids are its own.
    """
    for age in state.ages:
        this: Scope | None = scope
        while this is not None:
            last = age.last.get(this.path, "").rpartition(".")[2]
            if last.isdigit() and int(last) > this.calls:
                return age.name
            this = this.parent
    return state.name


def _sleep(seconds: float) -> None: ...


def _ask(question: str, expects: str) -> None: ...


def _receive(name: str, expects: str) -> None: ...


_SLEEP = make_spec(_sleep, "step", name="sleep")
_ASK = make_spec(_ask, "step", name="ask")
_RECEIVE = make_spec(_receive, "step", name="receive")
