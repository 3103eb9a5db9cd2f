"""A task as the spans of a trace, from its log alone.

A task and its children are one trace, a call is one span, and the attempts of a call are events of
its span. The ids are made of what the log says, never of chance: a task that crashed and went on
elsewhere is one trace, and every reader of the log makes the same spans. A call that is
answered from its record is no span a second time, because the log has it once.

The names are those of the conventions of OpenTelemetry for generative AI: `invoke_agent` for a
task, `execute_tool` for a tool, `chat` for a call of a model. Attributes that they have no name for
begin with `holdfast.`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from msgspec import Raw, Struct, UnsetType

from holdfast.core import events as e
from holdfast.core.events import AnyEvent, Failure
from holdfast.core.state import Call, State, scope_of
from holdfast.core.usage import Used
from holdfast.log.reading import Tail, base_of, first_event, stream_of
from holdfast.stores.port import Store
from holdfast.views.measures import usage_in, whole_result

Attribute = str | int | float | bool | list[str]
Attributes = dict[str, Attribute]

_LONGEST = 4096
"""Of a text in an attribute: a backend cuts or refuses longer ones."""

_ENDED = {
    e.TaskCompleted: "completed",
    e.TaskErrored: "failed",
    e.TaskStopped: "cancelled",
}

_PROVIDERS = {
    "claude": "anthropic",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "command": "cohere",
    "grok": "x_ai",
    "deepseek": "deepseek",
}


class SpanEvent(Struct, frozen=True):
    """Something that happened within a span."""

    name: str
    at: datetime
    attributes: Attributes


class Span(Struct, frozen=True, kw_only=True):
    """A task or a call, from its beginning to its end."""

    trace_id: int
    span_id: int
    parent_id: int
    """0 for the first one of a trace."""
    name: str
    kind: Literal["internal", "client"] = "internal"
    start: datetime
    end: datetime
    attributes: Attributes
    events: tuple[SpanEvent, ...] = ()
    error: str | None = None
    links: tuple[tuple[int, int], ...] = ()
    """The trace and the span of what this one goes back to: the original of a fork."""
    seq: int
    """The event by which it ended."""


class Tracer:
    """The spans of one task, as its log grows. `read` goes on where it left off.

    >>> from holdfast import Holdfast, step, task
    >>> @step
    ... def traced_step() -> int:
    ...     return 1
    >>> @task
    ... def traced_task() -> int:
    ...     return traced_step()
    >>> with Holdfast("memory://") as hf:
    ...     _ = hf.run(traced_task, id="traced-1")
    ...     spans = list(Tracer(hf.store, "traced-1").read())
    >>> [span.name for span in spans], len({span.trace_id for span in spans})
    (['traced_step', 'invoke_agent traced_task'], 1)
    """

    def __init__(self, store: Store, task_id: str, *, content: bool = False) -> None:
        self._store = store
        self._content = content
        self._tail = Tail(store, task_id)
        self._open: dict[str, _Open] = {}
        self._visits: Counter[str] = Counter()
        """How often each call was begun: more than once after a rewind or a retry of the task."""
        self._asked: set[str] = set()
        """The calls in which a model was asked: what they return may be its reply."""
        self._trace_id = self._parent_id = 0
        self._base = base_of(store, stream_of(task_id))
        self._links: tuple[tuple[int, int], ...] = ()
        self._task: _Open | None = None
        self._key = ""

    def read(self) -> Iterator[Span]:
        """The spans that ended since the last time."""
        for _, event in self._tail.read():
            state = self._tail.state
            if event.seq <= self._base:  # what a fork shares is in the trace of its original
                continue
            if isinstance(event, e.TaskCreated):
                self._begin(event)
            for part in e.parts_of(event):
                yield from self._take(part, state)

    # The task itself.

    def _begin(self, event: e.TaskCreated) -> None:
        self._key = _key(event.id, event.at)
        self._trace_id, self._parent_id = _roots(self._store, event)
        if event.fork is not None:
            original = first_event(self._store, stream_of(event.fork.of))
            if original is not None:
                its_key = _key(original.id, original.at)
                link = (_roots(self._store, original)[0], _number(8, its_key, "task", 1))
                self._links = (link,)

    def _living(self, event: AnyEvent, state: State) -> _Open:
        """The span of the task; another one, below the first, if it goes on after its end."""
        if self._task is None:
            self._visits[""] += 1
            began = state.created_at if self._visits[""] == 1 else event.at
            self._task = _Open("", state.task, "task", began, self._visits[""])
        return self._task

    def _span_id(self, opened: _Open) -> int:
        if opened.kind == "task":
            return _number(8, self._key, "task", opened.visit)
        if opened.child:  # so that the child knows it too
            return _number(8, "child", self._trace_id, opened.child)
        return _number(8, self._key, opened.path, opened.visit)

    def _take(self, event: AnyEvent, state: State) -> Iterator[Span]:
        task = self._living(event, state)
        ended = _ENDED.get(type(event))
        if ended is not None:
            yield from self._ends(event, state, ended)
            return
        path = getattr(event, "path", "")
        if path and type(event) in _BEGINS and path not in self._open:
            self._opens(path, event, state)
        around = self._open.get(path, task)
        if (said := _said(event)) is not None:
            around.events.append(said)
        if isinstance(event, e.Started):
            self._attempt(around, event)
            return  # the state may be that after the call: see `parts_of`
        if isinstance(event, e.AttemptFailed):
            around.running = False
        waiting = [path] if path else [p for p, each in self._open.items() if each.kind in _HEARS]
        for each in waiting:
            call = state.calls.get(each)
            if each in self._open and call is not None and _is_over(call, event):
                yield self._closed(self._open.pop(each), event, call)

    def _ends(self, event: AnyEvent, state: State, status: str) -> Iterator[Span]:
        for path in list(self._open):
            # It never came to an end of its own: the task did before it.
            yield self._closed(self._open.pop(path), event, state.calls.get(path))
        task, self._task = self._living(event, state), None
        failure = event.failure if isinstance(event, e.TaskErrored) else None
        if failure is not None:
            task.events.append(_raised(failure, event.at))
        first = _number(8, self._key, "task", 1)
        yield Span(
            trace_id=self._trace_id,
            span_id=self._span_id(task),
            parent_id=self._parent_id if task.visit == 1 else first,
            name=f"invoke_agent {state.task}",
            start=task.at,
            end=event.at,
            attributes=_of_task(state, status),
            events=tuple(task.events),
            error=failure.summary() if failure is not None else None,
            links=self._links if task.visit == 1 else (),
            seq=event.seq,
        )

    # Its calls.

    def _opens(self, path: str, event: AnyEvent, state: State) -> None:
        call = state.calls[path]
        self._visits[path] += 1
        self._open[path] = _Open(
            path, call.name, call.kind, event.at, self._visits[path], call.child
        )

    def _attempt(self, around: _Open, event: e.Started) -> None:
        if around.running:
            attributes: Attributes = {"holdfast.attempt": event.attempt - 1}
            around.events.append(SpanEvent("holdfast.attempt.interrupted", event.at, attributes))
        around.running = True
        around.attempts += 1
        around.events.append(
            SpanEvent("holdfast.attempt", event.at, {"holdfast.attempt": event.attempt})
        )

    def _closed(self, opened: _Open, event: AnyEvent, call: Call | None) -> Span:
        name, kind, attributes = self._described(opened, call)
        failure = call.failure if call is not None and call.status == "failed" else None
        task = self._task
        return Span(
            trace_id=self._trace_id,
            span_id=self._span_id(opened),
            parent_id=self._around(opened.path) or (self._span_id(task) if task else 0),
            name=name,
            kind=kind,
            start=opened.at,
            end=event.at,
            attributes=attributes,
            events=tuple(opened.events),
            error=failure.summary() if failure is not None else None,
            seq=event.seq,
        )

    def _around(self, path: str) -> int:
        while path := scope_of(path):
            if (found := self._open.get(path)) is not None:
                return self._span_id(found)
        return 0

    def _described(
        self, opened: _Open, call: Call | None
    ) -> tuple[str, Literal["internal", "client"], Attributes]:
        attributes: Attributes = {
            "holdfast.task.id": self._tail.state.id,
            "holdfast.call.path": opened.path,
            "holdfast.call.kind": opened.kind,
            "holdfast.call.status": call.status if call is not None else "unknown",
        }
        if opened.attempts:
            attributes["holdfast.call.attempts"] = opened.attempts
        if call is not None and call.key and opened.kind == "tool":
            attributes["holdfast.idempotency_key"] = call.key
        if opened.child:
            attributes["holdfast.child.id"] = opened.child
        used = self._used(opened, call)
        if used is not None:
            return f"chat {used.model}".rstrip(), "client", attributes | _of_model(used)
        if opened.kind != "tool":
            waits = {"step": opened.name, "child": f"child {opened.name}"}
            return waits.get(opened.kind, f"wait {opened.kind}"), "internal", attributes
        attributes |= {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": opened.name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call.key if call is not None and call.key else opened.path,
        }
        if self._content and call is not None:
            attributes |= self._values(call)
        return f"execute_tool {opened.name}", "internal", attributes

    def _values(self, call: Call) -> Attributes:
        given = {"arguments": call.args, "result": call.result}
        return {
            f"gen_ai.tool.call.{name}": whole_result(self._store, value).decode()[:_LONGEST]
            for name, value in given.items()
            if not isinstance(value, UnsetType)
        }

    def _used(self, opened: _Open, call: Call | None) -> Used | None:
        if call is None or not isinstance(call.result, Raw) or opened.kind not in ("step", "tool"):
            return None
        if opened.path in self._asked:
            return None
        used = usage_in(whole_result(self._store, call.result))
        scope = opened.path if used is not None else ""
        while scope := scope_of(scope):
            self._asked.add(scope)
        return used


class _Open(Struct):
    path: str
    name: str
    kind: str
    at: datetime
    visit: int
    child: str = ""
    events: list[SpanEvent] = []
    attempts: int = 0
    running: bool = False


_BEGINS = {e.Started, e.TimerSet, e.QuestionAsked, e.MessageAwaited, e.ChildStarted,
           e.AnswerRefused, e.MessageRefused}  # fmt: skip
_HEARS = ("message",)
"""The spans that end by an event that does not name them."""


def _is_over(call: Call, event: AnyEvent) -> bool:
    # An attempt that failed may be followed by another; `Failed` says that none is.
    return call.status == "completed" or (
        call.status == "failed" and not isinstance(event, e.AttemptFailed)
    )


def _key(task_id: str, created_at: datetime) -> str:
    # With the time, because two stores may have a task of the same id.
    return f"{task_id}\n{created_at.isoformat()}"


def _number(size: int, *parts: str | int) -> int:
    text = "\x00".join(map(str, ("holdfast", *parts)))
    data = sha256(text.encode("utf-8", "surrogatepass")).digest()[:size]
    return int.from_bytes(data, "big") or 1


def _roots(store: Store, event: e.TaskCreated) -> tuple[int, int]:
    """The trace of a task, and the span it is below: those of the parent that began it all."""
    first, seen = event, {event.id}
    while first.parent and first.parent not in seen:
        seen.add(first.parent)
        above = first_event(store, stream_of(first.parent))
        if above is None:  # it was deleted
            break
        first = above
    trace_id = _number(16, "trace", _key(first.id, first.at))
    return trace_id, 0 if first is event else _number(8, "child", trace_id, event.id)


# The texts of attributes and events.


def _of_task(state: State, status: str) -> Attributes:
    attributes: Attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "holdfast",
        "gen_ai.agent.name": state.task,
        "holdfast.task.id": state.id,
        "holdfast.task.status": status,
        "holdfast.task.claims": state.claims,
    }
    if state.version:
        attributes["gen_ai.agent.version"] = str(state.version)
    if state.session:
        attributes["gen_ai.conversation.id"] = state.session
    for name, text in {"user": state.user, "parent": state.parent}.items():
        if text:
            attributes[f"holdfast.task.{name}"] = text
    labels = {f"holdfast.label.{name}": value for name, value in state.labels.items()}
    return attributes | labels


def _of_model(used: Used) -> Attributes:
    usage = used.usage
    starts = (name for start, name in _PROVIDERS.items() if used.model.startswith(start))
    attributes: Attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": next(starts, "other"),
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if used.model:
        attributes |= {"gen_ai.request.model": used.model, "gen_ai.response.model": used.model}
    if usage.cached_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.cost:
        attributes["holdfast.usage.cost"] = usage.cost
    if used.stop:
        attributes["gen_ai.response.finish_reasons"] = [used.stop]
    return attributes


def _raised(failure: Failure, at: datetime, **more: Attribute) -> SpanEvent:
    attributes: Attributes = {
        "exception.type": failure.type,
        "exception.message": failure.message[:_LONGEST],
        "exception.stacktrace": failure.traceback[-_LONGEST:],
    }
    return SpanEvent("exception", at, attributes | {f"holdfast.{k}": v for k, v in more.items()})


_TELLS: dict[str, tuple[str, ...]] = {
    "claimed": ("owner", "epoch", "engine"),
    "parked": ("until",),
    "task_paused": ("by", "because"),
    "task_continued": ("by",),
    "cancel_requested": ("by", "because"),
    "moved": ("engine", "by"),
    "driver_died": ("owner", "where", "why"),
    "task_stuck": ("because",),
    "hindered": ("why",),
    "task_retried": ("by",),
    "rewound": ("to", "by", "because"),
    "compensating": ("ending",),
    "checkpointed": ("number",),
    "doubted": ("why",),
    "settled": ("verdict", "by"),
    "question_asked": ("id", "expects"),
    "question_answered": ("by",),
    "answer_refused": ("why",),
    "question_expired": (),
    "message_expired": (),
    "message_refused": ("why",),
    "reused": ("name", "of"),
    "adopted": ("name", "how"),
    "decided": ("name",),
}
"""The events of a log that are events of a span, by their tags, and what is told of them. Values
that people or models wrote are left out."""


def _said(event: AnyEvent) -> SpanEvent | None:
    if isinstance(event, e.AttemptFailed):
        more: dict[str, Any] = {"attempt": event.attempt, "doubt": event.doubt}
        if event.retry_at is not None:
            more["retry_at"] = event.retry_at.isoformat()
        return _raised(event.failure, event.at, **more)
    tag = str(event.__struct_config__.tag)
    if tag not in _TELLS:
        return None
    found = {name: getattr(event, name, "") for name in _TELLS[tag]}
    attributes: Attributes = {
        f"holdfast.{name}": value if isinstance(value, int) else str(value)[:_LONGEST]
        for name, value in found.items()
        if value not in ("", None)
    }
    return SpanEvent(f"holdfast.{tag}", event.at, attributes)
