"""`Loop`: an agent that goes round, one step at a time, and can be stopped between any two.

This is the smallest agent there is: a state, and a `step` that makes the next one of it. The state
is checkpointed after each step, so a crash costs at most the step it was in, and what that had
already called is not called again. Limits are counted in the state, so a resume does not start
them anew. An agent that can't do its job fails its task, and `retry` goes on from there.
`Orchestrator` is one with a model and tools; write your own by subclassing either.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, cast
from weakref import WeakKeyDictionary

from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.agent.book import book_of
from holdfast.agent.flow import Flow, drive
from holdfast.agent.model import ToolInfo
from holdfast.agent.sessions import Session, means_in_task, must_be_session, session
from holdfast.agent.state import AgentState, Phase
from holdfast.agent.tooling import AgentTool
from holdfast.api.checkpoints import checkpoint, restore
from holdfast.api.steps import step
from holdfast.api.tasks import current, task
from holdfast.api.waiting import now
from holdfast.core.decoding import decode
from holdfast.core.scope import inside
from holdfast.core.spec import Retry
from holdfast.core.usage import Usage
from holdfast.errors import BadInput, HoldfastError, StepFailed
from holdfast.log.messages import Message

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Out = TypeVar("Out", default=None)
else:
    from typing import TypeVar

    Out = TypeVar("Out")


class AgentGaveUp(HoldfastError):
    """An agent could not do its job. Its task fails with this, and `retry` goes on from there.

    >>> issubclass(LimitReached, AgentGaveUp)
    True
    """


class LimitReached(AgentGaveUp):
    """An agent has used up a limit. Give it more, and `retry` its task.

    >>> str(LimitReached("3,000 tokens"))
    'the limit of 3,000 tokens is reached'
    """

    def __init__(self, limit: str) -> None:
        super().__init__(f"the limit of {limit} is reached")


class Limits(Struct, frozen=True, kw_only=True):
    """How far an agent may go before it fails. All count across resumes and retries.

    They are looked at before it plans or executes: what it has done by then is still reflected on,
    so an answer that is there is given.

    >>> Limits(iterations=50, cost=2.5).wall_s is None
    True
    """

    iterations: int = 25
    tokens: int | None = None
    cost: float | None = None
    wall_s: float | None = None
    """Seconds since the task was started, those that it waited included."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not value > 0):
                raise BadInput(f"Limits({name}={value!r:.40}) must be a number above 0")


class AgentResult(Struct, Generic[Out], frozen=True, omit_defaults=True):
    """How an agent ended: with an answer; `output` is its value, where the agent has a type for it.

    An agent without one fails its task. `error`, and the phase `error`, are in results of old
    tasks, which ended as completed.
    """

    phase: Phase
    answer: str = ""
    error: str = ""
    iterations: int = 0
    usage: Usage = Usage()
    session: str = ""
    agent: str = ""
    """The agent that gave the answer, where it was handed off to another one."""
    output: Out = cast("Out", None)

    def for_model(self) -> str:
        """The answer, for the agent that has this one as a tool."""
        return self.answer


