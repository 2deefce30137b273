"""A collector of traces on loopback: takes OTLP over HTTP, keeps all spans, and can be slow or unwell."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

PATH: Final = "/v1/traces"


class Seen(NamedTuple):
    """A span as the collector has it; the ids are hexadecimal, `parent` is "" of the first of a trace."""

    node: str
    name: str
    trace_id: str
    span_id: str
    parent: str
    state: str
    kind: int
    attributes: dict[str, str | int]
    events: tuple[str, ...]
    resource: dict[str, str | int]
    took_ns: int
    is_error: bool


class Collector:
    """Keeps what it is sent. `status` is what it answers; while `hangs` is set it answers nothing."""

    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.requests = 0
        self.status = 200
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        """Set at the end, for requests that hang."""
        self.url = ""

    def of_trace(self, trace_id: str) -> dict[str, Seen]:
        """Return the spans of a trace by name, with the node in front where several have the same."""
        return {f"{span.node} {span.name}": span for span in [*self.spans] if span.trace_id == trace_id}

    def take(self, path: str, body: bytes) -> int:
        """Keep what one request brings; return the status to answer with."""
        self.requests += 1
        if self.hangs.is_set():
            self.goes_on.wait()
        if path != PATH:
            return 404
        if self.status == 200:
            self.spans += _spans(body)
        return self.status


def _spans(body: bytes) -> Iterator[Seen]:
    for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans:
        resource = _values(resource_spans.resource.attributes)
        for scope_spans in resource_spans.scope_spans:
            for span in scope_spans.spans:
                yield Seen(
                    str(resource["service.instance.id"]),
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.trace_state,
                    span.kind,
                    _values(span.attributes),
                    tuple(event.name for event in span.events),
                    resource,
                    span.end_time_unix_nano - span.start_time_unix_nano,
                    span.status.code == 2,
                )


def _values(attributes: Any) -> dict[str, str | int]:
    return {each.key: each.value.string_value or each.value.int_value for each in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector in threads of its own."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = collector.take(self.path, body)
            if collector.hangs.is_set():
                return  # who asked has gone meanwhile
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        collector.goes_on.set()
        server.shutdown()
        thread.join()
        server.server_close()
