"""Log lines on standard error: key=value pairs for people, JSON for collectors."""

import ast
import datetime as dt
import json
import logging
import re
import sys
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, TextIO

_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029) if code != ord("\n")
} | {ord("\n"): "\\n"}
"""What could begin a line of its own, or change what a terminal shows, and how it is written instead."""
_EVENT: Final = "event="
"""What our own lines begin with. The words of libraries have no fields."""
_PAIR: Final = re.compile(r"""([a-z]\w*)=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|\S*)(?: |$)""")
"""A field and its value: quoted as Python quotes, or up to the next blank."""
_TEXTS: Final = re.compile(r"([a-z]\w*)=%(?!d%s)[^ ]*[sx](?: |$)")
"""A field whose value is a text, even where it looks like a number: an id, a digest. A number that
other fields follow in one text (`status=%d%s`) stays a number."""
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_WORDS: Final = {"True": True, "False": False}
_KEPT_CHARS_MAX: Final = 8_192
"""Characters of one line that are kept, a traceback included."""
_SHOWN_CHARS: Final = 6
"""The first characters of what could be a secret, by which lines can be told to be about the same."""
_LIKE_SECRETS: Final = tuple(
    (re.compile(before + rest), len(before) + _SHOWN_CHARS)
    for before, rest in (("", "[0-9a-fA-F]{32,}"), ("", "hft_[!-~]+"), ("Bearer ", "[!-~]+"))
)
"""What could be the id of a hold or a session, a token, or a part of one, and how much of it is shown.

One pattern for each: what they begin with is looked for by itself, which takes a quarter of the time.
"""


class TextFormatter(logging.Formatter):
    """One line of key=value pairs; a traceback follows in lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        message = record.getMessage().translate(_CONTROLS)
        line = f"time={_time(record)} level={record.levelname.lower()} logger={record.name} {message}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object per line, with each field of an event as a field of the object."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record."""
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        line = dict(_fields(record.getMessage(), _texts(str(record.msg)))) | line
        return json.dumps(line, ensure_ascii=False)


class Kept:
    """The newest lines of the log of this process, for `holdfast debug`."""

    def __init__(self, lines_max: int = 1000, bytes_max: int = 1 << 20) -> None:
        """Keep so many lines, and so many bytes of them."""
        self._lines: deque[str] = deque()
        self._lines_max, self._bytes_max = lines_max, bytes_max
        self._bytes = 0
        self.count = 0
        """How many there were."""

    def add(self, line: str) -> None:
        """Keep one more, of a very long one its beginning. Called with the lock of a handler.

        No line has a secret; what looks like one is cut all the same. Now, and once: many that ask for
        what is kept must not keep the node busy.
        """
        is_long = len(line) > _KEPT_CHARS_MAX
        line = _without_secrets(line[:_KEPT_CHARS_MAX])
        if is_long:
            line = _CUT_SECRET.sub("", line) + "..."
        self.count += 1
        self._lines.append(line)
        self._bytes += sys.getsizeof(line)
        while len(self._lines) > self._lines_max or self._bytes > self._bytes_max:
            self._bytes -= sys.getsizeof(self._lines.popleft())

    def shown(self) -> tuple[str, ...]:
        """Return them, the oldest first."""
        return tuple(self._lines.copy())


_CUT_SECRET: Final = re.compile("[0-9a-fA-F]{1,31}$")
"""What could be the rest of an id that goes on behind the end of what is kept."""


def _without_secrets(line: str) -> str:
    for pattern, shown in _LIKE_SECRETS:
        line = pattern.sub(lambda found, shown=shown: f"{found[0][:shown]}...", line)  # type: ignore[misc]
    return line


kept: Final = Kept()
"""Those of this process, whose log is one, too."""


class _KeepingHandler(logging.StreamHandler[TextIO]):
    """Writes lines, and keeps them as they were written."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as text."""
        line = super().format(record)
        kept.add(line)
        return line


def set_up(level: str, log_format: str) -> None:
    """Send log lines of `level` and above to standard error, in the format "text" or "json"."""
    handler = _KeepingHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _fields(message: str, texts: frozenset[str]) -> Iterator[tuple[str, object]]:
    """Yield the fields of an event, with those in `texts` as they are; nothing for other messages."""
    if not message.startswith(_EVENT):
        return
    for name, written in _PAIR.findall(message):
        yield name, _WORDS.get(written, written) if name in texts else _value(written)


def _value(written: str) -> object:
    """Return what a value stands for: a quoted text, a number, true or false, or itself."""
    if written[:1] in ("'", '"'):
        try:
            return ast.literal_eval(written)
        except (SyntaxError, ValueError):
            return written
    if _NUMBER.fullmatch(written):
        return float(written) if "." in written else int(written)
    return _WORDS.get(written, written)


@lru_cache(maxsize=1000)
def _texts(template: str) -> frozenset[str]:
    """Return the fields of a line that are texts by its template."""
    return frozenset(_TEXTS.findall(template)) if template.startswith(_EVENT) else frozenset()


def _time(record: logging.LogRecord) -> str:
    moment = dt.datetime.fromtimestamp(record.created, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
