"""`Orchestrator`: an agent that plans, executes and reflects, and survives whatever stops it.

It needs a model (a function, see `holdfast.agent.model`) and tools (decorated functions). Each
call of either is a step of its task: recorded with what it took, never made twice. The
conversation is that of its session, and what the model sees of it a `Context`, so it is known
later; its plan, notes and limits are in its state.

    planning    one call of the model, which writes the plan (left out with `plan=False`)
    executing   one call of the model, and the calls that it asks for
    reflecting  is there an answer? Then it is given, or (with `reflect=True`) first judged by
                the model, which may send the agent back to planning. If not, it goes on executing
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Sequence
from functools import partial
from types import UnionType
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.adapters.base import model_retry
from holdfast.agent.compaction import Compaction, Summarize, compact, cut_text
from holdfast.agent.contexts import Context, context
from holdfast.agent.flow import Flow
from holdfast.agent.loop import AgentGaveUp, Limits, Loop, Out
from holdfast.agent.model import Model, Reply, ToolInfo
from holdfast.agent.model_calls import ModelCall, ModelStep, Nudge, kept_tools, summarizing
from holdfast.agent.state import AgentState, ToolCallRecord
from holdfast.agent.tooling import ANSWER_TOOL, AnswerForm, BadCall, Tools, arguments_of, as_text
from holdfast.agent.turn import CallToMake, failure_text, making, prepared, results_of
from holdfast.api.app import door
from holdfast.api.tasks import current
from holdfast.api.waiting import ask
from holdfast.core.spec import Retry, is_async
from holdfast.errors import BadInput, CodeMissing, StepFailed
from holdfast.log.messages import Message, ToolCall, assistant
from holdfast.log.tokens import Counter, Estimate

# The tools that every agent has: for its plan, for questions, and for its own judgement.
#
# Each is a type: its docstring is what the model is told, its fields are what the model fills in.


class MakePlan(Struct, frozen=True, forbid_unknown_fields=True):
    """Write down the steps that lead to the goal, in order. A new plan replaces the old one."""

    items: list[str]


class UpdatePlan(Struct, frozen=True, forbid_unknown_fields=True):
    """Say what became of an item of the plan. Items are numbered from 1."""

    item: str
    status: Literal["doing", "done", "failed", "skipped"]
    because: str = ""


class AskUser(Struct, frozen=True, forbid_unknown_fields=True):
    """Ask the user something that only they know. The answer may take long."""

    question: str


class Accept(Struct, frozen=True, forbid_unknown_fields=True):
    """The goal is reached: the answer goes to the user as it is."""


class Revise(Struct, frozen=True, forbid_unknown_fields=True):
    """The goal is not reached yet: say what is missing or wrong."""

    reason: str


Builtin = MakePlan | UpdatePlan | AskUser | Accept | Revise


class HandOff(Struct, frozen=True, forbid_unknown_fields=True):
    """Let another agent go on with the conversation."""

    reason: str = ""


HAND_OFF = "hand_off_to_"
_HANDS_OFF = "Let another agent go on with the conversation, and answer the user."

NAMES: dict[type[Any], str] = {
    HandOff: HAND_OFF,
    MakePlan: "make_plan",
    UpdatePlan: "update_plan",
    AskUser: "ask_user",
    Accept: "accept",
    Revise: "revise",
}


def told_of(kind: type[Any]) -> ToolInfo:
    """A built-in tool as the model sees it.

    >>> told_of(AskUser).name, told_of(AskUser).parameters["required"]
    ('ask_user', ['question'])
    """
    _, definitions = msgspec.json.schema_components([kind])
    schema = dict(definitions[kind.__name__])
    schema = {k: v for k, v in schema.items() if k not in ("title", "description")}
    return ToolInfo(NAMES[kind], inspect.getdoc(kind) or "", schema)


def meant(call: ToolCall, kinds: tuple[type[Any], ...]) -> Builtin | None:
    """The built-in tool that a call is for, if it is one of these; `BadCall` if it does not fit."""
    for kind in kinds:
        if NAMES[kind] == call.name:
            try:
                found: Builtin = msgspec.convert(arguments_of(call), kind)
            except msgspec.ValidationError as error:
                raise BadCall(f"the arguments of {call.name} do not fit: {error}") from None
            return found
    return None


PLANNING = (
    "First write a plan: call make_plan with the few steps that lead to the goal. Do nothing else."
)
EXECUTING = (
    "Work towards the goal, with the tools where they help. When it is reached, or can't be, "
    "answer the user."
)
FOLLOWING = "Say with update_plan what became of each item of the plan."
JUDGING = (
    "Judge the answer above: is the goal reached, and is all that it says borne out? Call accept, "
    "or revise with what is missing."
)
GO_ON = "You were cut off. Go on exactly where you stopped, without repeating anything."
SAY_SOMETHING = "You said nothing. Call a tool, or answer the user."

_OF_A_DRAFT = ("draft", "whole", "cut_off", "empty", "rejected", "misfit")
"""The notes on an answer that is not yet given."""

_MOST_EMPTY = 2
"""So many replies in a row may say nothing."""


_MOST_IN_MIND = 2000
"""So many characters of a call and of its result stay in the state, which each resume reads."""


Next = Any
"""The next `AgentState`: as it is, as what a flow of calls returns (see `holdfast.agent.flow`), or
to be awaited. A function that overrides a phase may be written in any of these ways."""


class Orchestrator(Loop[Out]):
    """An agent: a model, tools, and the limits within which they work towards a goal.

    >>> from holdfast import Holdfast, tool
    >>> from holdfast.agent import Reply, ToolCall, assistant
    >>> @tool(in_doubt="retry")
    ... def order_status(number: int) -> str:
    ...     "Look up where an order is."
    ...     return "shipped"
    >>> def model(request):
    ...     if request.messages[-1].role == "user":
    ...         asked = assistant("", [ToolCall("c1", "order_status", '{"number": 7}')])
    ...         return Reply(asked, stop="tool_calls")
    ...     return Reply(assistant(f"It is {request.messages[-1].results[0].content}."))
    >>> agent = Orchestrator("order_agent", model, [order_status], plan=False)
    >>> with Holdfast("memory://") as hf:
    ...     agent.run(hf.session("chat-12", user="ada"), "Where is order 7?", id="where-7").answer
    'It is shipped.'
    """

    def __init__(
        self,
        name: str,
        model: Model,
        tools: Iterable[Any] = (),
        *,
        output: type[Out] | UnionType | None = None,
        about: str = "",
        system: str = "",
        limits: Limits | None = None,
        budget_tokens: int = 32_000,
        plan: bool = True,
        reflect: bool = False,
        ask_user: bool = True,
        summarize: Summarize | None = None,
        compact_at: float = 0.6,
        parallel: bool = True,
        hands_off_to: Iterable[Orchestrator[Any]] = (),
        handoff: str | os.PathLike[str] | None = None,
        retry: Retry = model_retry,
        counter: Counter | None = None,
        version: int = 0,
    ) -> None:
        self.name = name
        if not 0 < compact_at <= 1:
            raise BadInput(f"Orchestrator(compact_at={compact_at!r:.40}) is a share of the budget")
        if type(budget_tokens) is not int or budget_tokens < 1:
            given = f"Orchestrator(budget_tokens={budget_tokens!r:.40})"
            raise BadInput(f"{given} must be a whole number above 0")
        self._asks = (AskUser,) if ask_user else ()
        self.tools: Tools = Tools(tools)
        self.output: AnswerForm[Out] | None = None if output is None else AnswerForm(output)
        own = (ANSWER_TOOL,) if output is not None else ()
        self.tools.must_differ_from((*own, *(NAMES[kind] for kind in self._builtin(plan))))
        self.system = system
        self.about = about
        """Its strength, in a few words: for agents that may call it, or hand off to it."""
        self.budget_tokens = budget_tokens
        self.plans: bool = plan
        self.reflects: bool = reflect
        self.counter: Counter = counter or Estimate()
        self.compact_at = compact_at
        self.parallel = parallel
        self._others: dict[str, Orchestrator[Any]] = {}
        for other in hands_off_to:
            self._add_other(other)
        self.handoff = handoff
        self._caller = ModelStep(name, model, retry)
        self.summarize: Summarize = summarize or summarizing(self._caller)
        super().__init__(name, limits=limits, version=version)

    @property
    def is_async(self) -> bool:
        given = self._caller.is_async or self.tools.is_async or is_async(self.summarize)
        return given or super().is_async or any(each.is_async for each in self._others.values())

    @property
    def output_type(self) -> Any:
        return None if self.output is None else self.output.kind

    def output_of(self, answer: str) -> Out:
        return super().output_of(answer) if self.output is None else self.output.value(answer)

    # Handing off

    def may_hand_off_to(self, *others: Orchestrator[Any]) -> None:
        """Let it hand off to more agents, such as one that was made later and hands off to it."""
        for other in others:
            if other.is_async and not self.is_async:
                raise BadInput(
                    f"{self.name} is sync, and {other.name} is async: give {self.name} an async "
                    f"model, or name {other.name} in its hands_off_to=[…]"
                )
            self._add_other(other)

    def _add_other(self, other: Orchestrator[Any]) -> None:
        if not isinstance(other, Orchestrator):
            raise BadInput(f"hands_off_to=… lists agents, not {other!r:.60}")
        if other.output_type != self.output_type:
            raise BadInput(
                f"{self.name} can't hand off to {other.name}: their answers have other types, "
                f"{self.output_type!r:.60} and {other.output_type!r:.60}"
            )
        name = HAND_OFF + other.name
        if name in self._others or name in self.tools.functions:
            raise BadInput(f"{self.name}: there is a tool {name!r} already")
        self._others[name] = other

    def _reached(self) -> dict[str, Orchestrator[Any]]:
        """The agents that it may come to by handing off, by name, itself among them."""
        found: dict[str, Orchestrator[Any]] = {self.name: self}
        todo = [self]
        while todo:
            for other in todo.pop()._others.values():
                if other.name not in found:
                    found[other.name] = other
                    todo.append(other)
        return found

    def acting(self, state: AgentState) -> Loop[Any]:
        name = state.memory.notes.get("handed_to")
        if not name or name == self.name:
            return self
        if (found := self._reached().get(name)) is None:
            raise CodeMissing(
                f"the task was handed off to the agent {name!r}, which {self.name} does not know "
                f"any more: name it in hands_off_to=[…] again"
            )
        return found

    def _hand_offs(self) -> list[ToolInfo]:
        return [
            replace(told_of(HandOff), name=name, description=f"{_HANDS_OFF} {other.about}".strip())
            for name, other in self._others.items()
        ]

    def step(self, state: AgentState) -> Next:
        """The next state: by the phase it is in. To change one of them, override it."""
        if state.phase == "planning":
            return self.to_plan(state)
        return self.to_execute(state) if state.phase == "executing" else self.to_reflect(state)

    # Planning

    def to_plan(self, state: AgentState) -> Next:
        """Have the model write a plan, and go on to execute it."""
        if not self.plans:
            return state.to_executing()
        reply, state = yield from self.think(state, PLANNING, (MakePlan,))
        written = (_items(plan) for plan in _meant(reply, (MakePlan,)))
        # A model that writes no plan gets the simplest one: the goal itself.
        items = next((items for items in written if items), [state.memory.goal])
        current().plan(items)
        return state.with_plan(items).to_executing()

    # Executing

    def to_execute(self, state: AgentState) -> Next:
        """Ask the model what to do next, and do it."""
        state = yield from self.to_compact(state)
        builtin = self._builtin(self.plans)
        told = f"{EXECUTING} {FOLLOWING}" if self.plans else EXECUTING
        nudges = _nudges(state)
        reply, state = yield from self.think(state, told, builtin, self.tools, nudges, answers=True)
        if reply.stop == "refusal":
            return (yield from self._refused(state, reply))
        if reply.message.calls:
            return (yield from self._make_calls(state, reply, builtin))
        return self._answered(state, reply)

    def _builtin(self, plans: bool) -> tuple[type[Any], ...]:
        """The built-in tools that there are while it executes."""
        return (*self._asks, *((UpdatePlan, MakePlan) if plans else ()))

    def _refused(self, state: AgentState, reply: Reply) -> Flow[AgentState]:
        """End with what the model said, without the calls that it asked for all the same."""
        said = tuple(part for part in reply.message.parts if not isinstance(part, ToolCall))
        if said:
            yield lambda: self.session.say(replace(reply.message, content=said))
        return state.to_error(f"the model refused: {reply.message.text or '(without a word)'}")

    def _answered(self, state: AgentState, reply: Reply) -> AgentState:
        """Take note of an answer, of a part of one, or of none."""
        notes = state.memory.notes
        before = notes.get("draft") or ""
        if not (before + reply.message.text).strip():
            return state.note("empty", (notes.get("empty") or 0) + 1).to_reflecting()
        text, is_cut_off = before + reply.message.text, reply.stop == "length"
        whole = None if before else msgspec.to_builtins(reply.message)
        if self.output is not None and not is_cut_off:
            try:
                text = self.output.read(text)
            except BadCall as error:
                rejected = {"rejected": text, "misfit": self._asked_again(error)}
                return _without_draft(state).noted(rejected).to_reflecting()
        draft = {"draft": text, "whole": whole, "empty": 0, "cut_off": is_cut_off}
        return _without_draft(state).noted(draft).to_reflecting()

    def _asked_again(self, error: BadCall) -> str:
        how = "" if self._caller.is_structured else f" Call {ANSWER_TOOL} with it."
        return f"That can't be taken: {error}. Answer again, so that it fits.{how}"

    def _make_calls(
        self, state: AgentState, reply: Reply, builtin: Sequence[type[Any]]
    ) -> Flow[AgentState]:
        asked: list[CallToMake] = []
        answer: str | None = None
        for call in reply.message.calls:
            if self.output is not None and call.name == ANSWER_TOOL:
                each, answer = _final(call, self.output, answer)
            elif call.name in self._others:
                each, state = self._handed(state, call)
            else:
                each, state = self._prepared(state, call, builtin)
            if each.error and reply.stop == "length":
                cut = f"{each.error} (your reply was cut off by its limit of length)"
                each = replace(each, error=cut)
            asked.append(each)
        records = yield from making(asked, parallel=self.parallel)
        for record in records:
            state = state.record_observation(_short(record))
            if record.usage is not None:
                state = state.spend(record.usage)
        yield lambda: self.session.say(reply.message, *results_of(records))
        state = _without_draft(state)
        return (state if answer is None else state.note("draft", answer)).to_reflecting()

    def _prepared(
        self, state: AgentState, call: ToolCall, builtin: Sequence[type[Any]]
    ) -> tuple[CallToMake, AgentState]:
        """A call that the model asks for. Calls that change the plan are made at once, in order."""
        try:
            own = meant(call, tuple(builtin))
            if own is None:
                return prepared(call, self.tools), state
            if isinstance(own, AskUser):
                return CallToMake(call, partial(ask, own.question, str)), state
            text, state = self._do(state, own)
            return CallToMake(call, result=text), state
        except BadCall as error:
            return CallToMake(call, error=str(error)), state

    def _handed(self, state: AgentState, call: ToolCall) -> tuple[CallToMake, AgentState]:
        """A call that hands off to another agent: the first of a reply counts."""
        if (state.memory.notes.get("handed_to") or self.name) != self.name:
            return CallToMake(call, error="it was handed off already"), state
        other = self._others[call.name]
        return CallToMake(call, result=f"{other.name} goes on"), state.note("handed_to", other.name)

    def _do(self, state: AgentState, own: Builtin) -> tuple[str, AgentState]:
        """Carry out a call of a built-in tool that changes the plan."""
        try:
            if isinstance(own, MakePlan):
                if not (items := _items(own)):
                    raise BadCall("a plan needs items that say something")
                current().plan(items)
                return "the plan is changed", state.with_plan(items)
            if isinstance(own, UpdatePlan):
                after = state.mark(own.item, own.status)
                current().mark(own.item, own.status, because=own.because)
                return "noted", after
        except BadInput as error:
            raise BadCall(str(error)) from None
        raise BadCall(f"{own!r:.60} makes no sense here")

    # Reflecting

    def to_reflect(self, state: AgentState) -> Next:
        """Decide how to go on: give the answer, go on executing, or plan anew."""
        notes = state.memory.notes
        if (notes.get("empty") or 0) >= _MOST_EMPTY:
            state = state.note("empty", 0)  # for a retry, which asks once more
            return state.to_error(f"the model said nothing, {notes['empty']} times in a row")
        draft = notes.get("draft")
        if not draft or notes.get("cut_off") or notes.get("empty"):
            return state.to_executing()
        if self.reflects:
            verdict, state = yield from self._judged(state, draft)
            if verdict:
                return _without_draft(state.note("revise", verdict)).to_planning()
        whole = notes.get("whole")
        answer = assistant(draft) if whole is None else msgspec.convert(whole, Message)
        yield lambda: self.session.say(answer)
        return state.to_done(draft)

    def _judged(self, state: AgentState, draft: str) -> Flow[tuple[str, AgentState]]:
        """The missing parts, in words for the model; '' if nothing is missing."""
        nudges = (Nudge("assistant", draft), Nudge("user", JUDGING))
        reply, state = yield from self.think(state, "", (Accept, Revise), None, nudges)
        return next((p.reason for p in _meant(reply, (Revise,))), ""), state

    # The model

    def think(
        self,
        state: AgentState,
        told: str,
        builtin: Sequence[type[Any]] = (),
        tools: Tools | None = None,
        nudges: Sequence[Nudge] = (),
        *,
        answers: bool = False,
    ) -> Flow[tuple[Reply, AgentState]]:
        """Call the model, and count its usage; `AgentGaveUp` if the call failed for good.

        With `answers` it may give the final answer, in the form that the agent's `output` has.
        """
        seen: Context = yield lambda: self.context(state, told)
        infos = [*map(told_of, builtin), *(tools.infos if tools is not None else ())]
        infos += self._hand_offs() if tools is not None else []
        if answers and self.output is not None:
            infos.append(replace(self.output.info, is_answer=self._caller.is_structured))
        call = ModelCall(context=seen, nudges=tuple(nudges), tools=kept_tools(infos))
        try:
            reply: Reply = yield lambda: self._caller.call(call)
        except StepFailed as error:
            raise AgentGaveUp(f"the model can't be called: {failure_text(error)}") from error
        tokens = self._counted(seen, [nudge.message for nudge in nudges], infos)
        counted = {"counted_tokens": tokens, "counter": self.counter.name}
        return self._caller.marked(reply, counted), state.spend(reply.usage)

    def _counted(self, seen: Context, nudges: Sequence[Message], infos: Sequence[ToolInfo]) -> int:
        """The tokens of a request by our count: of all that the provider counts as input."""
        tools = (Message("system", as_text(infos)),) if infos else ()
        return round(seen.tokens / seen.ratio) + sum(map(self.counter.count, (*nudges, *tools)))

    def context(self, state: AgentState, told: str) -> Context:
        """The model's view of the conversation. Override it to show something else."""
        goal = state.memory.goal
        if revise := state.memory.notes.get("revise"):
            goal += f"\nAn earlier answer was not good enough: {revise}"
        return context(
            self.session,
            budget_tokens=self.budget_tokens,
            system="\n\n".join(text for text in (self.system, told) if text),
            goal=goal,
            plan=state.memory.plan,
            counter=self.counter,
        )

    def to_compact(self, state: AgentState) -> Flow[AgentState]:
        """Summarize older turns, once they take up too much of the budget. With a folder as
        `handoff`, what the log knows is written there too, for the person who may have to go on."""
        over = int(self.budget_tokens * self.compact_at)
        done: Compaction = yield lambda: compact(
            self.session, self.summarize, over_tokens=over, counter=self.counter
        )
        if done.done and self.handoff is not None:
            door("handoff").here(self.handoff)
        return state.spend(done.usage) if done.usage.tokens or done.usage.cost else state


