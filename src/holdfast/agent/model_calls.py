"""Calling a model as a step: what it is asked is recorded small, and what it took is known.

The step's argument is a `ModelCall`. It names the context and the tools; both are had from the
store when the call is made, and again, at the end of this module, by readers who want to know what
the model saw.
"""

from __future__ import annotations

import inspect
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from holdfast.agent.adapters.base import ModelRejected, model_retry
from holdfast.agent.contexts import Context, Kind, book_at, messages_in, messages_of
from holdfast.agent.model import Model, Reply, Request, ToolInfo, transcript
from holdfast.agent.sessions import Session, open_session
from holdfast.agent.tooling import tool_infos
from holdfast.api.steps import step
from holdfast.api.tasks import current
from holdfast.codec import args_hash
from holdfast.core.conversation import Conversation
from holdfast.core.decoding import decode
from holdfast.core.events import Observed, Started, parts_of
from holdfast.core.limits import Limit, Limited
from holdfast.core.lists import REFERENCES
from holdfast.core.scope import inside
from holdfast.core.spec import Retry
from holdfast.core.state import scope_of
from holdfast.engines.parts import text_as_it_comes
from holdfast.errors import BadInput, SessionNotFound
from holdfast.log.artifacts import Artifact, kept, opened
from holdfast.log.messages import Message, Part, Role, ToolCall, media_bytes, system, user
from holdfast.log.tokens import Estimate
from holdfast.stores.port import Store
from holdfast.views.task import TaskView

SUMMARIZING = (
    "Summarize this conversation for the one who goes on with it, and has nothing else: what the "
    "user wants, what was done and found out, what was decided and why, what is open. Keep names, "
    "numbers and ids exactly. Write only the summary."
)