class Loop(Generic[Out]):
    """An agent that makes one state of another until it is done. Subclass it, and write `step`.

    >>> from holdfast import Holdfast, step
    >>> @step
    ... def guess_for_loop(low: int, high: int) -> int:
    ...     return (low + high) // 2
    >>> class Guesser(Loop):
    ...     def step(self, state: AgentState) -> AgentState:
    ...         if state.phase == "planning":
    ...             return state.to_executing()
    ...         if state.phase == "executing":
    ...             return state.note("guess", guess_for_loop(0, 100)).to_reflecting()
    ...         return state.to_done(f"It is {state.memory.notes['guess']}.")
    >>> guesser = Guesser("guesser")
    >>> with Holdfast("memory://") as hf:
    ...     guesser.run(hf.session("chat-11"), "Guess my number.").answer
    'It is 50.'
    """

    def __init__(self, name: str, *, limits: Limits | None = None, version: int = 0) -> None:
        self.name = name
        if limits is not None and not isinstance(limits, Limits):
            raise BadInput(f"{name}: limits=… takes Limits(…), not {limits!r:.60}")
        self.limits: Limits = limits or Limits()
        self.task: Callable[..., Any] = task(name=name, version=version)(self._body())
        """The task that it is: for `hf.run`, `hf.start` and a worker."""
        self._fails = step(name=f"{name}_failed", retry=Retry(attempts=1))(_fails_once)

    @property
    def is_async(self) -> bool:
        """Whether it has to run on an event loop."""
        return inspect.iscoroutinefunction(self.step)

    def step(self, state: AgentState) -> Any:
        """The next state. It may call steps and tools, and may be `async def`."""
        raise NotImplementedError(f"{type(self).__name__} says what it does in step(state)")

    def run(
        self, session: Session, goal: str | Message, *, id: str | None = None
    ) -> AgentResult[Out]:
        """Run it in a session, or go on with it: the same call does both.

        The goal is a text, or a message of the user with images and files in it.
        """
        must_be_session(f"{self.name}.run()", session)
        _must_be_goal(f"{self.name}.run()", goal)
        result: AgentResult[Out] = session.run(self.task, goal, id=id)
        return result

    async def arun(
        self, session: Session, goal: str | Message, *, id: str | None = None
    ) -> AgentResult[Out]:
        """`run` for async code."""
        must_be_session(f"{self.name}.arun()", session)
        _must_be_goal(f"{self.name}.arun()", goal)
        result: AgentResult[Out] = await session.arun(self.task, goal, id=id)
        return result

    @property
    def session(self) -> Session:
        """The session of the task that is running; one of its own, if it was started in none."""
        run = inside("agent.session").run
        if run.log.state.session and not _is_apart(run):
            return session()
        book = book_of(means_in_task(), run.task_id)
        if run.driver.writes:
            book.begin(run.log.state.user, {})
        return Session(book)

    def as_tool(self, name: str = "", description: str = "") -> AgentTool:
        """The agent as a tool of another one: `Orchestrator(…, tools=[researcher.as_tool()])`.

        A call is a child task with a conversation of its own: the model of the other agent gives it
        a request, and is told its answer.
        """
        schema = {
            "type": "object",
            "properties": {
                "request": {"type": "string", "description": "All that it has to know."}
            },
            "required": ["request"],
            "additionalProperties": False,
        }
        about = getattr(self, "about", "")
        said = description or about or f"Have the agent {self.name!r} see to something."
        return AgentTool(self.task, ToolInfo(name or self.name, said, schema))

    def begin(self, state: AgentState, goal: str | Message) -> Any:
        """Add the user's words to the conversation, before the first step."""
        return self._begin(state, goal)

    def _begin(self, state: AgentState, goal: str | Message) -> Flow[AgentState]:
        _must_be_goal(self.name, goal)
        yield lambda: self.session.say(goal)
        return state.to_planning(goal=goal if isinstance(goal, str) else goal.text)

    @property
    def output_type(self) -> Any:
        """The type of `AgentResult.output`."""
        return None

    def output_of(self, answer: str) -> Out:
        """The value of an answer."""
        return cast("Out", None)

    def _body(self) -> Any:
        async def agent_of_a_loop(goal: str | Message, apart: bool = False) -> Any:
            driven: Any = drive(self._flow(goal, apart))
            return await driven

        def loop(goal: str | Message, apart: bool = False) -> Any:
            return drive(self._flow(goal, apart))

        body = agent_of_a_loop if self.is_async else loop
        made: Any = AgentResult
        body.__annotations__["return"] = made[self.output_type]
        return body

    def acting(self, state: AgentState) -> Loop[Any]:
        """The agent whose step comes next: this one, unless it handed off to another."""
        return self

    def _flow(self, goal: str | Message, apart: bool) -> Flow[AgentResult[Out]]:
        own = inside("an agent").run.task_id if apart else ""
        state = restore(AgentState.new(own))
        if state.phase == "idle":
            state = yield from _made(partial(self.begin, state, goal))
            state = checkpoint(state)
        while state.phase != "done":
            if state.phase != "error" and (reached := self._limit_reached(state)):
                raise LimitReached(reached)
            before, made = state, state
            if state.phase != "error":
                made = yield from _made(partial(self.acting(state).step, state))
            if made.phase == "error":
                made = yield from self._failed(before, made)
            state = checkpoint(made)
        last = self.acting(state)
        return AgentResult(
            phase=state.phase,
            answer=state.final_answer or "",
            error=state.error_message or "",
            iterations=state.iteration,
            usage=state.usage,
            session=state.session_id,
            agent="" if last is self else last.name,
            output=self.output_of(state.final_answer or ""),
        )

    def _failed(self, before: AgentState, state: AgentState) -> Flow[AgentState]:
        """Fail the task; in one that is retried, go on in the phase that failed.

        The failure is a step, so that the log knows which failures were retried.
        """
        message = state.error_message or "it does not say why"
        try:
            yield lambda: self._fails(message)
        except StepFailed as error:
            raise AgentGaveUp(message) from error
        # An error state that an older version has saved does not say which phase failed.
        phase: Phase = before.phase if before.phase != "error" else "executing"
        return replace(state, phase=phase, error_message=None)

    def _limit_reached(self, state: AgentState) -> str:
        """The limit that a state has reached, in words; none if it may go on."""
        limits, usage = self.limits, state.usage
        if state.phase == "reflecting":
            return ""
        if state.iteration >= limits.iterations and state.phase == "planning":
            return f"{limits.iterations:,} iterations"
        if state.iteration > limits.iterations:
            return f"{limits.iterations:,} iterations"
        if limits.tokens is not None and usage.tokens >= limits.tokens:
            return f"{limits.tokens:,} tokens ({usage.tokens:,} were used)"
        if limits.cost is not None and usage.cost >= limits.cost:
            return f"{limits.cost:g} in cost ({usage.cost:g} was spent)"
        if limits.wall_s is not None:
            passed = (now() - state.created_at).total_seconds()
            if passed >= limits.wall_s:
                return f"{limits.wall_s:g} s ({passed:.0f} s have passed)"
        return ""


def _must_be_goal(what: str, goal: object) -> None:
    """Raise `BadInput` if something else was given where a goal is wanted."""
    if isinstance(goal, str) or (isinstance(goal, Message) and goal.role == "user"):
        return
    raise BadInput(f"{what} takes a goal: a text, or a message from user([…]), not {goal!r:.60}")


_apart: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def _is_apart(run: Any) -> bool:
    """Whether the agent was started to talk in a conversation of its own."""
    if run not in _apart:
        args = run.log.state.args
        given = decode(run.log.fetch(args)) if isinstance(args, Raw) else {}
        _apart[run] = isinstance(given, dict) and given.get("apart") is True
    return _apart[run]


def _fails_once(message: str) -> None:
    """Fail, unless the task was retried since this call failed."""
    call = inside("an agent that fails").run.log.state.calls[current().path]
    if not any(attempt.failure for attempt in call.attempts):
        raise AgentGaveUp(message)


def _made(make: Any) -> Flow[AgentState]:
    """The state that a step makes, however it is written."""
    made = yield make
    if isinstance(made, Generator):
        made = yield from made
    if not isinstance(made, AgentState):
        raise BadInput(f"step(state) returns the next AgentState, not {made!r:.100}")
    return made
