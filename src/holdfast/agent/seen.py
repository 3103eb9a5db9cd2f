"""The inputs of model calls, from the log alone: the calls of a task that were given a `Context`.

A context stands in the log of a task as what it is, a small value that names messages. So it can be
found again among the arguments of the call that took it, by any author of a step, or where a step
made one itself; and the messages that it names are in the log of its session. Nothing is run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from holdfast.agent.contexts import Context, Kind, book_at, messages_in, messages_of
from holdfast.agent.model import ToolInfo
from holdfast.agent.model_calls import ModelCall, tools_in
from holdfast.agent.sessions import Session, open_session
from holdfast.core.conversation import Conversation
from holdfast.core.events import Observed, Started
from holdfast.core.lists import REFERENCES
from holdfast.core.state import scope_of
from holdfast.errors import SessionNotFound
from holdfast.log.messages import Message
from holdfast.stores.port import Store
from holdfast.views.task import TaskView

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
    for event in view.events():
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
