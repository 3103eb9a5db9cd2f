"""Calling a model as a step: what it is asked is recorded small, and what it took is known.

The step's argument is a `ModelCall`. It names the context and the tools; both are had from the
store when the call is made, and again by readers who want to know what the model saw.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.agent.adapters.base import ModelRejected, model_retry
from holdfast.agent.contexts import Context
from holdfast.agent.model import Model, Reply, Request, ToolInfo, transcript
from holdfast.agent.tooling import tool_infos
from holdfast.api.steps import step
from holdfast.api.tasks import current
from holdfast.codec import args_hash
from holdfast.core.decoding import decode
from holdfast.core.limits import Limit, Limited
from holdfast.core.scope import inside
from holdfast.core.spec import Retry
from holdfast.engines.parts import text_as_it_comes
from holdfast.errors import BadInput
from holdfast.log.artifacts import Artifact, kept, opened
from holdfast.log.messages import Message, Part, Role, ToolCall, media_bytes, system, user
from holdfast.log.tokens import Estimate

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
