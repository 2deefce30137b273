"""Log lines on standard error: key=value pairs for people, JSON for collectors."""

import datetime as dt
import json
import logging
import sys

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029) if code != ord("\n")
} | {ord("\n"): "\\n"}
"""What could begin a line of its own, or change what a terminal shows, and how it is written instead."""


class TextFormatter(logging.Formatter):
    """One line of key=value pairs; a traceback follows in lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        message = record.getMessage().translate(_CONTROLS)
        line = f"time={_time(record)} level={record.levelname.lower()} logger={record.name} {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up(level: str, log_format: str) -> None:
    """Send log lines of `level` and above to standard error, in the format "text" or "json"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _time(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
