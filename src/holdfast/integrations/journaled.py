"""Journal a piece of somebody else's program: the shared ground of the framework doors.

A framework runs a function of the user (a node, a tool call, a model call) and runs it again after
a crash. `Piece` makes one run of it a task of ours with an id that is the same the second time, so
that what it did is in the log. Where the framework itself runs inside a task of ours, the piece is
a branch of that task instead, named so that the order in which pieces run does not matter.

A function that raises is not a failed task: the framework decides whether it is tried again. So
the task is released, and the next run goes on with it.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import copy_context
from typing import Any, Literal

from holdfast.api.app import Holdfast
from holdfast.api.steps import wrapped
from holdfast.core.events import QuestionAnswered, Settled
from holdfast.core.scope import Scope, scope_var
from holdfast.engines.functions import make_spec
from holdfast.errors import BadInput, InDoubt, Suspend, TaskReleased, TaskWaiting, Unanswered
from holdfast.integrations.calls import CallOptions, call_name
from holdfast.log.reading import read_events, stream_of

__all__ = ["Piece", "Settle", "journaled_call", "settled"]

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
        settled(self._hf, waiting, settle)

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
    kind: Literal["step", "tool"],
    body: Callable[[Any], Any],
    policy: CallOptions | None = None,
) -> Callable[[Any], Any]:
    """A function of plain data that returns plain data, as a step or a tool of ours."""
    options: dict[str, Any] = {**(policy or {})}
    kind = options.pop("kind", kind)

    def call(args: Any) -> Any:
        return body(args)

    async def acall(args: Any) -> Any:
        return await body(args)

    fn = acall if inspect.iscoroutinefunction(body) else call
    made: Callable[[Any], Any] = wrapped(make_spec(fn, kind, name=call_name(name), **options))
    return made


def settled(hf: Holdfast, waiting: TaskWaiting, settle: Settle) -> None:
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
