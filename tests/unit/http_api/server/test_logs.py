"""The form of log lines."""

import json
import logging
import sys

from http_api.server.logs import JsonFormatter, TextFormatter


def _record(message: str, *, with_error: bool = False) -> logging.LogRecord:
    error = None
    if with_error:
        try:
            int("broken")
        except ValueError:
            error = sys.exc_info()
    record = logging.LogRecord("cluster.node", logging.INFO, "", 0, message, (), error)
    record.created = 0.5
    return record


def test_text_is_one_line_of_pairs() -> None:
    """A line break in a message cannot start a line of its own."""
    line = TextFormatter().format(_record("event=ready detail=a\nb"))
    assert line == r"time=1970-01-01T00:00:00.500Z level=info logger=cluster.node event=ready detail=a\nb"


def test_text_cannot_steer_a_terminal() -> None:
    """Control characters of a client are shown, not obeyed; other writing is left as it is."""
    line = TextFormatter().format(_record("event=x detail=\x1b[2J\r\x00\x7f\x85\u2028 é日本"))
    assert line.endswith(r"event=x detail=\x1b[2J\x0d\x00\x7f\x85\x2028 é日本")


def test_text_shows_tracebacks() -> None:
    """A traceback follows its line."""
    text = TextFormatter().format(_record("event=failed", with_error=True))
    assert text.splitlines()[-1].startswith("ValueError: ")


def test_json_is_one_object_per_line() -> None:
    """Collectors find time, level, logger, message and the traceback by name."""
    line = JsonFormatter().format(_record("event=failed", with_error=True))
    assert "\n" not in line
    parsed = json.loads(line)
    assert (parsed["time"], parsed["level"]) == ("1970-01-01T00:00:00.500Z", "info")
    assert (parsed["logger"], parsed["message"]) == ("cluster.node", "event=failed")
    assert parsed["exception"].splitlines()[-1].startswith("ValueError: ")
