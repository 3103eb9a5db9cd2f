"""Bring past traces along: spans of OpenTelemetry for generative AI become tasks and sessions.

The spans are JSON: what a collector's file exporter writes (OTLP), or the SDK's console exporter.
No package of OpenTelemetry is needed. Each topmost span of an agent is a finished task: the spans
below it are its calls, `execute_tool` a tool, all others steps, nested as the spans are, with their
times, arguments, results and tokens as far as the trace has them. `gen_ai.conversation.id` names
the session, and the messages, where the trace has them, are its conversation.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.api.app import Holdfast
from holdfast.codec import args_hash
from holdfast.core.decoding import Illegible, decode
from holdfast.core.events import (
    FORMAT,
    AnyEvent,
    AttemptFailed,
    Completed,
    Failed,
    Failure,
    Started,
    TaskCompleted,
    TaskCreated,
    TaskErrored,
)
from holdfast.core.state import FINISHED
from holdfast.core.words import checked_id
from holdfast.errors import BadId, BadInput
from holdfast.integrations.past import IMPORTED, PastSession
from holdfast.log.log import Log, open_log
from holdfast.log.messages import (
    Foreign,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    turns,
)

__all__ = ["ImportedTraces", "import_spans"]

_AGENTS = ("invoke_agent", "invoke_workflow", "create_agent")
_NOBODY = "otel"
_LEASE_S = 60.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST = 200
_ROLES: dict[str, Role] = {"system": "system", "user": "user", "tool": "tool"}


class ImportedTraces(Struct, frozen=True):
    """The result of an import."""

    tasks: tuple[str, ...]
    new: int
    """How many of the tasks were new."""
    sessions: tuple[str, ...]
    left_out: int
    """How many spans say nothing of generative AI, nor does any span below them."""


class PastSpan(Struct):
    """One span of the source."""

    trace: str
    id: str
    parent: str
    name: str
    start: datetime
    end: datetime
    attributes: dict[str, Any]
    failure: Failure | None = None
    inside: list[PastSpan] = field(default_factory=list)

    @property
    def operation(self) -> str:
        """Its operation in generative AI; '' if it has none."""
        return str(self.attributes.get("gen_ai.operation.name", ""))

    def told(self, name: str) -> Any:
        """An attribute; one that holds JSON as a text, as data."""
        found = self.attributes.get(f"gen_ai.{name}")
        if isinstance(found, str):
            try:
                return decode(found)
            except Illegible:
                return found
        return found


def import_spans(hf: Holdfast, *paths: str | Path) -> ImportedTraces:
    """Make tasks and sessions of the GenAI spans in JSON files. A task that is there stays so.

    Give all the files of a trace at once: a task is made of the spans that are there.

    >>> import tempfile
    >>> from holdfast import Holdfast
    >>> span = '''{"name": "invoke_agent support", "parent_id": null,
    ...   "context": {"trace_id": "0x1f", "span_id": "0x2a"}, "status": {"status_code": "OK"},
    ...   "start_time": "2026-11-18T08:30:00.5Z", "end_time": "2026-11-18T08:30:02Z",
    ...   "attributes": {"gen_ai.operation.name": "invoke_agent",
    ...                  "gen_ai.agent.name": "support"}}'''
    >>> with Holdfast("memory://") as hf, tempfile.NamedTemporaryFile("w+") as file:
    ...     _ = file.write(span), file.flush()
    ...     import_spans(hf, file.name).tasks, hf.task("otel-2a").type, hf.task("otel-2a").status
    (('otel-2a',), 'support', 'completed')
    """
    spans = [span for path in paths for span in spans_in(path)]
    tops, left_out = _trees(spans)
    tasks, new, sessions = [], 0, dict[str, None]()
    for top in tops:
        session = _session_of(top)
        task = _TracedTask(top, session)
        tasks.append(task.id)
        new += task.bring(hf)
        if session:
            sessions[session] = None
            _converse(hf, top, session)
    return ImportedTraces(tuple(tasks), new, tuple(sessions), left_out)


# Spans as files have them.


def spans_in(path: str | Path) -> Iterator[PastSpan]:
    """The spans of a file: one JSON document, or several one after the other."""
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: can't be read ({error})") from None
    reader, at, number = json.JSONDecoder(), 0, 0
    while at < len(text):
        if text[at].isspace() or text[at] == ",":
            at += 1
            continue
        number += 1
        try:
            found, at = reader.raw_decode(text, at)
            yield from _spans_of(found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BadInput(
                f"{path}: document {number} holds no spans: neither OTLP's JSON (resourceSpans) "
                f"nor that of the console exporter (context, start_time). {type(error).__name__}: "
                f"{error}"
            ) from None


def _spans_of(document: Any) -> Iterator[PastSpan]:
    if isinstance(document, list):
        for each in document:
            yield from _spans_of(each)
    elif "resourceSpans" in document:
        for resource in document["resourceSpans"]:
            for scope in resource.get("scopeSpans") or resource.get("scope_spans") or ():
                yield from map(_of_otlp, scope["spans"])
    else:
        yield _of_console(document)


def _of_otlp(span: Mapping[str, Any]) -> PastSpan:
    status = span.get("status") or {}
    raised = [_plain(event.get("attributes")) for event in span.get("events") or ()]
    has_failed = status.get("code") in (2, "STATUS_CODE_ERROR")
    attributes = _plain(span.get("attributes"))
    return PastSpan(
        trace=span["traceId"].lower(),
        id=span["spanId"].lower(),
        parent=(span.get("parentSpanId") or "").lower(),
        name=span["name"],
        start=_of_ns(span["startTimeUnixNano"]),
        end=_of_ns(span["endTimeUnixNano"]),
        attributes=attributes,
        failure=_failure(attributes, raised, status.get("message")) if has_failed else None,
    )


def _of_console(span: Mapping[str, Any]) -> PastSpan:
    context, status = span["context"], span.get("status") or {}
    raised = [event.get("attributes") or {} for event in span.get("events") or ()]
    attributes = dict(span.get("attributes") or {})
    has_failed = status.get("status_code") == "ERROR"
    return PastSpan(
        trace=context["trace_id"].removeprefix("0x"),
        id=context["span_id"].removeprefix("0x"),
        parent=(span.get("parent_id") or "").removeprefix("0x"),
        name=span["name"],
        start=datetime.fromisoformat(span["start_time"]).astimezone(UTC),
        end=datetime.fromisoformat(span["end_time"]).astimezone(UTC),
        attributes=attributes,
        failure=_failure(attributes, raised, status.get("description")) if has_failed else None,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    """Attributes of OTLP as plain data.

    >>> _plain([{"key": "n", "value": {"intValue": "7"}}])
    {'n': 7}
    """
    return {each["key"]: _value(each["value"]) for each in attributes or ()}


def _value(value: Mapping[str, Any]) -> Any:
    found: Any = None
    kind, found = next(iter(value.items()), ("", found))
    if kind == "intValue":
        return int(found)
    if kind == "arrayValue":
        return [_value(each) for each in found.get("values") or ()]
    if kind == "kvlistValue":
        return _plain(found.get("values"))
    return found


def _of_ns(ns: str | int) -> datetime:
    return _EPOCH + timedelta(microseconds=int(ns) // 1000)


def _failure(
    attributes: Mapping[str, Any], raised: Sequence[Mapping[str, Any]], said: Any
) -> Failure:
    found = next((each for each in raised if "exception.type" in each), {})
    kind = found.get("exception.type") or attributes.get("error.type") or "Error"
    module, _, name = str(kind).rpartition(".")
    return Failure(
        type=name,
        message=str(found.get("exception.message") or said or ""),
        traceback=str(found.get("exception.stacktrace", "")),
        module=module or "builtins",
    )


def _trees(spans: Iterable[PastSpan]) -> tuple[list[PastSpan], int]:
    """The topmost spans of generative AI, with those below them; and how many are left out.

    A span of another kind stays only where it stands between two that are of this one.
    """
    known = {(span.trace, span.id): span for span in spans}  # exported twice, it is there once
    tops: list[PastSpan] = []
    for span in sorted(known.values(), key=lambda each: each.start):
        above = known.get((span.trace, span.parent))
        (above.inside if above is not None and above is not span else tops).append(span)
    found: list[PastSpan] = []
    left = tops
    while left:
        span = left.pop(0)
        if span.operation:
            found.append(span)
        else:
            left = [*span.inside, *left]
    kept = sum(map(_cleaned, found))
    return sorted(found, key=lambda each: each.start), len(known) - kept


def _cleaned(span: PastSpan) -> int:
    """Drop what says nothing, below a span; how many spans are left."""
    counts = {id(each): _cleaned(each) for each in span.inside}
    span.inside = [each for each in span.inside if counts[id(each)]]
    below = sum(counts.values())
    return below + 1 if below or span.operation else 0


# A tree of spans as the log of a task.


class _TracedTask:
    """A topmost span, as a task."""

    def __init__(self, top: PastSpan, session: str) -> None:
        self.top = top
        self.id = f"{_NOBODY}-{top.id}"
        self.session = session
        self.now = top.start
        """The time that the log is told."""

    def bring(self, hf: Holdfast) -> int:
        """Write its log; 0 if it is there."""
        held = hf._holding
        log = open_log(held.store, self.id, held.owner, _LEASE_S, lambda: self.now)
        try:
            if log.state.seq and log.state.labels.get(IMPORTED) != _NOBODY:
                raise BadInput(f"task {self.id!r} exists, and was not imported from {_NOBODY}")
            if log.state.status in FINISHED:
                return 0
            if log.state.seq:  # of an import that was interrupted
                held.store.delete(log.lease)
                log.close()
                return self.bring(hf)
            log.redact, log.max_value_bytes = held.redact, held.max_value_bytes
            for at, event in self._events(log):
                self.now = at
                log.append(event)
            log.sync()
        finally:
            log.close()
        return 1

    def _events(self, log: Log) -> Iterator[tuple[datetime, AnyEvent]]:
        top = self.top
        about = {"input": top.told("input.messages"), "system": top.told("system_instructions")}
        given = _dumped({name: value for name, value in about.items() if value is not None})
        labels = {IMPORTED: _NOBODY, "trace": top.trace}
        created = TaskCreated(
            format=FORMAT,
            id=self.id,
            task=_name_of(top) if top.operation in _AGENTS else top.name[:_LONGEST],
            args=log.stow_alone(given),
            args_hash=args_hash(given),
            session=self.session,
            user=str(top.attributes.get("user.id", top.attributes.get("enduser.id", ""))),
            labels=labels,
            # No engine has this name: nobody goes on with a task that was cut short.
            engine="import",
        )
        yield top.start, created
        calls = top.inside if top.operation in _AGENTS else [top]
        made = [each for number, call in enumerate(calls, 1) for each in _walk(call, str(number))]
        # A stable sort: what happened at the same time stays in the order of the tree.
        for at, span, path, is_end in sorted(made, key=lambda each: each[0]):
            events = _ended(log, span, path) if is_end else (_started(log, span, path),)
            for event in events:
                yield at, event
        if top.failure is not None:
            yield top.end, TaskErrored(failure=top.failure)
        else:
            spoke = [top, *_chats(top)]
            told = (span.told("output.messages") for span in spoke)
            result = next((each for each in told if each is not None), None)
            yield top.end, TaskCompleted(result=log.stow_alone(_dumped(result)))


def _walk(span: PastSpan, path: str) -> Iterator[tuple[datetime, PastSpan, str, bool]]:
    """When a call begins and ends, and those inside it, which are put within its times."""
    span.end = max(span.end, span.start)
    yield span.start, span, path, False
    for number, each in enumerate(span.inside, 1):
        each.start = min(max(each.start, span.start), span.end)
        each.end = min(each.end, span.end)
        yield from _walk(each, f"{path}.{number}")
    yield span.end, span, path, True


def _started(log: Log, span: PastSpan, path: str) -> Started:
    is_tool = span.operation == "execute_tool"
    given = _dumped(_given(span))
    return Started(
        path=path,
        name=_name_of(span) if is_tool else span.name[:_LONGEST],
        kind="tool" if is_tool else "step",
        args=log.stow(given),
        args_hash=args_hash(given),
    )


def _ended(log: Log, span: PastSpan, path: str) -> tuple[AnyEvent, ...]:
    if span.failure is not None:
        return AttemptFailed(path=path, attempt=1, failure=span.failure), Failed(path=path)
    return (Completed(path=path, result=log.stow(_dumped(_result(span)))),)


def _given(span: PastSpan) -> dict[str, Any]:
    if span.operation == "execute_tool":
        given = span.told("tool.call.arguments")
        return given if isinstance(given, dict) else {} if given is None else {"arguments": given}
    asked = {
        "model": span.attributes.get("gen_ai.request.model"),
        "messages": span.told("input.messages"),
        "system": span.told("system_instructions"),
        "tools": span.told("tool.definitions"),
        "settings": {
            name.removeprefix("gen_ai.request."): value
            for name, value in span.attributes.items()
            if name.startswith("gen_ai.request.") and name != "gen_ai.request.model"
        },
    }
    if not span.operation:
        asked["attributes"] = span.attributes
    return {name: value for name, value in asked.items() if value not in (None, {})}


def _result(span: PastSpan) -> Any:
    if span.operation == "execute_tool":
        return span.told("tool.call.result")
    usage = {
        "input_tokens": span.attributes.get("gen_ai.usage.input_tokens"),
        "output_tokens": span.attributes.get("gen_ai.usage.output_tokens"),
        "cached_tokens": span.attributes.get("gen_ai.usage.cache_read.input_tokens"),
    }
    # An agent's span has the sum of what its requests used: it is counted there.
    counts = span.operation not in _AGENTS and any(usage.values())
    told = {
        "model": span.attributes.get("gen_ai.response.model", _given(span).get("model")),
        "messages": span.told("output.messages"),
        "usage": {k: v for k, v in usage.items() if v} if counts else None,
        "finish_reasons": span.attributes.get("gen_ai.response.finish_reasons"),
    }
    return {name: value for name, value in told.items() if value is not None} or None


def _name_of(span: PastSpan) -> str:
    for name in ("tool.name", "agent.name", "workflow.name"):
        if found := span.attributes.get(f"gen_ai.{name}"):
            return str(found)[:_LONGEST]
    return span.name[:_LONGEST]


def _dumped(value: Any) -> bytes:
    return msgspec.json.encode(value)


# The messages.


def _session_of(top: PastSpan) -> str:
    """The conversation that a tree of spans belongs to, if it names one that can be an id."""
    left = [top]
    while left:
        span = left.pop(0)
        found = str(span.attributes.get("gen_ai.conversation.id", ""))
        if found:
            try:
                return checked_id(found)
            except BadId:
                return ""
        left += span.inside
    return ""


def _converse(hf: Holdfast, top: PastSpan, id: str) -> None:
    """Add what was said in a task to its session: what the session has not heard yet."""
    session = PastSession(hf, id, _NOBODY, top.start)
    for span in _chats(top):
        told = [*(span.told("input.messages") or ()), *(span.told("output.messages") or ())]
        said = _paired([each for each in map(_message, told) if each is not None])
        known = [replace(each, number=0, at=None) for each in session.messages()]
        new = _unheard(known, said)
        try:
            found = list(turns(new))
        except BadInput:  # the calls of it have results that were heard, or will be
            found = [(each,) for each in map(_as_text, new)]
        for number, turn in enumerate(found):
            session.say(turn, span.end, f"{_NOBODY}:{span.trace}:{span.id}:{number}")


def _chats(top: PastSpan) -> list[PastSpan]:
    """The last request of an agent to a model: it was told everything that was said before.

    Those of agents below it have a conversation of their own.
    """
    own = [top] if top.operation not in _AGENTS else top.inside
    found = [span for span in own if isinstance(span.told("input.messages"), list)]
    if not found and isinstance(top.told("input.messages"), list):
        return [top]
    return sorted(found, key=lambda each: each.end)[-1:]


def _unheard(known: list[Message], said: list[Message]) -> list[Message]:
    """The new messages: those that follow the longest end of `known` with which `said` begins.

    >>> a, b, c = (Message("user", text) for text in "abc")
    >>> _unheard([a, b], [a, b, c]) == _unheard([a, b], [b, c]) == [c], _unheard([a, b], [a])
    (True, [])
    """
    for first in range(len(known) - len(said) + 1):
        if known[first : first + len(said)] == said:
            return []
    for length in range(min(len(known), len(said)), 0, -1):
        if known[-length:] == said[:length]:
            return said[length:]
    return said


def _message(data: Any) -> Message | None:
    """A message of the conventions as one of ours; None for what is none."""
    if not isinstance(data, dict):
        return None
    parts = data.get("parts")
    if not isinstance(parts, list):
        parts = [{"type": "text", "content": data.get("content", "")}]
    found = tuple(_part(each) for each in parts if isinstance(each, dict))
    role = _ROLES.get(str(data.get("role")), "assistant")
    if any(isinstance(part, ToolResult) for part in found):
        role = "tool"
    if len(found) == 1 and isinstance(found[0], Text):
        return Message(role, found[0].text)
    return Message(role, found)


def _part(part: dict[str, Any]) -> Part:
    match part.get("type"):
        case "text":
            return Text(_text(part.get("content", "")))
        case "reasoning":
            return Thinking(_text(part.get("content", "")))
        case "tool_call":
            arguments = _text(part.get("arguments", {}))
            return ToolCall(str(part.get("id") or ""), str(part.get("name", "")), arguments)
        case "tool_call_response":
            told = part.get("response", part.get("result", ""))
            return ToolResult(str(part.get("id") or ""), _text(told))
    return Foreign(_NOBODY, part)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _paired(messages: list[Message]) -> list[Message]:
    """The messages; those whose calls and results don't pair, as texts."""
    try:
        list(turns(messages))
    except BadInput:
        return [_as_text(each) for each in messages]
    return messages


def _as_text(message: Message) -> Message:
    said = [message.text]
    said += [f"{call.name}({call.arguments})" for call in message.calls]
    said += [str(each.content) for each in message.results]
    role: Role = "assistant" if message.role == "tool" else message.role
    return Message(role, "\n".join(text for text in said if text))
