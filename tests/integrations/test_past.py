"""What other tools have kept comes in whole, marked and once, and every command opens it."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from agents import SQLiteSession
from click.testing import CliRunner
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast import BadInput, Holdfast
from holdfast.cli.root import root
from holdfast.integrations.openai_agents import HoldfastSession
from holdfast.integrations.past import import_sessions
from holdfast.integrations.traces import import_spans

ITEMS = [
    {"role": "user", "content": "Where is my order?"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"order": 7}'},
    {"type": "function_call_output", "call_id": "c1", "output": "on its way"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "It is on its way."}]},
]


@pytest.fixture
def old_sessions(tmp_path):
    path = tmp_path / "conversations.db"
    for id, items in {"chat-1": ITEMS, "chat-2": ITEMS[:1]}.items():
        add(path, id, items)
    return path


def add(path, id, items):
    session = SQLiteSession(id, path)
    asyncio.run(session.add_items(items))
    session.close()


def items_of(hf, id):
    return asyncio.run(HoldfastSession(hf, id).get_items())


def test_sessions_of_the_agents_sdk_come_in_whole_and_once(old_sessions, hf):
    assert import_sessions(hf, old_sessions).messages == 5
    assert import_sessions(hf, old_sessions).messages == 0
    assert items_of(hf, "chat-1") == ITEMS
    assert hf.session("chat-1").state.labels == {"imported": "openai-agents"}


def test_an_imported_session_goes_on_and_a_second_import_adds_what_is_new(old_sessions, hf):
    import_sessions(hf, old_sessions, "chat-2")
    add(old_sessions, "chat-2", [{"role": "user", "content": "Hello?"}])
    assert import_sessions(hf, old_sessions, "chat-2").messages == 1
    asyncio.run(HoldfastSession(hf, "chat-2").add_items([{"role": "user", "content": "Thanks."}]))
    assert [item["content"] for item in items_of(hf, "chat-2")] == [
        "Where is my order?", "Hello?", "Thanks.",
    ]  # fmt: skip


def test_a_message_keeps_its_time(old_sessions, hf):
    with closing(sqlite3.connect(old_sessions)) as base, base:
        base.execute("UPDATE agent_messages SET created_at = '2024-02-03 04:05:06'")
    import_sessions(hf, old_sessions, "chat-2")
    (message,) = hf.session("chat-2").messages()
    assert message.at is not None and message.at.isoformat() == "2024-02-03T04:05:06+00:00"


def test_a_session_of_our_own_is_not_written_into(old_sessions, hf):
    hf.session("chat-1").say("mine")
    with pytest.raises(BadInput, match="was not imported"):
        import_sessions(hf, old_sessions)


@pytest.mark.parametrize("content", [b"", b"no database at all" * 100])
def test_another_file_is_refused(content, tmp_path, hf):
    (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(BadInput, match="no sessions of the OpenAI Agents SDK"):
        import_sessions(hf, tmp_path / "x.db")


# Traces, made by the SDK of OpenTelemetry.


def said(role, *parts):
    return {"role": role, "parts": list(parts)}


ASKED = said("user", {"type": "text", "content": "Refund order 7."})
CALLS = said(
    "assistant", {"type": "tool_call", "id": "c1", "name": "refund", "arguments": {"n": 7}}
)
TOLD = said("tool", {"type": "tool_call_response", "id": "c1", "response": "refunded"})
DONE = said("assistant", {"type": "text", "content": "Done."})


def trace(*, fails=False, conversation="chat-9"):
    """The spans of an agent that asks a model, calls a tool and asks again."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracer = provider.get_tracer("test")

    def span(operation, name, **more):
        attributes = {"gen_ai.operation.name": operation}
        attributes |= {f"gen_ai.{k.replace('__', '.')}": v for k, v in more.items()}
        return tracer.start_as_current_span(f"{operation} {name}", attributes=attributes)

    def chat(given, answer):
        return span(
            "chat", "m-1", request__model="m-1", request__temperature=0.5, response__model="m-1",
            input__messages=json.dumps(given), output__messages=json.dumps([answer]),
            usage__input_tokens=10, usage__output_tokens=2,
        )  # fmt: skip

    about = {"agent__name": "support", "conversation__id": conversation}
    with (
        tracer.start_as_current_span("POST /chat"),
        span("invoke_agent", "support", **about),
    ):
        with chat([ASKED], CALLS), tracer.start_as_current_span("POST"):
            pass
        tool = {"tool__name": "refund", "tool__call__arguments": '{"n": 7}'}
        try:
            with span("execute_tool", "refund", **tool) as current:
                if fails:
                    raise ValueError("no such order")
                current.set_attribute("gen_ai.tool.call.result", '"refunded"')
        except ValueError:
            pass
        with chat([ASKED, CALLS, TOLD], DONE):
            pass
    return kept.get_finished_spans()


