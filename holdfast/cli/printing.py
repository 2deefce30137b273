"""What the command line prints, in one place: tables for people, JSON for programs, sentences on stderr.

Every command that shows something takes `-o`, see `OUTPUTS`.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import msgspec

Row: TypeAlias = dict[str, Any]
"""A JSON object as a node has answered it, with whatever newer nodes have added."""
Columns: TypeAlias = Mapping[str, Callable[[Row], object]]
"""The columns of a table by their titles, and how to get each out of a row."""

TABLE: Final = "table"
JSON: Final = "json"
JSONL: Final = "jsonl"
OUTPUTS: Final = (TABLE, JSON, JSONL)
"""The formats: a table or a sentence; one indented JSON document; one JSON document in each line."""

EVENT_WIDTH: Final = len("revocation-withdrawn")
"""How long the longest name of an event is."""

_in_place: list[str] = []
"""The line that `say_in_place` shows now, if any."""

BOLD: Final = "1"
RED: Final = "31"
CLEAR_LINE: Final = "\r\x1b[K"
"""Moves a terminal's cursor to the beginning of its line, and empties that line."""


def print_rows(rows: Sequence[Row], columns: Columns, output: str) -> None:
    """Print any number of things: as a table, as one JSON array, or as one JSON document in each line."""
    if output == TABLE:
        print_lines(table(columns, rows))
    elif output == JSON:
        _print_json(rows)
    else:
        for row in rows:
            _print_line(row)


def print_one(value: object, text: Iterable[str], output: str) -> None:
    """Print one thing: the lines of `text`, or `value` as one JSON document."""
    if output == TABLE:
        print_lines(text)
    else:
        print_next(value, "", output)


def print_next(value: object, text: str, output: str) -> None:
    """Print the next one of things that go on, at once: somebody may be waiting for it."""
    if output == TABLE:
        print(text, flush=True)
    elif output == JSON:
        _print_json(value)
    else:
        _print_line(value)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines for people."""
    for line in lines:
        print(line)


async def asked(question: str) -> bool:
    """Ask at the terminal, which standard input must be; whether the answer is yes. Interrupting ends it."""
    say_in_place("")
    print(f"holdfast: {question} [y/N] ", end="", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    is_there = asyncio.Event()
    loop.add_reader(sys.stdin, is_there.set)
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_on_screen(text: str) -> None:
    """Print what a terminal obeys, as it is and at once."""
    print(text, end="", flush=True)


def say(*sentences: str) -> None:
    """Tell people something beside the answer, on standard error, each sentence in a line of its own."""
    say_in_place("")
    for sentence in sentences:
        print(f"holdfast: {sentence}", file=sys.stderr, flush=True)


def say_in_place(text: str) -> None:
    """Show a line on the terminal that standard error is, in place of the one shown so; "" only clears it."""
    if text or _in_place:
        print(f"{CLEAR_LINE}{text}", end="", file=sys.stderr, flush=True)
    _in_place[:] = [text] if text else []


class SaidLog(logging.Handler):
    """Tells people what the client logs, as anything else that is said."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say a record."""
        try:
            say(self.format(record))
        except OSError:  # nobody reads standard error any more
            self.handleError(record)


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode(), flush=True)


def _print_line(value: object) -> None:
    print(msgspec.json.encode(value).decode(), flush=True)


def to_row(value: object) -> Row:
    """Return one of the client's values as the JSON object that it was."""
    return msgspec.convert(msgspec.to_builtins(value), Row)


def colored(text: str, color: str) -> str:
    """Return a text in a colour, where colours are wanted: on a terminal, unless NO_COLOR is set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{color}m{text}\x1b[0m"


def table(columns: Columns, rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table: its titles, and each row. No cell can disturb the terminal."""
    cells = [[printable(str(show(row))) for show in columns.values()] for row in rows]
    widths = [max(len(title), *(len(row[i]) for row in cells), 0) for i, title in enumerate(columns)]
    return [colored(_line(list(columns), widths), BOLD), *(_line(row, widths) for row in cells)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def field(name: str, default: str = "-") -> Callable[[Row], object]:
    """Return the column that shows one field of a row, and `default` where it is missing or null."""
    return lambda row: default if row.get(name) is None else row[name]


def length_of(*names: str) -> Callable[[Row], str]:
    """Return the column that shows a length of time: the first of these fields that a row has."""
    return lambda row: length(next((row[name] for name in names if row.get(name) is not None), None))


def printable(text: str) -> str:
    """Return a text without what a terminal would obey: others choose names, owners and values."""
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def length(ms: float | None) -> str:
    """Return a length of time for people; a dash for none."""
    if ms is None:
        return "-"
    seconds = ms / 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f}{unit}"
    return f"{seconds:.1f}s"


def of(used: object, limit: object) -> str:
    """Return how much there is, and of how much if that is limited."""
    return str(used) if limit is None else f"{used} of {limit}"


def moment(unix_ms: float, to_the: str = "milliseconds") -> str:
    """Return a moment of the wall clock, in UTC."""
    text = datetime.fromtimestamp(unix_ms / 1000, UTC).isoformat(timespec=to_the)
    return text.replace("+00:00", "Z")


def event_line(event: Mapping[str, Any]) -> str:
    """Return what happened in one line for people."""
    words = [
        f"{event.get('event', ''):<{EVENT_WIDTH}}",
        f"{event.get('kind') or '-':<9}",
        str(event.get("name", "")),
    ]
    if event.get("owner"):
        words.append(f"owner={event['owner']}")
    elif event.get("principal"):
        words.append(f"principal={event['principal']}")
    told = ("token", "mode", "permits", "value", "reason", "by")
    words += [f"{key}={event[key]}" for key in told if event.get(key)]
    if event.get("lasted_ms"):
        words.append(f"lasted={length(event['lasted_ms'])}")
    return printable(" ".join(words))
