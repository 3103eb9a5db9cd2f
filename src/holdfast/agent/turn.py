"""One turn of an agent, for a loop that you write yourself.

A turn is what an `Orchestrator` does between two looks at its state: the model sees a context, says
something, and the calls that it asks for are made. Here it is as a function, in your own task:

    asks = ModelStep("support", model)

    @task
    def support(goal: str) -> str:
        session().say(goal)
        while (done := turn(asks, tools, budget_tokens=32_000)).records:
            ...                                       # what you want in between
        return done.text
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.contexts import Context, context
from holdfast.agent.flow import Flow, adriven, drive, driven
from holdfast.agent.loop import AgentResult
from holdfast.agent.model import Reply
from holdfast.agent.model_calls import ModelStep
from holdfast.agent.sessions import Session
from holdfast.agent.sessions import session as session_of_task
from holdfast.agent.state import ToolCallRecord
from holdfast.agent.tooling import BadCall, Tools, as_text, parts_of
from holdfast.api.branches import gather_in_turn
from holdfast.core.scope import inside
from holdfast.core.usage import Usage
from holdfast.errors import StepFailed
from holdfast.log.messages import Message, ToolCall
from holdfast.log.tokens import Counter


class TurnDone(Struct, frozen=True):
    """The outcome of a turn: the reply of the model, and the calls that it asked for.

    Without `records` the model asked for nothing more, and `text` is its answer. In an async task
    it is awaited, and so it may be anywhere.
    """

    reply: Reply
    records: tuple[ToolCallRecord, ...] = ()
    usage: Usage = Usage()
    """The usage of the model and of the agents that it called."""

    def __await__(self) -> Generator[Any, Any, TurnDone]:
        yield from ()
        return self

    @property
    def text(self) -> str:
        """The text of the reply."""
        return self.reply.message.text


def turn(
    model: ModelStep,
    tools: Iterable[Any] = (),
    *,
    budget_tokens: int,
    system: str = "",
    goal: str = "",
    session: Session | None = None,
    parallel: bool = True,
    counter: Counter | None = None,
) -> TurnDone:
    """Have the model take a turn in a conversation, in a task; in an async one: `await turn(…)`.

    The model sees as much of the conversation as fits into the budget. The calls it asks for are
    made side by side, and what went wrong with one is told to it. Its reply and the results are
    then in the conversation, once, however often the task is resumed.

    >>> from holdfast import Holdfast, task
    >>> from holdfast.agent import Reply, assistant, session
    >>> asks = ModelStep("echoing", lambda request: Reply(assistant(request.messages[-1].text)))
    >>> @task
    ... def echoes(goal: str) -> str:
    ...     session().say(goal)
    ...     return turn(asks, budget_tokens=1000).text
    >>> with Holdfast("memory://") as hf:
    ...     hf.session("chat-turn").run(echoes, "Hello")
    'Hello'
    """
    inside("turn()")
    known = tools if isinstance(tools, Tools) else Tools(tools)
    talk = session if session is not None else session_of_task()

    def look() -> Context:
        return context(talk, budget_tokens=budget_tokens, system=system, goal=goal, counter=counter)

    return drive(_turn(model, known, talk, look, parallel=parallel))


def _turn(
    model: ModelStep, tools: Tools, talk: Session, look: Any, *, parallel: bool
) -> Flow[TurnDone]:
    seen: Context = yield look
    reply: Reply = yield lambda: model.ask(seen, tools)
    message = reply.message
    if reply.stop == "refusal":  # nobody makes calls that come with a refusal
        said = tuple(part for part in message.parts if not isinstance(part, ToolCall))
        message = replace(message, content=said)
    calls = message.calls
    if not calls:
        if message.parts:
            yield lambda: talk.say(message)
        return TurnDone(reply, (), reply.usage)
    records = yield from making([prepared(call, tools) for call in calls], parallel=parallel)
    yield lambda: talk.say(reply.message, *results_of(records))
    usage = sum((each.usage for each in records if each.usage is not None), reply.usage)
    return TurnDone(reply, tuple(records), usage)


# The calls that a model asks for in one reply: made side by side, told to it in its order.
#
# Each call is a branch of the task, so whichever ends first, its record is found again after a
# crash. A call that waits for a person, or is in doubt, waits alone: the others run to their end.


class CallToMake(Struct, frozen=True):
    """A call that a model asks for: how it is made, or what is wrong with it."""

    call: ToolCall
    make: Callable[[], Any] | None = None
    error: str = ""
    result: str | None = None
    """The result of a call that needed no making."""
    parallel: bool = True
    """Whether it may be made beside others."""


class MadeCalls(list[ToolCallRecord]):
    """Calls that were made, in order. In an async task they are awaited, and so they may be
    anywhere.

    >>> MadeCalls([ToolCallRecord("c1", "ring", result="rang")])[0].observation
    'rang'
    """

    __slots__ = ()

    def __await__(self) -> Generator[Any, Any, MadeCalls]:
        yield from ()
        return self


def make_calls(
    reply: Message | Iterable[ToolCall], tools: Iterable[Any], *, parallel: bool = True
) -> MadeCalls:
    """Make the calls that a model asks for, as it asked for them; in a task, durably.

    They run side by side, unless `parallel=False` is said here or of a tool; what came of them
    is in the order of the calls. A fault of a call, or in it, is told in its `error`, and is no
    exception. In an async task: `await make_calls(…)`.

    >>> from holdfast import Holdfast, task, tool
    >>> from holdfast.agent import assistant
    >>> @tool(in_doubt="retry")
    ... def ring_for_make_calls(times: int) -> str:
    ...     return f"rang {times} times"
    >>> asked = assistant(
    ...     "",
    ...     [ToolCall("c1", "ring_for_make_calls", '{"times": 2}'), ToolCall("c2", "sing", "{}")],
    ... )
    >>> @task
    ... def rings() -> list[str]:
    ...     return [made.observation for made in make_calls(asked, [ring_for_make_calls])]
    >>> with Holdfast("memory://") as hf:
    ...     hf.run(rings)
    ['rang 2 times', "error: there is no tool 'sing'; there are: ring_for_make_calls"]
    """
    inside("make_calls()")
    calls = reply.calls if isinstance(reply, Message) else tuple(reply)
    known = tools if isinstance(tools, Tools) else Tools(tools)
    return drive(making([prepared(call, known) for call in calls], parallel=parallel))


def prepared(call: ToolCall, tools: Tools) -> CallToMake:
    """A call of one of these tools; one that can't be made says why."""
    try:
        return CallToMake(call, tools.prepared(call), parallel=tools.may_be_parallel(call.name))
    except BadCall as error:
        return CallToMake(call, error=str(error))


