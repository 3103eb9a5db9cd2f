"""A small OTLP collector, in a process of its own: it takes traces, and keeps them in a file.

Run as `python collector.py FILE`; it prints the port it listens on. Each line of the file is one
span, as JSON, in the order in which they came.
"""

from __future__ import annotations

import gzip
import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


class Taker(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        request = ExportTraceServiceRequest.FromString(data)
        with open(sys.argv[1], "a") as file:
            for resource in request.resource_spans:
                about = _plain(resource.resource.attributes)
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        file.write(json.dumps(_span(span) | {"resource": about}) + "\n")
        body = ExportTraceServiceResponse().SerializeToString()
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None: ...


def _span(span: Any) -> dict[str, Any]:
    return {
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "name": span.name,
        "kind": span.kind,
        "start": span.start_time_unix_nano,
        "end": span.end_time_unix_nano,
        "attributes": _plain(span.attributes),
        "events": [[event.name, _plain(event.attributes)] for event in span.events],
        "links": [link.trace_id.hex() for link in span.links],
        "error": span.status.message if span.status.code == 2 else "",
    }


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return getattr(value, kind)


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", 0), Taker)
    print(server.server_port, flush=True)
    server.serve_forever()
