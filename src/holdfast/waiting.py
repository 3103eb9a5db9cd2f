"""What a task waits for and reads from the world around it: time, chance, and people.

All of it is in the log or derived from the call's place, so a replay sees what the first run saw.
In an async task `sleep` and `ask` are awaited.
"""

from __future__ import annotations

import typing
from collections.abc import Awaitable, Callable, Generator
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from msgspec import UNSET, Raw
from msgspec.structs import replace

from holdfast.codec import Shape, shape_of
from holdfast.codec.misfit import name_of
from holdfast.engines import local
from holdfast.engines.execution import conclude, must_be_open
from holdfast.engines.functions import make_spec
from holdfast.engines.lookup import seen_before
from holdfast.engines.run import Run
from holdfast.errors import BadInput, Undecodable
from holdfast.events import Observed, QuestionAsked
from holdfast.journal import Asked, Flow
from holdfast.journal import ask as ask_flow
from holdfast.journal import sleep as sleep_flow
from holdfast.scope import Scope, inside
from holdfast.secret import Secret
from holdfast.spec import Spec
from holdfast.state import Call, State
from holdfast.words import must_be_texts

_times = shape_of(datetime)
_LONGEST_QUESTION = 16 * 1024


class Done:
    """What `sleep` returns in a sync task: it is over, and may be awaited all the same."""

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
        if not run.is_rehearsal:
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
    a `StepFailed` if there is none. In an async task: `await ask(…)`.

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
        default=UNSET if default is UNSET else scope.run.log.stow(shape.settle(default)[0]),
    )

    def misfit(record: Call) -> str:
        try:
            shape.load(scope.run.log.fetch(_raw(record)))
        except Undecodable as error:
            return str(error)
        return ""

    def flow(call: Asked, record: Call | None) -> Flow:
        placed = replace(asked, path=call.path, id=id or call.path, args_hash=call.args_hash)
        return ask_flow(call, record, placed, timeout_s, misfit)

    return operation.perform(flow)


def _must_be_askable(question: Any, type: Any) -> None:
    must_be_texts("ask()", question=question)
    if len(question) > _LONGEST_QUESTION:
        raise BadInput(f"ask(): a question of {len(question):,} characters is too long to be read")
    if Secret in (type, *typing.get_args(type)):
        raise BadInput(
            "ask(…, Secret): answers are written to the log. Ask for the name of the secret, and "
            "look it up: Secret.named(ask(…))"
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
            from holdfast.engines import aio

            return aio.operate(run, path, self.spec, self.data, flow_of, self.end)
        return self.end(run, local.operate(run, path, self.spec, self.data, flow_of))

    def end(self, run: Run, record: Any) -> Any:
        """What the task gets of the record that a flow ended with."""
        if self.returns is None or record.status == "failed":
            return conclude(run, self.spec, record) if record.status == "failed" else None
        return self.returns.load(run.log.fetch(_raw(record)))


def _raw(record: Call) -> Raw:
    return record.result if isinstance(record.result, Raw) else Raw(b"null")


def _seed(name: str) -> bytes:
    scope = inside(f"{name}()")
    run: Run = scope.run
    of = _age(run.log.state, scope)
    return sha256(f"{of}:{scope.named_path(name, '=')}".encode()).digest()


def _age(state: State, scope: Scope) -> str:
    """What the seeds are made of at the place that the code has come to.

    A fork, or a task that was put back, runs through its past anew and has to see there what was
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


_SLEEP = make_spec(_sleep, "step", name="sleep")
_ASK = make_spec(_ask, "step", name="ask")
