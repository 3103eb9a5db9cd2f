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

from collections.abc import Generator, Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.contexts import Context, context
from holdfast.agent.flow import Flow, drive
from holdfast.agent.model import Reply
from holdfast.agent.model_calls import ModelStep
from holdfast.agent.sessions import Session
from holdfast.agent.sessions import session as session_of_task
from holdfast.agent.state import ToolCallRecord
from holdfast.agent.tool_calls import making, prepared, results_of
from holdfast.agent.tooling import Tools
from holdfast.core.scope import inside
from holdfast.core.usage import Usage
from holdfast.log.messages import ToolCall
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