def _nudges(state: AgentState) -> tuple[Nudge, ...]:
    """An extra word for the model, because of how its last reply ended."""
    notes = state.memory.notes
    if notes.get("misfit"):
        return (Nudge("assistant", notes["rejected"]), Nudge("user", notes["misfit"]))
    if notes.get("cut_off"):
        return (Nudge("assistant", notes["draft"]), Nudge("user", GO_ON))
    return (Nudge("user", SAY_SOMETHING),) if notes.get("empty") else ()


def _final(
    call: ToolCall, output: AnswerForm[Any], before: str | None
) -> tuple[CallToMake, str | None]:
    """A call that gives the answer, and the answer: the first one that fits."""
    if before is not None:
        return CallToMake(call, error="there is an answer already"), before
    try:
        return CallToMake(call, result="taken"), output.read(call.arguments or "{}")
    except BadCall as error:
        return CallToMake(call, error=str(error)), before


def _meant(reply: Reply, kinds: tuple[type[Any], ...]) -> Iterable[Any]:
    """The built-in tools that a reply calls rightly."""
    for call in reply.message.calls:
        try:
            if (own := meant(call, kinds)) is not None:
                yield own
        except BadCall:
            continue


def _items(plan: MakePlan) -> list[str]:
    """The items of a plan that say something."""
    return [item for item in plan.items if item.strip()]


def _short(record: ToolCallRecord) -> ToolCallRecord:
    """An agent's note of a call: all of it is in the conversation."""
    arguments, result = record.arguments, record.result
    short = None if result is None else cut_text(result, _MOST_IN_MIND)
    return replace(record, arguments=cut_text(arguments, _MOST_IN_MIND), result=short)


def _without_draft(state: AgentState) -> AgentState:
    left = {name: None for name in _OF_A_DRAFT if state.memory.notes.get(name)}
    return state.noted(left) if left else state
