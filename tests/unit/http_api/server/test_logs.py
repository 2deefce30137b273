"""The form of log lines."""

import json
import logging
import sys

import pytest

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


def _fields(template: str, *values: object) -> dict[str, object]:
    """Return the fields of an event beside those that every line has."""
    record = logging.LogRecord("cluster.node", logging.INFO, "", 0, template, values, None)
    line = json.loads(JsonFormatter().format(record))
    return {name: value for name, value in line.items() if name not in ("time", "level", "logger", "message")}


@pytest.mark.parametrize(
    ("template", "values", "fields"),
    [
        ("event=no-quorum unreachable=%r", ("n2 at h:1, n3",), {"unreachable": "n2 at h:1, n3"}),
        ("event=a detail=%r x=%d", ("it's 'x=7' \"so\"\n", 3), {"detail": "it's 'x=7' \"so\"\n", "x": 3}),
        ("event=a took_s=%.1f ppm=%.0f", (1.25, -3.0), {"took_s": 1.2, "ppm": -3}),
        ("event=a disk=%s own=%016x", ("12345678", 7), {"disk": "12345678", "own": "0000000000000007"}),
        ("event=a is_leader=%s decided=%s", (True, False), {"is_leader": True, "decided": False}),
        (
            "event=a status=%d%s took_ms=%.1f",
            (400, " path='/'", 0.5),
            {"status": 400, "path": "/", "took_ms": 0.5},
        ),
        ("event=forced %s", ("name='a b' token=3 mode=shared is_x=True",), None),
        ("event=a peer=- reason=%s", ("",), {"peer": "-", "reason": ""}),
    ],
)
def test_json_has_the_fields_of_an_event(
    template: str, values: tuple[object, ...], fields: dict[str, object] | None
) -> None:
    """Quoted texts are themselves again, numbers are numbers, and ids stay texts whatever they look like."""
    event = template.partition("event=")[2].split()[0]
    fields = fields or {"name": "a b", "token": 3, "mode": "shared", "is_x": True}
    assert _fields(template, *values) == {"event": event, **fields}


def test_the_words_of_libraries_have_no_fields() -> None:
    """Nor can a field take the place of what every line has."""
    assert _fields("cannot open x=3") == {}
    line = json.loads(JsonFormatter().format(_record("event=a level=7 time=8 message=9")))
    assert (line["level"], line["message"]) == ("info", "event=a level=7 time=8 message=9")
