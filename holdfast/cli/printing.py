"""What the command line prints: tables and events for people, JSON for programs."""

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec

Row: TypeAlias = dict[str, Any]
"""A JSON object as a node has answered it, with whatever newer nodes have added."""

BOLD: Final = "1"
RED: Final = "31"


def print_json(value: object) -> None:
    """Print one JSON document, indented."""
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_line(value: object) -> None:
    """Print one JSON document in one line, at once: somebody may be waiting for it."""
    print(msgspec.json.encode(value).decode(), flush=True)


def colored(text: str, color: str) -> str:
    """Return a text in a colour, where colours are wanted: on a terminal, unless NO_COLOR is set."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\x1b[{color}m{text}\x1b[0m"


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows below their titles; nothing but the titles when there are none."""
    for line in table(columns, rows):
        print(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table. What a cell contains cannot disturb the terminal."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [
        max(len(title), *(len(row[i]) for row in cells), 0) if cells else len(title)
        for i, title in enumerate(columns)
    ]
    lines = [colored(_line(columns, widths), BOLD)]
    return lines + [_line(row, widths) for row in cells]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


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


def event_line(event: Mapping[str, Any]) -> str:
    """Return what happened in one line for people."""
    words = [f"{event.get('event', ''):<15}", f"{event.get('kind') or '-':<9}", str(event.get("name", ""))]
    if event.get("owner"):
        words.append(f"owner={event['owner']}")
    words += [
        f"{key}={event[key]}" for key in ("token", "mode", "permits", "value", "reason") if event.get(key)
    ]
    if event.get("lasted_ms"):
        words.append(f"lasted={length(event['lasted_ms'])}")
    return printable(" ".join(words))
