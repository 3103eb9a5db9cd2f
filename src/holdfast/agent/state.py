"""`AgentState`: all that an agent of the plan, execute, reflect kind goes round with.

It is a value. A transition returns a new one and leaves the old one as it was; the two share no
part that can be changed. (The dicts inside of messages are the exception: a message counts as one
value, so make a new one instead of changing its `meta`.) Moves that the machine (`phases.AGENT`)
does not know raise `IllegalTransition`.

In a task, `checkpoint` keeps the state and `restore` gives it back; elsewhere `dump` and `load` do.
Both keep all of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal
from uuid import uuid4
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.api.waiting import now
from holdfast.core import plan as plans
from holdfast.core.decoding import NONSENSE, Illegible, decoder
from holdfast.core.events import PlanItem, PlanStatus
from holdfast.core.scope import scope_var
from holdfast.core.usage import Usage
from holdfast.errors import BadInput, IllegalTransition, Undecodable, Unserializable
from holdfast.log.messages import Media, Message, Text, assistant, tool_result, user

# Phases: what an agent may do next, declared once.
#
# An agent is a state machine, whether somebody wrote it down or not. `Phases` is where it is
# written down: the phases, and which may follow which. It is checked as it is declared, so a typo
# shows when the module is imported and not in the one run that takes that way.


class Phases:
    """The phases of an agent, and the moves that are allowed between them.

    `moves` says where each phase may lead, `final` which phases end it, and `from_any` which can be
    moved to from every phase that is not final: an error can happen anywhere.

    >>> desk = Phases(
    ...     start="new",
    ...     moves={"new": ["open"], "open": ["answered", "escalated"], "escalated": ["answered"]},
    ...     final=["answered", "dropped"],
    ...     from_any=["dropped"],
    ... )
    >>> desk.move("open", "escalated"), desk.allowed("escalated")
    ('escalated', ('answered', 'dropped'))
    >>> desk.move("answered", "open")
    Traceback (most recent call last):
    holdfast.errors.IllegalTransition: from 'answered' to 'open': 'answered' is final
    """

    def __init__(
        self,
        *,
        start: str,
        moves: Mapping[str, Iterable[str]],
        final: Iterable[str] = (),
        from_any: Iterable[str] = (),
    ) -> None:
        self.start: str = _names("start", (start,))[0]
        self.final: tuple[str, ...] = _names("final", final)
        always = _names("from_any", from_any)
        _names("moves", moves)
        told = {phase: _names(f"moves[{phase!r:.60}]", to) for phase, to in moves.items()}
        self.names: tuple[str, ...] = tuple(dict.fromkeys((start, *told, *self.final)))
        """Every phase, the first one first."""
        self._must_be_known(told, always)
        ways = {}
        for phase in self.names:
            to = told.get(phase, ())
            ways[phase] = to if phase in self.final else tuple(dict.fromkeys((*to, *always)))
        self.moves: Mapping[str, tuple[str, ...]] = MappingProxyType(ways)
        """Where each phase may lead."""
        self._must_lead_somewhere(always)

    def move(self, now: str, to: str) -> str:
        """The phase `to`, if it may follow `now`; else `IllegalTransition`.

        >>> AGENT.move("reflecting", "planning")
        'planning'
        """
        if to not in self.allowed(now):
            raise IllegalTransition(now, to, self.moves[now])
        return to

    def allowed(self, now: str) -> tuple[str, ...]:
        """The phases that may follow this one; none if it is final.

        >>> AGENT.allowed("idle")
        ('planning', 'error')
        """
        try:
            return self.moves[now]
        except (KeyError, TypeError):
            raise BadInput(
                f"{now!r:.60} is no phase: it is one of {', '.join(self.names)}"
            ) from None

    def _must_be_known(self, told: Mapping[str, tuple[str, ...]], always: tuple[str, ...]) -> None:
        for phase, to in {**told, "from_any": always}.items():
            if unknown := [name for name in to if name not in self.names]:
                raise BadInput(
                    f"{phase!r} leads to {unknown[0]!r}, which is no phase: give it moves of its "
                    f"own, or name it in final. The phases are {', '.join(self.names)}"
                )
        if ended := [phase for phase in self.final if told.get(phase)]:
            raise BadInput(f"{ended[0]!r} is final and leads to {', '.join(told[ended[0]])}")

    def _must_lead_somewhere(self, always: tuple[str, ...]) -> None:
        for phase, to in self.moves.items():
            if phase not in self.final and not set(to) - {*always, phase}:
                raise BadInput(
                    f"{phase!r} leads nowhere and is not final: give it moves, or name it in final"
                )
        reached, todo = {self.start}, [self.start]
        while todo:
            new = set(self.moves[todo.pop()]) - reached
            reached |= new
            todo += new
        if lost := [phase for phase in self.names if phase not in reached]:
            raise BadInput(f"no move leads to {lost[0]!r} from {self.start!r}, where it starts")


def _names(what: str, names: Any) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadInput(f"{what}={names!r:.60} must be a list of phases")
    found = tuple(names)
    if wrong := [name for name in found if not isinstance(name, str) or not name]:
        raise BadInput(f"{what}: a phase has a name, which {wrong[0]!r:.60} is not")
    return found


AGENT = Phases(
    start="idle",
    moves={
        "idle": ["planning"],
        "planning": ["executing"],
        "executing": ["reflecting"],
        "reflecting": ["planning", "executing", "done"],
    },
    final=["done", "error"],
    from_any=["error"],
)
"""The phases of `AgentState`. An agent is done only after it has looked at what it did; from there
it may also plan anew, or go on with its plan. It ends done or in an error, and another request is
another state."""

Phase = Literal["idle", "planning", "executing", "reflecting", "done", "error"]


class ToolCallRecord(Struct, frozen=True, omit_defaults=True):
    """A tool call that was made, and what came of it.

    `arguments` is the JSON that the model wrote, and `result` the text that it is told.

    >>> ToolCallRecord("c1", "find_room", '{"city": "Oslo"}', error="no answer").observation
    'error: no answer'
    """

    id: str
    name: str
    arguments: str = "{}"
    result: str | None = None
    error: str | None = None
    duration_ms: float | None = None
    at: datetime | None = None
    usage: Usage | None = None
    """For a call of another agent: what that took."""
    parts: tuple[Text | Media, ...] = ()
    """The result, if it holds images or files: the model is sent these, and not the text."""

    @property
    def observation(self) -> str:
        """Its text for the model."""
        return self.result or "" if self.error is None else f"error: {self.error}"

    @property
    def message(self) -> Message:
        """The message that brings its result to the model."""
        is_error = self.error is not None
        said = self.observation if is_error or not self.parts else self.parts
        return tool_result(self.id, said, is_error=is_error)


class WorkingMemory(Struct, frozen=True, omit_defaults=True):
    """The agent's notepad for the task at hand, apart from the dialogue."""

    goal: str = ""
    plan: tuple[PlanItem, ...] = ()
    completed_steps: tuple[str, ...] = ()
    """The texts of the items that were done, in that order, also of those no longer planned."""
    notes: dict[str, Any] = {}
    tool_calls: tuple[ToolCallRecord, ...] = ()

    @property
    def pending_steps(self) -> tuple[str, ...]:
        """The texts of the items that are still to be done."""
        return tuple(item.text for item in self.plan if item.status in ("pending", "doing"))