SENDABLE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names of tools that the providers accept."""
_UNSENDABLE = re.compile(r"[^a-zA-Z0-9_-]")


class Nudge(Struct, frozen=True):
    """A few words to a model that are in no conversation."""

    role: Role
    text: str

    @property
    def message(self) -> Message:
        """It, as a model sees it."""
        return Message(self.role, self.text)


class ModelCall(Struct, frozen=True):
    """A question to a model: a context, a word on top of it, and the tools that it may call."""

    context: Context
    nudges: tuple[Nudge, ...] = ()
    """The text that comes last."""
    tools: Artifact | None = None

    def request(self, on_text: Callable[[str], Any] | None = None) -> Request:
        """It, whole. Inside of a task."""
        store = inside("a call of a model").run.log.store
        infos = tools_in(store, self.tools) if self.tools is not None else ()
        nudges = (nudge.message for nudge in self.nudges)
        return Request(
            (*self.context.messages, *nudges),
            tuple(info for info in infos if not info.is_answer),
            partial(media_bytes, store),
            next((info for info in infos if info.is_answer), None),
            on_text,
        )


_kept: WeakKeyDictionary[Any, dict[bytes, Artifact]] = WeakKeyDictionary()


def kept_tools(infos: Sequence[ToolInfo]) -> Artifact | None:
    """Tools as a small value: what they are is in the store, once. None if there are none."""
    if not infos:
        return None
    run = inside("a call of a model").run
    data = msgspec.json.encode(infos)
    known = _kept.setdefault(run, {})
    if data not in known:
        known[data] = kept(run.log.store, [data], "tools.json")
    return known[data]


def tools_in(store: Any, artifact: Artifact) -> tuple[ToolInfo, ...]:
    """The tools that an artifact lists."""
    with opened(store, artifact) as file:
        return decode(file.read(), tuple[ToolInfo, ...])


class ModelStep:
    """A model whose calls are steps of a task, named after `name`: recorded, and retried.

    >>> from holdfast import Holdfast, task
    >>> from holdfast.agent import assistant, context, session
    >>> asks = ModelStep("polite", lambda request: Reply(assistant("Good morning.")))
    >>> @task
    ... def greets() -> str:
    ...     return asks.ask(context(session(), budget_tokens=500)).message.text
    >>> with Holdfast("memory://") as hf:
    ...     hf.session("chat-step").run(greets)
    'Good morning.'
    """

    def __init__(self, name: str, model: Model, retry: Retry = model_retry) -> None:
        if not callable(model):
            raise BadInput(f"{name!r:.40}: the model is a function, not {model!r:.60}")
        if not isinstance(retry, Retry):
            raise BadInput(f"{name!r:.40}: retry=… takes Retry(…), not {retry!r:.60}")
        self.name = name
        # Whatever is to be retried: what would be refused again, or is a mistake in code, is not.
        self.retry: Retry = replace(retry, unless=(*retry.unless, ModelRejected, BadInput))
        self.model = model
        self.is_async: bool = is_awaited(model)
        self.is_structured: bool = getattr(model, "structured", False) is True
        """Whether it can be told the form that an answer has to have."""
        self.longest: int = longest_answer(model)
        self.limit: Limited | None = limit_of(
            model, lambda call: asked_tokens(call.request()) + self.longest
        )
        decorate: Callable[..., Any] = step(
            name=f"{name}_model", retry=self.retry, limit=self.limit
        )
        self.call: Callable[[ModelCall], Any] = decorate(self._body())

    def ask(self, seen: Context, tools: Iterable[Any] = (), nudges: Iterable[Message] = ()) -> Any:
        """Ask the model for a `Reply`, in a task; with an async model: `await asks.ask(…)`.

        `nudges` are a few messages that come last and are in no conversation.
        """
        said = tuple(Nudge(each.role, each.text) for each in nudges)
        call = ModelCall(context=seen, nudges=said, tools=kept_tools(tool_infos(tools)))
        return self.call(call)

    def _body(self) -> Any:
        model: Any = self.model
        if self.is_async:

            async def acall_model(call: ModelCall) -> Reply:
                with text_as_it_comes() as on_text:
                    request = call.request(on_text)
                    return checked(await model(request), request)

            return acall_model

        def call_model(call: ModelCall) -> Reply:
            with text_as_it_comes() as on_text:
                request = call.request(on_text)
                return checked(model(request), request)

        return call_model

    def marked(self, reply: Reply, counted: dict[str, Any]) -> Reply:
        """A reply whose message says what it took: the next contexts are counted by it."""
        usage = {**msgspec.to_builtins(reply.usage), **counted}
        usage.setdefault("input_tokens", 0)
        meta = dict(reply.message.meta)
        if usage["input_tokens"]:
            meta["usage"] = usage
        if reply.model:
            meta["model"] = reply.model
        return replace(reply, message=replace(reply.message, meta=meta))


def limit_of(model: Any, tokens: Callable[[Any], int]) -> Limited | None:
    """The limit that a model's calls keep to, if it has one; `tokens` is what one is expected to
    take, where the limit does not say."""
    limit = getattr(model, "limit", None)
    return limit.of(tokens=tokens) if isinstance(limit, Limit) else limit


def asked_tokens(request: Request) -> int:
    """How many tokens a question takes, at the most."""
    counter = Estimate()
    asked = sum(map(counter.count, request.messages))
    if request.tools:
        asked += counter.count(user(msgspec.json.encode(request.tools).decode()))
    return asked


def longest_answer(model: Any) -> int:
    """The longest answer that an adapter allows; 1,024 tokens if it does not say."""
    options = getattr(model, "options", None)
    if not isinstance(options, Mapping):
        return 1024
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    found = [options[name] for name in names if type(options.get(name)) is int]
    return max(found, default=1024)


def is_awaited(model: Any) -> bool:
    """Whether a model has to be awaited: it says so, or is `async def`."""
    said = getattr(model, "is_async", None)
    if isinstance(said, bool):
        return said
    return any(map(inspect.iscoroutinefunction, (model, type(model).__call__)))


def checked(reply: Any, request: Request | None = None) -> Reply:
    """A reply as an agent can go on with it, and send it again: its calls have ids of their own,
    and names that providers take."""
    if not isinstance(reply, Reply):
        if inspect.iscoroutine(reply):
            reply.close()
        raise BadInput(f"a model returns a Reply, not {type(reply).__name__}: is it `async def`?")
    if reply.message.role != "assistant":
        raise BadInput(f"a model speaks as the assistant, not as {reply.message.role!r:.40}")
    if not reply.message.calls:
        return reply
    tools = {tool.name for tool in request.tools} if request is not None else set()
    earlier = request.messages if request is not None else ()
    taken = {call.id for message in earlier for call in message.calls}
    parts: list[Part] = []
    for number, part in enumerate(reply.message.parts):
        if isinstance(part, ToolCall):
            part = _named(part, tools)
            is_foreign = any(left.get("type") for left in part.extra.values())  # is kept whole
            if (not part.id or part.id in taken) and not is_foreign:
                part = _with_own_id(part, number)
            taken.add(part.id)
        parts.append(part)
    if tuple(parts) == reply.message.parts:
        return reply
    return replace(reply, message=replace(reply.message, content=tuple(parts)))


def _named(call: ToolCall, tools: set[str]) -> ToolCall:
    """A call of a tool that there is not, such as `functions.find`, by a name that can be sent: no
    provider takes any other, and the conversation would be refused from here on."""
    if call.name in tools or SENDABLE.fullmatch(call.name):
        return call
    name = _UNSENDABLE.sub("_", call.name)[:64] or "nameless"
    # It still has to be a tool that there is not.
    return replace(call, name=f"unknown_{name}"[:64] if name in tools else name)


def _with_own_id(call: ToolCall, number: int) -> ToolCall:
    # Made of the place of the step: in all of the conversation no other call has it.
    place = args_hash(f"{current().task_id}:{current().path}".encode())[:12]
    hints = {"openai_chat": "id", "openai_responses": "call_id", "anthropic": "id"}
    extra = {
        name: {key: value for key, value in left.items() if key != hints.get(name)}
        for name, left in call.extra.items()
    }
    return replace(call, id=f"call-{place}-{number}", extra=extra)


def summarizing(caller: ModelStep) -> Callable[[Sequence[Message]], Any]:
    """A function that has a model summarize messages."""
    model: Any = caller.model
    limit = limit_of(model, lambda said: asked_tokens(request(said)) + caller.longest)
    decorate: Callable[..., Any] = step(
        name=f"{caller.name}_summary", retry=caller.retry, limit=limit
    )

    def request(messages: Sequence[Message]) -> Request:
        return Request((system(SUMMARIZING), user(transcript(messages))))

    if caller.is_async:

        async def asummarize(messages: list[Message]) -> Reply:
            return checked(await model(request(messages)))

        return decorate(asummarize)  # type: ignore[no-any-return]

    def summarize(messages: list[Message]) -> Reply:
        return checked(model(request(messages)))

    return decorate(summarize)  # type: ignore[no-any-return]


# The inputs of model calls, from the log alone: the calls of a task that were given a `Context`.
#
# A context stands in the log of a task as what it is, a small value that names messages. So it can
# be found again among the arguments of the call that took it, by any author of a step, or where a
# step made one itself; and the messages that it names are in the log of its session. Nothing is
# run.

_FIELDS = {"session", "seq", "sections", "tokens", "budget", "digest"}
"""The decoder of a context."""
_CALL = set(ModelCall.__struct_fields__)


class AskedModel(Struct, frozen=True):
    """One call of a model, as the log of its task has it."""

    path: str
    name: str
    at: datetime
    call: ModelCall

    @property
    def context(self) -> Context:
        """The part of the conversation that it saw."""
        return self.call.context

    @property
    def count(self) -> int:
        """How many messages it saw."""
        named = (each.last - each.first if each.first else 0 for each in self.context.sections)
        return len(self.context.sections) + sum(named) + len(self.call.nudges)


class Saw(Struct, frozen=True):
    """The same, whole: with the messages, each with what it is there for."""

    asked: AskedModel
    messages: tuple[tuple[Kind, Message], ...]
    nudges: tuple[Message, ...]
    """The messages that came last, and are in no conversation."""
    tools: tuple[ToolInfo, ...]


def asked_in(view: TaskView) -> Iterator[AskedModel]:
    """The calls of a task that were given a context, or made one: those before a checkpoint too.

    >>> from holdfast import Holdfast, step, task
    >>> from holdfast.agent import context, session
    >>> @step
    ... def think_about(seen: Context) -> str:
    ...     return "Hm."
    >>> @task
    ... def thinks_once() -> str:
    ...     return think_about(context(session(), budget_tokens=500))
    >>> with Holdfast("memory://") as hf:
    ...     chat = hf.session("chat-asked")
    ...     _ = chat.say("Hello"), chat.run(thinks_once, id="thinks-1")
    ...     [(asked.path, asked.name) for asked in asked_in(hf.task("thinks-1"))]
    [('1', 'think_about')]
    """
    begun: dict[str, Started] = {}
    for event in (part for each in view.events() for part in parts_of(each)):
        match event:
            case Started(path=path, args=Raw() as args) if path not in begun:
                begun[path] = event
                call = _call_in(view, args)
                if call is not None:
                    yield AskedModel(path, event.name, event.at, call)
            case Observed(name="context", value=value) if scope_of(event.path) in begun:
                around = begun[scope_of(event.path)]
                call = _call_in(view, value)
                if call is not None:
                    yield AskedModel(around.path, around.name, event.at, call)


def saw(asked: AskedModel, session: Session, store: Store) -> Saw:
    """Exactly what a model saw. `LogDamaged` if the session's log is not what it was made of."""
    book = book_at(asked.context, session.book)
    messages_of(asked.context, book)  # by its digest: they are the very ones
    cut_to = asked.context.left_out.cut_to
    messages = [
        (section.kind, message)
        for section in asked.context.sections
        for message in messages_in((section,), cut_to, book)
    ]
    tools = () if asked.call.tools is None else tools_in(store, asked.call.tools)
    nudges = tuple(Message(nudge.role, nudge.text) for nudge in asked.call.nudges)
    return Saw(asked, tuple(messages), nudges, tools)


