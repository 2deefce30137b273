"""Sends what is recorded of calls to a collector: OTLP over HTTP, by OpenTelemetry's exporter, in a thread.

The node never waits for it. What does not fit the queue, or cannot be sent, is dropped and counted. This is
the only module that imports OpenTelemetry, which is the extra `tracing`: without a collector nothing does.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterator
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from cluster.observing.samples import Sample, counter
from cluster.tracing import ERROR, STATUS, Context, Span

logger = logging.getLogger("http_api.otlp")

QUEUE_COUNT_MAX: Final = 4096
"""Spans that wait to be sent; above that new ones are dropped. About 1 kB each."""
BATCH_COUNT_MAX: Final = 256
"""Spans of one request: to encode them keeps the node's own thread waiting for a few milliseconds at most."""
DELAY_S: Final = 1.0
"""Seconds for which spans are collected before they are sent."""
STOP_S: Final = 2.0
"""Seconds that a node which stops has for sending what is left."""
DIAL_S: Final = 2.0
"""Seconds that a collector has for an answer when it is only looked whether it is there."""

_PATH: Final = "/v1/traces"
_SERVER_ERROR: Final = 500
_KINDS: Final = {"server": SpanKind.SERVER, "internal": SpanKind.INTERNAL, "client": SpanKind.CLIENT}
_LIBRARIES: Final = ("opentelemetry", "urllib3")
"""Loggers of those who would tell each time what is told once here."""


class SpanExport:
    """A bounded queue, and the thread that empties it."""

    def __init__(
        self, endpoint: str, node_id: str, version: str, exporter: SpanExporter | None = None
    ) -> None:
        """Send to the collector at `endpoint`; tests may bring another `exporter`."""
        self._endpoint = endpoint
        ours = {"service.name": "holdfast", "service.instance.id": node_id, "service.version": version}
        # What OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say counts more.
        self._resource = Resource(ours).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope("holdfast", version)
        self._words = _FirstWords()
        for name in _LIBRARIES:
            logging.getLogger(name).handlers, logging.getLogger(name).propagate = [self._words], False
        url = endpoint.rstrip("/")
        self._url = url if url.endswith(_PATH) else url + _PATH
        self._exporter = exporter or OTLPSpanExporter(self._url)
        self._queue: deque[Span] = deque()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-traces", daemon=True)
        self._exported = self._unsent = self._overflown = 0
        self._is_failing = False

    def dial(self) -> str:
        """Send the collector nothing; return why it does not take it, "" if it does. Blocks, for `DIAL_S`."""
        self._words.why = ""
        is_taken = OTLPSpanExporter(self._url, timeout=DIAL_S).export(()) is SpanExportResult.SUCCESS
        return "" if is_taken else self._words.why or "no answer"

    def start(self) -> None:
        """Send from now on."""
        self._thread.start()

    def take(self, span: Span) -> None:
        """Take a span that is complete, or drop it. Returns at once."""
        if len(self._queue) >= QUEUE_COUNT_MAX:
            self._overflown += 1
            return
        self._queue.append(span)
        if not self._wake.is_set():
            self._wake.set()

    def stop(self) -> None:
        """Send what is left if that is soon done. Blocks for `STOP_S` at most."""
        self._stop.set()
        self._wake.set()
        self._thread.join(STOP_S)
        self._exporter.shutdown()

    def samples(self) -> Iterator[Sample]:
        """Yield what has been counted."""
        text = "Spans sent to the collector of traces."
        yield counter("spans_exported_total", text, self._exported)
        text = "Spans dropped, by reason: queue-full or not-sent."
        for reason, count in ("not-sent", self._unsent), ("queue-full", self._overflown):
            yield counter("spans_dropped_total", text, count, reason=reason)

    def _run(self) -> None:
        while not self._stop.is_set() or (self._queue and not self._is_failing):
            self._wake.wait()
            self._stop.wait(DELAY_S)
            self._wake.clear()
            while self._queue:
                self._send([self._queue.popleft() for _ in range(min(len(self._queue), BATCH_COUNT_MAX))])

    def _send(self, spans: list[Span]) -> None:
        self._words.why = ""
        try:
            result = self._exporter.export([self._told(span) for span in spans])
        except Exception as error:  # noqa: BLE001 - whatever it is, the node and the next batch go on
            self._words.why, result = repr(error), SpanExportResult.FAILURE
        is_failing = result is not SpanExportResult.SUCCESS
        if is_failing:
            self._unsent += len(spans)
        else:
            self._exported += len(spans)
        if is_failing and not self._is_failing:
            reason = self._words.why or "no answer"
            logger.warning("event=traces-not-sent endpoint=%r reason=%r", self._endpoint, reason)
        elif self._is_failing and not is_failing:
            logger.info(
                "event=traces-sent-again endpoint=%r dropped=%d",
                *(self._endpoint, self._unsent + self._overflown),
            )
        self._is_failing = is_failing

    def _told(self, span: Span) -> ReadableSpan:
        """Return a span as OpenTelemetry has it."""
        status = span.attributes.get(STATUS, 0)
        is_wrong = ERROR in span.attributes and (not status or int(status) >= _SERVER_ERROR)
        parent = span.context._replace(span_id=span.parent_id)
        return ReadableSpan(
            span.name,
            _context(span.context),
            _context(parent, is_remote=span.kind == "server") if span.parent_id else None,
            self._resource,
            span.attributes,
            [Event(name, timestamp=at_ns) for name, at_ns in span.events],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR) if is_wrong else Status(),
            start_time=span.start_ns,
            end_time=span.end_ns,
            instrumentation_scope=self._scope,
        )


def _context(place: Context, *, is_remote: bool = False) -> SpanContext:
    state = TraceState.from_header([place.state]) if place.state else None
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(place.trace_id, 16), int(place.span_id, 16), is_remote, flags, state)


class _FirstWords(logging.Handler):
    """Keeps what the libraries said first of a request, for the one line that this node logs.

    That is why it failed; what they say last is that they have given up.
    """

    why = ""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.why = self.why or record.getMessage()
