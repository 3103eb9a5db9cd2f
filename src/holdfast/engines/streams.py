"""Steps that stream: a generator whose parts reach the caller as they come.

The step is recorded whole at its end, and a replay streams the recorded parts again. A caller that
stops reading early lets the step run to its end without him, so that what is recorded does not
depend on where he stopped. Once a part was handed out, a failure is final: another attempt would
hand it out again.
"""

from __future__ import annotations

import time
import typing
from collections.abc import AsyncIterator, Generator, Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from msgspec import UNSET, Raw

from holdfast.codec import Shape, shape_of
from holdfast.core.journal import Asked, Raised, Request, Returned, RunBody, perform, step_failed
from holdfast.core.scope import Scope, scope_var
from holdfast.core.spec import Spec
from holdfast.core.state import Call
from holdfast.engines import limits
from holdfast.engines import sync_driver as local
from holdfast.engines.execution import (
    Body,
    altered,
    look_up,
    must_be_open,
    recorded_result,
    taken_again,
)
from holdfast.engines.run import Run
from holdfast.errors import Unserializable


def stream(scope: Scope, spec: Spec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make a call that streams; it gets its path now, and runs as its parts are asked for."""
    must_be_open(scope)
    path = scope.next_path()
    dump = partial(spec.signature.dump_call, args, kwargs, scope.run.log.growing)
    try:
        data = dump()
    except Unserializable as refused:
        data = taken_again(scope.run, path, refused, dump)
    run: Run = scope.run
    run.has_streamed = True
    if spec.is_async:
        return _astream(scope, path, spec, data)
    made = _stream(scope, path, spec, data)
    run.streams.add(made)
    return made


def stream_at(run: Run, path: str, spec: Spec, data: bytes) -> Any:
    """A call that streams, by its path: for a remote engine, where nobody reads it."""
    return (_astream if spec.is_async else _stream)(Scope(run, ""), path, spec, data)


class StreamParts:
    """The parts that one attempt of a streaming step has yielded, and their reader."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.scope: Scope = body.scope()
        self.context: Context = copy_context()
        self.context.run(scope_var.set, self.scope)
        self._shape = item_shape(body.spec)
        self._raws: list[bytes] = []
        keeper = body.run.log.keeper
        self._kept = keeper.begin(body.run.log, body.asked.path, self._raws) if keeper else None
        limit_s = body.spec.timeout_s
        self._ends_at = None if limit_s is None else time.monotonic() + limit_s

    def start(self) -> Any:
        """The generator, about to begin."""
        args, kwargs = self.body.arguments()
        return self.body.spec.fn(*args, **kwargs)

    def next_part(self, source: Iterator[Any]) -> Any:
        """The next part of the generator; unset at its end."""
        following = partial(next, source, UNSET)
        if self._ends_at is None:
            return self.context.run(following)
        left_s = max(self._ends_at - time.monotonic(), 0)
        spec = self.body.spec
        return self.context.run(local.with_timeout, spec, following, self.scope, left_s)

    async def anext_part(self, source: AsyncIterator[Any]) -> Any:
        """The same for an async generator."""
        import asyncio

        from holdfast.engines.async_driver import in_context

        left_s = None if self._ends_at is None else max(self._ends_at - time.monotonic(), 0)
        limit = asyncio.timeout(left_s)
        try:
            async with limit:
                return await in_context(self.context, anext(source, UNSET))
        except TimeoutError:
            if limit.expired():
                self.scope.close()
                raise local.late(self.body.spec) from None
            raise

    def take(self, part: Any) -> Any:
        """Keep a part; the reader gets it as a replay will give it to him."""
        raw, settled = self._shape.settle(part)
        self._raws.append(raw)
        return settled

    def ended(self) -> Returned | Raised:
        """The outcome of an attempt that ended."""
        self.body.must_not_be_doomed()
        return Returned(self._all(), None)

    def leave(self) -> None:
        """Nobody needs the parts beside the log any more."""
        if self._kept is not None:
            self._kept.has_ended = True

    def raised(self, error: BaseException) -> Raised:
        """The outcome of an attempt that raised."""
        outcome = self.body.raised(error, timed_out=self.scope.closed)
        outcome.final = outcome.final or isinstance(error, Unserializable)
        if self._raws:
            outcome.parts = self._all()
        return outcome

    def _all(self) -> Raw:
        return self.body.run.log.stow(b"[%b]" % b",".join(self._raws))


def item_shape(spec: Spec) -> Shape:
    """The shape of what a generator yields."""
    (item,) = typing.get_args(spec.signature.returns.annotation) or (Any,)
    return shape_of(item)


class Streaming:
    """One call that streams, as far as it waits for nothing: shared by the two loops below."""

    def __init__(self, scope: Scope, path: str, spec: Spec, data: bytes) -> None:
        self.run: Run = scope.run
        self.run.must_go_on(path)
        self.spec = spec
        self.ended: Returned | Call | None = None
        self._parts: StreamParts | None = None
        self.has_reader = True
        self.has_streamed: bool = False
        data = altered(self.run, path, spec, data)
        asked, record = look_up(self.run, path, spec, data)
        self.whole: tuple[Run, Asked, Call | None, bytes] | None = (
            None if self.run.driver.streams else (self.run, asked, record, data)
        )
        """Where nothing streams: what its driver has to make before there is anything to read."""
        if self.whole is not None:
            return
        if record is not None and record.status in ("completed", "failed"):
            self.ended = record
            return
        self.body: Body = Body(self.run, asked, spec, data)
        self.body.must_fit()
        if spec.limit is not None:
            limits.weigh(self.body)
        self._flow = perform(asked, record)

    def next_request(self, answer: Any) -> Request | None:
        """The wish of the flow now; None when the call has ended."""
        if self.ended is not None:
            return None
        try:
            return self._flow.send(answer)
        except StopIteration as end:
            self.ended = end.value
            return None

    def begin(self) -> StreamParts:
        """Another attempt is about to begin."""
        self.leave()
        self.has_streamed = True
        self._parts = StreamParts(self.body)
        return self._parts

    def leave(self) -> None:
        """Let the parts of the last attempt be: the call has its record, or does not go on here."""
        if self._parts is not None:
            self._parts.leave()

    def rest(self) -> Iterator[Any]:
        """The rest for the reader: the parts of an end that was recorded, and a failure."""
        if not isinstance(self.ended, Call) or not self.has_reader:
            return
        record, returns = self.ended, self.spec.signature.returns
        if record.status == "failed":
            if isinstance(record.parts, Raw) and not self.has_streamed:
                yield from returns.load(self.run.log.fetch(record.parts))
            raise step_failed(record)
        yield from recorded_result(self.run, self.spec, record)


def _stream(scope: Scope, path: str, spec: Spec, data: bytes) -> Generator[Any]:
    call, answer = Streaming(scope, path, spec, data), None
    if call.whole is not None:
        call.ended = call.run.driver.make(*call.whole)
    try:
        while request := call.next_request(answer):
            if not isinstance(request, RunBody):
                check = partial(local.run_check, call.body)
                answer = local.carry_out(request, call.run, path, scope, check)
                continue
            call.run.must_hold()
            parts = call.begin()
            try:
                source = parts.context.run(parts.start)
                while (part := parts.next_part(source)) is not UNSET:
                    settled = parts.take(part)
                    if call.has_reader:
                        try:
                            yield settled
                        except GeneratorExit:
                            if call.run.is_over:  # it was left behind, by a crash or a stop
                                raise
                            call.has_reader = False
                answer = parts.ended()
            except BaseException as error:
                if not call.run.is_failure(error):
                    raise
                answer = parts.raised(error)
    finally:
        call.leave()
        if path in call.run.admitted:
            limits.give_back(call.run, path)
    yield from call.rest()


async def _astream(scope: Scope, path: str, spec: Spec, data: bytes) -> AsyncIterator[Any]:
    from holdfast.engines import async_driver as aio
    from holdfast.engines.loops import off_loop  # asyncio is slow to import

    call, answer = Streaming(scope, path, spec, data), None
    if call.whole is not None:
        call.ended = await call.run.driver.amake(*call.whole)
    try:
        while request := call.next_request(answer):
            if not isinstance(request, RunBody):
                check = partial(aio.run_check, call.body)
                answer = await aio.carry_out(request, call.run, path, scope, check)
                continue
            await aio.must_hold(call.run)
            parts = call.begin()
            try:
                source = parts.context.run(parts.start)
                while (part := await parts.anext_part(source)) is not UNSET:
                    settled = parts.take(part)
                    if call.has_reader:
                        try:
                            yield settled
                        except GeneratorExit:
                            if call.run.is_over:
                                raise
                            # The loop closes it, beside the task: who waits for that must know.
                            call.has_reader = False
                            call.run.loop.draining.add(path)
                answer = parts.ended()
            except BaseException as error:
                if not aio.is_failure(call.run, error):
                    call.run.loop.draining.discard(path)
                    raise
                answer = parts.raised(error)
    finally:
        call.leave()
        if path in call.run.admitted:
            await off_loop(limits.give_back, call.run, path)
    call.run.loop.draining.discard(path)
    for part in call.rest():
        yield part