class AgentState(Struct, frozen=True, kw_only=True):
    """The whole state of an agent at one moment. Every method returns a new one.

    >>> state = AgentState.from_user_input("Find a room in Oslo")
    >>> state = state.with_plan(["search", "book"]).to_executing()
    >>> state = state.mark("1", "done").to_reflecting()
    >>> state.phase, state.memory.pending_steps, state.iteration
    ('reflecting', ('book',), 1)
    >>> state.to_reflecting()
    Traceback (most recent call last):
    holdfast.errors.IllegalTransition: from 'reflecting' to 'reflecting': allowed is planning, \
executing, done, error
    """

    session_id: str
    created_at: datetime
    updated_at: datetime
    phase: Phase = "idle"
    history: tuple[Message, ...] = ()
    memory: WorkingMemory = WorkingMemory()
    iteration: int = 0
    """How often it began to execute."""
    usage: Usage = Usage()
    final_answer: str | None = None
    error_message: str | None = None

    @classmethod
    def new(cls, session_id: str = "", *, at: datetime | None = None) -> AgentState:
        """A state that waits for its first request. In a task its session is that of the task.

        >>> AgentState.new("s-1").phase
        'idle'
        """
        at = at or _start_time()
        return cls(session_id=session_id or _session(), created_at=at, updated_at=at)

    @classmethod
    def from_user_input(
        cls, text: str, session_id: str = "", *, at: datetime | None = None
    ) -> AgentState:
        """A state that has a request, and plans.

        In a task it may be the default of `restore`: it reads no clock there, but begins when the
        task did.

        >>> state = AgentState.from_user_input("Where is my order?")
        >>> state.phase, state.memory.goal, state.history[0].text
        ('planning', 'Where is my order?', 'Where is my order?')
        """
        state = cls.new(session_id, at=at)
        at = state.created_at
        return state.say(user(text), at=at).to_planning(goal=text, at=at)

    # Between phases

    def to_planning(self, *, goal: str | None = None, at: datetime | None = None) -> AgentState:
        """Plan, for the first time or anew; the goal stays if none is given."""
        memory = self.memory if goal is None else replace(self.memory, goal=goal)
        return self._moved("planning", at, memory=memory)

    def to_executing(self, *, at: datetime | None = None) -> AgentState:
        """Do what is planned. This begins a new iteration."""
        return self._moved("executing", at, iteration=self.iteration + 1)

    def to_reflecting(self, *, at: datetime | None = None) -> AgentState:
        """Look at what was done."""
        return self._moved("reflecting", at)

    def to_done(self, answer: str, *, at: datetime | None = None) -> AgentState:
        """End with an answer, which becomes the last message."""
        AGENT.move(self.phase, "done")  # before the clock is read for the message
        at = at or _time()
        return self.say(assistant(answer), at=at)._moved("done", at, final_answer=answer)

    def to_error(self, message: str, *, at: datetime | None = None) -> AgentState:
        """End with what went wrong."""
        return self._moved("error", at, error_message=message)

    # Within a phase

    def say(self, *messages: Message, at: datetime | None = None) -> AgentState:
        """Add messages to the history; those without a time get one."""
        at = at or _time()
        history = self.history
        for message in messages:
            _must_pair(history, message)
            history = (*history, replace(deepcopy(message), at=message.at or at))
        return self._with(at, history=history)

    def record_observation(self, call: ToolCallRecord, *, at: datetime | None = None) -> AgentState:
        """Remember a tool call that was made.

        Where the last messages ask for it, its result becomes a message, so that the model sees it:
        no result ever stands in the history without its call.
        """
        at = at or _time()
        memory = self.memory
        kept = replace(call, at=call.at or at, parts=())
        memory = replace(memory, tool_calls=(*memory.tool_calls, kept))
        state = self._with(at, memory=memory)
        if call.id not in _open_calls(self.history):
            return state
        return state.say(call.message, at=at)

    def note(self, key: str, value: Any, *, at: datetime | None = None) -> AgentState:
        """Keep something in mind under a name: plain data."""
        return self.noted({key: value}, at=at)

    def noted(self, notes: Mapping[str, Any], *, at: datetime | None = None) -> AgentState:
        """The same for several at once: one moment, and one reading of the clock."""
        kept = {**self.memory.notes, **notes}
        return self._with(at or _time(), memory=replace(self.memory, notes=kept))

    def with_plan(
        self, items: Iterable[str | PlanItem], *, at: datetime | None = None
    ) -> AgentState:
        """A new plan, in which items that stay keep their status: see `core.plan.revised`."""
        plan = plans.revised(self.memory.plan, items)
        return self._with(at or _time(), memory=replace(self.memory, plan=plan))

    def mark(self, id: str, status: PlanStatus, *, at: datetime | None = None) -> AgentState:
        """Say what became of an item of the plan."""
        memory = self.memory
        plan = plans.marked(memory.plan, id, status)
        done = tuple(item.text for item in plan if item.id == id and status == "done")
        memory = replace(memory, plan=plan, completed_steps=(*memory.completed_steps, *done))
        return self._with(at or _time(), memory=memory)

    def spend(self, usage: Usage, *, at: datetime | None = None) -> AgentState:
        """Add up what a call of a model took."""
        return self._with(at or _time(), usage=self.usage + usage)

    def _moved(self, to: Phase, at: datetime | None, **changes: Any) -> AgentState:
        AGENT.move(self.phase, to)
        return self._with(at or _time(), phase=to, **changes)

    def _with(self, at: datetime, **changes: Any) -> AgentState:
        # The notes are the one part that can be changed in place, so each state has its own.
        memory: WorkingMemory = changes.pop("memory", self.memory)
        memory = replace(memory, notes=deepcopy(memory.notes))
        return replace(self, updated_at=at, memory=memory, **changes)


