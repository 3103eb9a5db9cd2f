"""Traces and metrics by OpenTelemetry, made of the log: `pip install 'holdfast[otel]'`.

`instrument(hf)` exports spans while tasks run; `export_spans(hf.store, …)` does the same for past
logs (`holdfast export otel`). Both read the log (see `holdfast.views.spans`), so a task that
crashed and went on elsewhere is one trace, in every process that exports it.

**At least once.** Spans are handed to the exporter itself, which says whether they arrived; then a
mark beside the log says up to which event. A process that goes on with a task after a crash
exports what the mark does not cover. If the crash came between the export and the mark, a span is
sent again, with the same ids, which a backend takes for the same span.

Metrics go by the API of OpenTelemetry to whatever meter provider the program has set, and to
nobody if it set none.

Public, by the names in `__all__`. Read `instrument` first.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Self

try:
    from opentelemetry import metrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"holdfast.integrations.otel needs {_error.name}: pip install 'holdfast[otel]'",
        name=_error.name,
    ) from _error

from holdfast.api.app import Holdfast
from holdfast.core.events import VERSION
from holdfast.errors import BadInput, EngineError, HoldfastError, TaskNotFound
from holdfast.log.reading import stream_of
from holdfast.stores.port import Store
from holdfast.views.metrics import COUNTERS, CallEnded, Histogram, WriteMeter, meter_of, standing
from holdfast.views.spans import Span, Tracer

__all__ = ["Telemetry", "export_spans", "instrument"]

_MARK = "traced"
_AT_ONCE = 512
_REMEMBERED = 1000
"""How many tasks are read on with; another one is read from its beginning."""
_NS = 1_000_000_000
_SCOPE = InstrumentationScope("holdfast", VERSION)


def instrument(
    hf: Holdfast,
    *,
    exporter: SpanExporter | None = None,
    service: str | None = None,
    content: bool = False,
    every_s: float = 1.0,
    meter_provider: metrics.MeterProvider | None = None,
) -> Telemetry:
    """Export spans and metrics of what this process does, until the `Telemetry` is closed.

    The exporter is that of OTLP over HTTP if none is given: OTEL_EXPORTER_OTLP_ENDPOINT and its
    like say where to. With `content`, spans hold the arguments and results of tools.

    >>> from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
    >>> from holdfast import task
    >>> @task
    ... def seen_by_otel() -> str:
    ...     return "hi"
    >>> kept = InMemorySpanExporter()
    >>> with Holdfast("memory://") as hf, instrument(hf, exporter=kept):
    ...     _ = hf.run(seen_by_otel, id="seen-1")
    >>> [span.name for span in kept.get_finished_spans()]
    ['invoke_agent seen_by_otel']
    """
    return Telemetry(hf, exporter or _otlp(), service, content, every_s, meter_provider)


def export_spans(
    store: Store,
    ids: Iterable[str],
    exporter: SpanExporter | None = None,
    *,
    service: str | None = None,
    content: bool = False,
    new: bool = False,
) -> int:
    """Export the spans of tasks, from their logs; returns how many there were.

    With `new`, only those that nobody has exported yet.
    """
    sender, count = _Sender(store, exporter or _otlp(), service), 0
    for task_id in ids:
        after = sender.mark_of(task_id) if new else 0
        spans = [s for s in Tracer(store, task_id, content=content).read() if s.seq > after]
        sender.send(spans)
        sender.mark(task_id, max((span.seq for span in spans), default=0))
        count += len(spans)
    return count


def _otlp() -> SpanExporter:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ModuleNotFoundError as error:
        raise BadInput(
            f"exporting needs {error.name}: pip install 'holdfast[otel]', or give an exporter"
        ) from None
    return OTLPSpanExporter()


class Telemetry:
    """The exporter of the spans and metrics of a `Holdfast`. Made by `instrument`."""

    def __init__(
        self,
        hf: Holdfast,
        exporter: SpanExporter,
        service: str | None,
        content: bool,
        every_s: float,
        meter_provider: metrics.MeterProvider | None,
    ) -> None:
        self._hf, self._content, self._every_s = hf, content, every_s
        self._sender = _Sender(hf.store, exporter, service)
        self._changed: set[str] = set()
        self._tracers: OrderedDict[str, Tracer] = OrderedDict()
        self._closing = threading.Event()
        self._working = threading.Lock()
        self.problem: str = ""
        """Why the newest spans could not be exported; '' if they were. They are tried again."""
        self._meter = meter_of(hf._holding)
        self._meter.on_news = self._changed.add
        _measure(self._meter, hf, meter_provider or metrics.get_meter_provider())
        self._thread = threading.Thread(target=self._run, name="holdfast otel", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Export what is left, and stop. Close it before the `Holdfast`."""
        self._meter.on_news = None
        self._closing.set()
        self._thread.join(5)
        self.flush()

    def flush(self) -> bool:
        """Export what is new now; False if it could not be."""
        self._meter.count()
        with self._working:
            self.problem = ""
            self._export_changed()
        return not self.problem

    def _export_changed(self) -> None:
        for task_id in list(self._changed):
            self._changed.discard(task_id)
            try:
                self._export(task_id)
            except TaskNotFound:
                self._tracers.pop(task_id, None)
            except (HoldfastError, OSError) as error:
                # Read again from the mark on: what was made of the log is made of it again.
                self._tracers.pop(task_id, None)
                self._changed.add(task_id)
                self.problem = str(error)

    def _run(self) -> None:
        while not self._closing.wait(self._every_s):
            self.flush()

    def _export(self, task_id: str) -> None:
        tracer, after = self._tracers.pop(task_id, None), 0
        if tracer is None:
            tracer = Tracer(self._hf.store, task_id, content=self._content)
            after = self._sender.mark_of(task_id)
        spans = [span for span in tracer.read() if span.seq > after]
        if spans:
            self._sender.send(spans)
            self._sender.mark(task_id, max(span.seq for span in spans))
        self._tracers[task_id] = tracer
        if len(self._tracers) > _REMEMBERED:
            self._tracers.popitem(last=False)


