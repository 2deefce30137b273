"""What the thread that sends spans does with too many of them, and that nobody else needs its libraries."""

import logging
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from cluster.config import load
from cluster.config_sources import WrongValueError
from cluster.tracing import STATUS, Span, Tracer
from http_api import checking, otlp, starting
from http_api.otlp import SpanExport
from tests.support.collector import collecting

PARENT = f"00-{'a1' * 16}-{'b2' * 8}-01"
WAIT_S = 30.0


class Exporter(SpanExporter):
    """Keeps what it gets, once it may."""

    def __init__(self, results: Sequence[SpanExportResult | Exception]) -> None:
        self.may_go_on, self.is_asked = threading.Event(), threading.Event()
        self.spans: list[ReadableSpan] = []
        self._results = list(results)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Take spans."""
        self.is_asked.set()
        assert self.may_go_on.wait(WAIT_S)
        result = self._results.pop(0) if self._results else SpanExportResult.SUCCESS
        if isinstance(result, Exception):
            raise result
        if result is SpanExportResult.SUCCESS:
            self.spans += spans
        else:
            for text in ("what the exporter says", "that it has given up"):
                logging.getLogger("opentelemetry.exporter").error(text)
        return result


def counts(export: SpanExport) -> list[float]:
    """Return how many were exported, not sent, and too many."""
    return [sample[4] for sample in export.samples()]


def call_span(status: int = 200) -> Span:
    """Return a span that is complete."""
    span = Tracer(lambda _: None).of_call(PARENT, "a=1")
    assert span is not None
    span.answered("GET", "/x", status, "id")
    span.failed("internal")
    span.end_ns = span.start_ns + 5
    return span


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collect for a moment only, and leave the loggers of libraries as they were."""
    monkeypatch.setattr(otlp, "DELAY_S", 0.001)
    for name in otlp._LIBRARIES:
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)


def test_what_is_too_much_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collector that hangs leaves the queue full; to take a span never waits."""
    monkeypatch.setattr(otlp, "QUEUE_COUNT_MAX", 3)
    exporter = Exporter([])
    export = SpanExport("http://x", "n1", "1.0.0", exporter)
    export.start()
    export.take(call_span())
    assert exporter.is_asked.wait(WAIT_S)
    for _ in range(5):
        export.take(call_span())
    exporter.may_go_on.set()
    export.stop()
    assert counts(export) == [4, 0, 2]
    assert len(exporter.spans) == 4


@pytest.mark.parametrize("failure", [SpanExportResult.FAILURE, ValueError("broken")])
def test_a_failure_is_told_once(
    failure: SpanExportResult | Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """And its end. The reason is what the libraries say first; the rest of that stays out of the log."""
    caplog.set_level(logging.INFO)
    export = SpanExport("http://x", "n1", "1.0.0", Exporter([failure, failure]))
    assert isinstance(export._exporter, Exporter)
    export._exporter.may_go_on.set()
    for _ in range(3):
        export._send([call_span()])
    told = [record.getMessage() for record in caplog.records]
    reason = "what the exporter says" if isinstance(failure, SpanExportResult) else "ValueError('broken')"
    assert told == [
        f"event=traces-not-sent endpoint='http://x' reason={reason!r}",
        "event=traces-sent-again endpoint='http://x' dropped=2",
    ]
    assert counts(export) == [1, 2, 0]


def test_a_span_as_opentelemetry_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, state and parent; a refusal is not an error of the node; the environment adds to the resource."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.version=9")
    export = SpanExport("http://x", "n1", "1.0.0", Exporter([]))
    told, failed = export._told(call_span(409)), export._told(call_span(500))
    assert told.context is not None
    assert told.parent is not None
    assert f"{told.context.trace_id:x}" == "a1" * 16
    assert f"{told.parent.span_id:x}" == "b2" * 8
    assert told.context.trace_state.to_header() == "a=1"
    assert told.attributes is not None
    assert told.attributes[STATUS] == 409
    assert (told.status.is_ok, failed.status.is_ok) == (True, False)
    shown = told.resource.attributes
    assert shown["service.instance.id"] == "n1"
    assert (shown["service.name"], shown["service.version"]) == ("holdfast", "9")
    assert shown["deployment.environment.name"] == "test"


def test_without_a_collector_nothing_is_imported() -> None:
    """Neither by the node nor by the client: the libraries take time and memory."""
    found = "[name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'google', 'requests')]"
    program = (
        "import sys, http_api.__main__, holdfast, holdfast.transport.http as http\n"
        f"assert http.trace_headers() == {{}} and not {found}, {found}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_missing_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what to install."""
    config = load(["--otlp-endpoint", "http://c:4318/"], {})
    monkeypatch.delitem(sys.modules, "http_api.otlp")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(WrongValueError, match=r"pip install 'holdfast-node\[tracing\]'"):
        starting.export_of(config)
    assert starting.export_of(load([], {})) is None


def test_a_check_says_whether_the_collector_is_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Only where it is asked to dial; it is a warning, because nodes do without."""
    words = ["--check-config", "--data-dir", str(tmp_path / "data"), "--http", "127.0.0.1:0"]
    with collecting() as collector:
        words += ["--otlp-endpoint", collector.url]
        assert checking.run(words, {}) == 0
        assert collector.requests == 0
        assert checking.run([*words, "--dial"], {}) == 0
        found = f"ok: otlp_endpoint: {collector.url}: a collector of traces takes what it is sent"
        assert found in capsys.readouterr().out.splitlines()
        assert (collector.requests, collector.spans) == (1, [])
        collector.status = 404
        assert checking.run([*words, "--dial"], {}) == 0
        assert f"warning: otlp_endpoint: {collector.url}: " in capsys.readouterr().out
    assert checking.run([*words, "--dial"], {}) == 0
    out = capsys.readouterr().out
    (line,) = [
        line for line in out.splitlines() if line.startswith(f"warning: otlp_endpoint: {collector.url}")
    ]
    assert "Connection refused" in line
    assert line.endswith("a node drops the traces that it cannot send")