def _must_pair(history: tuple[Message, ...], message: Message) -> None:
    """Refuse a result without its call, and whatever comes before the result of a call."""
    asked = _open_calls(history)
    brought = {result.call_id for result in message.results}
    if brought - asked:
        raise BadInput(
            f"a result of the call {sorted(brought - asked)[0]!r:.60}, which is not open: it comes "
            f"right after the message that asks for the call, once"
        )
    if asked and not brought:
        raise BadInput(f"the calls {', '.join(sorted(asked))!r:.80} need their results first")


def _open_calls(history: tuple[Message, ...]) -> set[str]:
    """The calls that the last messages ask for and that have no result yet."""
    answered: set[str] = set()
    for message in reversed(history):
        if message.calls:
            return {call.id for call in message.calls} - answered
        if not message.results:
            return set()
        answered.update(result.call_id for result in message.results)
    return set()


_read: WeakKeyDictionary[Any, dict[str, tuple[int, datetime]]] = WeakKeyDictionary()
"""For each run: when each strand of it last read the clock, and after how many calls."""


def _time() -> datetime:
    """Now: in a task as it is recorded, so that a replay sees the same.

    Between two calls it is read once: changes of the state that follow each other have one time.
    """
    scope = scope_var.get()
    if scope is None:
        return datetime.now(UTC)
    known = _read.setdefault(scope.run, {})
    calls, at = known.get(scope.path, (-1, None))
    if at is None or calls != scope.calls:
        at = now()
        known[scope.path] = (scope.calls, at)
    return at