def making(calls: Sequence[CallToMake], *, parallel: bool = True) -> Flow[MadeCalls]:
    """Make calls that were prepared."""
    if len(calls) == 1 or _were_made_one_by_one():
        records = MadeCalls()
        for each in calls:
            records.append((yield from _made(each)))
        return records
    groups = _groups(calls, parallel=parallel)
    is_async = inside("a call of a tool").is_async
    drives: Callable[..., Any] = adriven if is_async else driven
    branches = [[partial(_drive_one, drives, each) for each in group] for group in groups]
    made: list[ToolCallRecord] = yield lambda: gather_in_turn(branches)
    return MadeCalls(made)


def _were_made_one_by_one() -> bool:
    """Whether the log has a call where branches would begin: an older version made them so."""
    scope = inside("a call of a tool")
    path = f"{scope.path}.{scope.calls + 1}" if scope.path else str(scope.calls + 1)
    return path in scope.run.log.state.calls


def _groups(calls: Sequence[CallToMake], *, parallel: bool) -> list[list[CallToMake]]:
    """The calls in their order, those together that may run side by side."""
    groups: list[list[CallToMake]] = []
    may_join = False
    for each in calls:
        is_free = parallel and each.parallel
        if is_free and may_join:
            groups[-1].append(each)
        else:
            groups.append([each])
        may_join = is_free
    return groups


def _drive_one(drives: Callable[[Flow[ToolCallRecord]], Any], each: CallToMake) -> Any:
    return drives(_made(each))


def _made(each: CallToMake) -> Flow[ToolCallRecord]:
    call = each.call
    record = ToolCallRecord(call.id, call.name, call.arguments)
    if each.make is None:
        return replace(record, result=each.result, error=each.error or None)
    try:
        value = yield each.make
        usage = value.usage if isinstance(value, AgentResult) else None
        return replace(record, result=as_text(value), usage=usage, parts=parts_of(value))
    except StepFailed as error:
        return replace(record, error=failure_text(error))


def failure_text(error: StepFailed) -> str:
    """A failure as a model is told it."""
    return str(error).partition("\n")[0]


def results_of(records: Iterable[ToolCallRecord]) -> list[Message]:
    """Calls that were made, as messages that follow the one that asked for them."""
    return [record.message for record in records]
