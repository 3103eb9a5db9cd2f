"""Traces by OpenTelemetry, made of the log, and what a collector gets of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes

from holdfast import ask, decide, sleep, step, task
from holdfast.integrations.otel import export_spans, instrument
from holdfast.views.spans import Tracer

AGENT = '''
import os, signal, sys
from pathlib import Path

from holdfast import Holdfast, IdempotencyKey, Retry, start, step, task, tool


def once(name):
    """Die the first time it is called."""
    if not Path(name).exists():
        Path(name).touch()
        os.kill(os.getpid(), signal.SIGKILL)


@step(retry=Retry(attempts=3, delay_s=0))
def think(prompt: str) -> dict[str, object]:
    if not Path("tried").exists():
        Path("tried").touch()
        raise ConnectionError("the model is busy")
    return {"model": "claude-x", "stop": "end", "usage": {"input_tokens": 7, "output_tokens": 2}}


@tool(in_doubt="retry")
def book(room: str, *, key: IdempotencyKey) -> str:
    once("killed-in-a-tool")
    return f"booked {room}"


@step
def write(text: str) -> str:
    once("killed-in-a-step")
    return text


@task
def helper(n: int) -> str:
    return write(f"help {n}")


@task
def agent(city: str) -> str:
    think(city)
    book("attic")
    write("a letter")
    return start(helper, 1).result()


if __name__ == "__main__":
    from holdfast.integrations.otel import instrument

    with Holdfast("sqlite:///agent.db") as hf, instrument(hf, every_s=0.02):
        print(hf.run(agent, "Oslo", id="trip-42", session="s-1", labels={"team": "a"}))
'''


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The endpoint of a collector, and the file in which it keeps spans."""
    kept = tmp_path / "spans.jsonl"
    kept.touch()
    program = Path(__file__).parent / "collector.py"
    process = subprocess.Popen(
        [sys.executable, str(program), str(kept)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", kept
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def spans_in(kept: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kept.read_text().splitlines()]


def one_of_each(spans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A process that is killed right after it sent a span has it sent again, the same in all but
    the process that sent it: by its id a backend keeps one."""
    found: dict[str, dict[str, Any]] = {}
    for span in spans:
        known = found.setdefault(span["id"], span)
        assert {**known, "resource": {}} == {**span, "resource": {}}
    return list(found.values())


def must_follow_the_conventions(span: dict[str, Any]) -> None:
    """What the conventions for generative AI ask of a span."""
    known = {v for k, v in vars(gen_ai_attributes).items() if k.startswith("GEN_AI")}
    known |= {"gen_ai.agent.version", "gen_ai.usage.cache_read.input_tokens"}
    attributes = span["attributes"]
    used = {name for name in attributes if name.startswith("gen_ai.")}
    assert used <= known, used - known
    operation = attributes.get("gen_ai.operation.name")
    if operation == "invoke_agent":
        assert span["name"] == f"invoke_agent {attributes['gen_ai.agent.name']}"
        assert attributes["gen_ai.provider.name"]
    elif operation == "execute_tool":
        assert span["name"] == f"execute_tool {attributes['gen_ai.tool.name']}"
        assert attributes["gen_ai.tool.type"] == "function"
        assert attributes["gen_ai.tool.call.id"]
    elif operation == "chat":
        assert span["name"] == f"chat {attributes['gen_ai.request.model']}"
        assert span["kind"] == 3  # a client
        assert attributes["gen_ai.provider.name"]
        assert isinstance(attributes["gen_ai.usage.input_tokens"], int)
        assert isinstance(attributes["gen_ai.response.finish_reasons"], list)
    else:
        assert operation is None and not used


def test_an_agent_that_was_killed_twice_is_one_trace_with_one_span_for_each_call(
    tmp_path, collector
):
    endpoint, kept = collector
    (tmp_path / "agent.py").write_text(AGENT)
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    codes = []
    while not codes or codes[-1] != 0:
        done = subprocess.run(
            [sys.executable, "agent.py"], cwd=tmp_path, env=environment, capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip
        codes.append(done.returncode)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    spans = one_of_each(spans_in(kept))
    assert len({span["trace"] for span in spans}) == 1
    assert Counter(span["name"] for span in spans) == {
        "chat claude-x": 1,
        "execute_tool book": 1,
        "write": 2,  # one of the agent, one of the helper
        "child helper": 1,
        "invoke_agent helper": 1,
        "invoke_agent agent": 1,
    }
    by_id = {span["id"]: span for span in spans}
    assert len(by_id) == len(spans)
    for span in spans:
        must_follow_the_conventions(span)
        assert span["start"] <= span["end"]
        assert span["resource"]["service.name"] == "holdfast"
        assert span["name"] == "invoke_agent agent" or span["parent"] in by_id, span
    (book,) = (span for span in spans if span["name"] == "execute_tool book")
    assert [name for name, _ in book["events"]][:3] == [
        "holdfast.attempt",
        "holdfast.attempt.interrupted",
        "holdfast.attempt",
    ]
    (chat,) = (span for span in spans if span["name"] == "chat claude-x")
    names = [name for name, _ in chat["events"]]
    assert names == ["holdfast.attempt", "exception", "holdfast.attempt"]
    assert chat["events"][1][1]["exception.type"] == "ConnectionError"
    (root,) = (span for span in spans if span["parent"] == "")
    assert root["attributes"]["gen_ai.conversation.id"] == "s-1"
    assert root["attributes"]["holdfast.label.team"] == "a"
    assert [name for name, _ in root["events"]].count("holdfast.claimed") == 3
    (child,) = (span for span in spans if span["name"] == "invoke_agent helper")
    assert by_id[child["parent"]]["name"] == "child helper"
    # The same, from the log alone.
    kept.write_text("")
    command = ["export", "otel", "--endpoint", f"{endpoint}/v1/traces", "--json"]
    url = f"sqlite:///{tmp_path}/agent.db"
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "--url", url, *command],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"tasks": 2, "spans": 7}
    again = {span["id"]: span for span in spans_in(kept)}
    for span in (*by_id.values(), *again.values()):
        del span["resource"]  # it has an id for each process
    assert again == by_id
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "--url", url, *command, "--new"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == {"tasks": 2, "spans": 0}


weather = ["storm"]


@step
def sail_for_otel() -> str:
    if weather[0] == "storm":
        raise RuntimeError("stay in port")
    return "sailed"


@task
def voyage_for_otel() -> str:
    decide("ship", "sloop")
    sleep(0)
    return sail_for_otel()


@task
def asks_for_otel() -> bool:
    return ask("Sure?", bool, id="sure")


def test_a_task_that_is_retried_has_a_second_span_below_its_first(hf):
    weather[0] = "storm"
    with pytest.raises(Exception, match="stay in port"):
        hf.run(voyage_for_otel, id="v-1")
    weather[0] = "calm"
    hf.retry("v-1")
    spans = list(Tracer(hf.store, "v-1").read())
    names = [span.name for span in spans]
    ended = ["sail_for_otel", "invoke_agent voyage_for_otel"]
    assert names == ["wait sleep", *ended, *ended]
    assert len({span.span_id for span in spans}) == 5
    first, second = spans[2], spans[4]
    assert (first.parent_id, second.parent_id) == (0, first.span_id)
    assert first.error is not None and second.error is None
    assert spans[3].parent_id == second.span_id


def test_a_fork_is_a_trace_of_its_own_that_links_to_the_original(hf):
    weather[0] = "calm"
    hf.run(voyage_for_otel, id="v-1")
    fork = hf.fork("v-1", at=2, effects="live")
    hf.resume(fork.id)
    original = list(Tracer(hf.store, "v-1").read())
    forked = list(Tracer(hf.store, fork.id).read())
    assert [span.name for span in forked] == ["sail_for_otel", "invoke_agent voyage_for_otel"]
    assert forked[0].trace_id != original[0].trace_id
    assert forked[-1].links == ((original[-1].trace_id, original[-1].span_id),)


def test_what_people_wrote_is_not_exported_unless_it_is_asked_for(hf):
    kept = InMemorySpanExporter()
    hf.start(asks_for_otel, id="a-1")
    with pytest.raises(Exception, match="Sure"):
        hf.resume("a-1")
    hf.answer("a-1", True, question="sure", by="ada")
    hf.resume("a-1")
    assert export_spans(hf.store, ["a-1"], kept) == 2
    text = "".join(span.to_json() for span in kept.get_finished_spans())
    assert "Sure?" not in text
    assert "holdfast.question_answered" in text


class Away(InMemorySpanExporter):
    """A collector that is not there at first."""

    is_away = True

    def export(self, spans):
        return SpanExportResult.FAILURE if self.is_away else super().export(spans)


def test_spans_wait_for_a_collector_that_is_away(hf):
    weather[0] = "calm"
    away = Away()
    with instrument(hf, exporter=away, every_s=600) as telemetry:
        hf.run(voyage_for_otel, id="v-1")
        assert not telemetry.flush()
        assert "did not take them" in telemetry.problem
        away.is_away = False
        assert telemetry.flush()
        assert len(away.get_finished_spans()) == 3
        assert telemetry.flush()
    assert len(away.get_finished_spans()) == 3


def test_metrics_go_to_the_provider_of_the_program(hf):
    weather[0] = "calm"
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    with instrument(hf, exporter=InMemorySpanExporter(), meter_provider=provider) as telemetry:
        hf.run(voyage_for_otel, id="v-1")
        telemetry.flush()
        data = reader.get_metrics_data()
        assert data is not None
        found = {
            metric.name: metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
    provider.shutdown()
    assert {"holdfast.tasks", "holdfast.tasks_ended", "holdfast.call.duration"} <= set(found)
    (point,) = found["holdfast.tasks_ended"].data.data_points
    assert dict(point.attributes) == {"type": "voyage_for_otel", "status": "completed"}
    assert point.value == 1