def otlp(spans):
    """OTLP's JSON: as protobuf writes it, but with ids in hex."""
    found = [
        {
            "traceId": f"{span.context.trace_id:032x}",
            "spanId": f"{span.context.span_id:016x}",
            "parentSpanId": f"{span.parent.span_id:016x}" if span.parent else "",
            "name": span.name,
            "startTimeUnixNano": str(span.start_time),
            "endTimeUnixNano": str(span.end_time),
            "attributes": attributes(span.attributes),
            "events": [{"attributes": attributes(each.attributes)} for each in span.events],
            "status": {"code": span.status.status_code.value},
        }
        for span in spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": found}]}]})


def attributes(found):
    kinds = {str: "stringValue", int: "intValue", float: "doubleValue"}
    return [
        {"key": key, "value": {kinds[type(each)]: str(each) if type(each) is int else each}}
        for key, each in found.items()
    ]


def console(spans):
    return "\n".join(span.to_json() for span in spans)


@pytest.mark.parametrize("form", [otlp, console])
def test_a_trace_is_a_task_with_its_calls_tokens_and_conversation(form, tmp_path, hf):
    path = tmp_path / "spans.json"
    path.write_text(form(trace()))
    brought = import_spans(hf, path)
    assert (brought.new, brought.sessions, brought.left_out) == (1, ("chat-9",), 2)
    assert import_spans(hf, path).new == 0

    view = hf.task(brought.tasks[0])
    assert (view.type, view.status, view.state.session) == ("support", "completed", "chat-9")
    assert view.state.labels["imported"] == "otel"
    calls = [(call.path, call.name, call.kind, call.status) for call in view.calls]
    assert calls == [
        ("1", "chat m-1", "step", "completed"),
        ("2", "refund", "tool", "completed"),
        ("3", "chat m-1", "step", "completed"),
    ]
    assert view.value(view.calls[1].result) == "refunded"
    assert view.result == [DONE]
    stats = hf.stats()
    assert stats.spent.input_tokens == 20
    texts = [message.text for message in hf.session("chat-9").messages()]
    assert texts == ["Refund order 7.", "", "", "Done."]
    assert hf.verify(view.id)


def test_a_span_that_failed_is_a_call_that_failed(tmp_path, hf):
    path = tmp_path / "spans.json"
    path.write_text(console(trace(fails=True)))
    view = hf.task(import_spans(hf, path).tasks[0])
    assert [call.status for call in view.calls] == ["completed", "failed", "completed"]
    assert view.calls[1].failure.summary() == "ValueError: no such order"


def test_two_traces_of_a_conversation_are_compared_and_said_once(tmp_path, hf):
    for name, fails in {"a": False, "b": True}.items():
        (tmp_path / name).write_text(console(trace(fails=fails)))
    one, other = import_spans(hf, tmp_path / "a", tmp_path / "b").tasks
    first = hf.compare(one, other).alignments[0].first
    assert first is not None and first.path == "2"
    assert len(list(hf.session("chat-9").messages())) == 4


@pytest.mark.parametrize("text", ["{}", "[1]", "nonsense", '{"resourceSpans": 3}'])
def test_a_file_without_spans_is_refused(text, tmp_path, hf):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadInput, match="document 1 holds no spans"):
        import_spans(hf, tmp_path / "x.json")


# The command.


def test_one_command_imports_all_three(old_sessions, tmp_path):
    (tmp_path / "spans.json").write_text(console(trace()))
    with SqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as saver:
        config = {"configurable": {"thread_id": "trip-1", "checkpoint_ns": ""}}
        saver.put(config, empty_checkpoint(), {"step": -1}, {})
    store = str(tmp_path / "workspace")
    for origin, name, told in [
        ("langgraph", "checkpoints.db", "1 session; new: 1 checkpoint"),
        ("openai-agents", "conversations.db", "2 sessions; new: 5 messages"),
        ("otel", "spans.json", "1 task, 1 session; new: 1 task"),
    ]:
        done = CliRunner().invoke(root, ["import", origin, str(tmp_path / name), "--url", store])
        assert told in done.output, done.output
    with Holdfast(store) as hf:
        (view,) = hf.tasks(labels={"imported": "otel"})
    for command in (["show", view.id], ["session", "chat-1"], ["sql", "select id from tasks"]):
        assert CliRunner().invoke(root, [*command, "--url", store]).exit_code == 0