def session_of(asked: AskedModel, store: Store) -> Session:
    """The session whose messages a model saw; `SessionNotFound` that says what it is wanted for."""
    try:
        return open_session(store, asked.context.session)
    except SessionNotFound as error:
        raise SessionNotFound(
            f"{error}: it has the messages that call {asked.path!r} saw. Was it deleted, or left "
            f"behind when the task was copied?"
        ) from None


def listed(calls: Iterable[AskedModel], store: Store) -> list[dict[str, Any]]:
    """The facts about each call, without fetching a message."""
    conversations: dict[str, Conversation] = {}
    rows = []
    for asked in calls:
        made = asked.context
        if made.session not in conversations:
            conversations[made.session] = session_of(asked, store).state
        conversation = conversations[made.session]
        rows.append(
            {
                "path": asked.path,
                "name": asked.name,
                "at": asked.at,
                "session": made.session,
                "tokens": made.tokens,
                "budget": made.budget,
                "messages": asked.count,
                "upto": upto(made, conversation),
                "left_out": made.left_out.messages,
                "summarized_upto": summarized_upto(made, conversation) or None,
            }
        )
    return rows


def upto(context: Context, conversation: Conversation) -> int:
    """The number of the newest message when a context was made."""
    turns = bisect_right(conversation.turns, context.seq, key=lambda turn: turn.seq)
    return conversation.firsts[turns - 1] + conversation.turns[turns - 1].count - 1 if turns else 0