class _Sender:
    """Hands spans to an exporter, and leaves a mark beside the log."""

    def __init__(self, store: Store, exporter: SpanExporter, service: str | None) -> None:
        self._store = store
        self._exporter = exporter
        self._resource = _resource(service)

    def send(self, spans: Sequence[Span]) -> None:
        for at in range(0, len(spans), _AT_ONCE):
            made = [_readable(span, self._resource) for span in spans[at : at + _AT_ONCE]]
            try:
                sent = self._exporter.export(made)
            except Exception as error:
                raise EngineError(f"spans could not be exported: {error}") from error
            if sent is not SpanExportResult.SUCCESS:
                raise EngineError(
                    "spans could not be exported: the collector did not take them. See that "
                    "OTEL_EXPORTER_OTLP_ENDPOINT names it, and that it is up"
                )

    def mark_of(self, task_id: str) -> int:
        """Up to which event the spans of a task were exported."""
        return max((seq for seq, _ in self._marks(task_id)), default=0)

    def mark(self, task_id: str, seq: int) -> None:
        older = list(self._marks(task_id))
        if seq <= max((each for each, _ in older), default=0):
            return
        stream = stream_of(task_id)
        with suppress(HoldfastError):  # without it, spans are sent twice at worst
            self._store.put_side(stream, "derived", f"{seq}.{_MARK}", b"1")
            for _, name in older:
                self._store.drop_side(stream, "derived", name)

    def _marks(self, task_id: str) -> Iterator[tuple[int, str]]:
        for post in self._store.get_side([stream_of(task_id)], "derived", only_names=True):
            number, _, part = post.name.partition(".")
            if part == _MARK:
                yield int(number), post.name


def _resource(service: str | None) -> Resource:
    made = Resource.create()  # of the environment: OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES
    if service is None and not str(made.attributes["service.name"]).startswith("unknown_service"):
        return made
    return made.merge(Resource({"service.name": service or "holdfast"}))


def _readable(span: Span, resource: Resource) -> ReadableSpan:
    parent = _context(span.trace_id, span.parent_id) if span.parent_id else None
    failed = Status(StatusCode.ERROR, span.error) if span.error is not None else Status()
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        events=[Event(each.name, each.attributes, _ns(each.at)) for each in span.events],
        links=[Link(_context(*link)) for link in span.links],
        kind=SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL,
        status=failed,
        start_time=_ns(span.start),
        end_time=_ns(span.end),
        instrumentation_scope=_SCOPE,
    )


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags.get_default())


def _ns(at: datetime) -> int:
    # Not by the float of `timestamp()`, which has no room for nanoseconds.
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * _NS + since.microseconds * 1000


# Metrics, by the API: observed when the reader of the program's provider asks.


def _measure(meter: WriteMeter, hf: Holdfast, provider: metrics.MeterProvider) -> None:
    made = provider.get_meter("holdfast", VERSION)

    def counted(name: str, options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
        for metric in meter.metrics():
            if metric.name == name:
                yield from _observations(metric.values)

    def stood(name: str, options: metrics.CallbackOptions) -> Iterator[metrics.Observation]:
        with suppress(HoldfastError):
            for metric in standing(hf.store, datetime.now(UTC)):
                if metric.name == name:
                    yield from _observations(metric.values)

    for name, help in COUNTERS.items():
        made.create_observable_counter(_otel_name(name), [partial(counted, name)], description=help)
    for name in ("holdfast_tasks", "holdfast_due_tasks", "holdfast_queue_age_seconds"):
        made.create_observable_gauge(_otel_name(name), [partial(stood, name)])
    lasted = made.create_histogram("holdfast.call.duration", "s")
    asked = made.create_histogram("gen_ai.client.operation.duration", "s")
    tokens = made.create_histogram("gen_ai.client.token.usage", "{token}")

    def heard(call: CallEnded) -> None:
        lasted.record(call.seconds, {"name": call.name, "kind": call.kind})
        if call.spent is None:
            return
        about = {"gen_ai.operation.name": "chat", "gen_ai.request.model": call.model}
        asked.record(call.seconds, about)
        tokens.record(call.spent.input_tokens, {**about, "gen_ai.token.type": "input"})
        tokens.record(call.spent.output_tokens, {**about, "gen_ai.token.type": "output"})

    meter.on_call = heard


def _observations(
    values: dict[tuple[tuple[str, str], ...], float | Histogram],
) -> Iterator[metrics.Observation]:
    for labels, value in values.items():
        if not isinstance(value, Histogram):
            yield metrics.Observation(value, dict(labels))


def _otel_name(name: str) -> str:
    return name.removesuffix("_total").replace("holdfast_", "holdfast.", 1)