def _start_time() -> datetime:
    """The same; but at the very beginning of a task, where nothing may come before `restore`, the
    time that the task was made."""
    scope = scope_var.get()
    if scope is None or scope.path or scope.calls or scope.named:
        return _time()
    made: datetime = scope.run.log.state.began_at
    return made


def _session() -> str:
    scope = scope_var.get()
    if scope is None:
        return str(uuid4())
    session: str = scope.run.log.state.session
    return session or str(scope.run.task_id)


# An `AgentState` as bytes, to keep it outside of a task: JSON with a version. `dump` reads back
# what it wrote and refuses a state that would not come back the same: nothing is lost silently.


VERSION = 1


class _Saved(Struct, frozen=True):
    version: int
    state: AgentState


class _Version(Struct, frozen=True):
    version: int


_load = decoder(_Saved)
_load_version = decoder(_Version)


def dump(state: AgentState) -> bytes:
    """The state as bytes. `Unserializable` if it holds what JSON can't bring back as it was.

    >>> state = AgentState.from_user_input("Where is my order?")
    >>> load(dump(state)) == state
    True
    """
    try:
        data = msgspec.json.encode(_Saved(VERSION, state))
        same = _load(data).state == state
    except (*NONSENSE, Illegible) as error:
        raise Unserializable(f"the agent state {state.session_id!r}: {error}") from None
    if not same:
        raise Unserializable(
            f"the agent state {state.session_id!r} would not come back as it is: notes and the "
            f"meta of messages are plain JSON (no tuples, bytes, NaN or keys that are not text)"
        )
    return data


def load(data: bytes | str) -> AgentState:
    """The state that was dumped. `Undecodable` if it is none, or of a newer version.

    >>> load(b'{"version": 99}')
    Traceback (most recent call last):
    holdfast.errors.Undecodable: an agent state of version 99: this Holdfast knows 1. Upgrade it
    """
    try:
        version = _load_version(data).version
        if version > VERSION:
            raise Undecodable(
                f"an agent state of version {version}: this Holdfast knows {VERSION}. Upgrade it"
            )
        return _load(data).state
    except Illegible as error:
        raise Undecodable(
            f"this is no agent state that dump() made: {error} (it begins with {data[:40]!r})"
        ) from None