def summarized_upto(context: Context, conversation: Conversation) -> int:
    """The last message that the summary in a context stands for; 0 if there is none in it."""
    seqs = {section.summary for section in context.sections if section.summary}
    return max((each.upto for each in conversation.summaries if each.seq in seqs), default=0)


def _call_in(view: TaskView, raw: Raw) -> ModelCall | None:
    data = bytes(raw)
    if b'"sections"' not in data and not data.startswith(REFERENCES):
        return None  # most calls: their arguments need not be decoded
    return _found(view.value(raw))


def _found(value: Any) -> ModelCall | None:
    """The first context in a value, with what stands beside it in a `ModelCall`."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += reversed(each)
        elif isinstance(each, dict):
            call = _made_of(each)
            if call is not None:
                return call
            pending += reversed(each.values())
    return None


def _made_of(value: dict[str, Any]) -> ModelCall | None:
    fields = _untagged(value)
    try:
        if fields.keys() == _CALL and _is_context(fields["context"]):
            return msgspec.convert(_bare(value), ModelCall)
        return ModelCall(msgspec.convert(_bare(value), Context)) if _is_context(value) else None
    except msgspec.ValidationError:
        return None  # it only looks like one: anybody may hand such a dict to a step


def _is_context(value: Any) -> bool:
    return isinstance(value, dict) and _untagged(value).keys() >= _FIELDS


def _untagged(value: dict[str, Any]) -> dict[str, Any]:
    inner = value.get("of") if "$type" in value else value
    return inner if isinstance(inner, dict) else {}


def _bare(value: Any) -> Any:
    """A context without the marks of types that it has beside values of unknown ones."""
    if isinstance(value, dict):
        if "$tuple" in value:
            return _bare(value["$tuple"])
        return {name: _bare(each) for name, each in _untagged(value).items()}
    return [_bare(each) for each in value] if isinstance(value, list) else value
